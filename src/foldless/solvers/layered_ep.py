"""EP for several scores: one Gaussian with exact covariances for each class, joined by labels and priors.

The scores of a sample, one for each of D classes, are linear in D columns of weights. Covariances between
weights of one class are what correlated features need, and are kept exactly (`gaussian_layer`, once for each
class); covariances between classes are left out, as in SHyGAMP. The classes meet where sites are made: the
channel sees all scores of a sample, and a row-sparse prior all weights of a feature.

The order of an iteration is that of `ep`: label sites and those of held weights move, then the free weights
of all classes answer together, in their own small Gaussians.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from foldless.beliefs import Array, Posterior
from foldless.problem import Problem
from foldless.solvers.damping import AdaptiveDamping, Damping, Pace
from foldless.solvers.ep import (
    ANSWERS,
    FIRST_SECANTS,
    LARGEST_GROWTH,
    MAX_HALVINGS,
    VAGUEST_START,
    Cavities,
    SitesState,
    explaining_sites,
    opening,
    score_cavities,
    step_of_block,
    weight_cavities,
)
from foldless.solvers.gaussian_layer import (
    Block,
    Gaussian,
    NotPositiveDefinite,
    Opened,
    Scores,
    Sites,
    Tiles,
    opened_layer,
    without_labels,
)
from foldless.solvers.message_passing import MessagePassing, psi
from foldless.solvers.secants import Secants

# Sites leap when they are this near: of several classes they go astray from further off than those of one.
NEAR = 0.02
# How often the labels of other samples answer to a group that was left out (`groups` has what that is worth),
# and the longest step of theirs: what a label says of the difference of two scores, sites of both would
# explain in full.
GROUP_ANSWERS = 2
LABEL_STEP = 0.5


@dataclass(frozen=True, eq=False)
class LayeredState(SitesState):
    """Sites and Gaussians of every class; cavities of all of them side by side, (weights or samples, D)."""

    sites: tuple[Sites, ...]
    gaussians: tuple[Gaussian, ...]


@dataclass(frozen=True)
class LayeredEP(MessagePassing[LayeredState]):
    """Expectation propagation for channels of several scores; an iteration costs D of `EP`'s.

    The longest step of a label's sites is LABEL_STEP.
    """

    damping: Damping = field(default_factory=lambda: AdaptiveDamping(first=LABEL_STEP, smallest=0.3))

    def init(self, problem: Problem) -> LayeredState:
        if len(problem.channel.score_shape) != 1:
            raise ValueError(
                "LayeredEP needs a channel of several scores, such as Multinomial(3); got "
                f"{problem.channel!r}. For one score use EP."
            )
        n_samples, n_weights = problem.operator.shape
        (n_scores,) = problem.channel.score_shape
        mean, var = problem.prior.start(n_weights)
        precision = 1.0 / np.maximum(var, np.finfo(float).tiny)
        nothing = np.zeros(n_samples)
        sites = Sites(precision, precision * mean, nothing, nothing)
        # For the first labels only, as in `EP.init`.
        square = problem.operator.squared_norms(problem.sample_weight)[1] / problem.sample_weight.sum()
        narrower = np.maximum(precision, square / VAGUEST_START)
        gaussian = without_labels(problem.operator, narrower, narrower * mean)
        return self._state(
            problem,
            Tiles(problem.operator),
            (sites,) * n_scores,
            (gaussian,) * n_scores,
            iteration=0,
            pace=Pace.first(self.damping, (n_samples, n_scores)),
            log_evidence=-np.inf,
        )

    def step(self, problem: Problem, state: LayeredState) -> LayeredState:
        tiles = state.tiles if state.tiles.operator is problem.operator else Tiles(problem.operator)
        wanted, log_evidence = _wanted_sites(problem, state)
        moved = _moved(problem, tiles, state, wanted)
        before = _side_by_side(state.gaussians, "score_mean")
        # Nothing on the way was proper: numbers that the loop takes for a divergence.
        after = np.full_like(before, np.nan)
        if moved is None:
            moved = Moved(state.sites, state.gaussians, state.step, _as_vector(state.sites), Secants())
        else:
            after = _side_by_side(moved.gaussians, "score_mean")
        pace = state.pace.after(
            self.damping,
            position=after,
            move=(after - before) / (1.0 if moved.step is None else moved.step),
            taken=moved.step,
            weight=problem.label_weight,
            total=problem.n_samples,
        )
        state = self._state(
            problem,
            tiles,
            moved.sites,
            moved.gaussians,
            iteration=state.iteration + 1,
            pace=pace,
            log_evidence=log_evidence,
        )
        return replace(state, proposed=moved.proposed, secants=moved.secants)

    def _at_pace(self, state: LayeredState, pace: Pace) -> LayeredState:
        return replace(state, pace=pace, secants=Secants())

    def for_new_data(self, problem: Problem, state: LayeredState) -> LayeredState:
        # Sites answer to the data they were made for; others start afresh.
        return self.init(problem)

    def posterior(self, problem: Problem, state: LayeredState) -> Posterior:
        left_out = _score_cavities(problem, state.sites, state.gaussians, problem.loo_weight)
        return Posterior(
            mean=_side_by_side(state.gaussians, "mean"),
            var=_side_by_side(state.gaussians, "var"),
            cavity_mean=state.weight_cavities.mean,
            cavity_var=state.weight_cavities.var,
            loo_mean=left_out.mean,
            loo_var=left_out.var,
            log_evidence=state.log_evidence,
        )

    def _state(
        self,
        problem: Problem,
        tiles: Tiles,
        sites: tuple[Sites, ...],
        gaussians: tuple[Gaussian, ...],
        *,
        iteration: int,
        pace: Pace,
        log_evidence: float,
    ) -> LayeredState:
        return LayeredState(
            tiles=tiles,
            sites=sites,
            gaussians=gaussians,
            weight_cavities=_joined([weight_cavities(gaussian) for gaussian in gaussians]),
            score_cavities=_score_cavities(problem, sites, gaussians),
            iteration=iteration,
            pace=pace,
            log_evidence=log_evidence,
        )


def left_out_groups(problem: Problem, state: LayeredState, group: NDArray[np.intp]) -> tuple[Array, Array]:
    """Mean and variance of every score from the samples of other groups; groups are numbered from 0.

    A group's weight is set to zero, free weights answer, then the labels of the others to that, and free
    weights to them, in the matrices that held weights leave: what `groups` does for one score. Labels of
    several scores go half of their way each time, as in an iteration.
    """
    alone = _score_cavities(problem, state.sites, state.gaussians, problem.sample_weight)
    mean, var = alone.mean.copy(), alone.var.copy()
    several = np.flatnonzero(np.bincount(group) > 1)
    if several.size == 0:
        return mean, var
    free = _free_weights(list(state.sites), state)
    whole = [opened_layer(state.tiles, sites, problem.sample_weight, free) for sites in state.sites]
    for number in several:
        inside = group == number
        without = problem.but(sample_weight=np.where(inside, 0.0, problem.sample_weight))
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # as in the loop of `solve`
            scores = _without_group(without, state, whole)
        if scores is not None:
            mean[inside] = _side_by_side(scores, "mean")[inside]
            var[inside] = _side_by_side(scores, "var")[inside]
    return mean, var


def _without_group(problem: Problem, state: LayeredState, whole: list[Opened]) -> list[Scores] | None:
    """Scores of all classes where a group has no weight; None if that leaves no posterior."""
    sites = list(state.sites)
    scores: list[Scores] = []
    try:
        for answer in range(GROUP_ANSWERS + 1):
            if answer:
                pairs = zip(scores, sites, strict=True)
                at = _joined([score_cavities(part, site, problem.sample_weight) for part, site in pairs])
                wanted, _ = _label_sites(problem, at, sites)
                sites = [
                    old.towards(Sites(old.prior_precision, old.prior_shift, *new), LABEL_STEP)
                    for old, new in zip(sites, wanted, strict=True)
                ]
            opened = [
                layer.relabelled(site, problem.sample_weight)
                for layer, site in zip(whole, sites, strict=True)
            ]
            parts = zip(opened, sites, state.gaussians, strict=True)
            blocks = _answered(
                problem, state, opened, [opening(layer, site, now.var) for layer, site, now in parts]
            )
            sites = [
                site.with_prior(layer.free, block.site_precision, block.site_shift)
                for site, layer, block in zip(sites, opened, blocks, strict=True)
            ]
            scores = [layer.scores(block) for layer, block in zip(opened, blocks, strict=True)]
    except NotPositiveDefinite:
        return None
    finite = all(np.isfinite(part.mean).all() and np.isfinite(part.var).all() for part in scores)
    return scores if finite else None


def _side_by_side(parts: Sequence[Gaussian] | Sequence[Scores], name: str) -> Array:
    return np.column_stack([getattr(part, name) for part in parts])


def _joined(cavities: list[Cavities]) -> Cavities:
    return Cavities(
        np.column_stack([part.mean for part in cavities]),
        np.column_stack([part.var for part in cavities]),
        np.column_stack([part.proper for part in cavities]),
    )


def _score_cavities(
    problem: Problem, sites: tuple[Sites, ...], gaussians: tuple[Gaussian, ...], lost: Array | None = None
) -> Cavities:
    pairs = zip(gaussians, sites, strict=True)
    return _joined([score_cavities(g.scores, s, problem.sample_weight, lost) for g, s in pairs])


def _wanted_sites(problem: Problem, state: LayeredState) -> tuple[list[Sites], float]:
    """Sites that explain the tilted moments at the present cavities, and the log evidence there."""
    at, prior = state.score_cavities, state.weight_cavities
    tilted = problem.prior.tilted(prior.mean, prior.var)
    of_labels, label_factors = _label_sites(problem, at, state.sites)
    wanted = []
    log_evidence = float(np.sum(tilted.log_z))
    for k, (old, now) in enumerate(zip(state.sites, state.gaussians, strict=True)):
        cavity = Cavities(prior.mean[:, k], prior.var[:, k], prior.proper[:, k])
        prior_sites = explaining_sites(
            tilted.mean[:, k], tilted.var[:, k], cavity, old.prior_precision, old.prior_shift
        )
        wanted.append(Sites(*prior_sites, *of_labels[k]))
        log_evidence += now.log_normaliser
        log_evidence += float(np.sum(psi(cavity.mean, cavity.var) - psi(now.mean, now.var)))
        with_site = 1.0 / (1.0 / at.var[:, k] + old.label_precision)
        site_mean = with_site * (at.mean[:, k] / at.var[:, k] + old.label_shift)
        label_factors += psi(at.mean[:, k], at.var[:, k]) - psi(site_mean, with_site)
    return wanted, log_evidence + float(problem.sample_weight @ label_factors)


def _label_sites(
    problem: Problem, at: Cavities, old: Sequence[Sites]
) -> tuple[list[tuple[Array, Array]], Array]:
    """As `ep.label_sites`, for scores side by side: precisions and shifts of each class, log normalisers."""
    response = problem.channel.respond(at.mean, at.var, problem.labels)
    curvature = np.clip(response.curvature, 0.0, (1 - 1e-12) / at.var)
    precision = curvature / (1 - at.var * curvature)
    shift = at.mean * precision + response.slope * (1 + at.var * precision)
    heard = at.proper & np.isfinite(precision) & np.isfinite(shift)
    sites = [
        (
            np.where(heard[:, k], precision[:, k], before.label_precision),
            np.where(heard[:, k], shift[:, k], before.label_shift),
        )
        for k, before in enumerate(old)
    ]
    return sites, response.log_z.copy()


class Moved(NamedTuple):
    """Where an iteration has come to."""

    sites: tuple[Sites, ...]
    gaussians: tuple[Gaussian, ...]
    step: float | None  # None for a leap
    proposed: Array
    secants: Secants


def _moved(problem: Problem, tiles: Tiles, state: LayeredState, wanted: list[Sites]) -> Moved | None:
    """Labels and held weights go towards the wanted sites, free weights answer; None if no way is proper.

    Close to a fixed point by a leap (`Secants`), otherwise a step of the way, as in `ep`.
    """
    n_samples, n_weights = tiles.shape
    # The first label sites replace none: there is nothing yet to damp towards.
    step = 1.0 if state.iteration == 0 else state.step
    towards = [old.towards(new, step) for old, new in zip(state.sites, wanted, strict=True)]
    is_free = np.zeros(n_weights, dtype=bool)
    is_free[_free_weights(towards, state)] = True
    of_class = np.concatenate([is_free, is_free, np.zeros(2 * n_samples, dtype=bool)])
    answers = np.tile(of_class, len(wanted))
    share = np.where(answers, 1.0, step)

    present = _as_vector(state.sites)
    proposed = present if state.proposed is None else state.proposed
    # What became of the proposal: free weights have answered already, the others are to go where they want.
    residual = np.where(answers, present, _as_vector(wanted)) - proposed
    rows = np.sqrt(problem.sample_weight)
    scale = np.concatenate(
        [
            part
            for now in state.gaussians
            for part in (now.var, np.sqrt(now.var), rows * now.score_var, rows * np.sqrt(now.score_var))
        ]
    )
    secants = state.secants.of(problem).seen(proposed, residual, scale)

    if len(secants) > FIRST_SECANTS and state.change < NEAR:
        point = secants.next_point(share, scale)
        try:
            sites, gaussians = _arrived(problem, tiles, state, point, is_free)
            pairs = zip(gaussians, state.gaussians, strict=True)
            if all(np.all(new.score_var <= LARGEST_GROWTH**2 * old.score_var) for new, old in pairs):
                return Moved(sites, gaussians, None, point, secants)
        except NotPositiveDefinite:
            pass
        secants = secants.last()
    for _ in range(MAX_HALVINGS):
        point = proposed + np.where(answers, 1.0, step) * residual
        try:
            return Moved(*_arrived(problem, tiles, state, point, is_free), step, point, secants)
        except NotPositiveDefinite:
            step /= 2
    return None


def _as_vector(sites: Sequence[Sites]) -> Array:
    return np.concatenate([of_class.as_vector() for of_class in sites])


def _arrived(
    problem: Problem, tiles: Tiles, state: LayeredState, point: Array, is_free: NDArray[np.bool_]
) -> tuple[tuple[Sites, ...], tuple[Gaussian, ...]]:
    """The Gaussians at these sites of all classes, after their free weights have answered."""
    moved = [Sites.from_vector(part, *tiles.shape) for part in np.split(point, len(state.sites))]
    negative = np.any([sites.prior_precision <= 0 for sites in moved], axis=0)
    free = np.flatnonzero(is_free | negative)
    if free.size > 2 * tiles.shape[0]:
        raise NotPositiveDefinite("more prior sites are negative than labels could outweigh")
    opened = [opened_layer(tiles, sites, problem.sample_weight, free) for sites in moved]
    blocks = [
        opening(layer, sites, now.var)
        for layer, sites, now in zip(opened, moved, state.gaussians, strict=True)
    ]
    blocks = _answered(problem, state, opened, blocks)
    sites = tuple(
        site.with_prior(layer.free, block.site_precision, block.site_shift)
        for site, layer, block in zip(moved, opened, blocks, strict=True)
    )
    return sites, tuple(layer.closed(block) for layer, block in zip(opened, blocks, strict=True))


def _free_weights(sites: list[Sites], state: LayeredState) -> NDArray[np.intp]:
    """Features of which labels say more to some class than the prior, or whose sites are not positive.

    At most half as many as there are samples of the first kind, the weakest held.
    """
    share = np.full(sites[0].prior_precision.size, np.inf)
    negative = np.zeros(share.size, dtype=bool)
    for site, old, now in zip(sites, state.sites, state.gaussians, strict=True):
        held = site.prior_precision / np.maximum(now.data_precision, np.finfo(float).tiny)
        share = np.minimum(share, held)
        negative |= (site.prior_precision <= 0) | (old.prior_precision <= 0)
    most = sites[0].label_precision.size // 2
    weakest = np.argsort(share, kind="stable")[:most]
    free = negative
    free[weakest[share[weakest] < 1.0]] = True
    return np.flatnonzero(free)


def _answered(
    problem: Problem, state: LayeredState, opened: list[Opened], blocks: list[Block]
) -> list[Block]:
    """The free weights after their priors have answered to what labels and held weights say of them."""
    free = opened[0].free
    if free.size == 0:
        return blocks
    cavity_mean, cavity_var = state.weight_cavities.mean.copy(), state.weight_cavities.var.copy()
    for _ in range(1 if opened[0].free.size == cavity_mean.shape[0] else ANSWERS):
        cavities = [Cavities.left(b.mean, b.var, b.data_precision, b.data_slope) for b in blocks]
        for k, at in enumerate(cavities):
            cavity_mean[free, k], cavity_var[free, k] = at.mean, at.var
        # A prior may differ between columns, so it is shown all of them.
        mean, var, _ = problem.prior.tilted(cavity_mean, cavity_var)
        for k, (layer, block, at) in enumerate(zip(opened, blocks, cavities, strict=True)):
            precision, shift = explaining_sites(
                mean[free, k], var[free, k], at, block.site_precision, block.site_shift
            )
            largest = LARGEST_GROWTH * np.maximum(block.var, var[free, k])
            blocks[k] = step_of_block(layer, block, precision, shift, largest)
    return blocks
