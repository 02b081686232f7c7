"""What every estimator owes its users beyond scikit-learn's checks: names, storages, units, weights, files.

Each check is a function of an estimator that is not fitted. One that does not apply (weights of samples for
an estimator that takes none) raises `unittest.SkipTest`, as scikit-learn's own do.
"""

from __future__ import annotations

import contextlib
import copy
import io
import tempfile
import warnings
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest import SkipTest

import numpy as np
import pandas as pd
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.utils import get_tags
from sklearn.utils.validation import has_fit_parameter

from foldless.estimators import load
from foldless.estimators._summary import STANDARDISED, in_lines, summary_of
from foldless.problem import Outcome

Check = Callable[[Any], None]
CHECKS: list[Check] = []

# Of the same sums in another order, where a fit stops at 1e-4 of its own scale.
SAME_RTOL, SAME_ATOL = 1e-5, 1e-7
N_SAMPLES, N_FEATURES = 32, 9
# As people write them: a tag, a formula of a spreadsheet, a line break, letters of two scripts, a blank.
TEXTS = np.array(["<i>healthy</i>", "größer"])
NAMES = ["<b>a</b>", "=1+1", "two\nlines", "größe", "遺伝子", " blank ", "it's", "100%", "b"]


def check(function: Check) -> Check:
    CHECKS.append(function)
    return function


def estimator_checks(estimator: Any) -> Iterator[tuple[Any, Check]]:
    """The checks of an estimator, for `pytest.mark.parametrize`."""
    for function in CHECKS:
        yield estimator, function


def check_estimator(estimator: Any) -> list[str]:
    """Run every check; the names of those that do not apply. The first that fails raises AssertionError."""
    skipped = []
    for function in CHECKS:
        try:
            function(estimator)
        except SkipTest:
            skipped.append(function.__name__)
    return skipped


# ---------------------------------------------------------------- what checks share


@cache
def _table() -> tuple[np.ndarray, np.ndarray]:
    """Half of the entries are zero; two columns differ between the classes; nobody may write to it."""
    rng = np.random.default_rng(7)
    y = np.arange(N_SAMPLES) % 2
    X = rng.standard_normal((N_SAMPLES, N_FEATURES)) * (rng.random((N_SAMPLES, N_FEATURES)) < 0.6)
    X[:, :2] += 1.2 * (2 * y - 1)[:, np.newaxis]
    X = np.round(8 * X) / 8  # exact in single precision
    X.flags.writeable = y.flags.writeable = False
    return X, y


def _fit(estimator: Any, X: Any, y: Any, **options: Any) -> Any:
    with warnings.catch_warnings():
        # A table this small may leave a fit unsettled, which is no matter of these checks.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return clone(estimator).fit(X, y, **options)


_fits: dict[str, Any] = {}


def _fitted(estimator: Any) -> Any:
    """The estimator on the table, once for all checks."""
    key = f"{type(estimator).__module__}.{estimator!r}"
    if key not in _fits:
        _fits[key] = _fit(estimator, *_table())
    return _fits[key]


def _of_frame(estimator: Any) -> tuple[Any, pd.DataFrame]:
    """The estimator on the table with names, and labels that are no numbers, once as well; and the frame."""
    X, y = _table()
    frame = pd.DataFrame(X, columns=NAMES, index=[f"row {i}" for i in range(N_SAMPLES)])
    key = f"frame of {type(estimator).__module__}.{estimator!r}"
    if key not in _fits:
        _fits[key] = _fit(estimator, frame, TEXTS[y])
    return copy.deepcopy(_fits[key]), frame


def _answers(model: Any, X: Any) -> np.ndarray:
    """Probabilities, or scores where there are none."""
    return np.asarray(
        (model.predict_proba if hasattr(model, "predict_proba") else model.decision_function)(X)
    )


def _same(answers: Any, expected: Any) -> None:
    assert_allclose(answers, expected, rtol=SAME_RTOL, atol=SAME_ATOL)


