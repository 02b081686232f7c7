"""What runs is what is said: every sentence of the methods text against a trace of the fit.

A sentence carries its claims. `CHECKS` has, for every kind of claim, what it must be by the trace, the data
and the published numbers; `must_be_said` has, from the trace, what no text may leave out.
"""

from __future__ import annotations

import re
import warnings
from functools import cache
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score
from sklearn.metrics.pairwise import rbf_kernel

from foldless.references import references
from foldless.report.methods import methods
from foldless.report.subject import Subject
from foldless.selection.groups import JointPosterior
from foldless.solvers.ep import EPState
from foldless.solvers.gamp import GAMPState
from foldless.tuning.plan import CHANCE
from report.fits import CASES, Case
from report.trace import Ran, Trace, traced, values_of

PLAIN_VARIANCE = 4.0


class Fitted:
    """A case, fitted on the record of a trace."""

    def __init__(self, case: Case) -> None:
        self.case, self.model = case, case.model()
        self.X, self.y, self.groups = case.data()
        more = {} if self.groups is None else {"groups": self.groups}
        with warnings.catch_warnings(), traced(case.spoilt) as self.trace:
            warnings.simplefilter("ignore")
            for _ in range(case.fits):
                self.model.fit(self.X, self.y, **more)
        self.text = methods(Subject(self.model, y=self.y, groups=self.groups))
        self.sentences = [sentence for paragraph in self.text.sentences for sentence in paragraph]
        self.claims = [claim for sentence in self.sentences for claim in sentence.claims]

    def claimed(self, kind: str) -> list[Any]:
        return [value for name, value in self.claims if name == kind]

    # ------------------------------------------------------------------ what the trace says

    @property
    def result(self) -> Any:
        return self.trace.of("result")[-1][2]

    @property
    def of_all_rows(self) -> list[Ran]:
        return [run for run in self.trace.sparse() if run.rows >= len(self.y) and "sample" not in run.steps]

    @property
    def before_finish(self) -> list[Ran]:
        return [run for run in self.of_all_rows if "finish" not in run.steps]

    @property
    def polish(self) -> list[Ran]:
        return [run for run in self.of_all_rows if run.steps == ("finish",)]

    @property
    def neighbours(self) -> list[Ran]:
        """Of the last fit, where there were two."""
        runs = self.of_all_rows
        begun = max(n for n, run in enumerate(runs) if "finish" not in run.steps)
        return [run for run in runs[begun:] if "integrate" in run.steps and run.trustworthy]

    @property
    def more_flips(self) -> list[Ran]:
        return [run for run in self.of_all_rows if "more flips" in run.steps and run.trustworthy]

    @property
    def relearnt(self) -> int:
        """Parts without which parameters were learnt, and all rows settled; of the last fit."""
        last = max(n for n, run in enumerate(self.trace.runs) if "finish" not in run.steps)
        return sum("relearn" in run.steps for run in self.trace.runs[last:]) // 2

    @property
    def answer(self) -> Ran:
        """The last run before exact covariances that ended at the parameters that were published."""
        final = self.final
        if self.neighbours:
            final = {name: value for name, value in final.items() if name != "channel__flip_prob"}
        alike = [run for run in self.before_finish if all(run.after[k] == v for k, v in final.items())]
        blend = self.model.generative_weight_
        return [run for run in alike if run.blend == blend][-1]

    @property
    def final(self) -> dict[str, Any]:
        return values_of(self.model.prior_, self.model.channel_)

    @property
    def began(self) -> Ran:
        """Where the parameters of the answer began."""
        runs = self.trace.sparse()
        last = len(runs) - 1 - runs[::-1].index(self.answer)
        return [run for run in runs[: last + 1] if run.fresh and run.solver == self.answer.solver][-1]

    @property
    def learnt(self) -> set[str]:
        if self.trace.count("choose by evidence"):
            return {
                name for _, _, (fit, _) in self.trace.of("choose by evidence") for name in self._moved(fit)
            }
        begun, ended = self.began.before, self.answer.after
        return {name for name in ended if ended[name] != begun[name]}

    def _moved(self, fit: Any) -> set[str]:
        ended = values_of(fit.prior, fit.channel)
        return {n for run in self.trace.runs if run.after == ended for n in run.moved}

    @property
    def from_plain(self) -> bool:
        return self.began.before.get("prior__slab__variance") == PLAIN_VARIANCE

    @property
    def judged_differs(self) -> bool:
        judged, selects = self.result.unfinished.judged, self.result.sparse.solution
        return not np.array_equal(judged.posterior.mean, selects.posterior.mean)

    def excess(self) -> float:
        """The largest eigenvalue within classes over the edge for independent columns, by NumPy."""
        X = self.X - np.array([self.X[self.y == label].mean(axis=0) for label in self.y])
        X = X[:, X.std(axis=0) > 0] / X.std(axis=0)[X.std(axis=0) > 0]
        (n, p), k = X.shape, len(np.unique(self.y))
        edge = n / (n - k) * (1 + np.sqrt((n - k) / p)) ** 2
        return float(np.linalg.eigvalsh(X @ X.T / p)[-1] / edge)

    def cost(self) -> float:
        small, large = sorted(self.X.shape)
        n_classes = len(np.unique(self.y))
        return float(small**2 * (large + small)) * (n_classes if n_classes > 2 else 1)


