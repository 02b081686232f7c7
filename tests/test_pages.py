"""README and docs have the figures of studies, and name the revisions that made them."""

from __future__ import annotations

import re

import pytest
from benchmarks import pages
from benchmarks.studies import _common as common

HISTORY = common.git("rev-parse", "--is-shallow-repository") == "false"


def test_figures_of_pages_are_those_of_results(monkeypatch):
    if not HISTORY:
        monkeypatch.setattr(pages, "_with_revision", lambda found: found[0])
    assert list(pages.differences()) == [], "python -m benchmarks.pages --write"


def test_every_study_that_a_page_quotes_has_a_revision():
    for page in pages.PAGES:
        found = list(pages.COMMAND.finditer(page.read_text(encoding="utf-8")))
        assert found
        assert all(one[2] for one in found)


def test_a_figure_that_differs_is_found_and_mended():
    quote = pages.Quote("errs at {} % of the {} cases", lambda: ["15.5", "62"])
    page = "It errs at 99\n% of the 61 cases."
    assert pages._filled(page, quote) == "It errs at 15.5\n% of the 62 cases."
    with pytest.raises(ValueError, match="this passage 0 times"):
        pages._page_of(quote, {pages.RESULTS_PAGE: "It does not err."})


def test_rows_keep_the_commit_that_made_them(tmp_path):
    with common.Results(tmp_path, ["trial"]) as results:
        results.add(trial=0, commit="1234567", date="2026-11-01")
        results.add(trial=1)
    first, second = common.read_rows(results.path)
    assert (first["commit"], first["date"]) == ("1234567", "2026-11-01")
    assert second["commit"] == common.commit()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", second["date"])


@pytest.mark.skipif(not HISTORY, reason="needs the history of the repository")
def test_rows_without_a_commit_have_the_one_that_recorded_them():
    rows = common.read_rows(pages.STUDIES / "state_evolution" / "results.csv")
    assert {re.fullmatch(r"[0-9a-f]{7,}", row["commit"]) is not None for row in rows} == {True}
