"""Mutations of model files and of tables, read as a user would.

    python -m benchmarks.trust.fuzz --models 100000 --tables 2000

A model file that was changed must be refused by a ValueError that names it. A table that was changed may
still be a table; if not, the error must be a BadTable that names it. Nothing may be executed, so an import
of `pickle` loaders, a new process or a file written elsewhere is a failure as well.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import foldless
from foldless.io.read import read_table
from foldless.io.table import BadTable, Roles

GOLDEN = Path(__file__).parents[2] / "tests" / "golden" / "format-1"
# What a loader has no business with.
FORBIDDEN = ("os.system", "subprocess.Popen", "os.exec", "os.posix_spawn", "pickle.find_class")


def mutated(content: bytes, rng: np.random.Generator) -> bytes:
    """Changed in one of seven ways, and never the same."""
    data = bytearray(content)
    while bytes(data) == content:
        at, length = int(rng.integers(len(data))), int(rng.integers(1, 64))
        match rng.integers(7):
            case 0:
                data[at] ^= 1 << int(rng.integers(8))
            case 1:
                data[at] = int(rng.integers(256))
            case 2:
                data[at : at + length] = b""
            case 3:
                data[at:at] = rng.bytes(length)
            case 4:
                data[at : at + length] = bytes(length)
            case 5:
                other = int(rng.integers(len(data)))
                data[at : at + length], data[other : other + length] = (
                    data[other : other + length],
                    data[at : at + length],
                )
            case 6:
                data = data[:at] or bytearray(b"\0")
    return bytes(data)


class Watch:
    """Notes what an audit hook sees while it is on; hooks cannot be taken off again."""

    def __init__(self) -> None:
        self.on, self.seen = False, Counter[str]()
        sys.addaudithook(self._hook)

    def _hook(self, event: str, _: Any) -> None:
        if self.on and event.startswith(FORBIDDEN):
            self.seen[event] += 1


def fuzzed(
    files: list[Path], read: Callable[[Path], Any], expected: type[Exception], n: int, seed: int
) -> dict[str, Any]:
    rng, watch = np.random.default_rng(seed), Watch()
    contents = [(path.suffix, path.read_bytes()) for path in files]
    accepted, refused, wrong = 0, 0, Counter[str]()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for path in files:
            read(path)  # what is imported on the way is imported before anybody watches
        for k in range(n):
            suffix, content = contents[k % len(contents)]
            path = Path(folder) / f"file{suffix}"
            path.write_bytes(mutated(content, rng))
            watch.on = True
            try:
                read(path)
                accepted += 1
            except expected as error:
                refused += 1
                wrong["does not name the file"] += path.name not in str(error)
            except Exception as error:  # whatever it is, it is the finding
                wrong[f"{type(error).__name__}: {str(error)[:80]}"] += 1
            finally:
                watch.on = False
    return {
        "mutations": n,
        "accepted": accepted,
        "refused": refused,
        "wrong": {what: count for what, count in wrong.items() if count},
        "executed": dict(watch.seen),
    }


def models(n: int, seed: int = 0) -> dict[str, Any]:
    """Every golden file of this format that carries a checksum; older ones have none to check."""
    files = [path for path in sorted(GOLDEN.glob("*.foldless")) if b"sha256" in path.read_bytes()[:4096]]
    if not files:
        files = _fresh_models()
    return {"files": len(files), **fuzzed(files, foldless.load, ValueError, n, seed)}


def _fresh_models() -> list[Path]:
    from benchmarks.trust.estimators import every_estimator

    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((20, 6)), np.arange(20) % 2
    folder = Path(tempfile.mkdtemp())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [
            model.fit(X, y).save(folder / f"{name}.foldless") for name, model in every_estimator().items()
        ]


def tables(n: int, seed: int = 0) -> dict[str, Any]:
    from scipy import sparse

    rng = np.random.default_rng(1)
    values = rng.standard_normal((12, 5)).round(3)
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        lines = ["id,label," + ",".join(f"gene {j}" for j in range(5))]
        lines += [f"s{i},{'ab'[i % 2]}," + ",".join(map(str, row)) for i, row in enumerate(values)]
        (here / "t.csv").write_text("\n".join(lines) + "\n")
        (here / "t.tsv").write_text("\n".join(lines).replace(",", "\t") + "\n")
        svm = [
            f"{i % 2} " + " ".join(f"{j + 1}:{v}" for j, v in enumerate(row)) for i, row in enumerate(values)
        ]
        (here / "t.svmlight").write_text("\n".join(svm) + "\n")
        sparse.save_npz(here / "t.npz", sparse.csr_matrix(values))
        import pandas as pd

        pd.DataFrame(values, columns=[f"gene {j}" for j in range(5)]).assign(label=["a", "b"] * 6).to_parquet(
            here / "t.parquet"
        )
        found = {}
        for path in sorted(here.iterdir()):
            named = path.suffix in (".csv", ".tsv", ".parquet")
            read = partial(read_table, roles=Roles(target="label") if named else None)
            found[path.suffix] = fuzzed([path], read, BadTable, n, seed)
        return found


def run(n_models: int = 100_000, n_tables: int = 2000) -> dict[str, Any]:
    return {"models": models(n_models), "tables": tables(n_tables)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=int, default=100_000)
    parser.add_argument("--tables", type=int, default=2000)
    options = parser.parse_args()
    print(run(options.models, options.tables))
