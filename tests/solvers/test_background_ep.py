"""EP over a background: the same answers as EP over all features, from matrices of samples by samples."""

from __future__ import annotations

import pickle
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse

from foldless.channels import FlippedLabels, Logistic
from foldless.operators import Standardized, WithIntercept, operator_from
from foldless.priors import Blocks, Gaussian, OverBackground, SpikeAndSlab
from foldless.problem import KeptColumns, Problem
from foldless.solvers import EP, BackgroundEP, Stopping, background_ep, solve
from foldless.solvers.ep import left_out_groups
from foldless.solvers.gaussian_layer import HeldKernel, NearKernel, Sites

# Near a fixed point that samples in doubt approach slowly a small change is not yet a small distance.
CLOSE = Stopping(tol=1e-6, max_iter=400)


def documents(n_documents, n_words, seed, n_true=4):
    """Words of five topics by Zipf's law; the class depends on whether a few of the common ones occur."""
    rng = np.random.default_rng(seed)
    topics = np.exp(rng.standard_normal((5, n_words))) / np.arange(3, n_words + 3)
    topics /= topics.sum(axis=1, keepdims=True)
    counts = np.array([rng.multinomial(60, topics[k]) for k in rng.integers(5, size=n_documents)])
    true = rng.choice(np.flatnonzero((counts > 0).mean(axis=0) > 0.15), n_true, replace=False)
    scores = 3.0 * (counts[:, true] > 0) @ np.where(np.arange(n_true) % 2, 1.0, -1.0)
    labels = np.where(rng.logistic(size=n_documents) < scores, 1.0, -1.0)
    return sparse.csr_array(counts.astype(float)), labels, true


def problem_of(X, labels, *, background=50.0, weight=None, channel=None, as_dense=False):
    """Of standardised words and an intercept; the background is per occurrence."""
    n_words = X.shape[1]
    weight = np.ones(labels.size) if weight is None else weight
    standardized = Standardized.fit(operator_from(X.toarray() if as_dense else X), weight)
    operator = WithIntercept(standardized)
    occurrences = np.append(np.asarray((X > 0).mean(axis=0)).ravel(), 1.0)
    variance = background * np.maximum(occurrences, 1e-3) / occurrences[:-1].sum()
    prior = OverBackground(SpikeAndSlab(Gaussian(4.0), 10.0 / n_words), variance)
    others = [(slice(-1, None), Gaussian(100.0))]
    constant = np.flatnonzero(standardized.constant)
    if constant.size:
        others.append((constant, Gaussian()))
    kept = np.array([n_words])
    return Problem(
        operator,
        labels,
        weight,
        channel or Logistic(),
        Blocks(prior, tuple(others)),
        KeptColumns(kept, operator.columns(kept)),
    )


def inclusion_of(solution):
    at = solution.posterior
    return solution.problem.prior.inclusion_probability(at.cavity_mean, at.cavity_var)[:-1]


def gaussian_of(problem):
    """The same problem without effects, for EP."""
    prior = problem.prior
    tiny = replace(prior.base, base=SpikeAndSlab(Gaussian(4.0), 1e-12))
    return problem.but(prior=replace(prior, base=tiny))


@pytest.mark.parametrize("as_dense", [False, True], ids=["sparse", "dense"])
def test_the_background_alone_is_a_ridge_regression(as_dense):
    X, labels, _ = documents(80, 300, seed=0)
    problem = problem_of(X, labels, as_dense=as_dense)
    found = solve(problem, BackgroundEP(effects=False), stopping=CLOSE)
    assert len(found.state.secants) == 0  # which only further iterations would use
    expected = solve(gaussian_of(problem), EP(), stopping=CLOSE)
    assert found.outcome.trustworthy
    for name in ("mean", "loo_mean", "loo_var"):
        ours, theirs = getattr(found.posterior, name), getattr(expected.posterior, name)
        assert_allclose(ours, theirs, atol=2e-3 * np.abs(theirs).max())
    assert found.posterior.log_evidence == pytest.approx(expected.posterior.log_evidence, abs=0.01)


def test_labels_that_still_move_far_take_no_whole_inverse():
    """After the first ones, which have moved from none, a whole one is made where the next may be near it."""
    rng = np.random.default_rng(0)
    X, none, ones = rng.standard_normal((40, 90)), np.zeros(0), np.ones(40)
    held = background_ep.HeldBackground(X @ X.T / 10, np.zeros((40, 0)), nearby=True)
    sites = [Sites(none, none, np.full(40, 0.2 * size), np.zeros(40)) for size in (1.0, 2.0, 2.1, 2.11)]
    far, still_far, closer, near = (held.opened(own, ones, np.zeros(0, dtype=np.intp)) for own in sites)
    assert isinstance(far, HeldKernel)
    assert isinstance(still_far, HeldKernel)
    assert isinstance(near, NearKernel)
    assert near.factor is closer.factor


def with_effects_of(problem, columns):
    """The same problem, in which only these columns can have effects, for EP over all."""
    prior, alone = problem.prior, gaussian_of(problem).prior
    columns = np.setdiff1d(columns, [problem.operator.shape[1] - 1])
    own = prior.base.of_columns(columns, problem.operator.shape[1])
    return problem.but(prior=replace(alone, others=(*alone.others, (columns, own))))


