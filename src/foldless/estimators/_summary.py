"""What a fitted estimator has found and how: one form for pages, notebooks, tables and pictures.

Every estimator fills in a `Summary`. Whoever shows a model reads that, never its attributes or parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from foldless.beliefs import Array
from foldless.io import printable
from foldless.selection.marginal import q_values
from foldless.tuning.plan import CHANCE

if TYPE_CHECKING:
    from foldless.evaluation import Worth
    from foldless.problem import History, Outcome
    from foldless.selection import Group
    from foldless.selection.marginal import ClassSums
    from foldless.tuning.planned import Plan
    from foldless.tuning.portfolio import ModelShare
    from foldless.tuning.record import Flag, Record

# In a notebook.
N_FEATURES_NAMED = 8
MOST_CLASSES_NAMED = 6


class Sentence(NamedTuple):
    """What was done, in words, and the claims in them, which can be compared with what ran."""

    text: str
    claims: tuple[tuple[str, Any], ...]


def said(text: str, *claims: tuple[str, Any]) -> Sentence:
    return Sentence(text, claims)


STANDARDISED = said(
    "Columns were centred and scaled to unit variance inside the fit, without a copy; predictions do not "
    "depend on their units.",
    ("columns", "standardised"),
)
BASIS_STANDARDISED = said(
    "Basis functions were centred and scaled to unit variance inside the fit.", ("columns", "standardised")
)
AS_THEY_ARE = said("Columns were used as they are, without centring or scaling.", ("columns", "as they are"))


class LeaveOneOut(NamedTuple):
    """What all other samples, or groups, predict for each sample of the fit."""

    proba: Array  # (samples, classes); NaN where an approximation breaks down
    error: float
    log_loss: float
    how: Sentence  # begins in the middle of a sentence: "leave-one-out, ..."
    of: str = "samples"  # or "groups"
    worth: Worth | None = None  # with intervals; None where all approximations broke down
    test: str = "permutation"  # that the p value is of, or "losses"


class KernelBasis(NamedTuple):
    """Weights are those of basis functions, not of features."""

    name: object  # as given: a name, or a function
    around: NDArray[np.intp] | None = None  # the sample of each basis function, if it has one


class Parameter(NamedTuple):
    """A number in a prior or a likelihood, as fitted."""

    meaning: str
    value: float
    learnt: bool


@dataclass(frozen=True, eq=False, kw_only=True)
class Summary:
    """What was found and how; None, or nothing, for what an estimator does not have."""

    described: str  # the estimator, as it could be typed
    classes: NDArray[Any]
    n_features: int  # columns of the table
    feature_names: NDArray[Any] | None
    # Of the model that selects: `sparse_coef_`, or else `coef_`; (scores, features), or basis functions.
    weights: Array
    method: tuple[Sentence, ...]
    columns: Sentence  # what was done to them
    weight_std: Array | None = None
    scale: Array | None = None  # standard deviations: what weights are multiplied by to be compared
    kernel: KernelBasis | None = None
    selects: bool = True  # or whether all that has a weight is merely in use
    inclusion: Array | None = None
    select: Callable[[float | None], NDArray[np.bool_]] | None = None  # at a false discovery rate
    fdr: float | None = None
    kept: Sequence[int] | NDArray[np.intp] = ()  # columns that stay whatever the data say
    groups: Sequence[Group] | None = None
    class_sums: ClassSums | None = None  # each feature by itself
    loo: LeaveOneOut | None = None
    mislabel_probability: Array | None = None
    outcome: Outcome | None = None
    n_iter: int | None = None
    history: History | None = None
    tolerance: float | None = None
    flags: tuple[Flag, ...] = ()
    class_weight: object = None
    plan: Plan | None = None
    record: Record | None = None
    models: tuple[ModelShare, ...] = ()
    generative_path: tuple[tuple[float, float, bool], ...] = ()  # weight, loss of left-out labels, taken
    parts: tuple[tuple[str, str], ...] = ()  # prior and likelihood, by name
    parameters: tuple[Parameter, ...] = ()  # of these
    measures: tuple[tuple[str, str], ...] = ()  # how good the fit is: log evidence, duality gap

    @property
    def name(self) -> str:
        return self.described.partition("(")[0]

    def selected(self, fdr: float | None = None) -> NDArray[np.intp]:
        """Positions of what is selected or, without probabilities, in use; what is kept is no discovery."""
        mask = np.any(self.weights != 0, axis=0) if self.select is None else self.select(fdr).copy()
        mask[list(self.kept)] = False
        return np.flatnonzero(mask)

    def differing(self, fdr: float | None = None) -> NDArray[np.intp]:
        """Positions of features that differ between the classes by themselves, the clearest first."""
        rate = self.fdr if fdr is None else fdr
        if self.class_sums is None or self.kernel is not None or rate is None:
            return np.zeros(0, dtype=np.intp)
        p = self.class_sums.p_value
        order = np.lexsort((-np.abs(self.class_sums.difference), p))
        order = order[~np.isin(order, self.kept)]
        return order[q_values(p)[order] < rate]

    @property
    def told_apart(self) -> bool:
        """Whether the classes are: fewer errors than by guessing, by the test or the error's interval."""
        worth = None if self.loo is None else self.loo.worth
        if self.loo is None or worth is None or self.loo.error >= worth.guessing_error:
            return False
        if worth.p_value is None:
            return worth.error_interval.upper < worth.guessing_error
        return worth.p_value <= CHANCE

    @property
    def casts_doubt(self) -> bool:
        """Whether it can doubt labels: one that is seen not to tell the classes apart cannot."""
        judged = self.loo is not None and self.loo.worth is not None
        return self.mislabel_probability is not None and (self.told_apart or not judged)

    def suspected(self) -> NDArray[np.intp]:
        """Positions of labels that are more likely wrong than right, the likeliest first."""
        if self.mislabel_probability is None or not self.casts_doubt:
            return np.zeros(0, dtype=np.intp)
        order = np.argsort(-self.mislabel_probability, kind="stable")
        return order[self.mislabel_probability[order] > 0.5]


