"""Priors of other priors: another one for some columns, a background, a ridge, more weights to learn from."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Self, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from foldless.beliefs import Array, Tilted
from foldless.component import Names, inner_names, wants
from foldless.priors.base import (
    Denoiser,
    HoldsArrays,
    HyperPrior,
    Prior,
    SlabEvidence,
    TiltedRows,
    Weight,
    as_cavity,
    proximal_of,
    require_prior,
    slab_evidence_of,
)
from foldless.registry import registered

Columns = slice | Sequence[int] | NDArray[np.integer[Any]]
Answer = TypeVar("Answer", Tilted, TiltedRows)

# Screened-out weights are counted in bins of their cavities' means. Within a bin of width h standard
# deviations the Bayes factor of a slab, at most exp(z²/2), is off by (1 + z²) h²/24 at second order: 1e-4 at
# z = 5.
BINS_PER_STANDARD_DEVIATION = 100
# They are close to zero; any further out than this would count as no more than so far.
OUTERMOST = 20
# Counted at a time, so that no temporary is of the features' length.
COUNTED_AT_ONCE = 1 << 16


@registered("prior/blocks")
@dataclass(frozen=True, eq=False)
class Blocks(HoldsArrays):
    """`base` for all weights except those of `others`, pairs of columns and their prior.

    An intercept in the last column:

        Blocks(SpikeAndSlab(), others=((slice(-1, None), Gaussian(variance=100.0)),))

    Columns index the first axis of the weights, as a slice or as integers, and must not overlap. The
    parameters of each prior are learned from its own columns; those of the others only with
    ``tune_others=True``, because intercepts and covariates are too few to learn from and have wide priors.
    """

    base: Prior
    others: tuple[tuple[Columns, Prior], ...] = ()
    tune_others: bool = False

    def __post_init__(self) -> None:
        require_prior(self, "base", self.base)
        for pair in self.others:
            if not (isinstance(pair, (tuple, list)) and len(pair) == 2):
                raise ValueError(
                    f"Blocks(others=...) must be pairs (columns, prior); got {pair!r}. "
                    "One block is others=((slice(-1, None), Gaussian(variance=100.0)),), with both commas."
                )
            columns, prior = pair
            if not (isinstance(columns, slice) or np.issubdtype(np.asarray(columns).dtype, np.integer)):
                raise ValueError(
                    f"Blocks(others=...) needs columns as a slice or as integers; got {columns!r}. "
                    "Turn names or a mask into positions with numpy.flatnonzero."
                )
            require_prior(self, "others", prior)

    def tunable_params(self, on_request: bool = False) -> tuple[str, ...]:
        """Those of the base, and ``others`` as a whole if they are tuned."""
        return super().tunable_params(on_request) + (("others",) if self.tune_others else ())

    @property
    def joint(self) -> bool:
        return self.base.joint

    def of_base(self, n_weights: int) -> NDArray[np.bool_]:
        """Which weights have the prior of the base."""
        found = np.ones(n_weights, dtype=bool)
        for columns, _ in self.others:
            found[columns] = False
        return found

    def constrained(self, cavity_mean: Array, cavity_var: Array, weight: Array | float = 1.0) -> Prior:
        """With a base that meets its constraints on its own columns."""
        if not self.joint:
            return self
        r, tau = as_cavity(cavity_mean, cavity_var)
        base_weight = np.array(np.broadcast_to(np.asarray(weight, dtype=r.dtype), r.shape))
        for columns, _ in self.others:
            base_weight[columns] = 0.0
        return replace(self, base=self.base.constrained(r, tau, base_weight))

    def of_columns(self, columns: NDArray[np.intp], n_weights: int) -> Prior:
        """With every block where its columns are among these; `columns` are positions, none twice."""
        others: list[tuple[Columns, Prior]] = []
        for block, prior in self.others:
            theirs = positions_of(block, n_weights)
            order = np.argsort(theirs)
            place = np.searchsorted(theirs, columns, sorter=order)
            own = order[np.minimum(place, theirs.size - 1)] if theirs.size else place
            here = np.flatnonzero(theirs[own] == columns) if theirs.size else own[:0]
            if here.size:
                others.append((here, prior.of_columns(own[here], theirs.size)))
        return replace(self, base=self.base.of_columns(columns, n_weights), others=tuple(others))

    def tilted(self, cavity_mean: Array, cavity_var: Array) -> Tilted:
        """Each prior's answer on its own columns."""
        if self.joint:
            return self.constrained(cavity_mean, cavity_var).tilted(cavity_mean, cavity_var)
        return self._scatter("tilted", cavity_mean, cavity_var)

    @property
    def proximal(self) -> Denoiser:
        """Max-sum, if all priors have it."""
        for prior in self._priors:
            proximal_of(prior, self)
        return partial(self._scatter, "proximal")

    @property
    def tilted_rows(self) -> Callable[[Array, Array], TiltedRows]:
        """Each prior's answer on its own rows, under full covariances, if all priors have it."""
        return self._of_rows("tilted_rows")

    @property
    def proximal_rows(self) -> Callable[[Array, Array], TiltedRows]:
        return self._of_rows("proximal_rows")

    def _of_rows(self, rule: str) -> Callable[[Array, Array], TiltedRows]:
        for prior in self._priors:
            if not hasattr(prior, rule):
                raise AttributeError(f"{type(prior).__name__} has no {rule}.")
        return lambda shift, precision: self._overwritten(
            getattr(self.base, rule)(shift, precision), rule, shift, precision
        )

    @property
    def _priors(self) -> tuple[Prior, ...]:
        return (self.base, *(prior for _, prior in self.others))

    def inclusion_probability(self, cavity_mean: Array, cavity_var: Array) -> Array:
        """Posterior probability that the weight is not exactly zero; one where a prior has no spike."""
        r, tau = as_cavity(cavity_mean, cavity_var)
        tau = np.broadcast_to(tau, r.shape)
        met = self.base if not self.joint else cast(Blocks, self.constrained(r, tau)).base
        inclusion = met.inclusion_probability(r, self._of_base(tau))  # type: ignore[attr-defined]
        for columns, prior in self.others:
            inclusion[columns] = prior.inclusion_probability(r[columns], tau[columns])  # type: ignore[attr-defined]
        return inclusion

    def moments(self) -> tuple[float, float]:
        """Those of the base, which most weights have; `start` has those of every column."""
        return self.base.moments()

    def start(self, n_weights: int) -> tuple[Array, Array]:
        mean, var = self.base.start(n_weights)
        for columns, prior in self.others:
            mean[columns], var[columns] = prior.moments()
        return mean, var

    def sample(self, size: int | tuple[int, ...], rng: np.random.Generator) -> Array:
        """Draws for weights whose first axis has the columns."""
        draws = self.base.sample(size, rng)
        for columns, prior in self.others:
            draws[columns] = prior.sample(draws[columns].shape, rng)
        return draws

    def _learned(self, r: Array, tau: Array, weight: Weight, names: Names, hyper: HyperPrior) -> Self:
        """One EM step of each prior on its own columns."""
        tau = np.broadcast_to(tau, r.shape)
        # The base sees all columns, as in `tilted`, and counts those of the others zero times.
        base_weight = np.array(np.broadcast_to(np.asarray(weight, dtype=r.dtype), r.shape))
        others = list(self.others)
        for k, (columns, prior) in enumerate(self.others):
            if self.tune_others and wants(names, "others"):
                learned = prior.em_update(  # type: ignore[attr-defined]
                    r[columns], tau[columns], weight=base_weight[columns], hyper=hyper
                )
                others[k] = (columns, learned)
            base_weight[columns] = 0.0
        base_names = inner_names(names, "base")
        base = self.base
        if base_names is None or base_names:
            base = base.em_update(  # type: ignore[attr-defined]
                r, self._of_base(tau), weight=base_weight, names=base_names, hyper=hyper
            )
        return replace(self, base=base, others=tuple(others))

    def _scatter(self, rule: str, cavity_mean: Array, cavity_var: Array) -> Tilted:
        r, tau = as_cavity(cavity_mean, cavity_var)
        tau = np.broadcast_to(tau, r.shape)
        return self._overwritten(getattr(self.base, rule)(r, self._of_base(tau)), rule, r, tau)

    def _overwritten(self, answer: Answer, rule: str, *cavity: Array) -> Answer:
        """The base answers for all columns and the others overwrite theirs, which are few: cheaper than
        gathering the rest, and a base with one parameter per column keeps its alignment.
        """
        for columns, prior in self.others:
            part = getattr(prior, rule)(*(values[columns] for values in cavity))
            for values, own in zip(answer, part, strict=True):
                values[columns] = own
        return answer

    def _of_base(self, cavity_var: Array) -> Array:
        """The cavity variances as the base may see them: a single number if all of its columns have the same.

        Standardised columns do under rank-one variances, and one number saves the base logarithms and
        quotients of every weight, half of its time.
        """
        if cavity_var.ndim != 1 or cavity_var.size < 2 or cavity_var[0] != cavity_var[1]:
            return cavity_var
        free = self.of_base(cavity_var.size)
        shared = cavity_var[int(np.argmax(free))]
        differs = cavity_var != shared
        differs &= free
        return cavity_var if differs.any() else np.asarray(shared)


