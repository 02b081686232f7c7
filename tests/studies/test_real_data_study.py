"""The study of real data: its preparations, its rivals, what it keeps between runs, and a quick run."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NearestCentroid
from sklearn.svm import SVC

# Studies are modules of the repository, not of the package.
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def repository_on_path(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))


@pytest.fixture
def shifted():
    """60 samples, 90 features, the first four of which shift with the class."""
    rng = np.random.default_rng(0)
    y = np.where(np.arange(60) % 3 == 0, 1, -1)
    X = rng.standard_normal((60, 90))
    X[:, :4] += 0.8 * y[:, np.newaxis]
    return X, y


def test_quick_run_leaves_everything_and_is_kept_by_a_later_one(tmp_path, monkeypatch, capsys):
    from benchmarks.studies.real_data.run import METHODS, main

    monkeypatch.delenv("FOLDLESS_DATA", raising=False)
    assert main(["--quick", "--out", str(tmp_path)]) == tmp_path
    printed = capsys.readouterr().out
    assert "Against the bars" in printed
    assert "features selected at a false discovery rate" in printed
    assert (tmp_path / "figure.png").stat().st_size > 10_000
    first = rows(tmp_path)
    assert {row["protocol"] for row in first} == set("abcde")
    assert {row["method"] for row in first} == set(METHODS)
    results = pd.read_csv(tmp_path / "results.csv")
    assert results.error.between(0, 0.6).all()
    assert np.isfinite(results.log_loss[results.method != "SVM"]).all()
    assert results.log_loss[results.method == "SVM"].isna().all()
    ours = results[results.method == "foldless"]
    assert ours.error.mean() < 0.2

    # Only two rows are measured again; all others stay to the letter.
    main(["--quick", "--out", str(tmp_path), "--methods", "centroids", "--protocol", "a"])
    second = rows(tmp_path)
    again = [row for row in second if row["method"] == "centroids" and row["protocol"] == "a"]
    assert len(again) == 2
    assert len(first) == len(second)
    assert [row for row in first if row not in second] == [
        row for row in first if row["method"] == "centroids" and row["protocol"] == "a"
    ]

    about = json.loads((tmp_path / "machine.json").read_text())
    assert about["versions"]["numpy"] == np.__version__
    assert len(about["settings"]["earlier_runs"]) == 1


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "results.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("arguments", [[], ["--data", "nowhere"], ["--quick", "--data", "nowhere"]])
def test_says_what_it_needs(arguments, monkeypatch):
    from benchmarks.studies.real_data.run import main

    monkeypatch.delenv("FOLDLESS_DATA", raising=False)
    with pytest.raises(SystemExit, match="FOLDLESS_DATA"):
        main(arguments)


def test_protocols_split_as_the_papers_did():
    from benchmarks.studies.real_data.data import Source, splits

    source = Source(None)
    for protocol, share in (("a", 12 / 62), ("b", 20 / 62)):
        first, again = list(splits(source, protocol, 3)), list(splits(source, protocol, 3))
        assert len(first) == 3
        for split, same in zip(first, again, strict=True):
            np.testing.assert_array_equal(split.test, same.test)
            assert len(split.test) == round(60 * share)
            assert not set(split.train) & set(split.test)
            assert len(split.train) + len(split.test) == 60
    (given,) = splits(source, "c", 1)
    assert given.data.for_training[given.train].all()
    assert not given.data.for_training[given.test].any()
    for split in splits(source, "d", 1):
        runs = split.data.runs
        assert len(set(runs[split.test])) == 1
        assert not set(runs[split.test]) & set(runs[split.train])


def test_detrended_runs_have_no_drift_and_unit_spread():
    from benchmarks.studies.real_data.data import detrended

    rng = np.random.default_rng(0)
    time = np.arange(30.0)
    X = 400 + np.outer(time, [3.0, -1.0, 0.0]) + rng.standard_normal((30, 3)) * [5, 1, 0]
    flat = detrended(X)
    np.testing.assert_allclose(flat.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(time @ flat, 0, atol=1e-9)
    np.testing.assert_allclose(flat.std(axis=0)[:2], 1)
    assert np.isfinite(flat).all()


def test_stability_is_the_mean_overlap():
    from benchmarks.studies.real_data.plot import mean_jaccard

    assert mean_jaccard(["1 2", "2 3", "1 2"]) == pytest.approx((1 / 3 + 1 + 1 / 3) / 3)
    assert mean_jaccard([np.nan, "1"]) == 0
    assert mean_jaccard([np.nan, np.nan]) == 0
    assert np.isnan(mean_jaccard(["1 2"]))


def test_features_and_twins_are_listed_by_name(tmp_path):
    from benchmarks.studies.real_data.data import Source
    from benchmarks.studies.real_data.plot import leukemia
    from benchmarks.studies.real_data.run import write_features

    class Fitted:
        inclusion_probability_ = np.linspace(0, 0.9, 120)
        coef_ = np.ones((1, 120))
        credible_sets_ = (SimpleNamespace(features=[7, 8], probability=0.97), [9, 11])

        def get_support(self, fdr, indices):
            return np.array([3, 5])

    write_features(tmp_path, Fitted(), Source(None).table("leukemia"))
    listed = pd.read_csv(tmp_path / "leukemia.csv", dtype=str, keep_default_na=False)
    assert list(listed["name"]) == ["gene 5", "gene 3", "gene 7", "gene 8", "gene 9", "gene 11"]
    text = leukemia(listed)
    assert "the 2 features" in text
    assert "2 clusters" in text
    assert "0.970" in text


def test_bars_are_judged_and_the_better_scaling_counts():
    from benchmarks.studies.real_data.plot import bars, benchmark, counted

    def row(protocol, data, method, errors, scaling="own", **more):
        known = {"split": 0, "n_test": 34, "error": errors / 34, "log_loss": errors / 10, "seconds": 1.0}
        about = {"n_features": 2000, "n_train": 38, "kept": 3, "selected": "1 2 3"}
        return {
            "protocol": protocol,
            "data": data,
            "method": method,
            "scaling": scaling,
            "errors": errors,
        } | (known | about | more)

    results = pd.DataFrame(
        [
            row("c", "leukemia", "foldless", 1),
            row("c", "leukemia", "L1", 4),
            row("e", "rcv1_small", "foldless", 3, seconds=0.5),
            row("e", "rcv1_small", "ridge", 2, "max-abs"),
            row("e", "rcv1_small", "ridge", 5, "standardised"),
            row("e", "rcv1_small", "L1", 6, "standardised"),
        ]
    )
    best = counted(results)
    assert len(best) == 5
    verdicts = {
        line.split("|")[1].strip(): line.split("|")[-2].strip() for line in bars(best).splitlines()[2:]
    }
    assert verdicts["leukemia 38/34: errors of 34"] == "yes"
    assert verdicts["mean error of 1 sets"] == "no"  # 3 errors; ridge at its best has 2
    assert verdicts["rcv1_small: time, L1 = 1"] == "no"
    assert "ridge (max-abs)" in benchmark(best)


def test_rows_own_coordinates_keep_lengths_and_angles(shifted):
    from benchmarks.studies._rivals import rows_own_coordinates

    X, _ = shifted
    wide = np.vstack([X, X[:3]])  # a row twice: directions without a row are dropped
    rotated, basis = rows_own_coordinates(wide)
    assert rotated.shape == (63, 60)
    np.testing.assert_allclose(rotated @ basis.T, wide, atol=1e-9)
    np.testing.assert_allclose(basis.T @ basis, np.eye(60), atol=1e-9)


def test_ridge_is_the_minimum_on_the_matrix_itself(shifted):
    from benchmarks.studies._rivals import folds_of, tuned_ridge

    X, y = shifted
    rival = tuned_ridge(X, y, folds_of(y, 5), 10)
    direct = LogisticRegression(C=1 / rival.penalty, tol=1e-10, max_iter=10_000).fit(X, y)
    np.testing.assert_allclose(rival.coef, direct.coef_[0], atol=1e-4)
    assert rival.intercept == pytest.approx(direct.intercept_[0], abs=1e-4)
    sparse = tuned_ridge(sp.csr_array(X), y, folds_of(y, 5), 10)
    assert sparse.penalty == pytest.approx(rival.penalty)
    assert np.corrcoef(sparse.coef, rival.coef)[0, 1] > 0.97  # liblinear penalises its intercept too


def test_svm_from_inner_products_is_the_svm(shifted):
    from benchmarks.studies._rivals import folds_of, tuned_svm

    X, y = shifted
    rival = tuned_svm(X, y, folds_of(y, 5), 10)
    direct = SVC(kernel="linear", C=1 / rival.penalty).fit(X, y)
    np.testing.assert_allclose(rival.coef, direct.coef_[0], atol=1e-3)
    assert rival.intercept == pytest.approx(direct.intercept_[0], abs=1e-2)


def test_shrunken_centroids_decide_as_scikit_learn(shifted):
    from benchmarks.studies._rivals import folds_of, shrunken_centroids, tuned_centroids

    X, y = shifted
    rule = shrunken_centroids(X, y, 1.0)
    theirs = NearestCentroid(shrink_threshold=1.0, priors="empirical").fit(X, y)
    np.testing.assert_allclose(2 * (X @ rule.coef + rule.intercept), theirs.decision_function(X), atol=1e-8)
    # A column without variation changes nothing.
    padded = np.column_stack([np.full(60, 3.0), X])
    tuned, with_constant = (tuned_centroids(A, y, folds_of(y, 5), 10) for A in (X, padded))
    np.testing.assert_allclose(with_constant.coef[1:], tuned.coef)
    assert with_constant.coef[0] == 0
    assert set(np.flatnonzero(tuned.coef)) >= {0, 1, 2, 3}


def test_folds_keep_groups_together():
    from benchmarks.studies._rivals import folds_of

    y, groups = np.tile([-1, 1], 33), np.repeat(np.arange(11), 6)
    folds = folds_of(y, 5, groups)
    assert len(folds) == 5
    for train, test in folds:
        assert not set(groups[train]) & set(groups[test])
    assert len(folds_of(y, 5, np.repeat([0, 1], 33))) == 2


# ---------------------------------------------------------------------- packaged_tables


def test_packaged_tables_run_quickly(tmp_path):
    """Tables in the form of export.R: genes that differ, and counts."""
    from benchmarks.studies.packaged_tables.data import load
    from benchmarks.studies.packaged_tables.run import main

    rng = np.random.default_rng(0)
    labels = np.repeat(["no", "yes"], 20)
    values = {"dhfr": rng.standard_normal((40, 30)), "soilrep": rng.poisson(1.0, (40, 30))}
    for name, X in values.items():
        X[20:, :3] += 2
        X.astype(np.float32).tofile(tmp_path / f"{name}.bin")
        (tmp_path / f"{name}.labels").write_text("\n".join(["40", "30", *labels]))
    counts, y = load(tmp_path, "soilrep")
    np.testing.assert_allclose(counts.toarray(), np.log1p(values["soilrep"]), rtol=1e-6)
    assert y.tolist() == labels.tolist()
    words = ["--data", str(tmp_path), "--tables", *values, "--quick", "--out", str(tmp_path / "out")]
    folder = main(words)
    rows = pd.read_csv(folder / "results.csv")
    assert len(rows) == 6
    assert rows.error.between(0, 0.5).all()
    assert rows[rows.method == "foldless"].differ.ge(3).all()
    assert (folder / "figure.png").exists()


# ---------------------------------------------------------------------- fresh_tables


def test_fresh_tables_run_quickly(tmp_path):
    """Tables in the form of export.py: numbers, and texts."""
    from benchmarks.studies.fresh_tables.data import load
    from benchmarks.studies.fresh_tables.run import main

    rng = np.random.default_rng(0)
    y = np.repeat(["no", "yes"], 20)
    X = rng.standard_normal((40, 30)).astype(np.float32)
    X[20:, :3] += 2
    texts = np.array([" ".join(rng.choice(["good", "bad", "tea", "cake"], 3)) + f" {label}" for label in y])
    np.savez(tmp_path / "coffee.npz", X=X, y=y)
    np.savez(tmp_path / "food_reviews.npz", X=texts, y=y)
    words, _ = load(tmp_path, "food_reviews")
    assert words.shape == (40, 6)
    tables = ["--tables", "coffee", "food_reviews"]
    folder = main(["--data", str(tmp_path), *tables, "--quick", "--out", str(tmp_path / "out")])
    rows = pd.read_csv(folder / "results.csv")
    assert len(rows) == 6
    assert rows.error.between(0, 0.5).all()
    assert (folder / "figure.png").exists()
