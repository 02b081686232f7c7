"""One look at a table: numbers by explicit formulas, the same from every storage and in any order."""

from __future__ import annotations

import json
from dataclasses import asdict, astuple, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from foldless.io.rows import row_source
from foldless.operators import Journaled, Operator, RowBlocks, operator_from
from foldless.tuning.table import Facts, Layout, Table, _Spectrum, survey
from reference.dask_matrices import IN_TURN, ON_WORKERS, dask_operator

RARE_WORDS = 0.15


def counts(n_samples: int = 41, n_features: int = 60, seed: int = 0) -> np.ndarray:
    """Mostly zeros, three columns that never vary, a common factor, and one column with an offset."""
    rng = np.random.default_rng(seed)
    factor = np.exp(0.5 * rng.normal(size=(n_samples, 1)))
    X = rng.poisson(RARE_WORDS * factor, (n_samples, n_features)).astype(np.float64)
    X[:, :3] = [0.0, 2.0, -1.0]
    X[:, 5] = 1e3 + rng.normal(size=n_samples)
    return X


def labels_of(n_samples: int, n_classes: int, seed: int = 1) -> np.ndarray:
    codes = np.random.default_rng(seed).permutation(np.arange(n_samples) % n_classes)
    return np.where(codes == 1, 1.0, -1.0) if n_classes == 2 else codes.astype(np.float64)


class Surveyed(NamedTuple):
    facts: Facts
    nonzero_fraction: np.ndarray
    class_means: np.ndarray
    within_var: np.ndarray


def surveyed(
    X: Any,
    labels: np.ndarray,
    weight: np.ndarray | None = None,
    n_classes: int = 2,
    always_kept: tuple[int, ...] = (7,),
) -> Surveyed:
    weight = np.ones(len(labels)) if weight is None else weight
    codes = (labels > 0 if n_classes == 2 else labels).astype(np.intp)
    table = Table.of(operator_from(X), codes, weight, Layout(X.shape[1], always_kept), n_classes)
    return Surveyed(survey(table), table.nonzero_fraction, table.class_means, table.within_var)


def assert_same(a: Surveyed, b: Surveyed, rtol: float = 1e-10) -> None:
    # Where X is stored is a fact of its own; all others are about its values.
    facts = replace(a.facts, in_memory=b.facts.in_memory)
    assert_allclose(astuple(facts), astuple(b.facts), rtol=rtol)
    for name in ("nonzero_fraction", "class_means", "within_var"):
        assert_allclose(getattr(a, name), getattr(b, name), rtol=rtol, atol=1e-12)


