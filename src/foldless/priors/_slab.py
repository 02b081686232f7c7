"""What a spike needs to know of its slab: tilted moments, and the odds against a weight of zero."""

from __future__ import annotations

from typing import NamedTuple, Protocol, cast

import numpy as np

from foldless.beliefs import Array
from foldless.priors.base import Prior
from foldless.special import log_normal_density


class SlabEvidence(NamedTuple):
    """The tilted moments, and log_bayes_factor = log_z - log N(0; cavity_mean, cavity_var).

    Both logs, because each is the exact one where the other is a small difference of large numbers: log_z
    in narrow cavities far out, the Bayes factor in wide ones. `var` may still have the shape of the cavity
    variance.
    """

    mean: Array
    var: Array
    log_z: Array
    log_bayes_factor: Array


class SupportsSlabEvidence(Protocol):
    def slab_evidence(self, cavity_mean: Array, cavity_var: Array) -> SlabEvidence:
        """Tilted moments, and the log Bayes factor against zero without a difference of log densities."""


def slab_evidence_of(prior: Prior, r: Array, tau: Array) -> SlabEvidence:
    """The prior's own answer; for priors without one, the difference it was made to avoid."""
    # Not isinstance: a protocol takes longer to ask than a thousand weights to answer.
    if hasattr(prior, "slab_evidence"):
        return cast(SupportsSlabEvidence, prior).slab_evidence(r, tau)
    # In double precision, because float32 would leave too little of it.
    r, tau = r.astype(np.float64, copy=False), tau.astype(np.float64, copy=False)
    slab = prior.tilted(r, tau)
    return SlabEvidence(*slab, slab.log_z - log_normal_density(0.0, r, tau))
