"""Informed ridges: Gaussian priors from ignorant to informed, each with its honest leave-one-out.

Sparse models lose to ridge regression where many correlated features share the signal, as genes and voxels
do, and ridge regression loses where few features matter. Between them lie Gaussian priors whose variances
follow how far apart its class means are (`Contrasts`):  variance ∝ relevance^a,  where a = 0 is ridge,
and a = 1 and 2 concentrate on fewer and fewer features. Which of them, with or without wrong labels, is left
to the left-out labels (`portfolio`), since all are cheap: EP in kernels of samples.

t² of a feature is the squared difference of its class means over the variance of that difference; without
any difference between the classes its mean is 1. The relevance max(t² - 1, 0) is therefore the part that
noise does not explain.

Columns are centred at the middle between the class means, c, and the intercept has a narrow prior at the log
odds of the classes: before any covariances are known, the model has its boundary where linear discriminant
analysis has it. An intercept without prior follows the larger class when weights are shrunk.

**Leave-one-out must not count a label twice.** Variances D and centres c are made of labels, and the
cavities of EP take no account of that. Let D' and c' be made without the left-out samples, X' = X - 1 c'ᵀ,
and let r' and W' be the dual weights and matrix downdated by these samples' labels. To first order in what
changes, the prediction from all other samples, variances and centres included, is

    k'ᵀ (r' - W' ΔK r'),   k' = X' D' x',   ΔK = X' D' X'ᵀ - X D Xᵀ,

for O(M²N) in all: no refit, and no M x M matrix for each sample. Against true refits it is off by a few
per cent (tests/tuning/test_informed.py), where ignoring D' is off by tenths. A group of samples
changes D too much for the first order; groups are few, and theirs is the kernel without them, with label
sites as they are: the fit is not repeated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from foldless.beliefs import Array
from foldless.problem import Outcome
from foldless.solvers.gaussian_layer import Tiles
from foldless.solvers.kernel_ep import KernelFits, dual_weights, kernel_ep
from foldless.tuning.models.base import Model, Scores, Weights, channel_of
from foldless.tuning.plan import Recipe
from foldless.tuning.record import Recorder, Run
from foldless.tuning.table import COVARIATE_VARIANCE, Table

# The intercept, between the classes, strays from their log-odds by about this variance.
INTERCEPT_VARIANCE = 1.0
LEAST_SCORE_VARIANCE = 1e-6
LEAST = float(np.finfo(float).tiny)


def informed_ridges(table: Table, recipes: tuple[Recipe, ...], recorder: Recorder) -> list[Model]:
    """Models of two classes, for more features than samples."""
    n_samples, weight = table.shape[0], table.sample_weight
    rows, kept = weight > 0, table.kept
    log_odds = float(np.diff(np.log(table.class_weight))[0])
    base = Base(
        np.column_stack([table.standardized.columns(kept), np.ones(n_samples)])[rows],
        np.append(np.zeros(kept.size), log_odds),
        np.append(np.full(kept.size, COVARIATE_VARIANCE), INTERCEPT_VARIANCE),
    )
    left_out = table.left_out.of_rows(rows)
    group = np.arange(int(rows.sum())) if left_out.group is None else left_out.group
    contrasts = Contrasts(table.labels[rows], weight[rows], left_out.lost, group)
    columns = Penalised(Tiles(table.standardized), table.free, None if rows.all() else rows)
    fits = fit_informed(columns, base, contrasts, recipes)
    for recipe in recipes:
        outcome = Outcome.CONVERGED if recipe in fits.recipes else Outcome.DIVERGED
        recorder.runs.append(Run(recipe.code, "fit", "kernel EP", outcome, 0, detail=recipe.name))

    @cache
    def all_weights() -> InformedWeights:
        # One pass over X for all of them, and only if any is asked for.
        return informed_weights(columns, base, contrasts, fits)

    def weights(model: int) -> Weights:
        found = all_weights()
        mean, var, score_var = found.mean[model], found.var[model], found.prior_var[model]
        mean[kept], var[kept] = found.kept_mean[model, :-1], found.kept_var[model, :-1]
        score_var[kept] = var[kept]
        intercept, intercept_var = found.kept_mean[model, -1:], found.kept_var[model, -1:]
        return Weights(mean[:, None], var[:, None], intercept, intercept_var, score_var[:, None])

    def of_recipe(model: int, recipe: Recipe) -> Model:
        mean, var = np.zeros((n_samples, 1)), np.ones((n_samples, 1))
        mean[rows, 0], var[rows, 0] = fits.loo_mean[model], fits.loo_var[model]
        scores = Scores(mean, var)
        return Model(recipe.code, recipe.name, channel_of(recipe), scores, partial(weights, model))

    return [of_recipe(model, recipe) for model, recipe in enumerate(fits.recipes)]


@dataclass(frozen=True, eq=False)
class Base:
    """What every model contains: kept columns with their own prior, the intercept among them."""

    values: Array  # (samples, kept)
    prior_mean: Array
    prior_var: Array

    @property
    def kernel(self) -> Array:
        return (self.values * self.prior_var) @ self.values.T

    @property
    def scores(self) -> Array:
        return self.values @ self.prior_mean


class Penalised:
    """The penalised columns of a matrix, in dense tiles; visited a few times."""

    def __init__(
        self,
        tiles: Iterable[tuple[slice, Array]],
        free: NDArray[np.bool_],
        rows: NDArray[np.bool_] | None = None,
    ) -> None:
        self._tiles, self.free, self._rows = tiles, free, rows

    def __iter__(self) -> Iterator[tuple[Any, Array]]:
        for columns, whole in self._tiles:
            tile = whole if self._rows is None else whole[self._rows]
            inside = self.free[columns]
            if inside.all():
                yield columns, tile
            elif inside.any():
                yield np.arange(columns.start, columns.stop)[inside], tile[:, inside]


@dataclass(frozen=True, eq=False)
class InformedFits:
    """Fitted models, those whose iteration settled, with beliefs about every score from other groups."""

    recipes: tuple[Recipe, ...]
    fits: KernelFits
    loo_mean: Array  # (models, samples)
    loo_var: Array


@dataclass(frozen=True, eq=False)
class InformedWeights:
    """Moments of weights under every model, in the units of the tiles: score = weights x + kept."""

    mean: Array  # (models, columns)
    var: Array
    prior_var: Array
    kept_mean: Array  # (models, kept columns), with the centre's score taken off the last: the intercept
    kept_var: Array


def fit_informed(
    columns: Penalised, base: Base, contrasts: Contrasts, recipes: tuple[Recipe, ...]
) -> InformedFits:
    """Fit every recipe to standardised columns."""
    kernels = _Kernels.of(columns, contrasts, tuple(dict.fromkeys(r.exponent for r in recipes)))
    base_kernel = base.kernel
    # Without any difference between class means there is nothing to be informed by.
    recipes = tuple(r for r in recipes if kernels.total[r.exponent] > 0)
    alike: list[Recipe] = []
    found: list[KernelFits] = []
    for flip_prob in dict.fromkeys(r.flip_prob for r in recipes):
        of_channel = [r for r in recipes if r.flip_prob == flip_prob]
        stacked = np.array([r.score_variance * kernels.whole[r.exponent] + base_kernel for r in of_channel])
        channel = channel_of(of_channel[0])
        found.append(kernel_ep(stacked, base.scores, contrasts.labels, contrasts.sample_weight, channel))
        alike += of_channel
    fits = KernelFits.joined(found)
    settled = tuple(r for r, converged in zip(alike, fits.converged, strict=True) if converged)
    fits = fits.chosen(fits.converged)
    loo_mean, loo_var = (
        _one_by_one(columns, contrasts, kernels, settled, fits, base)
        if contrasts.one_by_one
        else _by_groups(columns, contrasts, settled, fits, base)
    )
    return InformedFits(settled, fits, loo_mean, np.maximum(loo_var, LEAST_SCORE_VARIANCE))


def informed_weights(
    columns: Penalised, base: Base, contrasts: Contrasts, found: InformedFits
) -> InformedWeights:
    """Posterior moments of all weights under every model; the last of the kept is the intercept."""
    recipes, fits = found.recipes, found.fits
    prior_var = np.zeros((len(recipes), columns.free.size))
    middle = np.zeros(columns.free.size)
    for which, tile in columns:
        contrast = contrasts.of(tile)
        middle[which] = contrast.middle
        for n, recipe in enumerate(recipes):
            prior_var[n, which] = _power(contrast.relevance, recipe.exponent)
    for n, recipe in enumerate(recipes):
        prior_var[n] *= recipe.score_variance / max(float(prior_var[n].sum()), LEAST)
    mean, var = np.zeros_like(prior_var), prior_var.copy()
    for which, tile in columns:
        centred = tile - middle[which]
        mean[:, which] = prior_var[:, which] * (fits.dual @ centred)
        for n, inverse in enumerate(fits.inverse):
            explained = np.einsum("ij,ij->j", centred, inverse @ centred)
            var[n, which] *= np.maximum(1.0 - prior_var[n, which] * explained, 0.0)
    kept_mean = base.prior_mean + base.prior_var * (fits.dual @ base.values)
    kept_mean[:, -1] -= mean @ middle
    explained = np.einsum("nik,ik->nk", np.matmul(fits.inverse, base.values), base.values)
    kept_var = base.prior_var * np.maximum(1.0 - base.prior_var * explained, 0.0)
    return InformedWeights(mean, var, prior_var, kept_mean, kept_var)


@dataclass(frozen=True, eq=False)
class _Kernels:
    """X D Xᵀ for D ∝ relevance^exponent, ΣD = 1; and its rows with D and c made without their group."""

    whole: dict[int, Array]
    left: dict[int, Array]
    total: dict[int, float]  # ΣD before it is made one
    left_total: dict[int, Array]  # (groups, 1)

    @classmethod
    def of(cls, columns: Penalised, contrasts: Contrasts, exponents: tuple[int, ...]) -> _Kernels:
        n_samples, group = contrasts.labels.size, contrasts.group
        whole = {a: np.zeros((n_samples, n_samples)) for a in exponents}
        left = {a: np.zeros((n_samples, n_samples)) for a in exponents}
        total = dict.fromkeys(exponents, 0.0)
        left_total: dict[int, Array] = {a: np.zeros((contrasts.n_groups, 1)) for a in exponents}
        for _, tile in columns:
            all_in, without = contrasts.of(tile), contrasts.without_groups(tile)
            centred, own_middle = tile - all_in.middle, without.middle[group]
            for a in exponents:
                power = _power(all_in.relevance, a)
                total[a] += float(power.sum())
                scaled = centred * np.sqrt(power)
                whole[a] += scaled @ scaled.T
                power = _power(without.relevance, a)
                left_total[a] += power.sum(axis=1, keepdims=True)
                # Row m is (X - 1 c'ᵀ) D' (x_m - c').
                row = power[group] * (tile - own_middle)
                left[a] += row @ tile.T - np.einsum("ij,ij->i", row, own_middle)[:, np.newaxis]
        for sums in left_total.values():
            np.maximum(sums, LEAST, out=sums)
        return cls(
            {a: whole[a] / max(total[a], LEAST) for a in exponents},
            {a: left[a] / left_total[a][group] for a in exponents},
            total,
            left_total,
        )


def _power(relevance: Array, exponent: int) -> Array:
    return np.ones_like(relevance) if exponent == 0 else relevance**exponent


def _one_by_one(
    columns: Penalised,
    contrasts: Contrasts,
    kernels: _Kernels,
    recipes: tuple[Recipe, ...],
    fits: KernelFits,
    base: Base,
) -> tuple[Array, Array]:
    """Means and variances of every score from all other samples (module docstring)."""
    n_models, n_samples = len(recipes), contrasts.labels.size
    # W' = W - W_m W_mᵀ / (W_mm + s), where s is zero if all of a label's weight is taken out.
    stays = 1.0 - contrasts.lost / contrasts.sample_weight
    rest = fits.label_precision * stays / np.maximum(1.0 - stays, 1e-12)
    factors = 1.0 / np.maximum(np.einsum("nmm->nm", fits.inverse) + rest, LEAST)
    duals = fits.dual[:, :, np.newaxis] - fits.inverse * (factors * fits.dual)[:, np.newaxis, :]
    # ΔK r', one column for each sample; models of one exponent share what changes.
    moved = np.zeros((n_models, n_samples, n_samples))
    of_exponent = {a: [n for n, r in enumerate(recipes) if r.exponent == a] for a in kernels.whole}
    for _, tile in columns:
        all_in, left = contrasts.of(tile), contrasts.without_groups(tile)
        for a, members in of_exponent.items():
            variance = (_power(all_in.relevance, a) / max(kernels.total[a], LEAST))[:, np.newaxis]
            left_variance = (_power(left.relevance, a) / kernels.left_total[a]).T
            middle, left_middle = all_in.middle[:, np.newaxis], left.middle.T
            # Of slopes Xᵀ r' and sums 1ᵀ r':  D' (slopes - c' sums) - D (slopes - c sums).
            of_slopes = left_variance - variance
            of_sums = left_variance * left_middle - variance * middle
            squares = left_variance * left_middle**2 - variance * middle**2
            for n in members:
                slopes, sums = tile.T @ duals[n], duals[n].sum(axis=0)
                moved[n] += tile @ (of_slopes * slopes - of_sums * sums)
                moved[n] -= np.einsum("ij,ij->j", of_sums, slopes) - squares.sum(axis=0) * sums
    mean, var = np.empty((n_models, n_samples)), np.empty((n_models, n_samples))
    base_kernel, base_scores = base.kernel, base.scores
    for n, recipe in enumerate(recipes):
        row = recipe.score_variance * kernels.left[recipe.exponent] + base_kernel
        change = fits.inverse[n] @ moved[n]
        change -= fits.inverse[n] * (np.diag(change) * factors[n])
        mean[n] = base_scores + np.einsum("mj,jm->m", row, duals[n] - recipe.score_variance * change)
        through = row @ fits.inverse[n]
        var[n] = np.diag(row) - np.einsum("mj,mj->m", through, row) + np.diag(through) ** 2 * factors[n]
    return mean, var


def _by_groups(
    columns: Penalised, contrasts: Contrasts, recipes: tuple[Recipe, ...], fits: KernelFits, base: Base
) -> tuple[Array, Array]:
    """Means and variances of every score from the samples of other groups (module docstring)."""
    n_models, n_samples = len(recipes), contrasts.labels.size
    mean, var = np.empty((n_models, n_samples)), np.empty((n_models, n_samples))
    base_kernel, base_scores = base.kernel, base.scores
    exponents = tuple(dict.fromkeys(r.exponent for r in recipes))
    for group in range(contrasts.n_groups):
        inside = contrasts.group == group
        others = ~inside
        kernels = {a: np.zeros((n_samples, n_samples)) for a in exponents}
        totals = dict.fromkeys(exponents, 0.0)
        for _, tile in columns:
            left = contrasts.without_groups(tile)
            centred = tile - left.middle[group]
            for a in exponents:
                power = _power(left.relevance[group], a)
                totals[a] += float(power.sum())
                scaled = centred * np.sqrt(power)
                kernels[a] += scaled @ scaled.T
        for n, recipe in enumerate(recipes):
            a = recipe.exponent
            kernel = recipe.score_variance / max(totals[a], LEAST) * kernels[a] + base_kernel
            dual, inverse, _, _ = dual_weights(
                kernel[np.newaxis, others][:, :, others],
                base_scores[others],
                fits.label_precision[np.newaxis, n, others],
                fits.label_shift[np.newaxis, n, others],
            )
            rows = kernel[np.ix_(inside, others)]
            mean[n, inside] = base_scores[inside] + rows @ dual[0]
            var[n, inside] = np.diag(kernel)[inside] - np.einsum("ij,ij->i", rows @ inverse[0], rows)
    return mean, var


class ClassContrast(NamedTuple):
    """Of some columns, (columns,) with all samples or (groups, columns) without each group."""

    relevance: Array  # max(t² - 1, 0)
    middle: Array  # between the class means


@dataclass(frozen=True, eq=False)
class Contrasts:
    """Class contrasts of columns of unit variance, for labels, weights, and groups to be left out."""

    labels: Array
    sample_weight: Array
    lost: Array  # the weight that leaving a sample out takes from it
    group: NDArray[np.intp]  # of every sample, 0 to n_groups - 1: samples left out together

    @cached_property
    def n_groups(self) -> int:
        return int(self.group.max()) + 1

    @cached_property
    def one_by_one(self) -> bool:
        """Whether group n is sample n alone."""
        return self.n_groups == self.labels.size and bool(np.all(np.diff(self.group) == 1))

    def of(self, tile: Array) -> ClassContrast:
        """With all samples."""
        squares = tile * tile
        sides = [(float(w.sum()), w @ tile, w @ squares) for w in self._sides(self.sample_weight)]
        return _contrast(*sides, fallback=np.zeros(tile.shape[1]))

    def without_groups(self, tile: Array) -> ClassContrast:
        """Without each group in turn."""
        squares = tile * tile
        sides = []
        for weight, lost in zip(self._sides(self.sample_weight), self._sides(self.lost), strict=True):
            count, total, square = float(weight.sum()), weight @ tile, weight @ squares
            if self.one_by_one:
                gone = lost[:, np.newaxis]
                sides.append((count - gone, total - gone * tile, square - gone * squares))
            else:
                taken = np.zeros((self.n_groups, self.labels.size))
                taken[self.group, np.arange(self.labels.size)] = lost
                gone = taken.sum(axis=1, keepdims=True)
                sides.append((count - gone, total - taken @ tile, square - taken @ squares))
        return _contrast(*sides, fallback=self.of(tile).middle)

    def _sides(self, weight: Array) -> tuple[Array, Array]:
        return weight * (self.labels > 0), weight * (self.labels < 0)


_Side = tuple[Array | float, Array, Array]  # count, sum and sum of squares of a class


def _contrast(first: _Side, second: _Side, *, fallback: Array) -> ClassContrast:
    """From counts, sums and sums of squares of the two classes; nothing is known without one of them."""
    (n_first, sum_first, square_first), (n_second, sum_second, square_second) = first, second
    # What rounding leaves of a class that was taken out is no sample.
    known = (np.asarray(n_first) > 1e-6) & (np.asarray(n_second) > 1e-6)
    n_first, n_second = np.where(known, n_first, 1.0), np.where(known, n_second, 1.0)
    mean_first, mean_second = sum_first / n_first, sum_second / n_second
    total = n_first + n_second
    within = square_first - sum_first * mean_first + square_second - sum_second * mean_second
    # n samples cannot show that less than 1/n of a column's unit variance is within the classes.
    variance = np.maximum(within / np.maximum(total - 2.0, 1.0), 1.0 / total)
    t_squared = (mean_first - mean_second) ** 2 / (variance * (1.0 / n_first + 1.0 / n_second))
    return ClassContrast(
        np.where(known, np.maximum(t_squared - 1.0, 0.0), 0.0),
        np.where(known, (mean_first + mean_second) / 2, fallback),
    )
