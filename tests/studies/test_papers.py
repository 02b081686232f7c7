"""Pages about papers say what the studies' rows say."""

from __future__ import annotations

import importlib
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def papers(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    return importlib.import_module("benchmarks.papers")


@pytest.fixture
def papers_gamp(papers):
    return importlib.import_module("benchmarks.papers_gamp")


def test_pages_are_those_of_the_rows(papers, capsys):
    assert papers.main([]) == 0, capsys.readouterr().out


def test_pages_on_message_passing_are_those_of_the_rows(papers_gamp, capsys):
    own = {"tables": papers_gamp.TABLES, "header": papers_gamp.HEADER, "begins": papers_gamp.BEGINS}
    assert papers_gamp.papers.main([], **own) == 0, capsys.readouterr().out


def test_verdicts(papers):
    assert papers.verdict(10.0, 9.9, 0.5) == "reached"
    assert papers.verdict(10.0, 10.9, 0.5) == "reached within two standard errors"
    assert papers.verdict(10.0, 12.0, 0.5) == "missed by 2"


def test_an_order_is_told_where_it_is_seen(papers_gamp):
    error = {"MMSE-SHyGAMP": 0.2, "MAP-SHyGAMP": 0.1}
    rows = [("M", 100, t, m, e + 0.001 * t) for t in range(3) for m, e in error.items()]
    rows += [("M", 300, 0, "MMSE-SHyGAMP", 0.1), ("M", 300, 0, "MAP-SHyGAMP", 0.2)]
    results = pd.DataFrame(rows, columns=["sweep", "n_samples", "trial", "method", "error"])
    (row,) = papers_gamp._orders(results, "M")
    assert row[1] == "always"
    assert row[2] == "M = 100: -0.100 ± 0.000 (3); M = 300: +0.100 (1)"
    assert row[4] == "no at 1"