# ---------------------------------------------------------------------- what a claim must be


def reason(fitted: Fitted, code: str) -> bool:
    budget = fitted.model._budget
    return {
        "correlated": lambda: fitted.excess() > 1.25,
        "independent": lambda: fitted.excess() < 1.25,
        "mostly-zeros": lambda: np.median(np.mean(fitted.X != 0, axis=0)) < 0.1,
        "too-large": lambda: fitted.cost() > budget.exact,
        "groups": lambda: fitted.groups is not None and groups_left_out(fitted),
        "groups-in-sets": lambda: fitted.groups is not None and sets_left_out(fitted),
        "flips": lambda: "channel__flip_prob" in fitted.answer.after,
        "alone": lambda: not fitted.trace.count("stack", "kernel EP", "primal EP", "Newton"),
        "many-rows": lambda: any(run.rows < len(fitted.y) for run in fitted.trace.runs),
        "in-sets": lambda: fitted.trace.count("ridges in sets") > 0,
        "along-own-scores": lambda: fitted.trace.count("ridges along own scores") > 0,
        "primal": lambda: fitted.trace.count("primal EP") > 0,
        # Of blends only; what is polished has cavities of exact covariances.
        "left-out-answers": lambda: bool(
            fitted.trace.count("settled without each") or not fitted.answer.blend
        ),
        "relearnt": lambda: bool(fitted.trace.count("relearn") or not fitted.answer.blend),
        "from-ridge": lambda: fitted.trace.count("from ridge") > 0,
        "few-columns": lambda: fitted.trace.count("few columns") > 0,
        "requested": lambda: not (fitted.trace.count("stack") or fitted.polish),
    }[code]()


def groups_left_out(fitted: Fitted) -> bool:
    return fitted.trace.count("groups left out") > 0


def sets_left_out(fitted: Fitted) -> bool:
    return fitted.trace.count("sets of groups") > 0


def groups_of_several(fitted: Fitted) -> int:
    """What the joint posterior that was made has, if left-out labels show that there is something."""
    made = fitted.trace.of("joint posterior")
    if not made or fitted.model.p_value_ > CHANCE:
        return 0
    singles = [group for group in fitted.model.groups_ if group.columns.size == 1]
    return len(JointPosterior.of(made[-1][2]).groups(1.0 - fitted.model.fdr, singles))


def dense_fits(trace: Trace) -> tuple[int, int]:
    """Dense models that were fitted, and that settled."""
    if trace.count("kernel EP"):
        # Fits that start from others are repeated without a group.
        found = [fits.converged for _, (given, _), fits in trace.of("kernel EP") if len(given) == 5]
        return sum(map(len, found)), int(sum(map(np.sum, found)))
    if trace.count("primal EP"):
        return trace.count("primal EP"), sum(fit.converged for _, _, fit in trace.of("primal EP"))
    if trace.count("Newton"):
        # Newton's method may run once more, for where the sparse model begins.
        found = [ridge.converged for _, _, (ridge, _) in trace.of("ridge of several classes")]
        return len(found), sum(found)
    recipes = {(run.before["prior__variance"], run.channel): False for run in trace.ridges()}
    for run in trace.ridges():
        recipes[run.before["prior__variance"], run.channel] |= run.trustworthy
    return len(recipes), sum(recipes.values())


