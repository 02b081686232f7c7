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
from foldless.report.subject import Subject
from foldless.report.wording import counted, listed, number, percent, plural

REFERENCES = {
    "Byrne 2015": (
        "Byrne E. (2015). Sparse multinomial logistic regression via approximate message passing. Master's "
        "thesis, The Ohio State University."
    ),
    "Cawley et al. 2007": (
        "Cawley G. C., Talbot N. L. C., Girolami M. (2007). Sparse multinomial logistic regression via "
        "Bayesian L1 regularisation. Advances in Neural Information Processing Systems 19."
    ),
    "Hernández-Lobato et al. 2015": (
        "Hernández-Lobato J. M., Hernández-Lobato D., Suárez A. (2015). Expectation propagation in linear "
        "regression models with spike-and-slab priors. Machine Learning 99, 437–487."
    ),
    "Krishnapuram et al. 2005": (
        "Krishnapuram B., Carin L., Figueiredo M. A. T., Hartemink A. J. (2005). Sparse multinomial logistic "
        "regression: fast algorithms and generalization bounds. IEEE Transactions on Pattern Analysis and "
        "Machine Intelligence 27, 957–968."
    ),
    "Minka 2001": (
        "Minka T. P. (2001). Expectation propagation for approximate Bayesian inference. Proceedings of the "
        "17th Conference on Uncertainty in Artificial Intelligence, 362–369."
    ),
    "Newton et al. 2004": (
        "Newton M. A., Noueiry A., Sarkar D., Ahlquist P. (2004). Detecting differential gene expression "
        "with a semiparametric hierarchical mixture method. Biostatistics 5, 155–176."
    ),
    "Nichols et al. 2017": (
        "Nichols T. E., and others (2017). Best practices in data analysis and sharing in neuroimaging using "
        "MRI. Nature Neuroscience 20, 299–303."
    ),
    "Opper and Winther 2000": (
        "Opper M., Winther O. (2000). Gaussian processes for classification: mean-field algorithms. Neural "
        "Computation 12, 2655–2684."
    ),
    "Potetz 2011": (
        "Potetz B. (2011). Estimating the Bayes point using linear knapsack problems. Proceedings of the "
        "28th International Conference on Machine Learning."
    ),
    "Plan and Vershynin 2013": (
        "Plan Y., Vershynin R. (2013). Robust 1-bit compressed sensing and sparse logistic regression: a "
        "convex programming approach. IEEE Transactions on Information Theory 59, 482–494."
    ),
    "Rad and Maleki 2020": (
        "Rad K. R., Maleki A. (2020). A scalable estimate of the out-of-sample prediction error via "
        "approximate leave-one-out cross-validation. Journal of the Royal Statistical Society B 82, 965–996."
    ),
    "Rangan 2011": (
        "Rangan S. (2011). Generalized approximate message passing for estimation with random linear mixing. "
        "IEEE International Symposium on Information Theory, 2168–2172."
    ),
    "Tipping 2001": (
        "Tipping M. E. (2001). Sparse Bayesian learning and the relevance vector machine. Journal of Machine "
        "Learning Research 1, 211–244."
    ),
    "Uda and Kabashima 2005": (
        "Uda S., Kabashima Y. (2005). Statistical mechanical development of a sparse Bayesian classifier. "
        "Journal of the Physical Society of Japan 74."
    ),
    "Wang et al. 2020": (
        "Wang G., Sarkar A., Carbonetto P., Stephens M. (2020). A simple new approach to variable selection "
        "in regression, with application to genetic fine mapping. Journal of the Royal Statistical Society B "
        "82, 1273–1300."
    ),
    "Yao et al. 2018": (
        "Yao Y., Vehtari A., Simpson D., Gelman A. (2018). Using stacking to average Bayesian predictive "
        "distributions. Bayesian Analysis 13, 917–1007."
    ),
    "Ziniel et al. 2015": (
        "Ziniel J., Schniter P., Sederberg P. (2015). Binary linear classification and feature selection via "
        "generalized approximate message passing. IEEE Transactions on Signal Processing 63, 2020–2032."
    ),
}
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
    found.references.extend(full for key, full in REFERENCES.items() if key in text)
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
    sets = subject.summary.credible_sets
    if sets:
        yield Sentence(
            f"Correlated features were grouped into {plural(len(sets), 'credible set')}, each of which "
            "contains a feature that matters with the stated probability (Wang et al. 2020).",
            (("credible sets", len(sets)),),
        )


def _error(subject: Subject) -> Iterator[Sentence]:
    if subject.loo is None or subject.loo_error is None:
        return
    how, spread = subject.loo.how, subject.loo_standard_error
    said = f"The error was estimated by {how.text}: {percent(subject.loo_error)}"
    said += "." if spread is None else f" (standard error {percent(spread)})."
    yield Sentence(said, (*how.claims, ("error", subject.loo_error)))
    if np.isfinite(subject.loo.log_loss):
        yield Sentence(
            f"The mean log loss of left-out labels is {subject.loo.log_loss:.3f}.",
            (("log loss", subject.loo.log_loss),),
        )


def cobidas(subject: Subject) -> list[tuple[str, str]]:
    """Items that COBIDAS [Nichols et al. 2017] asks decoding studies for, as far as the fit knows them."""
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
        groups = "" if subject.n_groups is None or not subject.by_groups else f" ({subject.n_groups} groups)"
        validation = f"{scheme}{groups} from the same fit; error {percent(subject.loo_error)}"
        if subject.guessing_error is not None:
            validation += f", chance (most frequent class) {percent(subject.guessing_error)}"
    return [
        ("Target values and class proportions", proportions),
        ("Features before selection", f"{counted(subject.n_features)} (voxels, if these are images)"),
        ("Features after selection", after),
        ("Feature extraction (mask, smoothing, detrending, trial averaging)", yours),
        ("Feature scaling", subject.summary.columns.text),
        ("Learning algorithm", f"{subject.summary.name}, foldless {foldless.__version__}; see Methods"),
        ("Hyper-parameters and how they were set", tuned),
        ("Validation scheme, error and chance level", validation),
        ("Independence of samples (runs, subjects)", _independence(subject)),
        ("Where the weights are shown", "table and figures of this page; weights are not activations"),
    ]


def _independence(subject: Subject) -> str:
    if subject.by_groups:
        return "samples of a group were left out together"
    return "samples were left out one by one: give groups if samples of a run or subject resemble each other"
