"""`foldless plan`: answers, files, exit codes, pilots of every form, and hostile ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from foldless.cli import app
from foldless.cli.options import Asked
from foldless.cli.plan import read_pilot
from foldless.datasets import make_class_means
from foldless.io import Reading, Roles

PNG = b"\x89PNG\r\n\x1a\n"
GUESS = ("--features", 2000, "--markers", 20)


def run(*arguments: object):
    return CliRunner().invoke(app, ["plan", *(str(a) for a in arguments)])


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.fixture(scope="module")
def pilot_table():
    data = make_class_means(60, 200, 6, bayes_error=0.02, random_state=0)
    table = pd.DataFrame(data.X, columns=[f"gene {j}" for j in range(200)])
    return table.assign(tissue=np.where(data.y > 0, "tumour", "normal"))


def test_the_question_of_the_manual_has_its_answer():
    command = [sys.executable, "-m", "foldless", "plan"]
    command += ["--features", "20000", "--markers", "20", "--error", "0.1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "You need about 11" in done.stdout
    assert "at most 10 % of new samples" in words(done.stdout)
    assert "Features are independent within a class" in done.stdout
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_a_plan_is_written_and_may_be_overwritten(tmp_path):
    for _ in range(2):
        result = run(*GUESS, "--power", 0.8, "--samples", 60, "--samples", 120, "--out", tmp_path / "new")
        assert result.exit_code == 0, result.output
    assert sorted(p.name for p in (tmp_path / "new").iterdir()) == ["plan.json", "plan.png"]
    assert (tmp_path / "new" / "plan.png").read_bytes().startswith(PNG)
    answer = json.loads((tmp_path / "new" / "plan.json").read_text())
    assert [row["n_samples"] for row in answer["table"]] == [60, 120]
    assert answer["needed"]["power"] >= 0.8
    assert answer["study"]["effect"] == 0.8


def test_json_is_all_there_is():
    result = run(*GUESS, "--error", 0.1, "--json")
    assert result.exit_code == 0
    answer = json.loads(result.stdout)
    assert answer["target"] == {"error": 0.1, "power": None}
    assert answer["simulated"] == []


def test_a_logistic_weight_is_another_question():
    by_weight = json.loads(run(*GUESS, "--weight", 0.8, "--samples", 200, "--json").stdout)
    by_effect = json.loads(run(*GUESS, "--effect", 0.8, "--samples", 200, "--json").stdout)
    assert by_weight["study"]["labels"] == "logistic"
    assert by_weight["table"][0]["error"] > by_effect["table"][0]["error"] + 0.05


def test_a_plan_without_target_asks_for_one():
    result = run(*GUESS)
    assert result.exit_code == 0
    assert "give a target: --error 0.1" in result.output


def test_a_plan_is_checked_by_simulation():
    options = ("--features", 300, "--markers", 10, "--effect", 1.2, "--error", 0.08, "--runs", 3)
    result = run(*options, "--simulate", "--json")
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    sizes = [row["n_samples"] for row in answer["simulated"]]
    assert len(sizes) == 3
    assert answer["needed"]["n_samples"] in sizes
    shown = run(*options, "--simulate").output
    assert "±" in shown


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".npz"])
def test_a_pilot_may_have_any_form(tmp_path, pilot_table, suffix):
    path = tmp_path / f"pilot{suffix}"
    if suffix == ".npz":
        features = pilot_table.drop(columns="tissue").to_numpy()
        np.savez(path, X=features, tissue=pilot_table.tissue.to_numpy(dtype=str))
    else:
        pilot_table.to_csv(path, index=False, sep="\t" if suffix == ".tsv" else ",")
    X, y = read_pilot(path, Asked(Roles(target="tissue"), Reading(), None))
    assert np.asarray(X).shape == (60, 200)
    assert set(y) == {"normal", "tumour"}


def test_a_pilot_is_read_like_the_table_of_a_fit(tmp_path, pilot_table):
    """Genes in rows, classes in a sheet, a column that is no feature: with the options that errors name."""
    samples = [f"s{i}" for i in range(60)]
    turned = pilot_table.drop(columns="tissue").set_axis(samples).T
    turned.to_csv(tmp_path / "genes.csv", decimal=",", sep=";")
    sheet = pd.DataFrame({"id": samples, "tissue": pilot_table.tissue.to_numpy()})
    sheet.to_csv(tmp_path / "sheet.csv", index=False)
    options = ["--sample-sheet", tmp_path / "sheet.csv", "--target", "tissue", "--json"]
    result = run("--pilot", tmp_path / "genes.csv", *options)
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.output)["study"]["n_features"] == 200
    unnamed = run("--pilot", tmp_path / "genes.csv")
    assert unnamed.exit_code == 2
    assert "--target COLUMN" in words(unnamed.stderr)


def test_a_pilot_is_planned_from(tmp_path, pilot_table):
    path = tmp_path / "pilot.csv"
    pilot_table.to_csv(path, index=False)
    result = run("--pilot", path, "--target", "tissue", "--error", 0.05, "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert "The pilot's 60 samples suggest" in words(result.output)
    assert "With 60 more samples the error" in words(result.output)
    assert (tmp_path / "learning_curve.png").read_bytes().startswith(PNG)
    answer = json.loads((tmp_path / "plan.json").read_text())
    assert answer["study"]["n_features"] == 200
    assert answer["learning_curve"]["n_samples_seen"] == 60


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("a,b\n1,2\n", "no column 'y', named as --target. It has: 'a', 'b'"),
        ("b,a,y\n1,x,0\n2,z,1\n", "columns that are not numbers but words: 'a'"),
        ('"\x1b[2J",z\n1,0\n', r"\x1b[2J"),
        ("", "the file is empty"),
        ("a,y\n1,0\n2,0\n", "of one class"),
        ("a,y\n1,0\n,1\n", "the value is missing"),
    ],
)
def test_a_pilot_that_cannot_be_used_is_told_in_a_line(tmp_path, content, says):
    path = tmp_path / "pilot.csv"
    path.write_text(content)
    result = run("--pilot", path, "--target", "y", "--error", 0.1)
    assert result.exit_code == 3
    assert says in words(result.stderr)
    assert "\x1b" not in result.stderr
    assert "Traceback" not in result.output


def test_an_npz_without_its_arrays_names_those_it_has(tmp_path):
    path = tmp_path / "pilot.npz"
    np.savez(path, data=np.ones(3))
    result = run("--pilot", path)
    assert result.exit_code == 3
    assert "no matrix of numbers called 'X'; there are 'data'" in words(result.stderr)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--error", "0.1"],
        ["--features", "100"],
        [*GUESS, "--effect", "1", "--weight", "1"],
        [*GUESS, "--pilot", __file__],
        [*GUESS, "--samples", "3"],
        [*GUESS, "--runs", "1"],
        ["--pilot", "nowhere.csv"],
        [*GUESS, "--out", __file__],
    ],
)
def test_wrong_options_are_usage_errors(arguments):
    result = run(*arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    "arguments", [["--markers", 3000], ["--error", 1.5], ["--effect", -1], ["--balance", 2], ["--fdr", 0]]
)
def test_impossible_guesses_are_bad_data(arguments):
    options = {"--features": 2000, "--markers": 20}
    options |= dict(zip(arguments[::2], arguments[1::2], strict=True))
    result = run(*(part for pair in options.items() for part in pair))
    assert result.exit_code == 3
    assert result.stderr.startswith("foldless: ")


def test_a_failed_write_is_told_and_leaves_the_old_plan(tmp_path, monkeypatch):
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    (tmp_path / "plan.json").write_text("old")
    result = run(*GUESS, "--samples", 100, "--out", tmp_path)
    assert result.exit_code == 1
    assert (tmp_path / "plan.json").read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["plan.json"]


def test_help_names_every_option_and_imports_nothing_slow():
    code = """
import sys
from foldless.cli import app
try:
    app(["plan", "--help"])
except SystemExit as end:
    assert not end.code
slow = {"sklearn", "scipy", "numpy", "matplotlib", "pandas", "rich"} & set(sys.modules)
sys.exit(f"imported {slow}" if slow else 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for option in ("--features", "--markers", "--effect", "--error", "--power", "--samples", "--pilot"):
        assert option in done.stdout
