"""A few lines about a fitted model under scikit-learn's diagram, where a notebook shows the estimator."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np

from foldless.io import printable

N_FEATURES_NAMED = 8
MOST_CLASSES_NAMED = 6


class NotebookSummary:
    """Adds the summary to what scikit-learn shows; to be named before `BaseEstimator`."""

    def _html_repr(self) -> str:
        diagram: str = super()._html_repr()  # type: ignore[misc]
        lines = summary(self)
        if not lines:
            return diagram
        items = "".join(f"<li>{escape(line)}</li>" for line in lines)
        return f'{diagram}<ul class="foldless-summary">{items}</ul>'


def summary(model: Any) -> list[str]:
    """What was found, in a line each; nothing before `fit`. Text, not HTML, with names made printable."""
    if not (hasattr(model, "coef_") and hasattr(model, "classes_")):
        return []
    names = [printable(label) for label in model.classes_[:MOST_CLASSES_NAMED]]
    more = len(model.classes_) - len(names)
    lines = [f"classes: {', '.join(names)}{f' and {more} more' if more > 0 else ''}"]
    lines += _features(model)
    error = getattr(model, "loo_error_", None)
    if error is not None and np.isfinite(error):
        lines.append(f"leave-one-out: error {100 * error:.1f} %, log loss {float(model.loo_log_loss_):.3f}")
    outcome = getattr(model, "outcome_", None)
    if outcome is not None:
        advice = "" if outcome.trustworthy else f". {outcome.advice}"
        lines.append(f"the fit {outcome} after {model.n_iter_} iterations{advice}")
    return lines + [f"caution: {flag}" for flag in getattr(model, "flags_", [])]


def _features(model: Any) -> list[str]:
    inclusion = getattr(model, "inclusion_probability_", None)
    if inclusion is None:
        n_kept = int(np.count_nonzero(np.any(np.atleast_2d(model.coef_) != 0, axis=0)))
        what = (
            "basis functions" if hasattr(model, "basis_indices_") else f"of {model.n_features_in_} features"
        )
        return [f"in use: {n_kept} {what}"]
    chosen = model.get_support(indices=True)
    chosen = chosen[np.argsort(-inclusion[chosen], kind="stable")]
    columns = getattr(model, "feature_names_in_", None)
    named = [f"column {j}" if columns is None else printable(columns[j]) for j in chosen[:N_FEATURES_NAMED]]
    more = f" and {chosen.size - len(named)} more" if chosen.size > len(named) else ""
    said = f"selected: {chosen.size} of {inclusion.size} features at a false discovery rate of {model.fdr:g}"
    return [said + (f": {', '.join(named)}{more}" if named else "")]
