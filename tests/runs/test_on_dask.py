"""`foldless fit --dask`: a Parquet table fitted where it is read, and what is said when that cannot be."""

from __future__ import annotations

import json
import sys

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from foldless.cli import app
from foldless.cli.terminal import ExitCode
from foldless.datasets import make_class_means
from foldless.io.tsv import read_tsv

distributed = pytest.importorskip("distributed")
pytest.importorskip("pyarrow")


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture(scope="module")
def address():
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0", protocol="tcp"
    ) as cluster:
        yield cluster.scheduler_address


@pytest.fixture(scope="module")
def frame():
    data = make_class_means(n_samples=80, n_features=120, n_active=4, random_state=0)
    frame = pd.DataFrame(data.X, columns=[f"gene {j}" for j in range(120)])
    frame.insert(0, "tissue", np.where(data.y > 0, "tumour", "healthy"))
    frame.insert(1, "patient", [f"p{i}" for i in range(80)])
    return frame


@pytest.fixture
def table(frame, tmp_path):
    frame.to_parquet(tmp_path / "big.parquet", index=False, row_group_size=25)
    return tmp_path / "big.parquet"


def test_results_are_those_of_a_fit_in_memory(table, address, tmp_path):
    options = (table, "--target", "tissue", "--samples", "patient")
    there = run("fit", *options, "--dask", address, "--out", tmp_path / "there")
    assert there.exit_code == 0, there.output + there.stderr
    here = run("fit", *options, "--out", tmp_path / "here")
    assert here.exit_code == 0
    for name in ("features.tsv", "predictions.tsv"):
        (header, ours), (expected_header, expected) = (
            read_tsv(tmp_path / place / name) for place in ("there", "here")
        )
        if "auc" in expected_header:  # needs the values
            at = expected_header.index("auc")
            for line in (expected_header, *expected):
                del line[at]
        assert header == expected_header
        assert len(ours) == len(expected)
        for line, other in zip(ours, expected, strict=True):
            for text, wanted in zip(line, other, strict=True):
                assert text == wanted or float(text) == pytest.approx(float(wanted), rel=1e-6, abs=1e-9)
    record = json.loads((tmp_path / "there" / "run.json").read_text())
    assert record["table"]["samples"] == 80
    assert (
        record["table"]["sha256"]
        == json.loads((tmp_path / "here" / "run.json").read_text())["table"]["sha256"]
    )
    assert "Rows were read by the workers of a Dask cluster." in record["table"]["steps"]
    model = tmp_path / "there" / "model.safetensors"
    predicted = run("predict", model, table, "--samples", "patient", "--out", tmp_path / "new.tsv")
    assert predicted.exit_code == 0, predicted.output + predicted.stderr


def test_a_folder_of_files_is_one_table(frame, address, tmp_path):
    folder = tmp_path / "big.parquet"
    folder.mkdir()
    frame[:50].to_parquet(folder / "part.0.parquet", index=False)
    frame[50:].to_parquet(folder / "part.1.parquet", index=False)
    result = run(
        "fit",
        folder,
        "--target",
        "tissue",
        "--ignore",
        "patient",
        "--dask",
        address,
        "--out",
        tmp_path / "out",
    )
    assert result.exit_code == 0, result.output + result.stderr
    record = json.loads((tmp_path / "out" / "run.json").read_text())
    assert (record["table"]["samples"], record["table"]["features"]) == (80, 120)


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--target", "tissue"), ExitCode.BAD_DATA, "'patient' holds"),
        (("--target", "tisue"), ExitCode.BAD_DATA, "Did you mean 'tissue'?"),
        (
            ("--target", "tissue", "--ignore", "patient", "--model", "smlr"),
            ExitCode.BAD_DATA,
            "needs them in",
        ),
        (("--target", "tissue", "--learning-curve"), ExitCode.USAGE, "needs the table on this machine"),
    ],
)
def test_what_cannot_be_fitted_is_said(options, code, said, table, address, tmp_path):
    result = run("fit", table, *options, "--dask", address, "--out", tmp_path / "out")
    assert result.exit_code == code, result.output
    assert said in " ".join((result.output + result.stderr).split())
    assert not (tmp_path / "out").exists()


def test_other_files_are_refused(frame, address, tmp_path):
    frame.to_csv(tmp_path / "table.csv", index=False)
    result = run("fit", tmp_path / "table.csv", "--target", "tissue", "--dask", address)
    assert result.exit_code == ExitCode.BAD_DATA
    assert "reads Parquet" in result.stderr
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 nothing PAR1")
    result = run("fit", tmp_path / "bad.parquet", "--target", "tissue", "--dask", address)
    assert result.exit_code == ExitCode.BAD_DATA
    assert "cannot be read as Parquet" in result.stderr


def test_a_missing_scheduler_is_named(table, tmp_path, monkeypatch):
    monkeypatch.setattr("foldless.runs.cluster.CONNECT_SECONDS", 0.5)
    for address in ("tcp://127.0.0.1:9", "nonsense://x"):
        result = run("fit", table, "--target", "tissue", "--dask", address, "--out", tmp_path / "out")
        assert result.exit_code == ExitCode.FAILED, result.output
        assert f"no Dask scheduler answers at {address}" in result.stderr


def test_the_extra_is_named_if_it_is_missing(table, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    result = run("fit", table, "--target", "tissue", "--dask", "tcp://127.0.0.1:9", "--out", tmp_path / "out")
    assert result.exit_code == ExitCode.FAILED
    assert "pip install 'foldless[dask]'" in result.stderr