def dense_codes(trace: Trace) -> set[str]:
    if trace.count("kernel EP"):
        codes = ("ridge", "informed", "strongly-informed")
        return {codes[ridge.exponent] for _, (args, _), _ in trace.of("_Kernels.of") for ridge in args[2]}
    return {"ridge"}


def dense_solver(trace: Trace) -> str:
    for name in ("kernel EP", "primal EP", "Newton"):
        if trace.count(name):
            return name
    (solver,) = {run.solver for run in trace.ridges()}
    return solver


def averaged(fitted: Fitted) -> int:
    calls = fitted.trace.of("stack")
    return len(calls[-1][1][0][0]) if calls else 1


def sparse_weight(fitted: Fitted) -> float:
    parts = fitted.trace.of("stack")[-1][2].average.parts
    return round(sum(part.weight for part in parts if part.code == "sparse"), 2)


def columns(fitted: Fitted) -> str:
    """What was done to columns, by the numbers the model standardises new samples with."""
    X, kept = fitted.X, vars(fitted.model)
    if fitted.trace.count("relevance"):
        given = fitted.trace.of("relevance")[-1][1][0][0]
        on = X if fitted.model.kernel is None else rbf_kernel(X, X, fitted.model.gamma)
        return "as they are" if np.array_equal(given[:, : on.shape[1]], on) else "changed"
    if "_scale" not in kept:
        # Without such numbers: whether units of columns matter.
        factor = np.geomspace(0.1, 10.0, X.shape[1])
        other = type(fitted.model)(**fitted.model.get_params()).fit(X * factor, fitted.y)
        same = np.allclose(other.decision_function(X * factor), fitted.model.decision_function(X))
        return "standardised" if same else "as they are"
    scale = kept["_scale"]
    if np.all(scale == 1.0):
        return "as they are"
    if len(set(scale)) == 1:
        return "centred"
    if kept.get("kernel") is not None and "basis_" in kept:
        return "standardised" if fitted.trace.count("Standardized.fit") else "as they are"
    ratio = scale[X.std(axis=0) > 0] / X.std(axis=0)[X.std(axis=0) > 0]
    return "standardised" if np.allclose(ratio, ratio[0]) else "robust"


def ridges_left_out(fitted: Fitted) -> str:
    found = [
        by
        for by in ("groups", "one by one", "in sets", "along own scores")
        if fitted.trace.count("ridges by groups" if by == "groups" else f"ridges {by}")
    ]
    return found[0] if found else "nothing"


def penalties(trace: Trace) -> set[str]:
    names = {"L1": "l1", "Ridge": "l2", "RowGroups": "group", "NoPenalty": "none"}
    return {names[type(args[1]).__name__] for _, (args, _), _ in trace.of("penalised fit")}


def algorithms(trace: Trace) -> set[str]:
    return {kwargs["algorithm"] for _, (_, kwargs), _ in trace.of("penalised fit")}


def rate_by(trace: Trace) -> str:
    tunings = [name for name in ("alo", "cv", "bayes", "bound") if trace.count(name)]
    if tunings:
        (found,) = tunings
        return found
    return "none" if penalties(trace) == {"none"} else "given"


def rates(trace: Trace) -> int:
    tuned = [found for name in ("alo", "cv", "bayes", "bound") for _, _, found in trace.of(name)]
    return len(tuned[-1].rates) if tuned else 0


def folds(fitted: Fitted) -> int:
    if fitted.trace.count("cv"):
        return int(fitted.trace.of("cv")[-1][1][0][2])
    assert fitted.trace.count("knapsack folds")
    return int(fitted.model.n_folds)


def used_kernel(fitted: Fitted) -> bool:
    return (
        np.shape(fitted.model.coef_)[1] != fitted.X.shape[1] or vars(fitted.model).get("_basis") is not None
    )


def pairs(trace: Trace) -> int:
    tried = {(run.matrix, run.before["prior__density"], *_noise(run)) for run in trace.runs}
    return len(tried)


