"""Groups of features: probabilities against enumeration, and what is reported of a fit."""

from __future__ import annotations

from itertools import chain, combinations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import foldless
from foldless import SparseClassifier
from foldless.selection.groups import DRAWS, SHAPE_OF_RATE, JointPosterior
from foldless.tuning.plan import CHANCE


def posterior_of(precision, shift, *, rate=0.1, slab_mean=0.0, slab_var=2.0, correlation=None, missed=0.0):
    """Candidates of one prior; their own inclusion is where chains begin, and bounds nothing here."""
    n = shift.shape[1]
    return JointPosterior(
        columns=np.arange(n) + 100,
        inclusion=np.full(n, 0.5),
        prior_inclusion=np.full(n, rate),
        slab_mean=np.full(n, slab_mean),
        slab_var=np.full(n, slab_var),
        precision=precision,
        shift=shift,
        correlation=np.ones((n, n)) if correlation is None else correlation,
        missed=missed,
    )


def enumerated(joint):
    """Every set of candidates, and its probability; a factor of all prior odds is integrated out."""
    n, sets, log_odds = joint.columns.size, [], []
    expected = joint.prior_inclusion.sum() + joint.missed
    # Of exp(-u), u the factor times what its density and the sets that lack features have in their exponents.
    factor, weight = np.polynomial.laguerre.laggauss(40)
    factor = factor / (SHAPE_OF_RATE + expected)
    weight = weight * factor ** (SHAPE_OF_RATE - 1)
    for members in chain.from_iterable(combinations(range(n), k) for k in range(n + 1)):
        at = list(members)
        total = float(np.sum(np.log(joint.prior_inclusion[at] / (1 - joint.prior_inclusion[at]))))
        for P, h in zip(joint.precision, joint.shift, strict=True):
            prior = np.diag(1 / joint.slab_var[at])
            mean = joint.slab_mean[at]
            full, pull = prior + P[np.ix_(at, at)], h[at] + prior @ mean
            total += 0.5 * float(pull @ np.linalg.solve(full, pull) - mean @ prior @ mean)
            total -= 0.5 * float(np.linalg.slogdet(full)[1] - np.linalg.slogdet(prior)[1])
        total += np.log(weight @ factor ** len(at))
        sets.append(set(members))
        log_odds.append(total)
    odds = np.exp(np.array(log_odds) - max(log_odds))
    return sets, odds / odds.sum()


