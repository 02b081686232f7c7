"""Class means: values for tuning to start at, and the likelihood that is blended with them.

The blended likelihood: log p(y | x) + ω log p(x), with ω in [0, 1] chosen by the leave-one-out loss.

A discriminative likelihood conditions on the features and throws away what class means show of which
features matter; a generative one trusts them fully. For x | y ~ N(mean_y, v) the log-odds are a linear
score z and  log p(x, y) = y z / 2 - (information) v w² / 2 per weight, while log p(y | x) = log σ(y z), so

    log p(y | x) + ω log p(x)  =  (1 - ω) log σ(y z) + ω y z / 2 - ω information v w² / 2 + const.

The first two terms are the channel `Blended`, the last is the ridge `Ridged` on every penalised weight.
ω = 0 is logistic regression, ω = 1 independence-rule discriminant analysis, both with the same sparse
prior. Where the class means mislead (correlated features), the leave-one-out loss rises and ω falls.

Under label noise (`FlippedLabels`) the true label t of a sample is uncertain, and with it which class mean
the sample is evidence for. With class means  x̄ + (t - t̄) v w / 2  the ridge is  ω v Σ E[(t - t̄)²] / 4,
which `BlendTuner` keeps up to date; it is  ω v information  when all labels are right. Without this a rare
class could be invented from suspected mistakes at no cost.

Of D classes, with a score and weights mean_k / v for each,  log p(x, y) = z_y - Σ_k n_k v w_k²/2 + const
per feature, summed over samples: ω makes the softmax `BlendedMultinomial` and adds a ridge  ω n_k v, with n_k
the expected number of samples whose true class is k.

Always-kept columns (intercept, covariates) are fitted discriminatively at any ω: see `Problem.kept`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.special import entr

from foldless.beliefs import Array
from foldless.channels import (
    Blended,
    BlendedMultinomial,
    Channel,
    FlippedLabels,
    Logistic,
    Multinomial,
    Pinned,
)
from foldless.channels.base import innermost, log_odds_per_score, with_innermost
from foldless.channels.flipped_labels import with_flip_prob
from foldless.evaluation import mean_and_error
from foldless.priors import (
    PRIORS,
    ElasticNet,
    Gaussian,
    GaussianMixture,
    Laplace,
    Observed,
    Prior,
    Ridged,
    RowSparse,
    SpikeAndSlab,
)
from foldless.problem import Outcome, Problem, Solution
from foldless.solvers.base import State
from foldless.tuning.em import EM
from foldless.tuning.plan import CLEAR_STANDARD_ERRORS
from foldless.tuning.table import Table, blocks_of, with_prior

# A starting slab weaker than this share of the noise in all class means cannot be told from none.
LEAST_SIGNAL_SHARE = 0.05
# Slab standard deviations start within a factor of ten of one log-odds per standard deviation of a feature.
SLAB_VARIANCE_RANGE = (1e-2, 1e2)


@dataclass(frozen=True, eq=False)
class ClassMeans:
    """Class means of columns of mean zero and unit variance, as contrasts: one for each score.

    Under x | class ~ N(mean of the class, v) with equal variances, the Bayes weights of a score are
    contrast / v. One score has the contrast  mean₊ - mean₋ , D scores have the class means themselves.
    """

    contrast: Array  # (columns,) or (columns, D)
    within_var: Array  # (columns,): the variance within the classes, v
    class_weight: Array  # (classes,): n_k

    @property
    def label_mean(self) -> float:
        """Of labels -1 and +1."""
        negative, positive = self.class_weight
        return float((positive - negative) / (positive + negative))

    @property
    def noise(self) -> Array:
        """Of each contrast, (scores,), in units of v: 1/n₊ + 1/n₋, or 1/n_k - 1/n about the mean of all."""
        inverse = 1.0 / self.class_weight
        if self.contrast.ndim == 1:
            return inverse.sum(keepdims=True)
        return np.asarray(inverse - 1.0 / self.class_weight.sum())

    def of_columns(self, columns: NDArray[np.intp]) -> ClassMeans:
        return replace(self, contrast=self.contrast[columns], within_var=self.within_var[columns])

    def padded(self, n_columns: int, dtype: DTypeLike = np.float64) -> ClassMeans:
        """For an operator with further columns, such as the intercept; contrasts, for a start, are gone."""
        more = n_columns - self.within_var.size
        within = np.append(self.within_var.astype(dtype), np.ones(more, dtype))
        return replace(self, contrast=np.zeros((0, *self.contrast.shape[1:])), within_var=within)

    def starting_slab_variance(self, n_active: int) -> float:
        """The variance of `n_active` Bayes weights that would separate the class means as they are."""
        noise = float(np.mean(self.noise)) * float(np.sum(self.within_var))
        squares = np.sum(self.contrast**2, axis=0)
        signal = max(float(np.mean(squares)) - noise, LEAST_SIGNAL_SHARE * noise)
        mean_var = float(np.mean(self.within_var)) if self.within_var.size else 1.0
        return float(np.clip(signal / (mean_var**2 * n_active), *SLAB_VARIANCE_RANGE))


def class_means(table: Table) -> ClassMeans:
    """Those of a table, as contrasts."""
    means, weight, total = table.class_means, table.class_weight, float(table.class_weight.sum())
    contrast = means[:, 1] - means[:, 0] if table.n_classes == 2 else means
    return ClassMeans(contrast, np.maximum(table.within_var, 1.0 / total), weight)


def starting_count(n_features: int, n_samples: float, n_classes: int = 2) -> int:
    """The most features K whose weights, S for each, M labels could encode: K S log2(N/K) <= M log2(classes).

    K log2(N / K) has its peak at K = N / e; if M labels reach that, any number of features can matter.
    """
    n_scores = 1 if n_classes == 2 else n_classes
    counts = np.arange(1, n_features + 1)
    bits = counts * n_scores * np.log2(n_features / counts)
    too_many = np.flatnonzero(bits > n_samples * np.log2(n_classes))
    return n_features if too_many.size == 0 else max(int(too_many[0]), 1)


def starting_prior(name: str, means: ClassMeans) -> Prior:
    """The prior of this name, with parameters for tuning to start at, from the class means of free columns.

    All start with the same variance per weight: that of the spike and slab with the information-theoretic
    sparsity. A prior given as an object starts with its own parameters instead.
    """
    n_penalised = max(means.within_var.size, 1)
    count = starting_count(n_penalised, float(means.class_weight.sum()), means.class_weight.size)
    inclusion = min(count / n_penalised, 0.5)
    slab_variance = means.starting_slab_variance(max(round(inclusion * n_penalised), 1))
    variance = inclusion * slab_variance
    prior = PRIORS[name]()
    if isinstance(prior, SpikeAndSlab | RowSparse):
        return replace(prior, slab=Gaussian(slab_variance), inclusion=inclusion)
    if isinstance(prior, Gaussian):
        return Gaussian(variance)
    rate = float(np.sqrt(2 / variance))
    if isinstance(prior, Laplace):
        return Laplace(rate)
    if isinstance(prior, ElasticNet):
        # Half of the shrinkage from either part, at the scale of the weights.
        return ElasticNet(rate=rate / 2, ridge=0.25 / variance)
    if isinstance(prior, GaussianMixture):
        return GaussianMixture(weights=(1 - inclusion, inclusion), variances=(variance / 10, slab_variance))
    return prior


def informed(prior: Prior, means: ClassMeans, n_columns: int, channel: Channel) -> Observed:
    """A prior of the weights of two classes after a look at their class means.

    Contrasts / v are observations of the Bayes weights, in log-odds, with variance noise / v. They come from
    the labels that the likelihood sees as well, so labels count twice: by themselves they would tell too
    little of which weights are not zero. (The code of [Ziniel et al. 2015] has the largest contrasts as slab
    means.)
    """
    scale = log_odds_per_score(channel)
    none = np.zeros(n_columns - means.within_var.size)
    precision = scale**2 / float(means.noise[0]) * means.within_var
    return Observed(
        prior, np.append(precision, none), np.append(means.contrast / means.within_var / scale, none)
    )


def without_own_means(solution: Solution, table: Table) -> Solution:
    """With leave-one-out scores that have not seen their own label in an `informed` prior either.

    Without sample m of weight a, class y of weight n has the mean  mean_y - a (x_m - mean_y) / (n - a), and a
    weight moves by its variance / noise times the change of the contrast, to first order.
    """
    problem, posterior = solution.problem, solution.posterior
    noise = float(np.sum(1.0 / table.class_weight))
    free, n = np.flatnonzero(table.free), table.layout.n_features
    var = np.zeros(problem.operator.shape[1])
    var[free] = posterior.var[free]
    of_class = (problem.labels > 0).astype(int)
    left = np.maximum(table.class_weight[of_class] - problem.sample_weight, 1.0)
    own = problem.operator.score_variances(var)
    centres = np.zeros((2, var.size))
    centres[:, :n] = table.class_means.T * var[:n]
    for k, centre in enumerate(centres):
        own -= np.where(of_class == k, problem.operator.scores(centre), 0.0)
    scale = log_odds_per_score(problem.channel)
    moved = problem.labels * problem.sample_weight / left * own * (scale / noise)
    return replace(solution, posterior=replace(posterior, loo_mean=posterior.loo_mean - moved))


# ---------------------------------------------------------------------- the blended likelihood

GRID = (1.0, 0.75, 0.5, 0.25, 0.0)
# The search down the grid ends when the loss has been above its minimum this many times in a row, or once
# clearly.
WORSE_IN_A_ROW = 2
# A leave-one-out loss below this share of that of class frequencies alone needs no second opinion.
GOOD_SHARE_OF_IGNORANCE = 0.5
# Nor does a discriminative fit whose labels hold this many times the information that names its features:
# message passing needs some times the labels that any method would need.
AMPLE = 4.0


def can_blend(channel: Channel) -> bool:
    """Whether a channel has a generative counterpart: logistic ones do, also under label noise."""
    inner = innermost(channel)
    if isinstance(inner, Multinomial):
        return inner.estimator == "gumbel"
    return isinstance(inner, Logistic) and inner.integral == "exponential-sums"


def blended(problem: Problem, weight: float, means: ClassMeans) -> Problem:
    """An assembled problem with generative weight ω."""
    if weight == 0:
        return problem
    base = blocks_of(problem).base
    logistic = innermost(problem.channel)
    if isinstance(logistic, Multinomial):
        channel = with_innermost(problem.channel, BlendedMultinomial(logistic, weight))
        problem = with_prior(problem, Ridged(base, 0.0)).but(channel=channel)
        return _with_class_ridge(problem, means, means.class_weight)
    if not isinstance(logistic, Logistic):
        raise ValueError(
            f"A generative weight above 0 needs a logistic channel, alone or in FlippedLabels; got "
            f"{logistic!r}. Use channel='logistic', or generative_weight=0."
        )
    channel = with_innermost(problem.channel, Blended(logistic, weight, means.label_mean))
    problem = with_prior(problem, Ridged(base, 0.0)).but(channel=channel)
    return _with_ridge(problem, means, _noise_of(channel))


def unblended(problem: Problem) -> Problem:
    """The problem a blend was made from, with whatever was tuned since."""
    base = blocks_of(problem).base
    if isinstance(base, Ridged):
        problem = with_prior(problem, base.base)
    blend = innermost(problem.channel)
    if isinstance(blend, Blended | BlendedMultinomial):
        problem = problem.but(channel=with_innermost(problem.channel, blend.base))
    return problem


@dataclass(frozen=True)
class Candidate:
    """One generative weight tried, and its leave-one-out loss."""

    weight: float
    loo_log_loss: float
    outcome: Outcome


def descend(
    solve_at: Callable[[float, Solution | None, bool], Solution],
    ignorance: float,
    grid: tuple[float, ...] = GRID,
) -> tuple[float, Solution, list[Candidate]]:
    """Follow ω down the grid, each fit from the one before, until the leave-one-out loss has turned up.

    `solve_at(ω, previous, glance)` fits at ω; at a glance, for a few iterations only: a weight that is
    clearly worse than the best by then is not pursued. The way down starts at the generative end, because
    there the class means give the support in a few sweeps and lower weights start from it; the
    discriminative end alone is slow to find it and may not. Where all this predicts left-out labels badly
    beside `ignorance`, the loss of class frequencies alone, the class means have probably misled, and a
    discriminative fit from scratch is compared as well.
    """
    tried: list[Candidate] = []
    best: Solution | None = None
    previous: Solution | None = None
    behind = 0  # how many weights have been tried since the best one

    def attempt(weight: float, start: Solution | None) -> Solution:
        nonlocal best, behind
        # From scratch a fit needs more than a glance.
        glance = best is not None and start is not None
        solution = solve_at(weight, start, glance)
        if glance and solution.outcome is Outcome.BUDGET and not _clearly_worse(solution, best):
            solution = solve_at(weight, solution, False)
        tried.append(Candidate(weight, solution.loo_log_loss(), solution.outcome))
        behind = len(tried) - 1 - _best_of(tried)
        best = solution if behind == 0 or best is None else best
        return solution

    for weight in grid:
        solution = attempt(weight, previous)
        assert best is not None
        if solution.outcome is Outcome.INTERRUPTED:
            return weight, solution, tried
        if behind >= WORSE_IN_A_ROW or (behind and _clearly_worse(solution, best)):
            break
        # A diverged fit is no place to start from.
        previous = previous if solution.outcome is Outcome.DIVERGED else solution
    chosen = tried[_best_of(tried)]
    assert best is not None
    doubtful = chosen.loo_log_loss > GOOD_SHARE_OF_IGNORANCE * ignorance
    if doubtful and not (chosen.weight == 0 and _support_is_told(best, ignorance - chosen.loo_log_loss)):
        attempt(0.0, None)
    assert best is not None
    return tried[_best_of(tried)].weight, best, tried


def _support_is_told(solution: Solution, gain: float) -> bool:
    """Whether left-out labels hold far more information than which features matter.

    `gain` is the loss that features save for each label, in nats. To name a share π of N features takes
    N (entr π + entr(1 - π)) of them. Where labels hold several times as much there is one support that fits
    them, and a fit without class means finds it from wherever it starts.
    """
    inclusion = getattr(blocks_of(solution.problem).base, "inclusion", None)
    if inclusion is None:  # no features are named, and nothing is known of other places to end at
        return False
    naming = solution.problem.operator.shape[1] * float(entr(inclusion) + entr(1.0 - inclusion))
    return solution.problem.n_samples * gain > AMPLE * naming


def _best_of(tried: list[Candidate]) -> int:
    return int(np.argmin([candidate.loo_log_loss for candidate in tried]))


def _clearly_worse(solution: Solution, best: Solution | None) -> bool:
    """Whether the mean leave-one-out loss is above the best by more than its own uncertainty over samples."""
    if best is None:
        return False
    difference = best.loo_log_densities() - solution.loo_log_densities()
    mean, error = mean_and_error(difference, best.problem.label_weight)
    return mean > CLEAR_STANDARD_ERRORS * error


@dataclass(frozen=True, eq=False)
class BlendTuner:
    """EM, and after it the ridge and label mean of a blend as suspected label flips make them."""

    em: EM
    means: ClassMeans

    def update(self, problem: Problem, state: State, iteration: int) -> Problem:
        channel = _without_pins(problem.channel)
        if not (
            isinstance(channel, FlippedLabels) and isinstance(channel.base, Blended | BlendedMultinomial)
        ):
            return self.em.update(problem, state, iteration)
        if isinstance(channel.base, BlendedMultinomial):
            true = channel.true_class(state.score_cavity_mean, state.score_cavity_var, problem.labels)
            own = problem.labels.astype(np.intp)[:, np.newaxis] - 1
            flipped = 1.0 - np.take_along_axis(true, own, axis=1)[:, 0]
            problem = self.em.update(problem, state, iteration, flipped)
            return _with_class_ridge(problem, self.means, problem.label_weight @ true)
        if channel.flip_prob == 0:  # none is suspected, whatever the scores
            return _with_ridge(self.em.update(problem, state, iteration), self.means, 0.0)
        # Of a blend these are two integrals, so they are made once for both.
        flipped = channel.mislabel_probability(
            state.score_cavity_mean, state.score_cavity_var, problem.labels
        )
        problem = self.em.update(problem, state, iteration, flipped)
        flipped = with_flip_prob(flipped, channel.flip_prob, _noise_of(problem.channel))
        return _with_ridge(problem, self.means, flipped)

    def settled(self, iteration: int) -> bool:
        return self.em.settled(iteration)

    def tuned(self, problem: Problem) -> dict[str, Any]:
        return self.em.tuned(problem)


def _with_ridge(problem: Problem, means: ClassMeans, flipped: Array | float) -> Problem:
    """A blended problem with the ridge and the label mean that go with probabilities of flipped labels."""
    labels, weight = problem.labels, problem.label_weight
    label_mean = float(np.clip(weight @ (labels * (1 - 2 * flipped)) / weight.sum(), -1.0, 1.0))
    spread = (1 - flipped) * (labels - label_mean) ** 2 + flipped * (labels + label_mean) ** 2
    information = float(weight @ spread) / 4
    blend = innermost(problem.channel)
    assert isinstance(blend, Blended)
    channel = with_innermost(problem.channel, replace(blend, label_mean=label_mean))
    ridge = blend.generative_weight * information * blend.base.scale**2 * means.within_var
    ridged = blocks_of(problem).base
    assert isinstance(ridged, Ridged)
    return with_prior(problem, replace(ridged, precision=ridge)).but(channel=channel)


def _with_class_ridge(problem: Problem, means: ClassMeans, class_weight: Array) -> Problem:
    """A blended problem of several classes with the ridge that goes with the weights of their samples."""
    blend, ridged = innermost(problem.channel), blocks_of(problem).base
    assert isinstance(blend, BlendedMultinomial)
    assert isinstance(ridged, Ridged)
    ridge = blend.generative_weight * np.multiply.outer(means.within_var, class_weight)
    return with_prior(problem, replace(ridged, precision=ridge))


def _without_pins(channel: Channel) -> Channel:
    return channel.base if isinstance(channel, Pinned) else channel


def _noise_of(channel: Channel) -> float:
    """The flip probability before any sample is looked at."""
    inner = _without_pins(channel)
    return inner.flip_prob if isinstance(inner, FlippedLabels) else 0.0
