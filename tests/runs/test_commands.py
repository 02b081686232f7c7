"""The command as people run it: every format to results and back, exit codes, interruption, hostile names."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from typer.testing import CliRunner

import foldless
from foldless.cli import app
from foldless.cli.terminal import ExitCode
from foldless.io.tsv import read_tsv
from reference.hostile_names import HOSTILE_FILE_NAMES, HOSTILE_NAMES
from reference.tables import NEEDS, OPTIONS, WRITERS, small, text_of

RESULTS = {"model.safetensors", "features.tsv", "predictions.tsv", "report.html", "run.json"}
PANEL_RESULTS = {"panel.safetensors", "panel.tsv", "panel_sizes.tsv", "panel.png"}
COMMANDS = ("demo", "check", "fit", "predict", "report", "inspect", "export", "compare", "plan")


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def in_a_process(*arguments, folder=None):
    command = [sys.executable, "-m", "foldless", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, encoding="utf-8", cwd=folder)


@pytest.fixture(scope="module")
def fitted_once(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fitted")
    (folder / "table.csv").write_text(text_of(small()), encoding="utf-8")
    result = run("fit", folder / "table.csv", *OPTIONS["table.csv"], "--out", folder / "out")
    assert result.exit_code == 0, result.output + result.stderr
    return folder


@pytest.fixture
def fitted(fitted_once, tmp_path):
    """A table and, in "out", its results, to be spoilt."""
    shutil.copytree(fitted_once, tmp_path, dirs_exist_ok=True)
    return tmp_path / "out"


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_from_file_to_results_and_back(name, tmp_path):
    """In a process of its own, in an empty folder, with default places for results."""
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    table = small()
    WRITERS[name](tmp_path / name, table)
    done = in_a_process("fit", name, *OPTIONS[name], "--fdr", "0.2", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "40 samples of 2 classes" in done.stdout
    assert re.search(r"leave-one-(group-)?out\s+error", done.stdout)
    assert "\x1b" not in done.stdout
    out = tmp_path / "table-foldless"
    assert {p.name for p in out.iterdir()} == RESULTS

    header, rows = read_tsv(out / "features.tsv")
    assert header[:4] == ["feature", "column", "inclusion_probability", "weight"]
    names = table.features if name != "table.svmlight" else [str(j) for j in range(1, 13)]
    covariates = ["age"] if "--covariates" in OPTIONS[name] else []
    assert sorted(row[0] for row in rows) == sorted([*covariates, *names])
    first = {row[0] for row in rows[: 2 + len(covariates)]}
    assert first == {*covariates, *names[:2]}  # the truth
    chances = [float(row[2]) for row in rows]
    assert chances == sorted(chances, reverse=True)

    header, rows = read_tsv(out / "predictions.tsv")
    classes = ["-1", "1"] if name == "table.svmlight" else ["ill", "well"]
    assert [column for column in header if column.startswith("probability")] == [
        f"probability:{c}" for c in classes
    ]
    assert len(rows) == 40
    wrong = np.mean([row[header.index("label")] != row[header.index("predicted")] for row in rows])
    record = json.loads((out / "run.json").read_text(encoding="ascii"))
    assert_allclose(record["result"]["leave_one_out_error"], wrong, atol=1e-12)
    assert record["table"]["sha256"] == hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()
    assert record["result"]["converged"] is True
    for file, digest in record["files"].items():
        assert hashlib.sha256((out / file).read_bytes()).hexdigest() == digest
    assert (out / "report.html").read_text(encoding="utf-8").startswith("<!")

    # The same table again, by the saved model: classes come back.
    asked = ["--target", "state"] if "--target" in OPTIONS[name] else []
    result = run("predict", out / "model.safetensors", tmp_path / name, *asked, "--out", tmp_path / "new.tsv")
    assert result.exit_code == 0, result.output + result.stderr
    header, rows = read_tsv(tmp_path / "new.tsv")
    assert np.mean([row[1] == row[2] for row in rows]) > 0.9
    proba = foldless.load(out / "model.safetensors").loo_proba_
    assert proba.shape == (40, 2)


def test_check_inspect_report_export_and_compare(fitted, tmp_path):
    out = fitted
    table = tmp_path / "table.csv"
    done = run("check", table, *OPTIONS["table.csv"])
    assert done.exit_code == 0, done.output
    assert "40 samples, 13 features" in done.output
    assert "ill (20), well (20)" in done.output
    assert "of memory" in " ".join(done.output.split())

    done = run("inspect", out / "model.safetensors")
    assert done.exit_code == 0, done.output
    assert "SparseClassifier, saved by foldless" in done.output
    assert "gene 0" in done.output

    asked = ["--target", "state", "--groups", "donor"]
    done = run("report", out / "model.safetensors", table, *asked, "--out", tmp_path / "page.html")
    assert done.exit_code == 0, done.output + done.stderr
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "gene 0" in page
    assert page.count("<script") == 1  # its own

    done = run("export", out / "model.safetensors", tmp_path / "weights.csv")
    assert done.exit_code == 0, done.output + done.stderr
    assert read_tsv(tmp_path / "weights.csv", delimiter=",")[1][1][0] == "age"
    assert run("export", out / "model.safetensors", tmp_path / "model.pickle").exit_code == 2
    done = run("export", out, "--out", tmp_path / "w.tsv")
    assert done.exit_code == 0, done.output + done.stderr
    assert read_tsv(tmp_path / "w.tsv")[1][1][0] == "age"
    for files in ([], [tmp_path / "a.csv", "--out", tmp_path / "b.csv"]):
        refused = run("export", out, *files)
        assert refused.exit_code == 2
        assert "name one file to write" in refused.stderr

    done = run("compare", table, *asked, "--ignore", "age", "--splits", 2, "--out", tmp_path / "c")
    assert done.exit_code == 0, done.output + done.stderr
    header, rows = read_tsv(tmp_path / "c" / "comparison.tsv")
    assert header == ["split", "method", "error", "log_loss", "n_features", "n_selected", "seconds"]
    assert len(rows) == 2 * 4
    assert len({row[1] for row in rows}) == 4
    assert all(0 <= float(row[2]) < 0.4 for row in rows)  # two features by 2.5 standard deviations
    assert [row[3] == "" for row in rows] == ["SVM" in row[1] for row in rows]
    assert all(method in done.output for method in {row[1] for row in rows})


@pytest.mark.parametrize("model", ["gamp", "smlr"])
def test_other_models_by_name(model, tmp_path):
    (tmp_path / "table.csv").write_text(text_of(small()), encoding="utf-8")
    asked = ["--target", "state", "--ignore", "donor", "--ignore", "age"]
    done = run("fit", tmp_path / "table.csv", *asked, "--model", model, "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output + done.stderr
    assert (
        type(foldless.load(tmp_path / "out" / "model.safetensors")).__name__ == f"{model.upper()}Classifier"
    )
    refused = run("fit", tmp_path / "table.csv", "--target", "state", "--groups", "donor", "--ignore", "age",
                  "--model", model, "--out", tmp_path / "other")  # fmt: skip
    assert refused.exit_code == 3
    assert "groups can be left out from exact" in refused.stderr or "cannot leave groups" in refused.stderr
    assert not (tmp_path / "other").exists()


def test_many_classes(tmp_path):
    rng = np.random.default_rng(0)
    lines = ["y,a,b,c"]
    for i in range(45):
        centre = np.eye(3)[i % 3] * 4
        lines.append(f"{'xyz'[i % 3]}," + ",".join(str(round(v, 3)) for v in centre + rng.standard_normal(3)))
    (tmp_path / "t.csv").write_text("\n".join(lines), encoding="utf-8")
    done = run("fit", tmp_path / "t.csv", "--target", "y", "--model", "smlr", "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output + done.stderr
    header, _ = read_tsv(tmp_path / "out" / "features.tsv")
    assert header == ["feature", "column", "weight:x", "weight:y", "weight:z", "selected"]
    assert "for class" in done.output
    header, _ = read_tsv(tmp_path / "out" / "predictions.tsv")
    assert header[2:] == ["predicted", "probability:x", "probability:y", "probability:z"]


@pytest.mark.parametrize("name", ["table.csv", "table.svmlight"])
def test_a_panel_has_files_of_its_own(name, tmp_path):
    WRITERS[name](tmp_path / name, small())
    out = tmp_path / "out"
    done = run("fit", tmp_path / name, *OPTIONS[name], "--panel", "4,2", "--out", out)
    assert done.exit_code == 0, done.output + done.stderr
    assert {p.name for p in out.iterdir()} == RESULTS | PANEL_RESULTS
    assert "A panel of 2 would do" in " ".join(done.output.split())
    names = [f"gene {j}" for j in range(2)] if name == "table.csv" else ["1", "2"]
    header, rows = read_tsv(out / "features.tsv")
    assert {"change", "difference", "p", "q", "auc", "panel"} < set(header)
    free = [row for row in rows if row[header.index("selected")] != "kept"]
    assert {row[0] for row in free if row[header.index("panel")] == "yes"} == set(names)
    header, rows = read_tsv(out / "panel.tsv")
    assert header[:5] == ["rank", "feature", "column", "in_panel", "stability"]
    assert [row[3] for row in rows] == ["yes", "yes", "no", "no"]
    assert {row[1] for row in rows[:2]} == set(names)
    header, rows = read_tsv(out / "panel_sizes.tsv")
    assert [row[0] for row in rows[:-1]] == ["0", "2", "4"]  # and the full model
    result = json.loads((out / "run.json").read_text(encoding="ascii"))["result"]["panel"]
    assert set(names) <= set(result["features"])
    assert "forward selection" in result["method"][0]
    model = foldless.load(out / "panel.safetensors")
    assert model.coef_.shape[1] == len(model.feature_names_) <= 3
    assert "A panel of 2 would do" in (out / "report.html").read_text(encoding="utf-8")
    assert (out / "panel.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("sizes", ["many", "0,5", ""])
def test_sizes_that_are_none_are_refused(fitted, tmp_path, sizes):
    done = run(
        "fit", tmp_path / "table.csv", *OPTIONS["table.csv"], "--panel", sizes, "--out", tmp_path / "o"
    )
    assert done.exit_code == 2
    assert "5,10,20" in " ".join(done.stderr.split())


# ------------------------------------------------------------------ what goes wrong


def test_results_are_not_overwritten_unless_forced(fitted, tmp_path):
    out = fitted
    before = {p.name: p.read_bytes() for p in out.iterdir()}
    refused = run("fit", tmp_path / "table.csv", *OPTIONS["table.csv"], "--out", out)
    assert refused.exit_code == 2
    assert "--force" in refused.stderr
    assert {p.name: p.read_bytes() for p in out.iterdir()} == before
    # What the former fit has left goes, what others put there stays.
    record = json.loads((out / "run.json").read_text())
    (out / "run.json").write_text(
        json.dumps(record | {"files": {**record["files"], "panel.tsv": "", "../table.csv": ""}})
    )
    for name in ("panel.tsv", "notes.txt"):
        (out / name).write_text("")
    forced = run("fit", tmp_path / "table.csv", *OPTIONS["table.csv"], "--out", out, "--force")
    assert forced.exit_code == 0
    assert not (out / "panel.tsv").exists()
    assert (out / "notes.txt").exists()
    assert (tmp_path / "table.csv").exists()
    again = {p.name: p.read_bytes() for p in out.iterdir()}
    for name in ("model.safetensors", "features.tsv", "predictions.tsv"):
        assert again[name] == before[name]  # the same data give the same answer
    model = out / "model.safetensors"
    for command in (["predict", model, tmp_path / "table.csv"], ["export", model]):
        target = tmp_path / "there.csv"
        target.write_text("precious", encoding="utf-8")
        place = ["--out", target] if command[0] == "predict" else [target]
        assert run(*command, *place).exit_code == 2
        assert target.read_text(encoding="utf-8") == "precious"


def test_a_fit_that_did_not_converge_is_written_and_marked(tmp_path, monkeypatch):
    from foldless.runs import fit as fitting

    monkeypatch.setattr(fitting, "model_named", lambda name, **_: foldless.GAMPClassifier(max_iter=2))
    (tmp_path / "t.csv").write_text(text_of(small()), encoding="utf-8")
    asked = ["--target", "state", "--ignore", "donor"]
    done = run("fit", tmp_path / "t.csv", *asked, "--out", tmp_path / "out")
    assert done.exit_code == 4
    assert "Raise max_iter" in " ".join(done.output.split())
    record = json.loads((tmp_path / "out" / "run.json").read_text(encoding="ascii"))
    assert record["result"]["converged"] is False
    assert "Raise max_iter" in record["result"]["advice"]
    assert {p.name for p in (tmp_path / "out").iterdir()} == RESULTS


def test_memory_that_may_not_be_used(tmp_path):
    (tmp_path / "t.csv").write_text(text_of(small()), encoding="utf-8")
    for command in (["fit", "--out", tmp_path / "out"], ["check"]):
        done = run(
            command[0], tmp_path / "t.csv", *OPTIONS["table.csv"], *command[1:], "--max-memory", "0.02"
        )
        assert done.exit_code == 5
        assert "--max-memory" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["fit"],
        ["fit", "t.csv", "--fdr", "2"],
        ["fit", "t.csv", "--model", "oracle"],
        ["predict", "m"],
        ["nonsense"],
    ],
)
def test_wrong_options_are_usage_errors(arguments):
    assert run(*arguments).exit_code == 2


def test_a_target_is_needed(tmp_path):
    (tmp_path / "t.csv").write_text(text_of(small()), encoding="utf-8")
    for command in ("fit", "compare"):
        done = run(command, tmp_path / "t.csv")
        assert done.exit_code == 2
        assert "--target COLUMN" in done.stderr


def test_what_the_model_refuses_is_told_with_the_file(tmp_path):
    lines = ["y,a,b", *(f"{'xyz'[i % 3]},{i % 5},{i % 7}" for i in range(30))]
    (tmp_path / "t.csv").write_text("\n".join(lines), encoding="utf-8")
    asked = ["--target", "y", "--model", "pruned-bayes"]
    done = run("fit", tmp_path / "t.csv", *asked, "--out", tmp_path / "out")
    assert done.exit_code == 3
    assert "t.csv: PrunedBayesClassifier cannot be fitted: Only binary classification" in done.stderr


@pytest.mark.parametrize("name", HOSTILE_FILE_NAMES[::5])
def test_hostile_file_names_do_not_steer_the_terminal(name, tmp_path):
    done = run("check", tmp_path / f"{name}.csv", "--target", "y")
    assert done.exit_code == 1
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", done.output + done.stderr)


def test_missing_files_and_places(tmp_path):
    done = run("fit", tmp_path / "nothing.csv", "--target", "y")
    assert done.exit_code == 1
    assert "No such file" in done.stderr
    (tmp_path / "file").write_text("", encoding="utf-8")
    (tmp_path / "t.csv").write_text(text_of(small()), encoding="utf-8")
    done = run("fit", tmp_path / "t.csv", *OPTIONS["table.csv"], "--out", tmp_path / "file" / "out")
    assert done.exit_code == 1
    assert "Not a directory" in done.stderr


def test_files_that_are_no_models(tmp_path):
    (tmp_path / "m.safetensors").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    (tmp_path / "t.csv").write_text(text_of(small()), encoding="utf-8")
    for command in (
        ["predict", tmp_path / "m.safetensors", tmp_path / "t.csv"],
        ["inspect", tmp_path / "m.safetensors"],
    ):
        done = run(*command)
        assert done.exit_code == 3
        assert "m.safetensors: this is no" in done.stderr


def test_a_model_and_a_table_in_the_wrong_order(tmp_path):
    (tmp_path / "t.csv").write_text(text_of(small()), encoding="utf-8")
    done = run("predict", tmp_path / "t.csv", tmp_path / "model.safetensors")
    assert done.exit_code == 2
    assert "it comes first, then the table" in " ".join(done.stderr.replace("│", " ").split())


def test_a_report_needs_the_table_of_the_fit(fitted, tmp_path):
    out = fitted
    shorter = tmp_path / "shorter.csv"
    shorter.write_text("\n".join(text_of(small()).splitlines()[:30]), encoding="utf-8")
    done = run(
        "report", out / "model.safetensors", shorter, "--target", "state", "--out", tmp_path / "page.html"
    )
    assert done.exit_code == 3
    assert "there are 29 samples, and the model was fitted to 40" in done.stderr
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize("name", [*WRITERS, "genes.tsv", "matrix.npy"])
def test_a_report_needs_the_folder_of_results_only(name, tmp_path, monkeypatch):
    """The page is the same, byte for byte, and from wherever it is asked for."""
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    table, options = small(), OPTIONS.get(name, [])
    if name == "genes.tsv":
        rows = ["\t".join(["gene", *table.samples])]
        rows += ["\t".join([g, *map(str, x)]) for g, x in zip(table.features, table.X.T, strict=True)]
        rows[1] = rows[1].replace(str(table.X[3, 0]), "NA", 1)
        (tmp_path / name).write_text("\n".join(rows), encoding="utf-8")
        sheet = ["name;what", *(f"{s};{label}" for s, label in zip(table.samples, table.labels, strict=True))]
        (tmp_path / "sheet.csv").write_text("\n".join(sheet), encoding="utf-8")
        options = ["--sample-sheet", "sheet.csv", "--target", "what", "--impute", "median"]
    elif name == "matrix.npy":
        np.save(tmp_path / name, table.X)
        np.save(tmp_path / "labels.npy", np.array(table.labels))
        options = ["--labels", "labels.npy"]
    else:
        WRITERS[name](tmp_path / name, table)
    if name == "table.npz":
        options = ["--target", "state", "--panel", "2", "--learning-curve"]
    monkeypatch.chdir(tmp_path)
    done = run("fit", name, *options, "--out", "out", "--seed", 3)
    assert done.exit_code == 0, done.output + done.stderr
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    done = run("report", tmp_path / "out")
    assert done.exit_code == 0, done.output + done.stderr
    page = (tmp_path / "elsewhere" / "report.html").read_text(encoding="utf-8")
    assert page == (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    (tmp_path / name).rename(tmp_path / "elsewhere" / name)
    refused = run("report", tmp_path / "out", "--out", "other.html")
    assert refused.exit_code == 3
    assert "no longer there. Name where it is now" in refused.stderr
    done = run("report", tmp_path / "out", name, "--out", "other.html")
    assert done.exit_code == 0, done.output + done.stderr
    assert (tmp_path / "elsewhere" / "other.html").read_text(encoding="utf-8") == page


def test_a_report_without_a_record_or_of_another_table(tmp_path):
    table, fitted = tmp_path / "table.csv", tmp_path / "out"
    table.write_text(text_of(small()), encoding="utf-8")
    assert run("fit", table, *OPTIONS["table.csv"], "--out", fitted).exit_code == 0
    table.write_text(table.read_text(encoding="utf-8").replace("20.0", "20.5", 1), encoding="utf-8")
    changed = run("report", fitted, "--out", tmp_path / "page.html")
    assert changed.exit_code == 3
    assert "is not what it was at the fit" in changed.stderr
    done = run("report", fitted, table, "--out", tmp_path / "page.html")
    assert done.exit_code == 0, done.output + done.stderr
    # Of another model, or damaged, a record tells nothing.
    for text in (
        "{",
        "[]",
        (fitted / "run.json").read_text("ascii").replace('model.safetensors": "', '": "'),
    ):
        (fitted / "run.json").write_text(text, encoding="ascii")
        refused = run("report", fitted, "--out", tmp_path / "other.html")
        assert refused.exit_code == 3
        assert "there is no run.json of its fit beside it" in refused.stderr


def test_models_without_probabilities_have_one_order_of_features(tmp_path):
    """By weights on one scale: thousands of a unit are no smaller than a few."""
    table = small()
    table.X[:, 1] *= 1000.0
    (tmp_path / "t.csv").write_text(text_of(table), encoding="utf-8")
    asked = ["--target", "state", "--ignore", "donor", "--ignore", "age", "--model", "smlr"]
    done = run("fit", tmp_path / "t.csv", *asked, "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output + done.stderr
    features = [row[0] for row in read_tsv(tmp_path / "out" / "features.tsv")[1]]
    assert features[0] == "gene 1"
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    listed = re.findall(r'<th scope="row"><bdi>(gene \d+)', page.partition('id="feature-table"')[2])
    assert listed == features[: len(listed)]
    printed = re.findall(r"^ ?(gene \d+)", done.output, re.MULTILINE)
    assert len(printed) > 1
    assert printed == features[: len(printed)]


def test_comparisons_count_features_as_a_fit_does(tmp_path, monkeypatch):
    """Covariates are used and not selected; ridges and machines select nothing. Nobody looks for groups."""
    monkeypatch.setattr(foldless.SparseClassifier, "groups_", property(lambda model: 1 / 0))
    (tmp_path / "t.csv").write_text(text_of(small()), encoding="utf-8")
    asked = ["--target", "state", "--ignore", "donor", "--covariates", "age"]
    done = run("compare", tmp_path / "t.csv", *asked, "--splits", 2, "--out", tmp_path / "c")
    assert done.exit_code == 0, done.output + done.stderr
    # A path is not broken, however long it is.
    assert max(len(line) for line in done.output.splitlines() if str(tmp_path) not in line) <= 80
    header, rows = read_tsv(tmp_path / "c" / "comparison.tsv")
    used, selected = header.index("n_features"), header.index("n_selected")
    for row in rows:
        if row[1].startswith(("ridge", "linear")):
            assert (row[used], row[selected]) == ("13", "")
        elif row[1].startswith("foldless"):
            assert int(row[selected]) == 2  # the truth, without age
            assert int(row[used]) > 2
    one = [row[selected] for row in rows if row[1].startswith("foldless")]
    done = run("compare", tmp_path / "t.csv", *asked, "--fdr", 0.9, "--splits", 2, "--out", tmp_path / "d")
    more = [
        r[selected] for r in read_tsv(tmp_path / "d" / "comparison.tsv")[1] if r[1].startswith("foldless")
    ]
    assert sum(map(int, more)) > sum(map(int, one))


def test_new_samples_need_the_features_of_the_fit(fitted, tmp_path):
    out = fitted
    other = tmp_path / "other.csv"
    other.write_text(text_of(small()).replace("gene 7", "gene seven"), encoding="utf-8")
    done = run("predict", out / "model.safetensors", other, "--out", tmp_path / "new.tsv")
    assert done.exit_code == 3
    assert "there is no column 'gene 7'" in done.stderr
    assert not (tmp_path / "new.tsv").exists()


@pytest.mark.skipif(os.name != "posix", reason="signals are sent as POSIX does")
@pytest.mark.parametrize(
    "busy",
    ["time.sleep(60)", "[None for _ in iter(int, 1)]", "hashlib.pbkdf2_hmac('sha256', b'', b'', 10**9)"],
)
def test_interruption_is_answered_and_leaves_nothing_half(busy, tmp_path):
    """In Python code, and inside a library that does not let Python speak (a call that holds on)."""
    code = f"""
