"""What checks of estimators share: a small table, fits of it that are made once, and what may be needed."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any
from unittest import SkipTest

import numpy as np
import pandas as pd
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import get_tags
from sklearn.utils.validation import has_fit_parameter

from foldless.estimators._summary import STANDARDISED, summary_of

# Of the same sums in another order, where a fit stops at 1e-4 of its own scale.
SAME_RTOL, SAME_ATOL = 1e-5, 1e-7
N_SAMPLES, N_FEATURES = 32, 9
# As people write them: a tag, a formula of a spreadsheet, a line break, letters of two scripts, a blank.
TEXTS = np.array(["<i>healthy</i>", "größer"])
NAMES = ["<b>a</b>", "=1+1", "two\nlines", "größe", "遺伝子", " blank ", "it's", "100%", "b"]


def _table() -> tuple[np.ndarray, np.ndarray]:
    """Half of the entries are zero; two columns differ between the classes; nobody may write to it."""
    rng = np.random.default_rng(7)
    y = np.arange(N_SAMPLES) % 2
    X = rng.standard_normal((N_SAMPLES, N_FEATURES)) * (rng.random((N_SAMPLES, N_FEATURES)) < 0.6)
    X[:, :2] += 1.2 * (2 * y - 1)[:, np.newaxis]
    X = np.round(8 * X) / 8  # exact in single precision
    X.flags.writeable = y.flags.writeable = False
    return X, y


X, Y = _table()


def fit(estimator: Any, X: Any, y: Any, **options: Any) -> Any:
    return refit(clone(estimator), X, y, **options)


def refit(model: Any, X: Any, y: Any, **options: Any) -> Any:
    """The same object, fitted anew."""
    with warnings.catch_warnings():
        # A table this small may leave a fit unsettled, which is no matter of these checks.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X, y, **options)


_fits: dict[str, Any] = {}


def fitted(estimator: Any) -> Any:
    """The estimator on the table, once for all checks."""
    key = f"{type(estimator).__module__}.{estimator!r}"
    if key not in _fits:
        _fits[key] = fit(estimator, X, Y)
    return _fits[key]


def of_frame(estimator: Any) -> tuple[Any, pd.DataFrame]:
    """The estimator on the table with names, and labels that are no numbers, once as well; and the frame."""
    frame = pd.DataFrame(X, columns=NAMES, index=[f"row {i}" for i in range(N_SAMPLES)])
    key = f"frame of {type(estimator).__module__}.{estimator!r}"
    if key not in _fits:
        _fits[key] = fit(estimator, frame, TEXTS[Y])
    return copy.deepcopy(_fits[key]), frame


def answers(model: Any, X: Any) -> np.ndarray:
    """Probabilities, or scores where there are none."""
    return np.asarray(
        (model.predict_proba if hasattr(model, "predict_proba") else model.decision_function)(X)
    )


def same(answers: Any, expected: Any) -> None:
    assert_allclose(answers, expected, rtol=SAME_RTOL, atol=SAME_ATOL)


def needs(estimator: Any, *what: str) -> None:
    """Skip the check of an estimator that lacks one of these."""
    for each in what:
        skip_unless(NEEDS[each](estimator), f"has no {each}")


def skip_unless(holds: bool, reason: str) -> None:
    if not holds:
        raise SkipTest(reason)


NEEDS: dict[str, Callable[[Any], bool]] = {
    "weights of samples": lambda estimator: has_fit_parameter(estimator, "sample_weight"),
    "sparse tables": lambda estimator: get_tags(estimator).input_tags.sparse,
    "selection": lambda estimator: hasattr(estimator, "get_support"),
    "units of its own": lambda estimator: summary_of(fitted(estimator)).columns == STANDARDISED,
    "probabilities": lambda estimator: hasattr(estimator, "predict_proba"),
}


def refused(action: Callable[[], Any], *words: str) -> None:
    message = None
    try:
        action()
    except ValueError as error:
        message = str(error)
    assert message is not None, "nothing was refused"
    for word in words:
        assert word in message, f"{word!r} is not in the message: {message}"


def polars_or_skip() -> Any:
    try:
        import polars
    except ImportError:
        raise SkipTest("polars is not installed") from None
    return polars
