"""A wrapper for labels of which some are wrong: any channel, with a probability that y was flipped.

Of K classes a wrong label is any of the others, each as probable: with f the share of wrong labels and p a
normalised base, label y has the probability  g + (1 - K g) p_y,  g = f / (K - 1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self
from typing import cast as cast_to

import numpy as np
from scipy.special import expit, log_expit, softmax

from foldless.beliefs import Array, Response
from foldless.channels.base import (
    SMALLEST_VAR,
    Channel,
    SupportsEM,
    SupportsMaxSum,
    Weight,
    Wrapper,
    cast,
    doubles,
    score_dtype,
)
from foldless.component import Names, inner_names, require_between, wants
from foldless.kernels import part_of, whole
from foldless.registry import registered

# Hyper-prior of a flip probability in EM, Beta(2, 20): it counts like one flip in twenty more samples.
# Without it, EM crawls towards 0 or, in small samples, explains every surprise as a wrong label.
FLIP_PRIOR_FLIPPED = 2.0
FLIP_PRIOR_RIGHT = 20.0
# At 1/2 labels would say nothing, and EM could not come back from 0.
SMALLEST_FLIP_PROB = 1e-6
LARGEST_FLIP_PROB = 0.45
# Where the objective of the proximal point is scanned for local maxima, apart from evenly on its range:
# likelihoods change near zero on an unknown scale, so points are dense there on all scales.
SCAN_EVEN = np.linspace(0.0, 1.0, 17)
SCAN_AROUND_ZERO = np.geomspace(1e-2, 1e3, 41)
SCAN_ROWS_AT_ONCE = 1024
BISECTIONS = 200
# How far beyond its ends a range is scanned, relative to what is added up there.
EDGE = 1e-9
EPS = float(np.finfo(np.float64).eps)
# Shares of wrong labels that left-out predictions are judged with.
FLIP_RATES = (0.001, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45)
# Samples drawn again, to see which model would predict them best.
N_DRAWS = 200


@registered("channel/flipped-labels")
@dataclass(frozen=True)
class FlippedLabels(Wrapper):
    """(1 - flip_prob) p(y | z) + flip_prob p(-y | z), with p the ``base`` channel.

    Over `Multinomial`, p(-y | z) is the mean of all other classes.
    """

    flip_prob: float = 0.01

    tunable: ClassVar[tuple[str, ...]] = ("flip_prob",)

    def __post_init__(self) -> None:
        if not isinstance(self.base, Channel):
            raise TypeError(
                f"FlippedLabels(base={self.base!r}): the base must be a channel object, "
                "for example Logistic()."
            )
        require_flip_prob(self, "flip_prob", self.flip_prob)

    def respond(self, cavity_mean: Array, cavity_var: Array, labels: Array) -> Response:
        mean, var = doubles(cavity_mean, cavity_var)
        found = self._mixed(lambda label: self.base.respond(mean, var, label), labels)
        return cast(found, score_dtype(cavity_mean))

    def at_score(self, score: Array, labels: Array) -> Response:
        known = np.asarray(score, dtype=np.float64)
        found = self._mixed(lambda label: self.base.at_score(known, label), labels)
        return cast(found, score_dtype(score))

    def log_odds(self, mean: Array, var: Array | None) -> Array:
        if not (self.base.normalised and self.base.exact):
            return super().log_odds(mean, var)
        return flipped_log_odds(self.base.log_odds(mean, var), self.flip_prob)

    def log_proba(self, mean: Array, var: Array | None) -> Array:
        if not self.score_shape:
            return super().log_proba(mean, var)
        return flipped_log_proba(self.base.log_proba(mean, var), self.flip_prob)

    def true_class(self, cavity_mean: Array, cavity_var: Array, labels: Array) -> Array:
        """Probabilities of the true classes of samples given their labels, (samples, classes)."""
        mean, var = doubles(cavity_mean, cavity_var)
        if self.base.normalised:
            log_z = self.base.log_proba(mean, var)
        else:
            every = self._of_every_class(lambda label: self.base.respond(mean, var, label), len(mean))
            log_z = np.stack([response.log_z for response in every], axis=1)
        return np.asarray(softmax(log_z + self._log_noise(labels), axis=1))

    def _log_noise(self, labels: Array) -> Array:
        """log p(label | true class), (samples, classes)."""
        n_classes = self.score_shape[0]
        right = np.asarray(labels)[:, np.newaxis] == np.arange(1, n_classes + 1)
        return np.where(right, np.log1p(-self.flip_prob), _log_or_minus_inf(self.flip_prob / (n_classes - 1)))

    def _of_every_class(self, response_of: Callable[[Array], Response], n_samples: int) -> list[Response]:
        n_classes = self.score_shape[0]
        with part_of(whole(n_classes * n_samples) * n_classes):
            return [response_of(np.full(n_samples, k)) for k in np.arange(1.0, n_classes + 1.0)]

    def _mixed(self, response_of: Callable[[Array], Response], labels: Array) -> Response:
        """The mixture of the responses to all labels that a label may stand for."""
        n_classes = (self.score_shape or (2,))[0]
        if self.base.normalised:
            return with_floor(response_of(labels), self.flip_prob / (n_classes - 1), n_classes)
        if not self.score_shape:
            return mixed_labels(response_of(labels), response_of(-np.asarray(labels)), self.flip_prob)
        every = self._of_every_class(response_of, len(labels))
        joint = np.stack([r.log_z for r in every], axis=1) + self._log_noise(labels)
        log_z = np.logaddexp.reduce(joint, axis=1)
        share = np.exp(joint - log_z[:, np.newaxis])[..., np.newaxis]
        slopes = np.stack([r.slope for r in every], axis=1)
        slope = np.sum(share * slopes, axis=1)
        curvature = np.sum(share * np.stack([r.curvature for r in every], axis=1), axis=1)
        curvature -= np.sum(share * np.square(slopes - slope[:, np.newaxis]), axis=1)
        return Response(log_z, slope, curvature)

    def untempered(self) -> Channel:
        return FlippedLabels(self.base.untempered(), self.flip_prob)

    def mislabel_probability(self, cavity_mean: Array, cavity_var: Array, labels: Array) -> Array:
        """Posterior probability for every sample that its label is flipped, from its cavity.

        flip_prob Z(-y) / [(1 - flip_prob) Z(y) + flip_prob Z(-y)], with Z of the base. The cavity has not
        seen the sample's own label, so that label is counted once.
        """
        if self.score_shape:
            true = self.true_class(cavity_mean, cavity_var, labels)
            true[np.arange(len(true)), np.asarray(labels).astype(np.intp) - 1] = 0.0
            return true.sum(axis=1).astype(score_dtype(cavity_mean))
        mean, var, y = doubles(cavity_mean, cavity_var, labels)
        if self.base.normalised:
            # One response is enough if it is that of the improbable label, from which the other follows.
            improbable = -np.copysign(1.0, mean)
            log_z = self.base.respond(mean, var, improbable).log_z
            of_other = np.log1p(-np.minimum(np.exp(log_z), 1.0 - EPS))
            as_given = np.where(y == improbable, log_z, of_other)
            as_flipped = np.where(y == improbable, of_other, log_z)
        else:
            as_given = self.base.respond(mean, var, y).log_z
            as_flipped = self.base.respond(mean, var, -y).log_z
        return flip_posterior(as_given, as_flipped, self.flip_prob).astype(score_dtype(cavity_mean))

    def _learned(self, mean: Array, var: Array, y: Array, weight: Weight, names: Names) -> Self:
        """One EM step, the flips being the hidden variables.

        flip_prob becomes its posterior mode given the expected number of flips under the Beta(2, 20)
        hyper-prior. The base sees every sample twice, with either label, weighted by how probable it is; of
        several classes it stays as it is.
        """
        flipped = self.mislabel_probability(mean, var, y)
        if self.score_shape:
            return self.em_by_flips(flipped, y, weight=weight, names=names) or self
        w = np.broadcast_to(np.asarray(weight, dtype=np.float64), y.shape)
        updated = self
        base_names = inner_names(names, "base")
        if (base_names is None or base_names) and isinstance(self.base, SupportsEM):
            updated = updated.with_params(
                base=self.base.em_update(
                    np.concatenate([mean.ravel(), mean.ravel()]),
                    np.concatenate([var.ravel(), var.ravel()]),
                    np.concatenate([y.ravel(), -y.ravel()]),
                    weight=np.concatenate([(w * (1.0 - flipped)).ravel(), (w * flipped).ravel()]),
                    names=base_names,
                )
            )
        if wants(names, "flip_prob"):
            updated = updated.with_params(flip_prob=flip_prob_update(flipped, w))
        return updated

    def flipped_by_evidence(self, log_z: Array) -> Array | None:
        """`mislabel_probability` from the log normalisers of `respond`, over a normalised base.

        With g + (1 - K g) Z at hand a label is flipped with probability  g (1 - Z) / [g + (1 - K g) Z]. Its
        error is that of rounding, which sums over samples do not see, but the odds of single ones would.
        """
        if not self.base.normalised:
            return None
        n_labels, total = (self.score_shape or (2,))[0], np.exp(np.asarray(log_z, dtype=np.float64))
        g = float(self.flip_prob) / (n_labels - 1)
        flipped = np.maximum((1.0 - self.flip_prob) - total, 0.0)
        flipped *= g / (1.0 - n_labels * g)
        flipped /= total
        return flipped

    def em_by_flips(
        self, flipped: Array, labels: Array, *, weight: Weight = 1.0, names: Names = None
    ) -> Self | None:
        base_names = inner_names(names, "base")
        if (base_names is None or base_names) and isinstance(self.base, SupportsEM):
            return None
        if not wants(names, "flip_prob"):
            return self
        return self.with_params(flip_prob=flip_prob_update(flipped, weight))

    def _proximal(self, cavity_mean: Array, cavity_var: Array, labels: Array) -> Response:
        """The best of all local maxima: the mixture is not log-concave and has up to three of them.

        All of them lie between the cavity mean and the proximal points of the two labels. There the
        derivative of the objective is scanned for changes from + to -, each is bisected, the best kept.
        """
        base = cast_to(SupportsMaxSum, self.base)
        mean, var, y = doubles(cavity_mean, cavity_var, labels)
        var = np.maximum(var, SMALLEST_VAR)
        slopes = [base.proximal(mean, var, sign * y).slope.ravel() for sign in (1.0, -1.0)]
        reach = [np.minimum(np.minimum(*slopes), 0.0), np.maximum(np.maximum(*slopes), 0.0)]
        flat_mean, flat_var, flat_y = mean.ravel(), var.ravel(), y.ravel()
        out = np.empty((3, flat_mean.size))
        for first in range(0, flat_mean.size, SCAN_ROWS_AT_ONCE):
            rows = slice(first, first + SCAN_ROWS_AT_ONCE)
            out[:, rows] = self._best_maximum(
                flat_mean[rows], flat_var[rows], flat_y[rows], reach[0][rows], reach[1][rows]
            )
        return cast(Response(*(field.reshape(mean.shape) for field in out)), score_dtype(cavity_mean))

    def _best_maximum(self, mean: Array, var: Array, y: Array, least: Array, most: Array) -> Response:
        """max_z log p(y | z) - (z - mean)²/2var over (z - mean)/var in [least, most], by scanning."""
        # Everything in s = (z - mean)/var, the slope at a stationary point: far out, z - mean loses it.
        # A kink of the hinge can be an end of the range, where rounding decides on which side of it a point
        # is: so the scan goes a little further.
        beyond = EDGE * ((1.0 + np.abs(mean)) / var + np.abs(least) + np.abs(most))
        least, most = least - beyond, most + beyond
        around_zero = np.concatenate([-SCAN_AROUND_ZERO, [0.0], SCAN_AROUND_ZERO])
        scan = np.hstack(
            [
                least[:, None] + (most - least)[:, None] * SCAN_EVEN,
                np.clip((around_zero - mean[:, None]) / var[:, None], least[:, None], most[:, None]),
            ]
        )
        scan.sort(axis=1)

        def likelihood(s: Array, rows: Any) -> Response:
            return self.at_score(mean[rows] + var[rows] * s, y[rows])

        everyone = np.arange(mean.size)[:, None]
        rising = likelihood(scan, everyone).slope - scan
        rows, cells = np.nonzero((rising[:, :-1] > 0.0) & (rising[:, 1:] <= 0.0))
        # A maximum on the edge (slope zero beyond rounding) has no change of sign inside.
        edge = np.setdiff1d(np.arange(mean.size), rows)
        rows = np.concatenate([rows, edge])
        low = np.concatenate([scan[:, :-1][rows[: cells.size], cells], least[edge]])
        high = np.concatenate([scan[:, 1:][rows[: cells.size], cells], most[edge]])
        for _ in range(BISECTIONS):
            middle = 0.5 * (low + high)
            if np.all((middle == low) | (middle == high)):
                break
            up = likelihood(middle, rows).slope > middle
            low, high = np.where(up, middle, low), np.where(up, high, middle)

        at = likelihood(low, rows)
        objective = at.log_z - 0.5 * var[rows] * np.square(low)
        order = np.lexsort((objective, rows))
        best = order[np.flatnonzero(np.append(np.diff(rows[order]) > 0, True))]
        s, at, rows = low[best], Response(*(field[best] for field in at)), rows[best]
        # At a kink of the likelihood the slope jumps over s, and the point stays when the mean moves.
        jump = at.slope - likelihood(high[best], rows).slope
        kink = jump > 1e-6 * (np.abs(at.slope) + np.abs(s))
        curvature = np.where(kink, 1.0 / var[rows], at.curvature / (1.0 + var[rows] * at.curvature))
        return Response(objective[best], np.where(kink, s, at.slope), curvature)


def flipped_log_odds(log_odds: Array, flip_prob: Array | float) -> Array:
    """Of labels of which some are flipped: the improbable one's p becomes g + (1 - 2g) p, g = flip_prob."""
    improbable = flip_prob + (1.0 - 2.0 * flip_prob) * expit(-np.abs(log_odds))
    # One whose probability is below all numbers is impossible; where nothing is flipped its odds are known.
    with np.errstate(divide="ignore"):
        found = np.copysign(np.log1p(-improbable) - np.log(improbable), log_odds)
    return np.where(np.equal(flip_prob, 0.0), log_odds, found).astype(log_odds.dtype, copy=False)


