"""Bad input is refused before any work, with what came, what is needed and what to do."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import foldless
from foldless import GAMPClassifier, PrunedBayesClassifier, SparseClassifier
from foldless.channels import Hinge, Probit, Step
from foldless.estimators._scikit_learn import LARGE
from foldless.priors import SpikeAndSlab

X = np.random.default_rng(0).normal(size=(20, 5))
y = np.repeat([0, 1], 10)


def with_value(value):
    spoiled = X.copy()
    spoiled[3, 2] = value
    return spoiled


@pytest.mark.parametrize(
    "model",
    [SparseClassifier(), GAMPClassifier(), PrunedBayesClassifier()],
    ids=lambda m: type(m).__name__,
)
@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (with_value(np.nan), y, "NaN"),
        (with_value(np.inf), y, "infinity"),
        (sparse.csr_array(with_value(np.nan)), y, "NaN"),
        (X, np.zeros(20), "only one class"),
        (X, np.array(["a", "b", None, "b"] * 5, dtype=object), "no label for 5 of 20 samples"),
        (X, y[:-1], "inconsistent numbers of samples"),
        (X[:, 0], y, "2D array"),
        (X.astype(complex), y, "Complex data"),
        (np.full((20, 5), "text"), y, "could not convert|convert|numeric"),
        (X, X[:, 0], "continuous|Unknown label type"),
        (X[:1], y[:1], "minimum of 2"),
        (X[:, :0], y, "0 feature"),
    ],
)
def test_data(model, X, y, message):
    with pytest.raises(ValueError, match=message):
        model.fit(X, y)


def test_words_and_gaps_are_told_with_what_to_do():
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])])
    frame["batch"] = pd.Categorical(np.where(np.arange(20) % 3, "a", "b"))
    with pytest.raises(ValueError, match=r"columns of words: 'batch'.*get_dummies"):
        SparseClassifier().fit(frame, y)
    # Nullable numbers and truths are no words, and do not hide them.
    frame["age"], frame["treated"] = pd.array(range(20), "Int64"), pd.array([True, False] * 10, "boolean")
    with pytest.raises(ValueError, match=r"columns of words: 'batch' .*get_dummies"):
        SparseClassifier().fit(frame, y)
    with pytest.raises(ValueError, match=r"contains NaN.*SimpleImputer.*SparseClassifier\(\)"):
        SparseClassifier().fit(with_value(np.nan), y)


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_dates_are_told_with_what_to_do(zone):
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])])
    frame["taken"] = pd.date_range("2020-01-01", periods=len(X), tz=zone)
    with pytest.raises(ValueError, match=r"columns of dates or times: 'taken'.*drop"):
        SparseClassifier().fit(frame, y)


def test_three_classes_are_for_the_classifiers_that_take_them():
    three = np.arange(20) % 3
    with pytest.raises(ValueError, match=r"Only binary classification.*Use SparseClassifier"):
        PrunedBayesClassifier().fit(X, three)
    with pytest.raises(ValueError, match=r"solver='vamp' is for two classes. Use 'gamp', 'ep' or 'hygamp'"):
        GAMPClassifier(solver="vamp").fit(X, three)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"prior": "horseshoe"}, "Unknown prior 'horseshoe'.*spike-and-slab"),
        ({"channel": "cauchit"}, "Unknown channel 'cauchit'.*logistic"),
        ({"rule": "min-sum"}, "rule must be one of"),
        ({"variances": "none"}, "variances must be one of"),
        ({"damping": 0.0}, r"in \(0, 1\]"),
        ({"damping": "strong"}, "'adaptive' or a step"),
        ({"generative_weight": 1.5}, "generative_weight"),
        ({"generative_weight": "some"}, "'auto' or a number"),
        ({"generative_weight": 0.5, "channel": Probit()}, "needs a logistic channel"),
        ({"tune": "prior__inclusion"}, r"Write tune=\['prior__inclusion'\]"),
        ({"tune": ["prior__sparsity"]}, "cannot be learnt here. What can be"),
        ({"tune": ["prior__slab__variance", "channel__scale"]}, "one parameter"),
        ({"tune": ["prior__slab__variance"], "channel": Step()}, "only sees the sign"),
        ({"rule": "max-sum"}, "max-sum.*needs a prior with `proximal`"),
        ({"rule": "max-sum", "prior": "laplace", "channel": "step"}, "needs a channel with `proximal`"),
        ({"hyper_prior": "strong"}, "'weak', None or a HyperPrior"),
        ({"always_keep": ["age"]}, "no column names"),
        ({"always_keep": "age"}, r"Write always_keep=\['age'\]"),
        ({"always_keep": [7]}, "positions from 0 to 4"),
        ({"fdr": 2.0}, "fdr"),
        ({"tol": -1.0}, "tol"),
        ({"max_iter": 0}, "max_iter"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_parameters(parameters, message):
    with pytest.raises(ValueError, match=message):
        GAMPClassifier(**parameters).fit(X, y)


@pytest.mark.parametrize(
    "weight", [-np.ones(20), np.zeros(20), np.ones(19), np.r_[np.zeros(10), np.ones(10)]]
)
def test_sample_weights(weight):
    with pytest.raises(ValueError, match="weight"):
        SparseClassifier().fit(X, y, sample_weight=weight)


def test_other_columns_at_prediction():
    fitted = SparseClassifier().fit(X, y)
    with pytest.raises(ValueError, match="expecting 5 features"):
        fitted.predict(X[:, :4])


def test_selection_level():
    fitted = SparseClassifier().fit(X, y)
    with pytest.raises(ValueError, match="one false feature in ten"):
        fitted.get_support(fdr=-0.1)


def test_classes_in_place_of_objects():
    with pytest.raises((ValueError, TypeError), match="object"):
        GAMPClassifier(prior=SpikeAndSlab).fit(X, y)
    with pytest.raises((ValueError, TypeError), match="object"):
        GAMPClassifier(channel=Hinge).fit(X, y)


@pytest.mark.parametrize(
    "model", [foldless.GAMPClassifier(), foldless.SMLRClassifier(rate=5.0), foldless.EPBayesPointClassifier()]
)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_large_table_with_a_gap_is_refused_by_predictions(model, value):
    """Large tables are looked through for such values only where a prediction is not finite."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((30, 600)), np.arange(30) % 2
    model.fit(X + y[:, np.newaxis], y)
    many = np.tile(X, (60, 1))
    assert many.size > LARGE
    assert model.predict_proba(many).shape == (1800, 2)
    many[700, 599] = value
    for predict in (model.predict, model.predict_proba, model.decision_function):
        with pytest.raises(ValueError, match="in row 700, column 599"):
            predict(many)
