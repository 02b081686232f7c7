"""Informed ridges: Gaussian priors from ignorant to informed, each with its honest leave-one-out.

Sparse models lose to ridge regression where many correlated features share the signal, as genes and voxels
do, and ridge regression loses where few features matter. Between them lie Gaussian priors whose variances
grow with how far apart the class means of a feature are (`Contrasts`):  variance ∝ relevance^a.  a = 0 is
ridge regression; a = 1 and 2 concentrate on fewer and fewer features. All are cheap, by EP in kernels of
samples, so that left-out labels can decide between them, with or without wrong labels (`tuning.portfolio`).

t² of a feature is the squared difference of its class means over the variance of that difference; if classes
do not differ its mean is 1. So the relevance max(t² - 1, 0) is the part that noise does not explain.

With a > 0 columns are centred at the middle between the class means, c, and the intercept has a narrow prior
at the log odds of the classes. So before covariances count, the boundary is that of linear discriminant
analysis. (An intercept with a wide prior would favour the larger class when weights are shrunk.) The ridge,
a = 0, uses no labels beforehand: c = 0, the intercept has a wide prior, and leave-one-out is by its cavities.

**Leave-one-out must not count a label twice.** Variances D and centres c depend on labels, which cavities of
EP do not consider. Let D' and c' be computed without the left-out samples, X' = X - 1 c'ᵀ, and let r' and W'
be the dual weights and matrix without the label sites of these samples. With all other label sites as they
are, the prediction from all other samples, variances and centres included, is

    k'ᵀ (I + W' ΔK)⁻¹ r',   k' = X' D' x',   ΔK = X' D' X'ᵀ - X D Xᵀ,

solved for by a few steps of O(M²N) for all samples: no refit, and no M x M matrix for each. Against true
refits it is off by a few per cent (tests/solvers/test_informed_ridges.py). Ignoring D' is off by tenths, and
so is the first order in ΔK where columns are few: of 57 samples of 66 columns of noise it found labels with
an error of .16, where refits have .46. Groups are few: the fit is repeated without each, from where it ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from foldless.beliefs import Array
from foldless.channels.base import Channel
from foldless.solvers.gaussian_layer import FACTOR_DTYPE, Tiles
from foldless.solvers.label_ep import KernelFits, kernel_ep

# Prior variances of the intercept about the log-odds of the classes: with columns centred between class
# means; and of a ridge, whose columns are centred at the mean of all samples.
CENTRED_INTERCEPT_VARIANCE = 1.0
RIDGE_INTERCEPT_VARIANCE = 100.0
# A class of less weight than this has no sample: rounding leaves as much where all are taken out.
LEAST_CLASS = 1e-6
LEAST_SCORE_VARIANCE = 1e-6
# Equations of kernels without a sample are solved to this relative error, in so many steps at most.
LARGEST_RESIDUAL, MOST_STEPS = 0.1, 6
# The smallest divisor, in single precision, too.
LEAST = float(np.finfo(np.float32).tiny)
# Rounding of a kernel in single precision is noise of its size times the variance: with this one a thousandth
# of what labels leave of a score's variance, with a thousand times as much a quarter.
WIDEST_IN_SINGLE = 1000.0
# Kernels without a sample are made in pieces of columns that stay in a processor's cache.
PIECE_BYTES = 1 << 18


class Ridge(NamedTuple):
    """One model: the prior variance of scores, the power of relevance, and how labels depend on scores."""

    score_variance: float
    exponent: int
    channel: Channel


@dataclass(frozen=True, eq=False)
class Base:
    """Columns that are in every model and their priors, the intercept last."""

    values: Array  # (samples, kept)
    prior_mean: Array
    prior_var: Array

    def variances(self, exponent: int) -> Array:
        """Prior variances; a ridge, whose columns are not centred between classes, has a free intercept."""
        if exponent:
            return self.prior_var
        return np.append(self.prior_var[:-1], RIDGE_INTERCEPT_VARIANCE)

    def kernel(self, exponent: int) -> Array:
        return (self.values * self.variances(exponent)) @ self.values.T

    @property
    def scores(self) -> Array:
        return self.values @ self.prior_mean


class Penalised:
    """The penalised columns of a matrix, in dense tiles; visited a few times.

    Where the tiles of the matrix are kept, so are their penalised columns.
    """

    def __init__(
        self,
        tiles: Iterable[tuple[slice, Array]],
        free: NDArray[np.bool_],
        rows: NDArray[np.bool_] | None = None,
    ) -> None:
        self._tiles, self.free, self._rows = tiles, free, rows
        self._kept: list[tuple[Any, Array]] | None = None

    def gram(self, dtype: DTypeLike) -> Array:
        """X Xᵀ, which a background may have made already."""
        assert isinstance(self._tiles, Tiles)
        found = self._tiles.operator.gram(self.free.astype(np.float64), dtype)
        return found if self._rows is None else found[np.ix_(self._rows, self._rows)]

    def __iter__(self) -> Iterator[tuple[Any, Array]]:
        if self._kept is None and isinstance(self._tiles, Tiles) and self._tiles.kept:
            self._kept = list(self._penalised())
        return iter(self._kept) if self._kept is not None else self._penalised()

    def _penalised(self) -> Iterator[tuple[Any, Array]]:
        for columns, whole in self._tiles:
            tile = whole if self._rows is None else whole[self._rows]
            inside = np.flatnonzero(self.free[columns])
            if inside.size == inside[-1:].sum() + 1:  # up to the last of them all are: a view
                yield slice(columns.start, columns.start + inside.size), tile[:, : inside.size]
            elif inside.size:
                yield columns.start + inside, tile[:, inside]


@dataclass(frozen=True, eq=False)
class InformedFits:
    """Fitted models, those whose iteration settled, with beliefs about every score from other groups."""

    ridges: tuple[Ridge, ...]
    fits: KernelFits
    loo_mean: Array  # (models, samples)
    loo_var: Array
    ridge_kernel: Array | None  # X Xᵀ over the number of columns, if a ridge is among them
    contrast: ClassContrast  # of all columns


@dataclass(frozen=True, eq=False)
class InformedWeights:
    """Moments of weights under every model, in the units of the tiles: score = weights x + kept."""

    mean: Array  # (models, columns)
    var: Array
    prior_var: Array
    kept_mean: Array  # (models, kept columns), with the centre's score taken off the last: the intercept
    kept_var: Array


def fit_informed(
    columns: Penalised, base: Base, contrasts: Contrasts, ridges: tuple[Ridge, ...]
) -> InformedFits:
    """Fit every ridge to standardised columns."""
    kernels = _Kernels.of(columns, contrasts, ridges)
    # Without any difference between class means there is nothing to be informed by.
    ridges = tuple(r for r in ridges if kernels.total[r.exponent] > 0)
    alike: list[Ridge] = []
    found: list[KernelFits] = []
    # Those of a channel are fitted together; or one by one if all are ridges, for which samples can be many.
    channels = dict.fromkeys(r.channel for r in ridges)
    batches = [[r for r in ridges if r.channel == each] for each in channels]
    for of_channel in batches if any(r.exponent for r in ridges) else [[r] for r in ridges]:
        stacked = np.array(
            [r.score_variance * kernels.whole[r.exponent] + base.kernel(r.exponent) for r in of_channel]
        )
        channel = of_channel[0].channel
        found.append(kernel_ep(stacked, base.scores, contrasts.labels, contrasts.sample_weight, channel))
        alike += of_channel
        del stacked
    fits = KernelFits.joined(found)
    found.clear()
    settled = tuple(r for r, converged in zip(alike, fits.converged, strict=True) if converged)
    fits = fits if fits.converged.all() else fits.chosen(fits.converged)
    loo_mean, loo_var = (
        _one_by_one(columns, contrasts, kernels, settled, fits, base)
        if contrasts.one_by_one
        else _by_groups(columns, contrasts, settled, fits, base)
    )
    loo_var = np.maximum(loo_var, LEAST_SCORE_VARIANCE)
    return InformedFits(settled, fits, loo_mean, loo_var, kernels.whole.get(0), kernels.contrast)


def informed_weights(columns: Penalised, base: Base, found: InformedFits) -> InformedWeights:
    """Posterior moments of all weights under every model; the last of the kept is the intercept."""
    ridges, fits = found.ridges, found.fits
    of_models = (found.contrast.to_the_power(ridge.exponent) for ridge in ridges)
    prior_var, middle = map(np.array, zip(*of_models, strict=True))
    prior_var *= columns.free
    for n, ridge in enumerate(ridges):
        prior_var[n] *= ridge.score_variance / max(float(prior_var[n].sum()), LEAST)
    mean, var = np.zeros_like(prior_var), prior_var.copy()
    total, informed = fits.dual.sum(axis=1), [n for n, ridge in enumerate(ridges) if ridge.exponent]
    for which, tile in columns:
        slopes = fits.dual @ tile - total[:, np.newaxis] * middle[:, which]
        mean[:, which] = prior_var[:, which] * slopes
        centred = tile - found.contrast.middle[which].astype(tile.dtype) if informed else tile
        for n in informed:
            explained = np.einsum("ij,ij->j", centred, fits.inverse[n].astype(tile.dtype) @ centred)
            var[n, which] *= np.maximum(1.0 - prior_var[n, which] * explained, 0.0)
    for n, ridge in enumerate(ridges):
        if ridge.exponent == 0:
            assert found.ridge_kernel is not None
            # Of equal variances in very many columns labels take about the same share each: W K, over all.
            total = ridge.score_variance / max(int(np.count_nonzero(columns.free)), 1)
            explained = np.einsum("ij,ij->", fits.inverse[n], found.ridge_kernel)
            var[n] *= max(1.0 - total * explained, 0.0)
    kept_prior = np.array([base.variances(ridge.exponent) for ridge in ridges])
    kept_mean = base.prior_mean + kept_prior * (fits.dual @ base.values)
    kept_mean[:, -1] -= np.einsum("ij,ij->i", mean, middle)
    explained = np.einsum("nik,ik->nk", np.matmul(fits.inverse, base.values), base.values)
    kept_var = kept_prior * np.maximum(1.0 - kept_prior * explained, 0.0)
    return InformedWeights(mean, var, prior_var, kept_mean, kept_var)


@dataclass(frozen=True, eq=False)
class _Kernels:
    """X D Xᵀ for D ∝ relevance^exponent, ΣD = 1; and its rows with D and c made without their group."""

    whole: dict[int, Array]
    left: dict[int, Array]
    total: dict[int, float]  # ΣD before it is made one
    left_total: dict[int, Array]  # (groups, 1)
    # Columns that are relevant without some group: the others have no part in any kernel but the ridge's.
    used: NDArray[np.bool_]
    contrast: ClassContrast  # with all groups; of nothing but ridges, none

    @classmethod
    def of(cls, columns: Penalised, contrasts: Contrasts, ridges: Sequence[Ridge]) -> _Kernels:
        n_samples, exponents = contrasts.labels.size, tuple(dict.fromkeys(r.exponent for r in ridges))
        contrast = ClassContrast(*np.zeros((2, columns.free.size)))
        if exponents == (0,):
            n_columns = int(np.count_nonzero(columns.free))
            wide = any(ridge.score_variance > WIDEST_IN_SINGLE for ridge in ridges)
            kernel = columns.gram(np.float64 if wide else FACTOR_DTYPE) / max(n_columns, 1)
            return cls({0: kernel}, {}, {0: n_columns}, {}, columns.free, contrast)
        whole: dict[int, Array] = {a: np.zeros((n_samples, n_samples)) for a in exponents}
        apart = exponents if contrasts.one_by_one else ()
        left: dict[int, Array] = {a: np.zeros((n_samples, n_samples)) for a in apart if a}
        total = dict.fromkeys(exponents, 0.0)
        left_total: dict[int, Array] = {a: np.zeros((contrasts.n_groups, 1)) for a in left}
        used = np.zeros(columns.free.size, dtype=bool)
        for which, tile in columns:
            all_in, relevant = contrasts.of(tile), []
            contrast.relevance[which], contrast.middle[which] = all_in
            for a in exponents:
                power, middle = all_in.to_the_power(a)
                total[a] += float(power.sum())
                scaled = ((tile - middle) * np.sqrt(power))[:, power > 0] if a else tile
                whole[a] += scaled @ scaled.T
            for piece in _pieces(tile) if left else ():
                without = contrasts.without_groups(piece)
                relevant.append(np.asarray(without.relevance.any(axis=0)))
                piece, without = piece[:, relevant[-1]], without.at(relevant[-1])
                centred = piece - without.middle
                for a in left:
                    power, middle = without.to_the_power(a)
                    left_total[a] += power.sum(axis=1, keepdims=True)
                    # Row m is (X - 1 c'ᵀ) D' (x_m - c').
                    row = power * centred
                    left[a] += row @ piece.T
                    left[a] -= np.einsum("ij,ij->i", row, middle)[:, np.newaxis]
            used[which] = np.concatenate(relevant) if relevant else True
        for sums in left_total.values():
            np.maximum(sums, LEAST, out=sums)
        whole = {a: whole[a] / max(total[a], LEAST) for a in exponents}
        return cls(whole, {a: left[a] / left_total[a] for a in left}, total, left_total, used, contrast)


def _one_by_one(
    columns: Penalised,
    contrasts: Contrasts,
    kernels: _Kernels,
    ridges: tuple[Ridge, ...],
    fits: KernelFits,
    base: Base,
) -> tuple[Array, Array]:
    """Means and variances of every score from all other samples (module docstring)."""
    mean, var = np.empty_like(fits.dual), np.empty_like(fits.dual)
    for n, ridge in enumerate(ridges):
        if ridge.exponent == 0:
            kernel, inverse = ridge.score_variance * kernels.whole[0] + base.kernel(0), fits.inverse[n]
            # W' = W - W_m W_mᵀ / W_mm, of which only the diagonals of K W' K and K r' are wanted.
            product = kernel @ inverse
            own, factor = product.diagonal(), 1.0 / np.maximum(inverse.diagonal(), LEAST)
            mean[n] = kernel @ fits.dual[n] - factor * own * fits.dual[n]
            var[n] = kernel.diagonal() - (np.einsum("mj,mj->m", product, kernel) - factor * own**2)
    informed = np.array([n for n, ridge in enumerate(ridges) if ridge.exponent], dtype=np.intp)
    if informed.size:
        ridges, fits = tuple(ridges[n] for n in informed), fits.chosen(informed)
        factors = 1.0 / np.maximum(np.einsum("nmm->nm", fits.inverse), LEAST)
        rows = np.array(
            [r.score_variance * kernels.left[r.exponent] + base.kernel(r.exponent) for r in ridges]
        )
        # Row m is r' without sample m, and W' k'.
        pairs = np.empty((informed.size, 2, *rows.shape[1:]))
        for own, row, dual, inverse, factor in zip(
            pairs, rows, fits.dual, fits.inverse, factors, strict=True
        ):
            own[0] = dual - (factor * dual)[:, np.newaxis] * inverse
            own[1] = _through(row[np.newaxis], inverse, factor)[0]
        # What is left out changes D and c, and so the kernel of all others.
        changed = _Changed(columns, contrasts, kernels, ridges)
        pairs = changed.solved(pairs, fits.inverse, factors)
        mean[informed], known = np.einsum("nmj,nkmj->knm", rows, pairs)
        var[informed] = np.einsum("nmm->nm", rows) - known
    return base.scores + mean, var


def _through(values: Array, inverse: Array, factors: Array) -> Array:
    """W' of every left-out sample of a model, times rows of values (kinds, samples, samples)."""
    found = values @ inverse
    for own in found:
        own -= (own.diagonal() * factors)[:, np.newaxis] * inverse
    return found