def flipped_log_proba(log_proba: Array, flip_prob: float) -> Array:
    """Of K labels, along the last axis, of which some are wrong: g + (1 - K g) p, g = flip_prob / (K - 1)."""
    if flip_prob == 0.0:
        return log_proba
    n_labels = log_proba.shape[-1]
    floor = flip_prob / (n_labels - 1)
    return np.asarray(np.log(floor + (1.0 - n_labels * floor) * np.exp(log_proba)))


def log_probabilities(tried: Sequence[tuple[Channel, Array, Array | None]]) -> Array:
    """(tried, samples, classes), of channels with the moments of their scores, (samples, scores).

    Scores that share a channel, but for how many labels it flips, go through it together, which is faster.
    """
    flips, found = np.zeros(len(tried)), np.empty((len(tried), *tried[0][1].shape))
    alike: dict[tuple[Channel, bool], list[int]] = {}
    for n, (channel, _, var) in enumerate(tried):
        base = channel
        if isinstance(channel, FlippedLabels) and channel.base.normalised and channel.base.exact:
            base, flips[n] = channel.base, channel.flip_prob
        alike.setdefault((base, var is None), []).append(n)
    for (channel, certain), which in alike.items():
        mean = np.concatenate([tried[n][1] for n in which])
        var = None if certain else np.concatenate([var for n in which if (var := tried[n][2]) is not None])
        if channel.score_shape:
            values = channel.log_proba(mean, var)
        else:
            values = channel.log_odds(mean[:, 0], None if var is None else var[:, 0])
        found[which] = values.reshape(len(which), *found.shape[1:])
    if found.shape[2] > 1:
        for flip_prob, of_labels in zip(flips, found, strict=True):
            of_labels[...] = flipped_log_proba(of_labels, flip_prob)
        return found
    log_odds = flipped_log_odds(found, flips[:, np.newaxis, np.newaxis]) if flips.any() else found
    return log_expit(np.concatenate([-log_odds, log_odds], axis=2))


