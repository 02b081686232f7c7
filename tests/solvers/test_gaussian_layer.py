"""The Gaussian that sites make, against the inverse of its precision matrix."""

from __future__ import annotations

import pickle
import tracemalloc
from operator import attrgetter

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse

from foldless.operators import Dense, MeanRemoved, Operator, Sparse, Standardized, WithIntercept
from foldless.solvers import gaussian_layer as module
from foldless.solvers.gaussian_layer import (
    LEAST_LABEL,
    NEAR,
    REFINED,
    Block,
    Factor,
    HeldKernel,
    NearKernel,
    NotPositiveDefinite,
    Sites,
    Tiles,
    share_moved,
    without_labels,
)

SHAPES = [(8, 20), (20, 8), (9, 9), (1, 3), (3, 1), (1, 1)]


def gaussian_layer(tiles, sites, weight):
    opened = tiles.opened(sites, weight, np.flatnonzero(sites.prior_precision <= 0))
    return opened.closed(opened.block_of(sites))


def whole(operator: Operator) -> np.ndarray:
    return operator.columns(np.arange(operator.shape[1]))


def random_sites(shape, rng, n_negative=0, size=0.2):
    n_samples, n_weights = shape
    precision = rng.gamma(2.0, 1.0, n_weights)
    precision[rng.permutation(n_weights)[:n_negative]] *= -size
    return Sites(
        precision,
        rng.normal(size=n_weights),
        rng.gamma(2.0, 1.0, n_samples),
        rng.normal(size=n_samples),
    )


def precision_and_shift(X, sites, weight):
    label_precision, label_shift = weight * sites.label_precision, weight * sites.label_shift
    precision = np.diag(sites.prior_precision) + X.T @ (label_precision[:, None] * X)
    return precision, sites.prior_shift + X.T @ label_shift


def assert_is_the_gaussian_of(found, X, sites, weight, tolerance=1e-10):
    precision, shift = precision_and_shift(X, sites, weight)
    cov = np.linalg.inv(precision)
    mean, var = cov @ shift, np.diag(cov)
    score_var = np.einsum("ij,ij->i", X @ cov, X)
    log_normaliser = 0.5 * (shift @ mean - np.linalg.slogdet(precision)[1] + mean.size * np.log(2 * np.pi))
    for name, answer in {
        "mean": mean,
        "var": var,
        "scores.mean": X @ mean,
        "scores.var": score_var,
        "log_normaliser": log_normaliser,
        "data_precision": 1 / var - sites.prior_precision,
        "data_slope": sites.prior_precision * mean - sites.prior_shift,
        "scores.rest_precision": 1 / score_var - weight * sites.label_precision,
    }.items():
        scale = max(np.max(np.abs(answer)), 1.0)
        assert_allclose(attrgetter(name)(found), answer, rtol=0, atol=tolerance * scale, err_msg=name)


@pytest.mark.parametrize("n_negative", [0, 1, 3])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_moments_and_normaliser_against_the_dense_inverse(shape, n_negative):
    rng = np.random.default_rng(0)
    n_negative, checked = min(n_negative, *shape), 0  # labels can only outweigh so many
    for _ in range(20):
        X = rng.normal(size=shape)
        sites = random_sites(shape, rng, n_negative, 0.02)
        weight = rng.choice([0.0, 0.5, 1.0, 2.0], shape[0])
        eigenvalues = np.linalg.eigvalsh(precision_and_shift(X, sites, weight)[0])
        if eigenvalues[0] < 1e-3:
            continue
        checked += 1
        assert_is_the_gaussian_of(gaussian_layer(Tiles(Dense(X)), sites, weight), X, sites, weight)
    assert checked >= 5


