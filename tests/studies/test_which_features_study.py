"""The study of panels: agreement of lists, and a quick run in which panels follow the full model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

ROOT = Path(__file__).parents[2]
METHODS = {"full", "panel", "t test", "inclusion", "mRMR", "L1 path", "L1, CV", "L1, 1 s.e.", "Stabl"}


@pytest.fixture(autouse=True)
def repository_on_path(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))


def test_agreement_counts_what_is_shared_and_what_is_alike():
    from benchmarks.studies.which_features.run import agreement

    assert agreement([{1, 2, 3}, {2, 3, 4}]) == 0.5
    X = np.random.default_rng(0).standard_normal((50, 5))
    X[:, 4] = X[:, 1]
    assert agreement([{1, 2, 3}, {2, 3, 4}], X) == 1.0


def test_quick_run(tmp_path, capsys):
    from benchmarks.studies.which_features.run import main

    assert main(["--quick", "--out", str(tmp_path)]) == tmp_path
    results = pd.read_csv(tmp_path / "results.csv", dtype={"size": str})
    assert set(results.method) == METHODS
    mean = results.groupby(["method", "size"])[["error", "log_loss", "n_features"]].mean()
    # Half of what class frequencies lose, at any size: the classes are far apart.
    assert all(mean.log_loss["panel", size] < 0.5 * np.log(2) for size in ("10", "20", "50", "auto"))
    assert mean.error["panel", "20"] <= mean.error["full", "all"] + 0.1
    assert mean.n_features["panel", "auto"] <= 50
    assert (results.n_features[(results.method == "panel") & (results["size"] == "10")] == 10).all()
    assert "with twins" in capsys.readouterr().out