def _needs(holds: bool, what: str) -> None:
    if not holds:
        raise SkipTest(what)


def _needs_weights(estimator: Any) -> None:
    _needs(has_fit_parameter(estimator, "sample_weight"), "takes no weights of samples")


def _needs_sparse(estimator: Any) -> None:
    _needs(get_tags(estimator).input_tags.sparse, "takes no sparse tables")


def _needs_selection(estimator: Any) -> None:
    _needs(hasattr(estimator, "get_support"), "selects no features")


def _needs_units_of_its_own(estimator: Any) -> None:
    _needs(summary_of(_fitted(estimator)).columns == STANDARDISED, "uses columns as they are")


def _needs_probabilities(estimator: Any) -> None:
    _needs(hasattr(estimator, "predict_proba"), "has no probabilities")


def _refused(action: Callable[[], Any], *words: str) -> None:
    message = None
    try:
        action()
    except ValueError as error:
        message = str(error)
    assert message is not None, "nothing was refused"
    for word in words:
        assert word in message, f"{word!r} is not in the message: {message}"


# ---------------------------------------------------------------- names


@check
def check_names_are_those_of_the_frame(estimator: Any) -> None:
    model, frame = _of_frame(estimator)
    assert model.feature_names_in_.tolist() == NAMES
    assert_array_equal(_answers(model, frame), _answers(_fitted(estimator), _table()[0]))


@check
def check_names_of_polars_are_the_same(estimator: Any) -> None:
    polars = _polars()
    X, y = _table()
    frame = polars.DataFrame(X, schema=NAMES)
    model = _fit(estimator, frame, y)
    assert model.feature_names_in_.tolist() == NAMES
    _same(_answers(model, frame), _answers(_fitted(estimator), X))


@check
def check_other_names_are_refused(estimator: Any) -> None:
    model, frame = _of_frame(estimator)
    _refused(lambda: model.predict(frame.rename(columns={"b": "other"})), "feature names", "other")
    _refused(lambda: model.predict(frame[NAMES[::-1]]), "feature names", "order")


@check
def check_a_name_twice_is_refused(estimator: Any) -> None:
    X, y = _table()
    twice = pd.DataFrame(X, columns=[*NAMES[:-1], NAMES[0]])
    _refused(lambda: _fit(estimator, twice, y), "2 columns called", NAMES[0])


@check
def check_names_are_forgotten_with_the_next_array(estimator: Any) -> None:
    model, _ = _of_frame(estimator)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(*_table())
    assert not hasattr(model, "feature_names_in_")


@check
def check_names_of_what_is_selected(estimator: Any) -> None:
    _needs_selection(estimator)
    model, _ = _of_frame(estimator)
    chosen = np.asarray(NAMES, dtype=object)[model.get_support()].tolist()
    assert model.get_feature_names_out().tolist() == chosen
    assert model.get_support().any(), (
        "of two plain differences none was found, so there is nothing to compare"
    )


# ---------------------------------------------------------------- set_output


def _polars() -> Any:
    try:
        import polars
    except ImportError:
        raise SkipTest("polars is not installed") from None
    return polars


def _selection_of_a_frame(estimator: Any) -> tuple[Any, pd.DataFrame, list[str]]:
    _needs_selection(estimator)
    model, frame = _of_frame(estimator)
    return model, frame, model.get_feature_names_out().tolist()


@check
def check_output_in_pandas(estimator: Any) -> None:
    model, frame, chosen = _selection_of_a_frame(estimator)
    shown = model.set_output(transform="pandas").transform(frame)
    pd.testing.assert_frame_equal(shown, frame[chosen])


@check
def check_output_in_polars(estimator: Any) -> None:
    polars = _polars()
    model, frame, chosen = _selection_of_a_frame(estimator)
    shown = model.set_output(transform="polars").transform(frame)
    assert isinstance(shown, polars.DataFrame)
    assert shown.columns == chosen
    assert_array_equal(shown.to_numpy(), frame[chosen].to_numpy())


