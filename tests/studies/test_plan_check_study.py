"""The study of plans runs small, on stand-ins for real data, and its tables are made of what it measured."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def repository_on_path(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))


def test_the_study_of_plans_runs(tmp_path, capsys, monkeypatch):
    from benchmarks.studies.plan_check.run import main

    monkeypatch.delenv("FOLDLESS_DATA", raising=False)
    assert main(["--quick", "--trials", "2", "--out", str(tmp_path)]) == tmp_path
    printed = capsys.readouterr().out
    assert "**independent**: largest difference" in printed
    predictions, results = (pd.read_csv(tmp_path / f"{name}.csv") for name in ("predictions", "results"))
    assert predictions.converged.all()
    merged = results.merge(predictions, on=["part", "setting"], suffixes=("", "_predicted"))
    assert len(merged) == 4
    assert ((merged.error - merged.error_predicted).abs() < 0.15).all()
    assert (merged.error > merged.best_error - 0.03).all()
    learning = pd.read_csv(tmp_path / "learning.csv")
    wide = learning.pivot_table(index="n_samples", columns="what", values="error")
    assert (wide.lower <= wide.predicted).all()
    assert (wide.predicted <= wide.upper).all()
    assert wide.predicted.is_monotonic_decreasing
    assert (tmp_path / "figure.png").stat().st_size > 10_000


def test_real_data_are_asked_for(monkeypatch):
    from benchmarks.studies.plan_check.run import main

    monkeypatch.delenv("FOLDLESS_DATA", raising=False)
    with pytest.raises(SystemExit, match="FOLDLESS_DATA"):
        main(["--parts", "real"])
