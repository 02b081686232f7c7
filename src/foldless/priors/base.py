"""The contract of a prior, what is believed of a weight before the data; and what priors share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foldless.beliefs import Array, Tilted
from foldless.component import Component, Names
from foldless.registry import registered
from foldless.special import log_normal_density

# How often weights are counted: all equally, or each its own number of times.
Weight = Array | float
Denoiser = Callable[[Array, Array], Tilted]
# Weights handled at a time: the dozen temporaries of a prior then stay in a core's cache (64 kB each), and
# are never so large that the allocator fetches them from the system anew on every pass.
PIECE = 8192


@dataclass(frozen=True)
class Prior(Component):
    """A density over one weight, applied element-wise to all weights.

    All methods broadcast, accept float32 or float64 and return the dtype they got.
    """

    @abstractmethod
    def tilted(self, cavity_mean: Array, cavity_var: Array) -> Tilted:
        """Sum-product: moments of prior(w) N(w; mean, var) and the log normaliser."""

    @property
    def joint(self) -> bool:
        """Whether it constrains all weights together: the answer for one depends on the cavities of all."""
        return False

    def constrained(self, cavity_mean: Array, cavity_var: Array, weight: Weight = 1.0) -> Prior:
        """The element-wise prior to use at these cavities: itself, unless it is `joint`.

        Such a prior (`Pruned`) states averages over all weights, counted by `weight`, and finds here what
        meets them.
        """
        return self

    def of_columns(self, columns: NDArray[np.intp], n_weights: int) -> Prior:
        """The prior of some of `n_weights` weights: itself, unless it differs between columns."""
        return self

    @abstractmethod
    def moments(self) -> tuple[float, float]:
        """Mean and variance of the prior itself: the state of knowledge before any data."""

    def start(self, n_weights: int) -> tuple[Array, Array]:
        """Mean and variance of each of `n_weights` weights before any data: where a solver starts."""
        mean, var = self.moments()
        return np.full(n_weights, mean), np.full(n_weights, var)

    @abstractmethod
    def sample(self, size: int | tuple[int, ...], rng: np.random.Generator) -> Array:
        """Draws from the prior."""


@runtime_checkable
class SupportsMaxSum(Protocol):
    def proximal(self, cavity_mean: Array, cavity_var: Array) -> Tilted:
        """Max-sum: maximiser of log prior(w) - (w - mean)²/2var, var times its derivative, the maximum."""


@runtime_checkable
class SupportsInclusion(Protocol):
    def inclusion_probability(self, cavity_mean: Array, cavity_var: Array) -> Array:
        """Posterior probability that the weight is not exactly zero."""


@registered("prior/hyper-prior")
@dataclass(frozen=True)
class HyperPrior:
    """Weak beliefs about the parameters of priors, as pseudo-observations; zeros switch them off.

    Small real data sets (60 samples, 2 000 features) hardly inform single weights, and plain EM then
    drifts to a dense or an empty model. The defaults are worth a couple of imaginary weights, and
    are stated for columns of unit variance, where log-odds weights are of the order of one.
    """

    # As though this many further active weights of size `scale` had been seen.
    scale_count: float = 2.0
    scale: float = 1.0
    # Typical sizes beyond this many times `scale` are ruled out. Where classes are separable, every size of
    # weights fits the labels and larger ones fit better; ten log-odds per standard deviation is certainty.
    largest: float = 10.0
    # Beta prior of the inclusion rate: one imaginary active feature, `sparsity` times all inactive ones.
    active_count: float = 1.0
    sparsity: float = 0.2

    def bounded_size(self, size: float) -> float:
        """A typical size of weights (a standard deviation, a mean absolute value) within what is allowed."""
        return min(size, self.largest * self.scale)

    def log_density(self, variance: float) -> float:
        """What the imaginary weights say of a variance, over its logarithm and up to a constant."""
        return -0.5 * self.scale_count * (float(np.log(variance)) + self.scale**2 / variance)


NO_HYPER_PRIOR = HyperPrior(scale_count=0.0, largest=np.inf, active_count=0.0, sparsity=0.0)


@runtime_checkable
class SupportsEM(Protocol):
    def em_update(
        self,
        cavity_mean: Array,
        cavity_var: Array,
        *,
        weight: Weight = 1.0,
        names: Names = None,
        hyper: HyperPrior = NO_HYPER_PRIOR,
    ) -> Self:
        """One EM step for the named tunable parameters (None: all), weights counted with `weight`.

        `weight` is how a wrapper passes responsibilities on: a spike-and-slab prior updates its slab
        with each feature's inclusion probability.
        """


@dataclass(frozen=True)
class Learner(Prior):
    """A prior whose parameters EM can learn, by steps that a subclass calls `_learned`."""

    def em_update(
        self,
        cavity_mean: Array,
        cavity_var: Array,
        *,
        weight: Weight = 1.0,
        names: Names = None,
        hyper: HyperPrior = NO_HYPER_PRIOR,
    ) -> Self:
        return self._learned(*as_cavity(cavity_mean, cavity_var), weight, names, hyper)

    @abstractmethod
    def _learned(self, r: Array, tau: Array, weight: Weight, names: Names, hyper: HyperPrior) -> Self:
        """The step at cavities as `as_cavity` reads them."""


@dataclass(frozen=True)
class Continuous(Learner):
    """A prior with a density, the same for all weights: none is exactly zero."""

    def inclusion_probability(self, cavity_mean: Array, cavity_var: Array) -> Array:
        """One: a weight with a density is never exactly zero."""
        return np.ones_like(as_cavity(cavity_mean, cavity_var)[0])


@dataclass(frozen=True, eq=False)
class HoldsArrays(Learner):
    """A prior whose fields may hold arrays, which must not make its equality ambiguous."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and all(
            _same(getattr(self, f.name), getattr(other, f.name)) for f in fields(self)
        )

    def __hash__(self) -> int:
        return hash(type(self))


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.shape(a) == np.shape(b) and bool(np.array_equal(a, b))
    if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)):
        return len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


