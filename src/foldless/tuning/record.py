"""What happened in a fit: every run of a solver, what it was for, how it ended, and what to be careful about.

The plan is what was decided before the fit, the record is what came of it. Reports, sentences and flags are
made from these two, never from attributes of estimators or default values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from foldless.problem import Outcome, Problem, Solution
from foldless.registry import registered
from foldless.solvers import Stopping, solve
from foldless.solvers.base import Solver, Tuner
from foldless.solvers.solve import Watch


@registered("record/run")
@dataclass(frozen=True)
class Run:
    """One run of a solver, or one closed-form fit."""

    model: str  # which model of the plan: "sparse", "ridge", "informed"
    purpose: str  # one of PURPOSES
    solver: str  # "GAMP", "EP", "kernel EP", "Newton", ...
    outcome: Outcome
    n_iter: int
    learnt: tuple[str, ...] = ()  # names of parameters that were learnt, such as ``prior__inclusion``
    detail: str = ""  # the generative weight, the recipe, or "plain parameters"
    used: bool = True  # whether the published answer depends on this run


# What a run can be for, in words for readers.
PURPOSES = {
    "sample": "a fit of some of the rows, to start all of them from",
    "search": "a comparison of generative weights",
    "fit": "the fit itself",
    "tune": "tuning by EM from a settled fit",
    "settle": "settling at tuned parameters",
    "polish": "exact covariances, from where message passing ended",
    "integrate": "a neighbour of the parameters, to integrate over them",
    "more flips": "the same with more labels wrong, by which intervals of weights are wider",
    "unblended": "the likelihood alone with a plain slab, whose weights are averaged with, or taken",
    "relearn": "parameters learnt without some samples, which are then left out of the fit at these",
    "fallback": "another solver, where the planned one did not settle",
}
# Purposes of runs that refine an answer without replacing it.
REFINES = ("polish", "integrate", "more flips", "unblended", "relearn")


@registered("record/flag")
@dataclass(frozen=True)
class Flag:
    """A reason to read some numbers with care: a stable code, and a text for readers."""

    code: str
    text: str

    def __str__(self) -> str:
        return self.text


_TEXTS = {
    "not-sparse": (
        "Models with many small weights predict left-out labels clearly better than a sparse one. Inclusion "
        "probabilities assume that few features matter: read them as a ranking."
    ),
    "diagonal-covariances": (
        "Columns are correlated, and the table is too large for exact covariances. Inclusion probabilities "
        "of features that resemble each other may be wrong: read them as a ranking."
    ),
    "fell-back": (
        "The sparse model did not settle with exact covariances and was fitted by message passing instead. "
        "Inclusion probabilities of features that resemble each other may be wrong: read them as a ranking."
    ),
    "fell-back-on-background": (
        "The sparse model as planned did not settle, and was fitted over a background of very many small "
        "weights instead. Features are in where they have an effect beyond that background."
    ),
    "may-be-chance": (
        "Classes differ by no more than labels in another order would: probabilities, weights and "
        "intervals of features may be chance, too, or of effects too many and too small for this table."
    ),
    "unsettled": (
        "The sparse model did not settle, and so nothing is selected. Inclusion probabilities are a ranking "
        "at best."
    ),
    "misled": (
        "Columns are correlated, the sparse model was fitted without exact covariances, and models with many "
        "small weights predict left-out labels clearly better: it blames single features for what many have "
        "in common, and so nothing is selected. Inclusion probabilities are a ranking at best."
    ),
    "narrow-intervals": (
        "Intervals of weights are those of message passing at one set of parameters, since exact covariances "
        "did not settle or would cost too much: they are too narrow, and weights may be too large."
    ),
    "few-columns": (
        "The sparse model was solved over few columns, each of which stands for those that resemble it: read "
        "inclusion probabilities as a ranking."
    ),
}
FLAGS = {code: Flag(code, text) for code, text in _TEXTS.items()}

# With one of these flags nothing is selected: inclusion probabilities do not bound false discoveries then.
SELECT_NOTHING = frozenset(("unsettled", "misled"))


@registered("record/record")
@dataclass(frozen=True)
class Record:
    """The runs of a fit, in order."""

    runs: tuple[Run, ...] = ()
    earlier: tuple[Run, ...] = ()  # those of an earlier fit of the same data, from which this one started

    @property
    def all(self) -> tuple[Run, ...]:
        return self.earlier + self.runs

    def of(self, model: str, *purposes: str) -> tuple[Run, ...]:
        """Runs of a model, of all purposes or of some."""
        return tuple(r for r in self.all if r.model == model and (not purposes or r.purpose in purposes))

    def used(self, model: str) -> tuple[Run, ...]:
        return tuple(r for r in self.of(model) if r.used)

    @property
    def n_iter(self) -> int:
        """Iterations of the sparse model in this fit, over all of its runs but those that only leave out."""
        return sum(run.n_iter for run in self.runs if run.model == "sparse" and run.purpose != "relearn")

    @property
    def learnt(self) -> frozenset[str]:
        """Names of the parameters of the sparse model that were learnt in the runs behind its answer."""
        return frozenset(name for run in self.used("sparse") for name in run.learnt)


@dataclass
class Recorder:
    """Runs solvers, and keeps a note of each run."""

    watch: Watch | None = None
    runs: list[Run] = field(default_factory=list)
    earlier: tuple[Run, ...] = ()

    def solve(
        self,
        problem: Problem,
        solver: Solver[Any],
        *,
        model: str,
        purpose: str,
        stopping: Stopping,
        tuner: Tuner | None = None,
        state: Any = None,
        detail: str = "",
        screened: Callable[[], Solution] | None = None,
    ) -> Solution:
        """The solution by `solvers.solve`, or by the function `screened`, with a note of the run.

        A parameter that the tuner could have changed and has not does not count as learnt.
        """
        if screened is None:
            watch = self.watch if model == "sparse" else None
            solution = solve(problem, solver, stopping=stopping, tuner=tuner, state=state, watch=watch)
            name = solver.name(solution.state)
        else:
            solution, name = screened(), f"{solver.name()}, screened"
        before, after = ({} if tuner is None else tuner.tuned(p) for p in (problem, solution.problem))
        learnt = tuple(sorted(key for key in after if not np.array_equal(after[key], before[key])))
        n_iter = len(solution.history.iterations)
        self.runs.append(Run(model, purpose, name, solution.outcome, n_iter, learnt, detail))
        return solution

    def reject(self, runs: slice) -> None:
        """Note that the answer does not depend on these runs."""
        self.runs[runs] = [replace(run, used=False) for run in self.runs[runs]]

    def record(self) -> Record:
        return Record(tuple(self.runs), self.earlier)
