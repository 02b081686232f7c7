"""The search for a panel, on all samples and without parts of them, and what left-out samples make of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax
from sklearn.base import clone
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import has_fit_parameter

from foldless.beliefs import Array
from foldless.estimators._scikit_learn import SampleWeights
from foldless.estimators.classifier import SparseClassifier
from foldless.operators import Standardized, Storage
from foldless.registry import registered
from foldless.selection.panel import Order, Target, ordered, projected
from foldless.solvers.gaussian_layer import KEPT_BYTES
from foldless.tuning.fit import SPARSE
from foldless.tuning.path import fit_part
from foldless.tuning.plan import CHANCE, MOST_WEIGHT, UNNOTICED
from foldless.tuning.planned import Plan
from foldless.tuning.table import Layout, LeftOut, Table

# Of sums over columns, digits beyond these are rounding.
MIXTURE_DIGITS = 6


@registered("panel/size")
class PanelSize(NamedTuple):
    """What panels of a size lose on samples that were left out of all that led to them."""

    size: int
    error: float
    error_se: float
    log_loss: float
    log_loss_se: float


class FullModel(NamedTuple):
    """What a panel takes over from the full model."""

    log_proba: Array  # (rows, classes)
    weights: Array | None  # (features, scores), per standard deviation; None of a model that has none


class Found(NamedTuple):
    """What comes of a search without a part."""

    order: NDArray[np.intp]
    full: Array  # (rows, classes): log probabilities of the full model without the part
    of_size: Array  # (sizes, rows, classes): those of panels, the first without features


class Search:
    """Data, the full model, and the search on all samples or without some of them."""

    def __init__(
        self,
        X: Any,
        y: NDArray[Any],
        operator: Storage,
        code: NDArray[np.intp],
        weights: SampleWeights,
        group: NDArray[np.intp] | None,
        kept: NDArray[np.intp],
        classes: NDArray[Any],
        model: Any,
    ) -> None:
        self.X, self.y, self.operator, self.code, self.weights = X, y, operator, code, weights
        self.group, self.kept, self.classes, self.model = group, kept, classes, model
        self.standardized = Standardized.fit(operator, weights.counted)
        self.full = self._of(model, self.standardized)
        free = ~self.standardized.constant
        free[kept] = False
        self.n_free = int(free.sum())

    @property
    def frequencies(self) -> Array:
        """Of classes; none is impossible."""
        count = np.bincount(self.code, self.weights.counted, self.classes.size) + 1.0
        return np.asarray(count / count.sum())

    def parts(self, n_parts: int) -> list[NDArray[np.bool_]]:
        """Rows to be left out together, with as many of each class in all of them.

        Parts depend neither on the order of samples nor on whether a sample has weight 2 or is there twice:
        of a class, rows are taken in turn in the order of a number made of all columns.
        """
        mixture = self.standardized.scores(np.cos(np.arange(self.standardized.shape[1])))
        mixture = np.round(mixture / max(float(np.abs(mixture).max()), 1e-300), MIXTURE_DIGITS)
        used = self.weights.counted > 0
        unit = np.arange(used.size) if self.group is None else self.group
        place: Array = np.full(int(unit.max()) + 1, np.inf)
        np.minimum.at(place, unit[used], (self.code + (mixture + 1.0) / 4.0)[used])
        in_turn = np.argsort(place, kind="stable")[: int(np.isfinite(place).sum())]
        part = np.full(place.size, -1)
        part[in_turn] = np.arange(in_turn.size) % n_parts
        rows = [(part[unit] == n) & used for n in range(n_parts)]
        return [left for left in map(self._without_last_of_class, rows) if left.any()]

    def _without_last_of_class(self, left: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Rows that can be left out: of no class the last that have a weight."""
        remains = np.bincount(self.code, np.where(left, 0.0, self.weights.counted), self.classes.size)
        return left & (remains[self.code] > 0)

    def order(self, standardized: Standardized, full: FullModel, weight: Array, n_members: int) -> Order:
        target = Target.of(full.log_proba, weight)
        return ordered(standardized, self.code, target, full.weights, self.kept, n_members)

    def without_each(self, parts: list[NDArray[np.bool_]], sizes: tuple[int, ...]) -> list[Found]:
        """The search without one part after the other; an interrupt leaves what was found, if anything."""
        found: list[Found] = []
        try:
            for part in parts:
                found.append(self.without(part, sizes))
        except KeyboardInterrupt:
            if not found:
                raise
        return found

    def without(self, part: NDArray[np.bool_], sizes: tuple[int, ...]) -> Found:
        """The whole search without some rows, and what it predicts for all.

        The more a part has of a class, the less of it is left, and its samples would be less probable just
        for being left out. So predictions are moved to the class frequencies of all samples, which is a
        matter of intercepts alone [Prentice and Pyke 1979].
        """
        weight = np.where(part, 0.0, self.weights.counted)
        count = [np.bincount(self.code, own, self.classes.size) for own in (self.weights.counted, weight)]
        all_rows, rest = np.maximum(count, np.finfo(float).tiny)
        moved = np.log(all_rows / rest)
        standardized = Standardized.fit(self.operator, weight)
        full = self._without(standardized, weight)
        target, order = Target.of(full.log_proba, weight), self.order(standardized, full, weight, sizes[-1])
        columns = np.column_stack([standardized.columns(self.kept), order.columns_of(order.features)])
        importance = order.importance[np.concatenate([self.kept, order.features])]
        of_size, panel = [np.tile(np.log(self.frequencies), (weight.size, 1))], None
        for size in sizes:
            these = columns[:, : self.kept.size + size]
            panel = projected(these, target, importance[: these.shape[1]], panel)
            of_size.append(log_softmax(panel.log_proba(these) + moved, axis=1))
        return Found(order.features, log_softmax(full.log_proba + moved, axis=1), np.array(of_size))

    def _of(self, model: Any, standardized: Standardized) -> FullModel:
        coef = np.atleast_2d(getattr(model, "coef_", np.empty((0, 0))))
        linear = coef.shape[1] == standardized.shape[1]
        return FullModel(_log_proba(model, self.X), (coef * standardized.scale).T if linear else None)

    def _without(self, standardized: Standardized, weight: Array) -> FullModel:
        """The full model, fitted to the rows that have a weight."""
        model, n_classes = self.model, self.classes.size
        if not isinstance(model, SparseClassifier) or model.plan_.facts is None:
            rows = np.flatnonzero((self.weights.for_equals(weight) > 0) & (self.weights.given > 0))
            given = None if np.all(self.weights.given == 1.0) else self.weights.given[rows]
            group = None if self.group is None else self.group[rows]
            part = fitted(clone(model), _safe_indexing(self.X, rows), self.y[rows], given, group)
            return self._of(part, standardized)
        labels = 2.0 * self.code - 1.0 if n_classes == 2 else self.code + 1.0
        left_out = LeftOut(weight, self.group if model.plan_.left_out == "groups" else None)
        layout = Layout(standardized.shape[1], tuple(self.kept.tolist()))
        table = Table(standardized, labels, weight, left_out, layout, n_classes)
        if standardized.dtype.itemsize * labels.size * standardized.shape[1] <= KEPT_BYTES:
            # Rows without weight cost as much as others, and a copy of those is no more than a solver keeps.
            table = table.some_rows(np.flatnonzero(weight > 0))
        choices = replace(model._choices(n_classes), generative_weight=model.generative_weight_)
        plan, sparse = _weightiest(model)
        average = fit_part(table, plan, choices, sparse=sparse)
        return FullModel(average.log_proba(standardized), average.mean)


