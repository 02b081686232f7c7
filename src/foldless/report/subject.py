"""What a page is about: a fitted model with the names and labels of what it was fitted to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foldless.estimators._summary import summary_of
from foldless.evaluation import Worth
from foldless.plots.readings import class_codes, ranking, shown_features, standard_values, weights_of
from foldless.report.wording import PERCENT, named, percent, sentence
from foldless.tuning.planned import SETS_OF_GROUPS

# Features whose values are shown.
MOST_SHOWN = 20

Names = Sequence[Any] | NDArray[Any] | None


class Subject:
    """What a model has found, and what its user tells beside it; arguments are those of `report.write`."""

    def __init__(
        self,
        model: Any,
        *,
        y: ArrayLike | None = None,
        feature_names: Names = None,
        sample_names: Names = None,
        groups: ArrayLike | None = None,
        title: str | None = None,
        source: str | None = None,
        steps: Sequence[str] = (),
        facts: Mapping[str, object] | None = None,
        learning_curve: Any = None,
        feature_descriptions: Names = None,
        fdr: float | None = None,
        X: Any = None,
        images: bool = False,
        panel: Any = None,
        cautions: Sequence[str] = (),
    ) -> None:
        self.summary = summary = summary_of(model)
        if isinstance(steps, str):
            raise ValueError(f"steps must be a list of sentences; got the string {steps!r}.")
        self.title = None if title is None else named(title)
        self.source = None if source is None else sentence(source)
        self.steps = [sentence(step) for step in steps]
        self.facts = {} if facts is None else facts
        self.learning_curve = learning_curve
        self.fdr = summary.fdr if fdr is None else fdr
        self.images = images
        self.panel, self.cautions = panel, list(cautions)
        self.n_groups = None if groups is None else np.unique(np.asarray(groups)).size

        self.classes = [named(label) for label in summary.classes]
        self.two = len(self.classes) == 2
        # Of the recorded labels, positions in classes_.
        self.codes = None if y is None else class_codes(np.asarray(y), summary.classes)
        self.class_counts = (
            None if self.codes is None else np.bincount(self.codes, minlength=len(self.classes))
        )
        self.mislabel_probability = summary.mislabel_probability
        self.sample_names = _by_position(sample_names)

        self.loo = summary.loo
        self.loo_proba = None if summary.loo is None else summary.loo.proba
        of = "samples" if summary.loo is None else summary.loo.of
        self.by_groups, self.in_sets = of != "samples", of == SETS_OF_GROUPS
        self.left_out = "group of samples" if self.by_groups else "sample"
        known = (self.loo_proba, self.codes, self.mislabel_probability, self.sample_names)
        self.n_samples = next((len(each) for each in known if each is not None), None)
        for name, given in (("y", self.codes), ("sample_names", self.sample_names), ("groups", groups)):
            _check_length(name, given, self.n_samples, "samples")

        # With a kernel, what carries weights are basis functions, such as kernels around samples.
        self.kernel = summary.kernel is not None
        self.thing = "basis function" if self.kernel else "feature"
        self.n_features = summary.n_features
        self.feature_names = _by_position(summary.feature_names if feature_names is None else feature_names)
        self.descriptions = _by_position(feature_descriptions)
        _check_length("feature_names", self.feature_names, self.n_features, "features")
        _check_length("feature_descriptions", self.descriptions, self.n_features, "features")
        self.weights, self.ranking = weights_of(summary), ranking(summary)
        self.n_weights = self.ranking.size
        self.inclusion = summary.inclusion
        # Columns that stay whatever the data say, and the ranking of all others.
        self.kept = np.asarray(summary.kept, dtype=np.intp)
        self.free_ranking = self.ranking[~np.isin(self.ranking, self.kept)]

        self.shown_values = None if X is None or self.kernel else self._values(X)

    def _values(self, X: Any) -> NDArray[np.float64] | None:
        """Of the features that are shown, in standard deviations; what is missing is in the middle."""
        shape = getattr(X, "shape", None)
        if shape != (self.n_samples, self.n_features):
            raise ValueError(
                f"X has shape {shape}; the table of the fit has {self.n_samples} samples of "
                f"{self.n_features} features."
            )
        return standard_values(X, self.shown_features)

    @cached_property
    def shown_features(self) -> NDArray[np.intp]:
        return shown_features(self.summary, self.fdr)[:MOST_SHOWN]

    def sample(self, i: int) -> str:
        return f"row {i}" if self.sample_names is None else named(self.sample_names[i])

    def feature(self, j: int) -> str:
        if self.summary.kernel is not None:
            around = self.summary.kernel.around
            return f"basis function {j}" if around is None else f"sample {self.sample(int(around[j]))}"
        return f"column {j}" if self.feature_names is None else named(self.feature_names[j])

    def description(self, j: int) -> str:
        return "" if self.descriptions is None or self.kernel else named(self.descriptions[j])

    @cached_property
    def selected(self) -> NDArray[np.intp]:
        """What the model selects or uses, the surest first; what is kept by decree is no discovery."""
        return self.ranking[np.isin(self.ranking, self.summary.selected(self.fdr))]

    @cached_property
    def differing(self) -> NDArray[np.intp]:
        """Features that differ between classes by themselves, at the same rate, the clearest first."""
        return self.summary.differing(self.fdr)

    @property
    def tested_by_groups(self) -> bool:
        """Whether tests of single features count groups, or weighted samples, as one each."""
        sums = self.summary.class_sums
        return sums is not None and sums.of_groups is not None

    @cached_property
    def judged(self) -> NDArray[np.bool_] | None:
        """Samples with leave-one-out probabilities; an approximation may break down for some."""
        return None if self.loo_proba is None else np.all(np.isfinite(self.loo_proba), axis=1)

    @property
    def loo_error(self) -> float | None:
        """The model's own, which counts samples by their weights."""
        return None if self.loo is None or not np.isfinite(self.loo.error) else self.loo.error

    @property
    def worth(self) -> Worth | None:
        """Of left-out predictions, with intervals; models that were saved by earlier versions have none."""
        return None if self.loo is None else self.loo.worth

    @property
    def error_in_words(self) -> str | None:
        """How many labels are missed, and between what limits the error lies."""
        if self.worth is None or self.n_samples is None:
            return None
        lower, upper = self.worth.error_interval
        limits = f"95{PERCENT} interval {100 * lower:.1f} to {percent(upper)}"
        # Samples of unequal weight have no number of misses.
        whole = np.isclose(self.worth.n_samples, self.n_samples)
        return (
            f"{round(self.worth.error * self.n_samples)} of {self.n_samples}, {limits}" if whole else limits
        )

    @property
    def worse(self) -> bool:
        """Whether there are more errors than by guessing, as leaving out makes them of nothing.

        Without a sample its own class is the rarer one: who has only frequencies to go by answers the other.
        """
        error, guessing = self.loo_error, self.guessing_error
        return error is not None and guessing is not None and error > guessing

    @property
    def guessing_error(self) -> float | None:
        """Of always answering the most frequent class."""
        counts = self.class_counts
        return None if counts is None else 1 - float(counts.max() / counts.sum())


def _by_position(names: Names) -> Names:
    """Names that are found by position: a pandas Series would look for its index instead."""
    return names if names is None or isinstance(names, np.ndarray | list | tuple) else list(names)


def _check_length(what: str, given: Any, needed: int | None, of: str) -> None:
    if given is not None and needed is not None and len(given) != needed:
        raise ValueError(f"{what} has {len(given)} entries for {needed} {of}; it needs one for each.")
