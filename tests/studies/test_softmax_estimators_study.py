"""The study of the softmax estimators runs, and its default is the most accurate of them."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

ROOT = Path(__file__).parents[2]


def test_quick_run(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks.studies.softmax_estimators.run import main

    assert main(["--quick", "--out", str(tmp_path)]) == tmp_path
    table = pd.read_csv(tmp_path / "results.csv")
    errors = table[table.kind == "error"]
    ours = errors[errors.estimator == "gumbel"]
    # Within the noise of the reference, and one per cent of a standard deviation.
    assert (ours.error < 3 * ours.sampling_error + 0.01).all()
    assert errors[errors.estimator == "taylor"].error.max() > 0.1
    assert (tmp_path / "figure.png").stat().st_size > 10_000
