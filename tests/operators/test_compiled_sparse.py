"""Compiled sweeps of sparse matrices give what the explicit matrix gives, on any number of threads."""

from __future__ import annotations

import importlib.util
import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

import foldless.operators.dense as plain
import foldless.operators.sparse as compiled
from foldless import kernels
from foldless.operators import Dense, Sparse, Standardized, WithIntercept

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("numba") is None, reason="needs the extra `fast` (numba)"
)


@pytest.fixture
def small_parts(monkeypatch):
    """Matrices as small as those of tests take compiled loops, in several blocks of several parts."""
    monkeypatch.delenv("FOLDLESS_COMPILED", raising=False)
    kernels.compiled.cache_clear()
    monkeypatch.setattr(compiled, "LEAST_ENTRIES", 0)
    monkeypatch.setattr(compiled, "LEAST_ENTRIES_PER_PART", 30)
    monkeypatch.setattr(compiled, "LEAST_ENTRIES_PER_SUM", 1)
    monkeypatch.setattr(compiled, "BLOCK_ENTRIES", 250)
    yield
    kernels.compiled.cache_clear()


def stored(kind: str, dtype: str = "f8", index: str = "i4", seed: int = 0) -> sparse.csr_array:
    rng = np.random.default_rng(seed)
    A = rng.normal(0.5, 1.5, (90, 40)) * (rng.random((90, 40)) < 0.25)
    A[7], A[:, 3] = 0.0, 0.0
    X = {"csr": sparse.csr_array, "csc": sparse.csc_array}[kind](A.astype(dtype))
    X.indices, X.indptr = X.indices.astype(index), X.indptr.astype(index)
    return X


def swept(operator, weights, weight_var, center=None):
    """Scores, variances, slopes and curvatures, with a row step that depends on all that it gets."""
    n_rows = operator.shape[0]
    scores, score_var, visited = np.empty(n_rows), np.zeros(n_rows), []

    def row_step(rows, block_scores, block_var):
        visited.append(rows)
        scores[rows] = block_scores
        if block_var is None:
            return np.tanh(block_scores), None
        score_var[rows] = block_var
        return np.tanh(block_scores) + block_var, 1.0 / (1.0 + block_var)

    about = {} if center is None else {"center": center}
    sweep = operator.sweep(weights, weight_var, row_step, **about)
    assert [r.start for r in visited] == [0, *(r.stop for r in visited[:-1])]
    assert visited[-1].stop == n_rows
    curvatures = np.zeros(0) if sweep.curvatures is None else sweep.curvatures
    return scores, score_var, sweep.slopes, curvatures, len(visited)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("index", ["i4", "i8"])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("kind", ["csr", "csc"])
@pytest.mark.parametrize("squares", ["none", "raw", "centred"])
def test_a_sweep_is_that_of_the_explicit_matrix(kind, dtype, index, squares):
    X = stored(kind, dtype, index)
    A = X.toarray().astype(np.float64)
    rng = np.random.default_rng(1)
    w, v = rng.normal(size=40), rng.random(40)
    center = rng.normal(size=40) if squares == "centred" else None
    operator = Sparse(X)
    got = swept(operator, w, None if squares == "none" else v, center)
    assert operator._compiled is not None
    if dtype == "f4":  # weights come in the dtype of the products
        w = w.astype("f4").astype(float)
    assert_allclose(got[0], A @ w, rtol=1e-12, atol=1e-13)
    slopes = np.tanh(A @ w)
    if squares != "none":
        square = (A - (0.0 if center is None else center)) ** 2
        assert_allclose(got[1], square @ v, rtol=1e-12, atol=1e-12)
        slopes += square @ v
        assert_allclose(got[3], square.T @ (1.0 / (1.0 + square @ v)), rtol=1e-12, atol=1e-12)
    assert_allclose(got[2], A.T @ slopes, rtol=1e-11, atol=1e-12)
    assert got[4] == (1 if kind == "csc" else 4), "blocks"


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("kind", ["csr", "csc"])
def test_any_number_of_threads_gives_the_same_bits(kind, monkeypatch):
    rng = np.random.default_rng(1)
    w, v = rng.normal(size=40), rng.random(40)
    operator = Sparse(stored(kind))
    assert operator._compiled._n_parts == compiled.MOST_PARTS
    answers = []
    for threads in (1, 2, 3, 4):
        monkeypatch.setattr(kernels, "n_threads", lambda threads=threads: threads)
        answers.append(swept(operator, w, v))
    for answer in answers[1:]:
        for got, expected in zip(answer, answers[0], strict=True):
            assert_array_equal(got, expected)


