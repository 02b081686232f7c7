"""Sparse Bayesian classification from one fit without folds."""

from typing import TYPE_CHECKING

__all__ = [
    "BayesPointClassifier",
    "EPBayesPointClassifier",
    "GAMPClassifier",
    "PanelClassifier",
    "PrunedBayesClassifier",
    "SMLRClassifier",
    "SparseClassifier",
    "__version__",
    "load",
    "open_rows",
]
__version__ = "0.1.0.dev0"

if TYPE_CHECKING:
    from foldless.estimators import (
        BayesPointClassifier,
        EPBayesPointClassifier,
        GAMPClassifier,
        PanelClassifier,
        PrunedBayesClassifier,
        SMLRClassifier,
        SparseClassifier,
        load,
    )
    from foldless.operators import open_rows
else:
    # scikit-learn takes over a second to import: `foldless --help`, and what does without it, need not wait.
    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if name == "open_rows":
            from foldless import operators as room
        else:
            from foldless import estimators as room

        globals()[name] = getattr(room, name)
        return globals()[name]

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
