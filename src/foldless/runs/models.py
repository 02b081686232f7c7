"""The estimators by their names on the command line."""

from __future__ import annotations

import inspect
import re
from typing import Any

import foldless

DEFAULT = "sparse"
SUFFIX = "Classifier"


def model_names() -> list[str]:
    """Names of all public estimators, without importing any: SparseClassifier is 'sparse'."""
    return [_spelt(name) for name in foldless.__all__ if name.endswith(SUFFIX)]


def model_named(name: str, **wanted: Any) -> Any:
    """The estimator of that name, with those of the wanted parameters that it has."""
    by_name = {_spelt(public): public for public in foldless.__all__ if public.endswith(SUFFIX)}
    if name not in by_name:
        raise ValueError(f"There is no model {name!r}. There are: {', '.join(by_name)}.")
    estimator = getattr(foldless, by_name[name])
    known = inspect.signature(estimator).parameters
    return estimator(**{key: value for key, value in wanted.items() if key in known})


def _spelt(public: str) -> str:
    """EPBayesPointClassifier as ep-bayes-point, SMLRClassifier as smlr."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", public.removesuffix(SUFFIX)).lower()