def _noise(run: Ran) -> tuple[Any, ...]:
    return run.before.get("channel__noise"), run.before.get("channel__flip_prob")


def start(fitted: Fitted) -> str:
    return "plain parameters" if fitted.from_plain else "class means"


def average_at(fitted: Fitted) -> str:
    judged = fitted.result.unfinished.judged
    if isinstance(judged.state, GAMPState) and isinstance(fitted.result.sparse.solution.state, EPState):
        return "message passing"
    plain = values_of(judged.problem.prior, judged.problem.channel)["prior__slab__variance"]
    return "plain" if plain == PLAIN_VARIANCE else "tuned"


def solvers(fitted: Fitted) -> set[str]:
    if fitted.trace.count("choose by evidence"):
        return {run.solver for run in fitted.trace.runs}
    return {fitted.answer.solver}


def channels(fitted: Fitted) -> set[str]:
    if fitted.trace.count("choose by evidence"):
        from report.trace import name_of

        return {name_of(fit.channel) for _, _, (fit, _) in fitted.trace.of("choose by evidence")}
    return {fitted.answer.channel}


def priors(fitted: Fitted) -> set[str]:
    return {run.prior for run in fitted.trace.sparse()}


def tuned_by(fitted: Fitted) -> set[str]:
    """SURE learns the rate; EM may have learnt what else there is beside it."""
    tuners = {run.tuner for run in fitted.trace.sparse() if run.tuner}
    if tuners != {"SureRate"}:
        return {"em"}
    return {"sure" if name == "prior__rate" else "em" for name in fitted.learnt}


def blends(fitted: Fitted) -> set[float]:
    """Generative weights of fits that began where the answer's did."""
    if fitted.from_plain:
        return {0.0}
    return {run.blend for run in fitted.trace.sparse() if run.tuner and "finish" not in run.steps}


def n_points(fitted: Fitted) -> int:
    return fitted.trace.count("choose by evidence", "knapsacks")


def settings(fitted: Fitted) -> int:
    return sum(len(found.settings) for _, _, found in fitted.trace.of("knapsacks"))


def auc_at_all_frequencies(f: Fitted) -> float:
    """Of left-out log-odds, with what a class lacks without its sample put back; groups have it already."""
    second = f.y == f.model.classes_[1]
    proba = f.model.loo_proba_.astype(float)
    log_odds = np.log(proba[:, 1]) - np.log(proba[:, 0])
    if f.groups is None:
        n = np.where(second, second.sum(), (~second).sum())
        log_odds += np.where(second, 1.0, -1.0) * np.log((n + 1) / n)
    return float(roc_auc_score(second, log_odds))


