"""The features: probability, weight, interval, and the twins that could stand in for each."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from foldless.plots.readings import NORMAL_90
from foldless.report.subject import Subject
from foldless.report.wording import probability, signed

MOST_SELECTED = 100
RUNNERS_UP = 10
# With nothing selected, the head of the ranking.
MOST_RANKED = 20
MOST_TWINS_NAMED = 6


class FeatureRow(NamedTuple):
    """One line of the table of features; empty strings for what a model lacks."""

    name: str
    description: str
    status: str  # "selected", "kept", "not selected"
    probability: str
    bar: int  # twentieths of the probability
    towards: str  # the class a larger value speaks for
    weight: str
    interval: str
    twins: str


class SetRow(NamedTuple):
    """A credible set: one of these, with a probability."""

    members: list[tuple[str, str]]  # name and probability of each
    probability: str
    purity: str


class FeatureTable(NamedTuple):
    """The rows by status, and what was left out of them."""

    groups: list[tuple[str, list[FeatureRow]]]
    n_selected_not_shown: int
    has_probability: bool
    has_interval: bool
    has_twins: bool
    has_descriptions: bool


def feature_table(subject: Subject) -> FeatureTable:
    """Selected features, then the next most probable; of an empty selection the head of the ranking."""
    chosen = subject.selected
    kept = subject.kept
    others = subject.free_ranking[~np.isin(subject.free_ranking, chosen)]
    n_others = MOST_RANKED if not chosen.size else RUNNERS_UP
    if subject.inclusion is None:
        n_others = 0  # what is not used has weight zero: no ranking
    twins = _twins(subject)
    status = {int(j): "selected" for j in chosen} | {int(j): "kept" for j in kept}
    shown = [*kept, *chosen[:MOST_SELECTED], *others[:n_others]]
    rows = [_row(subject, int(j), status.get(int(j), "not selected"), twins) for j in shown]
    groups = [
        (heading, [row for row in rows if row.status == which])
        for which, heading in (
            ("kept", "kept in the model whatever the data say"),
            ("selected", "selected" if subject.inclusion is not None else "in use"),
            (
                "not selected",
                "next, not selected" if chosen.size else "the head of the ranking, not selected",
            ),
        )
    ]
    return FeatureTable(
        [group for group in groups if group[1]],
        max(chosen.size - MOST_SELECTED, 0),
        subject.inclusion is not None,
        subject.weights.std is not None,
        any(row.twins for row in rows),
        any(row.description for row in rows),
    )


def _row(subject: Subject, j: int, status: str, twins: dict[int, str]) -> FeatureRow:
    weights = subject.weights
    line = int(weights.largest[j])
    weight = float(weights.mean[line, j])
    interval = ""
    if weights.std is not None:
        reach = NORMAL_90 * float(weights.std[line, j])
        interval = f"{signed(weight - reach)} to {signed(weight + reach)}"
    p = None if subject.inclusion is None else float(subject.inclusion[j])
    return FeatureRow(
        subject.feature(j),
        subject.description(j),
        status,
        "" if p is None else ("kept" if status == "kept" else probability(p)),
        0 if p is None else round(20 * p),
        _towards(subject, line, weight),
        signed(weight),
        interval,
        twins.get(j, ""),
    )


def _towards(subject: Subject, line: int, weight: float) -> str:
    """Of two classes the one that larger values speak for; of more, the class the weight is of."""
    if weight == 0:
        return ""
    return subject.classes[int(weight > 0)] if subject.two else subject.classes[line]


def _twins(subject: Subject) -> dict[int, str]:
    """For each column of a credible set of several, the others."""
    found = {}
    for each in subject.summary.credible_sets or ():
        columns = [int(j) for j in each.columns]
        for j in columns:
            others = [subject.feature(k) for k in columns if k != j]
            more = f" and {len(others) - MOST_TWINS_NAMED} more" if len(others) > MOST_TWINS_NAMED else ""
            if others:
                found[j] = ", ".join(others[:MOST_TWINS_NAMED]) + more
    return found


def credible_sets(subject: Subject) -> list[SetRow]:
    return [
        SetRow(
            [
                (subject.feature(int(j)), probability(float(p)))
                for j, p in zip(each.columns, each.inclusion, strict=True)
            ],
            probability(float(each.probability)),
            "" if each.columns.size == 1 else f"{each.purity:.2f}",
        )
        for each in subject.summary.credible_sets or ()
    ]
