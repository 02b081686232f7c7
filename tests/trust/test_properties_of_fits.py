"""What holds for the fit of any table: order, units, names of labels, weights, storages, files."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy import sparse

import foldless
from foldless import SparseClassifier
from foldless.export.coefficients import write_coefficients
from foldless.problem import Outcome
from trust.properties import EP, GAMP, PRUNED, SMLR, Table, fitted, proba, property_of, same, tables

powers = st.integers(-300, 300)


def settled(model: Any, table: Table) -> Any:
    """A fit that came to its end: one that did not may be anywhere."""
    done = fitted(model, table.X, table.y)
    assume(done.outcome_ is Outcome.CONVERGED)
    return done


# ---------------------------------------------------------------- order


@property_of()
@given(tables())
def test_samples_in_another_order_smlr(table: Table) -> None:
    order = table.rng.permutation(table.y.size)
    same(proba(SMLR, table.X[order], table.y[order], table.X), proba(SMLR, table.X, table.y))


@property_of()
@given(tables())
def test_columns_in_another_order_smlr(table: Table) -> None:
    order = table.rng.permutation(table.X.shape[1])
    same(proba(SMLR, table.X[:, order], table.y), proba(SMLR, table.X, table.y))


@property_of()
@given(tables())
def test_samples_in_another_order_gamp(table: Table) -> None:
    before = settled(GAMP, table).predict_proba(table.X)
    order = table.rng.permutation(table.y.size)
    same(proba(GAMP, table.X[order], table.y[order], table.X), before)


@property_of()
@given(tables())
def test_columns_in_another_order_ep(table: Table) -> None:
    order = table.rng.permutation(table.X.shape[1])
    same(proba(EP, table.X[:, order], table.y), proba(EP, table.X, table.y))


# ---------------------------------------------------------------- units and shifts


@property_of()
@given(tables(), powers)
def test_any_power_of_two_is_a_unit_smlr(table: Table, power: int) -> None:
    same(proba(SMLR, table.X * 2.0**power, table.y), proba(SMLR, table.X, table.y))


@property_of()
@given(tables())
def test_a_unit_for_each_column_gamp(table: Table) -> None:
    before = settled(GAMP, table).predict_proba(table.X)
    factor = 2.0 ** table.rng.integers(-100, 100, table.X.shape[1])
    same(proba(GAMP, table.X * factor, table.y), before)


@property_of()
@given(tables())
def test_a_unit_for_each_column_ep(table: Table) -> None:
    factor = 2.0 ** table.rng.integers(-100, 100, table.X.shape[1])
    same(proba(EP, table.X * factor, table.y), proba(EP, table.X, table.y))


@property_of()
@given(tables(), st.integers(-(2**20), 2**20))
def test_shifts_smlr(table: Table, shift: int) -> None:
    same(proba(SMLR, table.X + shift, table.y), proba(SMLR, table.X, table.y), 1e-5)


# ---------------------------------------------------------------- labels


@property_of()
@given(tables(), st.lists(st.text(min_size=1, max_size=8), min_size=2, max_size=2, unique=True))
def test_labels_are_only_names(table: Table, names: list[str]) -> None:
    # NumPy drops NUL at the end of a text, whoever is asked.
    assume(len({name.rstrip("\0") for name in names}) == 2)
    labels = np.array(sorted(name.rstrip("\0") for name in names))
    model = fitted(SMLR, table.X, labels[table.y])
    assert model.classes_.tolist() == labels.tolist()
    assert_array_equal(model.predict_proba(table.X), proba(SMLR, table.X, table.y))


@property_of()
@given(tables())
def test_exchanged_classes_smlr(table: Table) -> None:
    same(proba(SMLR, table.X, 1 - table.y), proba(SMLR, table.X, table.y)[:, ::-1])


@property_of()
@given(tables())
def test_exchanged_classes_gamp(table: Table) -> None:
    before = settled(GAMP, table).predict_proba(table.X)
    same(proba(GAMP, table.X, 1 - table.y), before[:, ::-1])


@property_of()
@given(tables(n_classes=3, fewest=9))
def test_three_classes_in_another_order(table: Table) -> None:
    order = table.rng.permutation(3)
    same(proba(SMLR, table.X, order[table.y])[:, order], proba(SMLR, table.X, table.y), 1e-5)


# ---------------------------------------------------------------- weights


@property_of()
@given(tables())
def test_weights_are_repetitions_smlr(table: Table) -> None:
    times = table.rng.integers(1, 4, table.y.size)
    repeated = proba(SMLR, np.repeat(table.X, times, axis=0), np.repeat(table.y, times), table.X)
    same(proba(SMLR, table.X, table.y, sample_weight=times), repeated)


@property_of()
@given(tables())
def test_weights_are_repetitions_ep(table: Table) -> None:
    """Doubt about new scores is judged by left-out rows, and a row is left out whole, whatever its weight."""
    times = table.rng.integers(1, 4, table.y.size)
    repeated = fitted(EP, np.repeat(table.X, times, axis=0), np.repeat(table.y, times))
    weighted = fitted(EP, table.X, table.y, sample_weight=times)
    # With `tol` at rounding a fit may stall, which is told, and has no answer to compare.
    assume(repeated.outcome_ is weighted.outcome_ is Outcome.CONVERGED)
    same(weighted.decision_function(table.X), repeated.decision_function(table.X))
    same(weighted.log_evidence_, repeated.log_evidence_)


@property_of()
@given(tables(fewest=12))
def test_weight_zero_is_no_sample(table: Table) -> None:
    kept = np.arange(table.y.size) >= 3
    assume(np.unique(table.y[kept]).size == 2)
    spoiled = np.where(kept[:, np.newaxis], table.X, 1e4)
    same(
        proba(SMLR, spoiled, table.y, table.X, sample_weight=kept),
        proba(SMLR, table.X[kept], table.y[kept], table.X),
    )


# ---------------------------------------------------------------- more columns


@property_of()
@given(tables())
def test_a_column_of_zeros_smlr(table: Table) -> None:
    wider = np.column_stack([table.X, np.zeros(table.y.size)])
    same(proba(SMLR, wider, table.y), proba(SMLR, table.X, table.y))


@property_of()
@given(tables(), st.floats(-1e6, 1e6))
def test_a_constant_column_gamp(table: Table, value: float) -> None:
    before = settled(GAMP, table).predict_proba(table.X)
    wider = np.column_stack([np.full(table.y.size, value), table.X])
    same(proba(GAMP, wider, table.y), before)


@property_of()
@given(tables(), st.floats(-1e6, 1e6))
def test_a_constant_column_ep(table: Table, value: float) -> None:
    wider = np.column_stack([table.X, np.full(table.y.size, value)])
    same(proba(EP, wider, table.y), proba(EP, table.X, table.y))


@property_of()
@given(tables())
def test_a_column_twice_changes_no_prediction_of_the_lasso(table: Table) -> None:
    twice = np.column_stack([table.X, table.X[:, 0]])
    same(proba(SMLR, twice, table.y), proba(SMLR, table.X, table.y), 1e-4)


@property_of()
@given(tables())
def test_a_constant_column_is_never_selected(table: Table) -> None:
    wider = np.column_stack([table.X, np.ones(table.y.size)])
    for model in (SMLR, PRUNED):
        done = fitted(model, wider, table.y)
        assert done.coef_[0, -1] == 0
        assert not done.get_support()[-1]


# ---------------------------------------------------------------- storages and precision


@property_of()
@given(tables(), st.sampled_from(["csr", "csc"]), st.sampled_from(["int32", "int64"]))
def test_sparse_is_dense_smlr(table: Table, kind: str, index: str) -> None:
    stored = getattr(sparse, f"{kind}_array")(table.X)
    stored.indices, stored.indptr = stored.indices.astype(index), stored.indptr.astype(index)
    same(proba(SMLR, stored, table.y), proba(SMLR, table.X, table.y))


@property_of()
@given(tables(), st.sampled_from([sparse.csr_matrix, sparse.csc_array, np.asfortranarray]))
def test_every_storage_gamp(table: Table, stored: Any) -> None:
    before = settled(GAMP, table).predict_proba(table.X)
    same(proba(GAMP, stored(table.X), table.y), before)


@property_of()
@given(tables())
def test_frames_are_their_values(table: Table) -> None:
    frame = pd.DataFrame(table.X, columns=[f"column {j}" for j in range(table.X.shape[1])])
    same(proba(SMLR, frame, table.y), proba(SMLR, table.X, table.y))


@property_of()
@given(tables())
def test_single_precision_smlr(table: Table) -> None:
    single = table.X.astype(np.float32)
    answers = proba(SMLR, single, table.y)
    assert answers.dtype == np.float32
    same(answers, proba(SMLR, table.X, table.y), 2e-3)


# ---------------------------------------------------------------- ranges


@property_of()
@given(tables(), st.sampled_from([SMLR, GAMP, EP, PRUNED, SparseClassifier()]))
def test_probabilities_are_probabilities(table: Table, model: Any) -> None:
    done = fitted(model, table.X, table.y)
    for at in (table.X, 1e6 * table.X, np.zeros_like(table.X)):
        answers = done.predict_proba(at)
        assert np.all((answers >= 0) & (answers <= 1))
        same(answers.sum(axis=1), 1.0, 1e-9)
        assert_array_equal(done.predict(at), done.classes_[answers.argmax(axis=1)])


@property_of()
@given(tables(), st.sampled_from([GAMP, PRUNED, SparseClassifier()]))
def test_what_is_published_is_in_its_range(table: Table, model: Any) -> None:
    done = fitted(model, table.X, table.y)
    assert np.all((done.inclusion_probability_ >= 0) & (done.inclusion_probability_ <= 1))
    assert np.all(done.coef_std_ >= 0)
    assert np.all(np.isfinite(done.coef_))
    assert 0 <= done.loo_error_ <= 1
    assert done.loo_log_loss_ >= 0


# ---------------------------------------------------------------- once more


@property_of()
@given(tables(), st.sampled_from([SMLR, GAMP, EP, PRUNED]))
def test_a_second_fit_has_the_same_bits(table: Table, model: Any) -> None:
    first, second = fitted(model, table.X, table.y), fitted(model, table.X, table.y)
    assert_array_equal(first.coef_, second.coef_)
    assert_array_equal(first.predict_proba(table.X), second.predict_proba(table.X))


@property_of()
@given(tables())
def test_a_warm_start_ends_where_a_cold_one_does(table: Table) -> None:
    cold = settled(GAMP, table)
    warm = fitted(
        foldless.GAMPClassifier(**(GAMP.get_params(deep=False) | {"warm_start": True})), table.X, table.y
    )
    warm.fit(table.X, table.y)
    same(warm.predict_proba(table.X), cold.predict_proba(table.X), 1e-5)


class Ended(Exception):
    """Of a fit, by the test."""


@property_of(3)
@given(tables(), st.integers(1, 12))
def test_resumed_is_uninterrupted(table: Table, after: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fit.journal"
        whole = fitted(SparseClassifier(), table.X, table.y)
        broken = SparseClassifier(checkpoint=path)
        count = iter(range(after))

        def end(iteration: int, line: Any) -> None:
            if next(count, None) is None:
                raise Ended

        broken._on_iteration = end
        try:
            broken.fit(table.X, table.y)
        except Ended:
            assert path.exists()
        except Warning:
            pass
        resumed = fitted(SparseClassifier(checkpoint=path), table.X, table.y)
        assert_array_equal(resumed.coef_, whole.coef_)
        assert_array_equal(resumed.loo_proba_, whole.loo_proba_)


@property_of()
@given(tables(), st.sampled_from([SMLR, GAMP, EP, PRUNED]))
def test_a_sample_is_predicted_by_itself(table: Table, model: Any) -> None:
    done = fitted(model, table.X, table.y)
    single = np.concatenate([done.predict_proba(row[np.newaxis]) for row in table.X])
    same(single, done.predict_proba(table.X), 1e-9)


# ---------------------------------------------------------------- files


def loaded(model: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        return foldless.load(model.save(Path(folder) / "model"))


@property_of()
@given(tables(), st.sampled_from([SMLR, GAMP, EP, PRUNED]))
def test_a_loaded_model_predicts_the_same_bits(table: Table, model: Any) -> None:
    done = fitted(model, table.X, table.y)
    assert_array_equal(loaded(done).predict_proba(table.X), done.predict_proba(table.X), strict=True)


@property_of()
@given(tables(), st.integers(0, 2**40), st.integers(1, 255))
def test_a_changed_byte_of_a_model_is_refused(table: Table, place: int, change: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = fitted(SMLR, table.X, table.y).save(Path(folder) / "model")
        content = bytearray(path.read_bytes())
        content[place % len(content)] ^= change
        path.write_bytes(content)
        with pytest.raises(ValueError, match=str(path)):
            foldless.load(path)


@property_of()
@given(tables(), st.integers(0, 2**40))
def test_a_shortened_model_is_refused(table: Table, place: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = fitted(SMLR, table.X, table.y).save(Path(folder) / "model")
        content = path.read_bytes()
        path.write_bytes(content[: place % len(content)])
        with pytest.raises(ValueError, match=str(path)):
            foldless.load(path)


@property_of()
@given(tables())
def test_exported_coefficients_are_the_decision(table: Table) -> None:
    model = fitted(SMLR, table.X, table.y)
    with tempfile.TemporaryDirectory() as folder:
        path = write_coefficients(model, Path(folder) / "weights.tsv")
        rows = [line.split("\t") for line in path.read_text().splitlines() if not line.startswith("#")][1:]
    weights = {row[0]: float(row[-1]) for row in rows}
    intercept = weights.pop(next(name for name in weights if "intercept" in name))
    score = table.X @ np.array(list(weights.values())) + intercept
    same(score, model.decision_function(table.X), 1e-9)


@property_of(2)
@given(tables())
def test_onnx_predicts_the_same(table: Table) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    from foldless.export.onnx import to_onnx

    model = fitted(SMLR, table.X, table.y)
    session = onnxruntime.InferenceSession(to_onnx(model).SerializeToString())
    # In single precision, as ONNX has it.
    answers = session.run(None, {session.get_inputs()[0].name: table.X})
    same(answers[1], model.predict_proba(table.X), 1e-6)


# ---------------------------------------------------------------- names


column_names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)


@property_of()
@given(tables(), st.data())
def test_names_of_columns_come_back_from_a_file(table: Table, data: st.DataObject) -> None:
    p = table.X.shape[1]
    names = data.draw(st.lists(column_names, min_size=p, max_size=p, unique=True))
    model = fitted(SMLR, pd.DataFrame(table.X, columns=names), table.y)
    assert model.feature_names_in_.tolist() == names
    assert loaded(model).feature_names_in_.tolist() == names


@property_of()
@given(tables(), st.data())
def test_no_name_becomes_markup(table: Table, data: st.DataObject) -> None:
    p = table.X.shape[1]
    inner = data.draw(st.lists(column_names, min_size=p, max_size=p, unique=True))
    names = [f"<img src=x>{name}" for name in inner]
    assert "<img src=x>" not in fitted(GAMP, pd.DataFrame(table.X, columns=names), table.y)._repr_html_()
