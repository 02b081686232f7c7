"""Answers from a journal: the same bits without a look at the data, and never those of another call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from foldless.io.journal import BadJournal, Journal, journal
from foldless.io.rows import row_source
from foldless.operators import Dense, Journaled, RowBlocks, Storage, WithIntercept

HEADER = {"X": "for tests"}
rng = np.random.default_rng(0)
A = rng.normal(size=(40, 9))
W, V = rng.normal(size=9), rng.gamma(1.0, size=9)
SLOPES = rng.normal(size=40)


class Killed(BaseException):
    """The process ends here."""


@contextmanager
def left_behind(path: Path, by: type[BaseException] = Killed) -> Iterator[Journal]:
    """A journal whose process ends with the block, or before."""
    with suppress(by), journal(path, HEADER) as records:
        yield records
        raise by


class Refusing(Storage):
    """An operator of a shape and no content."""

    shape, dtype = A.shape, np.dtype(np.float64)

    def refuse(self, *args: Any, **options: Any) -> Any:
        raise AssertionError("the data were looked at")

    sweep = scores = adjoint = score_variances = column_moments = squared_norms = refuse
    columns = dense_tile = nonzero_weight = refuse


def spoiling_step(rows: slice, scores: Any, score_var: Any) -> Any:
    """A row step that answers by what it sees and overwrites it."""
    slopes = SLOPES[rows] if scores.ndim == 1 else SLOPES[rows, None]
    answer = slopes * np.tanh(scores), None if score_var is None else 1 / (1 + score_var)
    scores[:] = np.nan
    return answer


def calls(operator: Storage) -> Iterator[Any]:
    """Every kind of pass; each depends on the one before."""
    mean, variance = operator.column_moments(SLOPES**2)
    yield mean
    yield variance
    first = operator.sweep(W + mean, None, spoiling_step)
    yield first.slopes
    second = operator.sweep(first.slopes, V, spoiling_step, center=mean)
    yield from second
    third = operator.sweep(np.outer(W, [1, 2.0]), V, spoiling_step, scale=variance)
    yield from third
    yield operator.scores(third.slopes)
    yield operator.score_variances(V + variance, center=mean, scale=variance)
    yield operator.adjoint(SLOPES)
    yield from operator.squared_norms(SLOPES**2)
    yield operator.nonzero_weight(SLOPES**2)


OPERATORS = {
    "dense": lambda: Dense(A, block_bytes=500),
    "rows": lambda: RowBlocks(row_source(A), block_bytes=700),
}
N_ANSWERS = len(list(calls(Dense(A))))


@pytest.mark.parametrize("kind", OPERATORS)
def test_a_run_that_is_killed_anywhere_ends_with_the_same_bits(kind: str, tmp_path: Path) -> None:
    plain = list(calls(OPERATORS[kind]()))
    path = tmp_path / "journal"
    with journal(path, HEADER) as records:
        whole = list(calls(Journaled(OPERATORS[kind](), records)))
    for a, b in zip(plain, whole, strict=True):
        assert_array_equal(a, b)
    for n in range(N_ANSWERS):
        with left_behind(path) as records:
            answers = calls(Journaled(OPERATORS[kind](), records))
            assert len(list(islice(answers, n + 1))) == n + 1
        with journal(path, HEADER) as records:
            resumed = list(calls(Journaled(OPERATORS[kind](), records)))
        for a, b in zip(whole, resumed, strict=True):
            assert a.tobytes() == b.tobytes()


def test_what_is_recorded_is_not_looked_up_in_the_data(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with left_behind(path) as records:
        whole = list(calls(Journaled(Dense(A, block_bytes=500), records)))
    with journal(path, HEADER) as records:
        for a, b in zip(whole, calls(Journaled(Refusing(), records)), strict=True):
            assert a.tobytes() == b.tobytes()
    # And after the last record it is.
    with (
        pytest.raises(AssertionError, match="looked at"),
        journal(tmp_path / "other", HEADER) as records,
    ):
        Journaled(Refusing(), records).scores(W)


def test_parts_of_the_matrix_are_read_again(tmp_path: Path) -> None:
    with journal(tmp_path / "journal", HEADER) as records:
        operator = WithIntercept(Journaled(Dense(A), records))
        assert_array_equal(operator.columns([1, -1]), np.column_stack([A[:, 1], np.ones(40)]))
        assert_array_equal(operator.dense_tile(slice(3, 5), slice(0, 9)), A[3:5])
        assert (tmp_path / "journal").stat().st_size < 200
        assert next(Journaled(Dense(A), records).dense_rows())[1].shape == A.shape


@pytest.mark.parametrize(
    "other",
    [
        lambda op: op.scores(W + 1e-16 * np.abs(W).max() * 4),
        lambda op: op.adjoint(SLOPES),
        lambda op: op.score_variances(W),
        lambda op: op.sweep(W, None, spoiling_step),
    ],
    ids=["other weights", "another method", "a method of the same arguments", "a sweep"],
)
def test_a_call_that_is_not_the_recorded_one_is_an_error(other: Any, tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with left_behind(path) as records:
        operator = Journaled(Dense(A), records)
        operator.column_moments(SLOPES**2)
        operator.scores(W)
    before = path.read_bytes()
    with left_behind(path) as records:
        operator = Journaled(Dense(A), records)
        operator.column_moments(SLOPES**2)
        with pytest.raises(BadJournal, match=r"pass 2 .*Delete this file"):
            other(operator)
    assert path.read_bytes() == before


def test_a_row_step_that_answers_otherwise_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with left_behind(path) as records:
        Journaled(Dense(A), records).sweep(W, V, lambda rows, z, v: (z, v))
    with pytest.raises(BadJournal, match="pass 1 "), journal(path, HEADER) as records:
        Journaled(Dense(A), records).sweep(W, V, lambda rows, z, v: (z, 2 * v))


def test_what_follows_a_failed_pass_is_not_recorded(tmp_path: Path) -> None:
    """Solvers answer an interrupt with the best state so far, which may take passes off their course."""
    path = tmp_path / "journal"

    def interrupting(rows: slice, scores: Any, score_var: Any) -> Any:
        raise KeyboardInterrupt

    with left_behind(path, by=KeyboardInterrupt) as records:
        operator = Journaled(Dense(A), records)
        operator.scores(W)
        with pytest.raises(KeyboardInterrupt):
            operator.sweep(W, None, interrupting)
        operator.adjoint(SLOPES)
    with journal(path, HEADER) as records:
        operator = Journaled(Dense(A), records)
        operator.scores(W)
        operator.sweep(W, None, spoiling_step)
        assert records.n_read == 1


def test_passes_after_an_interrupt_between_two_are_taken_back(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with left_behind(path, by=KeyboardInterrupt) as records:
        operator = Journaled(Dense(A), records)
        operator.scores(W)
        operator.scores(2 * W)  # of the fit that is winding up
    with left_behind(path) as records:
        operator = Journaled(Dense(A), records)
        operator.scores(W)
        assert_array_equal(operator.scores(3 * W), A @ (3 * W))
    # From here on it is a journal like others: what does not match is an error.
    with journal(path, HEADER) as records:
        operator = Journaled(Refusing(), records)
        operator.scores(W)
        with pytest.raises(BadJournal, match="pass 2 "):
            operator.scores(4 * W)
