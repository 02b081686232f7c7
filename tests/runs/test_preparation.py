"""What is done to a table before a fit is kept with the model, and done again to new samples."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from typer.testing import CliRunner

import foldless
from foldless.cli import app
from foldless.estimators._preparation import Preparation
from foldless.io import BadTable, Roles, Table
from foldless.io.read import read_table
from foldless.io.tsv import read_tsv
from foldless.runs.fit import fit_table
from foldless.runs.predict import drift, predict_table, read_for

ROLES = Roles(target="y", covariates=("age",), categories=("ward",))


def study(n=40, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 8))
    y = np.where(X[:, 0] + 0.3 * rng.standard_normal(n) > 0, "ill", "well")
    frame = pd.DataFrame(X, columns=[f"g{j}" for j in range(8)])
    frame.insert(0, "y", y)
    frame.insert(1, "age", rng.integers(20, 80, n))
    frame.insert(2, "ward", rng.integers(1, 4, n))
    return frame


def written(frame, path):
    frame.to_csv(path, index=False)
    return path


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.mark.parametrize("impute", ["median", "knn"])
def test_gaps_are_filled_alike_in_new_samples(impute, tmp_path):
    frame, new = study(), study(20, seed=1)
    gaps = np.random.default_rng(2).random((40, 8)) < 0.1
    frame.iloc[:, 3:] = frame.iloc[:, 3:].mask(gaps)
    new.loc[3, "g0"] = np.nan
    table = read_table(written(frame, tmp_path / "t.csv"), ROLES)
    with pytest.raises(BadTable, match=r"the value is missing \(\d+ such values in all\).*--impute median"):
        fit_table(table)
    fitted = fit_table(table, impute=impute)
    assert any("values are missing and were filled in" in step for step in fitted.table.steps)
    fitted.model.save(tmp_path / "m.safetensors")
    model = foldless.load(tmp_path / "m.safetensors")
    read = read_for(model, written(new, tmp_path / "new.csv"), Roles(target="y"))
    assert read.feature_names == fitted.table.feature_names
    filled = read.X[3, read.feature_names.index("g0")]
    if impute == "median":
        assert filled == np.nanmedian(frame["g0"])
    assert np.isfinite(filled)
    assert predict_table(model, read).error < 0.4


def test_words_are_coded_and_unknown_ones_are_told(tmp_path):
    frame, new = study(), study(10, seed=1)
    frame["ward"], new["ward"] = frame["ward"].map(str), "north"
    path = written(frame, tmp_path / "t.csv")
    _, table = Preparation.fit(read_table(path, ROLES))
    most = frame["ward"].value_counts().index[0]
    others = sorted(set(frame["ward"]) - {most}, key=lambda w: (-np.sum(frame["ward"] == w), w))
    assert table.feature_names[:2] == [f"ward={w}" for w in others]
    assert_array_equal(table.X[:, 0], frame["ward"] == others[0])
    assert table.covariates == (*table.feature_names[:2], "age")
    model = fit_table(read_table(path, ROLES)).model
    assert model.get_support()[:3].all()
    read = read_for(model, written(new, tmp_path / "new.csv"), Roles())
    assert_array_equal(read.X[:, :2], 0)
    assert any("does not know" in step and "'north'" in step for step in read.steps)


def test_names_and_constants_are_no_categories(tmp_path):
    frame = study()
    frame["ward"] = [f"w{i}" for i in range(40)]
    with pytest.raises(BadTable, match=r"'ward' has 40 different words in 40 rows"):
        Preparation.fit(read_table(written(frame, tmp_path / "t.csv"), ROLES))
    frame["ward"] = "w"
    with pytest.raises(BadTable, match=r"'ward' is 'w' everywhere"):
        Preparation.fit(read_table(written(frame, tmp_path / "t.csv"), ROLES))


def test_counts_per_million(tmp_path):
    frame = study()
    counts = np.random.default_rng(0).poisson(50, (40, 8)).astype(float)
    frame.iloc[:, 3:] = counts
    table = read_table(written(frame, tmp_path / "t.csv"), ROLES)
    wanted = np.log2(1 + 1e6 * counts / counts.sum(axis=1, keepdims=True))
    _, turned = Preparation.fit(table, log_cpm=True)
    assert_allclose(turned.X[:, 3:], wanted)
    assert_array_equal(turned.X[:, 2], frame["age"])
    _, sparse = Preparation.fit(replace(table, X=sp.csr_array(table.X)), log_cpm=True)
    assert_allclose(sparse.X.toarray(), turned.X)


def test_predict_takes_any_label_and_notices_other_scales(tmp_path):
    frame, new = study(), study(20, seed=1)
    new.loc[:4, "y"] = "recovered"
    new.loc[5, "y"] = ""
    written(frame, tmp_path / "t.csv")
    done = run(
        "fit", tmp_path / "t.csv", "--target", "y", "--class-weight", "ill=2", "--out", tmp_path / "out"
    )
    assert done.exit_code == 0, done.output + done.stderr
    model = tmp_path / "out" / "model.safetensors"
    assert foldless.load(model).class_weight == {"ill": 2.0, "well": 1.0}
    asked = ["predict", tmp_path / "out", written(new, tmp_path / "new.csv"), "--target", "y", "--force"]
    done = run(*asked, "--out", tmp_path / "p.tsv")
    assert done.exit_code == 0, done.output + done.stderr
    assert "does not know, not compared: none (1), recovered (5)" in " ".join(done.output.split())
    assert "columns" not in done.output
    assert read_tsv(tmp_path / "p.tsv")[1][5][1] == ""
    new[["g2", "g3"]] *= 1000.0
    new["g4"] += 50.0
    written(new, tmp_path / "new.csv")
    told = " ".join(run(*asked, "--out", tmp_path / "p.tsv").output.split())
    assert "of 10 columns lie elsewhere than in the table of the fit" in told
    assert "2 of 10 columns vary on another scale: 'g" in told
    forgotten = study(20, seed=1)
    forgotten.iloc[:, 3:] = 2.0 ** (forgotten.iloc[:, 3:] + 1)
    written(forgotten, tmp_path / "new.csv")
    told = " ".join(run(*asked, "--out", tmp_path / "p.tsv").output.split())
    assert "8 of 10 columns lie elsewhere" in told


def test_predict_asks_about_columns_that_someone_should_look_at():
    """Not about single columns with long tails, or words that new texts do not have."""
    rng = np.random.default_rng(0)
    n, p = 60, 2000
    X = rng.standard_t(2.0, (n, p))  # no variance to speak of
    X[:, p // 2 :] = rng.random((n, p // 2)) < 0.05
    y = np.repeat(["ill", "well"], n // 2)
    X[y == "ill", 0] += 3.0
    X[y == "ill", 1] += 0.5
    names = [f"g{j}" for j in range(p)]
    table = Table(Path("t.csv"), X, names, [str(i) for i in range(n)], target=y)
    model = fit_table(table).model
    new = rng.standard_t(2.0, (12, p))
    new[:, p // 2 :] = rng.random((12, p // 2)) < 0.05
    far = np.abs(new.mean(axis=0) - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-9)
    new[:, 5] = 40.0 * X[:, 5].std()  # far, and without a weight
    assert np.abs(model.coef_[0, 5]) * 40.0 * X[:, 5].std() < 1.0
    assert far.max() > 1.0
    samples = [str(i) for i in range(12)]
    asked = Table(Path("n.csv"), new, names, samples)
    assert drift(model, asked) == []
    assert drift(model, replace(asked, X=sp.csr_array(new))) == []
    new[:, 0] *= 1000.0  # the one that counts, in other units
    told = drift(model, asked)
    assert told
    assert all(f"1 of {2000:,} columns".replace(",", "\u202f") in each or "1 of 2" in each for each in told)
    assert all("'g0'" in each for each in told)
    new[:, : p // 8] += 50.0 * X[:, : p // 8].std(axis=0)  # more of them than tails can be
    assert any("lie elsewhere" in each and " and " in each for each in drift(model, asked))


def test_weights_of_classes_are_checked(tmp_path):
    written(study(), tmp_path / "t.csv")
    asked = ["fit", tmp_path / "t.csv", "--target", "y", "--class-weight"]
    assert "no class 'il'" in run(*asked, "il=2").stderr
    assert "has no number" in run(*asked, "ill=much").stderr
