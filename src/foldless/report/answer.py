"""Four questions and their answers, the figures beside them, and what to read before believing them."""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from foldless.evaluation import Worth, exact_interval
from foldless.problem import Outcome
from foldless.report.subject import Subject
from foldless.report.wording import PERCENT, counted, listed, number, percent, plural, probability, sentence
from foldless.theory.learning_curve import LearningCurve
from foldless.tuning.plan import CLEAR_STANDARD_ERRORS

MOST_CLASSES_NAMED = 8
# Names in a sentence.
MOST_NAMED = 5


def title(subject: Subject) -> str:
    if subject.title is not None:
        return subject.title
    if subject.two:
        return f"{subject.classes[1]} against {subject.classes[0]}"
    return f"Which of {counted(len(subject.classes))} classes?"


class Answer(NamedTuple):
    """To one of the questions that a reader comes with."""

    question: str
    verdict: str  # in a word or a few
    sentences: list[str]


def answers(subject: Subject) -> list[Answer]:
    """Four questions; those that a model cannot answer are left out."""
    found = [_told_apart(subject), _by_which(subject), _how_sure(subject), _what_next(subject)]
    return [answer for answer in found if answer is not None]


# ---------------------------------------------------------------------- can the classes be told apart?


def _told_apart(subject: Subject) -> Answer | None:
    error, guessing = subject.loo_error, subject.guessing_error
    if error is None:
        return None
    question = "Can the classes be told apart?"
    around = "" if subject.error_in_words is None else f" ({subject.error_in_words})"
    how = f"With every {subject.left_out} classified by all others, {percent(error)} of labels are missed"
    if guessing is None:
        return Answer(question, f"{percent(error)} missed", [f"{how}{around}."])
    assert subject.class_counts is not None
    most = subject.classes[int(subject.class_counts.argmax())]
    worth = subject.worth
    area = []
    if worth is not None and worth.auc is not None and worth.auc_interval is not None:
        lower, upper = worth.auc_interval
        area = [
            f"Of two samples of different classes, {percent(worth.auc)} are put in the right order (AUC "
            f"{worth.auc:.2f}, 95{PERCENT} interval {lower:.2f} to {upper:.2f})."
        ]
    if subject.summary.told_apart:
        against = f"{how}{around}, against {percent(guessing)} by always answering {most}."
        return Answer(question, "Yes", [against, *area])
    by_guessing = f"by always answering {most} ({percent(guessing)})"
    fewer = f"{how}{around}. That is not clearly fewer than {by_guessing}: that they can is not shown."
    nothing = (
        "More errors than by guessing are what leaving out makes of nothing: without a sample, its own class "
        "is the rarer one."
    )
    return Answer(question, "Not shown", [fewer, nothing] if subject.worse else [fewer])


# ------------------------------------------------------------------------------- by which features?


def _by_which(subject: Subject) -> Answer:
    question, thing, n = f"By which {subject.thing}s?", subject.thing, subject.selected.size
    names = _named(subject, subject.selected)
    if subject.kernel or subject.inclusion is None:
        of = f"{plural(subject.n_weights, thing)}{' of a kernel' if subject.kernel else ''}"
        return Answer(question, counted(n), [f"The classifier uses {counted(n)} of {of}: {names}."])
    alone = f"at a false discovery rate of {number(subject.fdr)}"
    if n:
        own = "carries" if n == 1 else "carry"
        sentences = [
            f"{counted(n)} of {plural(subject.n_weights, thing)} {own} something that no other has, {alone}: "
            f"{names}. {_expected_false(subject)}"
        ]
        return Answer(question, plural(n, thing), [*sentences, *_differing(subject)])
    best = _best_set(subject)
    none = (
        f"No {thing} carries something that no other has, {alone}, {best}."
        if best
        else f"None can be told from its likes {alone}."
    )
    if not subject.summary.told_apart:
        return Answer(question, "None", [none])
    differing = _differing(subject)
    n = subject.differing.size
    by_themselves = "1 differs by itself" if n == 1 else f"{counted(n)} differ by themselves"
    return Answer(question, by_themselves if n else "None alone", [*differing, none])


def _differing(subject: Subject) -> list[str]:
    """Of features by themselves, where any differ."""
    found = subject.differing
    if not found.size:
        return []
    each, differ, most = (
        ("itself", "differs", "") if found.size == 1 else ("themselves", "differ", "most of all ")
    )
    at = f"between the classes (q < {number(subject.fdr)})"
    return [f"By {each}, {plural(found.size, 'feature')} {differ} {at}, {most}{_named(subject, found)}."]


def _named(subject: Subject, features: NDArray[np.intp]) -> str:
    names = [subject.feature(int(j)) for j in features[:MOST_NAMED]]
    if features.size > MOST_NAMED:
        names.append(f"{counted(features.size - MOST_NAMED)} more")
    return listed(names) or "none"


def _expected_false(subject: Subject) -> str:
    assert subject.inclusion is not None
    if subject.selected.size == 1:
        return f"Its probability is {probability(float(subject.inclusion[subject.selected[0]]))}."
    expected = float(np.sum(1 - subject.inclusion[subject.selected]))
    if expected < 0.5:
        return "The model expects none of them to be false."
    return f"The model expects about {round(expected)} of them to be false."


def _best_set(subject: Subject) -> str:
    sets = [s for s in subject.summary.groups or () if s.columns.size > 1]
    if not sets:
        return ""
    if len(sets) > 1:
        return f"but {counted(len(sets))} groups each have at least one that does"
    size, sure = sets[0].columns.size, probability(float(sets[0].probability))
    return f"but at least one of a group of {counted(int(size))} does, with probability {sure}"


