"""What a page is about: a fitted model with the names and labels of what it was fitted to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foldless.beliefs import Array
from foldless.estimators._summary import LeaveOneOut, Summary, summary_of
from foldless.plots.readings import Weights, ranking, weights_of
from foldless.report.wording import named, sentence


@dataclass(frozen=True, eq=False)
class Subject:
    """What a model has found, and what its user knows beside it."""

    summary: Summary
    title: str | None
    source: str | None
    steps: tuple[str, ...]
    facts: Mapping[str, object]
    learning_curve: Any
    fdr: float | None
    codes: NDArray[np.intp] | None  # of the recorded labels, positions in classes_
    given_feature_names: Sequence[Any] | NDArray[Any] | None
    given_sample_names: Sequence[Any] | NDArray[Any] | None
    given_descriptions: Sequence[Any] | NDArray[Any] | None
    n_groups: int | None

    # ------------------------------------------------------------------ classes and samples

    @cached_property
    def classes(self) -> list[str]:
        return [named(label) for label in self.summary.classes]

    @property
    def two(self) -> bool:
        return len(self.classes) == 2

    @cached_property
    def n_samples(self) -> int | None:
        for known in (self.codes, self.loo_proba, self.mislabel_probability, self.given_sample_names):
            if known is not None:
                return len(known)
        return None

    @cached_property
    def class_counts(self) -> NDArray[np.intp] | None:
        return None if self.codes is None else np.bincount(self.codes, minlength=len(self.classes))

    def sample(self, i: int) -> str:
        return f"row {i}" if self.given_sample_names is None else named(self.given_sample_names[i])

    # ------------------------------------------------------------------ features

    @property
    def kernel(self) -> bool:
        """Whether weights are those of basis functions, such as kernels around samples, not of features."""
        return self.summary.kernel is not None

    @property
    def thing(self) -> str:
        """What carries a weight."""
        return "basis function" if self.kernel else "feature"

    @cached_property
    def weights(self) -> Weights:
        return weights_of(self.summary)

    @cached_property
    def ranking(self) -> NDArray[np.intp]:
        return ranking(self.summary)

    @cached_property
    def free_ranking(self) -> NDArray[np.intp]:
        """Without what is kept by decree."""
        return self.ranking[~np.isin(self.ranking, self.kept)]

    @property
    def n_features(self) -> int:
        """Columns of the table; with a kernel there are other things that carry weights."""
        return self.summary.n_features

    @property
    def n_weights(self) -> int:
        return int(self.weights.mean.shape[1])

    def feature(self, j: int) -> str:
        if self.summary.kernel is not None:
            around = self.summary.kernel.around
            return f"basis function {j}" if around is None else f"sample {self.sample(int(around[j]))}"
        names = self.given_feature_names
        return f"column {j}" if names is None else named(names[j])

    def description(self, j: int) -> str:
        given = self.given_descriptions
        return "" if given is None or self.kernel else named(given[j])

    @property
    def inclusion(self) -> Array | None:
        return self.summary.inclusion

    @cached_property
    def kept(self) -> NDArray[np.intp]:
        """Columns that stay whatever the data say."""
        return np.asarray(self.summary.kept, dtype=np.intp)

    @cached_property
    def selected(self) -> NDArray[np.intp]:
        """What the model selects or uses, the surest first; what is kept by decree is no discovery."""
        return self.ranking[np.isin(self.ranking, self.summary.selected(self.fdr))]

    # ------------------------------------------------------------------ leave-one-out

    @property
    def loo(self) -> LeaveOneOut | None:
        return self.summary.loo

    @property
    def loo_proba(self) -> Array | None:
        return None if self.loo is None else self.loo.proba

    @cached_property
    def judged(self) -> NDArray[np.bool_] | None:
        """Samples of which leave-one-out says something; an approximation may break down for some."""
        return None if self.loo_proba is None else np.all(np.isfinite(self.loo_proba), axis=1)

    @property
    def mislabel_probability(self) -> Array | None:
        return self.summary.mislabel_probability

    @property
    def loo_error(self) -> float | None:
        """The model's own, which counts samples by their weights."""
        return None if self.loo is None or not np.isfinite(self.loo.error) else self.loo.error

    @property
    def loo_standard_error(self) -> float | None:
        if self.loo_error is None or not self.n_samples:
            return None
        return float(np.sqrt(self.loo_error * (1 - self.loo_error) / self.n_samples))

    @property
    def guessing_error(self) -> float | None:
        """Of always answering the most frequent class."""
        counts = self.class_counts
        return None if counts is None else 1 - float(counts.max() / counts.sum())

    @property
    def left_out(self) -> str:
        """What is left out at a time."""
        return "group of samples" if self.by_groups else "sample"

    @property
    def by_groups(self) -> bool:
        return self.loo is not None and self.loo.of == "groups"


def subject_of(
    model: Any,
    *,
    y: ArrayLike | None = None,
    feature_names: Sequence[Any] | NDArray[Any] | None = None,
    sample_names: Sequence[Any] | NDArray[Any] | None = None,
    groups: ArrayLike | None = None,
    title: str | None = None,
    source: str | None = None,
    steps: Sequence[str] = (),
    facts: Mapping[str, object] | None = None,
    learning_curve: Any = None,
    feature_descriptions: Sequence[Any] | NDArray[Any] | None = None,
    fdr: float | None = None,
) -> Subject:
    """The arguments of `report.write`, checked."""
    summary = summary_of(model)
    if isinstance(steps, str):
        raise ValueError(f"steps must be a list of sentences; got the string {steps!r}.")
    if feature_names is None:
        feature_names = summary.feature_names
    _check_length("feature_names", feature_names, summary.n_features, "features")
    _check_length("feature_descriptions", feature_descriptions, summary.n_features, "features")
    codes = None if y is None else _codes(np.asarray(y), summary.classes)
    n_samples = None if codes is None else len(codes)
    if summary.loo is not None:
        n_samples = len(summary.loo.proba)
    if n_samples is not None:
        _check_length("y", codes, n_samples, "samples")
        _check_length("sample_names", sample_names, n_samples, "samples")
        _check_length("groups", groups, n_samples, "samples")
    return Subject(
        summary,
        None if title is None else named(title),
        None if source is None else sentence(source),
        tuple(sentence(step) for step in steps),
        {} if facts is None else facts,
        learning_curve,
        summary.fdr if fdr is None else fdr,
        codes,
        _by_position(feature_names),
        _by_position(sample_names),
        _by_position(feature_descriptions),
        None if groups is None else np.unique(np.asarray(groups)).size,
    )


def _codes(labels: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.intp]:
    found = labels.ravel()[:, np.newaxis] == classes
    known = np.any(found, axis=1)
    if not known.all():
        stranger = labels.ravel()[~known].tolist()[0]
        raise ValueError(
            f"y has the label {stranger!r}, which is not among the classes of the model, "
            f"{classes[:10].tolist()}. Pass the labels that the model was fitted to."
        )
    return np.argmax(found, axis=1)


def _by_position(names: Sequence[Any] | NDArray[Any] | None) -> Sequence[Any] | NDArray[Any] | None:
    """Names that are found by position: a pandas Series would look for its index instead."""
    return names if names is None or isinstance(names, np.ndarray | list | tuple) else list(names)


def _check_length(what: str, given: Any, needed: int, of: str) -> None:
    if given is not None and len(given) != needed:
        raise ValueError(f"{what} has {len(given)} entries for {needed} {of}; it needs one for each.")