@check
def check_output_in_arrays(estimator: Any) -> None:
    model, frame, chosen = _selection_of_a_frame(estimator)
    assert_array_equal(model.set_output(transform="default").transform(frame), frame[chosen].to_numpy())


@check
def check_sparse_tables_stay_sparse(estimator: Any) -> None:
    _needs_selection(estimator)
    _needs_sparse(estimator)
    X, _ = _table()
    model = _fitted(estimator)
    shown = model.transform(sparse.csr_array(X))
    assert sparse.issparse(shown)
    assert_array_equal(shown.toarray(), X[:, model.get_support()])


# ---------------------------------------------------------------- labels


def _renamed(estimator: Any, labels: np.ndarray) -> None:
    """Labels in the same order: the same model under other names."""
    X, y = _table()
    model, before = _fit(estimator, X, labels[y]), _fitted(estimator)
    assert_array_equal(model.classes_, labels, strict=True)
    assert_array_equal(model.predict(X), labels[before.classes_.searchsorted(before.predict(X))], strict=True)
    assert_array_equal(_answers(model, X), _answers(before, X))


@check
def check_labels_that_are_texts(estimator: Any) -> None:
    X, _ = _table()
    model, frame = _of_frame(estimator)
    before = _fitted(estimator)
    assert_array_equal(model.classes_, TEXTS, strict=True)
    assert_array_equal(model.predict(frame), TEXTS[before.predict(X)], strict=True)


@check
def check_labels_that_are_objects(estimator: Any) -> None:
    _renamed(estimator, np.array(["a", "b"], dtype=object))


@check
def check_labels_that_are_truth_values(estimator: Any) -> None:
    _renamed(estimator, np.array([False, True]))


@check
def check_labels_that_are_any_integers(estimator: Any) -> None:
    _renamed(estimator, np.array([-17, 40_000_000_000]))


@check
def check_labels_of_pandas(estimator: Any) -> None:
    X, y = _table()
    for labels in (pd.Series(y, index=range(100, 100 + y.size)), pd.Series(y).astype("category")):
        assert_array_equal(_answers(_fit(estimator, X, labels), X), _answers(_fitted(estimator), X))


@check
def check_one_class_is_refused(estimator: Any) -> None:
    X, y = _table()
    _refused(lambda: _fit(estimator, X, np.full(y.size, "only")), "one class")


# ---------------------------------------------------------------- storages


def _stored(estimator: Any, stored: Any) -> None:
    X, y = _table()
    model = _fit(estimator, stored, y)
    _same(_answers(model, stored), _answers(_fitted(estimator), X))


@check
def check_columns_one_after_another(estimator: Any) -> None:
    _stored(estimator, np.asfortranarray(_table()[0]))


@check
def check_every_second_column_of_a_larger_table(estimator: Any) -> None:
    X, _ = _table()
    _stored(estimator, np.repeat(X, 2, axis=1)[:, ::2])


@check
def check_csr(estimator: Any) -> None:
    _needs_sparse(estimator)
    _stored(estimator, sparse.csr_array(_table()[0]))


@check
def check_csc(estimator: Any) -> None:
    _needs_sparse(estimator)
    _stored(estimator, sparse.csc_matrix(_table()[0]))


@check
def check_wide_indices(estimator: Any) -> None:
    _needs_sparse(estimator)
    for kind in (sparse.csr_array, sparse.csc_array):
        stored = kind(_table()[0])
        stored.indices, stored.indptr = stored.indices.astype(np.int64), stored.indptr.astype(np.int64)
        _stored(estimator, stored)


@check
def check_sparse_and_dense_may_be_mixed(estimator: Any) -> None:
    _needs_sparse(estimator)
    X, _ = _table()
    model = _fitted(estimator)
    _same(_answers(model, sparse.csr_array(X)), _answers(model, X))


