"""What ran in a fit, written down by wrappers around solvers and steps, without its plan and its record."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from foldless.channels import Blended, BlendedMultinomial, Channel, FlippedLabels, Pinned
from foldless.estimators._base import MessagePassingClassifier
from foldless.operators import Standardized
from foldless.operators.whitened import Whitening
from foldless.priors import Blocks, Prior, Ridged
from foldless.problem import Outcome
from foldless.solvers import EP, informed_ridges
from foldless.tuning.table import Table


@dataclass(frozen=True)
class Ran:
    """One run of an iterative solver."""

    solver: str
    prior: str
    channel: str
    blend: float  # the generative weight; 0 without a blend
    tuner: str
    before: dict[str, Any]  # parameters of prior and channel
    after: dict[str, Any]
    fresh: bool  # without a state of an earlier run to go on from
    rows: int
    matrix: tuple[int, float]  # what tells the columns as they were counted from others
    trustworthy: bool
    steps: tuple[str, ...]  # within which of STEPS

    @property
    def moved(self) -> set[str]:
        return {name for name, value in self.after.items() if value != self.before[name]}


def _fingerprint(operator: Any) -> tuple[int, float]:
    n_columns = operator.shape[1]
    return n_columns, round(float(np.linalg.norm(operator.scores(np.ones(n_columns)))), 6)


@dataclass
class Trace:
    runs: list[Ran] = field(default_factory=list)
    calls: list[tuple[str, Any, Any]] = field(default_factory=list)  # name, arguments, what was returned
    steps: list[str] = field(default_factory=list)

    def of(self, name: str) -> list[tuple[str, Any, Any]]:
        return [call for call in self.calls if call[0] == name]

    def count(self, *names: str) -> int:
        return sum(len(self.of(name)) for name in names)

    def sparse(self) -> list[Ran]:
        """Without ridges, which have a Gaussian prior beside another."""
        kinds = {run.prior for run in self.runs}
        return [run for run in self.runs if run.prior != "Gaussian" or kinds == {"Gaussian"}]

    def ridges(self) -> list[Ran]:
        return [run for run in self.runs if run not in self.sparse()]


def inner_prior(prior: Prior) -> Prior:
    while isinstance(prior, Blocks | Ridged):
        prior = prior.base
    return prior


def inner_channel(channel: Channel) -> tuple[Channel, float]:
    """Without the wrappers of the assembly, and the weight of a blend."""
    if isinstance(channel, Pinned):
        return inner_channel(channel.base)
    if isinstance(channel, Blended | BlendedMultinomial):
        return channel.base, channel.generative_weight
    if isinstance(channel, FlippedLabels):
        base, blend = inner_channel(channel.base)
        return replace(channel, base=base), blend
    return channel, 0.0


def name_of(channel: Channel) -> str:
    name = type(channel).__name__
    return f"{name}({name_of(channel.base)})" if isinstance(channel, FlippedLabels) else name


def values_of(prior: Prior, channel: Channel) -> dict[str, Any]:
    found = {f"prior__{k.replace('base__', '')}": v for k, v in inner_prior(prior).get_params().items()}
    found |= {
        f"channel__{k.replace('base__', '')}": v for k, v in inner_channel(channel)[0].get_params().items()
    }
    return {k: v for k, v in found.items() if isinstance(v, int | float | tuple)}


# Steps that runs can be part of, and calls that are written down: where they are looked up.
STEPS = {
    "finish": "foldless.tuning.path.finished",
    "integrate": "foldless.tuning.models.sparse.integrated",
    "more flips": "foldless.tuning.models.sparse.with_more_flips",
    "relearn": "foldless.tuning.models.sparse.relearnt",
    "sample": "foldless.tuning.models.sparse.fit_some_rows",
    "stack": "foldless.tuning.path.stacked",
    "choose by evidence": "foldless.estimators.ep_bayes_point.fit_by_evidence",
}
CALLS = {
    "stacking weights": "foldless.tuning.portfolio.stacking_weights",
    "kernel EP": "foldless.solvers.informed_ridges.kernel_ep",
    "informed one by one": "foldless.solvers.informed_ridges._one_by_one",
    "informed by groups": "foldless.solvers.informed_ridges._by_groups",
    "Newton": "foldless.tuning.models.ridges.multinomial_ridge",
    "ridge of several classes": "foldless.tuning.models.ridges._several_classes",
    "primal EP": "foldless.tuning.models.ridges.ridge_ep",
    "few columns": "foldless.tuning.models.sparse.solve_few",
    "ridges one by one": "foldless.tuning.models.ridges.leave_one_out",
    "ridges in sets": "foldless.tuning.models.ridges.leave_one_out_in_sets",
    "ridges along own scores": "foldless.tuning.models.ridges.leave_one_out_along_own",
    "ridges by groups": "foldless.tuning.models.ridges.leave_groups_out",
    "settled without each": "foldless.tuning.models.sparse.answered",
    "groups left out": "foldless.tuning.portfolio.left_out_groups",
    "permutations": "foldless.estimators._base.p_value_of",
    "loss test": "foldless.estimators._base.p_value_of_losses",
    "joint posterior": "foldless.estimators.classifier.joint_candidates",
    "beside correlated": "foldless.estimators.classifier.conditional_inclusion",
    "penalised fit": "foldless.solvers.smlr.rate.fit",
    "alo": "foldless.estimators.smlr.by_leave_one_out",
    "cv": "foldless.estimators.smlr.by_folds",
    "bayes": "foldless.estimators.smlr.by_integration",
    "bound": "foldless.estimators.smlr.by_criterion",
    "approximate leave-one-out": "foldless.estimators.smlr.NewtonLOO",
    "approximate leave-one-out on the path": "foldless.solvers.smlr.rate.NewtonLOO",
    "knapsacks": "foldless.estimators.bayes_point.fit_knapsack",
    "knapsack folds": "foldless.solvers.knapsack.settings.left_out_margins",
    "relevance": "foldless.estimators.baselines.relevance",
    "one-bit": "foldless.estimators.baselines.one_bit_weights",
}


@contextmanager
def traced(spoilt: tuple[Any, ...] | None = None) -> Iterator[Trace]:
    """Write down what runs inside; runs of a `spoilt` solver are made to end as though they had diverged."""
    trace = Trace()
    with pytest.MonkeyPatch.context() as patch:
        for step, where in STEPS.items():
            _wrap(patch, where, lambda real, step=step: _step(trace, step, real))
        for name, where in CALLS.items():
            _wrap(patch, where, lambda real, name=name: _call(trace, name, real))
        # Fits without groups are others than the one that is told of.
        refits = "foldless.estimators.classifier.with_groups_left_out"
        _wrap(patch, refits, lambda real: _apart(trace, "sets of groups", real))
        _wrap(patch, "foldless.tuning.record.solve", lambda real: _solve(trace, real, spoilt))
        publish, in_units = MessagePassingClassifier._publish, Table.in_units
        patch.setattr(
            MessagePassingClassifier,
            "_publish",
            lambda self, result, weight: (
                trace.calls.append(("result", None, result)),
                publish(self, result, weight),
            ),
        )
        patch.setattr(
            Table,
            "in_units",
            lambda self, unit: (
                trace.calls.append(("units", None, unit is not None)),
                in_units(self, unit),
            )[1],
        )
        patch.setattr(EP, "from_ridge", _call(trace, "from ridge", EP.from_ridge))
        for kind, method in ((Standardized, "fit"), (Whitening, "fit"), (informed_ridges._Kernels, "of")):
            real = getattr(kind, method)
            patch.setattr(kind, method, staticmethod(_call(trace, f"{kind.__name__}.{method}", real)))
        yield trace


def _wrap(patch: pytest.MonkeyPatch, where: str, wrapped: Callable[[Any], Any]) -> None:
    module, _, name = where.rpartition(".")
    patch.setattr(where, wrapped(getattr(import_module(module), name)))


def _call(trace: Trace, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    def called(*args: Any, **kwargs: Any) -> Any:
        found = real(*args, **kwargs)
        trace.calls.append((name, (args, kwargs), found))
        return found

    return called


def _apart(trace: Trace, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    def called(*args: Any, **kwargs: Any) -> Any:
        runs, calls = len(trace.runs), len(trace.calls)
        found = real(*args, **kwargs)
        del trace.runs[runs:], trace.calls[calls:]
        trace.calls.append((name, (args, kwargs), found))
        return found

    return called


def _step(trace: Trace, step: str, real: Callable[..., Any]) -> Callable[..., Any]:
    def stepped(*args: Any, **kwargs: Any) -> Any:
        trace.steps.append(step)
        found = real(*args, **kwargs)
        trace.steps.pop()
        trace.calls.append((step, (args, kwargs), found))
        return found

    return stepped


def _solve(trace: Trace, real: Callable[..., Any], spoilt: tuple[Any, ...] | None) -> Any:
    def solved(problem: Any, solver: Any, *, tuner: Any = None, state: Any = None, **more: Any) -> Any:
        name = type(solver).__name__
        # By contract the rule is max-sum only where a solver has rules.
        name += " (max-sum)" if vars(solver).get("rule") == "max-sum" else ""
        solution = real(problem, solver, tuner=tuner, state=state, **more)
        name += ", variances held" if vars(solution.state).get("frozen") is not None else ""
        prior, (channel, blend) = inner_prior(problem.prior), inner_channel(problem.channel)
        sparse = type(prior).__name__ != "Gaussian"
        fresh = state is None or any(state is start for _, _, start in trace.of("from ridge"))
        first = not any(run.prior == type(prior).__name__ for run in trace.runs)
        run_as = name, tuner is not None, fresh, first
        if (
            spoilt
            and sparse
            and all(asked in (None, own) for asked, own in zip(spoilt, run_as, strict=False))
        ):
            solution = replace(solution, outcome=Outcome.DIVERGED)
        run = Ran(
            name,
            type(prior).__name__,
            name_of(channel),
            blend,
            "" if tuner is None else type(tuner).__name__,
            values_of(problem.prior, problem.channel),
            values_of(solution.problem.prior, solution.problem.channel),
            fresh,
            int(problem.labels.shape[0]),
            _fingerprint(problem.operator),
            bool(solution.outcome.trustworthy),
            tuple(trace.steps),
        )
        trace.runs.append(run)
        return solution

    return solved
