"""Class frequencies: the model without features, so that an average can turn out to be nothing but that."""

from __future__ import annotations

import numpy as np

from foldless.channels import Logistic, Multinomial
from foldless.tuning.models.base import Model, Scores, Weights
from foldless.tuning.table import Table


def class_frequencies(table: Table) -> Model:
    count = table.class_weight
    left = count - table.left_out.taken(table.indicator)
    # Laplace's rule of succession: a class without samples left is improbable, not impossible.
    whole, of_samples = np.log(count + 1.0)[np.newaxis], np.log(left + 1.0)
    if table.n_classes == 2:
        whole, of_samples = np.diff(whole, axis=1), np.diff(of_samples, axis=1)
    nothing = np.zeros((table.layout.n_features, table.n_scores))
    weights = Weights(nothing, nothing, whole[0], np.zeros(table.n_scores))
    channel = Logistic() if table.n_classes == 2 else Multinomial(table.n_classes)
    return Model("frequencies", "class frequencies", channel, Scores(of_samples, None), lambda: weights)