@pytest.mark.parametrize("shape", [(8, 20), (9, 30), (1, 3)], ids=str)
def test_which_weights_are_free_does_not_matter(shape):
    rng = np.random.default_rng(9)
    for n_free in (0, 1, shape[0], shape[1]):
        X = rng.normal(size=shape)
        sites = random_sites(shape, rng)
        # Labels that say nothing, next to nothing, and much.
        sites.label_precision[:3] = [0.0, 1e-9, 1e3][: shape[0]]
        weight = rng.choice([0.5, 1.0, 2.0], shape[0])
        free = np.sort(rng.permutation(shape[1])[:n_free])
        opened = Tiles(Dense(X)).opened(sites, weight, free)
        assert opened.precision.shape == (n_free, n_free)
        found = opened.closed(opened.block_of(sites))
        assert_is_the_gaussian_of(found, X, sites, weight, 1e-8)


@pytest.mark.parametrize("shape", [(8, 20), (20, 8)], ids=str)
def test_opened_weights_may_get_other_sites(shape):
    rng = np.random.default_rng(10)
    X, weight = rng.normal(size=shape), np.ones(shape[0])
    sites, other = random_sites(shape, rng), random_sites(shape, rng)
    opened = Tiles(Dense(X)).opened(sites, weight, np.array([2, 5, 6]))
    free = opened.free
    assert free.size == (3 if shape[1] > shape[0] else shape[1])
    block = opened.block_of(other)
    both = sites.with_prior(free, other.prior_precision[free], other.prior_shift[free])
    assert_is_the_gaussian_of(opened.closed(block), X, both, weight)
    with pytest.raises(NotPositiveDefinite):
        Block(opened, np.full(free.size, -1e3), other.prior_shift[free])


@pytest.mark.parametrize("shape", [(8, 20), (20, 8)], ids=str)
def test_labels_can_be_exchanged(shape):
    rng = np.random.default_rng(12)
    X, weight = rng.normal(size=shape), np.ones(shape[0])
    sites, other = random_sites(shape, rng), random_sites(shape, rng)
    without = np.where(np.arange(shape[0]) < 3, 0.0, weight)
    opened = Tiles(Dense(X)).opened(sites, weight, np.array([2, 5, 6]))
    both = Sites(sites.prior_precision, sites.prior_shift, other.label_precision, other.label_shift)
    exchanged = opened.relabelled(both, without)
    block = exchanged.block_of(sites)
    found = exchanged.closed(block)
    assert_is_the_gaussian_of(found, X, both, without)
    for part, same in zip(exchanged.scores(block), found.scores, strict=True):
        assert_allclose(part, same, rtol=0)


def test_tiles_know_their_columns(monkeypatch):
    X = np.random.default_rng(11).normal(size=(3, 50))
    for kept_bytes in (0, 1 << 20):
        monkeypatch.setattr(module, "KEPT_BYTES", kept_bytes)
        monkeypatch.setattr(Dense, "dense_columns", lambda self, _: Operator.dense_columns(self, 8 * 3 * 7))
        tiles = Tiles(Dense(X))
        for _ in range(2):
            for columns in ([], [0], [6, 7, 13, 48, 49], list(range(50))):
                positions = np.array(columns, dtype=np.intp)
                assert_allclose(tiles.columns(positions), X[:, positions], rtol=0)
            assert len(list(tiles)) == 8


# One Cholesky factor, of free weights for N > M and of all for N <= M: both sides of the border are found.
@pytest.mark.parametrize("shape", [(12, 30), (30, 12), (10, 10)], ids=str)
def test_sites_that_make_no_distribution_are_found(shape):
    rng = np.random.default_rng(1)
    counts = {True: 0, False: 0}
    for _ in range(200):
        X = rng.normal(size=shape)
        n_negative = int(rng.integers(1, 6))
        sites = random_sites(shape, rng, n_negative, size=rng.choice([0.1, 1.0, 5.0, 20.0]))
        smallest = np.linalg.eigvalsh(precision_and_shift(X, sites, np.ones(shape[0]))[0])[0]
        assert abs(smallest) > 1e-9
        counts[bool(smallest > 0)] += 1
        if smallest > 0:
            found = gaussian_layer(Tiles(Dense(X)), sites, np.ones(shape[0]))
            assert np.all(found.var > 0)
        else:
            with pytest.raises(NotPositiveDefinite):
                gaussian_layer(Tiles(Dense(X)), sites, np.ones(shape[0]))
    assert min(counts.values()) > 10


