"""What priors share: reading a cavity, weighted sums, checks, and wrappers that move the cavity."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foldless.beliefs import Array, Tilted
from foldless.component import Names, inner_names
from foldless.priors.base import NO_HYPER_PRIOR, HyperPrior, Prior, Weight


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
    shape = np.broadcast_shapes(mean.shape, var.shape)
    return (mean if mean.shape == shape else np.broadcast_to(mean, shape)), var


def filled(values: Array, like: Array) -> Array:
    """`values` as a writable array in the shape and dtype of `like`, which a result must have."""
    if isinstance(values, np.ndarray) and values.shape == like.shape and values.dtype == like.dtype:
        return values
    return np.array(np.broadcast_to(values, like.shape), dtype=like.dtype)


Denoiser = Callable[[Array, Array], Tilted]

# Weights handled at a time: the dozen temporaries of a prior then stay in a core's cache (64 kB each), and
# are never so large that the allocator fetches them from the system anew on every pass.
PIECE = 8192


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


def asked_explicitly(names: frozenset[str] | None, field: str) -> bool:
    """For parameters outside `tunable`: learned only when named, not when "all" is asked for."""
    return names is not None and field in names


def require_prior(owner: object, field: str, value: Any) -> None:
    if not isinstance(value, Prior):
        raise TypeError(
            f"{type(owner).__name__}({field}=...) must be a prior; got {value!r}. "
            "Pass an object such as Gaussian(variance=1.0), not its name or its class."
        )


def same(a: Any, b: Any) -> bool:
    """Equality that arrays inside parameters do not make ambiguous."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.shape(a) == np.shape(b) and bool(np.array_equal(a, b))
    if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


def same_fields(a: Prior, b: object) -> bool:
    """`__eq__` of priors whose fields may hold arrays."""
    return type(a) is type(b) and all(same(getattr(a, f.name), getattr(b, f.name)) for f in fields(a))


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
        """One EM step for the named tunable parameters (None: all), weights counted with `weight`."""
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
class MovedCavity(Learner):
    """A wrapper that shows its base another cavity; everything learned or asked happens there."""

    base: Prior

    def __post_init__(self) -> None:
        require_prior(self, "base", self.base)

    def __eq__(self, other: object) -> bool:
        return same_fields(self, other)

    def __hash__(self) -> int:
        return hash((type(self), self.base))

    @abstractmethod
    def inner_cavity(self, cavity_mean: Array, cavity_var: Array) -> tuple[Array, Array]:
        """Mean and variance of the pseudo-observation as the base sees it."""

    @property
    def joint(self) -> bool:
        return self.base.joint

    def constrained(self, cavity_mean: Array, cavity_var: Array, weight: Weight = 1.0) -> Prior:
        """With a base that meets its constraints at the cavities it is shown."""
        if not self.joint:
            return self
        inner = self.inner_cavity(cavity_mean, cavity_var)
        return replace(self, base=self.base.constrained(*inner, weight))

    def of_columns(self, columns: NDArray[np.intp], n_weights: int) -> Prior:
        return replace(self, base=self.base.of_columns(columns, n_weights))

    def moments(self) -> tuple[float, float]:
        """Those of the base: what this wrapper adds stands for data, and is not known before them."""
        return self.base.moments()

    def start(self, n_weights: int) -> tuple[Array, Array]:
        """That of the base, which may differ between columns."""
        return self.base.start(n_weights)

    def sample(self, size: int | tuple[int, ...], rng: np.random.Generator) -> Array:
        """Draws from the base, for the same reason."""
        return self.base.sample(size, rng)

    def inclusion_probability(self, cavity_mean: Array, cavity_var: Array) -> Array:
        """Posterior probability, under the base, that the weight is not exactly zero."""
        return self.base.inclusion_probability(*self.inner_cavity(cavity_mean, cavity_var))  # type: ignore[attr-defined]

    def _learned(self, r: Array, tau: Array, weight: Weight, names: Names, hyper: HyperPrior) -> Self:
        """One EM step of the base; names are those of the base with ``base__`` in front."""
        base = self.base.em_update(  # type: ignore[attr-defined]
            *self.inner_cavity(r, tau), weight=weight, names=inner_names(names, "base"), hyper=hyper
        )
        return replace(self, base=base)
