"""The study of the pruned classifier runs at tiny sizes, keeps rows not measured again, and counts right."""

from __future__ import annotations

import importlib
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def study(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    return lambda name: importlib.import_module(f"benchmarks.studies.pruned_classifier.{name}")


def test_every_part_runs_and_leaves_tables_and_a_figure(study, tmp_path, capsys):
    main = study("run").main
    main(["--quick", "--out", str(tmp_path), "--parts", "density", "dynamics", "loo", "forms"])
    main(["--quick", "--out", str(tmp_path), "--parts", "colon", "--methods", "pruned, κ = 0.4", "LDA"])
    results = pd.read_csv(tmp_path / "results.csv")
    assert set(results.part) == {"density", "dynamics", "loo", "forms", "colon"}
    assert set(results[results.part == "colon"].method) == {"pruned, κ = 0.4", "LDA"}
    assert (tmp_path / "figure.png").stat().st_size > 10_000
    assert (tmp_path / "machine.json").is_file()
    printed = capsys.readouterr().out
    for words in ("Figure 1", "Figure 3", "Figure 4", "Messages on nodes", "Colon"):
        assert words in printed
    curve = results[(results.part == "density") & (results.true_density == 0.2)]
    assert curve.loc[curve.theory.idxmin()].density == 0.2


def test_the_binomial_test_is_the_paper_s(study):
    """99 smaller, 36 equal and 65 larger errors gave 2.65 there."""
    ours = pd.Series([0] * 99 + [1] * 36 + [2] * 65)
    theirs = pd.Series([1] * 200)
    assert study("plot")._binomial(ours, theirs) == "99 : 36 : 65, +2.7 (better)"
