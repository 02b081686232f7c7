"""Warm starts never change an answer: they go on from a fit of the same data, and from no other."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from foldless import GAMPClassifier, SparseClassifier

TOL = 1e-4
Data = tuple[Any, np.ndarray]


def words() -> Data:
    """Counts of 200 words; twenty are used more by one class than by the other."""
    rng = np.random.default_rng(0)
    y = np.arange(120) % 2
    rate = np.tile(0.05 * np.exp(0.5 * rng.normal(size=200)), (120, 1))
    rate[:, :20] *= np.where(y[:, np.newaxis] == 0, 3.0, 0.3)
    return sparse.csr_array(rng.poisson(rate).astype(np.float64)), y


def genes() -> Data:
    """Three common factors, and six genes that differ between classes."""
    rng = np.random.default_rng(1)
    y = np.arange(60) % 2
    X = rng.normal(size=(60, 300)) + rng.normal(size=(60, 3)) @ rng.normal(size=(3, 300))
    X[:, :6] += 1.5 * y[:, np.newaxis]
    return X, y


def four_classes() -> Data:
    rng = np.random.default_rng(2)
    y = np.arange(80) % 4
    X = rng.normal(size=(80, 200))
    X[:, :8] += 2 * rng.normal(size=(4, 8))[y]
    return X, y


def four_classes_of_genes() -> Data:
    X, y = four_classes()
    return X + 0.7 * np.random.default_rng(3).normal(size=(80, 1)), y


def independent() -> Data:
    rng = np.random.default_rng(4)
    y = np.arange(80) % 2
    X = rng.normal(size=(80, 300))
    X[:, :4] += 1.2 * y[:, np.newaxis]
    return X, y


PATHS = {
    words: "independent words",
    genes: "exact",
    four_classes: "independent",
    four_classes_of_genes: "exact",
    independent: "independent",
}
every_table = pytest.mark.parametrize("table", PATHS, ids=lambda table: table.__name__)
FITTED = ("coef_", "coef_std_", "intercept_", "inclusion_probability_", "loo_proba_")


def assert_same_answer(warm: Any, cold: Any, tol: float) -> None:
    for name in FITTED:
        a, b = getattr(warm, name), getattr(cold, name)
        assert_allclose(a, b, atol=tol * max(1.0, np.abs(b).max()), rtol=0.0, err_msg=name)
    assert warm.plan_ == cold.plan_
    assert [share.name for share in warm.models_ if share.weight > 0.02] == [
        share.name for share in cold.models_ if share.weight > 0.02
    ]


def assert_same_bits(warm: Any, cold: Any, what: str = "") -> None:
    for name in FITTED:
        assert_array_equal(getattr(warm, name), getattr(cold, name), err_msg=f"{name} {what}")
    assert warm.record_ == cold.record_, what


@every_table
def test_a_warm_fit_is_the_cold_fit_to_its_tolerance(table: Any) -> None:
    X, y = table()
    cold = SparseClassifier(tol=TOL).fit(X, y)
    assert cold.plan_.path == PATHS[table]
    warm = SparseClassifier(tol=TOL, warm_start=True).fit(X, y)
    assert_same_bits(warm, cold)
    for _ in range(2):
        warm.fit(X, y)
        # A change of `tol` in each iteration is some times that from the fixed point, and tolerances of
        # exact covariances are those of the plan.
        assert_same_answer(warm, cold, 20 * max(TOL, cold.plan_.sparse.tolerance))
        assert warm.n_iter_ < cold.n_iter_


@pytest.mark.parametrize("table", [words, genes, four_classes], ids=lambda table: table.__name__)
def test_a_warm_fit_of_anything_else_is_a_cold_fit(table: Any) -> None:
    X, y = table()
    known = SparseClassifier(tol=TOL, warm_start=True).fit(X, y)
    rows = np.random.default_rng(5).permutation(y.size)
    changed = X.copy()
    stored = changed.data if sparse.issparse(changed) else changed[7]
    stored[3] += 0.5
    swapped = y.copy()
    swapped[[0, 1]] = swapped[[1, 0]]
    weight = np.ones(y.size)
    weight[4] = 2.0
    others: dict[str, tuple[Any, Any, dict[str, Any], dict[str, Any]]] = {
        "one value": (changed, y, {}, {}),
        "two labels": (X, swapped, {}, {}),
        "order of rows": (X[rows], y[rows], {}, {}),
        "weights": (X, y, {"sample_weight": weight}, {}),
        "class weights": (X, y, {}, {"class_weight": {0: 2.0}}),
        "kept columns": (X, y, {}, {"always_keep": [11]}),
        "tolerance": (X, y, {}, {"tol": 1e-2}),
    }
    for name, (other_X, other_y, given, parameters) in others.items():
        warm = copy.deepcopy(known).set_params(**parameters).fit(other_X, other_y, **given)
        cold = SparseClassifier(**({"tol": TOL} | parameters)).fit(other_X, other_y, **given)
        assert_same_bits(warm, cold, name)


def test_groups_are_other_data() -> None:
    X, y = genes()
    groups = np.arange(60) // 6
    warm = SparseClassifier(warm_start=True).fit(X, y).fit(X, y, groups=groups)
    assert_same_bits(warm, SparseClassifier().fit(X, y, groups=groups))


def test_two_classes_after_four_are_a_cold_fit() -> None:
    X, y = four_classes()
    warm = SparseClassifier(warm_start=True).fit(X, y).fit(X, y > 1)
    assert_same_bits(warm, SparseClassifier().fit(X, y > 1))
    assert_same_bits(warm.fit(X, y), SparseClassifier().fit(X, y))


def test_masks_of_kept_columns_that_print_alike_are_told_apart() -> None:
    X, y = np.random.default_rng(0).standard_normal((40, 1500)), np.arange(40) % 2
    first, second = np.arange(1500) == 700, np.arange(1500) == 800
    assert repr(first) == repr(second)
    options = {"generative_weight": 0.0, "tune": False}
    warm = GAMPClassifier(always_keep=first, warm_start=True, **options).fit(X, y)
    cold = GAMPClassifier(always_keep=second, **options).fit(X, y)
    assert_same_bits(warm.set_params(always_keep=second).fit(X, y), cold)


def test_what_refines_an_answer_is_told_once() -> None:
    X, y = independent()
    model = SparseClassifier(generative_weight=0.0, warm_start=True).fit(X, y)
    sentences = model._account()
    assert any(claim[0] == "integrated" for sentence in sentences for claim in sentence.claims)
    assert model.fit(X, y)._account() == sentences


def test_without_warm_start_the_last_fit_is_forgotten() -> None:
    X, y = independent()
    model = SparseClassifier(warm_start=True).fit(X, y)
    cold = SparseClassifier().fit(X, y)
    assert_same_bits(model.set_params(warm_start=False).fit(X, y), cold)
    assert_same_bits(model.set_params(warm_start=True).fit(X, y), cold)


@every_table
@pytest.mark.parametrize("max_iter", [1, 5])
def test_a_fit_that_ran_out_of_iterations_has_the_answer_in_the_end(table: Any, max_iter: int) -> None:
    X, y = table()
    cold = SparseClassifier(tol=TOL).fit(X, y)
    assert cold.outcome_.trustworthy
    warm = SparseClassifier(tol=TOL, warm_start=True, max_iter=max_iter)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warm.fit(X, y)
    # What was cut short may have decided too early, and is begun anew.
    assert_same_bits(warm.set_params(max_iter=1000).fit(X, y), cold)


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"generative_weight": 0.5},
        {"generative_weight": 0.0, "tune": False},
        {"solver": "ep"},
        {"prior": "laplace", "rule": "max-sum", "generative_weight": 0.0},
        {"prior": "gaussian", "generative_weight": 0.0},
    ],
    ids=str,
)
def test_every_choice_of_message_passing_is_continued(options: dict[str, Any], n_classes: int) -> None:
    X, y = independent() if n_classes == 2 else four_classes()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        cold = GAMPClassifier(tol=1e-5, **options).fit(X, y)
        warm = GAMPClassifier(tol=1e-5, warm_start=True, **options).fit(X, y)
        assert_same_bits(warm, cold)
        warm.fit(X, y)
    assert cold.outcome_.trustworthy
    assert_same_answer(warm, cold, 1e-2)
    assert warm.n_iter_ < cold.n_iter_
    warm.set_params(prior="spike-and-slab", rule="sum-product", solver="gamp", generative_weight=0.5)
    again = GAMPClassifier(**warm.get_params(deep=False) | {"warm_start": False})
    assert_same_bits(warm.fit(X, y), again.fit(X, y))


def test_a_saved_model_holds_no_data_to_go_on_from(tmp_path: Any) -> None:
    X, y = independent()
    warm = SparseClassifier(warm_start=True).fit(X, y)
    held = warm._warm[1]
    assert held.selects.table is None
    assert held.judged.problem.operator is None