def flips_of(proba: Array, weight: Array, n_classes: int) -> tuple[Array, float]:
    """The probability of each label being wrong, and the share of labels that are, from left-out predictions.

    `proba` is that of the labels, (models, samples). At every flip rate f a label of K classes has the
    probability (1 - f) p + f (1 - p) / (K - 1), with p of a model; rates count by that of the model that
    predicts best with this rate, and by their prior. Labels are judged by the models that might predict best:
    each counts as often as it would if other samples like these had been seen [Yao et al. 2018], so that a
    label is not suspected for what one model makes of it.
    """
    log_posterior, found = [], []
    noise = np.random.default_rng(0).standard_normal((len(proba), N_DRAWS))
    for f in FLIP_RATES:
        wrong = f * (1.0 - proba) / (n_classes - 1)
        seen = (1.0 - f) * proba + wrong
        of_labels = np.log(np.maximum(seen, np.finfo(float).tiny))
        fits = of_labels @ weight
        prior = (FLIP_PRIOR_FLIPPED - 1.0) * np.log(f) + (FLIP_PRIOR_RIGHT - 1.0) * np.log1p(-f)
        log_posterior.append(float(fits.max()) + prior)
        # Sums over samples drawn again scatter like this about those at hand.
        of_labels -= (fits / weight.sum())[:, np.newaxis]
        size, along = np.linalg.eigh((of_labels * weight) @ of_labels.T)
        draws = fits[:, np.newaxis] + along @ (np.sqrt(np.maximum(size, 0.0))[:, np.newaxis] * noise)
        share = softmax(draws, axis=0).mean(axis=1)
        found.append(share @ wrong / np.maximum(share @ seen, np.finfo(float).tiny))
    posterior = softmax(log_posterior)
    return np.asarray(posterior @ np.array(found)), float(posterior @ np.array(FLIP_RATES))