def within_classes(
    X: np.ndarray, codes: np.ndarray, weight: np.ndarray, n_classes: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of columns at unit variance: means of classes, variances within, and about them rows by √weight."""
    share = weight / weight.sum()
    mean = share @ X
    sd = np.sqrt(share @ (X - mean) ** 2)
    Z = (X - mean) / np.where(sd < 1e-9, 1.0, sd)
    means = np.column_stack([np.average(Z[codes == c], 0, weight[codes == c]) for c in range(n_classes)])
    about = Z - means.T[codes]
    return means, share @ about**2, np.sqrt(weight)[:, None] * about


@pytest.mark.parametrize("n_classes", [2, 4])
def test_every_number_is_that_of_its_formula(n_classes: int) -> None:
    X, labels = counts(), labels_of(41, n_classes)
    codes = (labels > 0).astype(int) if n_classes == 2 else labels.astype(int)
    weight = np.random.default_rng(2).integers(1, 4, 41).astype(np.float64)
    found = surveyed(X, labels, weight, n_classes)
    means, within, rows = within_classes(X, codes, weight, n_classes)
    free = np.ones(60, dtype=bool)
    free[[0, 1, 2, 7]] = False
    fraction = weight / weight.sum() @ (X != 0)
    assert_allclose(found.nonzero_fraction, fraction, rtol=1e-14)
    assert_allclose(found.class_means, means, atol=1e-11)
    assert_allclose(found.within_var, within, atol=1e-11)
    facts = found.facts
    assert (facts.n_samples, facts.n_features, facts.n_classes, facts.n_free) == (41, 60, n_classes, 56)
    assert facts.total_weight == weight.sum()
    assert facts.nnz == round(41 * fraction.sum())
    assert facts.median_nonzero_fraction == pytest.approx(np.median(fraction[free]), rel=1e-14)
    rows = rows[:, free] / np.sqrt(within[free])
    freedom = weight.sum() - n_classes
    edge = weight.sum() / freedom * (1 + np.sqrt(freedom / 56)) ** 2
    largest = np.linalg.eigvalsh(rows @ rows.T / 56)[-1] / edge
    assert 0.9 * largest < facts.spectral_excess <= largest * (1 + 1e-12)
    assert json.loads(json.dumps(asdict(facts))) == asdict(facts)


def storages(X: np.ndarray, path: Path) -> dict[str, Operator]:
    np.save(path / "X.npy", X)
    csr = sparse.csr_array(X)
    block = 5 * X.shape[1] * 8
    found = {
        "F": operator_from(np.asfortranarray(X)),
        "CSR": operator_from(csr),
        "CSC": operator_from(sparse.csc_array(X)),
        "npy": RowBlocks(row_source(path / "X.npy"), block_bytes=block),
        "dense by Dask in turn": dask_operator(X, 9, IN_TURN),
        "dense on Dask workers": dask_operator(X, 9, ON_WORKERS),
        "CSR on Dask workers": dask_operator(csr, 9, ON_WORKERS),
    }
    zarr = pytest.importorskip("zarr")
    zarr.save(str(path / "X.zarr"), X)
    found["zarr"] = RowBlocks(row_source(path / "X.zarr"), block_bytes=block)
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    pandas.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])]).to_parquet(path / "X.parquet")
    found["parquet"] = RowBlocks(row_source(path / "X.parquet"), block_bytes=block)
    anndata = pytest.importorskip("anndata")
    anndata.AnnData(csr).write_h5ad(path / "X.h5ad")
    found["h5ad"] = RowBlocks(row_source(path / "X.h5ad"), block_bytes=block)
    return found


@pytest.mark.parametrize("n_classes", [2, 4])
def test_every_storage_gives_the_same_survey(n_classes: int, tmp_path: Path) -> None:
    X, labels = counts(), labels_of(41, n_classes)
    weights = np.ones(41), np.random.default_rng(3).gamma(1.0, size=41)
    here = [surveyed(X, labels, weight, n_classes) for weight in weights]
    for operator in storages(X, tmp_path).values():
        there = [surveyed(operator, labels, weight, n_classes) for weight in weights]
        for a, b in zip(there, here, strict=True):
            assert_same(a, b)
        # Plans compare these with thresholds, and they are counts: not even the last bit may differ.
        assert_array_equal(there[0].nonzero_fraction, here[0].nonzero_fraction)
        assert there[0].facts.nnz == np.count_nonzero(X)


def test_neither_the_order_of_samples_nor_that_of_columns_matters() -> None:
    X, labels = counts(), labels_of(41, 3)
    whole = surveyed(X, labels, None, 3, ())
    rng = np.random.default_rng(4)
    rows, columns = rng.permutation(41), rng.permutation(60)
    shuffled = surveyed(X[rows][:, columns], labels[rows], None, 3, ())
    assert_allclose(astuple(shuffled.facts), astuple(whole.facts), rtol=1e-10)
    assert_allclose(shuffled.class_means, whole.class_means[columns], atol=1e-12)
    # Nor does it matter which class is which.
    renamed = surveyed(X, (labels + 1) % 3, None, 3, ())
    assert_allclose(astuple(renamed.facts), astuple(whole.facts), rtol=1e-10)


def test_weights_are_repeated_rows_and_rows_without_weight_do_not_count() -> None:
    X, labels = counts(), labels_of(41, 3)
    repeats = np.random.default_rng(5).integers(0, 5, 41)
    weighted = surveyed(X, labels, repeats.astype(np.float64), 3)
    repeated = surveyed(np.repeat(X, repeats, axis=0), np.repeat(labels, repeats), None, 3)
    assert weighted.facts.n_samples == np.count_nonzero(repeats)
    assert_allclose(astuple(weighted.facts)[2:5], astuple(repeated.facts)[2:5])
    assert weighted.facts.n_samples < X.shape[1] <= repeated.facts.n_samples
    for name in ("spectral_excess", "class_tails", "class_gap", "excess_beside"):
        assert getattr(weighted.facts, name) == pytest.approx(getattr(repeated.facts, name), rel=1e-10)
    assert_allclose(weighted.class_means, repeated.class_means, atol=1e-11)
    assert_allclose(weighted.within_var, repeated.within_var, atol=1e-11)
    assert_allclose(weighted.nonzero_fraction, repeated.nonzero_fraction, rtol=1e-14)
    kept = repeats > 0
    spoiled = X.copy()
    spoiled[~kept] = 1e6
    assert_same(
        surveyed(spoiled, labels, repeats.astype(np.float64), 3),
        surveyed(X[kept], labels[kept], repeats[kept].astype(np.float64), 3),
    )


def independent(shape: tuple[int, int], n_classes: int, difference: float) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    codes = np.arange(shape[0]) % n_classes
    means = difference * rng.normal(size=(n_classes, shape[1]))
    return rng.normal(size=shape) + means[codes], codes.astype(np.float64)


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("difference", [0.0, 1.0, 10.0])
@pytest.mark.parametrize("shape", [(60, 2000), (300, 3000), (400, 20)], ids=str)
def test_a_difference_between_classes_is_no_correlation(
    shape: tuple[int, int], difference: float, n_classes: int
) -> None:
    X, labels = independent(shape, n_classes, difference)
    excess = surveyed(X, labels, None, n_classes, ())
    assert 0.75 < excess.facts.spectral_excess < 1.1


def test_factors_and_neighbours_are_correlation_whatever_the_classes() -> None:
    rng = np.random.default_rng(1)
    noise, labels = independent((60, 2000), 2, 0.0)
    factors = rng.normal(size=(60, 10)) @ rng.normal(size=(10, 2000)) * np.sqrt(0.03)
    neighbours = noise.copy()
    for j in range(1, 2000):
        neighbours[:, j] = 0.9 * neighbours[:, j - 1] + np.sqrt(1 - 0.9**2) * noise[:, j]
    for X in (noise + factors, neighbours):
        means = rng.normal(size=(2, 2000))
        excess = [
            surveyed(A, labels, None, 2, ()).facts.spectral_excess for A in (X, X + means[labels.astype(int)])
        ]
        assert min(excess) > 1.25
        assert excess[1] == pytest.approx(excess[0], rel=0.1)


def test_rows_of_one_length_and_one_sum_are_no_blind_spot() -> None:
    labels = np.repeat([0.0, 1.0], 20)
    column = np.tile([1.0, -1.0], 20)
    column[[0, 2]], column[[21, 23]] = -1.0, 1.0
    X = np.column_stack([column, -column] * 20)
    found = surveyed(X, labels, None, 2, ())
    assert_allclose(found.within_var, 0.96)
    # All columns are one, and so all the variance is in one direction.
    edge = 40 / 38 * (1 + np.sqrt(38 / 40)) ** 2
    assert found.facts.spectral_excess == pytest.approx(40 / edge, rel=1e-12)


@pytest.mark.parametrize(
    ("X", "labels"),
    [
        (np.ones((6, 3)), np.array([0, 0, 0, 1, 1, 1.0])),
        (np.repeat([[0.0, 1.0], [1.0, 0.0]], 3, axis=0), np.array([0, 0, 0, 1, 1, 1.0])),
        (np.array([[0.0, 1.0], [1.0, 3.0]]), np.array([0.0, 1.0])),
    ],
    ids=["nothing varies", "nothing varies within classes", "one sample each"],
)
def test_where_there_is_nothing_to_see_nothing_is_seen(X: np.ndarray, labels: np.ndarray) -> None:
    found = surveyed(X, labels, None, 2, ())
    assert found.facts.spectral_excess == 0.0
    assert np.all(found.within_var <= 1e-12)


def test_a_class_without_weight_is_no_class() -> None:
    X, labels = counts(), labels_of(41, 3)
    weight = np.where(labels == 2, 0.0, 1.0)
    found = surveyed(X, labels, weight, 3)
    two = surveyed(X[labels < 2], labels[labels < 2], None, 2)
    assert found.facts.spectral_excess == pytest.approx(two.facts.spectral_excess, rel=1e-10)
    assert_allclose(found.class_means[:, :2], two.class_means, atol=1e-12)
    assert np.all(found.class_means[:, 2] == 0)


def test_a_survey_is_few_passes_and_no_copy() -> None:
    passes: list[str] = []

    class Counted(Journaled):
        def __getattribute__(self, name: str) -> Any:
            if name in ("sweep", "scores", "adjoint", "column_moments", "nonzero_weight", "score_variances"):
                passes.append(name)
            if name in ("dense_tile", "columns", "some_rows", "dense_rows", "dense_columns"):
                raise AssertionError("a copy of the data was asked for")
            return super().__getattribute__(name)

    class Nothing:
        was_interrupted, n_read, path = False, 0, Path("none")

        def read(self) -> None:
            return None

        def append(self, parts: Any) -> None:
            return None

    operator = Counted(operator_from(counts()), Nothing())  # type: ignore[arg-type]
    surveyed(operator, labels_of(41, 2))
    assert passes[:3] == ["column_moments", "nonzero_weight", "adjoint"]
    assert set(passes[3:]) == {"sweep", "scores"}
    assert passes.count("scores") == 1
    assert len(passes) <= 3 + (1 + 6) + (2 + 1) + (1 + 6)


def test_tails_are_mardia_s_kurtosis_and_the_gap_is_that_of_class_means() -> None:
    X, labels = np.random.default_rng(2).standard_normal((90, 6)) ** 3, labels_of(90, 3)
    weight = np.random.default_rng(3).integers(1, 4, 90).astype(np.float64)
    table = Table.of(operator_from(X), labels.astype(np.intp), weight, Layout(6, ()), 3)
    directions = np.random.default_rng(4).standard_normal((6, 2))
    share = weight / weight.sum()
    Z = (X - share @ X) / np.sqrt(share @ (X - share @ X) ** 2)
    scores = Z @ directions
    within = np.linalg.inv((scores.T * share) @ scores)
    squares = np.einsum("ms,st,mt->m", scores, within, scores)
    tails = (share @ squares**2 - 8.0) / np.sqrt(64.0 / weight.sum())
    centres = [np.average(scores[labels == c], axis=0, weights=weight[labels == c]) for c in range(3)]
    gaps = [weight[labels == c].sum() * m @ within @ m for c, m in enumerate(centres)]
    assert_allclose(_Spectrum(table).along(directions), [tails, np.sqrt(sum(gaps) / 4.0)], rtol=1e-10)
    # Along nothing there is nothing to see.
    assert _Spectrum(table).along(directions * [1.0, 0.0]) == (0.0, 0.0)
    assert _Spectrum(table).along(directions[:, :0]) == (0.0, 0.0)