def positions_of(columns: Columns, n_weights: int) -> NDArray[np.intp]:
    """Columns as non-negative positions."""
    if isinstance(columns, slice):
        return np.arange(*columns.indices(n_weights), dtype=np.intp)
    return np.asarray(columns, dtype=np.intp) % n_weights


@dataclass(frozen=True, eq=False)
class MovedCavity(HoldsArrays):
    """A wrapper that shows its base another cavity; everything learned or asked happens there."""

    base: Prior

    # Parameters that may have one value per column.
    by_column: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        require_prior(self, "base", self.base)

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
        own: dict[str, Any] = {
            name: _at_columns(getattr(self, name), columns, n_weights) for name in self.by_column
        }
        own["base"] = self.base.of_columns(columns, n_weights)
        same = all(value is getattr(self, name) for name, value in own.items())
        return self if same else replace(self, **own)

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


@registered("prior/over-background")
@dataclass(frozen=True, eq=False)
class OverBackground(MovedCavity):
    """w = b + g:  b from the base, and g ~ N(0, variance), which every weight has beside it.

    A spike and slab over a background has a narrow Gaussian where the spike was: few large effects among
    very many small ones, as in BSLMM [Zhou 2013] and SuSiE-inf [Cui 2024]. Whether a weight is in is a
    question of b alone. Where columns are correlated, the background takes up what they share, for which a
    point at zero would have to blame single columns.

    `variance` is a number or an array that broadcasts against the weights. It is not learnt.
    """

    variance: float | Array

    by_column: ClassVar[tuple[str, ...]] = ("variance",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (_are_finite(self.variance) and np.all(np.asarray(self.variance) > 0)):
            raise ValueError(
                "OverBackground(variance=...) must be finite and > 0, a number or one per feature; "
                f"got {self.variance!r}. Without a background use the base itself."
            )

    def inner_cavity(self, cavity_mean: Array, cavity_var: Array) -> tuple[Array, Array]:
        """b is seen through the background, too: its variance is added."""
        r, tau = as_cavity(cavity_mean, cavity_var)
        return r, np.asarray(tau + np.asarray(self.variance, dtype=r.dtype))

    def tilted(self, cavity_mean: Array, cavity_var: Array) -> Tilted:
        """With s² the variance, V = τ + s², and m, v the moments of b at its cavity (r, V):

        mean = (τ m + s² r) / V,    var = (τ/V)² v + s² τ/V,    log_z = that of b.
        """
        r, tau = as_cavity(cavity_mean, cavity_var)
        _, total = self.inner_cavity(r, tau)
        mean, var, log_z = self.base.tilted(r, total)
        share = tau / total
        own = np.asarray(self.variance, dtype=r.dtype) / total
        return Tilted(share * mean + own * r, share * share * var + own * tau, log_z)

    def moments(self) -> tuple[float, float]:
        """Of a weight with the mean of the variances."""
        mean, var = self.base.moments()
        return mean, var + float(np.mean(self.variance))

    def start(self, n_weights: int) -> tuple[Array, Array]:
        mean, var = self.base.start(n_weights)
        return mean, var + np.asarray(self.variance)

    def sample(self, size: int | tuple[int, ...], rng: np.random.Generator) -> Array:
        spread = np.sqrt(np.asarray(self.variance))
        if spread.ndim:
            spread = spread.reshape(spread.shape + (1,) * (len(np.atleast_1d(size)) - 1))
        return self.base.sample(size, rng) + spread * rng.standard_normal(size)


def background_of(prior: Prior, n_weights: int) -> Array:
    """The variances of the background, zero for columns that have none."""
    base = prior.base if isinstance(prior, Blocks) else prior
    if not isinstance(base, OverBackground):
        raise ValueError(
            f"BackgroundEP needs a prior over a background; got {type(base).__name__}. "
            "Use OverBackground(SpikeAndSlab(...), variance), or EP."
        )
    found = np.array(np.broadcast_to(np.asarray(base.variance, dtype=np.float64), n_weights))
    for columns, _ in prior.others if isinstance(prior, Blocks) else ():
        found[positions_of(columns, n_weights)] = 0.0
    return found


@dataclass(frozen=True, eq=False)
class WithEvidence(MovedCavity):
    """base(w) exp(-precision (w - c)²/2): the base after further evidence, of this precision, for w near c.

    The factor multiplies spike and slab alike, so it is merged into the cavity. It stands for data: it is not
    normalised, `moments` and `sample` are those of the base, and parameters are learnt beside it.
    """

    precision: float | Array

    by_column: ClassVar[tuple[str, ...]] = ("precision",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (_are_finite(self.precision) and np.all(np.asarray(self.precision) >= 0)):
            raise ValueError(
                f"{type(self).__name__}(precision=...) must be finite and >= 0, a number or one per feature; "
                f"got {self.precision!r}. A precision of 0 is no evidence."
            )

    @abstractmethod
    def _center(self) -> float | Array:
        """c."""

    def inner_cavity(self, cavity_mean: Array, cavity_var: Array) -> tuple[Array, Array]:
        """Precisions add: τ' = 1/(1/τ + κ), r' = τ' (r/τ + κ c). Right for a cavity of any width."""
        r, tau = as_cavity(cavity_mean, cavity_var)
        precision, center = self._as(r.dtype)
        inner_var = 1.0 / (1.0 / tau + precision)
        return np.asarray(r * (inner_var / tau) + inner_var * (precision * center)), np.asarray(inner_var)

    def tilted(self, cavity_mean: Array, cavity_var: Array) -> Tilted:
        """The base at the inner cavity; with κ the precision

        log_z = log_z of the base - ½ κ (r - c)²/(1 + κ τ) - ½ log(1 + κ τ).
        """
        r, tau = as_cavity(cavity_mean, cavity_var)
        mean, var, log_z = self.base.tilted(*self.inner_cavity(r, tau))
        return Tilted(mean, var, log_z + self._log_factor(r, tau))

    @property
    def proximal(self) -> Denoiser:
        """Max-sum, if the base has it: the same without the last term, which is of a normaliser."""
        rule = proximal_of(self.base, self)

        def proximal(cavity_mean: Array, cavity_var: Array) -> Tilted:
            r, tau = as_cavity(cavity_mean, cavity_var)
            mean, var, maximum = rule(*self.inner_cavity(r, tau))
            return Tilted(mean, var, maximum + self._log_factor(r, tau, normalised=False))

        return proximal

    def _log_factor(self, r: Array, tau: Array, *, normalised: bool = True) -> Array:
        """What cavity times evidence has more than the inner cavity."""
        precision, center = self._as(r.dtype)
        more = precision * tau
        log_factor = -0.5 * (precision * np.square(r - center) / (1.0 + more))
        return log_factor - 0.5 * np.log1p(more) if normalised else log_factor

    def _as(self, dtype: Any) -> tuple[Array, Array]:
        return np.asarray(self.precision, dtype=dtype), np.asarray(self._center(), dtype=dtype)


@registered("prior/ridged")
@dataclass(frozen=True, eq=False)
class Ridged(WithEvidence):
    """base(w) exp(-precision w²/2): the base after further evidence for small weights.

    The factor is a likelihood of the features themselves in a blend of discriminative and generative models.

    `precision` is a number or an array that broadcasts against the weights.
    """

    def _center(self) -> float | Array:
        return 0.0

    def slab_evidence(self, cavity_mean: Array, cavity_var: Array) -> SlabEvidence:
        """The ridge is one at w = 0, so the Bayes factor is that of the base at the inner cavity."""
        r, tau = as_cavity(cavity_mean, cavity_var)
        base = slab_evidence_of(self.base, *self.inner_cavity(r, tau))
        return base._replace(log_z=base.log_z + self._log_factor(r, tau))


@registered("prior/observed")
@dataclass(frozen=True, eq=False)
class Observed(WithEvidence):
    """base(w) exp(-precision (w - centre)²/2): the base after a look at every weight, such as class means.

    The slab of a spike and slab then has a mean of its own for each weight, and so has the inclusion.

    `precision` and `centre` are numbers or arrays that broadcast against the weights.
    """

    centre: float | Array

    by_column: ClassVar[tuple[str, ...]] = ("precision", "centre")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not _are_finite(self.centre):
            raise ValueError(f"Observed(centre=...) must be finite; got {self.centre!r}.")

    def _center(self) -> float | Array:
        return self.centre


@registered("prior/with-screened-out")
@dataclass(frozen=True, eq=False)
class WithScreenedOut(MovedCavity):
    """The base, which learns also from weights that were screened out.

    Whatever else is asked is answered by the base alone.
    """

    # Cavities of theirs, and how many weights have them.
    screened_out_mean: Array
    screened_out_var: Array
    count: Array

    @classmethod
    def counting(
        cls, base: Prior, cavity_mean: Array, cavity_var: Array, screened_out: NDArray[np.bool_]
    ) -> Self:
        """Of all weights, which have these cavities, those marked `screened_out`.

        Weights whose cavities are within a hundredth of a standard deviation of each other become one, with
        the mean of their means and variances, that counts so many times.
        """
        r, tau = as_cavity(cavity_mean, cavity_var)
        tau = np.broadcast_to(tau, r.shape)
        last = OUTERMOST * BINS_PER_STANDARD_DEVIATION
        sums = np.zeros((3, 2 * last + 1))
        for start in range(0, r.size, COUNTED_AT_ONCE):
            piece = slice(start, start + COUNTED_AT_ONCE)
            var = tau[piece][screened_out[piece]]
            z = r[piece][screened_out[piece]] / np.sqrt(var)
            bins = np.rint(np.clip(BINS_PER_STANDARD_DEVIATION * z, -last, last)).astype(np.intp) + last
            for total, values in zip(sums, (None, z, var), strict=True):
                total += np.bincount(bins, values, minlength=total.size)
        count, z, var = sums[:, sums[0] > 0]
        return cls(base, z / count * np.sqrt(var / count), var / count, count)

    def screened_out_variance(self) -> float:
        """What the variances of all screened-out weights add up to."""
        return float(self.count @ self.base.tilted(self.screened_out_mean, self.screened_out_var).var)

    def inner_cavity(self, cavity_mean: Array, cavity_var: Array) -> tuple[Array, Array]:
        return as_cavity(cavity_mean, cavity_var)

    def tilted(self, cavity_mean: Array, cavity_var: Array) -> Tilted:
        return self.base.tilted(cavity_mean, cavity_var)

    @property
    def proximal(self) -> Denoiser:
        return proximal_of(self.base, self)

    def _learned(self, r: Array, tau: Array, weight: Weight, names: Names, hyper: HyperPrior) -> Self:
        """One EM step of the base over present and screened-out weights together."""
        present = (np.broadcast_to(np.asarray(each), r.shape).ravel() for each in (r, tau, weight))
        # In double precision: few are present, and what the screened-out ones count by may be millions.
        mean, var, count = (
            np.concatenate(both, dtype=np.float64)
            for both in zip(present, (self.screened_out_mean, self.screened_out_var, self.count), strict=True)
        )
        base = self.base.em_update(  # type: ignore[attr-defined]
            mean, var, weight=count, names=inner_names(names, "base"), hyper=hyper
        )
        return replace(self, base=base)


def _are_finite(values: float | Array) -> bool:
    array = np.asarray(values)
    return bool(np.issubdtype(array.dtype, np.number) and np.isfinite(array).all())


def _at_columns(values: float | Array, columns: NDArray[np.intp], n_weights: int) -> float | Array:
    """A number as it is, and of one value per weight those of these columns."""
    array = np.asarray(values)
    return array[columns] if array.ndim and array.shape[0] == n_weights else values


def innermost(prior: Prior) -> Prior:
    """What is wrapped by all that moves a cavity."""
    while isinstance(prior, MovedCavity):
        prior = prior.base
    return prior


def innermost_cavity(prior: Prior, cavity_mean: Array, cavity_var: Array) -> tuple[Array, Array]:
    """The cavity as the innermost prior sees it."""
    while isinstance(prior, MovedCavity):
        cavity_mean, cavity_var = prior.inner_cavity(cavity_mean, cavity_var)
        prior = prior.base
    return cavity_mean, cavity_var


def around_innermost(prior: Prior, wrapped: Callable[[Prior], Prior]) -> Prior:
    """The same prior with its innermost wrapped once more."""
    if isinstance(prior, MovedCavity):
        return replace(prior, base=around_innermost(prior.base, wrapped))
    return wrapped(prior)
