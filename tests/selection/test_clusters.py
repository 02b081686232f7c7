"""Clusters of correlated columns: who is in, whatever the order, and what they cost."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_matrix

from foldless import GAMPClassifier, SparseClassifier
from foldless.operators import Dense, Sparse, Standardized
from foldless.selection.clusters import (
    LARGEST_CLUSTER,
    correlated_clusters,
    correlations,
    correlations_within,
)
from foldless.solvers.gaussian_layer import Tiles


def block_data(n_samples, n_features, seed, *, block=5, correlation=0.9):
    rng = np.random.default_rng(seed)
    common = np.repeat(rng.standard_normal((n_samples, n_features // block)), block, axis=1)
    own = rng.standard_normal((n_samples, n_features))
    return np.sqrt(correlation) * common + np.sqrt(1 - correlation) * own


def clusters_of(X, inclusion, *, rate=0.05, eligible=None, weight=None):
    n_samples, n_features = X.shape
    return correlated_clusters(
        Tiles(Dense(X)),
        np.ones(n_samples) if weight is None else weight,
        inclusion,
        np.full(n_features, rate),
        np.ones(n_features, dtype=bool) if eligible is None else eligible,
    )


def as_sets(clusters):
    return {frozenset(cluster.tolist()) for cluster in clusters}


@pytest.mark.parametrize("shape", [(30, 80), (100, 20)], ids=str)
@pytest.mark.parametrize("storage", ["dense", "sparse"])
def test_correlations(shape, storage):
    rng = np.random.default_rng(0)
    X = rng.standard_normal(shape) + 5.0
    X[:, 7] = 3.0
    weight = rng.uniform(0, 2, shape[0])
    operator = Dense(X) if storage == "dense" else Sparse(csr_matrix(X))
    columns = np.array([2, 7, 11])
    covariance = np.cov(X.T, aweights=weight, bias=True)
    std = np.sqrt(np.diag(covariance))
    std[7] = np.inf
    expected = (covariance / np.multiply.outer(std, std))[columns]
    tiles = Tiles(Standardized.fit(operator, weight))
    assert_allclose(correlations(tiles, weight, columns), expected, atol=1e-10)
    within = correlations_within(tiles.operator.columns(columns), weight)
    expected = expected[:, columns]
    np.fill_diagonal(expected, 1.0)
    assert_allclose(within, expected, atol=1e-10)


@pytest.mark.parametrize("shape", [(60, 100), (200, 50)], ids=str)
def test_a_seed_brings_its_block(shape):
    X = block_data(*shape, seed=1)
    inclusion = np.full(shape[1], 0.01)
    inclusion[[7, 31]] = 0.6, 0.5
    assert as_sets(clusters_of(X, inclusion)) == {frozenset(range(5, 10)), frozenset(range(30, 35))}


def test_twins_split_ten_ways_are_seeds():
    rng = np.random.default_rng(2)
    X = rng.standard_normal((50, 200))
    X[:, 100:110] = X[:, [100]]
    inclusion = np.full(200, 0.01)
    inclusion[100:110] = 0.1
    assert as_sets(clusters_of(X, inclusion)) == {frozenset(range(100, 110))}


def test_columns_no_more_probable_than_before_are_no_seeds():
    X = block_data(50, 100, seed=3)
    assert clusters_of(X, np.full(100, 0.09), rate=0.05) == ()
    # With a dense prior, more probable than not is enough.
    inclusion = np.full(100, 0.45)
    inclusion[3] = 0.55
    assert as_sets(clusters_of(X, inclusion, rate=0.4)) == {frozenset(range(5))}


def test_a_seed_without_relatives_is_alone():
    X = np.random.default_rng(4).standard_normal((200, 30))
    inclusion = np.full(30, 0.01)
    inclusion[12] = 0.9
    assert as_sets(clusters_of(X, inclusion)) == {frozenset([12])}


def test_what_is_not_eligible_stays_out():
    X = block_data(60, 100, seed=5)
    inclusion = np.full(100, 0.01)
    inclusion[:10] = 0.3
    eligible = np.ones(100, dtype=bool)
    eligible[[0, 1]] = False
    clusters = clusters_of(X, inclusion, eligible=eligible)
    assert as_sets(clusters) == {frozenset([2, 3, 4]), frozenset(range(5, 10))}


def test_clusters_that_meet_are_one():
    rng = np.random.default_rng(6)
    walk = np.cumsum(rng.standard_normal((400, 6)), axis=1)[:, 2:]
    X = np.column_stack([walk, rng.standard_normal((400, 20))])
    r = np.abs(np.corrcoef(walk.T))
    assert r[0, 3] < r[0, 1]
    inclusion = np.full(24, 0.01)
    inclusion[[0, 3]] = 0.4
    assert as_sets(clusters_of(X, inclusion)) == {frozenset(range(4))}


def test_a_large_cluster_keeps_its_most_probable_columns():
    X = block_data(80, 200, seed=7, block=50)
    rng = np.random.default_rng(0)
    inclusion = np.full(200, 0.001)
    inclusion[:50] = rng.uniform(0.01, 0.09, 50)
    inclusion[3] = 0.5
    (cluster,) = clusters_of(X, inclusion)
    assert cluster.size == LARGEST_CLUSTER
    expected = np.sort(np.argsort(-inclusion)[:LARGEST_CLUSTER])
    assert_array_equal(cluster, expected)


def test_what_is_hardly_in_is_not_gathered():
    X = block_data(60, 100, seed=10)
    inclusion = np.full(100, 0.001)
    inclusion[[7, 31]] = 0.45, 0.55
    assert as_sets(clusters_of(X, inclusion)) == {frozenset(range(30, 35))}


def test_no_more_columns_than_samples():
    X = block_data(33, 200, seed=11)
    rng = np.random.default_rng(0)
    inclusion = rng.uniform(0.1, 0.3, 200)
    clusters = clusters_of(X, inclusion)
    assert 20 <= sum(cluster.size for cluster in clusters) <= 33
    # The surest column is always in.
    assert np.argmax(inclusion) in np.concatenate(clusters)


@pytest.mark.parametrize("shape", [(60, 100), (200, 50)], ids=str)
def test_the_order_of_columns_does_not_matter(shape):
    X = block_data(*shape, seed=9)
    rng = np.random.default_rng(1)
    inclusion = rng.uniform(0, 0.3, shape[1])
    order = rng.permutation(shape[1])
    turned = clusters_of(X[:, order], inclusion[order])
    assert as_sets([order[cluster] for cluster in turned]) == as_sets(clusters_of(X, inclusion))


def test_clusters_are_disjoint_and_not_too_large():
    for seed in range(5):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((40, 3)) @ rng.standard_normal((3, 150)) + rng.standard_normal((40, 150))
        clusters = clusters_of(X, rng.uniform(0, 0.5, 150))
        members = np.concatenate(clusters)
        assert np.unique(members).size == members.size
        assert max(cluster.size for cluster in clusters) <= LARGEST_CLUSTER


def test_a_column_that_goes_with_one_that_matters_is_not_in_a_blend():
    """At ω = 1 class means of both are far apart; beside the first, the second has nothing to say."""
    rng = np.random.default_rng(4)
    y = np.repeat([0, 1], 100)
    X = rng.standard_normal((200, 300))
    X[:, 0] += 1.2 * y
    X[:, 1] = 0.7 * X[:, 0] + np.sqrt(0.51) * X[:, 1]
    marginal = GAMPClassifier(generative_weight=1.0).fit(X, y).inclusion_probability_
    conditional = SparseClassifier(generative_weight=1.0).fit(X, y).inclusion_probability_
    assert marginal[:2].min() > 0.9
    assert conditional[0] > 0.9
    assert conditional[1] < 0.2


def test_chance_correlations_of_thirty_samples_make_no_column_an_effect():
    selected = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X, y = rng.standard_normal((30, 5000)), np.arange(30) % 2
        X[:, :10] += 2.0 * y[:, None]
        selected.append(SparseClassifier().fit(X, y).get_support(fdr=0.1, indices=True))
    found = np.concatenate(selected)
    # A tenth of false ones was asked for; of so few, two more are chance.
    assert np.count_nonzero(found >= 10) <= 0.1 * found.size + 2
    assert np.count_nonzero(found < 10) >= 10
