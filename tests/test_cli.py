"""The command line: the demo end to end, exit codes, quick help, and names that try to steer the terminal."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from importlib.metadata import version
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

import foldless
from foldless import demo
from foldless.cli import app
from foldless.cli.terminal import exit_codes
from foldless.datasets import make_class_means
from foldless.runs.printing import Progress

PNG = b"\x89PNG\r\n\x1a\n"


def run(*arguments: object):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def plain_console(stream: io.StringIO, **options: object) -> Console:
    return Console(file=stream, markup=False, emoji=False, highlight=False, width=80, **options)


@pytest.fixture(scope="module")
def study():
    data = make_class_means(60, 300, 4, bayes_error=0.01, mislabelled=0.05, random_state=0)
    return demo.fit(plain_console(io.StringIO()), data, 0.1)


def test_the_demo_as_a_user_runs_it(tmp_path):
    """At full size, piped: the answer, the table, every promise, a picture, and no terminal codes."""
    folder = tmp_path / "new" / "folder"
    command = [sys.executable, "-m", "foldless", "demo", "--out", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    out = done.stdout
    for part in (
        "A simulated study: 200 samples",
        "Fitted and tuned in",
        "converged",
        "Genes selected at a false discovery rate of 0.1",
        "90 % interval",
        "Markers found",
        "False among selected",
        "Leave-one-out error",
        "True error",
        "Labels suspected",
        "Most suspicious",
    ):
        assert part in out
    n_selected = int(re.search(r"(\d+) genes selected", out)[1])
    assert len(re.findall(r"^ *gene \d{4} .* (?:marker|false) *$", out, re.M)) == n_selected
    assert 15 <= int(re.search(r"(\d+) of the 20 markers", out)[1]) <= 20
    assert str(folder / "demo.png") in out.splitlines()[-2]
    assert str(folder / "report.html") in out.splitlines()[-1]
    assert "\x1b" not in out
    assert "\r" not in out
    assert max(map(len, out.splitlines()[:-2])) <= 80
    picture = (folder / "demo.png").read_bytes()
    assert picture.startswith(PNG)
    assert len(picture) <= 250_000
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert f"{n_selected} of 10\u202f000 features carry something that no other has" in page
    assert len(page) <= 400_000


def test_the_demo_may_overwrite_its_picture(tmp_path):
    (tmp_path / "demo.png").write_bytes(b"old")
    result = run("demo", "--out", tmp_path, "--seed", 1, "--fdr", 0.3)
    assert result.exit_code == 0, result.output
    assert "false discovery rate of 0.3" in result.output
    assert (tmp_path / "demo.png").read_bytes().startswith(PNG)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["demo.png", "report.html"]


def test_a_failing_write_is_told_and_leaves_the_old_picture(tmp_path, monkeypatch):
    def half(self, file, **_):
        file.write(b"half a pict")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", half)
    (tmp_path / "demo.png").write_bytes(b"old")
    result = run("demo", "--out", tmp_path)
    assert result.exit_code == 1
    assert "foldless: No space left on device" in result.stderr
    assert "Traceback" not in result.output
    assert (tmp_path / "demo.png").read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["demo.png"]


def test_a_fit_that_did_not_converge_is_told_and_has_its_exit_code(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "SparseClassifier", lambda fdr: foldless.SparseClassifier(fdr=fdr, max_iter=2))
    result = run("demo", "--out", tmp_path)
    assert result.exit_code == 4
    assert "Raise max_iter" in " ".join(result.output.split())
    assert (tmp_path / "demo.png").read_bytes().startswith(PNG)


@pytest.mark.parametrize(
    "arguments", [["--fdr", "2"], ["--fdr", "nan"], ["--seed", "-1"], ["--out", __file__], ["--nonsense"]]
)
def test_wrong_options_are_usage_errors(arguments):
    result = run("demo", *arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("failure", "code", "said"),
    [
        (ValueError("bad \x1b[2J data"), 3, r"bad \x1b[2J data"),
        (FileNotFoundError(2, "No such file or directory", "x.csv"), 1, "No such file or directory: x.csv"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_failures_have_exit_codes(failure, code, said, capsys):
    with pytest.raises(Exception) as raised, exit_codes():  # noqa: PT011
        raise failure
    assert raised.value.exit_code == code
    assert said in capsys.readouterr().err


def test_bugs_keep_their_traceback():
    with pytest.raises(ZeroDivisionError), exit_codes():
        _ = 1 / 0


def test_version_and_help():
    assert (
        run("--version").output.strip()
        == f"foldless {foldless.__version__}"
        == f"foldless {version('foldless')}"
    )
    commands = run("--help").output.partition("Commands:")[2]
    assert "demo" in commands
    assert "..." not in commands, "each command is described in a line that is not cut short"
    help_text = run("demo", "--help").output
    for option in ("--out", "--seed", "--fdr"):
        assert option in help_text


@pytest.mark.parametrize("arguments", [["--help"], ["demo", "--help"], ["--version"]])
def test_help_imports_nothing_slow(arguments):
    code = f"""