@dataclass(frozen=True, eq=False)
class Judged:
    """Left-out samples, and what every size predicts for them."""

    sizes: tuple[int, ...]
    code: NDArray[np.intp]
    weight: Array  # as numbers of samples; zero for those that were never left out
    full_log_proba: Array  # (samples, classes)
    log_proba: Array  # (sizes, samples, classes)

    @classmethod
    def of(
        cls, search: Search, parts: list[NDArray[np.bool_]], found: list[Found], sizes: tuple[int, ...]
    ) -> Judged:
        n_samples, n_classes = search.full.log_proba.shape
        full = np.full((n_samples, n_classes), np.nan)
        log_proba = np.full((len(sizes), n_samples, n_classes), np.nan)
        weight, number, first = np.zeros(n_samples), search.weights.given, search.weights.first
        if first is not None:
            number = np.asarray(np.bincount(first, number, minlength=n_samples), dtype=np.float64)
        for part, each in zip(parts, found, strict=True):
            full[part], log_proba[:, part] = each.full[part], each.of_size[:, part]
            weight[part] = number[part]
        return cls(sizes, search.code, weight, full, log_proba)

    def _loss(self, log_proba: Array) -> Array:
        own = log_proba[..., np.arange(self.code.size), self.code]
        return np.where(self.weight > 0, -own, 0.0)

    def _mean(self, values: Array) -> tuple[float, float]:
        """With its standard error."""
        total = float(self.weight.sum())
        if total <= 0:
            return np.nan, np.nan
        mean = float(self.weight @ values) / total
        spread = float(self.weight @ (values - mean) ** 2) / total
        return mean, float(np.sqrt(spread / max(total - 1.0, 1.0)))

    def _of(self, size: int, log_proba: Array) -> PanelSize:
        wrong = np.where(self.weight > 0, log_proba.argmax(axis=1) != self.code, 0.0)
        return PanelSize(size, *self._mean(wrong), *self._mean(self._loss(log_proba)))

    def path(self) -> list[PanelSize]:
        return [self._of(size, each) for size, each in zip(self.sizes, self.log_proba, strict=True)]

    def full(self) -> PanelSize:
        return self._of(-1, self.full_log_proba)

    def better_than_frequencies(self, p_value: float) -> bool:
        """On left-out samples, by more than a standard error, or at all where a test leaves no doubt."""
        gain, error = self._mean(self._loss(self.log_proba[0]) - self._loss(self.full_log_proba))
        return gain > (0.0 if p_value <= CHANCE else error)

    def smallest(self, sizes: tuple[int, ...]) -> int:
        """From which on no size up to the best is worse than that by more than a standard error.

        Nor by what nobody would notice: where classes are far apart, differences are sure and tiny.
        """
        nothing, *losses = self._loss(self.log_proba)
        best = chosen = int(np.argmin([self._mean(loss)[0] for loss in losses]))
        unnoticed = UNNOTICED * self._mean(nothing - losses[best])[0]
        while chosen > 0:
            worse, error = self._mean(losses[chosen - 1] - losses[best])
            if worse > max(error, unnoticed):
                break
            chosen -= 1
        return sizes[chosen]

    def proba(self, size: int) -> Array:
        return np.exp(self.log_proba[size])


