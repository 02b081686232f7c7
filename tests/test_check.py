"""Committed results are rerun in part, and a figure that no longer holds is found."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from benchmarks import check
from benchmarks.check import STUDIES, Check, checks, compared, main, studies

COMMITTED = [0.10, 0.12, 0.08, 0.10]  # a standard error of 0.008


@pytest.mark.parametrize("study", studies())
def test_every_study_says_what_is_rerun_and_compared(study: str):
    for one in checks(study):
        committed = pd.read_csv(STUDIES / study / one.results, comment="#", nrows=1)
        assert {*one.key, *one.floors} <= {*committed.columns}
        assert {*one.cell} <= {*one.key}


def findings(monkeypatch, tmp_path: Path, now: list[float], floor: float = 0.001) -> list[check.Finding]:
    (tmp_path / "made").mkdir()
    table = pd.DataFrame({"trial": range(4), "method": "ours", "error": COMMITTED})
    table.to_csv(tmp_path / "made" / "results.csv", index=False)
    monkeypatch.setattr(check, "STUDIES", tmp_path)
    rows = [{"trial": trial, "method": "ours", "error": error} for trial, error in enumerate(now)]
    one = Check(("trial", "method"), ("method",), {"error": floor}, lambda *_: iter(rows))
    return compared("made", one, tmp_path, False)


@pytest.mark.parametrize(
    ("now", "floor", "holds"),
    [
        (COMMITTED, 0.001, True),
        ([0.11, 0.13], 0.001, True),  # the mean moves by 0.01, less than two standard errors of 0.008
        ([0.13, 0.15], 0.001, False),
        ([0.13, 0.15], 0.04, True),  # a floor that is larger than what was found
        ([float("nan")] * 2, 0.001, False),
    ],
)
def test_a_figure_holds_within_its_error(monkeypatch, tmp_path, now, floor, holds):
    (found,) = findings(monkeypatch, tmp_path, now, floor)
    assert found.holds == holds
    assert ("MISSED" in check.table([found])) != holds
    assert found.moved == (holds and now != COMMITTED)


def test_a_row_that_was_never_committed_is_an_error(monkeypatch, tmp_path):
    with pytest.raises(ValueError, match="1 of 5 rerun rows were never committed"):
        findings(monkeypatch, tmp_path, [*COMMITTED, 0.1])


@pytest.mark.study
def test_what_a_minute_reruns_holds(capsys):
    assert main(["--minute"]) == 0, capsys.readouterr().out
