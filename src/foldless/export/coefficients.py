"""Coefficients as a table that any program can read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from foldless.io.tsv import write_tsv

INTERCEPT = "(intercept)"


def write_coefficients(model: Any, path: str | Path) -> Path:
    """Write intercept and coefficients, in the units of X, one row each; .tsv has tabs, all else commas.

    Log-odds are intercept + Σ coefficient · value, for more than two classes one sum for each.
    `predict_proba` also integrates over what is not known of them; weights of `SparseClassifier` have a scale
    by which their plain logistic is near to that. Names that a spreadsheet would take for formulas have an
    apostrophe in front (`foldless.io.tsv`).

    Parameters
    ----------
    model : estimator
        Fitted.
    path : str or Path
        Where to write; an existing file is replaced.

    Returns
    -------
    Path
        The file written.
    """
    check_is_fitted(model)
    if getattr(model, "kernel", None) is not None:
        raise ValueError("A model with a kernel has no coefficients of features. Fit one with kernel=None.")
    path = Path(path)
    coef, intercept = np.atleast_2d(model.coef_), np.ravel(model.intercept_)
    # A panel has coefficients of its members alone.
    panel = getattr(model, "features_", None)
    names = getattr(model, "feature_names_in_" if panel is None else "feature_names_", None)
    numbers = range(coef.shape[1]) if panel is None else panel
    features = [str(n) for n in names] if names is not None else [str(j + 1) for j in numbers]
    columns: list[tuple[str, Any]] = [("feature", [INTERCEPT, *features])]
    labels = [f"coefficient:{label}" for label in model.classes_] if len(coef) > 1 else ["coefficient"]
    for row, level, label in zip(coef, intercept, labels, strict=True):
        columns.append((label, [level, *row]))
    write_tsv(path, columns, delimiter="\t" if path.suffix.lower() == ".tsv" else ",")
    return path