@pytest.mark.parametrize("shape", [(8, 20), (20, 8)], ids=str)
def test_what_labels_say_survives_a_prior_that_is_certain(shape):
    rng = np.random.default_rng(3)
    X = rng.normal(size=shape)
    sites = random_sites(shape, rng)
    sites.prior_precision[2] = 1e3
    slow = gaussian_layer(Tiles(Dense(X)), sites, np.ones(shape[0]))
    for certain in (1e12, 1e25, 1e200):
        sites.prior_precision[2] = certain
        found = gaussian_layer(Tiles(Dense(X)), sites, np.ones(shape[0]))
        # At 1e3 the other weights have all but the same company, and subtraction still works.
        assert_allclose(found.data_precision[2], slow.data_precision[2], rtol=1e-12)
        assert_allclose(found.data_slope[2], slow.data_slope[2], rtol=0.05)
        assert np.all(np.isfinite(found.mean))


@pytest.mark.parametrize("shape", [(8, 20), (20, 8)], ids=str)
def test_scores_survive_labels_that_are_certain(shape):
    rng = np.random.default_rng(4)
    X = rng.normal(size=shape)
    sites = random_sites(shape, rng)
    without = Sites(sites.prior_precision, sites.prior_shift, sites.label_precision.copy(), sites.label_shift)
    without.label_precision[3] = 0.0
    alone = gaussian_layer(Tiles(Dense(X)), without, np.ones(shape[0]))
    for certain, tolerance in ((1e6, 1e-8), (1e10, 1e-4)):
        sites.label_precision[3] = certain
        found = gaussian_layer(Tiles(Dense(X)), sites, np.ones(shape[0]))
        assert_allclose(found.scores.rest_precision[3], 1 / alone.scores.var[3], rtol=tolerance)
        assert np.all(found.scores.var > 0)


@pytest.mark.parametrize("shape", [(8, 20), (20, 8)], ids=str)
def test_without_labels_is_the_gaussian_of_prior_sites(shape):
    rng = np.random.default_rng(5)
    X = rng.normal(size=shape)
    sites = random_sites(shape, rng)
    nothing = np.zeros(shape[0])
    sites = Sites(sites.prior_precision, sites.prior_shift, nothing, nothing)
    found = without_labels(Dense(X), sites.prior_precision, sites.prior_shift)
    assert_is_the_gaussian_of(found, X, sites, np.ones(shape[0]))
    same = gaussian_layer(Tiles(Dense(X)), sites, np.ones(shape[0]))
    assert_is_the_gaussian_of(same, X, sites, np.ones(shape[0]))


@pytest.mark.parametrize("kept_bytes", [0, 1 << 30], ids=["tiles remade", "tiles kept"])
@pytest.mark.parametrize("storage", ["dense", "float32", "csr", "csc"])
@pytest.mark.parametrize("shape", [(15, 40), (40, 15)], ids=str)
def test_operators_are_visited_in_tiles(shape, storage, kept_bytes, monkeypatch):
    monkeypatch.setattr(module, "KEPT_BYTES", kept_bytes)
    rng = np.random.default_rng(6)
    A = rng.normal(1.0, 1.0, shape) * (rng.random(shape) < 0.7)
    inner = {
        "dense": lambda: Dense(A),
        "float32": lambda: Dense(A.astype(np.float32)),
        "csr": lambda: Sparse(sparse.csr_array(A)),
        "csc": lambda: Sparse(sparse.csc_array(A)),
    }[storage]()
    operator = WithIntercept(MeanRemoved(Standardized.fit(inner)))
    X = whole(operator)
    sites = random_sites(X.shape, rng)
    sites.prior_precision[:2] *= -0.02
    weight = rng.choice([0.5, 1.0, 2.0], X.shape[0])
    # Tiles are in the precision of the data.
    tolerance = 1e-10 if operator.dtype == np.float64 else 1e2 * np.finfo(np.float32).eps
    tiles = Tiles(operator)
    for _ in range(2):
        assert_is_the_gaussian_of(gaussian_layer(tiles, sites, weight), X, sites, weight, tolerance)
    copy = pickle.loads(pickle.dumps(tiles))
    assert copy._kept is None
    assert_is_the_gaussian_of(gaussian_layer(copy, sites, weight), X, sites, weight, tolerance)


