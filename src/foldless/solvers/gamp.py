"""GAMP: generalised approximate message passing, one sweep over the data per iteration.

One iteration, for weights w with prior f and scores z = X w with channel p(y | z) [Rangan 2011;
Ziniel, Schniter, Sederberg 2015, algorithm 1], S = X∘X, products element-wise:

    τp = S τw                       variance of the scores' cavities
    p  = X w - τp s                 their mean: the last term takes sample m's own label out again
    s, τs = slope and curvature of the channel's log normaliser at (p, τp)
    τr = 1 / (Sᵀ τs),  r = w + τr Xᵀ s
    w, τw = moments of the prior at (r, τr)

Sum-product and max-sum differ only in what the prior and the channel are asked for (`beliefs`).
s, τs and the w inside r are damped [Rangan, Schniter, Fletcher 2014]; p and τp are not.

A channel of D classes has D scores for each sample: weights are then (features, D), everything of samples is
(samples, D), and the same lines are SHyGAMP [Byrne, Schniter 2016], where each score has its own variance and
only the channel, and a prior that wants to, look at several scores together.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self, cast

import numpy as np
from numpy.typing import NDArray

from foldless import kernels
from foldless.beliefs import Array, Posterior, Response, Tilted
from foldless.channels import Hinge
from foldless.channels.base import SupportsMaxSum as ChannelSupportsMaxSum
from foldless.channels.base import innermost
from foldless.priors.base import SupportsMaxSum as PriorSupportsMaxSum
from foldless.problem import Problem
from foldless.registry import registered
from foldless.solvers.frozen import Frozen
from foldless.solvers.message_passing import (
    VAGUEST_START,
    AdaptiveDamping,
    Damping,
    MessagePassing,
    Pace,
    PacedState,
    S,
    along_scores,
    dot,
    for_scores,
    over_scores,
)

Rule = Literal["sum-product", "max-sum"]
Variances = Literal["rank-one", "uniform", "per-coordinate"]
RULES: tuple[Rule, ...] = ("sum-product", "max-sum")
VARIANCES: tuple[Variances, ...] = ("rank-one", "uniform", "per-coordinate")

# Labels may say nothing about the scores (curvature 0: a fully generative likelihood, a hinge beyond
# its margin). The weights' cavities are then infinitely wide; this keeps them finite, in log-odds units
# where a curvature is at most 1/4 and so far below anything that matters.
MIN_CURVATURE = 1e-12
# Variances below this are zero for every purpose and would only divide badly.
MIN_VARIANCE = 1e-30
# Where max-sum ends early it may fit labels worse than no weights at all, but not by more than this share.
WORSE = 1e-2
# Where variances are found at means that stay: passes, and the share by which the last may move them.
VARIANCE_PASSES, VARIANCE_SETTLED = 100, 1e-3
# Weights whose evidence is summed at a time, so that no temporary is of the features' length.
PIECE = 8192
# What a state has of every weight, and what of it is in proportion to a weight; what it has of every sample.
SCALED = ("weights", "damped_weights", "weight_var")
OF_WEIGHTS = (*SCALED, "cavity_mean", "cavity_var")
OF_SAMPLES = ("slopes", "curvatures", "score_cavity_mean", "score_cavity_var")


@dataclass(frozen=True, eq=False)
class SquaredNorms:
    """Row and column sums of X∘X, the stand-in for the matrix itself when variances are shared.

    The rank-one matrix row_m column_n / total has the row and column sums of X∘X. Samples count with
    their weight in `column` and `total`.
    """

    row: Array
    column: Array
    total: float

    def score_var(self, weight_var: Array) -> Array:
        """(X∘X) weight_var, approximately."""
        return along_scores(self.row, weight_var) * (dot(self.column, weight_var) / self.total)

    def weight_precision(self, weighted_curvature: Array) -> Array:
        """(X∘X)ᵀ curvatures, approximately; curvatures come multiplied by the sample weights."""
        return along_scores(self.column, weighted_curvature) * (
            dot(self.row, weighted_curvature) / self.total
        )


@dataclass(frozen=True, eq=False)
class LabelEvidence:
    """Log normalisers of labels at the cavities of scores, and their slopes and curvatures, damped."""

    slopes: Array
    curvatures: Array
    log_z: Array

    @classmethod
    def empty(cls, like: Array) -> LabelEvidence:
        return cls(np.empty_like(like), np.empty_like(like), np.empty(like.shape[0]))

    def put(self, rows: slice, response: Response, before: LabelEvidence | None, step: float) -> None:
        """Some rows: a step from what was before to this response."""
        self.log_z[rows], slope, curvature = response
        if before is not None:
            slope = before.slopes[rows] + step * (slope - before.slopes[rows])
            curvature = before.curvatures[rows] + step * (curvature - before.curvatures[rows])
        self.slopes[rows], self.curvatures[rows] = slope, curvature

    def replace_kept(self, slopes: Array, precision: Array, problem: Problem) -> None:
        """Put this in the place of what all weights were told, for the kept columns."""
        assert problem.kept is not None
        positions, weight = problem.kept.positions, along_scores(problem.sample_weight, self.slopes)
        slopes[positions] = problem.kept.values.T @ (weight * self.slopes)
        precision[positions] = problem.kept.squares.T @ (weight * self.curvatures)


@dataclass(frozen=True, eq=False)
class GAMPState(PacedState):
    """Everything the next iteration needs."""

    weights: Array
    weight_var: Array
    damped_weights: Array
    slopes: Array
    curvatures: Array
    cavity_mean: Array
    cavity_var: Array
    score_cavity_mean: Array
    score_cavity_var: Array
    # For the columns that are always kept when the channel is tempered for the others. A tempered channel
    # describes penalised features. Its pull on an intercept is too weak, by an amount that depends on
    # the samples, or there is none at all; that of the untempered channel is right.
    kept: LabelEvidence | None
    norms: SquaredNorms
    # The weights' share of the log evidence, those included that a problem leaves out.
    weight_evidence: float
    frozen: Frozen | None = field(default=None, kw_only=True)  # variances stay; see `frozen`

    @property
    def held(self) -> bool:
        return self.frozen is not None

    def of_columns(self, columns: NDArray[np.intp]) -> Self:
        """The state of some of the weights; how the last move compares with others is forgotten."""
        own: dict[str, Any] = {name: getattr(self, name)[columns] for name in OF_WEIGHTS}
        own["norms"] = replace(self.norms, column=self.norms.column[columns])
        own["pace"] = replace(self.pace, move=self.pace.move[columns], square=0.0)
        return replace(self, **own)

    def with_part(self, columns: NDArray[np.intp], part: GAMPState, scale: float) -> Self:
        """All weights, some of them and all of the samples as another state has them, the others scaled."""
        whole: dict[str, Any] = {name: getattr(part, name) for name in OF_SAMPLES}
        for name in OF_WEIGHTS:
            values = getattr(self, name).copy()
            if name in SCALED:
                values *= scale
            values[columns] = getattr(part, name)
            whole[name] = values
        whole["pace"] = replace(part.pace, move=self.pace.move, square=0.0)
        return replace(self, **whole, kept=part.kept, iteration=part.iteration)


@dataclass(frozen=True)
class Sweeping(MessagePassing[S]):
    """What GAMP and HyGAMP share: their rules, and what stands for X∘X."""

    rule: Rule = "sum-product"
    variances: Variances = "rank-one"
    damping: Damping = field(default_factory=AdaptiveDamping)

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise ValueError(f"rule must be one of {RULES}; got {self.rule!r}.")
        if self.variances not in VARIANCES:
            raise ValueError(f"variances must be one of {VARIANCES}; got {self.variances!r}.")

    @property
    def _exact(self) -> bool:
        return self.variances == "per-coordinate"

    def squared_norms(self, problem: Problem) -> SquaredNorms:
        """Row and column sums of X∘X, as `variances` has them."""
        row, column = problem.operator.squared_norms(problem.sample_weight)
        total = float(column.sum())
        if total <= 0:  # every column is constant: with any positive total nothing is learnt
            total = 1.0
        if self.variances == "uniform":
            row = np.full_like(row, total / problem.n_samples)
            column = np.full_like(column, total / column.size)
        return SquaredNorms(row, column, total)

    def _start(self, problem: Problem, norms: SquaredNorms) -> tuple[Array, Array]:
        """Mean and variance of weights under the prior, narrowed until scores are not too vague."""
        mean, var = problem.prior.start(problem.operator.shape[1])
        weight = problem.sample_weight
        vagueness = dot(weight, norms.score_var(var)) / float(weight.sum())
        return mean, var * min(1.0, VAGUEST_START / max(vagueness, MIN_VARIANCE))

    def _check_support(self, problem: Problem, of_prior: str, of_channel: str, instead: str) -> None:
        """That prior and channel have the methods of these names."""
        for part, method in (("prior", of_prior), ("channel", of_channel)):
            if not hasattr(component := getattr(problem, part), method):
                raise ValueError(
                    f"{type(self).__name__}(rule={self.rule!r}) needs a {part} with `{method}`; "
                    f"{_innermost(component)} has none. {instead}"
                )

    def for_new_data(self, problem: Problem, state: S) -> S:
        return replace(self.as_start(state), norms=self.squared_norms(problem))  # type: ignore[call-arg]

    def plausible(self, problem: Problem, state: S) -> bool:
        if self.max_sum:
            return fits_no_worse_than_zero(problem, state.weights)  # type: ignore[attr-defined]
        return super().plausible(problem, state)


@registered("solver/gamp")
@dataclass(frozen=True)
class GAMP(Sweeping[GAMPState]):
    """Message passing with diagonal covariances; exact in the limit for matrices with independent entries.

    variances
        'per-coordinate' forms (X∘X) τ exactly, at about twice the cost of a sweep. 'rank-one' replaces X∘X by
        the rank-one matrix with the same row and column sums. 'uniform' gives all samples one variance
        and all weights another.
    """

    def init(self, problem: Problem) -> GAMPState:
        if self.max_sum:
            instead = "Use rule='sum-product', or a prior such as Laplace and a channel such as Logistic."
            self._check_support(problem, "proximal", "proximal", instead)
        n_samples, shape = problem.operator.shape[0], problem.channel.score_shape
        norms = self.squared_norms(problem)
        # Of the features' length there are a dozen vectors, so they have X's own precision. Those of samples
        # are few, and sums are made in double precision.
        weights, weight_var = (
            for_scores(part.astype(problem.operator.dtype, copy=False), shape)
            for part in self._start(problem, norms)
        )
        nothing = np.zeros((n_samples, *shape))
        return GAMPState(
            weights=weights,
            weight_var=weight_var,
            damped_weights=weights,
            slopes=nothing,
            curvatures=nothing,
            cavity_mean=weights,
            cavity_var=weight_var,
            score_cavity_mean=nothing,
            score_cavity_var=norms.score_var(weight_var),
            kept=None,
            norms=norms,
            iteration=0,
            pace=Pace.first(self.damping, weights.shape),
            log_evidence=-np.inf,
            weight_evidence=0.0,
        )

    def step(self, problem: Problem, state: GAMPState) -> GAMPState:
        if state.frozen is not None:
            return _frozen_step(problem, state, state.frozen)
        step = state.next_step
        samples = _SampleSide(self, problem, state, step)
        # Rows come block by block; whether compiled loops are worth it depends on all of them.
        with kernels.part_of(state.slopes.size):
            sweep = problem.operator.sweep(
                state.weights, state.weight_var if self._exact else None, samples.row_step
            )

        precision, slopes, said, kept = sweep.curvatures, sweep.slopes, samples.said, samples.kept
        if precision is None:
            weight = along_scores(problem.sample_weight, said.curvatures)
            precision = state.norms.weight_precision(weight * said.curvatures)
        if kept is not None:
            kept.replace_kept(slopes, precision, problem)
        least = MIN_CURVATURE * np.maximum(state.norms.column, 1.0)
        np.maximum(precision, along_scores(least, precision), out=precision)
        damped_weights = state.weights
        if step < 1.0:
            damped_weights = state.damped_weights + step * (state.weights - state.damped_weights)
        slopes /= precision
        slopes += damped_weights
        np.reciprocal(precision, out=precision)
        dtype = state.weights.dtype
        cavity_mean, cavity_var = slopes.astype(dtype, copy=False), precision.astype(dtype, copy=False)
        del sweep, slopes, precision  # of double length, in the way of what follows
        tilted = _centred(self._tilt(problem, cavity_mean, cavity_var), problem)

        # Root mean squares of scores, as though columns were independent.
        pace = state.pace.after(
            self.damping, state.weights, tilted.mean, step, state.norms.column, problem.n_samples
        )
        evidence = weight_evidence(tilted, cavity_mean, cavity_var)
        if problem.screened_out is not None:
            evidence += problem.screened_out.log_evidence
        return GAMPState(
            weights=tilted.mean,
            weight_var=np.maximum(tilted.var, MIN_VARIANCE, out=tilted.var),
            damped_weights=damped_weights,
            slopes=said.slopes,
            curvatures=said.curvatures,
            cavity_mean=cavity_mean,
            cavity_var=cavity_var,
            score_cavity_mean=samples.cavity_mean,
            score_cavity_var=samples.cavity_var,
            kept=kept,
            norms=state.norms,
            iteration=state.iteration + 1,
            pace=pace,
            log_evidence=samples.log_evidence + evidence,
            weight_evidence=evidence,
            # Max-sum has maxima in their place.
            label_log_z=None if self.max_sum else said.log_z,
        )

    def otherwise(self, problem: Problem, state: GAMPState) -> GAMPState | None:
        if not self.max_sum or _is_tempered(problem):
            return None
        if state.frozen is not None:  # which converges, though not with every step
            return state
        sane = self.plausible(problem, state)
        start = state.weights, state.slopes
        return replace(state, frozen=Frozen.begun(problem, *(start if sane else map(np.zeros_like, start))))

    def _at_pace(self, state: GAMPState, pace: Pace) -> GAMPState:
        return replace(state, pace=pace, frozen=None)

    def for_new_rows(self, problem: Problem, state: GAMPState) -> GAMPState:
        """Beliefs about weights are kept; new labels have not spoken yet."""
        return replace(
            self.init(problem),
            weights=state.weights,
            weight_var=state.weight_var,
            damped_weights=state.weights,
        )

    def posterior(self, problem: Problem, state: GAMPState) -> Posterior:
        if state.frozen is not None and not isinstance(innermost(problem.channel), Hinge):
            state = _with_own_variances(self, problem, state)
        # The cavity is the score less τp s for one row; leave-one-out takes out all rows a sample counts for.
        rows_kept = along_scores(1.0 - problem.sample_weight, state.slopes)
        return Posterior(
            mean=state.weights,
            var=state.weight_var,
            cavity_mean=state.cavity_mean,
            cavity_var=state.cavity_var,
            loo_mean=state.score_cavity_mean + rows_kept * state.score_cavity_var * state.slopes,
            loo_var=state.score_cavity_var,
            log_evidence=state.log_evidence,
            loo_log_density=_loo_log_density(problem, state),
        )

    def _tilt(self, problem: Problem, cavity_mean: Array, cavity_var: Array) -> Tilted:
        # A prior that constrains all weights together (`Pruned`) meets its constraints here, every time.
        prior = problem.prior.constrained(cavity_mean, cavity_var)
        if self.max_sum:
            return cast(PriorSupportsMaxSum, prior).proximal(cavity_mean, cavity_var)  # `init` has checked
        return prior.tilted(cavity_mean, cavity_var)


def _frozen_step(problem: Problem, state: GAMPState, frozen: Frozen) -> GAMPState:
    """Weights and slopes move on; variances are those that GAMP left, for cavities and what reads them."""
    frozen, weights, slopes, scores, off = frozen.step(problem)
    weight = along_scores(problem.sample_weight, slopes)
    slopes = np.divide(slopes, weight, out=np.zeros_like(slopes), where=weight > 0)
    dtype = state.weights.dtype
    pull = problem.operator.adjoint(weight * slopes)
    return replace(
        state,
        weights=weights.astype(dtype, copy=False),
        damped_weights=weights.astype(dtype, copy=False),
        slopes=slopes,
        cavity_mean=(weights + state.cavity_var * pull).astype(dtype, copy=False),
        score_cavity_mean=scores - state.score_cavity_var * slopes,
        iteration=state.iteration + 1,
        pace=replace(state.pace, change=off, step=1.0),
        frozen=frozen,
    )


def _with_own_variances(solver: GAMP, problem: Problem, state: GAMPState) -> GAMPState:
    """A maximum that was found without variances, with its own: those of GAMP at means that stay.

    What GAMP has left is of where it ran away: probabilities would average over that, and cavities without a
    sample's own label would be anywhere. They begin at none, so the answer does not depend on the way. Of
    labels with kinks any are as good as others, and no iteration finds them.
    """
    channel, weight = cast(ChannelSupportsMaxSum, problem.channel), problem.sample_weight
    reached, exact = problem.operator.scores(state.weights), solver._exact
    weighted = along_scores(weight, state.slopes)
    pull = problem.operator.adjoint(weighted * state.slopes)
    least = along_scores(MIN_CURVATURE * np.maximum(state.norms.column, 1.0), pull)
    weight_var, spread = np.zeros_like(state.weights), np.zeros_like(state.slopes)

    def told(rows: slice, scores: Array, score_var: Array | None) -> tuple[Array, Array]:
        if score_var is not None:
            spread[rows] = np.maximum(score_var, MIN_VARIANCE)
        at = scores - spread[rows] * state.slopes[rows]
        curvature = channel.proximal(at, spread[rows], problem.labels[rows]).curvature
        return state.slopes[rows], weighted[rows] * np.maximum(curvature, 0.0)

    for _ in range(VARIANCE_PASSES):
        before = spread.copy()
        if exact:
            precision = problem.operator.sweep(state.weights, weight_var, told).curvatures
            assert precision is not None
        else:
            spread = np.maximum(state.norms.score_var(weight_var), MIN_VARIANCE)
            precision = state.norms.weight_precision(told(slice(None), reached, None)[1])
        cavity_var = (1.0 / np.maximum(precision, least)).astype(state.weights.dtype, copy=False)
        cavity_mean = (state.weights + cavity_var * pull).astype(state.weights.dtype, copy=False)
        weight_var = np.maximum(solver._tilt(problem, cavity_mean, cavity_var).var, MIN_VARIANCE)
        if np.max(np.abs(spread - before)) <= VARIANCE_SETTLED * np.max(spread):
            break
    return replace(
        state,
        weight_var=weight_var,
        cavity_mean=cavity_mean,
        cavity_var=cavity_var,
        score_cavity_mean=reached - spread * state.slopes,
        score_cavity_var=spread,
    )


class _SampleSide:
    """The samples' half of an iteration, done block by block in mid-sweep."""

    def __init__(self, solver: GAMP, problem: Problem, state: GAMPState, step: float) -> None:
        self.solver, self.problem, self.state, self.step = solver, problem, state, step
        exact, like = solver._exact, state.slopes
        cavity_var = np.empty_like(like) if exact else state.norms.score_var(state.weight_var)
        self.cavity_mean, self.cavity_var = np.empty_like(like), np.maximum(cavity_var, MIN_VARIANCE)
        self.before = LabelEvidence(state.slopes, state.curvatures, np.empty(0))
        self.said = LabelEvidence.empty(like)
        tempered = problem.kept is not None and _is_tempered(problem)
        self.kept = LabelEvidence.empty(like) if tempered else None
        self.log_evidence = 0.0

    def row_step(self, rows: slice, scores: Array, score_var: Array | None) -> tuple[Array, Array | None]:
        if score_var is not None:
            self.cavity_var[rows] = np.maximum(score_var, MIN_VARIANCE)
        cavity_var, old_slope = self.cavity_var[rows], self.before.slopes[rows]
        cavity_mean = scores - cavity_var * old_slope
        if (screened_out := self.problem.screened_out) is not None:
            cavity_mean += screened_out.cavity_mean[rows]
            cavity_var += screened_out.cavity_var[rows]
        self.cavity_mean[rows] = cavity_mean
        response = self._response(rows, cavity_mean, cavity_var)
        self.said.put(rows, response, self.before, self.step)
        joint = 0.5 * (cavity_var * old_slope) * old_slope
        sample_weight = self.problem.sample_weight[rows]
        self.log_evidence += float(sample_weight @ (response.log_z + over_scores(joint)))
        slope, curvature = self.said.slopes[rows], self.said.curvatures[rows]
        weight = along_scores(sample_weight, slope)
        # A label that contradicts a non-log-concave channel has negative curvature. It may lower the
        # average over samples, but alone it would make the precision of a weight negative.
        return weight * slope, (weight * np.maximum(curvature, 0.0) if self.solver._exact else None)

    def _response(self, rows: slice, cavity_mean: Array, cavity_var: Array) -> Response:
        """The channel's; the untempered one is heard for the columns that are kept."""
        channel, at = self.problem.channel, (cavity_mean, cavity_var, self.problem.labels[rows])
        if self.solver.max_sum:
            response = cast(ChannelSupportsMaxSum, channel).proximal(*at)  # `init` has checked
            plain = None if self.kept is None else channel.untempered().respond(*at)
        elif self.kept is None:
            return channel.respond(*at)
        else:
            response, plain = channel.respond_both(*at)
        if self.kept is not None and plain is not None:
            self.kept.put(rows, plain, self.state.kept, self.step)
        return response


