"""The comparison with other solvers runs, and what it times is accurate."""

from __future__ import annotations

import importlib

import numpy as np
import pandas as pd


def test_paths_are_timed_at_the_same_gap(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 30))
    y = np.where(X[:, 0] + 0.4 * rng.standard_normal(40) > 0, "a", "b")
    for name in ("colon", "leukemia"):
        np.savez(tmp_path / f"{name}.npz", X=X, y=y)
    main = importlib.import_module("benchmarks.peers.smlr_path").main
    main(
        [
            "--quick",
            "--data",
            str(tmp_path),
            "--out",
            str(tmp_path),
            "--trials",
            "1",
            "--only",
            "foldless (NumPy)",
        ]
    )
    found = pd.read_csv(tmp_path / "smlr_path.csv")
    assert list(found.data) == ["colon", "leukemia", "300 x 30 000"]
    assert (found.gap <= 1e-6).all()
