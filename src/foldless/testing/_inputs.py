"""Checks of what is given to an estimator: names, labels, storages, units, order and weights."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.utils import get_tags
from sklearn.utils.validation import has_fit_parameter

from foldless.estimators._summary import summary_of
from foldless.problem import Outcome
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
    polars_or_skip,
    refit,
    refused,
    same,
    skip_unless,
)

# ---------------------------------------------------------------- names


def check_names_are_those_of_the_frame(estimator: Any) -> None:
    model, frame = of_frame(estimator)
    assert model.feature_names_in_.tolist() == NAMES
    # From pandas 3 on frames store columns, which are summed in another order than rows.
    values = frame.to_numpy()
    assert_array_equal(answers(model, frame), answers(fit(estimator, values, Y), values))
    same(answers(model, frame), answers(fitted(estimator), X))


def check_names_of_polars_are_the_same(estimator: Any) -> None:
    polars = polars_or_skip()
    frame = polars.DataFrame(X, schema=NAMES)
    model = fit(estimator, frame, Y)
    assert model.feature_names_in_.tolist() == NAMES
    same(answers(model, frame), answers(fitted(estimator), X))


def check_other_names_are_refused(estimator: Any) -> None:
    model, frame = of_frame(estimator)
    refused(lambda: model.predict(frame.rename(columns={"b": "other"})), "feature names", "other")
    refused(lambda: model.predict(frame[NAMES[::-1]]), "feature names", "order")


def check_a_name_twice_is_refused(estimator: Any) -> None:
    twice = pd.DataFrame(X, columns=[*NAMES[:-1], NAMES[0]])
    refused(lambda: fit(estimator, twice, Y), "2 columns called", NAMES[0])


def check_names_are_forgotten_with_the_next_array(estimator: Any) -> None:
    model, _ = of_frame(estimator)
    assert not hasattr(refit(model, X, Y), "feature_names_in_")


def check_names_of_what_is_selected(estimator: Any) -> None:
    needs(estimator, "selection")
    model, _ = of_frame(estimator)
    chosen = np.asarray(NAMES, dtype=object)[model.get_support()].tolist()
    assert model.get_feature_names_out().tolist() == chosen
    assert model.get_support().any(), (
        "of two plain differences none was found, so there is nothing to compare"
    )


# ---------------------------------------------------------------- set_output


def _selection_of_a_frame(estimator: Any) -> tuple[Any, pd.DataFrame, list[str]]:
    needs(estimator, "selection")
    model, frame = of_frame(estimator)
    return model, frame, model.get_feature_names_out().tolist()


def check_output_in_pandas(estimator: Any) -> None:
    model, frame, chosen = _selection_of_a_frame(estimator)
    shown = model.set_output(transform="pandas").transform(frame)
    pd.testing.assert_frame_equal(shown, frame[chosen])


def check_output_in_polars(estimator: Any) -> None:
    polars = polars_or_skip()
    model, frame, chosen = _selection_of_a_frame(estimator)
    shown = model.set_output(transform="polars").transform(frame)
    assert isinstance(shown, polars.DataFrame)
    assert shown.columns == chosen
    assert_array_equal(shown.to_numpy(), frame[chosen].to_numpy())


def check_output_in_arrays(estimator: Any) -> None:
    model, frame, chosen = _selection_of_a_frame(estimator)
    assert_array_equal(model.set_output(transform="default").transform(frame), frame[chosen].to_numpy())


def check_sparse_tables_stay_sparse(estimator: Any) -> None:
    needs(estimator, "selection", "sparse tables")
    model = fitted(estimator)
    shown = model.transform(sparse.csr_array(X))
    assert sparse.issparse(shown)
    assert_array_equal(shown.toarray(), X[:, model.get_support()])


# ---------------------------------------------------------------- labels


def _renamed(estimator: Any, labels: np.ndarray) -> None:
    """Labels in the same order: the same model under other names."""
    model, before = fit(estimator, X, labels[Y]), fitted(estimator)
    assert_array_equal(model.classes_, labels, strict=True)
    assert_array_equal(model.predict(X), labels[before.classes_.searchsorted(before.predict(X))], strict=True)
    assert_array_equal(answers(model, X), answers(before, X))


def check_labels_that_are_texts(estimator: Any) -> None:
    model, frame = of_frame(estimator)
    before = fitted(estimator)
    assert_array_equal(model.classes_, TEXTS, strict=True)
    assert_array_equal(model.predict(frame), TEXTS[before.predict(X)], strict=True)


def check_labels_that_are_objects(estimator: Any) -> None:
    _renamed(estimator, np.array(["a", "b"], dtype=object))


def check_labels_that_are_truth_values(estimator: Any) -> None:
    _renamed(estimator, np.array([False, True]))


def check_labels_that_are_any_integers(estimator: Any) -> None:
    _renamed(estimator, np.array([-17, 40_000_000_000]))


def check_labels_of_pandas(estimator: Any) -> None:
    for labels in (pd.Series(Y, index=range(100, 100 + Y.size)), pd.Series(Y).astype("category")):
        assert_array_equal(answers(fit(estimator, X, labels), X), answers(fitted(estimator), X))


def check_one_class_is_refused(estimator: Any) -> None:
    refused(lambda: fit(estimator, X, np.full(Y.size, "only")), "one class")


# ---------------------------------------------------------------- storages


def _stored(estimator: Any, stored: Any) -> None:
    model = fit(estimator, stored, Y)
    same(answers(model, stored), answers(fitted(estimator), X))


def check_columns_one_after_another(estimator: Any) -> None:
    _stored(estimator, np.asfortranarray(X))


def check_every_second_column_of_a_larger_table(estimator: Any) -> None:
    _stored(estimator, np.repeat(X, 2, axis=1)[:, ::2])


def check_csr(estimator: Any) -> None:
    needs(estimator, "sparse tables")
    _stored(estimator, sparse.csr_array(X))


def check_csc(estimator: Any) -> None:
    needs(estimator, "sparse tables")
    _stored(estimator, sparse.csc_matrix(X))


def check_wide_indices(estimator: Any) -> None:
    needs(estimator, "sparse tables")
    for kind in (sparse.csr_array, sparse.csc_array):
        stored = kind(X)
        stored.indices, stored.indptr = stored.indices.astype(np.int64), stored.indptr.astype(np.int64)
        _stored(estimator, stored)


def check_sparse_and_dense_may_be_mixed(estimator: Any) -> None:
    needs(estimator, "sparse tables")
    model = fitted(estimator)
    same(answers(model, sparse.csr_array(X)), answers(model, X))


def check_small_integers(estimator: Any) -> None:
    counts = np.round(4 * X).astype(np.int8)
    expected = fit(estimator, counts.astype(np.float64), Y)
    same(answers(fit(estimator, counts, Y), counts), answers(expected, counts))


def check_single_precision(estimator: Any) -> None:
    single = X.astype(np.float32)
    model, double = fit(estimator, single, Y), fitted(estimator)
    assert_allclose(answers(model, single), answers(double, X), rtol=5e-3, atol=5e-3)
    if get_tags(estimator).transformer_tags is not None:
        for name in ("coef_", "coef_std_", "inclusion_probability_", "loo_proba_"):
            assert getattr(model, name, single).dtype == np.float32, name
        assert answers(model, single).dtype == np.float32


def check_read_only_memory(estimator: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder) / "X.npy", X)
        mapped = np.load(Path(folder) / "X.npy", mmap_mode="r")
        assert_array_equal(answers(fit(estimator, mapped, Y), mapped), answers(fitted(estimator), X))
        del mapped


def check_what_is_given_is_left_alone(estimator: Any) -> None:
    table, labels = X.copy(), Y.copy()
    options = {"sample_weight": np.ones(Y.size)} if has_fit_parameter(estimator, "sample_weight") else {}
    model = fit(clone(estimator), table, labels, **options)
    model.predict(table)
    assert_array_equal(table, X)
    assert_array_equal(labels, Y)
    assert repr(model) == repr(estimator), "a fit has changed the parameters"
    assert all(np.all(part == 1) for part in options.values())


# ---------------------------------------------------------------- units and order


def check_units_do_not_matter(estimator: Any) -> None:
    needs(estimator, "units of its own")
    # Powers of two, so that no digit is lost on the way.
    factor = 2.0 ** np.array([300, -300, 0, 10, -10, 40, -40, 1, -1])
    model = fit(estimator, X * factor, Y)
    same(answers(model, X * factor), answers(fitted(estimator), X))


def check_shifts_do_not_matter(estimator: Any) -> None:
    needs(estimator, "units of its own")
    shifted = X + np.array([0, 1, -1, 16, -64, 1024, 2.0**16, -(2.0**16), 0])
    same(answers(fit(estimator, shifted, Y), shifted), answers(fitted(estimator), X))


def check_order_of_samples_does_not_matter(estimator: Any) -> None:
    order = np.random.default_rng(0).permutation(Y.size)
    same(answers(fit(estimator, X[order], Y[order]), X), answers(fitted(estimator), X))


def check_order_of_columns_does_not_matter(estimator: Any) -> None:
    # One that is stopped after some sweeps depends on which column is visited first.
    skip_unless(getattr(fitted(estimator), "outcome_", None) is not Outcome.EARLY, "stops early by design")
    order = np.random.default_rng(1).permutation(N_FEATURES)
    model = fit(estimator, X[:, order], Y)
    same(answers(model, X[:, order]), answers(fitted(estimator), X))


def check_the_same_data_give_the_same_bits(estimator: Any) -> None:
    assert_array_equal(answers(fit(estimator, X, Y), X), answers(fitted(estimator), X))


def check_a_second_fit_forgets_the_first(estimator: Any) -> None:
    model = fit(estimator, X[::-1, :5] ** 2, Y)
    assert_array_equal(answers(refit(model, X, Y), X), answers(fitted(estimator), X))


# ---------------------------------------------------------------- columns that say nothing


def check_a_constant_column_has_no_weight(estimator: Any) -> None:
    needs(estimator, "units of its own")
    wider = np.column_stack([X, np.full(Y.size, 3.25)])
    model = fit(estimator, wider, Y)
    assert summary_of(model).weights[:, -1].tolist() == [0.0] * len(summary_of(model).weights)
    assert np.all(np.isfinite(answers(model, wider)))


def check_equal_columns_are_treated_alike(estimator: Any) -> None:
    twins = np.column_stack([X, X[:, :2]])
    model = fit(estimator, twins, Y)
    assert np.all(np.isfinite(answers(model, twins)))
    if hasattr(model, "inclusion_probability_"):
        probability = model.inclusion_probability_
        assert_allclose(probability[:2], probability[-2:], rtol=1e-4, atol=1e-6)


# ---------------------------------------------------------------- weights of samples


def check_weight_two_is_a_row_twice(estimator: Any) -> None:
    needs(estimator, "weights of samples")
    times = np.random.default_rng(2).integers(1, 3, Y.size)
    weighted = fit(estimator, X, Y, sample_weight=times)
    repeated = fit(estimator, np.repeat(X, times, axis=0), np.repeat(Y, times))
    same(answers(weighted, X), answers(repeated, X))


def check_weight_zero_is_no_row(estimator: Any) -> None:
    needs(estimator, "weights of samples")
    kept = np.arange(Y.size) >= 4
    weighted = fit(estimator, np.where(kept[:, np.newaxis], X, 1e3), Y, sample_weight=kept)
    same(answers(weighted, X), answers(fit(estimator, X[kept], Y[kept]), X))


def check_absurd_weights_are_refused(estimator: Any) -> None:
    needs(estimator, "weights of samples")
    for weight in (np.full(Y.size, 1e30), np.full(Y.size, 1e-30), -np.ones(Y.size), np.full(Y.size, np.nan)):
        refused(partial(fit, estimator, X, Y, sample_weight=weight), "weight")


def check_weights_are_routed(estimator: Any) -> None:
    needs(estimator, "weights of samples")
    weight = np.where(np.arange(Y.size) < 16, 1.0, 2.0)
    with sklearn.config_context(enable_metadata_routing=True):
        asking = clone(estimator).set_fit_request(sample_weight=True)
        in_pipeline = refit(make_pipeline(asking), X, Y, sample_weight=weight)
    assert_array_equal(answers(in_pipeline, X), answers(fit(estimator, X, Y, sample_weight=weight), X))