def with_floor(right: Response, floor: float, n_labels: int = 2) -> Response:
    """The response of g + (1 - K g) p from that of a normalised p of K labels, with g = floor.

    With ρ = (1 - K g) Z / [g + (1 - K g) Z] and its complement ω:
    slope' = ρ slope,  curvature' = ρ curvature - ρ ω slope².
    """
    if floor == 0.0:
        return right
    # Where Z underflows, g is all that is left, and ρ = 0 is right: nothing needs a logarithm of Z.
    rho = np.exp(right.log_z)
    rho *= 1.0 - n_labels * floor
    total = rho + floor
    rho /= total
    log_z = np.log(total)
    if right.slope.ndim > rho.ndim:  # a score for each class
        rho, total = rho[..., np.newaxis], total[..., np.newaxis]
    curvature = np.square(right.slope)
    curvature *= -floor
    curvature /= total
    curvature += right.curvature
    curvature *= rho
    return Response(log_z, rho * right.slope, curvature)


def mixed_labels(as_given: Response, as_flipped: Response, flip_prob: float) -> Response:
    """The response of (1 - g) p(y) + g p(-y) from those of the two labels, with g = flip_prob.

    With ρ = (1 - g) Z(y) / [(1 - g) Z(y) + g Z(-y)] and its complement ω:
    slope = ρ s(y) + ω s(-y),  curvature = ρ c(y) + ω c(-y) - ρ ω (s(y) - s(-y))².
    """
    log_given = np.log1p(-flip_prob) + as_given.log_z
    log_flipped = _log_or_minus_inf(flip_prob) + as_flipped.log_z
    log_z = np.logaddexp(log_given, log_flipped)
    rho, omega = np.exp(log_given - log_z), np.exp(log_flipped - log_z)
    curvature = rho * as_given.curvature + omega * as_flipped.curvature
    curvature -= rho * omega * np.square(as_given.slope - as_flipped.slope)
    return Response(log_z, rho * as_given.slope + omega * as_flipped.slope, curvature)


