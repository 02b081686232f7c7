"""What properties are tried on: small tables of any make, and models that are fitted in milliseconds."""

from __future__ import annotations

import os
import warnings
from typing import Any, NamedTuple

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from foldless import EPBayesPointClassifier, GAMPClassifier, PrunedBayesClassifier, SMLRClassifier
from foldless.priors import Gaussian

LONG = int(os.environ.get("FOLDLESS_EXAMPLES", "0"))

# A convex problem with one solution, and three kinds of messages, iterated to the end: a default fit stops
# where a tenth of a per mille is left, which on another order of the same sums is another point.
SMLR = SMLRClassifier(rate=0.5, tol=1e-10)
GAMP = GAMPClassifier(Gaussian(0.5), tune=False, generative_weight=0.0, tol=1e-10, max_iter=2000)
EP = EPBayesPointClassifier("probit", tol=1e-10)
PRUNED = PrunedBayesClassifier(density=0.5, noise=0.2, tol=1e-10, max_iter=2000)


def property_of(quick: int = 5) -> Any:
    """So many examples in `make test`, and what FOLDLESS_EXAMPLES asks for in `make trust`."""
    return settings(
        max_examples=LONG or quick,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
    )


class Table(NamedTuple):
    X: np.ndarray
    y: np.ndarray
    rng: np.random.Generator  # for what a property does to it


@st.composite
def tables(draw: Any, n_classes: int = 2, fewest: int = 8) -> Table:
    """Of 8 to 20 samples and 1 to 12 columns, some of them of few values, skew, or nearly equal."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, p = draw(st.integers(fewest, 20)), draw(st.integers(1, 12))
    X = rng.standard_normal((n, p))
    match draw(st.sampled_from(["plain", "few values", "skew", "factor", "zeros"])):
        case "few values":
            X = np.round(X)
        case "skew":
            X = np.exp(X)
        case "factor":
            X += 2 * rng.standard_normal((n, 1))
        case "zeros":
            X *= rng.random((n, p)) < 0.4
    y = rng.permutation(np.arange(n) % n_classes)
    X[:, 0] += draw(st.floats(0, 3)) * y
    return Table(np.round(X * 1024) / 1024, y, rng)


def fitted(model: Any, X: Any, y: Any, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return clone(model).fit(X, y, **options)


def proba(model: Any, X: Any, y: Any, at: Any = None, **options: Any) -> np.ndarray:
    return np.asarray(fitted(model, X, y, **options).predict_proba(X if at is None else at))


def same(answers: Any, expected: Any, tolerance: float = 1e-6) -> None:
    assert_allclose(answers, expected, rtol=tolerance, atol=tolerance)
