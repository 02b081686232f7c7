"""README and documents: every block of code runs, and prints what the page says.

Blocks of Python run in one program per page, blocks of bash line by line in a folder of their own; a block of
text below is what they print. To write a page's output anew: python tests/test_readme.py docs/command-line.md
Blocks that say what is, instead of doing something, are compared with the code (`test_docs.py`).
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
# Made at a build, not written by hand.
MADE = {"_build", "gallery"}
PAGES = [ROOT / "README.md"] + [
    page for page in sorted(DOCS.rglob("*.md")) if not MADE & set(page.relative_to(DOCS).parts)
]
# Its one block of Python is checked against the classes that it describes.
DESCRIBES = {DOCS / "architecture.md"}
# What R printed is written by benchmarks/peers/glmnet.py, which needs R.
OF_R = {DOCS / "from-glmnet.md"}
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)
RUNNABLE = [
    page for page in PAGES if page not in DESCRIBES | OF_R and BLOCK.search(page.read_text(encoding="utf-8"))
]
# What differs from one day and one machine to the next.
VARIES = [
    (re.compile(r"\d+(\.\d+)?\s+s\b"), "# s"),
    (re.compile(r"[\d.]+ [kMGT]?B are\s+free"), "# GB are free"),
    (re.compile(r"Results: \S+/"), "Results: /.../"),
    (re.compile(r"(\d\.\d{5})\d+"), r"\1"),  # digits that libraries may differ in
    (re.compile(r" +$", re.MULTILINE), ""),
    (re.compile(r"(?<=%)( +\S+ +\d+ +\S+) +[\d.]+ *$", re.MULTILINE), r"\1 #"),  # seconds in a comparison
]


def run_python(code: str, names: dict[str, object]) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "<page>", "exec"), names)
    return printed.getvalue()


def run_bash(block: str) -> str:
    """foldless in this process, which saves its start; other programs in a shell.

    Installing, and making the suite that this is part of, are looked at and not done.
    """
    from foldless.cli import app

    printed = ""
    for line in block.splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["foldless"]:
            done = CliRunner().invoke(app, words[1:])
            promised = re.search(r"# exit code (\d+)$", line)
            assert done.exit_code == int(promised[1] if promised else 0), done.output + done.stderr
            printed += done.output
        elif words[:2] == ["pip", "install"]:
            check_installable(words[2:])
        elif words[:1] == ["make"]:
            subprocess.run([*words, "--dry-run"], cwd=ROOT, capture_output=True, check=True)
        elif words:
            done = subprocess.run(
                line, shell=True, capture_output=True, text=True, check=True, encoding="utf-8"
            )
            printed += done.stdout
    return printed


def check_installable(wanted: list[str]) -> None:
    """This checkout, or foldless with extras that it has."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]
    for each in wanted:
        named = re.fullmatch(r"(?:\.|foldless)(?:\[([\w,]+)\])?", each)
        assert named, f"a page installs {each!r}"
        assert {*filter(None, (named[1] or "").split(","))} <= extras.keys(), f"no such extra: {each!r}"


def run_page(page: Path) -> list[tuple[str, str, str]]:
    """(kind, block, what it printed) for each block of the page, run in the current folder."""
    names: dict[str, object] = {}
    done = []
    for kind, block in BLOCK.findall(page.read_text(encoding="utf-8")):
        if kind == "python":
            done.append((kind, block, run_python(block, names)))
        elif kind == "bash":
            done.append((kind, block, run_bash(block)))
        else:
            done.append((kind, block, ""))
    return done


def alike(text: str) -> str:
    for pattern, replacement in VARIES:
        text = pattern.sub(replacement, text)
    return text


@pytest.mark.parametrize("page", RUNNABLE, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_of_a_page_runs_and_prints_what_it_says(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = run_page(page)
    assert {kind for kind, _, _ in blocks} <= {"python", "bash", "text"}
    printed = None
    for kind, block, output in blocks:
        if kind == "text":
            assert printed is not None, f"nothing printed this:\n{block}"
            assert alike(printed) == alike(block)
        else:
            # What a page prints and does not show would not be noticed when it changes.
            assert not printed, f"the page does not show:\n{printed}"
        printed = output if kind != "text" else None
    assert not printed, f"the page does not show:\n{printed}"


def rewrite(page: Path) -> None:
    """Put what blocks print now below them."""
    folder, before = tempfile.mkdtemp(), os.getcwd()
    page = page.resolve()
    os.chdir(folder)
    try:
        outputs = iter(run_page(page))
    finally:
        os.chdir(before)
    last = ""

    def block_of(match: re.Match[str]) -> str:
        nonlocal last
        kind, block, output = next(outputs)
        block = last if kind == "text" else block
        last = re.sub(r" +$", "", output.replace(folder, "/home/you"), flags=re.MULTILINE)
        return f"```{kind}\n{block}```"

    page.write_text(BLOCK.sub(block_of, page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    rewrite(Path(sys.argv[1]))