import sys
from foldless.cli import app
try:
    app({arguments!r})
except SystemExit as end:
    assert not end.code
slow = {{"sklearn", "scipy", "numpy", "matplotlib", "pandas", "rich"}} & set(sys.modules)
sys.exit(f"imported {{slow}}" if slow else 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_package_is_lazy_and_complete():
    code = """
import sys, foldless
assert "sklearn" not in sys.modules
assert {"GAMPClassifier", "SparseClassifier", "__version__"} <= set(dir(foldless))
from foldless import *
assert SparseClassifier is foldless.SparseClassifier
assert GAMPClassifier.__module__ == "foldless.estimators.gamp"
try:
    foldless.Nonsense
except AttributeError as error:
    assert "Nonsense" in str(error)
else:
    sys.exit("no error")
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_hostile_names_are_shown_as_they_are(study):
    selected = study.selected
    assert selected.size >= 3
    names = list(study.names)
    hostile = ["[red]x[/red]", "$x$ :smile: <script>", "\x1b[2J\x1b]0;owned\x07"]
    for j, name in zip(selected, hostile, strict=False):
        names[j] = name
    stream = io.StringIO()
    console = plain_console(stream, force_terminal=True, color_system=None)
    demo.tell(console, demo.Study(study.data, names, study.model, study.seconds))
    demo.draw(demo.Study(study.data, names, study.model, study.seconds)).canvas.draw()
    out = stream.getvalue()
    assert "[red]x[/red]" in out
    assert "$x$ :smile: <script>" in out
    assert r"\x1b[2J\x1b]0;owned\x07" in out
    assert "\x1b[2J" not in out
    assert "\x07" not in out


def test_the_console_of_commands_has_no_markup(capsys):
    with exit_codes() as terminal:
        terminal.print("[bold]gene[/bold] :smile:")
    assert capsys.readouterr().out == "[bold]gene[/bold] :smile:\n"


def test_the_truth_in_the_demo_is_the_truth(study):
    """The closed-form errors agree with new samples, and the weights are in the units of the coefficients."""
    data, model = study.data, study.model
    rng = np.random.default_rng(1)
    n = 20_000
    y = rng.choice([-1, 1], n)
    X = (
        np.sqrt(data.noise_var) * rng.standard_normal((n, data.weights.size))
        + y[:, np.newaxis] * data.weights
    )
    wrong = (model.decision_function(X) > 0) != (y > 0)
    five_errors = 5 * np.sqrt(0.25 / n)
    assert abs(wrong.mean() - study.error) < five_errors
    rate = data.mislabelled.size / data.y.size
    wrong_as_recorded = wrong ^ (rng.random(n) < rate)
    assert abs(wrong_as_recorded.mean() - study.error_as_recorded) < five_errors
    assert list(model.classes_) == list(demo.CLASSES)
    assert "_on_iteration" not in vars(model)


def test_progress_is_shown_in_a_terminal_only():
    for terminal in (True, False):
        stream = io.StringIO()
        console = plain_console(stream, force_terminal=terminal)
        with console.status("Fitting") as status:
            Progress(status)(1, SimpleNamespace(change=0.5))
        assert ("iteration 1, weights change by 5.0e-01" in stream.getvalue()) == terminal
        assert bool(stream.getvalue()) == terminal


def test_verbose_and_watcher_both_hear_every_iteration(study, capsys):
    heard = []
    model = foldless.SparseClassifier(verbose=1)
    model._on_iteration = lambda iteration, line: heard.append(iteration)
    model.fit(study.data.X, study.data.y)
    # Parameters that are learnt again without some samples are heard of, and are not part of the answer.
    of_answer = [run.purpose != "relearn" for run in model.record_.runs]
    assert 0 < sum(of_answer) < len(of_answer)
    assert len(heard) == sum(run.n_iter for run in model.record_.runs)
    assert len(heard) == capsys.readouterr().out.count("[SparseClassifier] iteration")
