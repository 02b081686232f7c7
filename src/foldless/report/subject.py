"""What a page is about: a fitted model with the names and labels of what it was fitted to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foldless.beliefs import Array
from foldless.plots.readings import Weights, ranking, weights_of
from foldless.report.wording import named, sentence


@dataclass(frozen=True, eq=False)
class Subject:
    """A model and what its user knows beside it; attributes a model lacks are None."""

    model: Any
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
        return [named(label) for label in self.model.classes_]

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
        n_features = getattr(self.model, "n_features_in_", None)
        made_of = getattr(self.model, "kernel", None) is not None
        return made_of or n_features not in (None, self.weights.mean.shape[1])

    @property
    def thing(self) -> str:
        """What carries a weight."""
        return "basis function" if self.kernel else "feature"

    @cached_property
    def weights(self) -> Weights:
        return weights_of(self.model)

    @cached_property
    def ranking(self) -> NDArray[np.intp]:
        return ranking(self.model)

    @cached_property
    def free_ranking(self) -> NDArray[np.intp]:
        """Without what is kept by decree."""
        return self.ranking[~np.isin(self.ranking, self.kept)]

    @property
    def n_features(self) -> int:
        """Columns of the table; with a kernel there are other things that carry weights."""
        return int(getattr(self.model, "n_features_in_", 0) or self.weights.mean.shape[1])

    @property
    def n_weights(self) -> int:
        return int(self.weights.mean.shape[1])

    def feature(self, j: int) -> str:
        if self.kernel:
            around = getattr(self.model, "basis_indices_", None)
            return f"basis function {j}" if around is None else f"sample {self.sample(int(around[j]))}"
        names = self.given_feature_names
        return f"column {j}" if names is None else named(names[j])

    def description(self, j: int) -> str:
        given = self.given_descriptions
        return "" if given is None or self.kernel else named(given[j])

    @cached_property
    def inclusion(self) -> Array | None:
        found = getattr(self.model, "inclusion_probability_", None)
        return None if found is None else np.asarray(found, dtype=np.float64)

    @cached_property
    def kept(self) -> NDArray[np.intp]:
        """Columns that stay whatever the data say."""
        return np.asarray(getattr(self.model, "_always_kept", ()), dtype=np.intp)

    @cached_property
    def selected(self) -> NDArray[np.intp]:
        """What the model selects or uses, the surest first; what is kept by decree is no discovery."""
        if self.inclusion is not None:
            mask = np.asarray(self.model.get_support(self.fdr))
        else:
            mask = np.any(self.weights.mean != 0, axis=0)
        mask = mask.copy()
        mask[self.kept] = False
        return self.ranking[mask[self.ranking]]

    # ------------------------------------------------------------------ leave-one-out

    @cached_property
    def loo_proba(self) -> Array | None:
        found = getattr(self.model, "loo_proba_", None)
        return None if found is None else np.asarray(found, dtype=np.float64)

    @cached_property
    def judged(self) -> NDArray[np.bool_] | None:
        """Samples of which leave-one-out says something; an approximation may break down for some."""
        return None if self.loo_proba is None else np.all(np.isfinite(self.loo_proba), axis=1)

    @cached_property
    def mislabel_probability(self) -> Array | None:
        found = getattr(self.model, "mislabel_probability_", None)
        return None if found is None else np.asarray(found, dtype=np.float64)

    @property
    def loo_error(self) -> float | None:
        """The model's own, which counts samples by their weights."""
        error = getattr(self.model, "loo_error_", None)
        return None if error is None or not np.isfinite(error) else float(error)

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
        return "sample" if self.n_groups is None else "group of samples"


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
    if not (hasattr(model, "classes_") and hasattr(model, "coef_")):
        raise ValueError(
            f"A report needs a fitted foldless classifier, with `classes_` and `coef_`; this "
            f"{type(model).__name__} has none. Call fit first."
        )
    if isinstance(steps, str):
        raise ValueError(f"steps must be a list of sentences; got the string {steps!r}.")
    if feature_names is None:
        feature_names = getattr(model, "feature_names_in_", None)
    n_features = int(getattr(model, "n_features_in_", np.shape(model.coef_)[-1]))
    _check_length("feature_names", feature_names, n_features, "features")
    _check_length("feature_descriptions", feature_descriptions, n_features, "features")
    codes = None if y is None else _codes(np.asarray(y), np.asarray(model.classes_))
    n_samples = None
    for known in (getattr(model, "loo_proba_", None), codes):
        n_samples = len(known) if n_samples is None and known is not None else n_samples
    if n_samples is not None:
        _check_length("y", codes, n_samples, "samples")
        _check_length("sample_names", sample_names, n_samples, "samples")
        _check_length("groups", groups, n_samples, "samples")
    rate = getattr(model, "fdr", None) if fdr is None else fdr
    return Subject(
        model,
        None if title is None else named(title),
        None if source is None else sentence(source),
        tuple(sentence(step) for step in steps),
        {} if facts is None else facts,
        learning_curve,
        rate,
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