def fits_no_worse_than_zero(problem: Problem, weights: Array) -> bool:
    """A maximum under a prior with its mode at zero: labels are at least as probable as under no weights."""
    if np.any(problem.prior.start(problem.operator.shape[1])[0] != 0.0):
        return True
    scores = problem.operator.scores(weights)
    at_weights, at_zero = (
        problem.sample_weight @ problem.channel.log_likelihood(z, problem.labels)
        for z in (scores, np.zeros_like(scores))
    )
    return bool(at_weights >= at_zero - WORSE * abs(at_zero))


def _innermost(component: object) -> str:
    """The name of what wrappers wrap: what a user chose."""
    while (base := getattr(component, "base", None)) is not None:
        component = base
    return type(component).__name__


def _is_tempered(problem: Problem) -> bool:
    return problem.channel.untempered() != problem.channel


def _loo_log_density(problem: Problem, state: GAMPState) -> Array | None:
    """Log probabilities of labels at their cavities, known already if every sample counts as one row.

    Of many classes only: for two, label noise and likelihoods that are not normalised come between.
    """
    if not problem.channel.score_shape or np.any(problem.sample_weight != 1.0):
        return None
    if state.kept is not None:
        return state.kept.log_z
    return None if _is_tempered(problem) else state.label_log_z


