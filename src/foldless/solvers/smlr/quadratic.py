"""A quadratic with an L1 penalty, minimised exactly by following signs."""

from __future__ import annotations

from scipy.linalg import LinAlgError

from foldless.beliefs import Array
from foldless.kernels.smlr import follow_signs

# With more columns than this the blocked factorisations of LAPACK are faster than compiled loops.
WIDEST_IN_LOOPS = 2000


def l1_quadratic(curvature: Array, linear: Array, rates: Array, start: Array) -> Array:
    """The minimum of ½ u'Hu - b'u + Σ rateᵢ |uᵢ| for a positive definite H; see `follow_signs`.

    By LAPACK, for any number of classes: with more than two, curvatures are nearly singular (labels say
    nothing of a shift of all classes), and plain loops round worse.
    """
    found, definite = follow_signs(curvature, linear, rates, start)
    if not definite:
        raise LinAlgError("the curvature is not positive definite")
    return found
