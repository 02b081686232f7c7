"""Panels beside projpred (R: apt-get install r-cran-projpred r-cran-rstanarm), on one small table.

python -m benchmarks.studies.which_features.beside_projpred --data DIR
"""

from __future__ import annotations

import itertools
import resource
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.studies import _common as common
from benchmarks.studies._real_data import add_data_option, data_folder
from benchmarks.studies.which_features.run import COLUMNS, Split, agreement, row_of, splits
from foldless import PanelClassifier, SparseClassifier

STUDY = Path(__file__).parent
FILE = "sonar.npz"
SIZES = (5, 10, 20)


def main(argv: Sequence[str] | None = None) -> None:
    parser = common.options(__doc__ or "", trials=3)
    add_data_option(parser, [FILE])
    args = parser.parse_args(argv)
    with np.load(data_folder(args.data, [FILE]) / FILE) as file:
        X, y = file["X"].astype(np.float64), np.unique(file["y"], return_inverse=True)[1]
    folder = common.output_folder(args.out, STUDY, args.quick)
    with common.Results(folder, COLUMNS, "projpred.csv") as results:
        for n, split in enumerate(splits(X, y, 1 if args.quick else args.trials)):
            for row in itertools.chain(_ours(split), _projpred(split)):
                results.add(data="sonar", split=n, **row)
    found = pd.read_csv(folder / "projpred.csv", dtype={"features": str})
    rows = []
    for (size, method), of_method in found.groupby(["size", "method"], sort=True):
        lists = [{int(j) for j in text.split()} for text in of_method.features.fillna("")]
        means = [common.mean_and_error(of_method[each]) for each in ("error", "log_loss")]
        seconds = common.mean_only(of_method.seconds, 1)
        rows.append([size, method, *means, common.mean_only(pd.Series([agreement(lists)]), 2), seconds])
    print(common.markdown(["size", "method", "error", "log loss", "agreement", "seconds"], rows))


def _ours(split: Split) -> Iterator[dict[str, Any]]:
    start = time.process_time()
    full = SparseClassifier().fit(split.X, split.y)
    seconds = time.process_time() - start
    yield row_of("full", 0, split, full.predict_log_proba(split.X_test), seconds=seconds)
    for size in SIZES:
        start = time.process_time()
        panel = PanelClassifier(size, full).fit(split.X, split.y)
        took = seconds + time.process_time() - start
        yield row_of(
            "panel", size, split, panel.predict_log_proba(split.X_test), panel.features_, seconds=took
        )


def _projpred(split: Split) -> Iterator[dict[str, Any]]:
    center, scale = split.X.mean(axis=0), split.X.std(axis=0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, X, y in (("train", split.X, split.y), ("test", split.X_test, split.y_test)):
            frame = pd.DataFrame((X - center) / scale, columns=[f"x{j}" for j in range(X.shape[1])])
            frame.assign(y=y).to_csv(folder / f"{file}.csv", index=False)
        start = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        sizes = ",".join(map(str, SIZES))
        subprocess.run(["Rscript", STUDY / "projpred.R", folder, sizes], check=True)
        seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - start
        order = [int(term[1:]) for term in pd.read_csv(folder / "order.csv").term]
        for size in (0, *SIZES):
            second = pd.read_csv(folder / f"proba_{size}.csv").proba.to_numpy()
            with np.errstate(divide="ignore"):  # which a row bounds
                log_proba: NDArray[np.float64] = np.log(np.column_stack([1.0 - second, second]))
            method = "projpred" if size else "projpred, reference"
            yield row_of(method, size, split, log_proba, np.array(order[:size]), seconds=seconds)


if __name__ == "__main__":
    main()
