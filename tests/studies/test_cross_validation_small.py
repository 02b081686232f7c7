"""The time of a tuned fit beside cross-validation: what is kept, what is measured again, and the bars."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

# Benchmarks are modules of the repository, not of the package.
ROOT = Path(__file__).parents[2]
ONLY = ["--only", "heart", "contraceptive", "words 210 x 20 000"]


@pytest.fixture(autouse=True)
def repository_on_path(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.delenv("FOLDLESS_DATA", raising=False)


def test_rivals_are_kept_and_ours_are_of_a_revision(tmp_path, capsys):
    from benchmarks.peers.cross_validation.run import main

    quick = ["--quick", "--out", str(tmp_path), *ONLY]
    assert main([*quick, "--revision", "before"]) == tmp_path
    first = pd.read_csv(tmp_path / "results.csv", keep_default_na=False)
    assert set(first.table) == {"heart", "contraceptive", "words 210 x 20 000"}
    assert (first.cpu_seconds > 0).all()
    # L1 of three classes would be saga's, for minutes.
    three = set(first[first.table == "contraceptive"].method)
    assert three == {"foldless", "ridge, lbfgs", "ridge, newton-cholesky"}
    assert {"L1, liblinear", "ridge, liblinear"} <= set(first[first.table == "heart"].method)

    main([*quick, "--revision", "after", "--only", "heart"])
    second = pd.read_csv(tmp_path / "results.csv", keep_default_na=False)
    assert len(second) == len(first) + 1
    kept = second[second.revision != "after"].reset_index(drop=True)
    pd.testing.assert_frame_equal(kept, first)
    printed = capsys.readouterr().out
    assert "foldless (before)" in printed
    assert "foldless (after)" in printed


def test_bars_are_ratios_or_seconds():
    from benchmarks.peers.cross_validation.tables import LONG, WIDE

    assert WIDE.met(0.2, 0.5)
    assert not WIDE.met(0.3, 0.5)
    # Two seconds are granted where samples outnumber features, or five times the rival.
    assert LONG.met(1.9, 0.1)
    assert not LONG.met(2.1, 0.1)
    assert LONG.met(20.0, 4.1)


def test_report_takes_the_faster_rival_at_equal_pace(tmp_path):
    from benchmarks.peers.cross_validation.report import report

    def row(method, seconds, revision="", pace=20.0):
        size = {"samples": 62, "features": 2000, "classes": 2, "outcome": ""}
        return {
            "table": "colon",
            "method": method,
            "revision": revision,
            "cpu_seconds": seconds,
            "pace": pace,
            **size,
        }

    # Ours was measured in an hour at half the speed.
    rows = [
        row("foldless", 0.4, "new", pace=40.0),
        row("L1, liblinear", 0.9),
        row("ridge, lbfgs", 0.5),
        row("ridge, liblinear", 0.6),
    ]
    pd.DataFrame(rows).to_csv(tmp_path / "results.csv", index=False)
    cells = [cell.strip() for cell in report(tmp_path, "new").splitlines()[2].split("|")]
    assert cells[3:10] == ["0.2", "0.9", "0.5", "lbfgs", "0.40", "0.5", "yes"]


def test_tables_have_the_shapes_they_are_named_for():
    from benchmarks.peers.cross_validation.tables import TABLES

    X, y = TABLES["words 210 x 20 000"].make(None, 1.0)
    assert sp.issparse(X)
    assert X.shape == (210, 20_000)
    assert np.unique(y).size == 2
    X, y = TABLES["counts 13 000 x 1000, 20 classes"].make(None, 0.1)
    assert X.shape == (1300, 100)
    assert np.unique(y).size == 20
    assert (X.data == np.round(X.data)).all()
    X, y = TABLES["pixels 3500 x 784, 10 classes"].make(None, 0.1)
    assert X.shape == (350, 784)
    assert np.unique(y).size == 10
    X, y = TABLES["genes 120 x 12 000"].make(None, 0.5)
    variances = np.linalg.svd(X - X.mean(axis=0), compute_uv=False) ** 2
    # Ten factors: no drop from one variance to the next is as deep as that after the tenth.
    assert np.argmax(variances[:30] / variances[1:31]) == 9
