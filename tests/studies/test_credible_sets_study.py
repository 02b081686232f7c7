"""The study of credible sets runs, and its tables are made of what it measured."""

from __future__ import annotations

import pandas as pd


def test_credible_sets_runs(tmp_path, capsys):
    from benchmarks.studies.credible_sets.run import main

    main(["--quick", "--trials", "1", "--out", str(tmp_path)])
    assert "contain a true feature" in capsys.readouterr().out
    results = pd.read_csv(tmp_path / "results.csv")
    assert set(results.design) == {"AR(0.5)", "blocks"}
    assert (results.sets_right <= results.sets).all()
    assert (tmp_path / "figure.png").stat().st_size > 1000
    gibbs = pd.read_csv(tmp_path / "gibbs.csv")
    # A short run is a rough guide.
    error = (gibbs["EP, refined"] - gibbs.gibbs).abs()
    assert error.mean() < 0.05
