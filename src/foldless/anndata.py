"""AnnData in, results where its users look for them: in `var`, `obs` and `uns`.

    import foldless.anndata

    model = foldless.anndata.classify(adata, "cell_type")
    adata.var.sort_values("foldless_inclusion_probability", ascending=False).head()

A sparse X stays sparse. The object is read as it is; normalise counts before, as for any other classifier.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone

import foldless
from foldless.estimators import SparseClassifier
from foldless.estimators._preparation import Preparation
from foldless.estimators._summary import Summary, summary_of
from foldless.io.extras import needs
from foldless.io.h5ad import table_of_anndata
from foldless.io.table import Reading, Roles


def classify(
    adata: Any,
    target: str,
    *,
    groups: str | None = None,
    covariates: Sequence[str] = (),
    layer: str | None = None,
    model: Any = None,
    key: str = "foldless",
) -> Any:
    """Fit a classifier of a column of `obs`, and write what it found into the object.

    Parameters
    ----------
    adata : AnnData
    target : str
        The column of `obs` with the class of each observation.
    groups : str, optional
        A column of `obs`, such as donor or batch: observations alike in it are left out together.
    covariates : list of str
        Columns of `obs`, or names of genes, that stay in the model whatever the data say. Words are coded as
        0 and 1 beside the most frequent one.
    layer : str, optional
        Use ``adata.layers[layer]`` instead of ``adata.X``.
    model : estimator, optional
        `SparseClassifier()` by default. It is cloned, not changed.
    key : str
        Results begin with this name.

    Returns
    -------
    The fitted model. In the object:

    - ``var``: key_inclusion_probability, key_weight (of more than two classes, the largest), key_weight_sd,
      key_selected; NaN for genes that a model has no such number of.
    - ``obs``: key_loo_predicted, key_loo_probability (of that class), key_mislabel_probability.
    - ``uns[key]``: version, parameters, classes, leave-one-out error, outcome, method, flags,
      covariates' weights.
    """
    with needs("anndata", "anndata", "to work with AnnData"):
        import anndata  # noqa: F401
    roles = Roles(target=target, groups=groups, covariates=tuple(covariates))
    table = table_of_anndata(Path("adata"), adata, roles, Reading(layer=layer))
    _, table = Preparation.fit(table)
    fitted = SparseClassifier() if model is None else clone(model)
    options: dict[str, Any] = {} if table.groups is None else {"groups": table.groups}
    if table.covariates:
        fitted.set_params(always_keep=table.covariate_positions)
    fitted.fit(table.X, table.labels(), **options)
    fitted.feature_names_in_ = np.array(table.feature_names, dtype=object)

    found = summary_of(fitted)
    _write_var(adata.var, found, key, len(table.feature_names) - adata.n_vars)
    _write_obs(adata.obs, found, key)
    given = {"target": target, "groups": groups or "", "layer": layer or ""}
    adata.uns[key] = given | _facts(fitted, found)
    if table.covariates:
        adata.uns[key]["covariates"] = np.array(table.covariates, dtype=object)
        adata.uns[key]["covariate_weights"] = found.weights[:, list(table.covariate_positions)]
    return fitted


def _write_var(var: Any, found: Summary, key: str, n_beside: int) -> None:
    """Covariates of obs, `n_beside` of them, stand before the genes."""
    largest = np.argmax(np.abs(found.weights), axis=0)
    genes = np.arange(n_beside, largest.size)
    var[f"{key}_weight"] = found.weights[largest[genes], genes]
    if found.weight_std is not None:
        var[f"{key}_weight_sd"] = found.weight_std[largest[genes], genes]
    if found.inclusion is not None:
        var[f"{key}_inclusion_probability"] = found.inclusion[genes]
    if found.selects:
        selected = np.zeros(largest.size, dtype=bool)
        selected[[*found.selected(), *found.kept]] = True
        var[f"{key}_selected"] = selected[genes]


def _write_obs(obs: Any, found: Summary, key: str) -> None:
    if found.loo is not None:
        obs[f"{key}_loo_predicted"] = found.classes[np.argmax(found.loo.proba, axis=1)]
        obs[f"{key}_loo_probability"] = found.loo.proba.max(axis=1)
    if found.mislabel_probability is not None:
        obs[f"{key}_mislabel_probability"] = found.mislabel_probability


def _facts(model: Any, found: Summary) -> dict[str, Any]:
    """What .h5ad can hold: texts, numbers, and arrays of them."""
    facts: dict[str, Any] = {
        "foldless": foldless.__version__,
        "model": repr(model),
        "classes": model.classes_.astype(str).astype(object),
        "intercept": np.asarray(model.intercept_),
        "method": " ".join(sentence.text for sentence in found.method),
        "flags": np.array([flag.text for flag in found.flags], dtype=object),
    }
    if found.loo is not None:
        facts |= {"loo_error": found.loo.error, "loo_log_loss": found.loo.log_loss}
    if found.outcome is not None:
        facts["outcome"] = str(found.outcome)
    return facts
