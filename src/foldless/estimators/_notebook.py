"""A few lines about a fitted model under scikit-learn's diagram, where a notebook shows the estimator."""

from __future__ import annotations

import numpy as np

from foldless.estimators._summary import Summary
from foldless.io import printable

N_FEATURES_NAMED = 8
MOST_CLASSES_NAMED = 6


def lines(summary: Summary) -> list[str]:
    """What was found, in a line each. Text, not HTML, with names made printable."""
    names = [printable(label) for label in summary.classes[:MOST_CLASSES_NAMED]]
    more = len(summary.classes) - len(names)
    said = [f"classes: {', '.join(names)}{f' and {more} more' if more > 0 else ''}", _features(summary)]
    if summary.loo is not None and np.isfinite(summary.loo.error):
        error, log_loss = 100 * summary.loo.error, summary.loo.log_loss
        said.append(f"leave-one-out: error {error:.1f} %, log loss {log_loss:.3f}")
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
