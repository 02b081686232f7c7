"""Do the tests notice a wrong line? Random mutants of a room, each judged by the tests that mirror its file.

    python -m benchmarks.trust.mutants --room io --mutants 100

One operator, comparison, number or truth value of a file is changed in a copy of the package; its tests run
against that copy and should fail. A mutant that they let pass has survived, whether or not anybody could tell
(some changes change nothing: a tolerance, a size of blocks), so the score is a lower bound. Lines within
docstrings, type hints, messages of errors and constants in capitals are left alone.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "foldless"
# Tests of a file: those named after it, or else these.
TESTS = {
    "io/archive.py": ["tests/estimators/test_saving.py", "tests/golden"],
    "io/journal.py": ["tests/io/test_journal.py"],
    "io/tsv.py": ["tests/io/test_result_tables.py"],
    "io/files.py": ["tests/io/test_result_tables.py", "tests/estimators/test_saving.py"],
    "io/text.py": ["tests/io/test_readers.py", "tests/io/test_malformed_tables.py"],
    "io/dialect.py": ["tests/io/test_everyday_tables.py", "tests/io/test_malformed_tables.py"],
    "io/npz.py": ["tests/io/test_claims.py", "tests/io/test_readers.py"],
    "io/svmlight.py": ["tests/io/test_readers.py", "tests/io/test_malformed_tables.py"],
    "solvers/gamp.py": ["tests/solvers/test_gamp.py"],
    "solvers/gaussian_layer.py": ["tests/solvers/test_gaussian_layer.py"],
    "solvers/label_ep.py": ["tests/solvers/test_label_ep.py"],
    "solvers/few_columns.py": ["tests/solvers/test_few_columns.py"],
    "solvers/multinomial_ridge.py": ["tests/solvers/test_multinomial_ridge.py"],
    "solvers/solve.py": ["tests/solvers/test_solve.py"],
    "solvers/smlr/newton.py": ["tests/solvers/test_smlr.py"],
    "solvers/smlr/rate.py": ["tests/solvers/test_smlr_rate.py"],
    "tuning/plan.py": ["tests/tuning/test_plan.py"],
    "tuning/em.py": ["tests/tuning/test_em.py"],
    "tuning/class_means.py": ["tests/tuning/test_class_means.py", "tests/tuning/test_blend.py"],
    "tuning/portfolio.py": ["tests/tuning/test_portfolio.py"],
    "tuning/integration.py": ["tests/tuning/test_integration.py"],
    "tuning/table.py": ["tests/tuning/test_table.py"],
}
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


def killed(path: Path, relative: str, mutant: str, folder: Path, patience: float) -> str:
    """How the tests of the file end with the mutant in its place: killed, survived, or timed out."""
    shutil.copytree(
        SOURCE, folder / "foldless", dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__")
    )
    target = folder / "foldless" / relative
    target.write_text(mutant)
    environment = os.environ | {
        "PYTHONPATH": f"{folder}:{ROOT}",
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", "not study"]
    try:
        done = subprocess.run(
            [*command, *TESTS[relative]], cwd=ROOT, env=environment, capture_output=True, timeout=patience
        )
    except subprocess.TimeoutExpired:
        return "timed out"
    finally:
        target.write_text(path.read_text())
    return "survived" if done.returncode == 0 else "killed"


def run(room: str, n_mutants: int = 100, seed: int = 0, patience: float = 300.0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    files = [relative for relative in TESTS if relative.startswith(f"{room}/")]
    trees = {relative: ast.parse((SOURCE / relative).read_text()) for relative in files}
    every = [(relative, k) for relative, tree in trees.items() for k in range(len(sites(tree)))]
    chosen = rng.permutation(len(every))[:n_mutants]
    counts, survivors = {"killed": 0, "survived": 0, "timed out": 0}, []
    with tempfile.TemporaryDirectory() as place:
        for at in chosen:
            relative, k = every[at]
            tree = copy.deepcopy(trees[relative])
            node = sites(tree)[k]
            what = f"{relative}:{getattr(node, 'lineno', 0)} {change(node)}"
            verdict = killed(SOURCE / relative, relative, ast.unparse(tree), Path(place), patience)
            counts[verdict] += 1
            if verdict == "survived":
                survivors.append(what)
            print(verdict, what, flush=True)
    return {"room": room, "sites": len(every), "mutants": len(chosen), **counts, "survivors": survivors}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--room", default="io", choices=["io", "solvers", "tuning"])
    parser.add_argument("--mutants", type=int, default=100)
    options = parser.parse_args()
    print(run(options.room, options.mutants))
