"""Priors: what is believed of the weights before the data."""

from __future__ import annotations

from foldless.priors.base import (
    NO_HYPER_PRIOR,
    HyperPrior,
    Prior,
    SupportsEM,
    SupportsInclusion,
    SupportsMaxSum,
)
from foldless.priors.gaussian import Gaussian, MultivariateGaussian
from foldless.priors.gaussian_mixture import GaussianMixture
from foldless.priors.laplace import ElasticNet, Laplace
from foldless.priors.pruned import Multipliers, Pruned
from foldless.priors.spike_and_slab import RowSparse, SpikeAndSlab
from foldless.priors.wrappers import Blocks, Observed, OverBackground, Ridged

# Names for command lines and search spaces. Wrappers that need columns or data have none.
PRIORS: dict[str, type[Prior]] = {
    "gaussian": Gaussian,
    "laplace": Laplace,
    "elastic-net": ElasticNet,
    "gaussian-mixture": GaussianMixture,
    "spike-and-slab": SpikeAndSlab,
    "row-sparse": RowSparse,
}


def prior_from(name_or_object: str | Prior) -> Prior:
    """The prior of that name with its default parameters; a prior is returned as it is."""
    if isinstance(name_or_object, Prior):
        return name_or_object
    if isinstance(name_or_object, str) and name_or_object in PRIORS:
        return PRIORS[name_or_object]()
    raise ValueError(
        f"Unknown prior {name_or_object!r}. Known names: {', '.join(sorted(PRIORS))}. "
        "Or pass an object, such as SpikeAndSlab(Laplace(rate=2.0), inclusion=0.05)."
    )


__all__ = [
    "NO_HYPER_PRIOR",
    "PRIORS",
    "Blocks",
    "ElasticNet",
    "Gaussian",
    "GaussianMixture",
    "HyperPrior",
    "Laplace",
    "Multipliers",
    "MultivariateGaussian",
    "Observed",
    "OverBackground",
    "Prior",
    "Pruned",
    "Ridged",
    "RowSparse",
    "SpikeAndSlab",
    "SupportsEM",
    "SupportsInclusion",
    "SupportsMaxSum",
    "prior_from",
]
