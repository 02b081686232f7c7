"""Selection: what `select` promises, for any probabilities, and in a simulation in which they are true."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_array_equal

from foldless.selection import select

# Half of the values from a short list, so that ties are common.
probability = st.one_of(st.floats(0.0, 1.0), st.sampled_from([0.0, 0.25, 0.5, 0.75, 0.9, 1.0]))
probabilities = arrays(np.float64, st.integers(0, 12), elements=probability)
rate = st.one_of(st.floats(0.0, 1.0), st.sampled_from([0.0, 0.05, 0.1, 0.25, 0.5, 1.0]))
# A share is a mean of rounded numbers.
ROUNDING = 1e-12


def share_of_mistakes(p, keep):
    return np.mean(1 - p[keep]) if np.any(keep) else 0.0


@given(probabilities, rate)
def test_the_expected_share_of_mistakes_is_within_the_rate(p, fdr):
    assert share_of_mistakes(p, select(p, fdr)) <= fdr + ROUNDING


@given(probabilities, rate)
def test_no_larger_set_would_do(p, fdr):
    """Among all sets of the surest, the only ones that do not cut between equals.

    Equal are those whose chances of a mistake are: 1e-92 and 0 are not told apart by 1 - p.
    """
    kept = np.count_nonzero(select(p, fdr))
    for mistake in 1 - p:
        candidate = 1 - p <= mistake
        if np.count_nonzero(candidate) > kept:
            assert share_of_mistakes(p, candidate) > fdr - ROUNDING


@given(probabilities, rate)
def test_the_kept_are_the_surest_and_equals_stand_together(p, fdr):
    keep = select(p, fdr)
    if np.any(keep) and not np.all(keep):
        assert p[keep].min() > p[~keep].max()


@given(probabilities, rate, rate)
def test_a_larger_rate_keeps_more(p, one, other):
    low, high = min(one, other), max(one, other)
    assert np.all(select(p, low) <= select(p, high))


@given(probabilities, rate, st.randoms(use_true_random=False))
def test_the_order_of_features_does_not_matter(p, fdr, random):
    order = list(range(p.size))
    random.shuffle(order)
    assert_array_equal(select(p[order], fdr), select(p, fdr)[order])


@given(probabilities)
def test_the_ends(p):
    assert_array_equal(select(p, 0.0), p == 1.0)
    assert np.all(select(p, 1.0))


def test_examples():
    p = np.array([0.99, 0.2, 0.95, 0.85, 0.0])
    assert_array_equal(select(p, 0.05), [True, False, True, False, False])
    assert_array_equal(select(p, 0.1), [True, False, True, True, False])
    assert_array_equal(select(p, 0.005), [False] * 5)
    # Twins of which one alone would do.
    assert_array_equal(select(np.array([1.0, 0.8, 0.8]), 0.1), [True, False, False])
    assert_array_equal(select(np.array([0.5, 0.5]), 0.4), [False, False])


@pytest.mark.parametrize("fdr", [-0.1, 1.1, np.nan])
def test_a_rate_is_between_zero_and_one(fdr):
    with pytest.raises(ValueError, match="fdr must be between 0 and 1"):
        select(np.array([0.5]), fdr)


def test_single_precision_and_lists():
    assert_array_equal(select(np.array([0.99, 0.2], dtype=np.float32), 0.1), [True, False])
    assert_array_equal(select([0.99, 0.2], 0.1), [True, False])
    assert select(np.zeros(0), 0.1).shape == (0,)


@pytest.mark.parametrize("fdr", [0.05, 0.1, 0.3])
def test_the_realised_rate_where_probabilities_are_true(fdr):
    """Spike and slab through Gaussian noise: exact posterior probabilities, 400 repetitions."""
    rng = np.random.default_rng(0)
    inclusion, slab_var, noise_var, n_features = 0.1, 9.0, 1.0, 500
    shares, kept = [], []
    for _ in range(400):
        active = rng.random(n_features) < inclusion
        seen = np.where(active, rng.normal(0, 3.0, n_features), 0.0) + rng.standard_normal(n_features)
        total = slab_var + noise_var
        odds = inclusion / (1 - inclusion) * np.sqrt(noise_var / total)
        odds = odds * np.exp(0.5 * seen**2 * (1 / noise_var - 1 / total))
        keep = select(odds / (1 + odds), fdr)
        shares.append(np.mean(~active[keep]) if np.any(keep) else 0.0)
        kept.append(np.count_nonzero(keep))
    standard_error = np.std(shares) / np.sqrt(len(shares))
    assert standard_error < 0.05 * fdr + 0.002
    # The sets are as large as they may be, so the share is the rate, not only below it.
    assert abs(np.mean(shares) - fdr) < 5 * standard_error + 1 / np.mean(kept)
    assert np.mean(shares) < fdr + 5 * standard_error
