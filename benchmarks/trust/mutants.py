"""Do the tests notice a wrong line? Random mutants of a room, each judged by the tests that reach its line.

    python -m benchmarks.trust.mutants --reach tests/io tests/runs    # which tests reach which line
    python -m benchmarks.trust.mutants --room io --mutants 100
    python -m benchmarks.trust.mutants --room io --again          # survivors of before, by the tests of now

One operator, comparison, number or truth value of a function is changed. Tests that reach the line run until
one fails, at most MOST_TESTS of them and for SECONDS of processor time: what takes no time, then a case of
each test, fast ones before slow ones, then other cases. A mutant that they let pass, or that no test reaches,
has survived; so the score is a lower bound. Survivors that nobody could tell from the original are in
EQUIVALENT, with the reason.
Docstrings, type hints, decorators, messages of errors and warnings, `strict=` of zip, and what is computed at
import (constants, tables) are left alone, and so are compiled loops.

Tests are collected once. Each mutant has a fork of that process, in which the functions of the file have the
changed code; a mutant costs the tests that it takes. Programs that tests start see the original.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import gc
import importlib
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import numpy as np
import pytest

from benchmarks.trust.equivalent import EQUIVALENT

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "foldless"
ROOMS = ("io", "tuning", "solvers")
REACHED = ROOT / ".coverage.reached"
NOT_REACHED = " (not reached)"
# What takes time to import, in the parent of all mutants.
HEAVY = ("pandas", "sklearn.linear_model", "sklearn.svm", "scipy.stats", "numba", "anndata", "zarr",
         "pyarrow.parquet", "hypothesis", "matplotlib.pyplot", "polars", "dask.array")  # fmt: skip
# Of processor time, as other programs may be busy. All cases of fast tests come first.
MOST_TESTS, SECONDS, FAST = 300, 6.0, 0.02
# A test that takes so many times what it took, and PATIENCE more, goes on without end.
TIMES, PATIENCE = 20.0, 10.0
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


def functions(tree: ast.AST) -> list[tuple[str, ast.AST]]:
    """Functions and methods that are there after an import, by qualified name; not those inside of others."""
    found: list[tuple[str, ast.AST]] = []

    def visit(node: ast.AST, name: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef):
                found.append((f"{name}{child.name}", child))
            elif isinstance(child, ast.ClassDef):
                visit(child, f"{name}{child.name}.")
            elif isinstance(child, ast.If | ast.Try | ast.With):
                visit(child, name)

    visit(tree, "")
    return found


def places(tree: ast.AST) -> list[tuple[str, ast.AST]]:
    """What can be changed in functions, with the name of the function."""
    return [(name, node) for name, function in functions(tree) for node in sites(function)]


class Reached:
    """Which tests reach a line, and how long they take; gathered by a plugin of pytest."""

    def __init__(self) -> None:
        from coverage import Coverage

        self.coverage = Coverage(str(REACHED), branch=True, source=[str(SOURCE)], config_file=False)
        self.stored = Path(f"{REACHED}.json")
        self.seconds: dict[str, float] = json.loads(self.stored.read_text()) if self.stored.exists() else {}

    def gather(self, tests: list[str]) -> None:
        """Adds to what is there."""
        if REACHED.exists():
            self.coverage.load()
        try:
            pytest.main(["-q", "-p", "no:cacheprovider", "-m", "not study", *tests], plugins=[self])
        finally:
            self.coverage.stop()
            self._save()

    def _save(self) -> None:
        self.coverage.save()
        self.stored.write_text(json.dumps(self.seconds))

    def pytest_collection_finish(self) -> None:
        self.coverage.start()  # what is imported is no part of a test

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.coverage.switch_context(item.nodeid)
        begin = time.process_time()
        outcome = yield
        self.seconds[item.nodeid] = time.process_time() - begin
        self.coverage.switch_context("")
        if len(self.seconds) % 25 == 0:
            self._save()
        return outcome

    def read(self, room: str) -> None:
        files = (SOURCE / room).rglob("*.py")
        if not REACHED.exists() or max(map(os.path.getmtime, files)) > REACHED.stat().st_mtime:
            command = "python -m benchmarks.trust.mutants --reach tests"
            raise SystemExit(f"Which tests reach which line of {room}/ is not known: {command}")
        self.coverage.load()
        data = self.coverage.get_data()
        self._of_file: dict[str, dict[int, list[str]]] = {
            str(path.relative_to(SOURCE)): data.contexts_by_lineno(str(path))
            for path in (SOURCE / room).rglob("*.py")
        }
        lines = (tests for of in self._of_file.values() for tests in of.values())
        reaching = {test for tests in lines for test in tests} & self.seconds.keys()
        self.files = sorted({test.partition("::")[0] for test in reaching})

    def tests(self, relative: str, tree: ast.AST, line: int, rng: np.random.Generator) -> list[str]:
        """Those that reach the statement of a line: a case of each test, then others; fast ones first."""
        reached = self._of_file[relative]
        statements = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
        first = max(node.lineno for node in statements if node.lineno <= line <= (node.end_lineno or 0))
        found = self.seconds.keys() & {test for at in range(first, line + 1) for test in reached.get(at, [])}
        cases, order = Counter[str](), list[tuple[int, float, str]]()
        for test in rng.permutation(sorted(found)).tolist():
            function = test.partition("[")[0]
            order.append((self.seconds[test] > FAST and 1 + cases[function], self.seconds[test], test))
            cases[function] += 1
        return [test for *_, test in sorted(order)][:MOST_TESTS]


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def put_in_place(before: ast.AST, after: ast.AST, path: Path) -> int:
    """Gives the functions of a file that differ their changed code, wherever they are; returns how many."""
    pairs = zip(*(_codes(compile(tree, str(path), "exec")) for tree in (before, after)), strict=True)
    changed = {(old.co_qualname, old.co_firstlineno): new for old, new in pairs if old != new}
    gc.unfreeze()  # what is frozen is not listed
    found = [
        each
        for each in gc.get_objects()
        # Not isinstance: that would ask what a dead weak reference refers to.
        if type(each) is FunctionType
        and each.__code__.co_filename == str(path)
        and (each.__code__.co_qualname, each.__code__.co_firstlineno) in changed
    ]
    gc.freeze()
    for each in found:
        each.__code__ = changed[each.__code__.co_qualname, each.__code__.co_firstlineno]
    return len(found)


class Judge:
    """A plugin of pytest that runs mutants instead of the tests it has collected."""

    def __init__(self, room: str, chosen: slice, seed: int, again: set[str] | None = None) -> None:
        self.room, self.chosen, self.seed, self.again = room, chosen, seed, again
        self.counts, self.survivors, self.n_sites = Counter[str](), list[str](), 0
        self.seen = Counter[str]()  # that were judged
        self.reached = Reached()
        self.reached.read(room)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.items = {item.nodeid: item for item in session.items}

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        _warm_up()
        files = [
            path for path in sorted((SOURCE / self.room).rglob("*.py")) if not path.name.endswith("loops.py")
        ]
        sources = {str(path.relative_to(SOURCE)): path.read_text(encoding="utf-8") for path in files}
        for relative in sources:
            importlib.import_module(f"foldless.{relative[:-3].replace('/', '.').removesuffix('.__init__')}")
        every = [(name, k) for name, text in sources.items() for k in range(len(places(ast.parse(text))))]
        self.n_sites = len(every)
        drawn = np.random.default_rng(self.seed).permutation(len(every))[self.chosen]
        # What is judged again is found by its text, since files have changed.
        for at in drawn if self.again is None else range(len(every)):
            relative, k = every[at]
            self._judge(relative, sources[relative], k, np.random.default_rng([self.seed, at]))
        return True

    def _judge(self, relative: str, source: str, k: int, rng: np.random.Generator) -> None:
        before, after = ast.parse(source), ast.parse(source)
        name, node = places(after)[k]
        line = getattr(node, "lineno", 0)
        tests = self.reached.tests(relative, after, line, rng)
        what = f"{relative} {name}: {change(node)}"
        if self.again is not None and what not in self.again:
            return
        self.seen[what] += 1
        verdict = self._verdict(before, after, relative, tests)
        if verdict == "killed" and not self.counts["killed"]:
            # Once: without a change the tests must pass, or every mutant would seem to be noticed.
            assert self._verdict(before, before, relative, tests) == "survived", tests
        if verdict in ("survived", "not reached") and what in EQUIVALENT:
            verdict = "equivalent"
        self.counts[verdict] += 1
        if verdict not in ("killed", "timed out"):
            self.survivors.append(what if verdict != "not reached" else f"{what}{NOT_REACHED}")
        print(f"{verdict}: {relative}:{line} {what.partition(' ')[2]}", flush=True)

    def _verdict(self, before: ast.AST, after: ast.AST, relative: str, tests: list[str]) -> str:
        items = [self.items[test] for test in tests if test in self.items]
        if not items:
            return "not reached"
        child = os.fork()
        if child == 0:
            code = 3
            try:
                os.setpgid(0, 0)
                nowhere = os.open(os.devnull, os.O_RDWR)
                for stream in (0, 1, 2):
                    os.dup2(nowhere, stream)
                assert before is after or put_in_place(before, after, SOURCE / relative)
                code = self._run(items)
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # what a test has started
        if os.WIFSIGNALED(status):
            return "timed out" if os.WTERMSIG(status) in (signal.SIGPROF, signal.SIGALRM) else "killed"
        if os.WEXITSTATUS(status) > 1:
            raise RuntimeError(
                f"a mutant of {relative} could not be put in place, or its tests could not run"
            )
        return ("survived", "killed")[os.WEXITSTATUS(status)]

    def _run(self, items: list[pytest.Item]) -> int:
        """Whether one fails, in a child."""
        from _pytest.runner import runtestprotocol

        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        for item, following in zip(items, [*items[1:], None], strict=True):
            patience = TIMES * self.reached.seconds[item.nodeid] + PATIENCE
            signal.setitimer(signal.ITIMER_PROF, patience)
            signal.setitimer(signal.ITIMER_REAL, 20 * patience)  # one that waits
            reports = runtestprotocol(item, log=False, nextitem=following)
            if any(report.failed for report in reports):
                return 1
            if time.process_time() > SECONDS:  # the clock of a child begins with it
                break
        return 0


def _warm_up() -> None:
    """What is imported and compiled at the first fit."""
    import foldless

    for name in HEAVY:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 40))
    for labels in (np.arange(30) % 2, np.arange(30) % 3):
        foldless.SparseClassifier().fit(X, labels)
    # Collections by mistake would copy all of its pages into every child.
    gc.collect()
    gc.freeze()


def run(
    room: str, n_mutants: int = 100, first: int = 0, seed: int = 0, again: list[str] | None = None
) -> dict[str, Any]:
    """Of n mutants from the `first` on, in an order that the seed draws; of these, some of an earlier run."""
    survived = None if again is None else {_without_note(what) for what in again}
    judge = Judge(room, slice(first, first + n_mutants), seed, survived)
    options = ["-q", "-s", "-p", "no:cacheprovider", "-p", "no:xdist"]
    pytest.main([*options, *judge.reached.files], plugins=[judge])
    counts = judge.counts
    return {
        "sites": judge.n_sites,
        "mutants": sum(counts.values()),
        "tests": MOST_TESTS,
        "killed": counts["killed"],
        "survived": counts["survived"] + counts["not reached"],
        "equivalent": counts["equivalent"],
        "timed out": counts["timed out"],
        "survivors": judge.survivors,
        **({} if again is None else {"seen": judge.seen}),
    }


def _without_note(what: str) -> str:
    return what.removesuffix(NOT_REACHED)


def judged_again(room: str) -> None:
    """What survived in the stored results, by the tests that there are now, in one go."""
    from benchmarks.trust import page
    from benchmarks.trust.run import record

    stored = json.loads((page.RESULTS / "mutants.json").read_text(encoding="utf-8"))["pieces"]
    pieces = {name: piece for name, piece in stored.items() if name.split()[0] == room}
    found = run(room, again=[what for piece in pieces.values() for what in piece["survivors"]])
    left, seen = Counter(map(_without_note, found["survivors"])), found["seen"]
    for name, piece in pieces.items():
        stay = []
        for what in piece["survivors"]:
            text = _without_note(what)
            # One that is not found any more has not been noticed by anybody.
            if left[text] or not seen[text]:
                left[text] -= bool(left[text])
                reached = text if text in found["survivors"] else f"{text}{NOT_REACHED}"
                stay.append(reached if seen[text] else what)
        # A score of tests that were written for these mutants is no longer that of mutants at random.
        piece.setdefault("killed at first", piece["killed"])
        equivalent = sum(what in EQUIVALENT for what in stay)
        piece["equivalent"], piece["survived"], piece["survivors"] = equivalent, len(stay) - equivalent, stay
        piece["killed"] = piece["mutants"] - len(stay) - piece["timed out"]
        record("mutants", name, piece)
    page.write()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--reach", nargs="+", metavar="TESTS")
    parser.add_argument("--room", default="io", choices=ROOMS)
    parser.add_argument("--mutants", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--again", action="store_true")
    options = parser.parse_args()
    if options.reach:
        Reached().gather(options.reach)
    elif options.again:
        judged_again(options.room)
    else:
        print(run(options.room, options.mutants, options.first))