def _weightiest(model: SparseClassifier) -> tuple[Plan, bool]:
    """The plan of a model with what has most of the weight, and whether that is sparse, too.

    This is one model, or the first two where none has as much by itself.
    """
    plan, share = model.plan_, {each.name: each.weight for each in model.models_}
    recipes = (*plan.dense.recipes, *plan.dense.wider) if plan.dense else ()
    first, *others = sorted([SPARSE, *(r.name for r in recipes)], key=lambda name: -share.get(name, 0.0))
    names = [first] if share.get(first, 0.0) >= MOST_WEIGHT else [first, *others[:1]]
    if plan.dense and not plan.dense.searched:
        chosen = tuple(r for r in recipes if r.name in names)
        plan = replace(plan, dense=replace(plan.dense, recipes=chosen, wider=()))
    return plan, SPARSE in names


def _log_proba(model: Any, X: Any) -> Array:
    """(samples, classes), of any classifier."""
    if hasattr(model, "predict_log_proba") and hasattr(type(model), "_log_proba"):
        return np.asarray(model.predict_log_proba(X), dtype=np.float64)
    proba = np.asarray(model.predict_proba(X), dtype=np.float64)
    return np.log(np.maximum(proba, np.finfo(float).tiny))


def fitted(model: Any, X: Any, y: NDArray[Any], sample_weight: Any, groups: Any) -> Any:
    """With what its `fit` takes of weights and groups; weights it cannot take are an error."""
    given: dict[str, Any] = {}
    if sample_weight is not None:
        given["sample_weight"] = sample_weight
    if groups is not None and has_fit_parameter(model, "groups"):
        given["groups"] = groups
    return model.fit(X, y, **given)
