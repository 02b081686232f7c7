"""The answer in a sentence, the figures beside it, and what a reader must know before believing it."""

from __future__ import annotations

import numpy as np

from foldless.problem import Outcome
from foldless.report.subject import Subject
from foldless.report.wording import counted, listed, number, percent, plural, probability, sentence

# A p value below this is no accident.
CLEAR = 0.05
MOST_CLASSES_NAMED = 8


def title(subject: Subject) -> str:
    if subject.title is not None:
        return subject.title
    if subject.two:
        return f"{subject.classes[1]} against {subject.classes[0]}"
    return f"Which of {counted(len(subject.classes))} classes?"


def answer(subject: Subject) -> list[str]:
    """One sentence about features, one about samples."""
    return [_about_features(subject), *_about_samples(subject)]


def _about_features(subject: Subject) -> str:
    n, total = subject.selected.size, subject.n_weights
    tell = "tells" if n == 1 else "tell"
    thing = subject.thing
    told = (
        f"{subject.classes[1]} from {subject.classes[0]}"
        if subject.two
        else f"the {counted(len(subject.classes))} classes from each other"
    )
    if subject.kernel:
        return f"{plural(n, thing)} of a kernel {tell} {told}."
    if subject.inclusion is None:
        return f"The classifier uses {counted(n)} of {plural(total, thing)} to tell {told}."
    if n:
        return (
            f"{counted(n)} of {plural(total, thing)} {tell} {told}, at a false discovery rate of "
            f"{number(subject.fdr)}: {_expected_false(subject)}."
        )
    best = _best_set(subject)
    if best:
        return f"No {thing} stands out on its own at a false discovery rate of {number(subject.fdr)}, {best}."
    return (
        f"No {thing} stands out at a false discovery rate of {number(subject.fdr)}: none can be told from "
        "its likes, and probabilities are a ranking."
    )


def _expected_false(subject: Subject) -> str:
    assert subject.inclusion is not None
    if subject.selected.size == 1:
        return f"its probability is {probability(float(subject.inclusion[subject.selected[0]]))}"
    expected = float(np.sum(1 - subject.inclusion[subject.selected]))
    if expected < 0.5:
        return "the model expects none of them to be false"
    return f"the model expects about {round(expected)} of them to be false"


def _best_set(subject: Subject) -> str:
    sets = [s for s in subject.summary.groups or () if s.columns.size > 1]
    if not sets:
        return ""
    if len(sets) > 1:
        return f"but {counted(len(sets))} groups each contain one that matters"
    size, sure = sets[0].columns.size, probability(float(sets[0].probability))
    return f"but one of a group of {counted(int(size))} matters, with probability {sure}"


def _about_samples(subject: Subject) -> list[str]:
    error, guessing = subject.loo_error, subject.guessing_error
    if error is None:
        return []
    how = f"With every {subject.left_out} classified by all others, {percent(error)} of labels are missed"
    if guessing is None:
        return [f"{how}."]
    assert subject.class_counts is not None
    most = subject.classes[int(subject.class_counts.argmax())]
    if error < guessing and _clear(subject):
        return [f"{how}, against {percent(guessing)} by always answering {most}."]
    return [
        f"{how}, which is not clearly fewer than by always answering {most} ({percent(guessing)}): these "
        "data do not show that the classes can be told apart."
    ]


def _clear(subject: Subject) -> bool:
    """Whether the classes can be told apart: by the test, or else by the interval of the error."""
    worth, guessing = subject.worth, subject.guessing_error
    if worth is None or guessing is None:
        return False
    return worth.error_interval.upper < guessing if worth.p_value is None else worth.p_value < CLEAR


def figures(subject: Subject) -> list[tuple[str, str, str]]:
    """Numbers, each with what it counts, and a word to weigh it by."""
    found = []
    if subject.n_samples is not None:
        note = ""
        if subject.class_counts is not None:
            counts = zip(subject.class_counts, subject.classes, strict=True)
            note = listed([f"{counted(int(n))} {label}" for n, label in counts])
            if len(subject.classes) > MOST_CLASSES_NAMED:
                note = f"of {counted(len(subject.classes))} classes"
        found.append((counted(subject.n_samples), "samples", note))
    found.append((counted(subject.n_features), "features", ""))
    if subject.inclusion is not None:
        note = f"at a false discovery rate of {number(subject.fdr)}"
        if subject.kept.size:
            note += f", besides {plural(int(subject.kept.size), 'covariate')}"
        found.append((counted(subject.selected.size), "selected", note))
    else:
        found.append((counted(subject.selected.size), f"{subject.thing}s in use", ""))
    if subject.loo_error is not None:
        of_groups, note = "-group" if subject.by_groups else "", subject.error_in_words or ""
        found.append((percent(subject.loo_error), f"leave-one{of_groups}-out error", note))
    if subject.loo is not None and np.isfinite(subject.loo.log_loss):
        note = ""
        if subject.class_counts is not None:
            share = subject.class_counts / subject.class_counts.sum()
            entropy = -float(np.sum(share * np.log(np.maximum(share, np.finfo(float).tiny))))
            guessing = entropy if subject.worth is None else subject.worth.guessing_log_loss
            note = f"{guessing:.2f} from class frequencies alone"
        found.append((f"{subject.loo.log_loss:.2f}", "log loss of left-out labels", note))
    found += _worth_figures(subject)
    outcome, n_iter = subject.summary.outcome, subject.summary.n_iter
    if outcome is not None and n_iter is not None:
        found.append((str(outcome), "the fit", f"after {counted(n_iter)} iterations"))
    return found


def _worth_figures(subject: Subject) -> list[tuple[str, str, str]]:
    worth, found = subject.worth, []
    if worth is None:
        return []
    if worth.auc is not None and worth.auc_interval is not None:
        lower, upper = worth.auc_interval
        found.append(
            (f"{worth.auc:.2f}", "AUC of left-out samples", f"95 % interval {lower:.2f} to {upper:.2f}")
        )
    # Where there is nothing to learn, the slope is that of class frequencies without the sample: negative.
    if _clear(subject):
        note = f"standard error {worth.calibration_slope_std:.2f}; below 1 probabilities are too sure"
        found.append((f"{worth.calibration_slope:.2f}", "calibration slope", note))
    if worth.p_value is not None:
        found.append((number(worth.p_value), "p value", "if labels had nothing to do with the features"))
    return found


def cautions(subject: Subject) -> list[str]:
    """What to read before believing the page."""
    found, outcome = [], subject.summary.outcome
    if outcome is not None and not outcome.trustworthy and outcome is not Outcome.EARLY:
        found.append(f"The fit did not settle ({outcome}). {outcome.advice}")
    found += [sentence(flag) for flag in subject.summary.flags]
    if subject.judged is not None and not subject.judged.all():
        lost = int((~subject.judged).sum())
        found.append(
            f"The leave-one-out approximation broke down for {plural(lost, 'sample')}; figures of "
            "leave-one-out are of the others. Cross-validation can judge those."
        )
    return found
