"""Estimators: the scikit-learn face of foldless."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__all__ = [
    "BayesPointClassifier",
    "EPBayesPointClassifier",
    "GAMPClassifier",
    "PanelClassifier",
    "PrunedBayesClassifier",
    "SMLRClassifier",
    "SparseClassifier",
    "load",
]

if TYPE_CHECKING:
    from foldless.estimators._saving import load
    from foldless.estimators.bayes_point import BayesPointClassifier
    from foldless.estimators.classifier import SparseClassifier
    from foldless.estimators.ep_bayes_point import EPBayesPointClassifier
    from foldless.estimators.gamp import GAMPClassifier
    from foldless.estimators.panel import PanelClassifier
    from foldless.estimators.pruned import PrunedBayesClassifier
    from foldless.estimators.smlr import SMLRClassifier
else:
    # Each has solvers of its own to load; who wants one need not wait for those of the others.
    _MODULES = {
        "BayesPointClassifier": "bayes_point",
        "EPBayesPointClassifier": "ep_bayes_point",
        "GAMPClassifier": "gamp",
        "PanelClassifier": "panel",
        "PrunedBayesClassifier": "pruned",
        "SMLRClassifier": "smlr",
        "SparseClassifier": "classifier",
        "load": "_saving",
    }

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
        return globals()[name]

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
