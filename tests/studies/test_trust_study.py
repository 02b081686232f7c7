"""The study of trust: its designs, its measures of calibration, and a quick run."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose
from scipy.special import expit

# Studies are modules of the repository, not of the package.
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def repository_on_path(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "results.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_quick_run_leaves_everything_and_other_parts_stay(tmp_path, monkeypatch, capsys):
    from benchmarks.studies.trust.designs import DESIGNS
    from benchmarks.studies.trust.run import main

    monkeypatch.delenv("FOLDLESS_DATA", raising=False)
    quick = ["--quick", "--trials", "1", "--out", str(tmp_path)]
    assert main([*quick, "--parts", "calibration"]) == tmp_path
    first = rows(tmp_path)
    assert {row["data"] for row in first} == set(DESIGNS)
    main([*quick, "--parts", "loo"])
    both = rows(tmp_path)
    assert [row for row in both if row["part"] == "calibration"] == first
    printed = capsys.readouterr().out
    assert "Leave-one-out against refits" in printed
    assert "whether a bad one said so" in printed
    assert (tmp_path / "figure.png").stat().st_size > 10_000
    held = pd.DataFrame([row for row in both if row["part"] == "loo"])
    assert set(held.data) >= {"colon", "leukemia", "three factors"}
    for name in ("loo_error", "refit_error"):
        assert held[name].astype(float).between(0, 1).all()


@pytest.mark.parametrize("arguments", [["--parts", "loo"], ["--data", "nowhere"]])
def test_says_what_it_needs(arguments, monkeypatch):
    from benchmarks.studies.trust.run import main

    monkeypatch.delenv("FOLDLESS_DATA", raising=False)
    with pytest.raises(SystemExit, match="FOLDLESS_DATA"):
        main(arguments)


def test_designs_are_reproducible_and_labels_follow_the_weights():
    from benchmarks.studies.trust.designs import DESIGNS, task

    for design in DESIGNS:
        first, again = (task(design, 1, 300, 50, 20) for _ in range(2))
        X, same = (d.X.toarray() if sp.issparse(d.X) else d.X for d in (first, again))
        assert_allclose(X, same)
        assert X.shape == (300, 50)
        scores = (X - X.mean(axis=0)) @ first.weights
        assert np.mean(first.y * scores > 0) > 0.65, design
    assert set(np.unique(task("LD-like genotypes", 0, 50, 20, 0).X)) == {0.0, 1.0, 2.0}
    correlations = np.corrcoef(task("block 0.9", 0, 2000, 20, 0).X.T)
    assert_allclose(correlations[0, 1:10], 0.9, atol=0.05)
    assert_allclose(correlations[0, 10:], 0.0, atol=0.15)


def test_reliability_tells_exact_probabilities_from_bold_ones():
    from benchmarks.studies.trust.plot import reliability_error
    from benchmarks.studies.trust.run import binned, binned_error, spiegelhalter

    rng = np.random.default_rng(0)
    score = rng.standard_normal(20_000)
    happened = rng.random(score.size) < expit(score)
    assert binned_error(expit(score), happened) < 0.02
    assert binned_error(expit(3 * score), happened) > 0.1
    assert abs(spiegelhalter(expit(score), happened)) < 3
    assert abs(spiegelhalter(expit(3 * score), happened)) > 10
    # Bins of runs add up.
    halves = (slice(10_000), slice(10_000, None))
    runs = pd.DataFrame([binned("class", expit(score[half]), happened[half]) for half in halves])
    assert reliability_error(runs, "class") == pytest.approx(binned_error(expit(score), happened), abs=1e-4)
    assert binned_error(np.array([1.0, 0.0]), np.array([True, False])) == 0


def test_mixture_quantiles_are_those_of_samples():
    from benchmarks.studies.trust.run import mixture_quantile

    rng = np.random.default_rng(0)
    for inclusion, mean, std in ((0.02, 1.0, 0.5), (0.6, 1.0, 0.5), (0.97, -2.0, 0.3), (1.0, 0.1, 1.0)):
        drawn = np.where(rng.random(200_000) < inclusion, mean + std * rng.standard_normal(200_000), 0.0)
        for q in (0.05, 0.95):
            found = mixture_quantile(q, np.array([inclusion]), np.array([mean]), np.array([std]))
            assert_allclose(found, np.quantile(drawn, q), atol=0.03)


def test_a_flag_counts_for_what_it_is_worth():
    from benchmarks.studies.trust.plot import _flags

    fits = pd.DataFrame(
        [
            (0.5, 0.02, 1, "", 0),
            (0.5, 0.02, 0, "ConvergenceWarning", 0),
            (5.0, 0.02, 0, "ConvergenceWarning", 0),
            (-5.0, 0.02, 1, "", 0),
            (0.0, 0.20, 1, "", 1),
        ],
        columns=["inclusion_z", "class_error", "trustworthy", "warned", "flags"],
    ).assign(data="design")
    (row,) = _flags(fits).splitlines()[2:]
    assert [cell.strip() for cell in row.split("|")[2:-1]] == ["5", "2", "1", "3", "2", "1"]