def _centred(tilted: Tilted, problem: Problem) -> Tilted:
    """With several scores, kept weights that add up to nothing over the scores.

    Labels say nothing of a shift of all scores, so that its course to where a wide prior wants it is hundreds
    of iterations long, and of no consequence.
    """
    if problem.kept is None or tilted.mean.ndim == 1:
        return tilted
    mean, kept = tilted.mean.copy(), problem.kept.positions
    mean[kept] -= mean[kept].mean(axis=1, keepdims=True)
    return tilted._replace(mean=mean)


def weight_evidence(tilted: Tilted, cavity_mean: Array, cavity_var: Array) -> float:
    """The weights' share of the Bethe log evidence; the samples' share is in `_SampleSide`.

    Σ log_z + ½ log(2π τ) + [var + (mean - r)²] / 2τ.
    """
    total = float(np.sum(tilted.log_z, dtype=np.float64))
    for start in range(0, cavity_mean.shape[0], PIECE):
        piece = slice(start, start + PIECE)
        spread = tilted.mean[piece] - cavity_mean[piece]
        spread *= spread
        spread += tilted.var[piece]
        spread /= cavity_var[piece]
        spread += np.log(cavity_var[piece])
        total += 0.5 * float(np.sum(spread, dtype=np.float64))
    return total + 0.5 * float(np.log(2 * np.pi)) * cavity_mean.size
