"""One frame of what a fit found about every feature: by itself, beside all others, and in a panel.

The four questions are in docs/guide/features.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from foldless.beliefs import Array
from foldless.estimators._scikit_learn import checked_groups, sample_weights, training_data
from foldless.operators import Standardized, stays_elsewhere
from foldless.selection.marginal import ClassSums, areas, class_sums, q_values

if TYPE_CHECKING:
    import pandas as pd

# Half the width of a 95 % interval, in standard deviations.
INTERVAL = 1.96


def feature_table(
    model: Any,
    X: Any = None,
    y: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    *,
    panel: NDArray[np.intp] | None = None,
) -> pd.DataFrame:
    """Of a fitted classifier by message passing; see its method."""
    import pandas as pd

    columns: dict[str, Any] = {}
    sums, area = vars(model).get("_class_sums"), None
    if X is not None:
        sums, area = _looked_at(model, X, y, sample_weight, groups)
    if sums is not None:
        # Covariates are what others are tested beside, and no candidates.
        tested = np.ones(model.n_features_in_)
        tested[model._always_kept] = np.nan
        p, q = tested * sums.p_value, tested.copy()
        q[tested == 1.0] = q_values(p[tested == 1.0])
        change = tested * sums.change * model._scale
        columns |= {"change": change, "difference": tested * sums.difference, "p": p, "q": q}
    if area is not None:
        columns["auc"] = area
    columns |= {"inclusion": model.inclusion_probability_, "selected": model._selected()}
    summary = model._summary()
    mean, std = summary.weights * model._scale, summary.weight_std * model._scale
    ends = [""] if len(mean) == 1 else [f":{label}" for label in model.classes_]
    for end, effect, spread in zip(ends, mean, std, strict=True):
        columns |= {
            f"effect{end}": effect,
            f"effect_lower{end}": effect - INTERVAL * spread,
            f"effect_upper{end}": effect + INTERVAL * spread,
        }
    if panel is not None:
        columns["panel"] = np.isin(np.arange(model.n_features_in_), panel)
    names = getattr(model, "feature_names_in_", range(model.n_features_in_))
    return pd.DataFrame(columns, index=pd.Index(names, name="feature"))


def _looked_at(
    model: Any, X: Any, y: ArrayLike | None, sample_weight: ArrayLike | None, groups: ArrayLike | None
) -> tuple[ClassSums, Array]:
    """The tests of single columns, from the table itself."""
    if y is None:
        raise ValueError("feature_table(X, y) needs the labels of X as well.")
    reader = clone(model)  # reading leaves attributes behind
    operator, targets = training_data(reader, X, y)
    if operator.shape[1] != model.n_features_in_:
        raise ValueError(
            f"X has {operator.shape[1]} columns, and the model was fitted to {model.n_features_in_}."
        )
    classes, code = model._encoded(targets)
    if not np.array_equal(classes, model.classes_):
        raise ValueError(f"y has the classes {list(classes)}; the model knows {list(model.classes_)}.")
    group = None if groups is None else checked_groups(groups, targets)
    compared = None if stays_elsewhere(X) or group is not None else operator
    weights = sample_weights(targets, sample_weight, model.class_weight, classes, compared)
    standardized = Standardized.fit(operator, weights.counted)
    found = class_sums(standardized, code, weights.counted, classes.size, model._always_kept, group)
    return found, areas(operator, code, classes.size, weights.given)
