"""The L1 rate of max-sum by SURE: against the risk that it estimates, and against the best fixed rate."""

import numpy as np
import pytest
from scipy.special import ndtr

from foldless import GAMPClassifier
from foldless.datasets import make_class_means
from foldless.priors import Laplace
from foldless.priors.laplace import sure_threshold

DENSITIES = np.geomspace(0.01, 0.5, 50)


def risk(w, t):
    """The expected squared error of the soft threshold at t, of r ~ N(w, 1)."""
    low, high = -t - w, t - w

    def density(x):
        return np.exp(-0.5 * x * x) / np.sqrt(2 * np.pi)

    beyond = (1 + t * t) * (ndtr(-high) + ndtr(low))
    edges = (high - 2 * t) * density(high) - (low + 2 * t) * density(low)
    return float(np.sum(w * w * (ndtr(high) - ndtr(low)) + beyond + edges))


def active_weights(rng, i, how_many):
    """Of three distributions and five sizes: the weakest are hardly above the noise."""
    size = (1.5, 2, 3, 4, 6)[i % 5]
    return (
        rng.normal(0, size, how_many),
        size * rng.choice([-1, 1], how_many),
        rng.laplace(0, size, how_many),
    )[i % 3]


def signal(i, n=5000):
    """Few to many weights that are not zero, and what is seen of all."""
    rng, active = np.random.default_rng(i), round(DENSITIES[i] * n)
    w = np.zeros(n)
    w[:active] = active_weights(rng, i, active)
    return w, w + rng.standard_normal(n)


@pytest.mark.parametrize("n", [2000, 5000])
def test_the_risk_is_within_5_percent_of_its_minimum(n):
    """Measured on these 50 signals: at most 3.8 and 4.7 % above, .4 and .3 % on average."""
    excess = []
    for i in range(len(DENSITIES)):
        w, r = signal(i, n)
        least = min(risk(w, t) for t in np.linspace(0, 5, 101))
        excess.append(risk(w, sure_threshold(r, 1.0)) / least - 1)
    assert max(excess) < 0.05
    assert np.mean(excess) < 0.01


@pytest.mark.parametrize(("n", "most_beyond"), [(300, 5), (500, 4), (1000, 2)])
def test_of_few_weights_few_signals_are_further_off(n, most_beyond):
    """Measured: 5, 4 and 1 of 50 beyond 5 %; with 1000 weights .9 % on average, and 9 beyond of 300 others.

    Chance, then: the number of components and of steps does not matter, and the average over all mixtures by
    their posterior, which is better on average, is beyond on 1, 3 and 3. The minimum of SURE at single r is
    off in 10 of the 50 of 1000 weights.
    """
    excess = []
    for i in range(len(DENSITIES)):
        w, r = signal(i, n)
        least = min(risk(w, t) for t in np.linspace(0, 5, 101))
        excess.append(risk(w, sure_threshold(r, 1.0)) / least - 1)
    assert np.count_nonzero(np.array(excess) > 0.05) <= most_beyond
    assert np.median(excess) < 0.015


def test_of_few_weights_no_rule_finds_the_best_threshold_every_time():
    """With 5 % at every number of weights as the bar, one would have to see more than r.

    Told the distribution of the weights, so with nothing left to estimate, the best threshold is more than
    5 % above the least risk of the weights that were drawn on 3 of 50 signals of 300 weights, and on none of
    5000 weights.
    """
    thresholds, beyond = np.linspace(0, 5, 51), {}
    for n in (300, 5000):
        excess = []
        for i in range(len(DENSITIES)):
            w, _ = signal(i, n)
            active = np.count_nonzero(w)
            many = active_weights(np.random.default_rng(1), i, 2000)
            expected = [
                active * risk(many, t) / 2000 + (n - active) * risk(np.zeros(1), t) for t in thresholds
            ]
            own = np.array([risk(w[:active], t) + (n - active) * risk(np.zeros(1), t) for t in thresholds])
            excess.append(own[np.argmin(expected)] / own.min() - 1)
        beyond[n] = np.count_nonzero(np.array(excess) > 0.05)
    assert beyond[300] >= 1
    assert beyond[5000] == 0


def test_threshold_has_the_units_of_what_is_seen():
    _, r = signal(20)
    assert sure_threshold(7 * r, 49.0) == pytest.approx(7 * sure_threshold(r, 1.0), rel=1e-6)
    noise = np.random.default_rng(0).standard_normal(4000)
    universal = np.sqrt(2 * np.log(4000))
    assert sure_threshold(noise, 1.0) == pytest.approx(universal, rel=0.1)
    assert sure_threshold(np.zeros(1), 1.0) <= universal


@pytest.mark.parametrize("tuning", ["em", "sure"])
@pytest.mark.parametrize(("n_active", "seed"), [(5, 5000), (30, 30_000)])
def test_max_sum_errs_as_with_the_best_fixed_rate(tuning, n_active, seed):
    """Measured at K = 5, 10, 20, 30, three data sets each: at most .008 above; by plain EM .10 at K = 30."""
    data = make_class_means(300, 5000, n_active, random_state=seed)

    def fit(**choices):
        model = GAMPClassifier(rule="max-sum", generative_weight=0.0, **choices).fit(data.X, data.y)
        return model, data.test_error(model.coef_, model.intercept_[0])

    best = min(fit(prior=Laplace(rate), tune=False)[1] for rate in (6.0, 9.0, 13.0, 18.0))
    model, error = fit(prior="laplace", tuning=tuning)
    assert model.outcome_.trustworthy
    assert error < best + 0.01


def test_what_hardly_counts_hardly_moves_the_threshold():
    _, r = signal(20)
    rare = np.random.default_rng(0).standard_normal(20_000)
    both = np.concatenate([r, rare])
    weight = np.concatenate([np.ones(r.size), np.full(rare.size, 1e-4)])
    alone = sure_threshold(r, 1.0)
    assert sure_threshold(both, 1.0, weight=weight) == pytest.approx(alone, rel=0.02)
    assert sure_threshold(both, 1.0) > 1.2 * alone


def test_the_rate_does_not_depend_on_a_start_from_below():
    """From a small rate labels are interpolated, slopes vanish, and SURE used to keep every column."""
    data = make_class_means(40, 1000, 10, random_state=0)
    by_name, *given = (
        GAMPClassifier(prior, rule="max-sum", tuning="sure", generative_weight=0).fit(data.X, data.y)
        for prior in ("laplace", Laplace(0.01), Laplace(1.0))
    )
    assert 0 < np.count_nonzero(by_name.coef_) < 40
    for model in given:
        np.testing.assert_array_equal(model.coef_, by_name.coef_)