@check
def check_small_integers(estimator: Any) -> None:
    X, y = _table()
    counts = np.round(4 * X).astype(np.int8)
    expected = _fit(estimator, counts.astype(np.float64), y)
    _same(_answers(_fit(estimator, counts, y), counts), _answers(expected, counts))


@check
def check_single_precision(estimator: Any) -> None:
    X, y = _table()
    single = X.astype(np.float32)
    model, double = _fit(estimator, single, y), _fitted(estimator)
    assert_allclose(_answers(model, single), _answers(double, X), rtol=5e-3, atol=5e-3)
    if get_tags(estimator).transformer_tags is not None:
        for name in ("coef_", "coef_std_", "inclusion_probability_", "loo_proba_"):
            assert getattr(model, name, single).dtype == np.float32, name
        assert _answers(model, single).dtype == np.float32


@check
def check_read_only_memory(estimator: Any) -> None:
    X, y = _table()
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder) / "X.npy", X)
        mapped = np.load(Path(folder) / "X.npy", mmap_mode="r")
        assert_array_equal(_answers(_fit(estimator, mapped, y), mapped), _answers(_fitted(estimator), X))
        del mapped


@check
def check_what_is_given_is_left_alone(estimator: Any) -> None:
    X, y = (part.copy() for part in _table())
    options = {"sample_weight": np.ones(y.size)} if has_fit_parameter(estimator, "sample_weight") else {}
    before = clone(estimator)
    model = _fit(before, X, y, **options)
    model.predict(X)
    for given, kept in zip((X, y), _table(), strict=True):
        assert_array_equal(given, kept)
    assert repr(model) == repr(estimator), "a fit has changed the parameters"
    assert all(np.all(part == 1) for part in options.values())


# ---------------------------------------------------------------- units and order


@check
def check_units_do_not_matter(estimator: Any) -> None:
    _needs_units_of_its_own(estimator)
    X, y = _table()
    # Powers of two, so that no digit is lost on the way.
    factor = 2.0 ** np.array([300, -300, 0, 10, -10, 40, -40, 1, -1])
    model = _fit(estimator, X * factor, y)
    _same(_answers(model, X * factor), _answers(_fitted(estimator), X))


@check
def check_shifts_do_not_matter(estimator: Any) -> None:
    _needs_units_of_its_own(estimator)
    X, y = _table()
    shifted = X + np.array([0, 1, -1, 16, -64, 1024, 2.0**16, -(2.0**16), 0])
    _same(_answers(_fit(estimator, shifted, y), shifted), _answers(_fitted(estimator), X))


@check
def check_order_of_samples_does_not_matter(estimator: Any) -> None:
    X, y = _table()
    order = np.random.default_rng(0).permutation(y.size)
    _same(_answers(_fit(estimator, X[order], y[order]), X), _answers(_fitted(estimator), X))


@check
def check_order_of_columns_does_not_matter(estimator: Any) -> None:
    # One that is stopped after some sweeps depends on which column is visited first.
    _needs(getattr(_fitted(estimator), "outcome_", None) is not Outcome.EARLY, "stops early by design")
    X, y = _table()
    order = np.random.default_rng(1).permutation(N_FEATURES)
    model = _fit(estimator, X[:, order], y)
    _same(_answers(model, X[:, order]), _answers(_fitted(estimator), X))


@check
def check_the_same_data_give_the_same_bits(estimator: Any) -> None:
    X, y = _table()
    assert_array_equal(_answers(_fit(estimator, X, y), X), _answers(_fitted(estimator), X))


@check
def check_a_second_fit_forgets_the_first(estimator: Any) -> None:
    X, y = _table()
    model = _fit(estimator, X[::-1, :5] ** 2, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, y)
    assert_array_equal(_answers(model, X), _answers(_fitted(estimator), X))


# ---------------------------------------------------------------- columns that say nothing


