"""Joint cavities against Schur complements, in both shapes, with sites of every kind."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from foldless.channels import Probit
from foldless.operators import Dense, Standardized, WithIntercept
from foldless.priors import Blocks, Gaussian, SpikeAndSlab
from foldless.problem import Problem
from foldless.solvers import EP, GAMP, Stopping, solve
from foldless.solvers import sites as module
from foldless.solvers.gaussian_layer import Block, NotPositiveDefinite, Sites, Tiles
from foldless.solvers.sites import (
    LARGEST_GROWTH,
    FreeWeights,
    joint_cavities,
    opened_layers,
    sites_at_cavities,
)

SHAPES = [(20, 50), (50, 20), (30, 30)]


def random_sites(shape, seed, *, negative=2):
    """Prior precisions over eight orders of magnitude, some of them negative, of a proper Gaussian."""
    rng = np.random.default_rng(seed)
    n_samples, n_weights = shape
    X = rng.standard_normal(shape)
    X[:, 3] = X[:, 4]
    prior = rng.uniform(0.5, 5, n_weights) * 10.0 ** rng.integers(-1, 8, n_weights)
    prior[7 : 7 + negative] = -0.02
    sites = Sites(
        prior,
        rng.standard_normal(n_weights) * np.sqrt(np.abs(prior)),
        rng.uniform(0, 2, n_samples),
        rng.standard_normal(n_samples),
    )
    return X, sites, rng.uniform(0, 2, n_samples)


def by_schur_complement(X, sites, sample_weight, columns):
    """The joint cavity from the whole precision matrix, the other weights eliminated."""
    gram = X.T @ (X * (sample_weight * sites.label_precision)[:, np.newaxis])
    data_shift = X.T @ (sample_weight * sites.label_shift)
    others = np.setdiff1d(np.arange(X.shape[1]), columns)
    inner = (gram + np.diag(sites.prior_precision))[np.ix_(others, others)]
    across = gram[np.ix_(columns, others)]
    precision = gram[np.ix_(columns, columns)] - across @ np.linalg.solve(inner, across.T)
    other_shift = (sites.prior_shift + data_shift)[others]
    shift = data_shift[columns] - across @ np.linalg.solve(inner, other_shift)
    return precision, shift


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("columns", [[3, 4, 7, 11], [0], [7, 8, 9, 10, 3, 4], [19, 2]], ids=str)
def test_against_the_schur_complement(shape, columns):
    for seed in range(3):
        X, sites, weight = random_sites(shape, seed)
        precision, shift = joint_cavities(Tiles(Dense(X)), sites, weight, [columns])[0]
        expected = by_schur_complement(X, sites, weight, columns)
        assert_allclose(precision, expected[0], atol=1e-9 * np.abs(expected[0]).max())
        assert_allclose(shift, expected[1], atol=1e-8 * np.abs(expected[1]).max())


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_sites_taken_out_do_not_matter(shape):
    """Not even those of a prior that is all but certain, of which a difference would leave nothing."""
    X, sites, weight = random_sites(shape, 5)
    columns = np.array([2, 3, 4, 12])
    answers = []
    for certainty in (1.0, 1e6, 1e13):
        prior = sites.prior_precision.copy()
        prior[columns] = certainty * np.array([1.0, 3.0, 0.5, 2.0])
        changed = Sites(prior, sites.prior_shift, sites.label_precision, sites.label_shift)
        answers.append(joint_cavities(Tiles(Dense(X)), changed, weight, [columns])[0])
    for precision, shift in answers[1:]:
        assert_allclose(precision, answers[0].precision, rtol=1e-7, atol=1e-9)
        assert_allclose(shift, answers[0].shift, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_one_column_has_the_cavity_of_the_layer(shape):
    X, sites, weight = random_sites(shape, 6)
    tiles = Tiles(Dense(X))
    opened = tiles.opened(sites, weight, np.flatnonzero(sites.prior_precision <= 0))
    layer = opened.closed(opened.block_of(sites))
    cavities = joint_cavities(tiles, sites, weight, [[j] for j in range(shape[1])])
    for j in range(shape[1]):
        precision, shift = cavities[j]
        assert_allclose(precision[0, 0], layer.data_precision[j], rtol=1e-6, atol=1e-9)
        assert_allclose(
            shift[0], layer.data_precision[j] * layer.mean[j] + layer.data_slope[j], rtol=1e-5, atol=1e-7
        )


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_weight_two_is_two_rows(shape):
    X, sites, _ = random_sites(shape, 7)
    twice = np.arange(shape[0]) < 5
    doubled = Sites(
        sites.prior_precision,
        sites.prior_shift,
        np.append(sites.label_precision, sites.label_precision[twice]),
        np.append(sites.label_shift, sites.label_shift[twice]),
    )
    columns = [3, 4, 9]
    weighted = joint_cavities(Tiles(Dense(X)), sites, np.where(twice, 2.0, 1.0), [columns])[0]
    rows = np.vstack([X, X[twice]])
    repeated = joint_cavities(Tiles(Dense(rows)), doubled, np.ones(len(rows)), [columns])[0]
    assert_allclose(weighted.precision, repeated.precision, rtol=1e-8, atol=1e-10)
    assert_allclose(weighted.shift, repeated.shift, rtol=1e-8, atol=1e-9)


def test_negative_sites_that_make_no_distribution_are_weakened():
    X, sites, weight = random_sites((20, 50), 9)
    found = []
    for precision in (-1e3, 125.0):
        prior = np.full(50, precision)
        changed = Sites(prior, sites.prior_shift, sites.label_precision, sites.label_shift)
        found.append(joint_cavities(Tiles(Dense(X)), changed, weight, [[1, 2]])[0])
    for part, expected in zip(*found, strict=True):
        assert_allclose(part, expected, rtol=1e-8, atol=1e-10)
    unknown = Sites(np.full(50, np.nan), sites.prior_shift, sites.label_precision, sites.label_shift)
    with pytest.raises(NotPositiveDefinite):
        joint_cavities(Tiles(Dense(X)), unknown, weight, [[1, 2]])


@pytest.mark.parametrize(("bound", "n_blocks", "share"), [(np.inf, 1, 1.0), (14.4, 3, 0.5), (0.0, 2, -0.125)])
def test_sites_are_weakened_only_as_far_as_that_can_help(bound, n_blocks, share, monkeypatch):
    """Labels say 0.1 of a weight, its site -0.05: its variance is 20, or 13.3 for half of the site."""
    made = []

    class Counted(Block):
        def __init__(self, *arguments):
            made.append(self)
            super().__init__(*arguments)

    monkeypatch.setattr(module, "Block", Counted)
    sites = Sites(np.array([-0.05]), np.zeros(1), np.array([0.1]), np.zeros(1))
    (opened,) = opened_layers(Tiles(Dense(np.ones((1, 1)))), sites, np.ones(1), np.zeros(1, dtype=np.intp))
    (found,) = FreeWeights.at([opened], sites, np.array([bound / LARGEST_GROWTH**2])).blocks
    assert len(made) == n_blocks
    assert_allclose(found.var, 1.0 / (0.1 - 0.05 * share))


def fitted(solver, seed=0, shape=(60, 30)):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal(shape)
    labels = np.where(X[:, 0] - X[:, 1] + rng.standard_normal(shape[0]) > 0, 1.0, -1.0)
    operator = WithIntercept(Standardized.fit(Dense(X)))
    prior = Blocks(SpikeAndSlab(Gaussian(1.0), 0.1), others=((slice(-1, None), Gaussian(10.0)),))
    problem = Problem(operator, labels, np.ones(shape[0]), Probit(), prior)
    return solve(problem, solver, stopping=Stopping(tol=1e-10, max_iter=500))


@pytest.mark.parametrize("shape", [(60, 30), (40, 80)], ids=str)
def test_sites_are_those_of_ep(shape):
    solution = fitted(EP(), shape=shape)
    sites = sites_at_cavities(solution.problem, solution.state)
    own = solution.state.sites
    for name in ("prior_precision", "prior_shift", "label_precision", "label_shift"):
        assert_allclose(getattr(sites, name), getattr(own, name), rtol=1e-4, atol=1e-5, err_msg=name)


def test_sites_of_gamp_make_a_joint_cavity_like_that_of_ep():
    """On independent columns the two agree, but for GAMP's error."""
    answers = []
    for solver in (EP(), GAMP()):
        solution = fitted(solver, shape=(200, 60))
        sites = sites_at_cavities(solution.problem, solution.state)
        problem, columns = solution.problem, [0, 1, 5]
        answers += joint_cavities(Tiles(problem.operator), sites, problem.sample_weight, [columns])
    scale = np.abs(answers[0].precision).max()
    assert_allclose(answers[1].precision, answers[0].precision, atol=0.1 * scale)
    assert_allclose(answers[1].shift, answers[0].shift, atol=0.1 * np.abs(answers[0].shift).max())