import hashlib, sys, time
from pathlib import Path
import typer
from foldless.cli.terminal import exit_codes
from foldless.io import replacing
try:
    with exit_codes(), replacing(Path(sys.argv[1]) / "model") as unfinished:
        unfinished.write_text("half")
        print("busy", flush=True)
        {busy}
except typer.Exit as end:
    sys.exit(end.exit_code)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "busy\n"
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    finally:
        process.kill()  # one that goes on would do so for minutes
    assert process.returncode == 130
    assert said == "foldless: interrupted.\n"
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_fit_keeps_the_old_results(fitted, tmp_path, monkeypatch):
    out = fitted
    before = {p.name: p.read_bytes() for p in out.iterdir()}

    def interrupt(self, iteration, line):
        raise KeyboardInterrupt

    monkeypatch.setattr("foldless.runs.printing.Progress.__call__", interrupt)
    done = run("fit", tmp_path / "table.csv", *OPTIONS["table.csv"], "--out", out, "--force")
    assert done.exit_code == 130
    assert done.stderr == "foldless: interrupted.\n"
    assert {p.name: p.read_bytes() for p in out.iterdir()} == before


def test_hostile_names_everywhere(tmp_path):
    """As features, classes and samples: unchanged in every result, and the terminal is not steered."""
    names = [name for name in HOSTILE_NAMES if name]  # a column without a name is refused
    rng = np.random.default_rng(0)
    labels = [names[0], names[1]]
    samples = names[:40]
    with open(tmp_path / "hostile.csv", "w", encoding="utf-8", newline="") as stream:
        rows = csv.writer(stream)
        rows.writerow(["sample", "class", *names])
        for i in range(40):
            values = rng.standard_normal(len(names))
            values[0] += 4 * (i % 2)
            rows.writerow([samples[i], labels[i % 2], *values])
    asked = ["--target", "class", "--samples", "sample", "--model", "smlr", "--out", tmp_path / "out"]
    done = run("fit", tmp_path / "hostile.csv", *asked)
    assert done.exit_code == 0, done.output + done.stderr
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", done.output)
    _, rows = read_tsv(tmp_path / "out" / "features.tsv")
    assert sorted(row[0] for row in rows) == sorted(names)
    header, rows = read_tsv(tmp_path / "out" / "predictions.tsv")
    assert [row[0] for row in rows] == samples
    assert {row[1] for row in rows} == set(labels)
    assert {c.removeprefix("probability:") for c in header[3:]} == set(labels)
    model = foldless.load(tmp_path / "out" / "model.safetensors")
    assert model.feature_names_in_.tolist() == names
    done = run("inspect", tmp_path / "out" / "model.safetensors")
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", done.output)