class Summarised:
    """An estimator with a summary of what it has found."""

    def _summary(self) -> Summary:
        """Of a fitted estimator; see `summary_of`."""
        raise NotImplementedError


def summary_of(model: Any) -> Summary:
    """What a fitted estimator of foldless has found; an error if it is another, or not fitted."""
    if not isinstance(model, Summarised):
        raise ValueError(f"A fitted classifier of foldless is needed; got {type(model).__name__}.")
    if "coef_" not in vars(model):
        raise ValueError(f"This {type(model).__name__} is not fitted. Call fit first.")
    return model._summary()


def basics(model: Any) -> dict[str, Any]:
    """What every estimator has, or may have."""
    found = vars(model)
    # Probability, weight and interval of a feature come from the same model.
    own = "sparse_coef" if "sparse_coef_" in found else "coef"
    std = found.get(f"{own}_std_")
    return {
        "described": " ".join(repr(model).split()),
        "classes": model.classes_,
        "n_features": int(model.n_features_in_),
        # scikit-learn sets it where columns have names.
        "feature_names": found.get("feature_names_in_"),
        "weights": np.atleast_2d(np.asarray(found[f"{own}_"], dtype=np.float64)),
        "weight_std": None if std is None else np.asarray(std, dtype=np.float64),
        "outcome": found.get("outcome_"),
        "n_iter": found.get("n_iter_"),
        "class_weight": found.get("class_weight"),
    }


def in_lines(summary: Summary) -> list[str]:
    """What was found, in a line each. Text, not HTML, with names made printable."""
    names = [printable(label) for label in summary.classes[:MOST_CLASSES_NAMED]]
    more = len(summary.classes) - len(names)
    said = [f"classes: {', '.join(names)}{f' and {more} more' if more > 0 else ''}", _features(summary)]
    if summary.loo is not None and np.isfinite(summary.loo.error):
        error, log_loss, worth = 100 * summary.loo.error, summary.loo.log_loss, summary.loo.worth
        line = f"leave-one-out: error {error:.1f} %"
        if worth is not None:
            lower, upper = worth.error_interval
            line += f" (95 % interval {100 * lower:.1f} to {100 * upper:.1f} %; guessing "
            line += f"{100 * worth.guessing_error:.1f} %)"
        said.append(f"{line}, log loss {log_loss:.3f}")
    if summary.outcome is not None:
        advice = "" if summary.outcome.trustworthy else f". {summary.outcome.advice}"
        said.append(f"the fit {summary.outcome} after {summary.n_iter} iterations{advice}")
    return said + [f"caution: {flag}" for flag in summary.flags]


def _features(summary: Summary) -> str:
    chosen = summary.selected()
    if summary.inclusion is None:
        what = f"of {summary.n_features} features" if summary.kernel is None else "basis functions"
        return f"in use: {chosen.size} {what}"
    # What is kept is in the model as well.
    chosen = np.union1d(chosen, np.asarray(summary.kept, dtype=np.intp))
    chosen = chosen[np.argsort(-summary.inclusion[chosen], kind="stable")]
    columns = summary.feature_names
    named = [f"column {j}" if columns is None else printable(columns[j]) for j in chosen[:N_FEATURES_NAMED]]
    more = f" and {chosen.size - len(named)} more" if chosen.size > len(named) else ""
    said = f"selected: {chosen.size} of {summary.n_features} features at a false discovery rate of "
    return f"{said}{summary.fdr:g}" + (f": {', '.join(named)}{more}" if named else "")
