"""Diffusion between weights and samples: a bound that only falls, exact answers where there are any."""

import importlib.util
import sys
from itertools import islice

import numpy as np
import pytest
from numpy.testing import assert_allclose

from foldless.solvers.knapsack import (
    CompiledFactors,
    Diffusion,
    ExactFactors,
    LinearFactors,
    Machine,
    Marginals,
    grid,
    machine,
)
from foldless.solvers.knapsack.histograms import gaussian_histograms

COST = 2.0


def samples(n_samples, n_weights, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n_samples, n_weights)) + 0.5
    return rows, np.ones(n_samples)


def after(n_sweeps, kind, rows, weight, cost=COST):
    return next(islice(kind.sweeps(rows, weight, cost), n_sweeps - 1, None))


def log_posterior(kind, rows, weight, cost, points):
    """At every combination of grid points, (bins, ..., bins)."""
    axes = np.meshgrid(*points, indexing="ij")
    margins = sum(np.multiply.outer(a, axis) for a, axis in zip(rows.T, axes, strict=True))
    violated = np.tensordot(weight, margins < 1.0, axes=1)
    prior = [
        values.reshape([-1 if i == j else 1 for j in range(len(points))])
        for i, values in enumerate(kind.log_prior(points))
    ]
    return sum(prior) - cost * violated


FORMS = {
    "numpy": (LinearFactors, 16),
    "numba": (CompiledFactors, 16),
    "exact": (ExactFactors, 6),
}


def bound_at(diffusion: Diffusion, i: int) -> float:
    """The bound with weight i at its points and the others anywhere between theirs."""
    inputs = diffusion._belief[:, np.newaxis] - diffusion._messages
    peaks = inputs.max(axis=2).sum(axis=0) - inputs[i].max(axis=1)
    return float(diffusion._weight @ (peaks + (inputs[i] + diffusion._factors.send(i)).max(axis=1)))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("prior", ["l2", "l1", "l0"])
def test_no_visit_raises_the_bound_and_the_posterior_stays_below(prior, form):
    if form == "numba":
        pytest.importorskip("numba")
    factors, n_bins = FORMS[form]
    rows, weight = samples(12, 3)
    weight[3] = 2.0
    kind, points = Machine(prior, n_bins=n_bins, reach=3.0), grid(3, n_bins, 3.0)
    best = log_posterior(kind, rows, weight, COST, points).max()
    diffusion = Diffusion(factors(rows, points, COST), points, kind.log_prior(points), weight, COST)
    fallen = 0.0
    for visit in range(15 if form == "exact" else 60):
        before = bound_at(diffusion, visit % 3)
        diffusion.visit(visit % 3)
        after_it = bound_at(diffusion, visit % 3)
        assert after_it <= before + 1e-10
        assert best - 1e-10 <= after_it <= diffusion.bound() + 1e-10
        fallen += before - after_it
    assert fallen > 1.0


@pytest.mark.parametrize("prior", ["l2", "l1", "l0"])
def test_the_bound_falls_sweep_by_sweep(prior):
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(100, 6)) + 0.5
    bounds = []
    for sweep in Machine(prior, n_bins=16, reach=3.0).sweeps(rows, np.ones(100), COST):
        bounds.append(sweep.bound())
        if sweep.number == 15:
            break
    assert np.all(np.diff(bounds) <= 1e-10)
    assert bounds[-1] < bounds[0] - 5.0


@pytest.mark.parametrize("prior", ["l2", "l1", "l0", lambda w: -(np.abs(w) ** 3) + np.cos(5 * w)])
@pytest.mark.parametrize("outer_every", [None, 2])
def test_one_weight_has_its_exact_posterior(prior, outer_every):
    kind = Machine(prior, n_bins=40, reach=3.0, outer_every=outer_every)
    rows, weight = samples(7, 1)
    found = after(5, kind, rows, weight).marginals
    assert_allclose(found.log_density, [log_posterior(kind, rows, weight, COST, found.points)], atol=1e-12)


def test_beta_only_scales():
    rows, weight = samples(10, 3)
    plain = after(6, Machine(n_bins=20), rows, weight, COST)
    colder = after(6, Machine(lambda w: -2.5 * w**2 / 2, n_bins=20), rows, weight, 2.5 * COST)
    assert_allclose(colder.marginals.log_density, 2.5 * plain.marginals.log_density, rtol=0, atol=1e-10)
    assert_allclose(colder.bound(), 2.5 * plain.bound(), atol=1e-10)