@dataclass(frozen=True, eq=False)
class _Changed:
    """Kernels without each sample in turn, as far as variances and centres made of its label go."""

    columns: Penalised
    contrasts: Contrasts
    kernels: _Kernels
    ridges: Sequence[Ridge]

    def solved(self, values: Array, inverse: Array, factors: Array) -> Array:
        """(I + W' ΔK)⁻¹ of rows of values, one for each left-out sample, by generalised conjugate residuals.

        Values are (models, kinds, samples, samples), and overwritten. The first step is the first order in
        ΔK. That alone will not do where columns are few or weights wide: ΔK is not small there, and noise
        would seem to predict labels, by what is left of them in D and c.
        """

        def difference(rows: Array, models: NDArray[np.intp]) -> Array:
            """W' ΔK rows."""
            found = self.moved(rows, models)
            for own, n in zip(found, models, strict=True):
                own[:] = _through(own, inverse[n], factors[n])
            return found

        every = np.arange(len(self.ridges))
        size = np.linalg.norm(values, axis=3) + LEAST
        x, residual = values, -difference(values, every)
        done: list[tuple[NDArray[np.intp], Array, Array]] = []
        for _ in range(MOST_STEPS):
            left = np.sqrt(np.mean((np.linalg.norm(residual, axis=3) / size) ** 2, axis=(1, 2)))
            on = np.flatnonzero(left >= LARGEST_RESIDUAL)
            if on.size == 0:
                break
            step = residual[on]
            moved = difference(step, on)
            moved += step
            for models, earlier, of_earlier in done:
                # Models that are not done yet were not done before.
                at = np.searchsorted(models, on)
                share = np.sum(moved * of_earlier[at], axis=3, keepdims=True)
                step -= share * earlier[at]
                moved -= share * of_earlier[at]
            length = np.maximum(np.linalg.norm(moved, axis=3, keepdims=True), LEAST)
            step /= length
            moved /= length
            share = np.sum(moved * residual[on], axis=3, keepdims=True)
            x[on] += share * step
            residual[on] -= share * moved
            done.append((on, step, moved))
        x += residual
        return x

    def moved(self, values: Array, models: NDArray[np.intp]) -> Array:
        """ΔK of some models times rows of values, one for each left-out sample."""
        kernels, ridges = self.kernels, [self.ridges[n] for n in models]
        out = -np.stack([own @ kernels.whole[r.exponent] for own, r in zip(values, ridges, strict=True)])
        kinds, n_samples = values.shape[1:3]
        for which, tile in self.columns:
            # In the precision of the caller's data.
            rows = values.astype(tile.dtype, copy=False).reshape(-1, kinds * n_samples, n_samples)
            sums = values.sum(axis=3, keepdims=True).astype(tile.dtype)
            for piece in _pieces(tile[:, kernels.used[which]]):
                left = self.contrasts.without_groups(piece)
                for n, ridge in enumerate(ridges):
                    power, middle = left.to_the_power(ridge.exponent)
                    variance = power / kernels.left_total[ridge.exponent].astype(tile.dtype)
                    # D' (Xᵀ v - c' 1ᵀ v), of all kinds at once.
                    slopes = (rows[n] @ piece).reshape(kinds, -1, piece.shape[1])
                    slopes -= middle * sums[n]
                    slopes *= variance
                    out[n] += (slopes.reshape(-1, piece.shape[1]) @ piece.T).reshape(out[n].shape)
                    out[n] -= np.einsum("kij,ij->ki", slopes, middle)[:, :, np.newaxis]
        for own, ridge in zip(out, ridges, strict=True):
            own *= ridge.score_variance
        return out


