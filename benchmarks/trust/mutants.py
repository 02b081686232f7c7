"""Do the tests notice a wrong line? Random mutants of a room, each judged by the tests that reach its line.

    pytest -m "not study" --cov --cov-context=test tests; coverage combine    # which tests reach which line
    python -m benchmarks.trust.mutants --room io --mutants 100

One operator, comparison, number or truth value of a file is changed in a copy of the package; tests that
reach the line run against that copy until one fails, at most MOST_TESTS of them and for SECONDS at most. The
first are of the room and all different; cases of the same test come later. A mutant that they let pass, or
that no test reaches, has survived, whether or not anybody could tell (some changes change nothing: a
tolerance, a size of blocks), so the score is a lower bound. Docstrings, type hints, decorators, messages of
errors and warnings, `strict=` of zip and constants in capitals are left alone, and so are compiled loops.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import importlib
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "foldless"
ROOMS = ("io", "tuning", "solvers")
REACHED = ROOT / ".coverage"
# What takes time to import, in the parent of all runs.
HEAVY = ("pandas", "sklearn.linear_model", "sklearn.svm", "scipy.stats", "numba", "anndata",
         "pyarrow.parquet", "zarr", "hypothesis", "matplotlib.pyplot", "polars", "dask.array")  # fmt: skip
# Most mutants are noticed by the first few tests, before those of many files are collected.
FEW_TESTS = 12
MOST_TESTS, SECONDS = 200, 25.0
# For a single test, from when the time of all is over.
PATIENCE = 60.0
SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.Lt: ast.GtE, ast.GtE: ast.Lt,
    ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.And: ast.Or, ast.Or: ast.And,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.USub: ast.UAdd,
}  # fmt: skip


def sites(tree: ast.AST) -> list[ast.AST]:
    """What can be changed, in the order of the file."""
    found: list[ast.AST] = []

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.Raise | ast.JoinedStr | ast.AnnAssign | ast.arguments | ast.Assert):
            return  # messages, types and defaults
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("warnings.warn", "BadTable"):
            return
        if isinstance(node, ast.keyword) and node.arg in ("strict", "stacklevel"):
            return
        if isinstance(node, ast.Assign) and all(
            isinstance(t, ast.Name) and t.id.isupper() for t in node.targets
        ):
            return
        if (
            (isinstance(node, ast.BinOp | ast.UnaryOp | ast.BoolOp) and type(node.op) in SWAPPED)
            or (isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPPED)
            or (isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float))
        ):
            found.append(node)
        for child in ast.iter_child_nodes(node):
            if child not in getattr(node, "decorator_list", ()):
                visit(child)

    visit(tree)
    return found


def change(node: ast.AST) -> str:
    """Changes it in place, and says how."""
    before = ast.unparse(node)
    if isinstance(node, ast.Compare):
        node.ops[0] = SWAPPED[type(node.ops[0])]()  # type: ignore[assignment]
    elif isinstance(node, ast.Constant):
        value = node.value
        node.value = (not value) if isinstance(value, bool) else value + 1  # type: ignore[operator]
    else:
        node.op = SWAPPED[type(node.op)]()  # type: ignore[attr-defined]
    return f"{before} -> {ast.unparse(node)}"


def tests_of(relative: str, tree: ast.AST, line: int, stored: Any, rng: np.random.Generator) -> list[str]:
    """Those that reach the statement of a line: a case of each test of the room, of others, and so on."""
    statements = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
    first = max(node.lineno for node in statements if node.lineno <= line <= (node.end_lineno or 0))
    reached = stored.contexts_by_lineno(str(SOURCE / relative))
    contexts = {context for at in range(first, line + 1) for context in reached.get(at, [])}
    found = sorted({context.rpartition("|")[0] for context in contexts if context})
    cases, order = Counter[str](), list[tuple[int, bool, str]]()
    for test in rng.permutation(found).tolist():
        function = test.partition("[")[0]
        order.append((cases[function], not test.startswith(f"tests/{relative.partition('/')[0]}/"), test))
        cases[function] += 1
    return [test for *_, test in sorted(order, key=lambda each: each[:2])][:MOST_TESTS]


class _Clock:
    """Ends a run of tests between two of them, when its time is over."""

    def __init__(self) -> None:
        self.end, self.over = time.monotonic() + SECONDS, False

    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        self.over = time.monotonic() > self.end
        item.session.shouldstop = self.over and "time is over"


def judged(relative: str, mutant: str, tests: list[str], folder: Path) -> str:
    """How tests end with the mutant in its place."""
    if not tests:
        return "not reached"
    target = folder / "foldless" / relative
    target.write_text(mutant)
    try:
        for some in (tests[:FEW_TESTS], tests[FEW_TESTS:]):
            if some:
                child = os.fork()
                if child == 0:
                    _pytest(some, folder)
                if (verdict := _verdict(child)) != "survived":
                    break
        return verdict
    finally:
        target.write_text((SOURCE / relative).read_text())


def _pytest(tests: list[str], folder: Path) -> None:
    """In a child that has imported everything but foldless: most of the time of a test is that."""
    os.setpgid(0, 0)
    sys.path.insert(0, str(folder))
    sys.dont_write_bytecode = True
    os.environ |= {"PYTHONPATH": f"{folder}:{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
    os.chdir(ROOT)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    code, clock = 3, _Clock()
    try:
        code = pytest.main(["-q", "-x", "-p", "no:cacheprovider", *tests], plugins=[clock])
    finally:
        # Interrupted is what tests are that ran out of time, and what an import that fails leaves behind.
        os._exit(0 if code == 2 and clock.over else code)


def _verdict(child: int) -> str:
    end = time.monotonic() + SECONDS + PATIENCE
    while time.monotonic() < end:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return "survived" if status == 0 else "killed"
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "timed out"


def run(room: str, n_mutants: int = 100, first: int = 0, seed: int = 0) -> dict[str, Any]:
    """Of n mutants from the `first` on, in an order that the seed draws."""
    from coverage import CoverageData

    stored = CoverageData(str(REACHED))
    stored.read()
    for name in HEAVY:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    files = [path for path in sorted((SOURCE / room).rglob("*.py")) if not path.name.endswith("loops.py")]
    trees = {str(path.relative_to(SOURCE)): ast.parse(path.read_text()) for path in files}
    every = [(relative, k) for relative, tree in trees.items() for k in range(len(sites(tree)))]
    chosen = np.random.default_rng(seed).permutation(len(every))[first : first + n_mutants]
    counts, survivors = Counter[str](), []
    with tempfile.TemporaryDirectory() as place:
        shutil.copytree(SOURCE, Path(place) / "foldless")  # with what is compiled
        for at in chosen:
            relative, k = every[at]
            tree = copy.deepcopy(trees[relative])
            node = sites(tree)[k]
            line = getattr(node, "lineno", 0)
            tests = tests_of(relative, tree, line, stored, np.random.default_rng([seed, at]))
            what = f"{relative}:{line} {change(node)}"
            verdict = judged(relative, ast.unparse(tree), tests, Path(place))
            if verdict == "killed" and not counts["killed"]:
                # Once: without a change the tests must pass, or every mutant would seem to be noticed.
                unchanged = ast.unparse(trees[relative])
                assert judged(relative, unchanged, tests, Path(place)) == "survived", tests
            counts[verdict] += 1
            if verdict not in ("killed", "timed out"):
                survivors.append(what if verdict == "survived" else f"{what} (not reached)")
            print(verdict, what, flush=True)
    return {
        "sites": len(every),
        "mutants": len(chosen),
        "tests": MOST_TESTS,
        "killed": counts["killed"],
        "survived": counts["survived"] + counts["not reached"],
        "timed out": counts["timed out"],  # such a run says nothing
        "survivors": survivors,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--room", default="io", choices=ROOMS)
    parser.add_argument("--mutants", type=int, default=100)
    options = parser.parse_args()
    print(run(options.room, options.mutants))
