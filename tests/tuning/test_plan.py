"""The plan as a table of cases: a row for every branch, and both sides of every budget."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from foldless import GAMPClassifier, SparseClassifier
from foldless.datasets import make_class_means
from foldless.solvers.multinomial_ridge import leave_one_out_cost, sets_cost
from foldless.tuning.costs import Budget, exact_cost, kernel_cost
from foldless.tuning.plan import (
    BACKGROUND_OF_WORDS,
    BACKGROUND_SCORE_VARIANCE,
    CANDIDATES,
    CANDIDATES_OF_MANY,
    EM_ITERATIONS,
    EM_ITERATIONS_OF_MANY,
    EXPECTED_ACTIVE,
    INFORMED,
    NARROW_BACKGROUND,
    NEIGHBOURS,
    PATIENCE,
    RARE,
    RIDGES,
    RIDGES_BY_MESSAGES,
    SEARCHED_RIDGES,
    TOLERANCE,
    TOLERANCE_OF_MANY,
    TOLERATED_EXCESS,
    WORD_TOLERANCE,
    flags_of,
    learnt_by,
    plan,
    requested,
)
from foldless.tuning.planned import (
    ALONG_OWN,
    IN_SETS,
    ONE_BY_ONE,
    DensePlan,
    Plan,
    Reason,
    Recipe,
    SparsePlan,
)
from foldless.tuning.record import FLAGS
from foldless.tuning.table import Facts

MEANS, PLAIN = ("class means",), ("plain parameters",)


def facts(n_samples: int, n_features: int, n_classes: int = 2, **others: Any) -> Facts:
    """Independent columns of real numbers, all of them free, unless told otherwise."""
    found = {
        "n_samples": n_samples,
        "n_features": n_features,
        "n_classes": n_classes,
        "total_weight": float(n_samples),
        "n_free": n_features,
        "nnz": n_samples * n_features,
        "median_nonzero_fraction": 1.0,
        "spectral_excess": 0.95,
    }
    return Facts(**(found | others))


CORRELATED = {"spectral_excess": 3.0}
WORDS = {"median_nonzero_fraction": 0.01}
# 300 x 30 000 costs 2.7e9 with exact covariances, 60 x 2000 costs 7e6; nobody can afford 20 000 x 40 000.
LARGE = (20_000, 40_000)

# Name, facts, then what is expected: path; solver, starts, polish, integrate of the sparse model; solver,
# recipes, per occurrence, how the dense ones leave out; flags; codes of the reasons.
CASES: dict[str, tuple[Facts, tuple[Any, ...], tuple[Any, ...] | None, tuple[str, ...], tuple[str, ...]]] = {
    "independent": (
        facts(60, 2000),
        ("independent", "GAMP", MEANS, True, True),
        None,
        (),
        ("independent", "left-out-answers", "relearnt", "alone"),
    ),
    "independent, larger": (
        facts(150, 5000),
        ("independent", "GAMP", MEANS, True, False),
        None,
        (),
        ("independent", "left-out-answers", "alone"),
    ),
    "independent, wide": (
        facts(300, 30_000),
        ("independent", "GAMP", MEANS, False, False),
        None,
        (),
        ("independent", "left-out-answers", "alone"),
    ),
    "independent, too large": (
        facts(*LARGE),
        ("independent", "GAMP", MEANS, False, False),
        None,
        (),
        ("independent", "too-large", "alone"),
    ),
    "independent words": (
        facts(600, 3000, **WORDS),
        ("independent words", "GAMP", MEANS, False, False),
        ("GAMP", RIDGES_BY_MESSAGES, True, ONE_BY_ONE),
        (),
        ("independent", "mostly-zeros", "left-out-answers"),
    ),
    "correlated, wide": (
        facts(60, 2000, **CORRELATED),
        ("exact", "EP", PLAIN, False, False),
        ("kernel EP", INFORMED, False, ONE_BY_ONE),
        (),
        ("correlated",),
    ),
    "correlated, tall": (
        facts(2000, 60, **CORRELATED),
        ("exact", "EP", PLAIN, False, False),
        ("EP", RIDGES, False, ONE_BY_ONE),
        (),
        ("correlated",),
    ),
    "correlated words": (
        facts(1360, 3289, **CORRELATED, **WORDS),
        ("exact", "BackgroundEP", PLAIN, False, False),
        ("BackgroundEP", (BACKGROUND_OF_WORDS,), True, ONE_BY_ONE),
        (),
        ("correlated", "mostly-zeros", "in-kernel"),
    ),
    "correlated words, very many of them": (
        facts(2000, 400_000, **CORRELATED, **WORDS),
        ("exact", "BackgroundEP", PLAIN, False, False),
        ("BackgroundEP", (BACKGROUND_OF_WORDS,), True, ONE_BY_ONE),
        (),
        ("correlated", "mostly-zeros", "in-kernel"),
    ),
    "correlated words, fewer than documents": (
        facts(2000, 500, **CORRELATED, **WORDS),
        ("exact", "EP", PLAIN, False, False),
        ("EP", RIDGES, True, ONE_BY_ONE),
        (),
        ("correlated", "mostly-zeros"),
    ),
    "correlated, too large": (
        facts(*LARGE, **CORRELATED),
        ("diagonal", "GAMP", (*PLAIN, *MEANS), False, False),
        ("GAMP", RIDGES_BY_MESSAGES, False, ONE_BY_ONE),
        ("diagonal-covariances",),
        ("correlated", "too-large"),
    ),
    "correlated words, too large": (
        facts(*LARGE, **CORRELATED, **WORDS),
        ("diagonal", "GAMP", (*PLAIN, *MEANS), False, False),
        ("GAMP", RIDGES_BY_MESSAGES, True, ONE_BY_ONE),
        ("diagonal-covariances",),
        ("correlated", "mostly-zeros", "too-large"),
    ),
    "four classes, independent": (
        facts(60, 2000, 4),
        ("independent", "GAMP", MEANS, False, False),
        None,
        (),
        ("independent", "left-out-answers", "alone"),
    ),
    "four classes, independent words": (
        facts(600, 3000, 4, **WORDS),
        ("independent words", "GAMP", MEANS, False, False),
        ("Newton", SEARCHED_RIDGES, True, ONE_BY_ONE),
        (),
        ("independent", "mostly-zeros", "left-out-answers"),
    ),
    "four classes, more samples than features": (
        facts(2000, 60, 4),
        ("independent", "GAMP", MEANS, False, False),
        ("Newton", SEARCHED_RIDGES, False, ONE_BY_ONE),
        (),
        ("independent", "flips"),
    ),
    "four classes, correlated": (
        facts(60, 2000, 4, **CORRELATED),
        ("exact", "EP", PLAIN, False, False),
        ("Newton", SEARCHED_RIDGES, False, ONE_BY_ONE),
        (),
        ("correlated",),
    ),
    "four classes, correlated words": (
        facts(60, 2000, 4, **CORRELATED, **WORDS),
        ("exact", "EP", PLAIN, False, False),
        ("Newton", SEARCHED_RIDGES, True, ONE_BY_ONE),
        (),
        ("correlated", "mostly-zeros"),
    ),
    "four classes, correlated, large": (
        facts(1500, 3000, 4, **CORRELATED),
        ("diagonal", "GAMP", (*MEANS, *PLAIN), False, False),
        ("Newton", SEARCHED_RIDGES, False, IN_SETS),
        ("diagonal-covariances",),
        ("correlated", "too-large", "in-sets"),
    ),
    "twenty classes of words, more samples than features": (
        facts(13_000, 1000, 20, **CORRELATED, **WORDS),
        ("diagonal", "GAMP", MEANS, False, False),
        ("Newton", SEARCHED_RIDGES, True, ALONG_OWN),
        ("diagonal-covariances",),
        ("correlated", "mostly-zeros", "too-large", "along-own-scores"),
    ),
    "four classes, correlated, a few more samples than features": (
        facts(600, 500, 4, **CORRELATED),
        ("exact", "EP", PLAIN, False, False),
        ("Newton", SEARCHED_RIDGES, False, ONE_BY_ONE),
        (),
        ("correlated", "from-ridge"),
    ),
    "pixels": (
        facts(3500, 784, **CORRELATED),
        ("exact", "EP", PLAIN, False, False),
        ("primal EP", SEARCHED_RIDGES, False, ONE_BY_ONE),
        (),
        ("correlated", "few-columns", "primal"),
    ),
    "pixels, few of them": (
        facts(3000, 200, **CORRELATED),
        ("exact", "EP", PLAIN, False, False),
        ("primal EP", SEARCHED_RIDGES, False, ONE_BY_ONE),
        (),
        ("correlated", "primal"),
    ),
    "pixels, too large": (
        facts(20_000, 2000, **CORRELATED),
        ("exact", "EP", PLAIN, False, False),
        ("GAMP", RIDGES_BY_MESSAGES, False, ONE_BY_ONE),
        (),
        ("correlated", "too-large", "few-columns"),
    ),
    "pixels of ten classes": (
        facts(3000, 256, 10, **CORRELATED),
        ("exact", "EP", PLAIN, False, False),
        ("Newton", SEARCHED_RIDGES, False, IN_SETS),
        ("few-columns",),
        ("correlated", "few-columns", "in-sets"),
    ),
    "four classes, correlated words, too large": (
        facts(*LARGE, 4, **CORRELATED, **WORDS),
        ("diagonal", "GAMP", (*MEANS, *PLAIN), False, False),
        ("GAMP", SEARCHED_RIDGES, True, ONE_BY_ONE),
        ("diagonal-covariances",),
        ("correlated", "mostly-zeros", "too-large"),
    ),
    "many rows": (
        facts(500_000, 300),
        ("independent", "GAMP", MEANS, False, False),
        None,
        (),
        ("independent", "too-large", "many-rows", "alone"),
    ),
    "many rows of correlated columns": (
        facts(500_000, 300, **CORRELATED),
        ("diagonal", "GAMP", (*PLAIN, *MEANS), False, False),
        ("GAMP", RIDGES_BY_MESSAGES, False, ONE_BY_ONE),
        ("diagonal-covariances",),
        ("correlated", "too-large", "many-rows"),
    ),
    "nothing varies": (
        facts(60, 2000, n_free=0, **WORDS),
        ("independent", "GAMP", MEANS, True, True),
        None,
        (),
        ("independent", "left-out-answers", "relearnt", "alone"),
    ),
    "nothing but covariates, correlated": (
        facts(60, 2, n_free=0, **CORRELATED),
        ("exact", "EP", PLAIN, False, False),
        None,
        (),
        ("correlated",),
    ),
    "four classes of a million features": (
        facts(60, 1_000_000, 4),
        ("independent", "GAMP", MEANS, False, False),
        None,
        (),
        ("independent", "not-screened", "too-large", "alone"),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_table_of_cases(name: str) -> None:
    given, (path, solver, starts, polish, integrate), dense, flags, reasons = CASES[name]
    found = plan(given)
    sparse = found.sparse
    assert (found.path, sparse.solver, sparse.starts) == (path, solver, starts)
    assert (sparse.polish, sparse.integrate) == (polish, integrate)
    if dense is None:
        assert found.dense is None
    else:
        assert found.dense is not None
        got = found.dense.solver, found.dense.recipes, found.dense.per_occurrence, found.dense.left_out
        assert got == dense
    assert found.flags == flags
    assert tuple(reason.code for reason in found.reasons) == reasons
    assert all(found.because(code) for code in reasons)
    assert found.because("no such reason") is None
    assert (found.left_out, found.facts) == ("samples", given)
    n_scores = 1 if given.n_classes == 2 else given.n_classes
    assert found.exact_cost == exact_cost(given.n_samples, given.n_features, n_scores)


@pytest.mark.parametrize("name", CASES)
def test_what_follows_from_the_path(name: str) -> None:
    given, many = CASES[name][0], CASES[name][0].n_classes > 2
    found = plan(given)
    sparse, dense = found.sparse, found.dense
    assert sparse.prior == ("row-sparse" if many else "spike-and-slab")
    of_words = sparse.solver == "BackgroundEP" and dense is not None and dense.per_occurrence
    background = 0.0
    if of_words:
        background = BACKGROUND_OF_WORDS.score_variance
    elif found.path == "exact" and given.n_features > given.total_weight:
        background = BACKGROUND_SCORE_VARIANCE
    elif (
        found.path == "exact"
        and given.n_free > 2 * EXPECTED_ACTIVE
        and not (sparse.candidates or found.because("mostly-zeros"))
    ):
        background = NARROW_BACKGROUND
    assert sparse.background == background
    of_few = many and sparse.candidates > 0
    assert sparse.groups == (found.path == "exact" and not of_words and not of_few)
    # With more samples than features there is one start.
    assert sparse.judged_by_left_out == (found.path == "diagonal" and many and len(sparse.starts) > 1)
    if found.because("few-columns"):
        expected = (CANDIDATES_OF_MANY, 0) if many else (CANDIDATES, NEIGHBOURS)
        assert (sparse.candidates, sparse.neighbours, sparse.em_iterations) == (*expected, 0)
    else:
        assert (sparse.candidates, sparse.neighbours) == (0, 0)
    if many:
        # Labels that may be wrong can lead message passing astray: exact covariances stand behind it.
        assert (sparse.fallback is not None) == (found.path == "exact" or sparse.flips)
        assert not sparse.flips or sparse.fallback.solver == "EP"
    else:
        # What stands over a wide background has nothing to fall back on, and what is too large cannot.
        may = background <= NARROW_BACKGROUND and given.n_free > 0 and not found.because("too-large")
        assert (sparse.fallback is not None) == may
        assert not may or sparse.fallback.background == BACKGROUND_SCORE_VARIANCE
    if found.path in ("exact", "diagonal"):
        of_two = WORD_TOLERANCE if of_words else TOLERANCE
        assert sparse.tolerance == (TOLERANCE_OF_MANY if many else of_two)
        assert sparse.patience == PATIENCE
    if found.path == "diagonal":
        assert sparse.variances == ("rank-one" if many else "per-coordinate")
        assert sparse.em_iterations == (0 if many else EM_ITERATIONS)
    if dense is not None:
        assert dense.searched == (many or dense.solver == "primal EP")
        assert dense.if_worthwhile == (found.path == "independent words" and not many)
        # Of message passing between two classes, narrow ridges and wide ones; labels may be wrong elsewhere.
        all_right = many or of_words or dense.solver in ("GAMP", "primal EP")
        assert all(recipe.flip_prob == 0 for recipe in dense.recipes) == all_right
    assert set(found.flags) <= FLAGS.keys()


def test_where_exact_covariances_of_several_classes_do_not_settle_message_passing_is_next() -> None:
    given = facts(60, 2000, 4, **CORRELATED)
    fallback, too_large = plan(given).sparse.fallback, plan(given, Budget(exact=0.0)).sparse
    assert fallback == too_large
    # Groups cannot be left out of message passing.
    assert plan(given, groups=True).sparse.fallback is None


@pytest.mark.parametrize("groups", [False, True])
def test_with_more_samples_than_features_a_wide_background_is_behind_a_narrow_one_of_several_classes(
    groups: bool,
) -> None:
    sparse = plan(facts(600, 500, 4, **CORRELATED), groups=groups).sparse
    assert (sparse.background, sparse.em_iterations) == (NARROW_BACKGROUND, 0)
    assert sparse.fallback is not None
    assert sparse.fallback.fallback is None
    assert (sparse.fallback.solver, sparse.fallback.background) == ("EP", BACKGROUND_SCORE_VARIANCE)


# What each budget decides, and what it costs there.
BUDGETS = [
    ("exact", facts(2000, 60, **CORRELATED), exact_cost(2000, 60), lambda p: p.path == "exact"),
    (
        "exact_over_background",
        facts(60, 2000, **CORRELATED),
        exact_cost(60, 2000),
        lambda p: p.path == "exact",
    ),
    ("polish", facts(60, 2000), exact_cost(60, 2000), lambda p: p.sparse.polish),
    ("left_out_edges", facts(60, 2000), 60.0**2, lambda p: p.sparse.left_out_edges > 0),
    ("integrate", facts(60, 2000), exact_cost(60, 2000), lambda p: p.sparse.integrate),
    (
        "tune_many",
        facts(2000, 20, 4, **CORRELATED),
        exact_cost(2000, 20, 4),
        lambda p: p.sparse.em_iterations == EM_ITERATIONS_OF_MANY,
    ),
    (
        "ridge_step",
        facts(300, 4000, 4, **CORRELATED),
        300.0**2 * 4000,
        lambda p: p.dense.solver == "Newton",
    ),
    (
        "ridge_left_out",
        facts(300, 4000, 4, **CORRELATED),
        leave_one_out_cost(300, 300, 4),
        lambda p: p.dense.left_out == ONE_BY_ONE,
    ),
    (
        "ridge_sets",
        facts(3000, 4000, 4, **CORRELATED),
        sets_cost(3000, 3000, 4),
        lambda p: p.dense.left_out == IN_SETS,
    ),
    (
        "all_columns",
        facts(3500, 784, **CORRELATED),
        exact_cost(3500, 784),
        lambda p: p.sparse.candidates == 0,
    ),
    ("flips", facts(2000, 30, 12), 2000.0 * 12**2, lambda p: p.sparse.flips),
    ("ridge_ep", facts(2000, 60, **CORRELATED), exact_cost(2000, 60), lambda p: p.dense.solver == "EP"),
]


@pytest.mark.parametrize(("name", "given", "cost", "done"), BUDGETS, ids=[row[0] for row in BUDGETS])
def test_a_budget_is_spent_to_the_last_operation_and_not_beyond(
    name: str, given: Facts, cost: float, done: Any
) -> None:
    base = Budget(exact=0.0) if name.startswith("ridge") and name != "ridge_ep" else Budget()
    assert done(plan(given, replace(base, **{name: cost})))
    assert not done(plan(given, replace(base, **{name: np.nextafter(cost, 0.0)})))


def test_parameters_that_cost_too_much_to_tune_are_not_tuned_at_all() -> None:
    assert plan(facts(2000, 20, 4, **CORRELATED), Budget(tune_many=0.0)).sparse.em_iterations == 0


def test_labels_are_permuted_where_that_costs_little() -> None:
    budget = Budget(permuted=1e6)
    assert plan(facts(1000, 1000), budget).null_test == "permutation"
    assert plan(facts(1000, 1001), budget).null_test == "losses"
    assert plan(facts(60, 200), budget).null_test == "permutation"
    assert plan(facts(60, 200, in_memory=False), budget).null_test == "losses"
    assert plan(facts(1000, 250, 4), budget).null_test == "permutation"
    assert plan(facts(1000, 251, 4), budget).null_test == "losses"
    assert requested("laplace", "GAMP", (1000, 1001), searched=False, budget=budget).null_test == "losses"
    asked = requested("laplace", "GAMP", (10, 1), searched=False, in_memory=False)
    assert asked.null_test == "losses"


def test_ridges_of_few_coordinates_are_left_out_by_their_hessian() -> None:
    assert leave_one_out_cost(3000, 100, 4) == 400.0**2 * 3400
    assert leave_one_out_cost(3000, 1000, 4) == 3.0 * 4 * 3000**2 * 1000


@pytest.mark.parametrize("given", [facts(60, 2000), facts(60, 2000, 4)], ids=["two classes", "four"])
def test_columns_are_correlated_beyond_what_is_tolerated(given: Facts) -> None:
    assert plan(replace(given, spectral_excess=TOLERATED_EXCESS)).path == "independent"
    assert plan(replace(given, spectral_excess=np.nextafter(TOLERATED_EXCESS, 2.0))).path == "exact"


def test_what_goes_with_clusters_of_classes_alone_is_wrong_labels() -> None:
    clusters = {"class_tails": -7.0, "class_gap": 6.0, "excess_beside": 0.95}
    found = plan(facts(1000, 200, **CORRELATED, **clusters))
    assert found.path == "independent"
    assert found.because("wrong-labels") is not None
    for other in ({"class_tails": -2.0}, {"class_gap": 2.0}, {"excess_beside": 1.5}):
        assert plan(facts(1000, 200, **CORRELATED, **(clusters | other))).path == "exact"


def test_columns_are_words_below_a_share_of_rows() -> None:
    given = facts(60, 2000)
    assert plan(replace(given, median_nonzero_fraction=RARE)).path == "independent"
    less = float(np.nextafter(RARE, 0.0))
    assert plan(replace(given, median_nonzero_fraction=less)).path == "independent words"


def test_correlated_words_are_solved_among_samples_where_that_costs_less() -> None:
    given = facts(1000, 5000, **CORRELATED, **WORDS)
    cost = kernel_cost(1000)
    assert plan(given, Budget(exact=cost)).sparse.solver == "BackgroundEP"
    assert plan(given, Budget(exact=float(np.nextafter(cost, 0.0)))).sparse.solver == "GAMP"
    # With few words, matrices of words by words are smaller.
    solvers = {p: plan(facts(1000, p, **CORRELATED, **WORDS)).sparse.solver for p in (600, 700)}
    assert [exact_cost(1000, p) >= cost for p in solvers] == [False, False]
    assert set(solvers.values()) == {"EP"}
    assert plan(facts(1000, 800, **CORRELATED, **WORDS)).sparse.solver == "BackgroundEP"


def test_informed_ridges_are_for_more_features_than_samples_as_they_count() -> None:
    for total_weight, solver in ((99.9, "kernel EP"), (100.0, "EP")):
        given = facts(60, 100, total_weight=total_weight, **CORRELATED)
        assert plan(given).dense.solver == solver


@pytest.mark.parametrize("n_classes", [2, 10])
def test_few_columns_are_for_far_more_samples_than_features(n_classes: int) -> None:
    given = facts(1200, 600, n_classes, **CORRELATED)
    assert plan(given).because("few-columns")
    assert plan(replace(given, n_features=601, n_free=601)).because("few-columns") is None
    assert plan(replace(given, median_nonzero_fraction=0.01)).because("few-columns") is None
    # Groups cannot be left out of few columns.
    assert plan(given, groups=True).left_out == "groups"
    assert plan(given, groups=True).because("few-columns") is None
    # With independent columns messages are enough.
    assert plan(replace(given, spectral_excess=0.9)).because("few-columns") is None


def test_labels_of_four_classes_may_be_wrong_where_samples_far_outnumber_features() -> None:
    for shape, path, flips in (
        ((200, 100, 4), "independent", True),
        ((199, 100, 4), "exact", False),
        ((100, 101, 4), "independent", False),
        ((200, 100, 2), "independent", False),
        # A response to each of many classes would be most of the time; few columns have exact covariances.
        ((2000, 30, 12), "exact", False),
        ((2000, 300, 12), "independent", False),
        # Classes of a sample or two are not doubted.
        ((26, 12, 13), "independent", True),
        ((26, 12, 14), "exact", False),
    ):
        found = plan(facts(*shape))
        assert (found.path, found.sparse.flips) == (path, flips)
    assert not plan(facts(200, 100, 4, **WORDS)).sparse.flips


@pytest.mark.parametrize(
    ("n_samples", "rows"), [(199_999, 0), (200_000, 20_000)], ids=["all rows", "some rows"]
)
def test_some_rows_are_searched_if_they_are_a_small_share(n_samples: int, rows: int) -> None:
    for given in (facts(n_samples, 300), facts(n_samples, 300, **CORRELATED)):
        found = plan(given, Budget(exact=0.0))
        assert found.sparse.search_rows == rows
        assert (found.because("many-rows") is not None) == (rows > 0)
        # Exact covariances are affordable for few columns, whatever the rows: nothing is searched there.
        if given.spectral_excess > TOLERATED_EXCESS:
            assert plan(given, Budget(exact=np.inf)).sparse.search_rows == 0
    # That rows are searched where exact covariances do not settle is no reason for what is planned.
    found = plan(facts(n_samples, 20, 4, **CORRELATED), Budget(exact=np.inf, all_columns=np.inf))
    assert found.sparse.fallback is not None
    assert (found.path, found.sparse.fallback.search_rows) == ("exact", rows)
    assert found.because("many-rows") is None
    assert requested("laplace", "GAMP", (n_samples, 10), searched=True).sparse.search_rows == rows
    assert requested("laplace", "GAMP", (n_samples, 10), searched=False).sparse.search_rows == 0


@pytest.mark.parametrize("n_classes", [2, 4])
def test_groups_are_left_out_where_exact_covariances_can_be_afforded(n_classes: int) -> None:
    given = facts(60, 2000, n_classes)
    found = plan(given, groups=True)
    assert (found.path, found.left_out, found.flags) == ("exact", "groups", ())
    assert found.because("groups")
    found = plan(given, Budget(exact=0.0, exact_over_background=0.0), groups=True)
    assert (found.path, found.left_out, found.flags) == ("independent", "sets of groups", ())
    assert found.because("groups-in-sets")
    assert found.because("groups") is None


def test_groups_of_large_tables_are_left_out_of_few_looks() -> None:
    found = plan(facts(300, 30_000), groups=True)
    assert (found.path, found.sparse.solver) == ("exact", "BackgroundEP")
    assert found.because("few-looks")


def test_weights_plan_as_repeated_rows_do() -> None:
    repeated = facts(60, 50, 3)
    weighted = replace(repeated, n_samples=30, total_weight=60.0, heavy=True)
    assert plan(weighted).path == plan(repeated).path == "exact"
    assert plan(replace(repeated, total_weight=49.0)).path == "independent"


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("weight", [0.0, 0.5])
def test_a_generative_weight_acts_or_is_refused(name: str, weight: float) -> None:
    given = CASES[name][0]
    planned = plan(given)
    if weight and planned.path == "exact":
        with pytest.raises(ValueError, match=r"which have no such blend\..* columns") as refused:
            plan(given, generative_weight=weight)
        assert "generative_weight=0.5" in str(refused.value)
        return
    found = plan(given, generative_weight=weight)
    assert found.path == planned.path
    if weight:
        assert found.sparse.starts == MEANS
    else:
        assert found.sparse.starts == planned.sparse.starts


def test_a_generative_weight_acts_or_raises_in_a_fit() -> None:
    data = make_class_means(60, 200, 5, random_state=0)
    fits = {w: SparseClassifier(generative_weight=w).fit(data.X, data.y) for w in (0.25, 0.75)}
    for weight, model in fits.items():
        assert model.generative_weight_ == weight
        assert [w for w, _ in model.generative_path_] == [weight]
        used = model.record_.used("sparse")
        assert {run.detail for run in used} == {f"generative weight {weight:g}"}
    assert np.abs(fits[0.25].coef_ - fits[0.75].coef_).max() > 0.01
    correlated = data.X + 2 * np.random.default_rng(0).standard_normal((60, 1))
    with pytest.raises(ValueError, match="Leave generative_weight='auto', or use GAMPClassifier"):
        SparseClassifier(generative_weight=0.5).fit(correlated, data.y)
    model = GAMPClassifier(generative_weight=0.5, damping=0.1).fit(correlated, data.y)
    assert model.generative_weight_ == 0.5


def restored(stored: dict[str, Any]) -> Plan:
    """A plan from what JSON kept of it, with tuples where JSON has lists."""

    def sparse(given: dict[str, Any] | None) -> SparsePlan | None:
        if given is None:
            return None
        changes = {"starts": tuple(given["starts"]), "fallback": sparse(given["fallback"])}
        return SparsePlan(**(given | changes))

    dense = stored["dense"]
    if dense is not None:
        of_recipes = {key: tuple(Recipe(*recipe) for recipe in dense[key]) for key in ("recipes", "wider")}
        dense = DensePlan(**(dense | of_recipes))
    changes = {
        "sparse": sparse(stored["sparse"]),
        "dense": dense,
        "facts": Facts(**stored["facts"]),
        "reasons": tuple(Reason(*reason) for reason in stored["reasons"]),
        "flags": tuple(stored["flags"]),
    }
    return Plan(**(stored | changes))


@pytest.mark.parametrize("name", CASES)
def test_a_plan_is_json(name: str) -> None:
    found = plan(CASES[name][0])
    assert restored(json.loads(json.dumps(found.as_dict()))) == found


def test_a_plan_is_a_value() -> None:
    given = CASES["correlated, wide"][0]
    assert plan(given) == plan(given)
    assert hash(plan(given)) == hash(plan(given))
    assert isinstance(plan(given), Plan)
    assert plan(given) == plan(given, Budget())


def test_recipes_have_codes_and_names() -> None:
    assert [recipe.code for recipe in INFORMED] == ["ridge", "informed", "strongly-informed"]
    names = [recipe.name for recipe in (*RIDGES, *INFORMED)]
    assert len(set(names)) == len(names)
    assert Recipe(10.0, 0.1).name == "ridge, score variance 10, labels may be wrong"


# How the sparse model of a plan ended, and the flags for that.
WELL = {"settled": True, "fell_back": False, "exactly": True, "dense_lead": 0.0, "sparse_share": 1.0}
LOSES = {"dense_lead": 2.1, "sparse_share": 0.4}
ENDS: list[tuple[Plan, dict[str, Any], tuple[str, ...]]] = [
    (plan(facts(60, 2000)), {}, ()),
    (plan(facts(60, 2000)), {"exactly": False}, ("narrow-intervals",)),
    (plan(facts(100, 1000, 4)), {"exactly": False}, ()),
    (plan(facts(60, 2000)), {"exactly": False, "settled": False}, ("unsettled",)),
    (plan(facts(60, 2000)), {"fell_back": True}, ("fell-back-on-background",)),
    (plan(facts(60, 2000, 4, **CORRELATED)), {"fell_back": True, "exactly": False}, ("fell-back",)),
    (plan(facts(60, 2000, **CORRELATED)), LOSES, ("not-sparse",)),
    (plan(facts(60, 2000, **CORRELATED)), LOSES | {"sparse_share": 0.6}, ()),
    (plan(facts(60, 2000, **CORRELATED)), LOSES | {"dense_lead": 1.9}, ()),
    (plan(facts(60, 2000, **CORRELATED)), {"sparse_share": 0.4}, ()),
    (plan(facts(*LARGE, **CORRELATED)), LOSES | {"exactly": False}, ("diagonal-covariances", "misled")),
    (requested("laplace", "GAMP", (60, 2000), searched=True), {"settled": False, "exactly": False}, ()),
]


@pytest.mark.parametrize(("planned", "ended", "flags"), ENDS)
def test_flags_are_those_of_the_plan_and_of_how_it_ended(
    planned: Plan, ended: dict[str, Any], flags: tuple[str, ...]
) -> None:
    assert flags_of(planned, **(WELL | ended)) == flags
    assert set(flags) <= FLAGS.keys()


@pytest.mark.parametrize(
    ("tuning", "laplace", "max_sum", "rate_asked", "kinked", "way"),
    [
        ("em", True, True, True, False, "sure"),
        ("em", False, True, True, False, "em"),
        ("em", True, False, True, False, "em"),
        ("em", True, True, False, False, "em"),
        ("em", True, True, True, True, "em"),
        ("sure", True, True, False, False, "sure"),
    ],
)
def test_the_rate_of_a_lasso_is_learnt_by_sure(
    tuning: str, laplace: bool, max_sum: bool, rate_asked: bool, kinked: bool, way: str
) -> None:
    found = learnt_by(tuning, laplace=laplace, max_sum=max_sum, rate_asked=rate_asked, kinked=kinked)
    assert found == way


@pytest.mark.parametrize("n_samples", [200, 300, 1000])
def test_columns_that_can_stand_in_for_each_other_settle_where_samples_are_not_fewer(n_samples: int) -> None:
    """Without a background they change places for ever, or until rounding happens to stop them."""
    rng = np.random.default_rng(0)
    blocks = np.repeat(rng.standard_normal((n_samples, 50)), 4, axis=1)
    X = np.sqrt(0.95) * blocks + np.sqrt(0.05) * rng.standard_normal((n_samples, 200))
    y = rng.random(n_samples) < 1.0 / (1.0 + np.exp(-2.5 * X[:, 20] + 2.5 * X[:, 61]))
    model = SparseClassifier().fit(X, y)
    (fit,) = (run for run in model.record_.runs if run.model == "sparse" and run.purpose == "fit")
    assert fit.used
    assert fit.n_iter <= 50
    assert not model.flags_
    by_block = model.inclusion_probability_.reshape(50, 4).sum(axis=1)
    np.testing.assert_array_equal(np.sort(np.argsort(by_block)[-2:]), [5, 15])


@pytest.mark.parametrize("shape", [(60, 2000), (200, 60)])
def test_wider_ridges_are_only_for_samples_that_are_left_out_one_by_one(shape):
    assert plan(facts(*shape, **CORRELATED)).dense.wider
    assert plan(facts(*shape, **CORRELATED, heavy=True)).dense.wider == ()
    assert plan(facts(*shape, **CORRELATED), groups=True).dense.wider == ()