@check
def check_a_constant_column_has_no_weight(estimator: Any) -> None:
    _needs_units_of_its_own(estimator)
    X, y = _table()
    wider = np.column_stack([X, np.full(y.size, 3.25)])
    model = _fit(estimator, wider, y)
    assert summary_of(model).weights[:, -1].tolist() == [0.0] * len(summary_of(model).weights)
    assert np.all(np.isfinite(_answers(model, wider)))


@check
def check_equal_columns_are_treated_alike(estimator: Any) -> None:
    X, y = _table()
    twins = np.column_stack([X, X[:, :2]])
    model = _fit(estimator, twins, y)
    assert np.all(np.isfinite(_answers(model, twins)))
    if hasattr(model, "inclusion_probability_"):
        probability = model.inclusion_probability_
        assert_allclose(probability[:2], probability[-2:], rtol=1e-4, atol=1e-6)


# ---------------------------------------------------------------- weights of samples


@check
def check_weight_two_is_a_row_twice(estimator: Any) -> None:
    _needs_weights(estimator)
    X, y = _table()
    times = np.random.default_rng(2).integers(1, 3, y.size)
    weighted = _fit(estimator, X, y, sample_weight=times)
    repeated = _fit(estimator, np.repeat(X, times, axis=0), np.repeat(y, times))
    _same(_answers(weighted, X), _answers(repeated, X))


@check
def check_weight_zero_is_no_row(estimator: Any) -> None:
    _needs_weights(estimator)
    X, y = _table()
    kept = np.arange(y.size) >= 4
    weighted = _fit(estimator, np.where(kept[:, np.newaxis], X, 1e3), y, sample_weight=kept)
    _same(_answers(weighted, X), _answers(_fit(estimator, X[kept], y[kept]), X))


@check
def check_absurd_weights_are_refused(estimator: Any) -> None:
    _needs_weights(estimator)
    X, y = _table()
    for weight in (np.full(y.size, 1e30), np.full(y.size, 1e-30), -np.ones(y.size), np.full(y.size, np.nan)):
        _refused(partial(_fit, estimator, X, y, sample_weight=weight), "weight")


@check
def check_weights_are_routed(estimator: Any) -> None:
    _needs_weights(estimator)
    X, y = _table()
    weight = np.where(np.arange(y.size) < 16, 1.0, 2.0)
    with sklearn.config_context(enable_metadata_routing=True), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        asking = clone(estimator).set_fit_request(sample_weight=True)
        in_pipeline = make_pipeline(asking).fit(X, y, sample_weight=weight)
    assert_array_equal(_answers(in_pipeline, X), _answers(_fit(estimator, X, y, sample_weight=weight), X))


# ---------------------------------------------------------------- predictions


@check
def check_probabilities_add_up(estimator: Any) -> None:
    _needs_probabilities(estimator)
    X, _ = _table()
    model = _fitted(estimator)
    for table in (X, 1e3 * X, -1e3 * X, np.zeros_like(X)):
        proba = model.predict_proba(table)
        assert np.all((proba >= 0) & (proba <= 1))
        assert_allclose(proba.sum(axis=1), 1.0, atol=1e-9)
        assert_array_equal(model.predict(table), model.classes_[proba.argmax(axis=1)])


@check
def check_logarithms_of_probabilities(estimator: Any) -> None:
    _needs_probabilities(estimator)
    X, _ = _table()
    model = _fitted(estimator)
    if hasattr(model, "predict_log_proba"):
        assert_allclose(np.exp(model.predict_log_proba(X)), model.predict_proba(X), rtol=1e-9, atol=1e-15)


@check
def check_samples_are_predicted_each_by_itself(estimator: Any) -> None:
    X, _ = _table()
    model = _fitted(estimator)
    single = np.concatenate([_answers(model, row[np.newaxis]) for row in X])
    assert_allclose(single, _answers(model, X), rtol=1e-9, atol=1e-12)


@check
def check_published_numbers_are_in_their_ranges(estimator: Any) -> None:
    found = vars(_fitted(estimator))
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


