"""Averaging settings by left-out errors: folds that depend on nothing but the samples, shares, log-odds."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from foldless.problem import Outcome
from foldless.solvers.knapsack import Machine, Marginals, grid
from foldless.solvers.knapsack.settings import (
    LOOPS,
    WORK,
    Choices,
    Setting,
    averaged,
    fit_knapsack,
    folds,
    left_out_margins,
    log_odds_scale,
    weighed,
)

SMALL = Machine(n_bins=12)
FEW = Choices(costs=(0.5, 2.0, 100.0), sweeps=(1, 3), betas=(0.3, 3.0), n_folds=3)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(36, 2))
    y = np.where(X[:, 0] + 0.7 * rng.normal(size=36) > 0, 1.0, -1.0)
    return np.column_stack([X, np.ones(36)]), y


def test_folds_depend_on_samples_not_on_their_order_or_number(data):
    design, y = data
    fold = folds(design, y, 5)
    order = np.random.default_rng(0).permutation(y.size)
    assert_array_equal(folds(design[order], y[order], 5), fold[order])
    twice = np.append(np.arange(y.size), [3, 7, 7])
    assert_array_equal(folds(design[twice], y[twice], 5), fold[twice])
    for label in (-1.0, 1.0):
        sizes = np.bincount(fold[y == label], minlength=5)
        assert sizes.max() - sizes.min() <= 1


def test_folds_are_as_many_as_the_smaller_class_allows(data):
    design, _ = data
    y = np.ones(36)
    y[:3] = -1.0
    assert folds(design, y, 5).max() == 2
    y[:2] = 1.0
    assert folds(design, y, 5) is None


def test_left_out_margins_are_those_of_separate_runs(data):
    """Shared runs, and costs passed over because no message had touched their floor, change nothing."""
    design, y = data
    rows, weight, fold = y[:, np.newaxis] * design, np.ones(y.size), folds(design, y, 3)
    found = left_out_margins(rows, weight, fold, SMALL, FEW)
    for setting, margins in zip(FEW.settings, found, strict=True):
        for k in range(3):
            inside = fold == k
            alone = averaged(rows[~inside], weight[~inside], SMALL, [setting])
            assert_allclose(margins[inside], rows[inside] @ alone.histograms.mean, atol=1e-12)


def test_shares_are_those_of_errors():
    settings = [Setting(1.0, 1, b) for b in (1.0, 2.0, 3.0, 4.0)]
    margins = np.ones((4, 40))
    margins[1, :1], margins[2, :2], margins[3, :20] = -1.0, -1.0, -1.0
    found = weighed(settings, margins, np.ones(40))
    share = np.array([s.share for s in found])
    assert_allclose(share[:3], np.exp([0.0, -1.0, -2.0]) / np.exp([0.0, -1.0, -2.0]).sum())
    assert share[3] == 0.0
    assert_allclose([s.error for s in found], [0.0, 1 / 40, 2 / 40, 0.5])


def test_the_average_is_that_of_its_settings(data):
    design, y = data
    rows, weight = y[:, np.newaxis] * design, np.ones(y.size)
    settings = [Setting(0.5, 3, 1.0, share=0.25), Setting(2.0, 1, 0.3, share=0.75)]
    together = averaged(rows, weight, SMALL, settings)
    apart = [averaged(rows, weight, SMALL, [s]) for s in settings]
    assert_allclose(
        together.histograms.mean, 0.25 * apart[0].histograms.mean + 0.75 * apart[1].histograms.mean
    )
    assert together.settings[0].cost == 2.0
    assert_allclose(together.bound, apart[1].bound)
    assert together.outcome is Outcome.EARLY
    assert together.n_sweeps == 4


def test_given_settings_average_both_loops_by_posterior_and_come_near_exact_max_marginals():
    """Two weights, 25 samples: max-marginals by enumeration. The inner loop alone is off by up to 1.4."""
    off = {"auto": [], "inner": []}
    for seed in range(8):
        rng = np.random.default_rng(seed)
        y = rng.choice([-1.0, 1.0], 25)
        design = rng.normal(size=(25, 2)) + y[:, np.newaxis] * np.array([1.0, 0.7])
        rows, points = y[:, np.newaxis] * design, grid(2, 64, 4.0)
        a, b = np.meshgrid(*points, indexing="ij")
        log_posterior = -0.5 * (a**2 + b**2)
        log_posterior -= 3.0 * sum(a * row[0] + b * row[1] < 1.0 for row in rows)
        exact = Marginals(points, np.array([log_posterior.max(axis=1), log_posterior.max(axis=0)])).at(1.0)
        for name, loops in (("auto", LOOPS), ("inner", LOOPS[:1])):
            one = Choices(costs=(3.0,), sweeps=(50,), betas=(1.0,), loops=loops)
            found = fit_knapsack(design, y, np.ones(25), Machine(n_bins=64), one)
            off[name].append(np.abs(found.histograms.mean - exact.mean).max())
    assert np.mean(off["auto"]) < 0.3 < 0.4 < np.mean(off["inner"])
    assert max(off["auto"]) < 0.5


def test_large_tables_compare_fewer_settings():
    small, large = (Choices().within(WORK, shape) for shape in ((276, 7), (49, 145)))
    assert small == Choices()
    assert len(large.within(WORK / 3, (49, 145)).settings) < len(large.settings) <= len(small.settings)
    given = Choices(costs=(7.0,), sweeps=(100,)).within(1.0, (10_000, 1000))
    assert (given.costs, given.sweeps) == ((7.0,), (100,))


def test_a_class_of_one_sample_is_fitted_without_folds(data):
    design, _ = data
    y = np.ones(36)
    y[0] = -1.0
    fitted = fit_knapsack(design, y, np.ones(36), SMALL, FEW)
    assert [(s.cost, s.n_sweeps, s.beta) for s in fitted.settings] == 2 * [(0.5, 3, 3.0)]
    assert np.isnan(fitted.cv_error)
    assert np.all(np.isfinite(fitted.histograms.mean))


def test_log_odds_are_the_likeliest():
    rng = np.random.default_rng(1)
    score = rng.normal(size=4000)
    label = np.where(rng.random(4000) < 1 / (1 + np.exp(-3.0 * score)), 1.0, -1.0)
    margins, weight = 10.0 * label * score, np.ones(4000)
    scale = log_odds_scale(margins, weight)
    assert_allclose(scale, 0.3, rtol=0.1)
    assert_allclose(log_odds_scale(margins / 7.0, weight), 7.0 * scale, rtol=1e-9)
    # Separated classes have finite log-odds, and more samples make them larger.
    few, many = (log_odds_scale(np.ones(n), np.ones(n)) for n in (10, 1000))
    assert_allclose([few, many], np.log([11.0, 1001.0]), rtol=1e-6)
    assert log_odds_scale(np.zeros(5), np.ones(5)) == 1.0
    assert log_odds_scale(-np.ones(50), np.ones(50)) > 0