def ep_over_all(problem, found):
    """Where the effects of active features settle with EP, from there: words that resemble each other can in
    more than one way."""
    state, at = found.state, found.posterior
    own = with_effects_of(problem, state.active)
    start = SimpleNamespace(
        cavity_mean=at.cavity_mean,
        cavity_var=at.cavity_var,
        score_cavity_mean=state.score_cavity_mean,
        score_cavity_var=state.score_cavity_var,
    )
    return solve(own, EP(), stopping=CLOSE, state=EP().from_state(own, start))


@pytest.mark.parametrize("seed", range(6))
def test_active_features_have_what_ep_over_all_gives_them(seed):
    X, labels, true = documents(150, 600, seed)
    problem = problem_of(X, labels, channel=FlippedLabels(Logistic(), 0.01))
    found = solve(problem, BackgroundEP(), stopping=CLOSE)
    active = found.state.active
    expected = ep_over_all(problem, found)
    assert found.outcome.trustworthy
    assert expected.outcome.trustworthy
    assert 5 < active.size < 100
    effects = np.setdiff1d(active, [600])
    ours, theirs = inclusion_of(found), inclusion_of(expected)
    assert_allclose(ours[effects], theirs[effects], atol=2e-3)
    assert ours[true].max() > 0.5
    for name in ("mean", "loo_mean", "loo_var"):
        one, other = getattr(found.posterior, name), getattr(expected.posterior, name)
        assert_allclose(one, other, atol=2e-3 * np.abs(other).max())


@pytest.mark.parametrize("seed", range(3))
def test_what_is_not_active_is_improbable(seed):
    X, labels, _ = documents(150, 600, seed)
    problem = problem_of(X, labels)
    found = solve(problem, BackgroundEP(), stopping=CLOSE)
    active = found.state.active
    expected = ep_over_all(problem, found)
    # The cavities of EP are exact; what is asked of them is what the whole prior would.
    at = expected.posterior
    inclusion = problem.prior.inclusion_probability(at.cavity_mean, at.cavity_var)[:-1]
    held = np.setdiff1d(np.flatnonzero(~problem.operator.operator.constant), active)
    assert inclusion[held].max() < 2 * background_ep.LEAST_INCLUSION


def test_factors_in_single_precision_change_nothing_that_counts(monkeypatch):
    X, labels, _ = documents(200, 500, seed=2)
    problem = problem_of(X, labels)
    single = solve(problem, BackgroundEP(), stopping=CLOSE)
    monkeypatch.setattr(background_ep, "FACTOR_DTYPE", np.dtype(np.float64))
    double = solve(problem, BackgroundEP(), stopping=CLOSE)
    assert_allclose(inclusion_of(single), inclusion_of(double), atol=2e-3)
    scale = np.abs(double.posterior.loo_mean).max()
    assert_allclose(single.posterior.loo_mean, double.posterior.loo_mean, atol=2e-3 * scale)


def test_a_weight_of_two_is_two_documents_and_of_none_is_none():
    X, labels, _ = documents(90, 300, seed=3)
    weight = np.where(np.arange(90) < 20, 2.0, 1.0)
    weight[-10:] = 0.0
    twice = np.concatenate([np.arange(80), np.arange(20)])
    problem = problem_of(X, labels, weight=weight)
    # Effects may settle in more than one way.
    weighted = solve(problem, BackgroundEP(effects=False), stopping=CLOSE)
    repeated = Problem(
        WithIntercept(problem.operator.operator.some_rows(twice)),
        labels[twice],
        np.ones(100),
        problem.channel,
        problem.prior,
        KeptColumns(problem.kept.positions, np.ones((100, 1))),
    )
    other = solve(repeated, BackgroundEP(effects=False), stopping=CLOSE)
    scale = np.abs(other.posterior.mean).max()
    assert_allclose(weighted.posterior.mean, other.posterior.mean, atol=5e-3 * scale)
    assert np.isfinite(weighted.posterior.loo_mean).all()


def test_effects_go_on_from_the_background_and_a_fit_from_its_end():
    X, labels, _ = documents(150, 400, seed=0)
    problem = problem_of(X, labels)
    solver = BackgroundEP()
    cold = solve(problem, solver, stopping=CLOSE)
    alone = solve(problem, BackgroundEP(effects=False), stopping=CLOSE)
    from_alone = solve(problem, solver, stopping=CLOSE, state=solver.as_start(alone.state))
    kept = pickle.loads(pickle.dumps(solver.as_start(cold.state)))
    again = solve(problem, solver, stopping=CLOSE, state=kept)
    for other in (from_alone, again):
        assert_allclose(inclusion_of(other), inclusion_of(cold), atol=0.02)
    assert len(again.history) < len(cold.history)


def test_groups_are_left_out():
    X, labels, _ = documents(90, 300, seed=4)
    problem, group = problem_of(X, labels), np.arange(90) // 3
    solution = solve(problem, BackgroundEP(), stopping=CLOSE)
    mean, _ = left_out_groups(problem, solution.state, group)
    refitted = np.empty(90)
    for number in range(30):
        inside = group == number
        without = problem.but(sample_weight=np.where(inside, 0.0, 1.0))
        refitted[inside] = solve(without, BackgroundEP(), stopping=CLOSE).state.gaussian.scores.mean[inside]
    assert np.corrcoef(mean, refitted)[0, 1] > 0.98


def test_without_a_background_it_says_what_it_needs():
    X, labels, _ = documents(40, 100, seed=0)
    problem = problem_of(X, labels)
    with pytest.raises(ValueError, match="needs a prior over a background; got SpikeAndSlab"):
        BackgroundEP().init(problem.but(prior=SpikeAndSlab()))