# Kind of claim: whether a value of it is true of the fit.
CHECKS: dict[str, Any] = {
    "samples": lambda f, v: v == len(f.y),
    "classes": lambda f, v: v == len(np.unique(f.y)),
    "features": lambda f, v: v == f.X.shape[1],
    "columns": lambda f, v: v == columns(f),
    "prior": lambda f, v: {v} == priors(f),
    "channel": lambda f, v: v in channels(f),
    "reason": reason,
    "some rows": lambda f, v: (
        (v == "used") == any(r.rows < len(f.y) for r in f.trace.runs) and f.trace.count("sample") > 0
    ),
    "solver": lambda f, v: {v} == solvers(f),
    "did not settle": lambda f, v: any(r.solver == v and not r.trustworthy for r in f.of_all_rows),
    "start": lambda f, v: v == start(f),
    "generative weight": lambda f, v: v == f.answer.blend,
    "weights compared": lambda f, v: v == (len(blends(f)) > 1),
    "learnt": lambda f, v: v in f.learnt if v else not f.learnt,
    "learnt by": lambda f, v: v in tuned_by(f),
    "tuning tried": lambda f, v: v == any(r.tuner == "EM" for r in f.before_finish),
    "polished": lambda f, v: (
        {v} == {r.solver for r in f.polish} and isinstance(f.result.sparse.solution.state, EPState)
    ),
    "unblended": lambda f, v: {v} == {r.solver for r in f.polish} and f.answer.blend > 0,
    "beside correlated": lambda f, v: v == (f.trace.count("beside correlated") > 0),
    "relearnt": lambda f, v: v == f.relearnt > 0,
    "weights instead": lambda f, v: {v} == {r.solver for r in f.polish} and f.answer.blend == 0,
    "integrated": lambda f, v: v == len(f.neighbours) > 0,
    "more flips": lambda f, v: {v} == {r.solver for r in f.more_flips},
    "dense": lambda f, v: v in dense_codes(f.trace),
    "dense solver": lambda f, v: v == dense_solver(f.trace),
    "dense fits": lambda f, v: v == dense_fits(f.trace)[0],
    "dense settled": lambda f, v: v == dense_fits(f.trace)[1],
    "per occurrence": lambda f, v: v == any(found for _, _, found in f.trace.of("units")),
    "averaged": lambda f, v: v == averaged(f) == len(f.model.models_),
    "weight of the sparse model": lambda f, v: v == sparse_weight(f),
    "average at": lambda f, v: v == average_at(f),
    "selected": lambda f, v: v == f.model.get_support().sum() - len(f.claimed("kept")),
    "kept": lambda f, v: v == len(f.model.always_keep),
    "groups": lambda f, v: v == groups_of_several(f),
    "left out": lambda f, v: (
        (v == "groups") == groups_left_out(f) and (v == "sets of groups") == sets_left_out(f)
    ),
    "left out by": lambda f, v: (
        (v == "approximation")
        == (f.trace.count("approximate leave-one-out", "approximate leave-one-out on the path") > 0)
    ),
    "ridges left out": lambda f, v: v == ridges_left_out(f),
    "informed without": lambda f, v: (
        # Once for the planned ridges, and once for each that is wider.
        f.trace.count({"groups": "informed by groups", "samples": "informed one by one"}[v])
        == 1
        + sum(
            recipe.name in {share.name for share in f.model.models_} for recipe in f.model.plan_.dense.wider
        )
    ),
    "error": lambda f, v: v == pytest.approx(np.mean(f.model.classes_[f.model.loo_proba_.argmax(1)] != f.y)),
    "log loss": lambda f, v: (
        v == pytest.approx(-np.mean(np.log(f.model.loo_proba_[f.y[:, None] == f.model.classes_])), rel=1e-5)
    ),
    "AUC": lambda f, v: v == pytest.approx(auc_at_all_frequencies(f), abs=1e-3),
    "p value": lambda f, v: v == f.model.p_value_,
    "p value by": lambda f, v: f.trace.count({"permutation": "permutations", "losses": "loss test"}[v]) > 0,
    "penalty": lambda f, v: {v} == penalties(f.trace),
    "algorithm": lambda f, v: {v} == algorithms(f.trace),
    "kernel": lambda f, v: v == used_kernel(f),
    "rate by": lambda f, v: v == rate_by(f.trace),
    "rates": lambda f, v: v == rates(f.trace),
    "folds": lambda f, v: v == folds(f),
    "against the rest": lambda f, v: v == n_points(f),
    "channels compared": lambda f, v: v == len(f.trace.runs) / n_points(f),
    "knapsacks": lambda f, v: v == (f.trace.count("knapsacks") > 0),
    "settings": lambda f, v: v == settings(f),
    "pairs": lambda f, v: v == pairs(f.trace),
    # Once for every table that was compared: with and without an intercept.
    # Once for each scale of columns, whether there is an intercept beside them or not.
    "whitened": lambda f, v: (
        v is not None and f.trace.count("Whitening.fit") == 1 + (f.model.standardize == "loo")
    ),
    "relevance": lambda f, v: v in (len(f.trace.of("relevance")[-1][2][0]) - np.arange(2)),
    "one-bit": lambda f, v: v == f.trace.of("one-bit")[-1][1][0][1],
}