@check
def check_what_is_not_finite_is_named(estimator: Any) -> None:
    X, y = _table()
    for value, word in ((np.nan, "NaN"), (np.inf, "infinity")):
        spoiled = X.copy()
        spoiled[5, 3] = value
        _refused(partial(_fit, estimator, spoiled, y), word, "row 5", "column 3")
        frame = pd.DataFrame(spoiled, columns=NAMES)
        _refused(partial(_fit, estimator, frame, y), word, repr(NAMES[3]))
        _refused(partial(_fitted(estimator).predict, spoiled), word, "column 3")


@check
def check_another_width_is_refused(estimator: Any) -> None:
    X, _ = _table()
    _refused(lambda: _fitted(estimator).predict(X[:, :4]), "4 features", str(N_FEATURES))


@check
def check_a_fit_that_fails_leaves_the_last_one(estimator: Any) -> None:
    X, y = _table()
    model = _fit(estimator, X, y)
    _refused(lambda: model.fit(X, np.zeros(y.size)), "one class")
    assert_array_equal(_answers(model, X), _answers(_fitted(estimator), X))


@check
def check_a_clone_is_not_fitted(estimator: Any) -> None:
    model: Any = clone(_fitted(estimator))
    for action in (partial(model.predict, _table()[0]), partial(model.save, "never written")):
        try:
            action()
        except NotFittedError:
            continue
        raise AssertionError("what is not fitted has answered")


# ---------------------------------------------------------------- what is printed, shown and saved


@check
def check_nothing_is_printed_unless_asked_for(estimator: Any) -> None:
    X, y = _table()
    spoken, complained = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(spoken), contextlib.redirect_stderr(complained):
        _fit(estimator, X, y).predict(X)
    assert spoken.getvalue() + complained.getvalue() == ""


@check
def check_progress_is_printed_if_asked_for(estimator: Any) -> None:
    _needs("verbose" in estimator.get_params(), "has nothing to print")
    spoken = io.StringIO()
    with contextlib.redirect_stdout(spoken):
        model = _fit(clone(estimator).set_params(verbose=1), *_table())
    assert spoken.getvalue().strip()
    assert_array_equal(_answers(model, _table()[0]), _answers(_fitted(estimator), _table()[0]))


@check
def check_names_are_escaped_where_they_are_shown(estimator: Any) -> None:
    model, _ = _of_frame(estimator)
    shown = model._repr_html_()
    assert "<b>a</b>" not in shown
    assert TEXTS[0] not in shown
    assert in_lines(summary_of(model))


@check
def check_a_report_can_be_made(estimator: Any) -> None:
    from foldless.report import html

    model, _ = _of_frame(estimator)
    page = html(model)
    assert "<b>a</b>" not in page
    assert TEXTS[0] not in page


@check
def check_a_saved_model_is_the_model(estimator: Any) -> None:
    X, _ = _table()
    model = _fitted(estimator)
    with tempfile.TemporaryDirectory() as folder:
        path = model.save(Path(folder) / "model")
        loaded = load(path)
        assert type(loaded) is type(model)
        assert repr(loaded) == repr(model)
        assert_array_equal(_answers(loaded, X), _answers(model, X), strict=True)
        assert loaded.save(Path(folder) / "again").read_bytes() == path.read_bytes()


@check
def check_a_changed_file_is_refused(estimator: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = _fitted(estimator).save(Path(folder) / "model")
        whole = path.read_bytes()
        for at in np.linspace(0, len(whole) - 1, 7).astype(int):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            _refused(lambda: load(path))
        path.write_bytes(whole[: len(whole) // 2])
        _refused(lambda: load(path))


@check
def check_a_copy_is_the_model(estimator: Any) -> None:
    X, _ = _table()
    model = _fitted(estimator)
    assert_array_equal(_answers(copy.deepcopy(model), X), _answers(model, X), strict=True)