# ------------------------------------------------------------------ help


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_an_example_and_imports_nothing_slow(command):
    code = f"""
import sys
from foldless.cli import app
try:
    app([{command!r}, "--help"])
except SystemExit as end:
    assert not end.code
slow = {{"sklearn", "scipy", "numpy", "matplotlib", "pandas", "rich", "safetensors"}} & set(sys.modules)
sys.exit(f"imported {{slow}}" if slow else 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(rf"Example:\n\s+foldless {command}", done.stdout)


def test_all_commands_are_listed():
    listed = run("--help").output
    for command in COMMANDS:
        assert re.search(rf"^  {command} ", listed, re.MULTILINE)
    assert {code.value for code in ExitCode} == {1, 2, 3, 4, 5, 130}


def test_the_examples_of_help_are_in_the_documents():
    page = (Path(__file__).parent.parent.parent / "docs" / "command-line.md").read_text(encoding="utf-8")
    for command in COMMANDS:
        assert f"foldless {command}" in page


def test_the_report_has_a_learning_curve_if_it_is_asked_for(fitted_once, tmp_path):
    table = fitted_once / "table.csv"
    result = run("fit", table, *OPTIONS["table.csv"], "--learning-curve", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output + result.stderr
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "more samples" in page
    assert "none was computed" not in page


def test_a_learning_curve_that_cannot_be_had_is_refused_before_the_fit(fitted_once, tmp_path):
    table = fitted_once / "table.csv"
    options = (*OPTIONS["table.csv"], "--model", "smlr", "--learning-curve", "--out", tmp_path / "out")
    result = run("fit", table, *options)
    assert result.exit_code == ExitCode.BAD_DATA
    assert "--model sparse" in result.stderr
    assert not (tmp_path / "out").exists()


def test_who_forgets_the_sample_sheet_is_led_to_it(tmp_path):
    """Genes in rows, as they come: `check` names the next step, and `predict` does not blame an option."""
    table = small()
    names = [f"s{i}" for i in range(len(table.labels))]
    genes = pd.DataFrame(table.X.T, index=table.features, columns=names)
    genes.to_csv(tmp_path / "genes.tsv", sep="\t")
    batch = ["ab"[i % 3 == 0] for i in range(len(names))]
    sheet = pd.DataFrame({"name": names, "state": table.labels, "batch": batch})
    sheet.to_csv(tmp_path / "sheet.csv", index=False)
    done = run("check", tmp_path / "genes.tsv")
    assert done.exit_code == 0, done.output
    assert "genes.tsv --sample-sheet FILE" in done.output.replace("\n", "")
    asked = ["--sample-sheet", tmp_path / "sheet.csv", "--target", "state", "--covariates", "batch"]
    done = run("fit", tmp_path / "genes.tsv", *asked, "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output + done.stderr
    into = ["--out", tmp_path / "p.tsv"]
    done = run("predict", tmp_path / "out", tmp_path / "genes.tsv", *into)
    assert done.exit_code == ExitCode.BAD_DATA
    said = " ".join(done.stderr.split())
    assert "no column 'batch', named as a covariate of the fit (of a sample sheet: --sample-sheet)" in said
    done = run("predict", tmp_path / "out", tmp_path / "genes.tsv", *asked[:2], *into)
    assert done.exit_code == 0, done.output + done.stderr


def test_the_page_says_that_groups_count_once(tmp_path):
    rng = np.random.default_rng(0)
    patient = np.repeat(np.arange(16), 3)
    lines = ["patient,class," + ",".join(f"g{j}" for j in range(40))]
    for p in patient:
        values = rng.standard_normal(40) + np.r_[3.0 * (p % 2), np.zeros(39)]
        lines.append(f"p{p},{'ab'[p % 2]}," + ",".join(f"{x:.3f}" for x in values))
    (tmp_path / "t.csv").write_text("\n".join(lines), encoding="utf-8")
    told = "Samples come in groups or have weights"
    for more, expected in ([["--groups", "patient"], True], [["--ignore", "patient"], False]):
        done = run(
            "fit", tmp_path / "t.csv", "--target", "class", *more, "--out", tmp_path / "out", "--force"
        )
        assert done.exit_code == 0, done.stderr
        assert (told in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")) is expected