def must_be_said(fitted: Fitted) -> list[tuple[str, Any]]:
    """What the trace has that no text may leave out."""
    trace, found = fitted.trace, []
    if trace.count("stack"):
        found.append(("averaged", averaged(fitted)))
    if trace.count("kernel EP", "primal EP", "Newton") or trace.ridges():
        found += [("dense", code) for code in dense_codes(trace)]
        found += [("dense solver", dense_solver(trace)), ("dense fits", dense_fits(trace)[0])]
    if any(units for _, _, units in trace.of("units")):
        found.append(("per occurrence", True))
    if ridges_left_out(fitted) != "nothing":
        found.append(("ridges left out", ridges_left_out(fitted)))
    if groups_left_out(fitted) or sets_left_out(fitted):
        found.append(("left out", "groups" if groups_left_out(fitted) else "sets of groups"))
    if trace.count("knapsack folds", "cv"):
        found.append(("folds", folds(fitted)))
    if trace.count("Whitening.fit"):
        found.append(("whitened", fitted.model.whiten))
    if trace.count("beside correlated"):
        found.append(("beside correlated", True))
    if groups_of_several(fitted):
        found.append(("groups", groups_of_several(fitted)))
    if n_points(fitted) > 1:
        found.append(("against the rest", n_points(fitted)))
    if trace.count("result") and not trace.count("Whitening.fit") and priors(fitted) != {"Pruned"}:
        found += _of_the_sparse_model(fitted)
    return found


def _of_the_sparse_model(fitted: Fitted) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = [("learnt", name) for name in fitted.learnt] or [("learnt", None)]
    kinds = ("solver", "did not settle", "polished", "unblended", "weights instead")
    mentioned = {solver for kind in kinds for solver in fitted.claimed(kind)}
    assert {run.solver for run in fitted.trace.sparse()} <= mentioned
    if fitted.neighbours:
        found.append(("integrated", len(fitted.neighbours)))
    if fitted.more_flips:
        found.append(("more flips", "EP"))
    if fitted.answer.blend or len(blends(fitted)) > 1:
        found.append(("generative weight", fitted.answer.blend))
    starts = {
        run.before.get("prior__slab__variance") == PLAIN_VARIANCE for run in fitted.before_finish if run.fresh
    }
    if len(starts) > 1 and not fitted.claimed("did not settle"):
        found.append(("start", start(fitted)))
    if any(run.rows < len(fitted.y) for run in fitted.trace.runs):
        found.append(("some rows", "used"))
    if fitted.trace.count("relearn"):
        found.append(("relearnt", fitted.relearnt))
    if fitted.trace.count("stack") and fitted.judged_differs and sparse_weight(fitted):
        found.append(("average at", average_at(fitted)))
    return found


# ---------------------------------------------------------------------- the tests


@cache
def fitted_case(name: str) -> Fitted:
    return Fitted(CASES[name])


@pytest.mark.parametrize("name", CASES)
def test_every_sentence_is_what_ran(name):
    fitted = fitted_case(name)
    text = " ".join(fitted.text.paragraphs)
    for sentence in fitted.sentences:
        assert sentence.claims, f"a sentence that claims nothing: {sentence.text}"
        for kind, value in sentence.claims:
            assert CHECKS[kind](fitted, value), f"{kind}: {value!r}, in: {sentence.text}"
    for claim in must_be_said(fitted):
        assert claim in fitted.claims, f"{claim} is not said in: {text}"
    for claim in fitted.case.expected:
        assert claim in fitted.claims, f"{name} was to show {claim}: {text}"


def test_cases_make_every_claim():
    """A claim that no case makes would be checked by nothing."""
    made = {kind for name in CASES for kind, _ in fitted_case(name).claims}
    assert set(CHECKS) == made


def test_every_citation_has_its_reference():
    fitted = fitted_case("correlated, wide")
    cited = re.findall(r"[(;] ?([A-Z][\w\- ]+?(?: et al\.)? \d{4})", " ".join(fitted.text.paragraphs))
    assert len(cited) >= 4
    labels = {reference.label for reference in references().values()}
    assert set(cited) <= labels


def test_the_trace_would_notice():
    """Claims that are not so are found: another solver, other parameters, an average that was not."""
    fitted = fitted_case("independent")
    for kind, value in (
        ("solver", "EP"),
        ("reason", "correlated"),
        ("learnt", None),
        ("averaged", 3),
        ("left out", "groups"),
        ("prior", "Laplace"),
        ("integrated", 5),
        ("unblended", "GAMP"),
        ("columns", "as they are"),
        ("generative weight", 0.123),
    ):
        assert not CHECKS[kind](fitted, value), kind
