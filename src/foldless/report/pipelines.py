"""Pipelines of scikit-learn that end in a classifier of foldless: what the page of the last step needs."""

from __future__ import annotations

from typing import Any

from sklearn.pipeline import Pipeline


def last_step(model: Any, about: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The classifier, and arguments of `write` as it sees them; a model that is no pipeline stays as it is.

    Columns are those that reach the last step. Names of as many columns, and steps of one's own, stay.
    """
    if not isinstance(model, Pipeline):
        return model, about
    before, last, about = model[:-1], model[-1], dict(about)
    names = about.get("feature_names")
    n_columns = getattr(last, "n_features_in_", None)
    if len(before):
        if about.get("X") is not None:
            about["X"] = before.transform(about["X"])
        if names is None or len(names) != n_columns:
            about["feature_names"] = _names_after(before, names)
        kinds = ", ".join(type(step).__name__ for _, step in before.steps)
        about["steps"] = [*about.get("steps", ()), f"Columns are those that {kinds} made of the table"]
    return last, about


def _names_after(steps: Pipeline, names: Any) -> Any:
    """Of the columns after these steps; None where one of them has no names to give."""
    try:
        return steps.get_feature_names_out(names)
    except (AttributeError, ValueError):
        return None
