"""Text for a paper: what was done, in sentences that can be pasted, with the references they need.

Every sentence carries what it claims, so that the text can be compared with what ran
(tests/report/test_methods_trace.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

import foldless
from foldless.estimators._summary import Sentence
from foldless.evaluation import N_ORDERS
from foldless.references import references
from foldless.report.subject import Subject
from foldless.report.wording import counted, listed, number, percent, plural

SOFTWARE = f"The foldless developers. foldless, version {foldless.__version__}. Software, BSD-3-Clause."

MOST_CLASSES_NAMED = 8


class Methods(NamedTuple):
    sentences: list[list[Sentence]]  # of each paragraph
    references: list[str]

    @property
    def paragraphs(self) -> list[str]:
        return [" ".join(sentence.text for sentence in paragraph) for paragraph in self.sentences]


def methods(subject: Subject) -> Methods:
    """What was done, as a methods section tells it."""
    summary = subject.summary
    paragraphs = [
        [_data(subject), *summary.method, summary.columns],
        list(_features(subject)),
        list(_error(subject)),
    ]
    found = Methods([paragraph for paragraph in paragraphs if paragraph], [])
    text = " ".join(found.paragraphs)
    found.references.extend(reference.text for reference in references().values() if reference.label in text)
    found.references.append(SOFTWARE)
    return found


def _data(subject: Subject) -> Sentence:
    n_classes = len(subject.classes)
    classes = f"{counted(n_classes)} classes"
    if n_classes <= MOST_CLASSES_NAMED:
        classes += f" ({listed(subject.classes)})"
    samples = "Samples" if subject.n_samples is None else plural(subject.n_samples, "sample")
    return Sentence(
        f"{samples} of {classes} were classified from {plural(subject.n_features, 'feature')} by "
        f"{subject.summary.name} of foldless {foldless.__version__}.",
        (("samples", subject.n_samples), ("classes", n_classes), ("features", subject.n_features)),
    )


def _features(subject: Subject) -> Iterator[Sentence]:
    if subject.inclusion is None:
        return
    yield Sentence(
        f"Features were selected at a Bayesian false discovery rate of {number(subject.fdr)} (Newton et al. "
        f"2004): {counted(subject.selected.size)} of {counted(subject.n_features)}.",
        (("selected", subject.selected.size),),
    )
    if subject.kept.size:
        yield Sentence(
            f"Besides, {plural(subject.kept.size, 'covariate')} stayed in the model whatever the data say.",
            (("kept", subject.kept.size),),
        )
    groups = [group for group in subject.summary.groups or () if group.columns.size > 1]
    if groups:
        yield Sentence(
            f"{plural(len(groups), 'group')} of features that the data cannot tell apart "
            f"{'was' if len(groups) == 1 else 'were'} found in the joint posterior, at the same rate: at "
            "least one feature of each has an effect of its own with the stated probability (Spector and "
            "Janson 2022).",
            (("groups", len(groups)),),
        )


def _error(subject: Subject) -> Iterator[Sentence]:
    if subject.loo is None or subject.loo_error is None:
        return
    how, around, worth = subject.loo.how, subject.error_in_words, subject.worth
    said = f"The error was estimated by {how.text}: {percent(subject.loo_error)}"
    source = "Korn and Graubard 1998" if subject.by_groups else "Clopper and Pearson 1934"
    said += (
        "." if around is None else f" ({around}; {source}, allowing for samples that learn from each other)."
    )
    yield Sentence(said, (*how.claims, ("error", subject.loo_error)))
    if np.isfinite(subject.loo.log_loss):
        yield Sentence(
            f"The mean log loss of left-out labels is {subject.loo.log_loss:.3f}.",
            (("log loss", subject.loo.log_loss),),
        )
    if worth is None:
        return
    if worth.auc is not None and worth.auc_interval is not None:
        lower, upper = worth.auc_interval
        yield Sentence(
            f"The AUC of left-out samples, at the class frequencies of all, is {worth.auc:.3f} "
            f"(95 % interval {lower:.3f} to {upper:.3f}; "
            f"{'Obuchowski 1997' if subject.by_groups else 'DeLong et al. 1988'}).",
            (("AUC", worth.auc),),
        )
    if worth.p_value is not None:
        test = f"by {N_ORDERS - 1} permutations of the labels (Westfall and Young 1993)"
        if subject.loo.test == "losses":
            test = "by a paired test of left-out log densities against class frequencies"
        yield Sentence(
            f"That labels have nothing to do with the features was tested {test}: p = {worth.p_value:.3g}.",
            (("p value", worth.p_value), ("p value by", subject.loo.test)),
        )


def cobidas(subject: Subject) -> list[tuple[str, str]]:
    """Items that COBIDAS [Nichols et al. 2017] asks decoding studies for, as far as a fit has them."""
    yours = "to be told by you"
    proportions = yours
    if subject.class_counts is not None:
        total = int(subject.class_counts.sum())
        proportions = listed(
            [
                f"{label}: {counted(int(n))} ({percent(n / total)})"
                for label, n in zip(subject.classes, subject.class_counts, strict=True)
            ]
        )
    after = f"{counted(subject.selected.size)} {'selected' if subject.inclusion is not None else 'in use'}"
    claims = dict(claim for sentence in subject.summary.method for claim in sentence.claims)
    folds = f"by {claims['folds']}-fold cross-validation" if "folds" in claims else "without folds"
    tuned = f"inside the one fit, {folds}; see How the model was chosen"
    validation = yours
    if subject.loo_error is not None:
        scheme = "leave-one-group-out" if subject.by_groups else "leave-one-out"
        scheme = "leave-groups-out" if subject.in_sets else scheme
        groups = "" if subject.n_groups is None or not subject.by_groups else f" ({subject.n_groups} groups)"
        by = "by fits to the others" if subject.in_sets else "from the same fit"
        validation = f"{scheme}{groups} {by}; error {percent(subject.loo_error)}"
        if subject.guessing_error is not None:
            validation += f", chance (most frequent class) {percent(subject.guessing_error)}"
    independence = (
        "samples were left out one by one: give groups if samples of a run or subject resemble each other"
    )
    if subject.by_groups:
        independence = "samples of a group were left out together"
    return [
        ("Target values and class proportions", proportions),
        ("Features before selection", f"{counted(subject.n_features)} (voxels, if these are images)"),
        ("Features after selection", after),
        ("Feature extraction (mask, smoothing, detrending, trial averaging)", yours),
        ("Feature scaling", subject.summary.columns.text),
        ("Learning algorithm", f"{subject.summary.name}, foldless {foldless.__version__}; see Methods"),
        ("Hyper-parameters and how they were set", tuned),
        ("Validation scheme, error and chance level", validation),
        ("Independence of samples (runs, subjects)", independence),
        ("Where the weights are shown", "table and figures of this page; weights are not activations"),
    ]
