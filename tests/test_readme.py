"""README and documents: every block of code runs, and prints what the page says.

Blocks of Python run in one program per page, blocks of bash line by line in a folder of their own; a block of
text below is what they print. To write a page's output anew: python tests/test_readme.py docs/command-line.md
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
from itertools import pairwise
from pathlib import Path

import pytest
from typer.testing import CliRunner

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
PAGES = [ROOT / "docs" / name for name in ("command-line.md", "planning.md")]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)
# What differs from one day and one machine to the next.
VARIES = [
    (re.compile(r"\d+(\.\d+)? s\b"), "# s"),
    (re.compile(r"[\d.]+ [kMGT]?B are\s+free"), "# GB are free"),
    (re.compile(r"Results: \S+/"), "Results: /.../"),
    (re.compile(r"(\d\.\d{5})\d+"), r"\1"),  # digits that libraries may differ in
    (re.compile(r" +$", re.MULTILINE), ""),
    (re.compile(r"(?<=%)( +\S+ +\d+) +[\d.]+ *$", re.MULTILINE), r"\1 #"),  # seconds in a comparison
]


def run_python(code: str, names: dict[str, object]) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "<page>", "exec"), names)
    return printed.getvalue()


def run_bash(block: str) -> str:
    """foldless in this process, which saves its start; other programs in a shell."""
    from foldless.cli import app

    printed = ""
    for line in block.splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["foldless"]:
            done = CliRunner().invoke(app, words[1:])
            promised = re.search(r"# exit code (\d+)$", line)
            assert done.exit_code == int(promised[1] if promised else 0), done.output + done.stderr
            printed += done.output
        elif words:
            done = subprocess.run(
                line, shell=True, capture_output=True, text=True, check=True, encoding="utf-8"
            )
            printed += done.stdout
    return printed


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


def test_the_example_prints_what_the_readme_says():
    blocks = BLOCK.findall(README.read_text(encoding="utf-8"))
    code, promised = next(
        (code, promised)
        for (kind, code), (below, promised) in pairwise(blocks)
        if (kind, below) == ("python", "text")
    )
    assert run_python(code, {}) == promised


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_of_a_page_runs_and_prints_what_it_says(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = run_page(page)
    assert {kind for kind, _, _ in blocks} <= {"python", "bash", "text"}
    printed = None
    for kind, block, output in blocks:
        if kind == "text":
            assert printed is not None, f"nothing printed this:\n{block}"
            assert alike(printed) == alike(block)
        printed = output if kind != "text" else None


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
