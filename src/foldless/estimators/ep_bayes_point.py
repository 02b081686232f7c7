"""EPBayesPointClassifier: the average of all linear classifiers, by expectation propagation.

Noise can be on the score (probit) or on the label (a share of labels is wrong whatever the score: step), or
both (robust probit). EM learns how much of it there is inside each fit; which kind, the evidence decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.utils import check_scalar

from foldless.beliefs import Array
from foldless.channels import Channel, FlippedLabels, Probit, Step, channel_from
from foldless.estimators._account import FROM_CAVITIES, SOLVERS, TUNINGS, component_name, meaning, parameters
from foldless.estimators._bayes_points import BayesPointBase, BinaryFit, EPPoint, OneAgainstRest
from foldless.estimators._summary import Sentence, Summary, said
from foldless.operators import Standardized
from foldless.priors import Gaussian, Prior
from foldless.problem import History, Outcome
from foldless.registry import registered
from foldless.solvers import EP
from foldless.solvers.knapsack.histograms import gaussian_histograms
from foldless.solvers.solve import Stopping, Watch
from foldless.tuning.em import without_base
from foldless.tuning.fit import Choices, Fit, fit_tuned
from foldless.tuning.record import Recorder
from foldless.tuning.table import Layout, LeftOut, Table

NOISE_KINDS: tuple[Channel, ...] = (Probit(), FlippedLabels(Probit()), Step())
# Of the histograms that show the Gaussian marginals, as many as `BayesPointClassifier` has.
N_BINS = 128


@registered("estimator/ep-bayes-point")
@dataclass(eq=False, repr=False)
class EPBayesPointClassifier(BayesPointBase):
    """The Bayes point machine by expectation propagation [Minka 2001].

    The Bayes point is the average of all linear classifiers, weighted by how well they explain the labels.
    EP approximates their posterior by a Gaussian with exact covariances: fast, with an evidence that chooses
    the noise, and an honest leave-one-out error. `BayesPointClassifier` is the same without the Gaussian
    approximation, for the 0-1 loss. Many classes are one against the rest.

    Parameters
    ----------
    channel : 'auto', str or Channel, default='auto'
        'probit', 'robust-probit', 'step', or any other channel; 'auto' takes that with the largest evidence.
        The prior is Gaussian, its variance learnt.
    tol : float, default=1e-4
        Change of weights at which the iteration ends.
    max_iter : int, default=500
        Iterations of each fit.

    Attributes
    ----------
    weight_marginals_ : Histograms
        As of `BayesPointClassifier`; marginals are Gaussian.
    channel_, prior_ : Channel, Prior
        With what was learnt. With several classes these, and the next two, are lists, class by class.
    log_evidence_, evidence_path_ : float, list of (Channel, float)
        The evidence of the fit, and that of every kind of noise.
    loo_proba_, loo_error_, loo_log_loss_ : array of shape (n_samples, n_classes), float, float
        Leave-one-out, read off the cavities.
    loo_worth_ : Worth
        What these are worth: ``error_interval`` (95 %), ``auc`` and ``auc_interval``,
        ``calibration_slope``, and the same of class frequencies, ``guessing_error``, ``guessing_log_loss``.

    See Also
    --------
    BayesPointClassifier : The 0-1 loss itself, by messages that are whole histograms.

    Examples
    --------
    >>> from foldless import EPBayesPointClassifier
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = EPBayesPointClassifier().fit(X, y)
    >>> bool(model.score(X, y) > 0.9)
    True
    """

    channel: str | Channel = "auto"
    _: KW_ONLY
    max_iter: int = 500

    def _binary_fit(self) -> BinaryFit:
        check_scalar(self.max_iter, "max_iter", Integral, min_val=1)
        channels = NOISE_KINDS if self.channel == "auto" else (channel_from(self.channel),)
        stopping = Stopping(tol=float(self.tol), max_iter=int(self.max_iter))
        watch = self._show if self.verbose else None

        def fit(columns: Standardized, labels: Array, weight: Array) -> OneAgainstRest:
            found, tried = fit_by_evidence(columns, labels, weight, channels, stopping, watch=watch)
            return _one_against_rest(found, tried)

        return fit

    def _account(self) -> tuple[Sentence, ...]:
        point = said(
            f"The Bayes point, the mean of all linear classifiers on {self._on} weighted by how well they "
            f"explain the labels, was found by {SOLVERS['EP']}, with a Gaussian prior.",
            ("solver", "EP"),
            ("prior", "Gaussian"),
            ("kernel", self._basis is not None),
        )
        channels, tried = self._of_classes(self.channel_), self._of_classes(self.evidence_path_)[0]
        names = list(dict.fromkeys(component_name(channel) for channel in channels))
        how = f", of {len(tried)} kinds of noise the one with the largest evidence" if len(tried) > 1 else ""
        noise = said(
            f"The likelihood is {' or '.join(names)}{how}.",
            *(("channel", name) for name in names),
            ("channels compared", len(tried)),
        )
        learnt = sorted({without_base(name) for found in self._of_classes(self._learnt) for name in found})
        text = f"Learnt by {TUNINGS['em']}: {'; '.join(meaning(name) for name in learnt) or 'nothing'}."
        by_em = (*(("learnt", name) for name in learnt), ("learnt by", "em"))
        return (point, *self._each_class(), noise, said(text, *(by_em if learnt else (("learnt", None),))))

    def _of_classes(self, attribute: Any) -> list[Any]:
        """An attribute that is a list, class by class, of several classes only."""
        return list(attribute) if len(self._points) > 1 else [attribute]

    def _summary(self) -> Summary:
        found = replace(super()._summary(), loo=self._left_out(FROM_CAVITIES))
        if len(self._points) > 1:
            return found
        return replace(
            found,
            parts=(("prior", component_name(self.prior_)), ("likelihood", component_name(self.channel_))),
            parameters=parameters(self.prior_, self.channel_, frozenset(self._learnt)),
            measures=(("log evidence", f"{self.log_evidence_:.4g}"),),
        )


def fit_by_evidence(
    standardized: Standardized,
    labels: Array,
    sample_weight: Array,
    channels: Sequence[Channel],
    stopping: Stopping,
    *,
    watch: Watch | None = None,
) -> tuple[Fit, list[tuple[Channel, float]]]:
    """The fit with the largest evidence, and the evidence of each; fits that ran away do not stand."""
    table = Table(standardized, labels, sample_weight, LeftOut(sample_weight), Layout(standardized.shape[1]))
    recorder, fits = Recorder(watch), []
    for channel in channels:
        # A channel that depends on signs only does not inform the size of weights.
        prior: str | Prior = Gaussian(1.0) if channel.scale_free else "gaussian"
        choices = Choices(prior, channel, EP(), stopping, generative_weight=0.0)
        fits.append(fit_tuned(table, choices, recorder))
        if fits[-1].outcome is Outcome.INTERRUPTED:
            raise KeyboardInterrupt  # rather than a choice between the others
    tried = [(found.channel, float(found.solution.posterior.log_evidence)) for found in fits]

    def standing(n: int) -> tuple[bool, float]:
        return fits[n].outcome.trustworthy, float(np.nan_to_num(tried[n][1], nan=-np.inf))

    return fits[max(range(len(fits)), key=standing)], tried


def _learnt(history: History) -> tuple[str, ...]:
    """Parameters that moved."""
    last = history.iterations[-1].tuned if len(history) else {}
    return tuple(name for name in sorted(last) if np.any(history.tuned(name) != history.tuned(name)[0]))


def _one_against_rest(fit: Fit, tried: list[tuple[Channel, float]]) -> OneAgainstRest:
    posterior, constant = fit.solution.posterior, fit.table.standardized.constant
    mean, var = (np.where(constant, 0.0, moment[:-1]) for moment in (posterior.mean, posterior.var))
    # Variances of new scores leave covariances out, and are scaled so that on average they are what
    # the cavities of the training scores, covariances included, are.
    weight = fit.solution.problem.label_weight
    diagonal = fit.table.standardized.score_variances(var) + posterior.var[-1]
    variance_scale = float(weight @ posterior.loo_var) / float(weight @ diagonal)
    intercept, intercept_var = float(posterior.mean[-1]), float(posterior.var[-1])
    return OneAgainstRest(
        EPPoint(mean, var, intercept, intercept_var, variance_scale, fit.channel),
        gaussian_histograms(mean, np.sqrt(var), N_BINS),
        fit.solution.outcome,
        len(fit.solution.history),
        {
            "channel_": fit.channel,
            "prior_": fit.prior,
            "log_evidence_": posterior.log_evidence,
            "evidence_path_": tried,
            "_learnt": _learnt(fit.solution.history),
        },
        fit.solution.loo_log_odds(),
    )
