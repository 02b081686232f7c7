"""What people take along: a workbook without formulas, lists for enrichment, figures whose text is text."""

from __future__ import annotations

import csv
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from openpyxl import load_workbook
from scipy import stats
from typer.testing import CliRunner

from foldless.cli import app
from foldless.cli.terminal import ExitCode
from foldless.datasets import make_class_means
from foldless.io import Roles
from foldless.io.read import read_table
from foldless.io.spreadsheet import write_workbook
from foldless.runs.guards import cautions
from foldless.selection.marginal import ClassSums
from reference.hostile_names import HOSTILE_NAMES

# Names of genes that a spreadsheet would run, calculate, link or turn into a date.
RISKY = ["=1+1", "+5", "-3", "@SUM(A1)", "https://example.org", "SEPT2", "1e5", '=HYPERLINK("x")']


@pytest.fixture(scope="module")
def study() -> Any:
    return make_class_means(60, 40, 3, random_state=0)


def run(*arguments: Any) -> Any:
    return CliRunner().invoke(app, [str(a) for a in arguments])


def written(study: Any, path: Path, labels: Any, names: list[str]) -> Path:
    with open(path, "w", encoding="utf-8", newline="") as stream:
        rows = csv.writer(stream)
        rows.writerow(["sample", "tissue", *names])
        rows.writerows(
            [f"s{i}", y, *x.round(4)] for i, (x, y) in enumerate(zip(study.X, labels, strict=True))
        )
    return path


