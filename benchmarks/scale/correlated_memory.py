"""Memory of a fit of correlated tables, beside X itself.

python -m benchmarks.scale.correlated_memory [--sizes 120x12000 300x20000 1000x20000]

Genes that ten factors correlate, double precision. A fit runs in a process of its own, after a small one that
loads everything; memory is the most that NumPy held at a time beyond X (`tracemalloc`), beside a quarter of X
and six matrices of samples by samples.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tracemalloc
import warnings
from collections.abc import Sequence

import numpy as np

from benchmarks.peers.cross_validation.tables import factor_genes

SIZES = ("120x12000", "300x20000", "1000x20000")
SHARE_OF_X, N_SQUARE = 0.25, 6


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=SIZES, metavar="SAMPLESxFEATURES")
    for size in parser.parse_args(argv).sizes:
        n_samples, n_features = map(int, size.split("x"))
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            beyond = pool.apply(beyond_x, (n_samples, n_features))
        x, square = 8 * n_samples * n_features / 2**20, 8 * n_samples**2 / 2**20
        bar = SHARE_OF_X * x + N_SQUARE * square
        told = f"X {x:6.1f} MB, beyond it {beyond:6.1f} MB, bar {bar:6.1f} MB"
        print(f"{size:>12s}  {told}  {'met' if beyond <= bar else 'missed'}", flush=True)


def beyond_x(n_samples: int, n_features: int) -> float:
    """MB at the peak of a fit, less what was there before."""
    from foldless import SparseClassifier
    from foldless.kernels import compiled

    compiled("sigmoids")  # which a small fit does without
    warnings.simplefilter("ignore")
    X, y = factor_genes(n_samples, n_features)(None, 1.0)
    SparseClassifier().fit(np.ascontiguousarray(X[:50, :200]), np.where(np.arange(50) % 2, 1, -1))
    tracemalloc.start()
    SparseClassifier().fit(X, y)
    return float(tracemalloc.get_traced_memory()[1] / 2**20)


if __name__ == "__main__":
    main()
