"""The answer does not depend on units, order or repetition."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.utils.class_weight import compute_sample_weight

from foldless import GAMPClassifier, SparseClassifier
from foldless.datasets import make_class_means, make_logistic
from foldless.estimators._scikit_learn import first_of_equals
from foldless.operators import operator_from

MODELS = {
    "SparseClassifier": SparseClassifier(),
    "GAMPClassifier": GAMPClassifier(),
    "discriminative, per coordinate": GAMPClassifier(generative_weight=0.0, variances="per-coordinate"),
    "max-sum": GAMPClassifier("laplace", rule="max-sum", generative_weight=0.0),
    "means removed": GAMPClassifier(mean_removal=True),
}
DATA = {
    "class means": make_class_means(
        n_samples=90, n_features=300, n_active=5, mislabelled=0.03, random_state=1
    ),
    "logistic": make_logistic(n_samples=150, n_features=200, n_active=5, size=1.5, random_state=2),
}
every_model = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
every_data = pytest.mark.parametrize("data", DATA.values(), ids=DATA.keys())


@every_model
@every_data
def test_the_same_data_give_the_same_answer(model, data):
    first, second = clone(model).fit(data.X, data.y), clone(model).fit(data.X, data.y)
    assert_array_equal(first.coef_, second.coef_)
    assert_array_equal(first.inclusion_probability_, second.inclusion_probability_)


@every_model
@every_data
def test_units_do_not_matter(model, data):
    rng = np.random.default_rng(0)
    factor = rng.choice([1e-3, 1e6, -1.0, 1.0], data.X.shape[1])
    if getattr(model, "mean_removal", False):
        factor = np.abs(factor)  # the common factor of columns depends on which way round they are
    shift = rng.choice([0.0, 5.0, -300.0], data.X.shape[1]) * np.abs(factor)
    before = clone(model).fit(data.X, data.y)
    after = clone(model).fit(data.X * factor + shift, data.y)
    assert_allclose(after.predict_proba(data.X * factor + shift), before.predict_proba(data.X), rtol=1e-6)
    assert_allclose(after.coef_ * factor, before.coef_, rtol=1e-5, atol=1e-9)
    assert_allclose(after.inclusion_probability_, before.inclusion_probability_, rtol=1e-6, atol=1e-9)


@every_model
@every_data
def test_order_does_not_matter(model, data):
    rng = np.random.default_rng(1)
    rows, columns = rng.permutation(data.X.shape[0]), rng.permutation(data.X.shape[1])
    before = clone(model).fit(data.X, data.y)
    after = clone(model).fit(data.X[rows][:, columns], data.y[rows])
    assert_allclose(after.predict_proba(data.X[:, columns]), before.predict_proba(data.X), rtol=1e-6)
    assert_allclose(after.loo_proba_, before.loo_proba_[rows], rtol=1e-6)


@every_model
def test_exchanging_the_classes_exchanges_the_probabilities(model):
    data = DATA["class means"]
    before = clone(model).fit(data.X, data.y)
    after = clone(model).fit(data.X, -data.y)
    assert_allclose(after.predict_proba(data.X), before.predict_proba(data.X)[:, ::-1], rtol=1e-6)


@every_model
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_weight_two_is_a_repeated_row_and_weight_zero_no_row(model):
    data = DATA["class means"]
    weight = np.random.default_rng(2).integers(0, 4, data.y.size)
    weighted = clone(model).fit(data.X, data.y, sample_weight=weight)
    repeated = clone(model).fit(np.repeat(data.X, weight, axis=0), np.repeat(data.y, weight))
    assert_allclose(weighted.predict_proba(data.X), repeated.predict_proba(data.X), rtol=1e-6)
    # Copies of a row are left out together: none predicts the label of another.
    assert_allclose(repeated.loo_proba_, np.repeat(weighted.loo_proba_, weight, axis=0), rtol=1e-6)
    assert_allclose(weighted.loo_error_, repeated.loo_error_)
    assert_allclose(weighted.loo_log_loss_, repeated.loo_log_loss_, rtol=1e-6)


def test_rows_that_samples_share_are_no_copies():
    """Of a table of few answers equal rows are samples of their own, of more columns copies."""
    rng = np.random.default_rng(0)
    answers, noise = rng.integers(0, 2, (200, 4)).astype(float), rng.standard_normal((200, 30))
    y = (rng.random(200) < 0.2 + 0.5 * answers[:, 0]).astype(int)
    assert first_of_equals(operator_from(answers), y, np.ones(200)) is None
    assert first_of_equals(operator_from(noise), y, np.ones(200)) is None
    twice = np.append(np.arange(200), [3, 7, 3])
    for X in (noise, sparse.csr_matrix(np.where(noise > 1, noise, 0.0) + np.eye(200, 30))):
        first = first_of_equals(operator_from(X[twice]), y[twice], np.ones(203))
        assert_array_equal(first, twice)
    other = y[twice].copy()
    other[-1] = 1 - other[-1]
    assert first_of_equals(operator_from(noise[twice]), other, np.ones(203)) is None


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_class_weights_and_the_same_sample_weights_leave_out_alike():
    data = make_class_means(n_samples=60, n_features=100, n_active=3, bayes_error=0.2, random_state=5)
    unequal = np.flatnonzero((data.y == 1) | (np.arange(data.y.size) % 3 == 0))
    X, y = data.X[unequal], data.y[unequal]
    of_classes = SparseClassifier(class_weight="balanced").fit(X, y)
    of_samples = SparseClassifier().fit(X, y, sample_weight=compute_sample_weight("balanced", y))
    assert_allclose(of_classes.loo_proba_, of_samples.loo_proba_)
    wrong = of_classes.classes_[of_classes.loo_proba_.argmax(axis=1)] != y
    # Errors are averages over samples as they were given: weights of samples count, those of classes do not.
    assert_allclose(of_classes.loo_error_, wrong.mean())
    assert_allclose(of_samples.loo_error_, np.average(wrong, weights=compute_sample_weight("balanced", y)))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_class_weight_moves_the_boundary():
    data = make_class_means(n_samples=120, n_features=100, n_active=3, bayes_error=0.2, random_state=5)
    plain = SparseClassifier().fit(data.X, data.y)
    tilted = SparseClassifier(class_weight={1: 10.0}).fit(data.X, data.y)
    assert (tilted.predict(data.X) == 1).mean() > (plain.predict(data.X) == 1).mean()
    unequal = np.flatnonzero((data.y == 1) | (np.arange(data.y.size) % 4 == 0))
    balanced = SparseClassifier(class_weight="balanced").fit(data.X[unequal], data.y[unequal])
    plain = SparseClassifier().fit(data.X[unequal], data.y[unequal])
    assert balanced.predict_proba(data.X)[:, 0].mean() > plain.predict_proba(data.X)[:, 0].mean()


def test_large_offsets_cost_no_accuracy():
    data = DATA["class means"]
    before = SparseClassifier().fit(data.X, data.y)
    after = SparseClassifier().fit(data.X + 1e7, data.y)
    assert_allclose(after.predict_proba(data.X + 1e7), before.predict_proba(data.X), rtol=1e-5, atol=1e-7)


def test_constant_and_duplicated_columns_are_handled():
    data = DATA["class means"]
    twin = data.X[:, data.active[:1]]
    X = np.hstack([data.X, np.full((data.X.shape[0], 2), 7.0), twin, twin])
    fitted = SparseClassifier().fit(X, data.y)
    constant = slice(data.X.shape[1], data.X.shape[1] + 2)
    assert np.all(fitted.coef_[0, constant] == 0)
    assert np.all(fitted.inclusion_probability_[constant] == 0)
    twins = [data.active[0], X.shape[1] - 2, X.shape[1] - 1]
    assert_allclose(fitted.inclusion_probability_[twins], fitted.inclusion_probability_[twins[0]], rtol=1e-6)
    assert np.all(np.isfinite(fitted.predict_proba(X)))
    assert fitted.score(X, data.y) > 0.9


def test_a_table_of_constants_says_only_how_frequent_classes_are():
    X, y = np.ones((30, 4)), np.repeat([0, 1], [10, 20])
    fitted = SparseClassifier().fit(X, y)
    assert_allclose(fitted.predict_proba(X)[:, 1], 2 / 3, atol=0.03)
    assert not fitted.get_support().any()