@pytest.mark.parametrize("engine", ["numpy", "numba"])
def test_a_sample_of_weight_two_is_two_samples(engine):
    if engine == "numba":
        pytest.importorskip("numba")
    rows, weight = samples(9, 3)
    weight[[2, 5]] = 2.0
    kind = Machine(n_bins=20, engine=engine)
    weighted = after(4, kind, rows, weight)
    repeated = after(4, kind, np.vstack([rows, rows[[2, 5]]]), np.ones(11))
    assert_allclose(weighted.marginals.log_density, repeated.marginals.log_density, rtol=0, atol=1e-10)
    assert_allclose(weighted.bound(), repeated.bound(), atol=1e-10)


def test_exchanging_the_classes_turns_every_weight_round():
    rows, weight = samples(15, 3)
    kind = Machine(n_bins=20)
    found, turned = after(5, kind, rows, weight), after(5, kind, -rows, weight)
    assert_allclose(found.marginals.log_density, turned.marginals.log_density[:, ::-1], rtol=0, atol=1e-10)


def test_engines_agree():
    pytest.importorskip("numba")
    rows, weight = samples(40, 5)
    by_numba, by_numpy = (after(8, Machine(engine=e), rows, weight) for e in ("numba", "numpy"))
    assert_allclose(by_numba.marginals.log_density, by_numpy.marginals.log_density, rtol=0, atol=1e-9)
    assert_allclose(by_numba.bound(), by_numpy.bound(), rtol=0, atol=1e-9)


def test_a_cost_that_no_message_reaches_does_not_matter():
    rng = np.random.default_rng(3)
    rows, weight = rng.normal(size=(20, 12)), np.ones(20)
    high, higher = (after(2, Machine(n_bins=12), rows, weight, cost) for cost in (5.0, 50.0))
    assert -5.0 < high.lowest < 0.0
    assert_allclose(high.marginals.log_density, higher.marginals.log_density, rtol=0, atol=1e-12)


def test_without_numba_numpy_does_it_and_numba_by_name_is_an_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(machine, "compiled", machine.compiled.__wrapped__)
    rows, weight = samples(5, 2)
    assert not Machine().compiled
    assert after(1, Machine(n_bins=8), rows, weight).marginals.points.shape == (2, 9)
    with pytest.raises(ImportError, match=r"foldless\[fast\], or use engine='numpy'"):
        after(1, Machine(engine="numba"), rows, weight)


def test_a_prior_must_be_finite():
    rows, weight = samples(5, 2)
    with pytest.raises(ValueError, match=r"not finite\. Give impossible weights"):
        after(1, Machine(lambda w: np.where(w > 0, 0.0, -np.inf)), rows, weight)


def test_histograms_know_their_moments_and_intervals():
    told = gaussian_histograms(np.array([1.0, -2.0]), np.array([0.5, 3.0]), 400)
    assert_allclose(told.mean, [1.0, -2.0], atol=1e-12)
    assert_allclose(told.std, [0.5, 3.0], rtol=1e-3)
    assert_allclose(told.skew, 0.0, atol=1e-12)
    assert_allclose(told.interval(0.9)[0], 1.0 + 0.5 * np.array([-1.6449, 1.6449]), rtol=2e-3)
    with pytest.raises(ValueError, match="level must be a probability"):
        told.interval(95)
    # An exponential distribution: mean, standard deviation 1, skew 2.
    points = np.linspace(0.0, 20.0, 4001)[np.newaxis]
    falling = Marginals(points, -points)
    assert_allclose(falling.at(1.0).mean, 1.0, rtol=5e-3)
    assert_allclose(falling.at(1.0).std, 1.0, rtol=5e-3)
    assert_allclose(falling.at(1.0).skew, 2.0, rtol=5e-3)
    assert_allclose(falling.at(4.0).mean, 0.25, rtol=2e-2)


def test_at_infinite_beta_the_mean_is_the_maximum_between_bins():
    points = grid(1, 16, 4.0)
    for centre in (-1.3, 0.07, 2.9):
        marginals = Marginals(points, -7.0 * np.square(points - centre))
        assert_allclose(marginals.at(np.inf).mean, centre, atol=1e-12)
    flat = Marginals(points, np.minimum(0.0, 1.0 - np.abs(points)))
    assert_allclose(flat.at(np.inf).mean, 0.0, atol=1e-12)
    assert np.sum(flat.at(np.inf).probability > 0) > 1
