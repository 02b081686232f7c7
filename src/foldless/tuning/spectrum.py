"""Are the columns correlated? A cheap look at the largest eigenvalue, before a solver is chosen.

For independent columns of unit variance, the eigenvalues of X Xᵀ / N end at (1 + √(M/N))² [Marchenko and
Pastur 1967]. Common factors, neighbours and batches all push the largest beyond that edge, and it is there
that message passing with diagonal covariances fails. Power iteration from the labels, as a pattern of signs
over samples, finds it from below in a few sweeps, without XXᵀ: what it reports can be too small, never too
large, and it depends on neither the order of samples nor that of columns.
"""

from __future__ import annotations

import numpy as np

from foldless.beliefs import Array
from foldless.operators import Standardized

SWEEPS = 4


def spectral_excess(standardized: Standardized, labels: Array, sample_weight: Array) -> float:
    """The largest eigenvalue found over the edge for independent columns: above 1, they are not."""
    n_features = int(np.count_nonzero(~standardized.constant))
    root = np.sqrt(sample_weight)
    vector = root * (labels - float(sample_weight @ labels) / float(sample_weight.sum()))
    vector /= np.linalg.norm(vector)
    largest = 0.0
    for _ in range(SWEEPS):
        back = standardized.adjoint(root * vector)
        back[standardized.constant] = 0.0
        image = root * standardized.scores(back) / max(n_features, 1)
        largest = float(np.linalg.norm(image))
        if not largest > 0:
            return 0.0
        vector = image / largest
    edge = (1.0 + np.sqrt(float(sample_weight.sum()) / max(n_features, 1))) ** 2
    return largest / edge
