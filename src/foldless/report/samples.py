"""The samples: how each is classified by all others, and which labels look wrong."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from foldless.report.subject import Subject
from foldless.report.wording import counted, percent, probability

# A matrix of more classes than this is read class by class.
MOST_COLUMNS = 12
MOST_SUSPECTS = 20
LEAST_SUSPECTS = 5
# Labels that are less likely wrong than this are not suspicious at all.
WORTH_A_LOOK = 0.05


class Cell(NamedTuple):
    """How many of a recorded class are predicted to be of a class."""

    number: str
    share: str
    shade: int  # tenths of the share
    right: bool


class ConfusionRow(NamedTuple):
    recorded: str
    cells: list[Cell]
    total: str
    right: str
    taken_for: str  # the class it is most often mistaken for


class SuspectRow(NamedTuple):
    sample: str
    recorded: str
    probability_of_recorded: str
    likelier: str  # the class that all other samples speak for, if it is another
    mislabel_probability: str
    bar: int
    suspected: bool


class Suspects(NamedTuple):
    rows: list[SuspectRow]
    n_suspected: int
    n_expected: str  # how many wrong labels the model expects, in words
    allows_wrong_labels: bool


def confusion(subject: Subject) -> list[ConfusionRow] | None:
    """Recorded against predicted class, of samples that leave-one-out judges."""
    if subject.codes is None or subject.loo_proba is None or subject.judged is None:
        return None
    n_classes = len(subject.classes)
    predicted = np.argmax(subject.loo_proba[subject.judged], axis=1)
    recorded = subject.codes[subject.judged]
    counts = np.bincount(recorded * n_classes + predicted, minlength=n_classes**2)
    rows = []
    for k, row in enumerate(counts.reshape(n_classes, n_classes)):
        total = int(row.sum())
        cells = []
        for other, n in enumerate(row):
            share = float(n) / max(total, 1)
            cells.append(Cell(counted(int(n)), percent(share), round(10 * share), k == other))
        mistaken = np.where(np.arange(n_classes) == k, 0, row)
        worst = int(mistaken.argmax())
        taken_for = f"{subject.classes[worst]} ({counted(int(mistaken[worst]))})" if mistaken[worst] else ""
        rows.append(ConfusionRow(subject.classes[k], cells, counted(total), cells[k].share, taken_for))
    return rows


def suspects(subject: Subject) -> Suspects | None:
    """Samples whose labels are most likely wrong; without that, whose labels are least expected."""
    if subject.codes is None or subject.loo_proba is None:
        return None
    own = subject.loo_proba[np.arange(subject.codes.size), subject.codes]
    likeliest = np.argmax(np.nan_to_num(subject.loo_proba, nan=-1.0), axis=1)
    mislabelled = subject.mislabel_probability
    if mislabelled is None:
        order = np.argsort(np.nan_to_num(own, nan=np.inf), kind="stable")
        suspicious = own < 0.5
    else:
        order = np.argsort(-mislabelled, kind="stable")
        suspicious = mislabelled > 0.5
        order = order[mislabelled[order] >= WORTH_A_LOOK]
    n_suspected = int(suspicious.sum())
    rows = []
    for i in order[: int(np.clip(n_suspected, LEAST_SUSPECTS, MOST_SUSPECTS))]:
        code, p = int(subject.codes[i]), float(own[i])
        other = int(likeliest[i])
        rows.append(
            SuspectRow(
                subject.sample(int(i)),
                subject.classes[code],
                "unknown" if np.isnan(p) else probability(p),
                "" if other == code or np.isnan(p) else subject.classes[other],
                "" if mislabelled is None else probability(float(mislabelled[i])),
                0 if mislabelled is None else round(20 * float(mislabelled[i])),
                bool(suspicious[i]),
            )
        )
    expected = "" if mislabelled is None else _expected(float(mislabelled.sum()))
    return Suspects(rows, n_suspected, expected, mislabelled is not None)


def _expected(number: float) -> str:
    if number < 0.5:
        return "no wrong labels"
    return "about one wrong label" if number < 1.5 else f"about {round(number)} wrong labels"