# ------------------------------------------------------------------------------------- how sure?


def _how_sure(subject: Subject) -> Answer | None:
    worth = subject.worth
    if worth is None:
        return None
    sentences, verdict = [], ""
    if worth.p_value is not None:
        verdict = f"p = {number(worth.p_value)}"
        sentences.append(
            "If labels had nothing to do with the features, classes would lie as far apart with probability "
            f"{number(worth.p_value)}."
        )
    if subject.summary.told_apart:
        sentences.append(_calibration(worth))
    n_cautions = len(cautions(subject))
    if n_cautions:
        sentences.append(f"{plural(n_cautions, 'note')} to read below.")
    return Answer("How sure is that?", verdict or "See below", sentences) if sentences else None


def _calibration(worth: Worth) -> str:
    """In words, where the slope is clearly not one."""
    away = (worth.calibration_slope - 1.0) / max(worth.calibration_slope_std, np.finfo(float).tiny)
    slope = f"calibration slope {worth.calibration_slope:.2f} ± {worth.calibration_slope_std:.2f}"
    if abs(away) < CLEAR_STANDARD_ERRORS:
        return f"Probabilities of classes mean what they say, as far as these samples can show ({slope})."
    return f"Probabilities of classes are too {'cautious' if away > 0 else 'sure'} ({slope})."


# ------------------------------------------------------------------------------------- what next?


def _what_next(subject: Subject) -> Answer | None:
    sentences, verdict = [], []
    worth, curve = subject.worth, subject.learning_curve
    known = isinstance(curve, LearningCurve) and curve.study is not None
    if known:
        sentences.append(curve.sentence(curve.seen.n_samples))
    elif worth is not None and subject.loo_error is not None and subject.summary.told_apart:
        once, twice = (np.ptp(exact_interval(n * worth.error, n)) for n in np.array([1, 2]) * worth.n_samples)
        width = 100 * np.ptp(worth.error_interval)
        fewer = (
            "; whether errors would be fewer, foldless fit --learning-curve tells"
            if subject.two and worth.error
            else ""
        )
        sentences.append(
            f"Twice as many samples would bring the interval of the error from "
            f"{width:.0f} to about {width * twice / once:.0f} points{fewer}."
        )
    elif worth is not None and subject.guessing_error is not None:
        n, guessing = round(worth.n_samples), subject.guessing_error
        samples = "independent samples, as many as these are worth" if subject.by_groups else "samples"
        sentences.append(
            f"Twice as many samples can show what these cannot: {_clear_error(n, guessing)} is clearly below "
            f"guessing with {counted(n)} {samples}, {_clear_error(2 * n, guessing)} with {counted(2 * n)}."
        )
    wrong = subject.summary.suspected()
    if wrong.size and subject.codes is not None:
        verdict.append(f"Look at {plural(wrong.size, 'label')}")
        labels = [subject.sample(int(i)) for i in wrong[:MOST_NAMED]]
        more = [f"{counted(wrong.size - MOST_NAMED)} more"] if wrong.size > MOST_NAMED else []
        sentences.append(f"Labels more likely wrong than right: {listed(labels + more)}.")
    if sentences and not (subject.kept.size or subject.by_groups or subject.kernel):
        sentences.append(
            "Nothing was said of batches: if samples differ in when or where they were measured, name that "
            "(--covariates), for features may tell batches apart instead."
        )
    if not sentences:
        return None
    if worth is not None and not subject.summary.told_apart:
        verdict.append("More samples, or other features")
    elif subject.inclusion is not None and not subject.selected.size:
        verdict.append("More samples, to name single features")
    return Answer("What next?", _joined(verdict) or "Confirm on new samples", sentences)


def _joined(verdict: list[str]) -> str:
    return "; ".join([*verdict[:1], *(more[:1].lower() + more[1:] for more in verdict[1:])])


def _clear_error(n_samples: int, guessing: float) -> str:
    """The largest error of so many samples whose 95 % interval ends below that of guessing."""
    n_clear = bisect_left(range(n_samples + 1), guessing, key=lambda k: exact_interval(k, n_samples)[1])
    return f"an error of {percent((n_clear - 1) / n_samples)}" if n_clear else "no error"


def figures(subject: Subject) -> list[tuple[str, str, str]]:
    """Numbers, each with what it counts, and a word to weigh it by."""
    found = []
    if subject.n_samples is not None:
        note = ""
        if subject.class_counts is not None:
            counts = zip(subject.class_counts, subject.classes, strict=True)
            # "10 1 and 12 2" cannot be read.
            words = all(label[:1].isalpha() for label in subject.classes)
            note = listed(
                [f"{counted(int(n))} {x}" if words else f"{x}: {counted(int(n))}" for n, x in counts]
            )
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
    if worth.auc is not None and worth.auc_interval is not None and not subject.worse:
        lower, upper = worth.auc_interval
        found.append(
            (
                f"{worth.auc:.2f}",
                "AUC of left-out samples",
                f"95{PERCENT} interval {lower:.2f} to {upper:.2f}",
            )
        )
    # Where there is nothing to learn, the slope is that of class frequencies without the sample: negative.
    if subject.summary.told_apart:
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
    found += [sentence(caution) for caution in subject.cautions]
    found += [sentence(flag) for flag in subject.summary.flags]
    if subject.judged is not None and not subject.judged.all():
        lost = int((~subject.judged).sum())
        found.append(
            f"The leave-one-out approximation broke down for {plural(lost, 'sample')}; figures of "
            "leave-one-out are of the others. Cross-validation can judge those."
        )
    return found