@pytest.fixture(scope="module")
def results(study: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    names = [*RISKY, *(f"g{j}" for j in range(len(RISKY), 40))]
    table = written(study, folder / "t.csv", np.where(study.y > 0, "ill", "well"), names)
    done = run(
        "fit", table, "--target", "tissue", "--out", folder / "out", "--xlsx", "--lists", "--figures", 89
    )
    assert done.exit_code == 0, done.output + done.stderr
    assert "results.xlsx, lists/, figures/" in done.output.replace("\n", " ")
    return folder / "out"


def test_the_workbook_has_all_tables_and_no_formula(results: Path) -> None:
    book = load_workbook(results / "results.xlsx")
    assert book.sheetnames == ["Answers", "Features", "Predictions"]
    for sheet in book:
        assert {cell.data_type for row in sheet for cell in row} <= {"s", "n"}
        assert not sheet._hyperlinks
    features = list(book["Features"].values)
    with open(results / "features.tsv", encoding="utf-8", newline="") as stream:
        lines = list(csv.reader(stream, delimiter="\t"))
    assert list(features[0]) == lines[0]
    assert {str(row[0]) for row in features[1:]} >= set(RISKY)
    surest = features[1][features[0].index("inclusion_probability")]
    assert surest == pytest.approx(float(lines[1][lines[0].index("inclusion_probability")]))
    questions = [row[0] for row in book["Answers"].values]
    assert "Can the classes be told apart?" in questions


def test_names_of_others_come_back_as_they_were(tmp_path: Path) -> None:
    """Half a character has no place in XML; everything else is there, as text."""
    names = [name for name in HOSTILE_NAMES if name and name.isprintable()]
    values = [None, True, np.nan, np.inf, 1, np.float32(0.5), *names]
    for path in (tmp_path / "a.xlsx", tmp_path / "b.xlsx"):
        write_workbook(path, {"Sheet": [("=name", values), ("\ud800", [0.0])]})
    assert (tmp_path / "a.xlsx").read_bytes() == (tmp_path / "b.xlsx").read_bytes()
    cells = [row[0] for row in load_workbook(tmp_path / "a.xlsx")["Sheet"].iter_rows()]
    assert cells[0].value == "=name"
    assert [cell.value for cell in cells[1:7]] == [None, "yes", "nan", "inf", 1, 0.5]
    assert [cell.value for cell in cells[7:]] == names
    assert {cell.data_type for cell in cells[7:]} == {"s"}


def test_ranks_are_t_statistics_of_single_features(results: Path, study: Any) -> None:
    lines = [line.split("\t") for line in (results / "lists" / "ranked.rnk").read_text().splitlines()]
    scores = np.array([float(score) for _, score in lines])
    assert len(lines) == 40
    assert np.all(np.diff(scores) <= 0)
    # "well" is the second class, and has the label -1.
    expected = stats.ttest_ind(study.X[study.y < 0].round(4), study.X[study.y > 0].round(4)).statistic
    named = {name: score for (name, _), score in zip(lines, scores, strict=True)}
    np.testing.assert_allclose([named[f"g{j}"] for j in range(8, 40)], expected[8:], rtol=1e-4)
    lists = {path.name: path.read_text().splitlines() for path in (results / "lists").glob("*.txt")}
    assert sorted(lists["all.txt"]) == sorted(named)
    assert sorted(lists["differing.txt"]) == sorted(
        [*lists["higher_in_1_ill.txt"], *lists["higher_in_2_well.txt"]]
    )
    assert all(named[name] > 0 for name in lists["higher_in_2_well.txt"])
    assert lists["selected.txt"]


def test_each_of_several_classes_has_its_ranks(study: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    codes = np.arange(90) % 3
    X = rng.standard_normal((90, 6))
    X[:, 0] += 2 * (codes == 2)
    counts = np.bincount(codes).astype(float)
    z = (X - X.mean(axis=0)) / X.std(axis=0)
    sums = ClassSums(np.array([z[codes == k].mean(axis=0) for k in range(3)]).T, counts)
    # One contrast of a one-way analysis of variance, written out.
    within = sum(((z[codes == k] - z[codes == k].mean(axis=0)) ** 2).sum(axis=0) for k in range(3)) / 87
    change = z[codes == 2].mean(axis=0) - z[codes != 2].mean(axis=0)
    np.testing.assert_allclose(sums.t[:, 2], change / np.sqrt(within * (1 / 30 + 1 / 60)))
    labels = np.array(["a/b", "..", "c d"])[np.arange(60) % 3]
    table = written(study, tmp_path / "t.csv", labels, [f"g{j}" for j in range(40)])
    done = run("fit", table, "--target", "tissue", "--out", tmp_path / "out", "--lists")
    assert done.exit_code == 0, done.output + done.stderr
    ranked = sorted(path.name for path in (tmp_path / "out" / "lists").glob("*.rnk"))
    assert ranked == ["ranked_1.rnk", "ranked_2_a_b.rnk", "ranked_3_c_d.rnk"]


def test_figures_are_as_wide_as_a_column_and_their_text_is_text(results: Path) -> None:
    figures = results / "figures"
    names = {path.stem for path in figures.iterdir()}
    assert {"heat_map", "values", "inclusion", "weights", "leave_one_out", "roc", "calibration"} <= names
    for name in names:
        svg = (figures / f"{name}.svg").read_text(encoding="utf-8")
        width = float(re.search(r'<svg [^>]*width="([\d.]+)pt"', svg)[1])
        assert width / 72 * 25.4 == pytest.approx(89, abs=0.1)
        assert "<text" in svg
        assert "<script" not in svg
        pdf = (figures / f"{name}.pdf").read_bytes()
        assert b"/FontFile2" in pdf  # TrueType, embedded
        assert b"/CreationDate" not in pdf
    surest = (results / "lists" / "selected.txt").read_text().splitlines()[0]
    assert f">{surest}<" in (figures / "weights.svg").read_text(encoding="utf-8")


def test_the_same_fit_has_the_same_files(results: Path, tmp_path: Path) -> None:
    again = run("fit", results.parent / "t.csv", "--target", "tissue", "--out", tmp_path, "--xlsx", "--lists",
                "--figures", 89)  # fmt: skip
    assert again.exit_code == 0
    first, second = (json.loads((folder / "run.json").read_text())["files"] for folder in (results, tmp_path))
    same = [name for name in first if name != "report.html"]  # which has the seconds of the fit
    assert {name: second[name] for name in same} == {name: first[name] for name in same}
    assert sum(name.startswith("figures/") for name in same) >= 14


def test_what_cannot_be_had_is_said_before_any_work(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = results.parent / "t.csv"
    there = run("fit", table, "--target", "tissue", "--out", results, "--lists")
    assert there.exit_code == ExitCode.USAGE
    refused = run("fit", table, "--target", "tissue", "--model", "smlr", "--lists", "--out", tmp_path / "a")
    assert refused.exit_code == ExitCode.BAD_DATA
    assert "--lists" in refused.stderr
    monkeypatch.setitem(sys.modules, "xlsxwriter", None)
    missing = run("fit", table, "--target", "tissue", "--xlsx", "--out", tmp_path / "b")
    assert missing.exit_code == ExitCode.FAILED
    assert "pip install 'foldless[excel]'" in missing.stderr
    assert not (tmp_path / "a").exists()
    assert not (tmp_path / "b").exists()


def test_words_of_a_parquet_table_are_covariates(study: Any, tmp_path: Path) -> None:
    frame = pd.DataFrame(study.X, columns=[f"g{j}" for j in range(40)])
    frame["tissue"] = np.where(study.y > 0, "ill", "well")
    frame["batch"] = pd.Categorical(np.array(list("ABC"))[np.arange(60) % 3])
    frame.to_parquet(tmp_path / "t.parquet")
    refused = run("fit", tmp_path / "t.parquet", "--target", "tissue", "--out", tmp_path / "a")
    assert "--covariates" in refused.stderr
    done = run(
        "fit", tmp_path / "t.parquet", "--target", "tissue", "--covariates", "batch", "--out", tmp_path / "b"
    )
    assert done.exit_code == 0, done.stderr
    assert "batch=B" in (tmp_path / "b" / "features.tsv").read_text()


def test_counts_have_no_codes_and_are_recognised_once(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.poisson(30, (40, 120)), columns=[f"g{j}" for j in range(120)])
    frame.loc[3, "g5"], frame.loc[4, "g6"] = 999, 400
    frame.insert(0, "tissue", np.where(np.arange(40) % 2, "ill", "well"))
    frame.to_csv(tmp_path / "t.csv", index=False)
    table = read_table(tmp_path / "t.csv", Roles(target="tissue"))
    said = " ".join(cautions(table))
    assert "stands far" not in said
    assert "--log-cpm" in said
    assert "--log-cpm" not in " ".join(cautions(table, log_cpm=True))


def test_symbols_beside_genes_in_rows_are_shown_with_their_names(study: Any, tmp_path: Path) -> None:
    samples = [f"s{i}" for i in range(60)]
    frame = pd.DataFrame(study.X.T.round(4), index=[f"ENSG{j}" for j in range(40)], columns=samples)
    frame.insert(0, "symbol", [f"=GENE{j}" for j in range(40)])
    frame.to_csv(tmp_path / "t.tsv", sep="\t")
    sheet = pd.DataFrame({"id": samples, "tissue": np.where(study.y > 0, "ill", "well")})
    sheet.to_csv(tmp_path / "sheet.csv", index=False)
    asked = ["--sample-sheet", tmp_path / "sheet.csv", "--target", "tissue", "--out", tmp_path / "out"]
    done = run("fit", tmp_path / "t.tsv", *asked)
    assert "Words about features, shown beside their names: 'symbol'." in done.output
    lines = (tmp_path / "out" / "features.tsv").read_text().splitlines()
    header, *rows = [line.split("\t") for line in lines]
    assert header[-1] == "description"
    assert all(row[-1] == "'=GENE" + row[0].removeprefix("ENSG") for row in rows)
    assert f"=GENE{rows[0][0].removeprefix('ENSG')}" in (tmp_path / "out" / "report.html").read_text()


def test_a_table_longer_than_a_sheet_goes_on_in_the_next(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("foldless.io.spreadsheet.MOST_ROWS", 4)
    write_workbook(tmp_path / "a.xlsx", {"Features": [("n", range(7)), ("few", ["a"])], "Short": [("n", [])]})
    book = load_workbook(tmp_path / "a.xlsx")
    assert book.sheetnames == ["Features", "Features 2", "Features 3", "Short"]
    assert [[cell.value for cell in sheet["A"]] for sheet in book.worksheets[:3]] == [
        ["n", 0, 1, 2],
        ["n", 3, 4, 5],
        ["n", 6],
    ]
