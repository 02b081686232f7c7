"""The EP Bayes point machine: one fit per kind of label noise, the evidence chooses.

Noise can be on the score (probit) or on the label (a share of labels is wrong whatever the score: step), or
both (robust probit). EM learns how much of it there is inside each fit; which kind, the evidence decides.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foldless.beliefs import Array
from foldless.channels import Channel, FlippedLabels, Probit, Step
from foldless.operators import Standardized
from foldless.priors import Gaussian, Prior
from foldless.problem import Outcome
from foldless.solvers import EP, Stopping
from foldless.solvers.solve import Watch
from foldless.tuning.fit import Choices, Fit, fit_tuned
from foldless.tuning.record import Recorder
from foldless.tuning.table import Layout, LeftOut, Table

NOISE_KINDS: tuple[Channel, ...] = (Probit(), FlippedLabels(Probit()), Step())


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
