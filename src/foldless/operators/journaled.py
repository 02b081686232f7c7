"""An operator that writes down what every pass over the data returned, and repeats it after a restart.

A fit is a function of what its passes return, and nothing in it is left to chance. So a fit that was killed
is resumed by running it again: passes that were recorded answer from the journal, without a look at the data,
and solvers, tuning and damping arrive at the same bits without knowing. From the first pass that was not
recorded on, the data answer. A state to be saved and restored would have to be kept in step with every
solver; answers need only the interface of an operator.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foldless.beliefs import Array
from foldless.io.files import checksum
from foldless.io.journal import BadJournal, Journal
from foldless.operators.base import RowStep, Storage, Sweep


class Journaled(Storage):
    """The answers of `operator`, recorded in, or repeated from, a journal.

    A record holds what a pass was asked (a checksum), the scores it showed to `row_step` block by block, a
    checksum of what that answered, and the sums. Copies of parts of the matrix are not recorded, since they
    would be as large as the data and can be read again.

    Arrays are C-contiguous in either case, because products may depend on their layout in the last bit.
    """

    def __init__(self, operator: Storage, journal: Journal) -> None:
        self.operator = operator
        self.shape, self.dtype = operator.shape, operator.dtype
        self.column_names = operator.column_names
        # None once a pass has failed: what follows is not on the course of the fit.
        self._journal: Journal | None = journal
        self._replaying = True

    def sweep(
        self, weights: Array, weight_var: Array | None, row_step: RowStep, **about: Array | None
    ) -> Sweep:
        asked = _asked("sweep", weights, weight_var, *about.values())
        with self._unbroken():
            record = self._recorded(asked)
            if record is not None:
                return self._repeated(record, row_step)
            notes = _Notes(row_step)
            sums = self.operator.sweep(weights, weight_var, notes, **about)
            plain = [np.ascontiguousarray(each) for each in sums if each is not None]
            self._record(
                _Record(asked, [*notes.arrays, *plain], notes.rows, weight_var is not None, notes.answered)
            )
            return Sweep(plain[0], None if weight_var is None else plain[1])

    def nonzero_weight(self, sample_weight: Array) -> Array:
        return self._answer("nonzero_weight", (sample_weight,))[0]

    def some_rows(self, rows: NDArray[np.intp]) -> Storage:
        return self.operator.some_rows(rows)

    def scores(self, weights: Array) -> Array:
        return self._answer("scores", (weights,))[0]

    def adjoint(self, row_values: Array) -> Array:
        return self._answer("adjoint", (row_values,))[0]

    def score_variances(self, weight_var: Array, **about: Array | None) -> Array:
        return self._answer("score_variances", (weight_var,), **about)[0]

    def column_moments(self, sample_weight: Array) -> tuple[Array, Array]:
        mean, variance = self._answer("column_moments", (sample_weight,))
        return mean, variance

    def squared_norms(self, sample_weight: Array) -> tuple[Array, Array]:
        row, column = self._answer("squared_norms", (sample_weight,))
        return row, column

    def columns(self, indices: ArrayLike) -> NDArray[np.float64]:
        return self.operator.columns(indices)

    def dense_tile(self, rows: slice, columns: slice) -> NDArray[np.float64]:
        return self.operator.dense_tile(rows, columns)

    def identity(self) -> str:
        return self.operator.identity()

    def _answer(self, method: str, given: tuple[Array, ...], **options: Array | None) -> list[Array]:
        """What a method without a row step returns: an array or several."""
        asked = _asked(method, *given, *options.values())
        with self._unbroken():
            record = self._recorded(asked)
            if record is not None:
                return record.arrays
            found = getattr(self.operator, method)(*given, **options)
            arrays = [
                np.ascontiguousarray(each) for each in (found if isinstance(found, tuple) else (found,))
            ]
            self._record(_Record(asked, arrays))
            return arrays

    def _recorded(self, asked: str) -> _Record | None:
        """The record of this pass, or None if the data must answer."""
        if self._journal is None or not self._replaying:
            return None
        content = self._journal.read()
        record = None if content is None else _Record.decoded(content)
        if record is not None and record.asked == asked:
            return record
        self._replaying = False
        if record is not None:
            if not self._journal.was_interrupted:
                raise self._astray()
            self._journal.cut()
        return None

    def _repeated(self, record: _Record, row_step: RowStep) -> Sweep:
        """A sweep whose scores and sums are known."""
        arrays = iter(record.arrays)
        answered = 0
        for start, stop in record.rows:
            scores = next(arrays)
            score_var = next(arrays) if record.squares else None
            slopes, curvatures = row_step(slice(start, stop), scores, score_var)
            answered = checksum([slopes, curvatures], answered)
        if answered != record.answered:
            raise self._astray()
        return Sweep(next(arrays), next(arrays) if record.squares else None)

    def _record(self, record: _Record) -> None:
        if self._journal is not None:
            self._journal.append(record.encoded())

    def _astray(self) -> BadJournal:
        assert self._journal is not None
        return BadJournal(
            self._journal.path,
            f"this fit does not repeat itself: pass {self._journal.n_read} over the data is not the recorded "
            "one. Was it recorded on another machine, with other numerical libraries, or from other code?",
        )

    @contextmanager
    def _unbroken(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._journal = None
            raise


@dataclass(frozen=True, eq=False)
class _Record:
    """One pass over the data."""

    asked: str
    arrays: list[NDArray[Any]]  # of a sweep: for each block of rows scores (and variances); then the sums
    rows: list[tuple[int, int]] = field(default_factory=list)
    squares: bool = False  # does the sweep have variances?
    answered: int = 0  # checksum of what `row_step` said

    def encoded(self) -> list[bytes | memoryview]:
        """A line of JSON, then the bytes of the arrays."""
        line = {
            "asked": self.asked,
            "arrays": [[array.dtype.str, array.shape] for array in self.arrays],
            "rows": self.rows,
            "squares": self.squares,
            "answered": self.answered,
        }
        return [
            json.dumps(line).encode("ascii") + b"\n",
            *(array.reshape(-1).view(np.uint8).data for array in self.arrays),
        ]

    @classmethod
    def decoded(cls, content: bytes) -> _Record:
        line, _, rest = content.partition(b"\n")
        known = json.loads(line)
        arrays, place = [], 0
        for dtype, shape in known["arrays"]:
            # A copy, since it is the caller's to overwrite.
            array = np.frombuffer(rest, dtype, math.prod(shape), place).reshape(shape).copy()
            arrays.append(array)
            place += array.nbytes
        rows = [(int(start), int(stop)) for start, stop in known["rows"]]
        return cls(known["asked"], arrays, rows, known["squares"], known["answered"])


class _Notes:
    """A row step that keeps what it was shown, and a checksum of what it said."""

    def __init__(self, row_step: RowStep) -> None:
        self._row_step = row_step
        self.rows: list[tuple[int, int]] = []
        self.arrays: list[NDArray[Any]] = []
        self.answered = 0

    def __call__(self, rows: slice, scores: Array, score_var: Array | None) -> tuple[Array, Array | None]:
        shown = [np.ascontiguousarray(each) for each in (scores, score_var) if each is not None]
        self.rows.append((int(rows.start), int(rows.stop)))
        # Copies, since the row step may overwrite what it is given.
        self.arrays += [each.copy() for each in shown]
        slopes, curvatures = self._row_step(rows, shown[0], None if score_var is None else shown[1])
        self.answered = checksum([slopes, curvatures], self.answered)
        return slopes, curvatures


def _asked(method: str, *given: Array | None) -> str:
    arrays = [None if each is None else np.asarray(each) for each in given]
    return f"{method} {checksum(arrays):08x}"