def _by_groups(
    columns: Penalised, contrasts: Contrasts, ridges: tuple[Ridge, ...], fits: KernelFits, base: Base
) -> tuple[Array, Array]:
    """Means and variances of every score from the samples of other groups (module docstring)."""
    n_models, n_samples = len(ridges), contrasts.labels.size
    mean, var = np.empty((n_models, n_samples)), np.empty((n_models, n_samples))
    for group in range(contrasts.n_groups):
        inside = contrasts.group == group
        others = ~inside
        kernels = _Kernels.of(columns, contrasts.without(group), ridges)
        for n, ridge in enumerate(ridges):
            kernel = ridge.score_variance * kernels.whole[ridge.exponent] + base.kernel(ridge.exponent)
            refit = kernel_ep(
                kernel[np.newaxis, others][:, :, others],
                base.scores[others],
                contrasts.labels[others],
                contrasts.sample_weight[others],
                ridge.channel,
                (fits.label_precision[[n]][:, others], fits.label_shift[[n]][:, others]),
            )
            rows = kernel[np.ix_(inside, others)]
            mean[n, inside] = base.scores[inside] + rows @ refit.dual[0]
            var[n, inside] = np.diag(kernel)[inside] - np.einsum("ij,ij->i", rows @ refit.inverse[0], rows)
    return mean, var


