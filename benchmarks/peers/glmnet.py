"""glmnet of R and foldless on the same tables: what is kept, errors on new samples, seconds.

python -m benchmarks.peers.glmnet [--write]

Needs R with glmnet (on Debian: apt install r-base-core r-cran-glmnet); CI and the documentation do not. With
`--write` the tables on docs/from-glmnet.md become those of this run.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import process_time
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_digits

from benchmarks.studies import _common as common
from foldless import SMLRClassifier, SparseClassifier
from foldless.datasets import make_class_means, make_logistic

HERE = Path(__file__).parent
PAGE = HERE.parent.parent / "docs" / "from-glmnet.md"
REPEATS = 5
METHODS = ("glmnet, lambda.1se", "glmnet, lambda.min", "foldless")
Array = NDArray[np.float64]


class Data(NamedTuple):
    """Training rows first; features that matter, where that is known."""

    X: Array
    code: NDArray[np.intp]
    n: int
    active: NDArray[np.intp] | None = None


class Found(NamedTuple):
    kept: NDArray[np.bool_]
    proba: Array  # of new rows
    seconds: float
    lam: float = np.nan
    weights: Array | None = None  # of glmnet at lambda.min, intercept first


def independent(seed: int) -> Data:
    data = make_class_means(2200, 2000, 10, random_state=seed)
    return Data(data.X, (data.y > 0).astype(np.intp), 200, data.active)


def correlated(seed: int) -> Data:
    data = make_logistic(2200, 1000, 5, correlation=0.8, random_state=seed)
    return Data(data.X, (data.y > 0).astype(np.intp), 200, data.active)


def nothing(seed: int) -> Data:
    data = independent(seed)
    shuffled = np.random.default_rng(seed).permutation(data.code)
    return Data(data.X, shuffled, data.n, np.empty(0, dtype=np.intp))


def breast_cancer(seed: int) -> Data:
    return _split(*load_breast_cancer(return_X_y=True), 100, seed)


def digits(seed: int) -> Data:
    return _split(*load_digits(return_X_y=True), 300, seed)


def _split(X: Array, y: NDArray[np.intp], n: int, seed: int) -> Data:
    order = np.random.default_rng(seed).permutation(len(y))
    return Data(X[order].astype(np.float64), y[order], n)


TABLES: dict[str, tuple[str, Callable[[int], Data]]] = {
    "independent": ("200 x 2000, 10 of which matter (`make_class_means`)", independent),
    "correlated": ("200 x 1000, neighbours correlated by 0.8, 5 matter (`make_logistic`)", correlated),
    "nothing": ("the first, with labels shuffled: nothing matters", nothing),
    "breast cancer": ("100 x 30, two classes (`load_breast_cancer`)", breast_cancer),
    "digits": ("300 x 64, ten classes (`load_digits`)", digits),
}


def by_glmnet(data: Data) -> dict[str, Found]:
    n, (rows, p), k = data.n, data.X.shape, int(data.code.max()) + 1
    with tempfile.TemporaryDirectory() as folder:
        table, answer = Path(folder) / "table", Path(folder) / "answer"
        np.concatenate([data.X.ravel(order="F"), data.code[:n] + 1.0]).tofile(table)
        numbers = [str(each) for each in (n, rows - n, p, k)]
        command = ["Rscript", str(HERE / "glmnet.R"), str(table), str(answer), *numbers]
        subprocess.run(command, check=True)
        values = np.fromfile(answer)
    seconds, rest, found = float(values[0]), values[1:], {}
    size = 2 + p + (rows - n) * k
    for number, method in enumerate(METHODS[:2]):
        own = rest[number * size : (number + 1) * size]
        kept, proba = own[2 : 2 + p] != 0, own[2 + p :].reshape(rows - n, k)
        found[method] = Found(kept, proba, seconds, float(own[0]), rest[2 * size :] if k == 2 else None)
    return found


def by_foldless(data: Data) -> Found:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = process_time()
        model = SparseClassifier().fit(data.X[: data.n], data.code[: data.n])
        seconds = process_time() - start
    return Found(model.get_support(), model.predict_proba(data.X[data.n :]), seconds)


def lines(name: str, words: str, make: Callable[[int], Data]) -> Iterator[list[str]]:
    """A line for each method, of means over repeats."""
    rows: dict[str, list[tuple[float, ...]]] = {method: [] for method in METHODS}
    for seed in range(REPEATS):
        data = make(seed)
        new = data.code[data.n :]
        for method, found in {**by_glmnet(data), "foldless": by_foldless(data)}.items():
            own = np.clip(found.proba[np.arange(new.size), new], 1e-15, 1.0)
            wrong = float(np.mean(found.proba.argmax(axis=1) != new))
            true = np.nan if data.active is None else float(found.kept[data.active].sum())
            rows[method].append((found.kept.sum(), true, wrong, -float(np.log(own).mean()), found.seconds))
        print(f"{name}, repeat {seed + 1} of {REPEATS}", file=sys.stderr, flush=True)
    for method, each in rows.items():
        kept, true, wrong, loss, seconds = np.mean(each, axis=0)
        of_these = "" if np.isnan(true) else f"{true:.1f}"
        yield [
            words if method == METHODS[0] else "",
            method,
            f"{kept:.1f}",
            of_these,
            f"{wrong:.3f}",
            f"{loss:.3f}",
            f"{seconds:.2f}",
        ]


def correspondence() -> str:
    """The largest difference between weights of the lasso of both at glmnet's lambda.min."""
    data = breast_cancer(0)
    found = by_glmnet(data)["glmnet, lambda.min"]
    assert found.weights is not None
    lasso = SMLRClassifier(rate=data.n * found.lam, tol=1e-12).fit(data.X[: data.n], data.code[: data.n])
    own = np.append(lasso.intercept_, lasso.coef_[0])
    unit = np.append(1.0, data.X[: data.n].std(axis=0))
    away = float(np.max(np.abs(own - found.weights) * unit) / np.max(np.abs(found.weights[1:] * unit[1:])))
    kept = int(np.count_nonzero(found.weights[1:])), lasso.n_kept_
    return (
        f"lambda.min = {found.lam:.6f}: glmnet keeps {kept[0]} columns, SMLRClassifier(rate=n * lambda) "
        f"{kept[1]}; weights per standard deviation differ by at most {away:.0e} of the largest"
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="put the tables on the page")
    arguments = parser.parse_args(argv)
    if shutil.which("Rscript") is None:
        print("There is no Rscript here. On Debian: apt install r-base-core r-cran-glmnet", file=sys.stderr)
        return 1
    header = ("table", "", "kept", "of these true", "error", "log loss", "CPU seconds")
    found = [line for name, (words, make) in TABLES.items() for line in lines(name, words, make)]
    text = common.markdown(header, found)
    same = correspondence()
    print(f"{text}\n\n{same}")
    if arguments.write:
        page = PAGE.read_text(encoding="utf-8")
        for name, block in (("tables", text), ("correspondence", f"```{{code-block}} text\n{same}\n```")):
            begins, ends = f"<!-- {name} of benchmarks.peers.glmnet -->", f"<!-- end of {name} -->"
            before, _, rest = page.partition(begins)
            page = f"{before}{begins}\n\n{block}\n\n{ends}{rest.partition(ends)[2]}"
        PAGE.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
