"""Other priors for other columns: the intercept, covariates that are always kept, known groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from foldless.beliefs import Array, Tilted
from foldless.component import Names, inner_names, wants
from foldless.priors._common import Denoiser, Learner, as_cavity, proximal_of, require_prior, same_fields
from foldless.priors._rows import TiltedRows
from foldless.priors.base import HyperPrior, Prior, Weight
from foldless.registry import registered

Columns = slice | Sequence[int] | NDArray[np.integer[Any]]


@registered("prior/blocks")
@dataclass(frozen=True, eq=False)
class Blocks(Learner):
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

    def __eq__(self, other: object) -> bool:
        return same_fields(self, other)

    def __hash__(self) -> int:
        return hash((type(self), self.base))

    def tunable_params(self, on_request: bool = False) -> tuple[str, ...]:
        """Those of the base, and ``others`` as a whole if they are tuned."""
        return super().tunable_params(on_request) + (("others",) if self.tune_others else ())

    @property
    def joint(self) -> bool:
        return self.base.joint

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
            here = np.flatnonzero(np.isin(columns, theirs))
            if here.size:
                order = np.argsort(theirs)
                own = order[np.searchsorted(theirs, columns[here], sorter=order)]
                others.append((here, prior.of_columns(own, theirs.size)))
        return replace(self, base=self.base.of_columns(columns, n_weights), others=tuple(others))

    def tilted(self, cavity_mean: Array, cavity_var: Array) -> Tilted:
        """Each prior's answer on its own columns."""
        if self.joint:
            return self.constrained(cavity_mean, cavity_var).tilted(cavity_mean, cavity_var)
        return self._scatter(
            self.base.tilted, [prior.tilted for _, prior in self.others], cavity_mean, cavity_var
        )

    @property
    def proximal(self) -> Denoiser:
        """Max-sum, if all priors have it."""
        inner = proximal_of(self.base, self)
        others = [proximal_of(prior, self) for _, prior in self.others]
        return lambda cavity_mean, cavity_var: self._scatter(inner, others, cavity_mean, cavity_var)

    @property
    def tilted_rows(self) -> Callable[[Array, Array], TiltedRows]:
        """Each prior's answer on its own rows, under full covariances, if all priors have it."""
        return self._of_rows("tilted_rows")

    @property
    def proximal_rows(self) -> Callable[[Array, Array], TiltedRows]:
        return self._of_rows("proximal_rows")

    def _of_rows(self, rule: str) -> Callable[[Array, Array], TiltedRows]:
        for prior in (self.base, *(prior for _, prior in self.others)):
            if not hasattr(prior, rule):
                raise AttributeError(f"{type(prior).__name__} has no {rule}.")
        return partial(self._scatter_rows, rule)

    def _scatter_rows(self, rule: str, shift: Array, precision: Array) -> TiltedRows:
        answer: TiltedRows = getattr(self.base, rule)(shift, precision)
        for columns, prior in self.others:
            part = getattr(prior, rule)(shift[columns], precision[columns])
            for values, of_columns in zip(answer, part, strict=True):
                values[columns] = of_columns
        return answer

    def inclusion_probability(self, cavity_mean: Array, cavity_var: Array) -> Array:
        """Posterior probability that the weight is not exactly zero; one where a prior has no spike."""
        r, tau = _full_cavity(cavity_mean, cavity_var)
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

    def _scatter(
        self, base_rule: Denoiser, other_rules: list[Denoiser], cavity_mean: Array, cavity_var: Array
    ) -> Tilted:
        r, tau = as_cavity(cavity_mean, cavity_var)
        # The base answers for all columns and the others overwrite theirs, which are few: cheaper than
        # gathering the rest, and a base with one parameter per column keeps its alignment.
        tau = np.broadcast_to(tau, r.shape)
        answer = base_rule(r, self._of_base(tau))
        for (columns, _), rule in zip(self.others, other_rules, strict=True):
            for values, part in zip(answer, rule(r[columns], tau[columns]), strict=True):
                values[columns] = part
        return answer

    def _of_base(self, cavity_var: Array) -> Array:
        """The cavity variances as the base may see them: a single number if all of its columns have the same.

        Standardised columns do under rank-one variances, and one number saves the base logarithms and
        quotients of every weight, half of its time.
        """
        if cavity_var.ndim != 1 or cavity_var.size == 0:
            return cavity_var
        free = np.ones(cavity_var.size, dtype=bool)
        for columns, _ in self.others:
            free[columns] = False
        shared = cavity_var[int(np.argmax(free))]
        differs = cavity_var != shared
        differs &= free
        return cavity_var if differs.any() else np.asarray(shared)


def positions_of(columns: Columns, n_weights: int) -> NDArray[np.intp]:
    """Columns as non-negative positions."""
    if isinstance(columns, slice):
        return np.arange(*columns.indices(n_weights), dtype=np.intp)
    return np.asarray(columns, dtype=np.intp) % n_weights


def _full_cavity(cavity_mean: Array, cavity_var: Array) -> tuple[Array, Array]:
    """The cavity with one variance per weight, so that it can be indexed by columns."""
    r, tau = as_cavity(cavity_mean, cavity_var)
    return r, np.broadcast_to(tau, r.shape)
