"""How the model was chosen: what was decided and why, what ran, and what was learnt from the data."""

from __future__ import annotations

from itertools import groupby
from typing import NamedTuple

from foldless.problem import Outcome
from foldless.report.subject import Subject
from foldless.report.wording import counted, named, plural
from foldless.tuning.record import PURPOSES, Record


class RunRow(NamedTuple):
    """Runs of one kind, one after another."""

    model: str
    purpose: str
    solver: str
    runs: str
    iterations: str
    ended: str
    used: bool  # the answer goes back to them


def said(subject: Subject) -> list[str]:
    summary = subject.summary
    found = [f"The estimator is {summary.name}.", *(sentence.text for sentence in summary.method)]
    if len(summary.generative_path) > 1:
        found.append(
            "The generative weight is how far the likelihood also models features given the class (0: not "
            "at all; 1: class means are trusted fully)."
        )
    return found


def run_rows(record: Record) -> list[RunRow]:
    """What ran, in order; runs of one kind that follow each other are one row."""
    found = []
    for (model, purpose, solver, used), group in groupby(
        record.all, lambda run: (run.model, run.purpose, run.solver, run.used)
    ):
        runs = list(group)
        ended = dict.fromkeys(str(run.outcome) for run in runs)
        n_iter = sum(run.n_iter for run in runs)
        row = RunRow(
            model.replace("-", " "),
            PURPOSES[purpose],
            solver,
            counted(len(runs)),
            counted(n_iter) if n_iter else "",
            ", ".join(ended),
            used,
        )
        found.append(row)
    return found


ENDED = {Outcome.BUDGET: "reached its limit of iterations", Outcome.INTERRUPTED: "was interrupted"}


def convergence(subject: Subject) -> list[str]:
    """How the iteration ended, in sentences; nothing if the estimator does not iterate."""
    outcome, n_iter = subject.summary.outcome, subject.summary.n_iter
    if n_iter is None:
        return []
    if outcome is None:
        return [f"The fit took {plural(n_iter, 'iteration')}."]
    ended = ENDED.get(outcome, str(outcome))
    said = [f"The fit {ended} after {plural(n_iter, 'iteration')}. {outcome.advice}"]
    if subject.summary.history is None:
        said.append("The course of single iterations is not part of this model.")
    return said


def data_steps(subject: Subject) -> list[str]:
    """What was done to the data: by the user first, then by the fit."""
    summary = subject.summary
    said = [*subject.steps, summary.columns.text]
    if summary.kernel is not None:
        said.append(f"Features enter through the kernel {named(summary.kernel.name)!r}.")
    if subject.kept.size:
        names = ", ".join(subject.feature(int(j)) for j in subject.kept[:20])
        said.append(f"Kept in the model whatever the data say: {names}.")
    if summary.class_weight is not None:
        said.append(f"Classes were weighted: {named(summary.class_weight)}.")
    if subject.by_groups:
        groups = "groups" if subject.n_groups is None else plural(subject.n_groups, "group")
        said.append(f"Samples belong to {groups}, and a group is left out as a whole.")
    if subject.loo_error is not None:
        said.append("No sample was set aside: errors on this page are from leave-one-out.")
    return said
