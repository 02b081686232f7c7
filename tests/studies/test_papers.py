"""Pages about papers say what the studies' rows say."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def papers(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    return importlib.import_module("benchmarks.papers")


def test_pages_are_those_of_the_rows(papers, capsys):
    assert papers.main([]) == 0, capsys.readouterr().out


def test_verdicts(papers):
    assert papers.verdict(10.0, 9.9, 0.5) == "reached"
    assert papers.verdict(10.0, 10.9, 0.5) == "reached within two standard errors"
    assert papers.verdict(10.0, 12.0, 0.5) == "missed by 2"
