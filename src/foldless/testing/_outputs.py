"""Checks of what an estimator gives: predictions, errors, and what is printed, shown and saved."""

from __future__ import annotations

import contextlib
import copy
import io
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from foldless.estimators import load
from foldless.estimators._summary import in_lines, summary_of
from foldless.testing._shared import (
    N_FEATURES,
    NAMES,
    TEXTS,
    X,
    Y,
    answers,
    fit,
    fitted,
    needs,
    of_frame,
    refused,
    skip_unless,
)

# ---------------------------------------------------------------- predictions


def check_probabilities_add_up(estimator: Any) -> None:
    needs(estimator, "probabilities")
    model = fitted(estimator)
    for table in (X, 1e3 * X, -1e3 * X, np.zeros_like(X)):
        proba = model.predict_proba(table)
        assert np.all((proba >= 0) & (proba <= 1))
        assert_allclose(proba.sum(axis=1), 1.0, atol=1e-9)
        assert_array_equal(model.predict(table), model.classes_[proba.argmax(axis=1)])


def check_logarithms_of_probabilities(estimator: Any) -> None:
    needs(estimator, "probabilities")
    model = fitted(estimator)
    if hasattr(model, "predict_log_proba"):
        assert_allclose(np.exp(model.predict_log_proba(X)), model.predict_proba(X), rtol=1e-9, atol=1e-15)


def check_samples_are_predicted_each_by_itself(estimator: Any) -> None:
    model = fitted(estimator)
    single = np.concatenate([answers(model, row[np.newaxis]) for row in X])
    assert_allclose(single, answers(model, X), rtol=1e-9, atol=1e-12)


def check_published_numbers_are_in_their_ranges(estimator: Any) -> None:
    found = vars(fitted(estimator))
    for name, value in found.items():
        if isinstance(value, np.ndarray) and value.dtype.kind == "f" and name.endswith("_"):
            assert np.all(np.isfinite(value)), name
        if "probability" in name or "proba" in name:
            assert np.all((np.asarray(value) >= 0) & (np.asarray(value) <= 1)), name
        if name.endswith("_std_"):
            assert np.all(value >= 0), name
    assert 0 <= found.get("loo_error_", 0.0) <= 1
    assert found.get("loo_log_loss_", 0.0) >= 0


# ---------------------------------------------------------------- errors


def check_what_is_not_finite_is_named(estimator: Any) -> None:
    for value, word in ((np.nan, "NaN"), (np.inf, "infinity")):
        spoiled = X.copy()
        spoiled[5, 3] = value
        refused(partial(fit, estimator, spoiled, Y), word, "row 5", "column 3")
        frame = pd.DataFrame(spoiled, columns=NAMES)
        refused(partial(fit, estimator, frame, Y), word, repr(NAMES[3]))
        refused(partial(fitted(estimator).predict, spoiled), word, "column 3")


def check_another_width_is_refused(estimator: Any) -> None:
    refused(lambda: fitted(estimator).predict(X[:, :4]), "4 features", str(N_FEATURES))


def check_a_fit_that_fails_leaves_the_last_one(estimator: Any) -> None:
    model = fit(estimator, X, Y)
    refused(lambda: model.fit(X, np.zeros(Y.size)), "one class")
    assert_array_equal(answers(model, X), answers(fitted(estimator), X))


def check_a_clone_is_not_fitted(estimator: Any) -> None:
    model: Any = clone(fitted(estimator))
    for action in (partial(model.predict, X), partial(model.save, "never written")):
        try:
            action()
        except NotFittedError:
            continue
        raise AssertionError("what is not fitted has answered")


# ---------------------------------------------------------------- what is printed, shown and saved


def check_nothing_is_printed_unless_asked_for(estimator: Any) -> None:
    spoken, complained = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(spoken), contextlib.redirect_stderr(complained):
        fit(estimator, X, Y).predict(X)
    assert spoken.getvalue() + complained.getvalue() == ""


def check_progress_is_printed_if_asked_for(estimator: Any) -> None:
    skip_unless("verbose" in estimator.get_params(), "has nothing to print")
    spoken = io.StringIO()
    with contextlib.redirect_stdout(spoken):
        model = fit(clone(estimator).set_params(verbose=1), X, Y)
    assert spoken.getvalue().strip()
    assert_array_equal(answers(model, X), answers(fitted(estimator), X))


def check_names_are_escaped_where_they_are_shown(estimator: Any) -> None:
    model, _ = of_frame(estimator)
    shown = model._repr_html_()
    assert "<b>a</b>" not in shown
    assert TEXTS[0] not in shown
    assert in_lines(summary_of(model))


def check_a_report_can_be_made(estimator: Any) -> None:
    from foldless.report import html

    model, _ = of_frame(estimator)
    page = html(model)
    assert "<b>a</b>" not in page
    assert TEXTS[0] not in page


def check_a_saved_model_is_the_model(estimator: Any) -> None:
    model = fitted(estimator)
    with tempfile.TemporaryDirectory() as folder:
        path = model.save(Path(folder) / "model")
        loaded = load(path)
        assert type(loaded) is type(model)
        assert repr(loaded) == repr(model)
        assert_array_equal(answers(loaded, X), answers(model, X), strict=True)
        assert loaded.save(Path(folder) / "again").read_bytes() == path.read_bytes()


def check_a_changed_file_is_refused(estimator: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = fitted(estimator).save(Path(folder) / "model")
        whole = path.read_bytes()
        for at in np.linspace(0, len(whole) - 1, 7).astype(int):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            refused(lambda: load(path))
        path.write_bytes(whole[: len(whole) // 2])
        refused(lambda: load(path))


def check_a_copy_is_the_model(estimator: Any) -> None:
    model = fitted(estimator)
    assert_array_equal(answers(copy.deepcopy(model), X), answers(model, X), strict=True)