def test_numbers_that_are_not_finite_make_no_distribution():
    for shape in ((3, 5), (5, 3)):
        sites = random_sites(shape, np.random.default_rng(7))
        for bad in (np.nan, np.inf):
            X = np.ones(shape)
            X[1, 1] = bad
            with pytest.raises(NotPositiveDefinite), np.errstate(all="ignore"):
                gaussian_layer(Tiles(Dense(X)), sites, np.ones(shape[0]))


@pytest.mark.parametrize("shape", [(100, 40_000), (40_000, 100)], ids=str)
def test_a_large_matrix_is_not_copied(shape, monkeypatch):
    monkeypatch.setattr(module, "KEPT_BYTES", 1 << 20)
    rng = np.random.default_rng(8)
    X = rng.standard_normal(shape, dtype=np.float32)
    operator = WithIntercept(Standardized.fit(Dense(X)))
    sites = random_sites(operator.shape, rng, 1, 1e-3)
    tracemalloc.start()
    gaussian_layer(Tiles(operator), sites, np.ones(shape[0]))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # A few tiles of 2 MB and vectors; X in float64 would be 32 MB.
    assert peak < 14e6


# ---------------------------------------------------------------------- labels near those of a factor


def near_and_exact(moved, seed=0, n_samples=30):
    """Three free weights over 60 held ones, with labels that have moved by this from those of a factor."""
    rng = np.random.default_rng(seed)
    X, columns = rng.normal(size=(n_samples, 60)), rng.normal(size=(n_samples, 3))
    kernel, held_scores, weight = X @ X.T / 20, rng.normal(size=n_samples), rng.uniform(0.5, 2.0, n_samples)
    sites = random_sites((n_samples, 3), rng)
    factor = Factor.of(kernel, weight * sites.label_precision)
    assert share_moved(factor, weight * sites.label_precision) == 0
    sites = sites._replace(label_precision=sites.label_precision * moved)
    near = NearKernel(factor, held_scores, columns, sites, weight)
    exact = HeldKernel(kernel, held_scores, np.arange(3), columns, sites, weight)
    return [opened.closed(opened.block_of(sites)) for opened in (near, exact)], near, exact


def assert_same(found, expected, tolerance):
    for name in ("mean", "var", "scores.mean", "scores.var", "scores.rest_precision", "log_normaliser"):
        one, other = attrgetter(name)(found), attrgetter(name)(expected)
        assert_allclose(one, other, rtol=0, atol=tolerance * np.max(np.abs(other)), err_msg=name)


def test_at_its_labels_a_factor_has_the_same_gaussian():
    (found, expected), near, exact = near_and_exact(1.0)
    assert_same(found, expected, REFINED)
    sites = near.sites._replace(label_shift=near.sites.label_shift + 1.0)
    pair = [opened.shifted(sites, np.ones(30)) for opened in (near, exact)]
    assert_same(*(opened.closed(opened.block_of(sites)) for opened in pair), REFINED)
    again = near.relabelled(exact.sites, exact.label_precision / exact.sites.label_precision)
    assert_same(again.closed(again.block_of(exact.sites)), expected, 1e-10)


