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