class TiltedRows(NamedTuple):
    """Moments of q(w) ∝ f(w) exp(η'w - ½ w'Λw), and the log of its integral; under max-sum the maximum.

    Rows of weights, one for each class, under full covariances, as HyGAMP asks for them (`tilted_rows`,
    `proximal_rows`). What labels say of a row has this form because Λ annihilates (1, ..., 1), as the softmax
    does not see a shift of all scores: there is no cavity with a mean and a covariance.
    """

    mean: Array  # (rows, D)
    cov: Array  # (rows, D, D)
    log_z: Array  # (rows,)


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


def slab_evidence_of(prior: Prior, r: Array, tau: Array) -> SlabEvidence:
    """What a spike needs of its slab: the prior's own answer, or the difference that it would avoid."""
    # Not isinstance: a protocol takes longer to ask than a thousand weights to answer.
    if hasattr(prior, "slab_evidence"):
        evidence: SlabEvidence = prior.slab_evidence(r, tau)
        return evidence
    # In double precision, because float32 would leave too little of it.
    r, tau = r.astype(np.float64, copy=False), tau.astype(np.float64, copy=False)
    slab = prior.tilted(r, tau)
    return SlabEvidence(*slab, slab.log_z - log_normal_density(0.0, r, tau))


def as_cavity(cavity_mean: ArrayLike, cavity_var: ArrayLike) -> tuple[Array, Array]:
    """Both as floating arrays of one dtype, the mean in their common shape.

    The dtype is that of the mean if it is a floating array. The variance keeps its own shape: a solver
    with one variance for all weights should not pay for a logarithm per weight.
    """
    mean, var = np.asarray(cavity_mean), np.asarray(cavity_var)
    if not (isinstance(cavity_mean, np.ndarray) and mean.dtype.kind == "f"):
        wider = np.result_type(mean, var)
        mean = mean.astype(wider if np.issubdtype(wider, np.floating) else np.float64)
    var = var.astype(mean.dtype, copy=False)
    if mean.shape == var.shape:  # to broadcast takes longer than a hundred weights
        return mean, var
    shape = np.broadcast_shapes(mean.shape, var.shape)
    return (mean if mean.shape == shape else np.broadcast_to(mean, shape)), var


def in_pieces(rule: Denoiser, r: Array, tau: Array) -> Tilted:
    """An element-wise rule applied to a long vector of weights piece by piece. Costs a third less time."""
    if r.ndim != 1 or r.size <= PIECE:
        return rule(r, tau)
    answer = Tilted(np.empty_like(r), np.empty_like(r), np.empty_like(r))
    for piece, var in pieces(r, tau):
        for whole, part in zip(answer, rule(r[piece], var), strict=True):
            whole[piece] = part
    return answer


def pieces(r: Array, tau: Array) -> Iterator[tuple[slice, Array]]:
    """Where the pieces of a vector of weights are, each with its cavity variances."""
    for start in range(0, r.size, PIECE):
        piece = slice(start, start + PIECE)
        yield piece, tau[piece] if tau.size > 1 else tau


def weighted_sum(values: Array, weight: ArrayLike) -> float:
    """Σ weight·values in double precision: 2 000 000 float32 terms would lose half of their digits."""
    if np.ndim(weight) == 0:
        return float(weight) * float(np.sum(values, dtype=np.float64))  # type: ignore[arg-type]
    return float(np.sum(values * np.asarray(weight), dtype=np.float64))


def total_weight(weight: ArrayLike, like: Array) -> float:
    """Σ weight over all weights of the model: how many observations an EM step has."""
    return float(np.sum(np.broadcast_to(np.asarray(weight, dtype=np.float64), like.shape)))


def require_prior(owner: object, field: str, value: Any) -> None:
    if not isinstance(value, Prior):
        raise TypeError(
            f"{type(owner).__name__}({field}=...) must be a prior; got {value!r}. "
            "Pass an object such as Gaussian(variance=1.0), not its name or its class."
        )


def proximal_of(base: Prior, owner: Prior) -> Denoiser:
    """The max-sum rule of a wrapped prior.

    Wrappers offer `proximal` as a property made of this, so that ``hasattr(wrapper, "proximal")`` tells
    the truth about what is inside.
    """
    if not hasattr(base, "proximal"):
        raise AttributeError(
            f"{type(owner).__name__} has `proximal` only if the priors in it do; {type(base).__name__} has "
            'only `tilted`. Use rule="sum-product", or a prior such as Laplace or ElasticNet.'
        )
    return base.proximal
