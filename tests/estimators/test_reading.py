"""Data that are not in memory: an operator instead of an array."""

from __future__ import annotations

import numpy as np
import pytest

from foldless import SparseClassifier
from foldless.datasets import make_class_means
from foldless.operators import Dense


class Elsewhere(Dense):
    """Stands for data that live on disk or on other machines."""


@pytest.fixture(scope="module")
def study():
    return make_class_means(n_samples=80, n_features=300, n_active=5, random_state=0)


def named(X):
    operator = Elsewhere(X)
    operator.column_names = [f"gene {j}" for j in range(X.shape[1])]
    return operator


def test_an_operator_is_fitted_and_predicted_as_the_array_is(study):
    there, here = (
        SparseClassifier().fit(Elsewhere(study.X), study.y),
        SparseClassifier().fit(study.X, study.y),
    )
    np.testing.assert_array_equal(there.coef_, here.coef_)
    np.testing.assert_array_equal(there.predict_proba(Elsewhere(study.X)), here.predict_proba(study.X))
    assert there.n_features_in_ == 300
    assert not hasattr(there, "feature_names_in_")


def test_names_come_with_the_operator_and_are_compared(study):
    model = SparseClassifier().fit(named(study.X), study.y)
    assert list(model.feature_names_in_[:2]) == ["gene 0", "gene 1"]
    other = named(study.X)
    other.column_names[7] = "gene eight"
    with pytest.raises(ValueError, match="column 7 is 'gene eight' instead of 'gene 7'"):
        model.predict(other)
    model.fit(Elsewhere(study.X), study.y)
    assert not hasattr(model, "feature_names_in_")


def test_what_does_not_fit_is_said_before_any_work(study):
    with pytest.raises(ValueError, match="80 rows, but y has 79 labels"):
        SparseClassifier().fit(Elsewhere(study.X), study.y[:-1])
    model = SparseClassifier().fit(study.X, study.y)
    with pytest.raises(ValueError, match="299 features, but SparseClassifier is expecting 300"):
        model.predict(Elsewhere(study.X[:, :-1]))


def test_a_value_that_is_not_finite_is_found_in_its_column(study):
    X = study.X.copy()
    X[3, 17] = np.nan
    with pytest.raises(ValueError, match="column 17"):
        SparseClassifier().fit(Elsewhere(X), study.y)
