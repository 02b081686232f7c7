"""Text for a paper: what was done, in sentences that can be pasted, with the references they need."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

import foldless
from foldless.references import references
from foldless.report.choice import learnt_names, scaling
from foldless.report.subject import Subject
from foldless.report.wording import counted, listed, number, percent, plural

SOFTWARE = f"The foldless developers. foldless, version {foldless.__version__}. Software, BSD-3-Clause."

MOST_CLASSES_NAMED = 8


class Methods(NamedTuple):
    paragraphs: list[str]
    references: list[str]


def methods(subject: Subject) -> Methods:
    """What was done, as a methods section tells it."""
    paragraphs = [_model(subject), _features(subject), _error(subject)]
    paragraphs = [paragraph for paragraph in paragraphs if paragraph]
    text = " ".join(paragraphs)
    cited = [reference.text for reference in references().values() if reference.label in text]
    return Methods(paragraphs, [*cited, SOFTWARE])


def _model(subject: Subject) -> str:
    model = subject.model
    name = type(model).__name__
    classes = f"{counted(len(subject.classes))} classes"
    if len(subject.classes) <= MOST_CLASSES_NAMED:
        classes += f" ({listed(subject.classes)})"
    samples = "Samples" if subject.n_samples is None else plural(subject.n_samples, "sample")
    begin = (
        f"{samples} of {classes} were classified from {plural(subject.n_features, 'feature')} by {name} of "
        f"foldless {foldless.__version__}."
    )
    described = {
        "SparseClassifier": _sparse,
        "GAMPClassifier": _gamp,
        "MultinomialClassifier": _multinomial,
        "SMLRClassifier": _smlr,
        "SBMLRClassifier": _smlr,
        "RVMClassifier": _rvm,
        "OneBitCS": _one_bit,
        "BayesPointClassifier": _bayes_point,
        "EPBayesPointClassifier": _ep_bayes_point,
        "PrunedBayesClassifier": _pruned,
    }.get(name)
    return begin if described is None else f"{begin} {described(subject)}"


STANDARDISED = "features standardised to zero mean and unit variance"


def _sparse(subject: Subject) -> str:
    model = subject.model
    said = (
        "The model has a logistic likelihood in which a small share of labels may be wrong and a "
        f"spike-and-slab prior on the weights of {STANDARDISED}."
    )
    if not subject.two:
        said = (
            "The model has a multinomial logistic likelihood and a spike-and-slab prior by which a feature "
            f"matters for all classes or for none, on {STANDARDISED} (Byrne 2015)."
        )
    if learnt_names(model):
        said += " Its parameters were learnt by expectation maximisation within the fit."
    elif hasattr(model, "history_"):
        said += " Its parameters were left at plain values: no feature stood out to learn them from."
    if getattr(model, "solver_", None) == "EP":
        return (
            f"{said} Columns being correlated, it was solved by expectation propagation with exact "
            "covariances (Minka 2001; Hernández-Lobato et al. 2015), and class probabilities were averaged "
            "over this model and models with Gaussian priors, weighted by stacking of leave-one-out "
            "predictions (Yao et al. 2018)."
        )
    if getattr(model, "solver_", None) == "GAMP":
        return (
            f"{said} It was solved by generalised approximate message passing (Rangan 2011; Ziniel "
            f"et al. 2015){_blend(subject)}."
        )
    return said


def _gamp(subject: Subject) -> str:
    model = subject.model
    prior, channel = (type(getattr(model, part, None)).__name__ for part in ("prior_", "channel_"))
    rule = getattr(model, "rule", "sum-product")
    return (
        f"The model (prior {prior}, likelihood {channel}, {STANDARDISED}) was solved by generalised "
        f"approximate message passing, {rule} rule (Rangan 2011; Ziniel et al. 2015); its parameters were "
        f"learnt by expectation maximisation{_blend(subject)}."
    )


def _multinomial(subject: Subject) -> str:
    return (
        "The model has a multinomial logistic likelihood and weights that are sparse by rows, so that a "
        f"feature matters for all classes or for none, on {STANDARDISED}. It was solved by message "
        f"passing (Byrne 2015){_blend(subject)}."
    )


def _blend(subject: Subject) -> str:
    weight = getattr(subject.model, "generative_weight_", None)
    if not weight:
        return ""
    return (
        f", the likelihood being blended with one of the features given the class (generative weight "
        f"{number(float(weight))}, taken by leave-one-out log loss)"
    )


def _smlr(subject: Subject) -> str:
    model = subject.model
    penalty = {
        "l1": "an L1 penalty",
        "l2": "an L2 penalty",
        "group": "a group penalty on the weights of a feature",
        "none": "no penalty",
    }.get(getattr(model, "penalty", "l1"), "a penalty")
    on = STANDARDISED if getattr(model, "standardize", True) else "features as they are"
    if subject.kernel:
        on = "kernels around the training samples"
    said = f"Multinomial logistic regression with {penalty} on the weights of {on} (Krishnapuram et al. 2005)"
    if getattr(model, "penalty", "l1") == "none":
        return f"{said} was fitted to a certified duality gap."
    if type(model).__name__ == "SBMLRClassifier" or getattr(model, "tuning", "") == "bayes":
        return f"{said} was fitted with the rate of the penalty integrated out (Cawley et al. 2007)."
    if getattr(model, "rate", "auto") != "auto":
        return f"{said} was fitted at the rate {number(float(model.rate_))}, given beforehand."
    how = {
        "alo": "approximate leave-one-out log loss (Rad and Maleki 2020)",
        "bound": "a PAC-Bayes bound",
        "cv": f"{getattr(model, 'n_folds', '')}-fold cross-validated log loss",
    }.get(getattr(model, "tuning", "alo"), "its criterion")
    return f"{said} was fitted to a certified duality gap; its rate was chosen by {how}."


def _rvm(subject: Subject) -> str:
    return (
        "A relevance vector machine was fitted (Tipping 2001): weights of basis functions have Gaussian "
        "priors whose precisions were learnt by maximising the evidence."
    )


def _one_bit(subject: Subject) -> str:
    return (
        "Weights are those of one-bit compressed sensing by convex programming (Plan and Vershynin 2013), on "
        f"{STANDARDISED}, for an expected number of {number(float(subject.model.sparsity))} features."
    )


def _ep_bayes_point(subject: Subject) -> str:
    of = "kernels of samples" if subject.kernel else STANDARDISED
    return (
        f"The Bayes point, the mean of all linear classifiers on {of} weighted by how well they explain the "
        "labels, was found by expectation propagation with exact covariances (Minka 2001)."
    )


def _bayes_point(subject: Subject) -> str:
    of = "kernels of samples" if subject.kernel else STANDARDISED
    return (
        f"The Bayes point of the 0-1 loss on {of} was found by messages over knapsack problems (Potetz 2011)."
    )


def _pruned(subject: Subject) -> str:
    return (
        "A fixed share of the features is switched on, the squares of their weights having a fixed sum, and "
        f"a fixed share of labels is wrong; on {STANDARDISED}, the posterior was found by belief "
        "propagation, and both shares were chosen by the leave-one-out error (Uda and Kabashima 2005)."
    )


def _features(subject: Subject) -> str:
    if subject.inclusion is None:
        return ""
    said = (
        f"Features were selected at a Bayesian false discovery rate of {number(subject.fdr)} (Newton et al. "
        f"2004): {counted(subject.selected.size)} of {counted(subject.n_features)}."
    )
    sets = getattr(subject.model, "credible_sets_", [])
    if sets:
        said += (
            f" Correlated features were grouped into {plural(len(sets), 'credible set')}, each of which "
            "contains a feature that matters with the stated probability (Wang et al. 2020)."
        )
    return said


def _error(subject: Subject) -> str:
    if subject.loo_error is None:
        return ""
    if subject.mislabel_probability is None and hasattr(subject.model, "rate_"):
        how = "approximate leave-one-out (Rad and Maleki 2020)"
    else:
        how = "leave-one-out, read off the cavity distributions of the same fit (Opper and Winther 2000)"
    if subject.n_groups is not None:
        how = f"leaving out one of {plural(subject.n_groups, 'group')} at a time, from the same fit"
    spread = subject.loo_standard_error
    said = f"The error was estimated by {how}: {percent(subject.loo_error)}"
    said += "." if spread is None else f" (standard error {percent(spread)})."
    log_loss = float(getattr(subject.model, "loo_log_loss_", np.nan))
    return (
        f"{said} The mean log loss of left-out labels is {log_loss:.3f}." if np.isfinite(log_loss) else said
    )


def cobidas(subject: Subject) -> list[tuple[str, str]]:
    """Items that COBIDAS [Nichols et al. 2017] asks decoding studies for, as far as the fit knows them."""
    yours = "to be told by you"
    model = subject.model
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
    tuned = "learnt inside the one fit, without folds; see How the model was chosen"
    if getattr(model, "tuning", "") == "cv":
        tuned = f"the rate of the penalty by {getattr(model, 'n_folds', '')}-fold cross-validation"
    validation = yours
    if subject.loo_error is not None:
        scheme = "leave-one-out" if subject.n_groups is None else "leave-one-group-out"
        groups = "" if subject.n_groups is None else f" ({subject.n_groups} groups)"
        validation = f"{scheme}{groups} from the same fit; error {percent(subject.loo_error)}"
        if subject.guessing_error is not None:
            validation += f", chance (most frequent class) {percent(subject.guessing_error)}"
    return [
        ("Target values and class proportions", proportions),
        ("Features before selection", f"{counted(subject.n_features)} (voxels, if these are images)"),
        ("Features after selection", after),
        ("Feature extraction (mask, smoothing, detrending, trial averaging)", yours),
        ("Feature scaling", " ".join(scaling(subject)) or yours),
        ("Learning algorithm", f"{type(model).__name__}, foldless {foldless.__version__}; see Methods"),
        ("Hyper-parameters and how they were set", tuned),
        ("Validation scheme, error and chance level", validation),
        ("Independence of samples (runs, subjects)", _independence(subject)),
        ("Where the weights are shown", "table and figures of this page; weights are not activations"),
    ]


def _independence(subject: Subject) -> str:
    if subject.n_groups is not None:
        return f"samples of one of {subject.n_groups} groups were left out together"
    return "samples were left out one by one: give groups if samples of a run or subject resemble each other"