@pytest.mark.usefixtures("small_parts")
def test_standardised_columns_and_an_intercept_are_served(monkeypatch):
    """As a fit assembles them; against NumPy, which the contracts hold to the explicit matrix."""
    rng = np.random.default_rng(2)
    X, w, v = stored("csr"), rng.normal(size=41), rng.random(41)
    fast_one = WithIntercept(Standardized.fit(Sparse(X)))
    compiled_answer = swept(fast_one, w, v)
    assert fast_one.operator.operator._compiled is not None
    monkeypatch.setattr(compiled, "LEAST_ENTRIES", 10**9)
    plain_answer = swept(WithIntercept(Standardized.fit(Sparse(X))), w, v)
    for got, expected in zip(compiled_answer[:4], plain_answer[:4], strict=True):
        assert_allclose(got, expected, rtol=1e-11, atol=1e-12)


@pytest.mark.usefixtures("small_parts")
def test_what_loops_cannot_do_is_done_in_numpy():
    """Several scores, a scale, a column without a zero, integers."""
    X = stored("csr")
    A = X.toarray()
    step = lambda rows, scores, score_var: (scores, score_var)  # noqa: E731
    w = np.random.default_rng(0).random((40, 2))
    assert_allclose(Sparse(X).sweep(w, None, step).slopes, A.T @ (A @ w), rtol=1e-12)
    scale = np.full(40, 2.0)
    got = Sparse(X).sweep(w[:, 0], w[:, 1], step, scale=scale).curvatures
    square = (A / 2) ** 2
    assert_allclose(got, square.T @ (square @ w[:, 1]), rtol=1e-12)
    A[:, 5] = 2.0 + np.arange(90)
    got = Sparse(sparse.csr_array(A)).sweep(w[:, 0], w[:, 1], step, center=scale).curvatures
    square = (A - 2.0) ** 2
    assert_allclose(got, square.T @ (square @ w[:, 1]), rtol=1e-12)
    whole = sparse.csr_array(np.round(A).astype(int))
    assert Sparse(whole)._compiled is None


@pytest.mark.usefixtures("small_parts")
def test_misuse_is_named_as_in_numpy():
    operator = Sparse(stored("csr"))
    with pytest.raises(ValueError, match=r"40 columns.*\(39,\)"):
        operator.sweep(np.ones(39), None, lambda rows, scores, score_var: (scores, None))
    with pytest.raises(TypeError, match="no curvatures"):
        operator.sweep(np.ones(40), np.ones(40), lambda rows, scores, score_var: (scores, None))


def test_nothing_of_the_size_of_x_is_made():
    """Standardised, swept with variances: no dense copy, no squares, no transpose."""
    X = sparse.random_array((3000, 2000), density=0.05, format="csr", rng=np.random.default_rng(0))
    operator = Standardized.fit(Sparse(X))
    w = np.ones(2000)

    def row_step(rows, scores, score_var):
        return scores, score_var

    operator.sweep(w, w, row_step)  # compiles
    tracemalloc.start()
    operator.sweep(w, w, row_step)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert operator.operator._compiled is not None
    assert peak < 0.5 * X.data.nbytes


def test_small_matrices_do_not_wait_for_numba():
    assert Sparse(stored("csr"))._compiled is None


@pytest.mark.parametrize(("n_means", "n_vars"), [(1, 1), (2, 2), (4, 3), (1, 5), (15, 5), (3, 0)])
def test_predictions_visit_once_for_several_weights(n_means, n_vars, small_parts, monkeypatch):
    """Sparse and dense rows, scores and variances of some weights each, about a centre."""
    monkeypatch.setattr(plain, "LEAST_ROWS_COMPILED", 1)
    rng = np.random.default_rng(5)
    weights, variances, center = rng.normal(size=(40, n_means)), rng.random((40, n_vars)), rng.random(40)
    for dtype, digits in (("f8", 1e-12), ("f4", 3e-5)):
        X = stored("csr", dtype)
        A = X.toarray()
        for operator in (Sparse(X), Dense(A), Dense(np.asfortranarray(A))):
            found = operator.scores_and_variances(weights, variances, center=center)
            assert_allclose(found[0], A @ weights, rtol=digits, atol=10 * digits)
            assert_allclose(found[1], (A - center) ** 2 @ variances, rtol=digits, atol=10 * digits)
