"""The features: probability, weight, interval, and the twins that could stand in for each."""

from __future__ import annotations

from typing import Any

import numpy as np

from foldless.plots.readings import NORMAL_90
from foldless.report.subject import Subject
from foldless.report.wording import probability, signed
from foldless.selection.marginal import q_values

MOST_SELECTED = 100
RUNNERS_UP = 10
MOST_DIFFERING = 20
# With nothing selected, the head of the ranking.
MOST_RANKED = 20
MOST_TWINS_NAMED = 6


def feature_groups(subject: Subject) -> list[tuple[str, list[dict[str, Any]]]]:
    """Selected features, then the next most probable; of an empty selection the head of the ranking."""
    chosen, kept = subject.selected, subject.kept
    others = subject.free_ranking[~np.isin(subject.free_ranking, chosen)]
    n_others = MOST_RANKED if not chosen.size else RUNNERS_UP
    if subject.inclusion is None:
        n_others = 0  # what is not used has weight zero: no ranking
    twins = _twins(subject)
    status = {int(j): "selected" for j in chosen} | {int(j): "kept" for j in kept}
    shown = [*kept, *chosen[:MOST_SELECTED], *others[:n_others]]
    rows = [_row(subject, int(j), status.get(int(j), "not selected"), twins) for j in shown]
    groups = [
        (heading, [row for row in rows if row["status"] == which])
        for which, heading in (
            ("kept", "kept in the model whatever the data say"),
            ("selected", "selected" if subject.inclusion is not None else "in use"),
            (
                "not selected",
                "next, not selected" if chosen.size else "the head of the ranking, not selected",
            ),
        )
    ]
    return [group for group in groups if group[1]]


def differing_rows(subject: Subject) -> list[dict[str, Any]]:
    """Features by themselves: those that differ most between the classes."""
    sums = subject.summary.class_sums
    if sums is None:
        return []
    shown = subject.differing[:MOST_DIFFERING]
    difference, p, q = sums.difference, sums.p_value, q_values(sums.p_value)
    return [
        {
            "name": subject.feature(int(j)),
            "description": subject.description(int(j)),
            "higher": subject.classes[int(sums.means[j].argmax())],
            "difference": f"{abs(float(difference[j])):.2f}",
            "p": f"{float(p[j]):.1e}",
            "q": f"{float(q[j]):.1e}",
            "probability": "" if subject.inclusion is None else probability(float(subject.inclusion[j])),
        }
        for j in shown
    ]


def _row(subject: Subject, j: int, status: str, twins: dict[int, str]) -> dict[str, Any]:
    """One line of the table; empty strings for what a model lacks."""
    weights = subject.weights
    line = int(weights.largest[j])
    weight = float(weights.mean[line, j])
    interval = ""
    if weights.std is not None:
        reach = NORMAL_90 * float(weights.std[line, j])
        interval = f"{signed(weight - reach)} to {signed(weight + reach)}"
    p = None if subject.inclusion is None else float(subject.inclusion[j])
    return {
        "name": subject.feature(j),
        "description": subject.description(j),
        "status": status,
        "probability": "" if p is None else ("kept" if status == "kept" else probability(p)),
        "share": 0.0 if p is None else p,
        "towards": _towards(subject, line, weight),
        "weight": signed(weight),
        "interval": interval,
        "twins": twins.get(j, ""),
    }


def _towards(subject: Subject, line: int, weight: float) -> str:
    """Of two classes the one that larger values speak for; of more, the class the weight is of."""
    if weight == 0:
        return ""
    return subject.classes[int(weight > 0)] if subject.two else subject.classes[line]


def _twins(subject: Subject) -> dict[int, str]:
    """For each feature of a group of several, the others."""
    found = {}
    for each in subject.summary.groups or ():
        columns = [int(j) for j in each.columns]
        for j in columns:
            others = [subject.feature(k) for k in columns if k != j]
            more = f" and {len(others) - MOST_TWINS_NAMED} more" if len(others) > MOST_TWINS_NAMED else ""
            if others:
                found[j] = ", ".join(others[:MOST_TWINS_NAMED]) + more
    return found