def test_what_one_label_does_to_its_own_score_is_exact():
    one = np.where(np.arange(30) == 4, 3.0, 1.0)
    (found, expected), near, _ = near_and_exact(one)
    assert_same(found, expected, 0.2)
    for name in ("mean", "var"):
        assert_allclose(getattr(found.scores, name)[4], getattr(expected.scores, name)[4], rtol=5 * REFINED)
    assert_allclose(found.log_normaliser, expected.log_normaliser, rtol=REFINED)
    assert share_moved(near.factor, 5.0 * near.label_precision) > NEAR


def test_errors_of_labels_that_move_are_of_second_order():
    direction = np.random.default_rng(1).normal(size=30)

    def errors(size):
        (found, expected), near, exact = near_and_exact(np.exp(size * direction))
        return np.array(
            [
                np.abs(found.scores.var / expected.scores.var - 1.0).max(),
                np.abs(found.var / expected.var - 1.0).max(),
                np.abs(near.log_determinant - exact.log_determinant),
            ]
        )

    large, small = errors(0.1), errors(0.025)
    assert np.all(large < 0.01)
    # A quarter of the way: a sixteenth, and of free weights and the determinant a sixty-fourth or less.
    assert np.all(small < large / np.array([10.0, 30.0, 30.0]))


def test_void_labels_are_next_to_void_in_a_factor():
    _, _, exact = near_and_exact(np.where(np.arange(30) < 6, 0.0, 1.0))
    factor = Factor.of(exact.kernel, exact.label_precision)
    assert_allclose(factor.label_precision[:6], LEAST_LABEL / exact.kernel.diagonal()[:6])
    weight = exact.label_precision[6:] / exact.sites.label_precision[6:]
    near = NearKernel(
        factor, exact.held_scores, exact.free_columns, exact.sites, np.append(np.ones(6), weight)
    )
    exact = exact.relabelled(exact.sites, np.append(np.ones(6), weight))
    assert_same(*(opened.closed(opened.block_of(exact.sites)) for opened in (near, exact)), 10 * REFINED)


def test_weights_leave_a_factor():
    rng = np.random.default_rng(2)
    X, spread, precision = rng.normal(size=(20, 30)), rng.uniform(0.1, 0.4, 30), rng.uniform(0.1, 2.0, 20)
    whole, rest = (X * spread) @ X.T, (X[:, 4:] * spread[4:]) @ X[:, 4:].T
    found = Factor.of(whole, precision).without(rest, X[:, :4], spread[:4])
    expected = Factor.of(rest, precision)
    for one, other in zip(found, expected, strict=True):
        assert_allclose(one, other, atol=1e-10)


@pytest.mark.parametrize("bad", [-155.0, np.nan])
def test_there_is_no_gaussian_where_a_score_has_no_variance(bad):
    """Null labels of a real table of fingerprints led a leap there, and the next leap had no scale."""
    mean, var = np.zeros(2), np.ones(2)
    scores = module.Scores(np.zeros(3), np.array([1.0, bad, 2.0]), np.ones(3))
    with pytest.raises(module.NotPositiveDefinite, match="marginal variance"):
        module.Gaussian.of_moments(mean, var, var, mean, scores, 0.0)
    fine = scores._replace(var=np.array([1.0, 0.0, 2.0]))
    assert module.Gaussian.of_moments(mean, var, var, mean, fine, 0.0).scores is fine


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [0, 1, module.AT_ONCE, module.AT_ONCE + 1, 4 * module.AT_ONCE + 3])
def test_triangles_are_inverted_by_halves(size, dtype):
    rng = np.random.default_rng(0)
    lower = np.asfortranarray(np.tril(rng.standard_normal((size, size)) / 10) + np.eye(size), dtype=dtype)
    before = lower.copy()
    inverse = module._inverse(lower)
    assert inverse.dtype == dtype
    assert_allclose(inverse @ before, np.eye(size), atol=200 * np.finfo(dtype).eps)
    assert_allclose(inverse, np.tril(inverse))
    assert_allclose(lower, before)
    assert_allclose(module._inverse(lower, overwrite=True), inverse)
