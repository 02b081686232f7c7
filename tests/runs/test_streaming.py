"""The command line with tables that stay on disk, and with fits that are resumed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from typer.testing import CliRunner

import foldless
from foldless.cli import app
from foldless.cli.terminal import ExitCode
from foldless.datasets import make_class_means
from foldless.io.matrix import read_labels
from foldless.io.table import BadTable, OverBudget
from foldless.runs import streaming
from foldless.runs.printing import Progress


@pytest.fixture(scope="module")
def study() -> Any:
    return make_class_means(n_samples=60, n_features=80, n_active=3, random_state=0)


def run(*arguments: Any) -> Any:
    return CliRunner().invoke(app, [str(a) for a in arguments])


def succeeded(*arguments: Any) -> None:
    result = run(*arguments)
    assert result.exit_code == 0, result.output + result.stderr


def as_parquet(study: Any, folder: Path) -> Path:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    columns: dict[str, Any] = {"sample": [f"patient {i}" for i in range(60)]}
    columns |= {f"g{j}": study.X[:, j] for j in range(80)}
    columns |= {"class": np.where(study.y > 0, "ill", "well"), "clinic": np.arange(60) // 5}
    pq.write_table(pa.table(columns), folder / "table.parquet", row_group_size=16)
    return folder / "table.parquet"


def too_large(*args: Any, **options: Any) -> Any:
    raise OverBudget("too large")


def steps(folder: Path) -> list[str]:
    return json.loads((folder / "run.json").read_text())["table"]["steps"]


def test_a_streamed_table_has_the_results_of_one_in_memory(study: Any, tmp_path: Path) -> None:
    table = as_parquet(study, tmp_path)
    options = ["--target", "class", "--ignore", "clinic", "--covariates", "g7"]
    succeeded("fit", table, *options, "--out", tmp_path / "here")
    succeeded("fit", table, *options, "--out", tmp_path / "there", "--stream")
    here, there = (foldless.load(tmp_path / out / "model.safetensors") for out in ("here", "there"))
    assert_allclose(there.coef_, here.coef_, rtol=0, atol=1e-9 * np.abs(here.coef_).max())
    assert list(there.feature_names_in_) == list(here.feature_names_in_)
    for name in ("features.tsv", "predictions.tsv"):
        columns = [
            [line.split("\t")[0] for line in (tmp_path / out / name).read_text().splitlines()]
            for out in ("here", "there")
        ]
        assert columns[0] == columns[1]
    assert "patient 3" in (tmp_path / "there" / "predictions.tsv").read_text()
    assert streaming.STEP in steps(tmp_path / "there")
    assert streaming.STEP not in steps(tmp_path / "here")
    assert (tmp_path / "there" / "report.html").exists()


def test_groups_come_from_the_file_too(study: Any, tmp_path: Path) -> None:
    table = as_parquet(study, tmp_path)
    succeeded("fit", table, "--target", "class", "--groups", "clinic", "--stream", "--out", tmp_path / "out")
    assert "group" in (tmp_path / "out" / "predictions.tsv").read_text().splitlines()[0]


def test_a_table_that_does_not_fit_is_streamed_without_being_asked(
    study: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "read_table", too_large)
    table = as_parquet(study, tmp_path)
    succeeded("fit", table, "--target", "class", "--ignore", "clinic", "--out", tmp_path / "out")
    assert streaming.STEP in steps(tmp_path / "out")
    (tmp_path / "table.csv").write_text("a,class\n1,x\n2,y\n")
    refused = run("fit", tmp_path / "table.csv", "--target", "class", "--out", tmp_path / "csv")
    assert refused.exit_code == ExitCode.OUT_OF_MEMORY
    # What a fit needs beside the rows must still be allowed.
    refused = run("fit", table, "--target", "class", "--ignore", "clinic", "--max-memory", 0.01)
    assert refused.exit_code == ExitCode.OUT_OF_MEMORY


def test_matrices_without_labels_take_them_from_another_file(study: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", study.X.astype(np.float32))
    np.save(tmp_path / "y.npy", study.y)
    lines = [f"{i},{'ill' if label > 0 else 'well'}" for i, label in enumerate(study.y)]
    (tmp_path / "labels.csv").write_text("\n".join(["id,state", *lines]) + "\n")
    succeeded("fit", tmp_path / "X.npy", "--labels", tmp_path / "y.npy", "--out", tmp_path / "one")
    given = ["--labels", tmp_path / "labels.csv", "--target", "state"]
    succeeded("fit", tmp_path / "X.npy", *given, "--out", tmp_path / "two")
    one, two = (foldless.load(tmp_path / out / "model.safetensors") for out in ("one", "two"))
    assert_allclose(two.coef_, -one.coef_, rtol=1e-6)  # "ill" comes before "well", and -1 before 1
    assert list(two.classes_) == ["ill", "well"]
    asked = run("fit", tmp_path / "X.npy")
    assert asked.exit_code == ExitCode.USAGE
    assert "--labels" in asked.stderr


def test_predictions_of_rows_on_disk(study: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "X.npy", study.X)
    np.save(tmp_path / "y.npy", study.y)
    succeeded("fit", tmp_path / "X.npy", "--labels", tmp_path / "y.npy", "--out", tmp_path / "npy")
    model = tmp_path / "npy" / "model.safetensors"
    succeeded("predict", model, tmp_path / "X.npy", "--out", tmp_path / "npy.tsv")
    in_memory = pd.DataFrame(study.X, columns=[str(j) for j in range(1, 81)])
    expected = foldless.load(model).predict_proba(in_memory)[:, 1]
    lines = (tmp_path / "npy.tsv").read_text().splitlines()[1:]
    assert_allclose([float(line.split("\t")[-1]) for line in lines], expected, rtol=1e-9)

    def refused(name: str, X: np.ndarray, message: str) -> None:
        np.save(tmp_path / name, X)
        result = run("predict", model, tmp_path / name, "--out", tmp_path / "refused.tsv")
        assert result.exit_code == ExitCode.BAD_DATA
        assert message in " ".join(result.stderr.split())

    refused("narrow.npy", study.X[:, :-1], "there is no feature '80'")
    refused("wide.npy", np.column_stack([study.X, study.y]), "columns are others than those of the model")
    refused(
        "hole.npy",
        np.where(np.arange(60)[:, None] == 7, np.nan, study.X),
        "row 7 of X, counted from 0, holds values",
    )

    # Parquet is read by name, in the model's order, and from disk if it does not fit.
    table = as_parquet(study, tmp_path)
    succeeded("fit", table, "--target", "class", "--ignore", "clinic", "--out", tmp_path / "parquet")
    named = ["predict", tmp_path / "parquet" / "model.safetensors", table, "--target", "class"]
    succeeded(*named, "--out", tmp_path / "here.tsv")
    monkeypatch.setattr("foldless.runs.predict.read_table", too_large)
    succeeded(*named, "--out", tmp_path / "there.tsv")
    assert (tmp_path / "there.tsv").read_text() == (tmp_path / "here.tsv").read_text()


def test_labels_are_refused_with_a_reason(tmp_path: Path) -> None:
    np.save(tmp_path / "y.npy", np.zeros(4))
    (tmp_path / "two.tsv").write_text("id\tstate\n1\ta\n2\tb\n")
    (tmp_path / "one.tsv").write_text("state\na\nb\n")
    (tmp_path / "short.tsv").write_text("id\tstate\n1\ta\n2\n")
    assert read_labels(tmp_path / "one.tsv", None, 2).tolist() == ["a", "b"]
    for name, column, message in (
        ("y.npy", None, r"shape \(4,\), and 2 rows"),
        ("two.tsv", None, "2 columns.*--target"),
        ("two.tsv", "stat", "Did you mean 'state'"),
        ("short.tsv", "state", "Each line needs a value"),
        ("y.pickle", None, "suffix"),
    ):
        with pytest.raises(BadTable, match=message):
            read_labels(tmp_path / name, column, 2)


def test_the_same_command_resumes_a_fit_that_was_ended(
    study: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "X.npy", study.X)
    np.save(tmp_path / "y.npy", study.y)
    journal = tmp_path / "fit.journal"
    command = ["fit", tmp_path / "X.npy", "--labels", tmp_path / "y.npy", "--checkpoint", journal]
    succeeded(*command, "--out", tmp_path / "whole")
    assert not journal.exists()

    def interrupt(self: Progress, iteration: int, line: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Progress, "__call__", interrupt)
        assert run(*command, "--out", tmp_path / "resumed").exit_code == ExitCode.INTERRUPTED
    assert journal.exists()
    other = run(*command, "--fdr", 0.2, "--out", tmp_path / "other")
    assert other.exit_code == ExitCode.BAD_DATA
    assert "the parameter fdr was 0.1 and is 0.2" in " ".join(other.stderr.split())
    succeeded(*command, "--out", tmp_path / "resumed")
    whole, resumed = (tmp_path / out / "model.safetensors" for out in ("whole", "resumed"))
    assert resumed.read_bytes() == whole.read_bytes()
    assert not journal.exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--model", "smlr", "--stream"], "needs them in memory"),
        (["--model", "smlr", "--checkpoint", "fit.journal"], "cannot be resumed"),
        (["--learning-curve", "--stream"], "needs the table in memory"),
    ],
)
def test_what_cannot_be_done_from_disk_is_said_before_any_work(
    options: list[str], message: str, study: Any, tmp_path: Path
) -> None:
    table = as_parquet(study, tmp_path)
    given = ["--target", "class", "--ignore", "clinic", "--out", tmp_path / "out"]
    refused = run("fit", table, *given, *options)
    assert refused.exit_code == ExitCode.BAD_DATA
    assert message in " ".join(refused.stderr.split())
    assert not (tmp_path / "out").exists()


def test_formats_that_cannot_be_streamed_say_so(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("a,class\n1,x\n2,y\n")
    for options, message in ((["--stream"], "Known are .npy"), (["--labels", "y.npy"], "Name a column")):
        refused = run("fit", tmp_path / "table.csv", "--target", "class", *options)
        assert refused.exit_code == ExitCode.BAD_DATA
        assert message in " ".join(refused.stderr.split())
