"""The features: probability, weight, interval, and the twins that could stand in for each."""

from __future__ import annotations

from typing import Any

import numpy as np

from foldless.estimators._summary import summary_of
from foldless.estimators.panel import PanelClassifier
from foldless.io import printable
from foldless.plots.readings import NORMAL_90
from foldless.report.subject import Subject
from foldless.report.wording import PERCENT, probability, signed
from foldless.selection.marginal import q_values

MOST_SELECTED = 100
RUNNERS_UP = 10
MOST_DIFFERING = 20
# With nothing selected, the head of the ranking.
MOST_RANKED = 20
MOST_TWINS_NAMED = 3
MOST_IN_GROUP = 20
MOST_PANEL_NAMED = 10


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
            ("not selected", f"{'next' if chosen.size else 'the head of the ranking'}, not selected"),
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


def panel_in_words(panel: PanelClassifier, per_cent: str = " %") -> str:
    """The few that would do, in the order of their importance, and what they lose."""
    members = panel.order_[: len(panel.alternatives_)]
    if not members.size:
        return "No panel of a few features can be told from chance."
    at = next(each for each in panel.path_ if each.size == members.size)
    columns = getattr(panel, "feature_names_in_", [f"column {j}" for j in range(panel.n_features_in_)])
    names = ", ".join(printable(columns[j]) for j in members[:MOST_PANEL_NAMED])
    more = f" and {members.size - MOST_PANEL_NAMED} more" if members.size > MOST_PANEL_NAMED else ""
    return (
        f"A panel of {members.size} would do: {names}{more}. Error on left-out parts {100 * at.error:.1f} "
        f"± {100 * at.error_se:.1f}{per_cent}; with all features {100 * panel.full_.error:.1f}{per_cent}."
    )


def panel_sentences(subject: Subject) -> list[str]:
    """What was found, and how."""
    if subject.panel is None:
        return []
    return [
        panel_in_words(subject.panel, PERCENT),
        " ".join(said.text for said in summary_of(subject.panel).method),
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
    """Of two classes the one that is likelier with larger values; of more, the class the weight is of."""
    if weight == 0:
        return ""
    return subject.classes[int(weight > 0)] if subject.two else subject.classes[line]


def _twins(subject: Subject) -> dict[int, str]:
    """For each feature of a group of several, the others if they are few; all are in a table of their own."""
    found = {}
    for each in subject.summary.groups or ():
        columns = [int(j) for j in each.columns]
        for j in columns:
            others = [subject.feature(k) for k in columns if k != j]
            if others:
                few = len(others) <= MOST_TWINS_NAMED
                found[j] = ", ".join(others) if few else f"one of {len(columns)}"
    return found