def data_of(n_scores, n=8, seed=0):
    """Gaussian data of two pairs of near twins and others, one of each pair in."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((30, n))
    X[:, 1] = X[:, 0] + 0.2 * rng.standard_normal(30)
    X[:, 3] = X[:, 2] + 0.1 * rng.standard_normal(30)
    shifts = [X.T @ (0.8 * X[:, 0] - 0.6 * X[:, 2] + rng.standard_normal(30)) for _ in range(n_scores)]
    return np.stack([X.T @ X] * n_scores) / n_scores, np.stack(shifts) / n_scores


@pytest.mark.parametrize("n_scores", [1, 3])
@pytest.mark.parametrize("slab_mean", [0.0, 0.5])
@pytest.mark.parametrize("missed", [-0.5, 4.0])
def test_draws_are_of_the_joint_posterior(n_scores, slab_mean, missed):
    joint = posterior_of(*data_of(n_scores), slab_mean=slab_mean, missed=missed)
    sets, probability = enumerated(joint)
    # Successive sets of a chain share members: at least a draw in four is as good as independent.
    tolerance = 5 * np.sqrt(0.25 / (DRAWS / 4))
    for group in ([0], [1], [5], [0, 1], [2, 3], [1, 4, 5, 6, 7]):
        expected = sum(p for s, p in zip(sets, probability, strict=True) if s & set(group))
        found = np.mean(np.isin(joint.draws, group).any(axis=1))
        assert abs(found - expected) < tolerance, group
    expected_size = np.array([len(each) for each in sets]) @ probability
    assert_allclose(joint.joint_inclusion.sum(), expected_size, atol=8 * tolerance)


@pytest.mark.parametrize("n_scores", [1, 3])
def test_what_is_certain_is_in_every_draw_and_the_others_are_as_they_were(n_scores):
    precision, shift = data_of(n_scores)
    shift = shift.copy()
    shift[:, 5] += 60.0 * np.sqrt(precision[:, 5, 5])
    joint, certain = (posterior_of(precision, shift, slab_mean=0.3, slab_var=4.0) for _ in range(2))
    certain.inclusion[5] = 1.0
    assert np.all(np.any(certain.draws == 5, axis=1))
    others = np.arange(8) != 5
    tolerance = 5 * np.sqrt(0.25 / (DRAWS / 4))
    assert joint.joint_inclusion[5] == 1.0
    assert_allclose(certain.joint_inclusion[others], joint.joint_inclusion[others], atol=tolerance)


def test_one_of_many_is_less_sure_where_their_number_is_not_known():
    """Without data nothing is in as often as a negative binomial number is zero, not e^-E of a known rate."""
    n = 60
    joint = posterior_of(np.zeros((1, n, n)), np.zeros((1, n)), rate=0.05)
    none = np.mean(np.all(joint.draws == n, axis=1))
    expected = (1 + n * 0.05 / SHAPE_OF_RATE) ** -SHAPE_OF_RATE
    assert abs(none - expected) < 5 * np.sqrt(expected / (DRAWS / 4))
    assert none > 1.5 * np.exp(-n * 0.05)


def test_draws_are_the_same_every_time_and_for_duplicates():
    precision, shift = data_of(1)
    precision[:, 1], precision[:, :, 1] = precision[:, 0], precision[:, :, 0]
    precision[:, 1, 1], shift[:, 1] = precision[:, 0, 0], shift[:, 0]
    joint, again = posterior_of(precision, shift), posterior_of(precision, shift)
    assert_array_equal(joint.draws, again.draws)
    first, second = joint.joint_inclusion[:2]
    assert abs(first - second) < 5 * np.sqrt(0.25 / (DRAWS / 4))


def test_a_group_is_not_filled_up_with_features_that_are_far_or_taken():
    """Draws have the twins in more often than marginals do, whose sum reaches the level only further out."""
    precision, shift = data_of(1)
    X = np.linalg.cholesky(precision[0]).T
    correlation = np.abs(np.corrcoef(X.T))
    far = np.where(correlation > 0.9, correlation, 0.0)
    joint = posterior_of(precision, 3 * shift, correlation=far)
    joint.inclusion[:] = 0.3
    assert joint.groups(0.9, [], purity=0.5) == []  # which also ends
    (of_anything,) = joint.groups(0.9, [])
    assert of_anything.inclusion.sum() >= of_anything.probability >= 0.9


def test_twins_are_a_group_and_what_is_far_is_not_in_it():
    precision, shift = data_of(1)
    X = np.linalg.cholesky(precision[0]).T
    correlation = np.abs(np.corrcoef(X.T))
    joint = posterior_of(precision, 3 * shift, correlation=np.where(correlation > 0.9, correlation, 0.0))
    found = joint.groups(0.9, [])
    assert sorted(sorted(group.features.tolist()) for group in found)[0] == [100, 101]
    members = np.concatenate([group.columns for group in found])
    assert members.size == np.unique(members).size
    for group in found:
        assert group.probability >= 0.9
        assert group.purity > 0.9
        assert group.leader == group.columns[0]


def test_what_explains_the_same_labels_is_a_group_even_if_it_hardly_goes_together():
    """But only of what is left: twins are a group of their own beforehand."""
    precision, shift = data_of(1)
    X = np.linalg.cholesky(precision[0]).T
    joint = posterior_of(precision, 3 * shift, rate=0.05, correlation=np.abs(np.corrcoef(X.T)))
    twins = [set(group.features.tolist()) for group in joint.groups(0.9, [])[:2]]
    assert sorted(map(sorted, twins)) == [[100, 101], [102, 103]]
    # Without twins to be seen, no group is within a radius, and one of all four is in.
    apart = posterior_of(precision, 1.2 * shift, rate=0.05, correlation=np.eye(8))
    (found,) = apart.groups(0.9, [])
    assert found.features.size > 1
    assert found.purity == 0.0
    share = np.mean(np.isin(apart.draws, found.features - 100).any(axis=1))
    assert share >= found.probability >= 0.9
    assert apart.groups(0.9, [], purity=0.5) == []


def test_what_the_prior_expects_is_no_group():
    assert posterior_of(np.zeros((1, 8, 8)), np.zeros((1, 8)), rate=0.4).groups(0.9) == []


# ---------------------------------------------------------------------- of a fit


def blocks(n_samples=120, n_features=300, seed=0):
    """Blocks of five columns correlated 0.9, of which 0, 1, ... are the first in a block."""
    rng = np.random.default_rng(seed)
    shared = np.repeat(rng.standard_normal((n_samples, n_features // 5)), 5, axis=1)
    return np.sqrt(0.9) * shared + np.sqrt(0.1) * rng.standard_normal((n_samples, n_features)), rng


@pytest.fixture(scope="module")
def two_classes():
    X, rng = blocks()
    y = (2.5 * (X[:, 10] - X[:, 57]) + rng.logistic(size=len(X)) > 0).astype(int)
    return X, y, SparseClassifier().fit(X, y)


def test_groups_hold_what_features_alone_do_not(two_classes):
    _, _, model = two_classes
    groups = model.groups_
    assert any(10 in group.features for group in groups)
    assert any(57 in group.features for group in groups)
    members = np.concatenate([group.features for group in groups])
    assert members.size == np.unique(members).size
    singles = {group.leader for group in groups if group.features.size == 1}
    assert singles == set(model.get_support(indices=True).tolist())
    assert all(group.probability >= 0.9 for group in groups if group.features.size > 1)
    assert np.mean([1 - group.probability for group in groups]) <= 0.1
    narrower = model.get_groups(fdr=0.01)
    assert all(group.probability >= 0.99 for group in narrower if group.features.size > 1)
    with pytest.raises(ValueError, match="fdr"):
        model.get_groups(fdr=1.5)


def test_sets_are_groups_of_twins(two_classes):
    _, _, model = two_classes
    for each in model.credible_sets_:
        assert each.probability >= 0.95
        assert each.purity >= 0.5


def test_groups_come_back_from_a_file(two_classes, tmp_path):
    _, _, model = two_classes
    loaded = foldless.load(model.save(tmp_path / "model"))
    assert list(map(str, loaded.groups_)) == list(map(str, model.groups_))
    assert list(map(str, loaded.credible_sets_)) == list(map(str, model.credible_sets_))
    assert list(map(str, loaded.get_groups())) == list(map(str, model.groups_))
    with pytest.raises(ValueError, match="fit it again"):
        loaded.get_groups(fdr=0.3)


def test_groups_of_columns_in_another_order(two_classes):
    """The same but for the error of draws: sites in single precision may send a chain another way."""
    X, y, model = two_classes
    order = np.random.default_rng(3).permutation(X.shape[1])
    turned = SparseClassifier().fit(X[:, order], y)
    assert_array_equal(order[turned._joint.columns], model._joint.columns)
    tolerance = 5 * np.sqrt(2 * 0.25 / (DRAWS / 4))
    assert_allclose(turned._joint.inclusion, model._joint.inclusion, atol=1e-4)
    groups, again = model.groups_, turned.groups_
    assert [set(group.features // 5) for group in groups] == [
        set(order[group.features] // 5) for group in again
    ]
    assert_allclose(turned._joint.joint_inclusion, model._joint.joint_inclusion, atol=tolerance)


def test_another_fit_has_other_groups(two_classes):
    X, y, _ = two_classes
    model = SparseClassifier().fit(X, y)
    assert model.groups_
    rng = np.random.default_rng(0)
    model.fit(X, rng.permutation(y))
    assert model.p_value_ > CHANCE
    assert model.groups_ == ()


def test_three_classes_have_groups():
    X, rng = blocks(150, 300, seed=1)
    scores = 2.0 * np.column_stack([X[:, 10], X[:, 57], -X[:, 10] - X[:, 57]])
    y = np.argmax(scores + rng.gumbel(size=scores.shape), axis=1)
    model = SparseClassifier().fit(X, y)
    named = [set((group.features // 5).tolist()) for group in model.groups_]
    assert {2} in named
    assert {11} in named


def test_without_exact_covariances_there_are_single_features():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((100, 400))
    model = SparseClassifier().fit(X, (3 * X[:, 7] + rng.logistic(size=100) > 0).astype(int))
    assert [group.features.tolist() for group in model.groups_] == [[7]]
