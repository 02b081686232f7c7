"""Weights, columns and ties at the edge of what numbers can hold."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

import foldless
from foldless.estimators.baselines import SBMLRClassifier
from foldless.solvers.smlr.newton_loo import scored

RNG = np.random.default_rng(0)
X = RNG.standard_normal((40, 12))
Y = np.where(X[:, 0] + 0.5 * RNG.standard_normal(40) > 0, 1, 0)
THREE = RNG.integers(0, 3, 40)
MODELS = {
    "sparse": foldless.SparseClassifier(),
    "gamp": foldless.GAMPClassifier(),
    "smlr": foldless.SMLRClassifier(),
    "ep": foldless.EPBayesPointClassifier(),
    "sbmlr": SBMLRClassifier(),
}
every_model = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)


@every_model
@pytest.mark.parametrize("weight", [1e30, 1e300, 1e-30, 1e-300])
def test_weights_that_are_no_numbers_of_samples_are_refused(model, weight):
    with pytest.raises(ValueError, match=r"the largest sample_weight is .* Divide weights by their mean"):
        clone(model).fit(X, Y, sample_weight=np.full(40, weight))


@every_model
@pytest.mark.parametrize("labels", [Y, THREE], ids=["two", "three"])
@pytest.mark.parametrize(
    "weight",
    [
        np.full(40, 1e6),
        np.full(40, 1e-12),
        np.geomspace(1e-20, 1, 40),
        np.where(np.arange(40) == 3, 1e6, 1.0),
    ],
    ids=["large", "small", "spread", "one"],
)
@pytest.mark.filterwarnings("ignore")
def test_weights_within_bounds_end_in_finite_numbers(model, labels, weight):
    fitted = clone(model).fit(X, labels, sample_weight=weight)
    assert np.all(np.isfinite(fitted.decision_function(X)))
    assert 0 <= getattr(fitted, "loo_error_", 0) <= 1
    assert np.all(np.isfinite(getattr(fitted, "log_evidence_", 0.0)))


@every_model
@pytest.mark.parametrize("size", [5e-324, 1e-310, 1e-160])
def test_a_denormal_column_is_one_like_others(model, size):
    table = X.copy()
    table[:, 3] = size * np.sign(X[:, 3])
    assert np.all(np.isfinite(clone(model).fit(table, Y).decision_function(table)))


def test_an_error_is_at_most_one():
    log_proba = np.log(np.tile([0.9, 0.1], (10, 1)))
    weight = np.random.default_rng(4).random((500, 10))
    assert max(scored(log_proba, np.ones(10, dtype=int), of).error for of in weight) <= 1.0


def frame(kind, names):
    if kind == "pandas":
        return pytest.importorskip("pandas").DataFrame(X[:, :3], columns=names)
    return pytest.importorskip("pyarrow").table(list(X[:, :3].T), names=names)


@every_model
@pytest.mark.parametrize("kind", ["pandas", "pyarrow"])
def test_columns_of_one_name_are_refused_by_name(model, kind):
    with pytest.raises(ValueError, match="X has 2 columns called 'a'"):
        clone(model).fit(frame(kind, ["a", "b", "a"]), Y)
    fitted = clone(model).fit(frame(kind, ["a", "b", "c"]), Y)
    with pytest.raises(ValueError, match="X has 2 columns called 'b'"):
        fitted.predict(frame(kind, ["a", "b", "b"]))


class Tied(foldless.SMLRClassifier):
    """Scores that differ by less than probabilities can show."""

    def decision_function(self, X):
        return X[:, 0]

    def predict_proba(self, X):
        second = 0.5 + np.round(0.25 * X[:, 0], 15)
        return np.column_stack([1.0 - second, second])


def test_predictions_are_the_most_probable_class_at_ties():
    model = Tied().fit(X, Y)
    ties = np.zeros((3, X.shape[1]))
    ties[:, 0] = 1e-17, -1e-17, 1e-3
    assert model.predict(ties).tolist() == [0, 0, 1]


@every_model
def test_predictions_agree_with_probabilities_where_nothing_is_learnt(model):
    mirrored = np.vstack([X, X])
    fitted = clone(model).fit(mirrored, np.repeat([0, 1], 40))
    most_probable = fitted.predict_proba(X).argmax(axis=1)
    np.testing.assert_array_equal(fitted.predict(X), most_probable)


@pytest.mark.parametrize(
    ("counts", "labels", "more"),
    [
        # Without the first part one group is left, and then none.
        ([1, 0, 1, 0, 0], [1, 0, 1, 0, 0], {"groups": [0, 0, 1, 1, 2]}),
        # Without a part the only column is constant.
        ([1] + 12 * [0], 6 * [0, 1] + [0], {"sample_weight": [0, 0, 0, 1, 1, 2, 2, 1, 2, 1, 2, 0, 2]}),
    ],
    ids=["no group", "no column"],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_parts_of_small_tables_may_leave_nothing(counts, labels, more):
    column, labels = np.array(counts, dtype=float)[:, np.newaxis], np.array(labels)
    table = np.hstack([100 + column, *(np.full_like(column, 100) for _ in range(2))])
    for given in (table, column):
        found = foldless.PanelClassifier(class_weight="balanced", n_parts=2).fit(given, labels, **more)
        assert np.all(np.isfinite(found.predict_proba(given)))


def test_a_kernel_that_overflows_is_refused():
    large = (1e25 * X).astype(np.float32)
    with pytest.raises(ValueError, match=r"kernel='rbf' of these samples is not finite.*StandardScaler"):
        foldless.SMLRClassifier(kernel="rbf").fit(large, Y)


def test_classes_are_named_as_they_are_written():
    with pytest.raises(ValueError, match=r"only one class, 'ill'\. Check"):
        foldless.SparseClassifier().fit(X, np.full(40, "ill"))
    with pytest.raises(ValueError, match="class 'ill' has no samples left"):
        foldless.SparseClassifier().fit(X, np.where(Y, "ill", "well"), sample_weight=1 - Y)
    with pytest.raises(ValueError, match="only one group, 7: nothing"):
        foldless.SparseClassifier().fit(X, Y, groups=np.full(40, 7))
