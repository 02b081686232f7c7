"""The samples: how each is classified by all others, and which labels look wrong."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from foldless.evaluation import exact_interval
from foldless.report.subject import Subject
from foldless.report.wording import counted, percent, probability

# A matrix of more classes than this is read class by class.
MOST_COLUMNS = 12
MOST_SUSPECTS = 20
LEAST_SUSPECTS = 5
# Probabilities of the second class from which a sample is called one of it.
THRESHOLDS = (0.1, 0.25, 0.5, 0.75, 0.9)
# Labels that are less likely wrong than this are not suspicious at all.
WORTH_A_LOOK = 0.05


class Suspects(NamedTuple):
    rows: list[dict[str, Any]]
    n_suspected: int
    n_expected: str  # how many wrong labels the model expects, in words
    allows_wrong_labels: bool


def confusion(subject: Subject) -> NDArray[np.intp] | None:
    """Recorded against predicted class, of samples that leave-one-out judges."""
    if subject.codes is None or subject.loo_proba is None or subject.judged is None:
        return None
    n_classes = len(subject.classes)
    predicted = np.argmax(subject.loo_proba[subject.judged], axis=1)
    pairs = subject.codes[subject.judged] * n_classes + predicted
    return np.bincount(pairs, minlength=n_classes**2).reshape(n_classes, n_classes)


def operating_points(subject: Subject) -> list[dict[str, str]]:
    """Of two classes: who is found and who is cleared where a probability from others is a threshold."""
    if not subject.two or subject.codes is None or subject.loo_proba is None or subject.judged is None:
        return []
    if subject.worse:
        return []
    positive, score = subject.codes[subject.judged] == 1, subject.loo_proba[subject.judged, 1]
    rows = []
    for threshold in THRESHOLDS:
        called = score >= threshold
        row = {"threshold": f"{threshold:g}"}
        for name, right, of in (
            ("sensitivity", called & positive, positive),
            ("specificity", ~called & ~positive, ~positive),
            ("positive", called & positive, called),
            ("negative", ~called & ~positive, ~called),
        ):
            n_right, n = int(right.sum()), int(of.sum())
            # The count stays in one line.
            row[name] = f"{percent(n_right / n)} ({n_right}\u202fof\u202f{n})" if n else "none"
            if n and name in ("sensitivity", "specificity"):
                lower, upper = exact_interval(n_right, n)
                row[f"{name}_limits"] = f"{100 * lower:.0f} to {100 * upper:.0f} %"
        rows.append(row)
    return rows


def taken_for(subject: Subject, recorded: int, counts: NDArray[np.intp]) -> str:
    """The class that a class is most often mistaken for."""
    mistaken = np.where(np.arange(counts.size) == recorded, 0, counts)
    worst = int(mistaken.argmax())
    return f"{subject.classes[worst]} ({counted(int(mistaken[worst]))})" if mistaken[worst] else ""


def suspects(subject: Subject) -> Suspects | None:
    """Samples whose labels are most likely wrong; without that, whose labels are least expected."""
    if subject.codes is None or subject.loo_proba is None:
        return None
    own = subject.loo_proba[np.arange(subject.codes.size), subject.codes]
    likeliest = np.argmax(np.nan_to_num(subject.loo_proba, nan=-1.0), axis=1)
    mislabelled = subject.mislabel_probability
    if mislabelled is not None and not subject.summary.casts_doubt:
        return None
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
            {
                "sample": subject.sample(int(i)),
                "recorded": subject.classes[code],
                "probability_of_recorded": "unknown" if np.isnan(p) else probability(p),
                # The most probable class given all other samples.
                "likelier": "the same" if other == code or np.isnan(p) else subject.classes[other],
                "mislabel_probability": 0.0 if mislabelled is None else float(mislabelled[i]),
                "suspected": bool(suspicious[i]),
            }
        )
    expected = "" if mislabelled is None else _expected(float(mislabelled.sum()))
    return Suspects(rows, n_suspected, expected, mislabelled is not None)


def _expected(number: float) -> str:
    if number < 0.5:
        return "no wrong labels"
    return "about one wrong label" if number < 1.5 else f"about {round(number)} wrong labels"
