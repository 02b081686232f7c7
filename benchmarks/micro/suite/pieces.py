"""What an iteration is made of, one piece each: where a change of the code made it slower, this says what.

cd benchmarks/micro && asv run --python=same --quick       (pip install asv)
"""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

import numpy as np
from scipy import sparse

from foldless import SparseClassifier
from foldless.channels import FlippedLabels, Logistic
from foldless.operators import Dense, Sparse, Standardized
from foldless.priors import Gaussian, SpikeAndSlab

SHAPES = {"60 x 2000": (60, 2000), "300 x 30000": (300, 30_000)}


class DenseSweep:
    """Scores, slopes back, over a standardised array."""

    params: ClassVar[list[list[str]]] = [list(SHAPES), ["float32", "float64", "int8"], ["C", "F"]]
    param_names: ClassVar[list[str]] = ["shape", "dtype", "order"]

    def setup(self, shape: str, dtype: str, order: Any) -> None:
        n_rows, n_columns = SHAPES[shape]
        values = 20 * np.random.default_rng(0).standard_normal((n_rows, n_columns))
        self.operator = Standardized.fit(Dense(np.array(values.clip(-127, 127), dtype=dtype, order=order)))
        self.weights, self.var = np.full(n_columns, 0.01), np.full(n_columns, 0.1)

    def time_sweep(self, *_: str) -> None:
        self.operator.sweep(self.weights, None, lambda rows, scores, var: (scores, None))

    def time_sweep_with_variances(self, *_: str) -> None:
        self.operator.sweep(self.weights, self.var, lambda rows, scores, var: (scores, var))

    def time_moments(self, *_: str) -> None:
        self.operator.operator.column_moments(np.ones(self.operator.shape[0]))


class SparseSweep:
    """The same over a sparse matrix, 1.5 million entries."""

    params: ClassVar[list[list[str]]] = [["csr", "csc"], ["float32", "float64"]]
    param_names: ClassVar[list[str]] = ["format", "dtype"]

    def setup(self, format_: str, dtype: str) -> None:
        X = sparse.random(20_000, 47_000, 0.0016, format=format_, dtype=dtype, rng=0)
        self.operator = Standardized.fit(Sparse(X))
        self.weights = np.full(X.shape[1], 0.01)

    def time_sweep(self, *_: str) -> None:
        self.operator.sweep(self.weights, None, lambda rows, scores, var: (scores, None))


class ElementWise:
    """Prior on features and channel on samples."""

    params: ClassVar[list[list[Any]]] = [[100, 30_000], ["float32", "float64"]]
    param_names: ClassVar[list[str]] = ["length", "dtype"]

    def setup(self, length: int, dtype: str) -> None:
        rng = np.random.default_rng(0)
        self.mean, self.var = rng.standard_normal(length).astype(dtype), np.full(length, 0.2, dtype)
        self.labels = np.sign(rng.standard_normal(length))
        self.prior, self.channel = SpikeAndSlab(Gaussian(0.5), 0.01), FlippedLabels(Logistic())

    def time_prior(self, *_: Any) -> None:
        self.prior.tilted(self.mean, self.var)

    def time_prior_of_one_variance(self, *_: Any) -> None:
        self.prior.tilted(self.mean, self.var[:1])

    def time_em(self, *_: Any) -> None:
        self.prior.em_update(self.mean, self.var)

    def time_channel(self, *_: Any) -> None:
        self.channel.respond(self.mean, self.var, self.labels)


class Fit:
    """Whole fits."""

    params: ClassVar[list[str]] = list(SHAPES)
    param_names: ClassVar[list[str]] = ["shape"]

    def setup(self, shape: str) -> None:
        n_rows, n_columns = SHAPES[shape]
        self.X = np.random.default_rng(0).standard_normal((n_rows, n_columns))
        self.y = np.arange(n_rows) % 2
        self.X[:, :10] += self.y[:, np.newaxis]

    def time_fit(self, shape: str) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            SparseClassifier().fit(self.X, self.y)

    def peakmem_fit(self, shape: str) -> None:
        self.time_fit(shape)
