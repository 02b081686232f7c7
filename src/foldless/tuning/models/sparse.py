"""The sparse model, which selects: tuned and blended with class means, or settled at plain parameters first.

Where columns are independent, class means show most of the features in a few sweeps, and EM learns the
parameters on the way (`tuning.fit`). Where columns are correlated, class means mislead; and where single
weights are hardly informed, EM between iterations can run away or never settle. Then the model first settles
at plain parameters, EM goes on from there for a while, and the model settles again at the parameters that EM
has found. The evidence decides which of the two selects. Tuned parameters depend on every label, which
leave-one-out from cavities does not count. So it is the plain model that is averaged with others.

**Correlated words** have a ridge per occurrence, and few effects over this ridge as their background. Most
words are rare, and come together with others by topic. A sparse model whose weights are zero or large has to
give the effect of a topic to single words, and goes round in circles among them. Over a background words keep
what they share: w_j = b_j + g_j, with g_j of one size per occurrence. The background alone is a ridge
regression, which labels depend on by a matrix of samples by samples, one product over the non-zeros
(`solvers.background_ep`). Both models share that matrix.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import expit, logit

from foldless.beliefs import Array
from foldless.channels import FlippedLabels
from foldless.channels.flipped_labels import FLIP_PRIOR_FLIPPED, FLIP_PRIOR_RIGHT
from foldless.evaluation import mean_and_error, mixture_moments
from foldless.priors import PRIORS, Gaussian, OverBackground, Prior, SpikeAndSlab
from foldless.problem import History, Outcome, Problem, Solution
from foldless.solvers import EP, GAMP, BackgroundEP, Stopping
from foldless.solvers.base import Solver
from foldless.solvers.few_columns import solve_few
from foldless.solvers.left_out import answered
from foldless.tuning.class_means import unblended
from foldless.tuning.em import EM, tunable_names
from foldless.tuning.fit import SPARSE, Choices, Fit, fit_some_rows, fit_tuned
from foldless.tuning.integration import STOPPING as NEIGHBOUR_STOPPING
from foldless.tuning.integration import integrated
from foldless.tuning.models.ridges import RidgeEnd
from foldless.tuning.plan import (
    EXPECTED_ACTIVE,
    HONEST_STANDARD_ERRORS,
    MOST_OF_BLEND,
    PATIENCE,
    PLAIN_SLAB_VARIANCE,
    RIDGE_MAX_ITER,
)
from foldless.tuning.planned import CLASS_MEANS, PLAIN, DensePlan, SparsePlan
from foldless.tuning.portfolio import Model, channel_of, of_solution, weights_of
from foldless.tuning.record import Recorder
from foldless.tuning.table import LeftOut, Table, assembled, blocks_of, with_prior

# EM changes parameters every so many iterations of exact covariances.
EM_PERIOD = 2
POLISH_STOPPING = Stopping(tol=1e-3, max_iter=100, patience=40)
# Over a background alone, changes shrink to a third each time: at this tolerance scores are within about a
# hundredth of where they settle.
RIDGE_STOPPING = Stopping(tol=0.03, max_iter=RIDGE_MAX_ITER, patience=PATIENCE)
# Parameters that are learnt again change by less than this factor, unless EM has ended at another fixed
# point.
LARGEST_MOVE = 4.0


@dataclass(frozen=True, eq=False)
class SparseFits:
    """The fit that selects, and the solution that is judged by left-out labels, for an average.

    They are the same unless parameters were tuned from plain ones: then the plain solution is judged.
    """

    selects: Fit
    judged: Solution
    solver: Solver[Any]
    start: str = CLASS_MEANS  # or PLAIN

    @classmethod
    def one(cls, fit: Fit, solver: Solver[Any], start: str = CLASS_MEANS) -> SparseFits:
        return cls(fit, fit.solution, solver, start)

    @property
    def outcome(self) -> Outcome:
        return self.selects.outcome

    def model(self, table: Table, left_out_edges: int = 0) -> Model:
        judged = answered(self.judged, left_out_edges) if left_out_edges else self.judged
        return of_solution(SPARSE, SPARSE, judged, table)

    def without_data(self) -> SparseFits:
        """The same without samples, to be kept with a model: messages and parameters."""
        judged = self.judged.without_data()
        same = self.selects.solution is self.judged
        solution = judged if same else self.selects.solution.without_data()
        return replace(
            self,
            selects=replace(self.selects, solution=solution, table=None),  # type: ignore[arg-type]
            judged=judged,
        )


def fit_sparse(
    table: Table,
    sparse: SparsePlan,
    choices: Choices,
    recorder: Recorder,
    *,
    purpose: str = "fit",
    warm: SparseFits | None = None,
    ridge: RidgeEnd | None = None,
) -> SparseFits:
    """The sparse model as planned: from one start or the better of two, or by its fallback.

    Plain parameters are settled from where the `ridge` ended, if there is one. `warm` is a settled fit of the
    same data under the same plan, to go on from: the answer is the same within the tolerance.
    """
    if warm is not None and not sparse.candidates:
        # If only the fallback has this start, it was the fallback that settled.
        begun_with = sparse if warm.start in sparse.starts else sparse.fallback or sparse
        return _continued(table, warm, patient(choices, begun_with, warm.start), recorder)
    tried: list[tuple[SparseFits, slice]] = []
    first = len(recorder.runs)
    for start in sparse.starts:
        begun, own = len(recorder.runs), patient(choices, sparse, start)
        if start == PLAIN:
            fits = _from_plain_parameters(table, sparse, own, recorder, purpose, ridge)
        else:
            fits = SparseFits.one(fit_tuned(table, own, recorder, purpose=purpose), choices.solver)
        tried.append((fits, slice(begun, len(recorder.runs))))
        if fits.outcome is Outcome.INTERRUPTED or (_ended_well(fits) and not sparse.judged_by_left_out):
            chosen = fits
            break
    else:
        standing = [f for f, _ in tried if f.judged.outcome.trustworthy] or [tried[0][0]]
        chosen = min(standing, key=lambda f: f.judged.loo_log_loss())
    for fits, runs in tried:
        if fits is not chosen:
            recorder.reject(runs)
    if sparse.fallback is None or _ended_well(chosen):
        return chosen
    begun = len(recorder.runs)
    other = fit_sparse(table, sparse.fallback, choices, recorder, purpose="fallback")
    better = _ended_well(other)
    recorder.reject(slice(first, begun) if better else slice(begun, None))
    return other if better else chosen


def _continued(table: Table, warm: SparseFits, choices: Choices, recorder: Recorder) -> SparseFits:
    """Both fits, from where they ended before."""
    if warm.start == CLASS_MEANS:
        fit = fit_tuned(table, choices, recorder, warm=warm.selects)
        return SparseFits.one(fit, warm.solver)

    def run(ended: Solution) -> Solution:
        problem = assembled(table, ended.problem.channel).but(prior=ended.problem.prior)
        return recorder.solve(
            problem,
            warm.solver,
            model=SPARSE,
            purpose="fit",
            stopping=choices.stopping,
            state=warm.solver.as_start(ended.state),
        )

    judged = run(warm.judged)
    alone = warm.selects.solution is warm.judged or judged.outcome is Outcome.INTERRUPTED
    selects = judged if alone else run(warm.selects.solution)
    return replace(warm, selects=Fit.of(selects, table), judged=judged)


def _ended_well(fits: SparseFits) -> bool:
    return fits.judged.outcome.trustworthy or fits.outcome is Outcome.INTERRUPTED


def patient(choices: Choices, sparse: SparsePlan, start: str) -> Choices:
    """The choices, with the plan's patience, and its tolerance where the user's is smaller."""
    tol = sparse.tolerance if start == PLAIN else sparse.blend_tolerance
    stopping = replace(choices.stopping, tol=max(choices.stopping.tol, tol))
    if sparse.patience is not None:
        stopping = replace(stopping, patience=sparse.patience)
    return replace(choices, stopping=stopping)


def _from_plain_parameters(
    table: Table,
    sparse: SparsePlan,
    choices: Choices,
    recorder: Recorder,
    purpose: str,
    ridge: RidgeEnd | None,
) -> SparseFits:
    """Settled at plain parameters; and at those that EM finds from there, if the evidence is larger there."""
    exact = sparse.solver != "GAMP"
    solver: Solver[Any]
    if exact:
        solver = EP(single=sparse.single) if sparse.solver == "EP" else BackgroundEP(exact_looks=True)
    else:
        solver = GAMP(variances=sparse.variances)  # type: ignore[arg-type]
    problem = assembled(table, choices.channel, plain_prior(table, choices, sparse.background))

    def run(purpose: str, problem: Any, stopping: Stopping, **more: Any) -> Solution:
        return recorder.solve(problem, solver, model=SPARSE, purpose=purpose, stopping=stopping, **more)

    begun = len(recorder.runs)
    if sparse.candidates:
        plain = solve_few(
            problem,
            lambda few: run(purpose, few, choices.stopping, detail=PLAIN),
            sparse.candidates,
            sparse.neighbours,
        )
        for n in range(begun + 1, len(recorder.runs)):
            if recorder.runs[n].outcome is not plain.outcome:
                recorder.reject(slice(n, n + 1))
    else:
        state = None
        if ridge is not None and isinstance(solver, EP):
            state = solver.from_ridge(problem, np.flatnonzero(table.free), *ridge)
        plain = run(purpose, problem, choices.stopping, detail=PLAIN, state=state)
    as_it_is = SparseFits.one(Fit.of(plain, table), solver, PLAIN)
    # With exact covariances a model that does not settle at plain parameters may settle at others, and that
    # is tried if there is no fallback. With diagonal ones it is correlations by which it does not settle:
    # cavities mean nothing then, and EM must not follow them. And where no feature is rather in than out,
    # there is nothing to learn parameters from.
    tunable = plain.outcome.trustworthy or (exact and sparse.fallback is None)
    if sparse.em_iterations == 0 or plain.outcome is Outcome.INTERRUPTED or not tunable:
        return as_it_is
    if not np.any(as_it_is.selects.inclusion_probability()[table.free] > 0.5):
        return as_it_is
    begun = len(recorder.runs)
    tuned = run(
        "tune",
        problem,
        replace(choices.stopping, max_iter=min(sparse.em_iterations, choices.stopping.max_iter)),
        tuner=EM(tunable_names(problem), hyper=choices.hyper, delay=0, every=EM_PERIOD),
        state=solver.as_start(plain.state),
    )
    if tuned.outcome in (Outcome.BUDGET, Outcome.STALLED):
        tuned = run("settle", tuned.problem, choices.stopping, state=solver.as_start(tuned.state))
    better = not plain.outcome.trustworthy or tuned.posterior.log_evidence >= plain.posterior.log_evidence
    if not (tuned.outcome is Outcome.INTERRUPTED or (tuned.outcome.trustworthy and better)):
        recorder.reject(slice(begun, None))
        return as_it_is
    history = History(plain.history.iterations + tuned.history.iterations)
    return SparseFits(Fit.of(replace(tuned, history=history), table), plain, solver, PLAIN)


def plain_prior(table: Table, choices: Choices, background: float) -> Prior:
    """The prior at plain parameters, over a background if its score variance is not 0.

    A prior that was given as an object stays as it is.
    """
    if isinstance(choices.prior, Prior):
        return choices.prior
    n_free = max(table.n_free, 1)
    sparse = PRIORS[choices.prior](
        slab=Gaussian(PLAIN_SLAB_VARIANCE),  # type: ignore[call-arg]
        inclusion=min(EXPECTED_ACTIVE / n_free, 0.5),
    )
    return OverBackground(sparse, background / n_free) if background else sparse


def fit_words(
    table: Table,
    sparse: SparsePlan,
    dense: DensePlan,
    unit: Array,
    choices: Choices,
    recorder: Recorder,
    warm: SparseFits | None = None,
) -> tuple[SparseFits, list[Model]]:
    """The sparse model of words over a background; and that alone as a dense model, if it settles."""
    (recipe,) = dense.recipes
    problem = assembled(table, channel_of(recipe))
    variance = np.ones(problem.operator.shape[1])
    variance[: unit.size] = unit**2
    variance *= sparse.background / max(table.n_free, 1)
    problem = with_prior(problem, OverBackground(plain_prior(table, choices, 0.0), variance))
    alone = BackgroundEP(effects=False)
    ridge = recorder.solve(
        problem, alone, model="ridge", purpose="fit", stopping=RIDGE_STOPPING, detail=recipe.name
    )
    if ridge.outcome is Outcome.INTERRUPTED:
        raise KeyboardInterrupt
    settled = ridge.outcome.trustworthy
    dense_models = [of_solution(recipe.code, recipe.name, ridge, table)] if settled else []
    if warm is not None:
        return fit_sparse(table, sparse, choices, recorder, warm=warm), dense_models
    solver = BackgroundEP()
    solution = recorder.solve(
        problem.but(channel=choices.channel),
        solver,
        model=SPARSE,
        purpose="fit",
        stopping=patient(choices, sparse, PLAIN).stopping,
        state=solver.as_start(ridge.state) if settled else None,
        detail=PLAIN,
    )
    return SparseFits.one(Fit.of(solution, table), solver, PLAIN), dense_models


# ---------------------------------------------------------------------- with exact covariances, afterwards


def finished(fit: Fit, sparse: SparsePlan, choices: Choices, recorder: Recorder) -> Fit:
    """The fit that selects, refined as planned: by exact covariances, over parameters, and its leave-one-out.

    GAMP finds parameters and weights fast, and for independent columns its means are right. Its variances are
    too small, since columns of a finite table are never quite independent. So EP goes on from its answer, at
    the same parameters. EP has no blend with class means: of a blend samples are left out
    (`solvers.left_out`), and its weights are averaged with those of the likelihood alone.
    """
    solution = fit.solution
    if isinstance(fit.prior, OverBackground):
        own = sparse if sparse.background else sparse.fallback or sparse
        more = own.more_flips and fit.outcome.trustworthy
        return with_more_flips(fit, recorder, EP(single=own.single)) if more else fit
    blended = fit.generative_weight > 0
    if blended or not (sparse.polish and fit.outcome.trustworthy):
        found = fit
        if sparse.left_out_edges:
            found = replace(fit, solution=answered(solution, sparse.left_out_edges))
        if blended and sparse.polish and sparse.integrate and choices.searched and fit.outcome.trustworthy:
            found = _beside_unblended(found, choices, recorder, MOST_OF_BLEND)
        if blended and sparse.relearnt_parts and found.outcome.trustworthy:
            found = relearnt(found, fit, sparse, choices, recorder)
        return found
    solver = EP()
    start = solver.from_state(solution.problem, solution.state)
    begun = len(recorder.runs)
    exact = recorder.solve(
        solution.problem, solver, model=SPARSE, purpose="polish", stopping=POLISH_STOPPING, state=start
    )
    if not (exact.outcome.trustworthy or exact.outcome is Outcome.INTERRUPTED):
        recorder.reject(slice(begun, None))
        return _beside_unblended(fit, choices, recorder, 0.0) if sparse.integrate else fit
    history = History(solution.history.iterations + exact.history.iterations)
    outcome = solution.outcome if exact.outcome.trustworthy else exact.outcome
    polished = replace(fit, solution=replace(exact, history=history, outcome=outcome))
    if not sparse.integrate or not outcome.trustworthy:
        return polished
    return integrated(polished, choices.hyper, recorder)


def relearnt(found: Fit, fit: Fit, sparse: SparsePlan, choices: Choices, recorder: Recorder) -> Fit:
    """The fit `found`, refined from `fit`, with leave-one-out at parameters learnt without the sample.

    EM learns from all labels: after it has found features by chance it expects more of them, and larger ones.
    So samples are divided into parts. Without each part EM goes on from where it ended; then the fit to all
    samples settles at the parameters of the other parts, and each sample of the part is left out of that. A
    part keeps the leave-one-out that it has if this does not settle, or if EM ends far away without it.
    """
    table, posterior = fit.table, found.solution.posterior
    choices = patient(replace(choices, generative_weight=fit.generative_weight), sparse, CLASS_MEANS)
    mean, var = posterior.loo_mean.copy(), posterior.loo_var.copy()
    # Each part has its share of every class, and of clear and doubtful samples, whatever the order of rows.
    counted = np.flatnonzero(table.sample_weight > 0)
    part = np.full(table.shape[0], -1)
    part[counted[np.lexsort((mean[counted], table.codes[counted]))]] = (
        np.arange(counted.size) % sparse.relearnt_parts
    )
    for number in range(sparse.relearnt_parts):
        inside, begun = part == number, len(recorder.runs)
        weight = np.where(inside, 0.0, table.sample_weight)
        if not np.all(weight @ table.indicator > 0):
            continue
        others = replace(table, sample_weight=weight, left_out=LeftOut(weight))
        learnt = fit_tuned(others, choices, recorder, purpose="relearn", warm=fit)
        settled = learnt
        near = _near(fit.solution.problem, learnt.solution.problem)
        if learnt.outcome.trustworthy and near:
            tuned = learnt.solution.problem
            problem = fit.solution.problem.but(channel=tuned.channel, prior=tuned.prior)
            start = replace(fit, solution=replace(fit.solution, problem=problem))
            fixed = replace(choices, tune=frozenset())
            settled = fit_tuned(table, fixed, recorder, purpose="relearn", warm=start)
        if settled.outcome is Outcome.INTERRUPTED:
            return replace(found, solution=replace(found.solution, outcome=Outcome.INTERRUPTED))
        if not (near and settled.outcome.trustworthy):
            recorder.reject(slice(begun, None))
            continue
        left_out = answered(settled.solution, sparse.left_out_edges).posterior
        mean[inside], var[inside] = left_out.loo_mean[inside], left_out.loo_var[inside]
    return replace(
        found, solution=replace(found.solution, posterior=replace(posterior, loo_mean=mean, loo_var=var))
    )


def _near(problem: Problem, other: Problem) -> bool:
    """Whether EM has ended near where it was: a tenth of the samples can make it jump where one cannot."""
    em = EM(tunable_names(problem))
    before, after = em.tuned(problem), em.tuned(other)
    moves = [np.abs(np.log(after[name] / before[name])) for name in before]
    return bool(np.max(moves, initial=0.0) <= np.log(LARGEST_MOVE))


def _beside_unblended(fit: Fit, choices: Choices, recorder: Recorder, most: float) -> Fit:
    """The fit, its weights and probabilities averaged with those of the likelihood alone, under a plain slab.

    Weights of a blend are right, as log-odds, if features are Gaussian within classes. If labels are logistic
    in the features, they are too small, and their intervals too narrow. Weights of the likelihood are right
    in either case, but vague. So in means and variances the blend has at `most` this share. In inclusion
    probabilities each of the two counts by the likelihood of left-out labels. (A fit that does not settle
    with exact covariances has a slab as wide as separable classes make it; with `most` = 0 nothing of it
    counts.) Classes are predicted by the fit as it is.
    """
    problem, solver = unblended(fit.solution.problem), EP()
    base = blocks_of(problem).base
    if not isinstance(base, SpikeAndSlab):
        return fit
    problem = with_prior(problem, replace(base, slab=Gaussian(PLAIN_SLAB_VARIANCE)))
    begun = len(recorder.runs)
    alone = recorder.solve(problem, solver, model=SPARSE, purpose="unblended", stopping=POLISH_STOPPING)
    other = Fit.of(alone, fit.table)
    if alone.outcome.trustworthy:
        other = integrated(other, choices.hyper, recorder)
    if not other.outcome.trustworthy:
        recorder.reject(slice(begun, None))
        interrupted = other.outcome is Outcome.INTERRUPTED
        solution = replace(fit.solution, outcome=Outcome.INTERRUPTED) if interrupted else fit.solution
        return replace(fit, solution=solution)
    gain = fit.solution.loo_log_densities() - other.solution.loo_log_densities()
    weight = fit.solution.problem.label_weight
    spread = float(weight @ (gain - weight @ gain / weight.sum()) ** 2)
    # Averaged over what other samples could have shown [Yao et al. 2018].
    share = float(expit(weight @ gain / np.sqrt(1.0 + np.pi / 8.0 * spread))) if most else 0.0
    in_or_out, in_moments = (np.array([k, 1.0 - k]) for k in (share, min(share, most)))
    mean, var = (
        np.array([getattr(f.solution.posterior, name) for f in (fit, other)]) for name in ("mean", "var")
    )
    return replace(
        fit,
        inclusion=in_or_out @ np.array([fit.inclusion_probability(), other.inclusion_probability()]),
        moments=mixture_moments(in_moments[:, np.newaxis], mean, var),
        share=share,
    )


def with_more_flips(found: Fit, recorder: Recorder, solver: EP) -> Fit:
    """The fit, and beside it the same fit with more labels wrong, and the probability of that.

    At plain parameters a share k of the labels is wrong. Few samples hardly tell this from ten times as many,
    with which effects are larger. The larger share x, and its probability q a priori, are those with which
    the two shares have the mean m and the mean square s of the hyper-prior:  x + k = (s - k²) / (m - k), q =
    (m - k) / (x - k).
    """
    centre = found.solution
    if not isinstance(centre.problem.channel, FlippedLabels):
        return found
    k, a, b = centre.problem.channel.flip_prob, FLIP_PRIOR_FLIPPED, FLIP_PRIOR_RIGHT
    mean = a / (a + b)
    more = (mean * (a + 1.0) / (a + b + 1.0) - k**2) / (mean - k) - k
    begun = len(recorder.runs)
    solution = recorder.solve(
        centre.problem.but(channel=replace(centre.problem.channel, flip_prob=more)),
        solver,
        model=SPARSE,
        purpose="more flips",
        stopping=NEIGHBOUR_STOPPING,
        state=solver.as_start(centre.state),
    )
    if solution.outcome is Outcome.INTERRUPTED:
        return replace(found, solution=replace(centre, outcome=Outcome.INTERRUPTED))
    if not solution.outcome.trustworthy:
        recorder.reject(slice(begun, None))
        return found
    gain = solution.posterior.log_evidence - centre.posterior.log_evidence
    prior = (mean - k) / (more - k)
    return replace(found, more_flips=(Fit.of(solution, found.table), float(expit(gain + logit(prior)))))


# ---------------------------------------------------------------------- some of very many rows, beforehand


def fit_sample(table: Table, sparse: SparsePlan, choices: Choices, recorder: Recorder) -> Fit | None:
    """A fit of some rows as though columns were independent; None if it may not be trusted.

    Correlations do harm by making cavities wrong. If leave-one-out of these rows agrees with the loss on
    other rows, they have done none, and the fit of all rows may start from this one.
    """
    search, check = table.parts(sparse.search_rows)
    found = fit_some_rows(search, table, patient(choices, sparse, CLASS_MEANS), recorder)
    if found is None or found.outcome is Outcome.INTERRUPTED or not sparse.sample_checked:
        return found
    if not (found.outcome.trustworthy and loo_holds(found, table.some_rows(check))):
        return None
    return found


def loo_holds(found: Fit, others: Table) -> bool:
    """Whether the loss on other samples is no larger than the leave-one-out loss, but for chance."""
    weights = weights_of(found.solution, found.table)
    channel = found.solution.problem.channel.predictive()
    log_proba = channel.log_proba(
        weights.scores(others.standardized), weights.score_variances(others.standardized)
    )
    left_out, weight = found.solution.loo_log_densities(), found.solution.problem.label_weight
    expected, expected_error = mean_and_error(left_out, weight)
    reached, error = mean_and_error(others.log_density(log_proba), others.sample_weight)
    return expected - reached <= HONEST_STANDARD_ERRORS * float(np.hypot(error, expected_error))