def flip_posterior(log_z_given: Array, log_z_flipped: Array, flip_prob: float) -> Array:
    """Probability that a label is flipped, from the evidence of either label under the base channel."""
    log_given = np.log1p(-flip_prob) + log_z_given
    log_flipped = _log_or_minus_inf(flip_prob) + log_z_flipped
    return np.asarray(np.exp(log_flipped - np.logaddexp(log_given, log_flipped)))


def with_flip_prob(flipped: Array, before: float, after: float) -> Array:
    """Probabilities that labels are flipped, as another flip probability makes them: odds are multiplied.

    Both probabilities lie strictly between 0 and 1.
    """
    factor = after / (1.0 - after) / (before / (1.0 - before))
    return flipped * factor / (1.0 - flipped + flipped * factor)


def flip_prob_update(flipped: Array, weight: Array | float) -> float:
    """Posterior mode of the flip probability given expected flips, under the Beta hyper-prior."""
    flips = float(np.sum(weight * flipped)) + FLIP_PRIOR_FLIPPED - 1.0
    total = float(np.sum(np.broadcast_to(weight, flipped.shape)))
    total += FLIP_PRIOR_FLIPPED + FLIP_PRIOR_RIGHT - 2.0
    return float(np.clip(flips / total, SMALLEST_FLIP_PROB, LARGEST_FLIP_PROB))


def require_flip_prob(owner: object, name: str, value: Any) -> None:
    advice = (
        "It is the share of wrong labels: at 0.5 they would say nothing, and above it the classes should be "
        "exchanged."
    )
    require_between(owner, name, value, 0.0, 0.5, high_open=True, advice=advice)


def _log_or_minus_inf(probability: float) -> float:
    return float(np.log(probability)) if probability > 0.0 else -np.inf
