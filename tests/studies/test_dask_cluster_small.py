"""The benchmark of Dask clusters runs, and its answers are those of memory."""

from __future__ import annotations

import importlib

import pandas as pd
import pytest

pytest.importorskip("distributed")


def test_a_cluster_gives_the_answer_of_memory_whatever_is_killed(tmp_path):
    main = importlib.import_module("benchmarks.scale.dask_cluster").main
    main(["--quick", "--kills", "1", "--out", str(tmp_path)])
    found = pd.read_csv(tmp_path / "dask_cluster.csv").set_index(["experiment", "case", "figure"])["value"]
    differences = found.xs("largest_relative_difference", level="figure")
    single = differences.index.get_level_values("case").str.contains("float32")
    assert (differences[~single] < 1e-10).all()
    assert (found.xs("same_bits", level="figure") == 1).all()
    sent = found["sweep", "80 x 300 float32", "megabytes_of_vectors"]
    assert sent == pytest.approx(1e-6 * (300 * (4 * 2 + 8 * 8) + 16 * 80))