def _pieces(tile: Array) -> Iterator[Array]:
    """A tile, a few columns at a time."""
    width = max(PIECE_BYTES // (tile.itemsize * tile.shape[0]), 1)
    for start in range(0, tile.shape[1], width):
        yield np.ascontiguousarray(tile[:, start : start + width])


class ClassContrast(NamedTuple):
    """Relevance and middle of columns; or of each with every sample left out in turn, (samples, columns)."""

    relevance: Array  # max(t² - 1, 0)
    middle: Array  # between the class means

    def at(self, columns: NDArray[np.bool_]) -> ClassContrast:
        return ClassContrast(self.relevance[:, columns], self.middle[:, columns])

    def to_the_power(self, exponent: int) -> tuple[Array, Array]:
        """Prior variances, but for a factor, and centres; those of a ridge need no labels."""
        if exponent == 0:
            return np.ones_like(self.relevance), np.zeros_like(self.middle)
        return self.relevance if exponent == 1 else self.relevance**exponent, self.middle


@dataclass(frozen=True, eq=False)
class Contrasts:
    """Class contrasts of columns of unit variance, for labels, weights, and groups to be left out."""

    labels: Array
    sample_weight: Array
    group: NDArray[np.intp]  # of every sample, 0 to n_groups - 1: samples left out together

    @cached_property
    def n_groups(self) -> int:
        return int(self.group.max()) + 1

    @cached_property
    def one_by_one(self) -> bool:
        """Whether group n is sample n alone."""
        return self.n_groups == self.labels.size and bool(np.all(np.diff(self.group) == 1))

    def without(self, group: int) -> Contrasts:
        """Those of the other samples."""
        weight = np.where(self.group == group, 0.0, self.sample_weight)
        return replace(self, sample_weight=weight)

    def of(self, tile: Array) -> ClassContrast:
        """With all samples."""
        first, second, within, _ = self._sums(tile)
        # If one of the classes has no sample, nothing is known of a difference.
        known = (first.weight > LEAST_CLASS) & (second.weight > LEAST_CLASS)
        return _contrast(first, second, within, known)

    def without_groups(self, tile: Array) -> ClassContrast:
        """Without each sample in turn, if they are left out one by one; else without each group.

        Taking the weight l of a value x out of a class of weight n and mean m moves the mean by
        -l/(n - l) (x - m), and takes l n/(n - l) (x - m)² out of the squares within.
        """
        if not self.one_by_one:
            parts = [self.without(group).of(tile) for group in range(self.n_groups)]
            return ClassContrast(*map(np.stack, zip(*parts, strict=True)))
        relevance, middle = np.empty_like(tile), np.empty_like(tile)
        first, second, within, deviations = self._sums(tile)
        classes = (first, second), (second, first)
        for (own, other), side, deviation in zip(classes, self._sides, deviations, strict=True):
            lost = self.sample_weight[side, np.newaxis].astype(tile.dtype)
            # Rounding may leave a little weight of a class without samples.
            known = (own.weight - lost > LEAST_CLASS) & (other.weight > LEAST_CLASS)
            left = np.where(known, own.weight - lost, 1.0).astype(tile.dtype)
            moved = _Class(left, own.mean - lost / left * deviation)
            deviation *= deviation
            deviation *= -lost * own.weight.astype(tile.dtype) / left
            deviation += within
            found = _contrast(moved, other, deviation, known)
            relevance[side], middle[side] = found
            if not known.all():
                middle[side] = np.where(known, middle[side], 0.5 * (own.mean + other.mean))
        return ClassContrast(relevance, middle)

    @cached_property
    def _sides(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The samples of both classes."""
        return np.flatnonzero(self.labels > 0), np.flatnonzero(self.labels < 0)

    def _sums(self, tile: Array) -> tuple[_Class, _Class, Array, list[Array]]:
        """Both classes, the sum of squares within them, and their deviations from their means."""
        within, sides, deviations = np.zeros(tile.shape[1], dtype=tile.dtype), [], []
        for side in self._sides:
            own, weight = tile[side], self.sample_weight[side].astype(tile.dtype)
            total = np.asarray(np.sum(weight))
            mean = weight @ own / np.maximum(total, LEAST_CLASS)
            own -= mean
            within += np.einsum("i,ij,ij->j", weight, own, own)
            sides.append(_Class(total, mean.astype(tile.dtype)))
            deviations.append(own)
        return sides[0], sides[1], within, deviations


class _Class(NamedTuple):
    weight: Array  # a number, or one for each sample left out
    mean: Array


def _contrast(first: _Class, second: _Class, within: Array, known: Any) -> ClassContrast:
    """From weights and means of the two classes, and the squares within them."""
    total = np.maximum(first.weight + second.weight, LEAST_CLASS)
    # n samples cannot show that less than 1/n of a column's unit variance is within the classes.
    variance = within / np.maximum(total - 2.0, 1.0).astype(within.dtype)
    np.maximum(variance, 1.0 / total, out=variance)
    spread = 1.0 / np.maximum(first.weight, LEAST_CLASS) + 1.0 / np.maximum(second.weight, LEAST_CLASS)
    variance *= spread
    relevance = first.mean - second.mean
    relevance *= relevance
    relevance /= variance
    relevance -= 1.0
    np.maximum(relevance, 0.0, out=relevance)
    middle = first.mean + second.mean
    middle *= 0.5
    return ClassContrast(relevance if np.all(known) else np.where(known, relevance, 0.0), middle)
