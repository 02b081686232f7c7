"""Real tables that come with packages of PyPI, beside cross-validated ridge and L1.

python -m benchmarks.studies.fresh_tables.run --data DIR [--methods foldless ...] [--tables ...] [--again]

Every fit has a process of its own, with one thread. Rows that are in results.csv stay, unless --again.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.studies import _common as common
from benchmarks.studies._isolated import isolated
from benchmarks.studies._real_data import add_data_option, data_folder
from benchmarks.studies._resumable import Key, complete
from benchmarks.studies.fresh_tables.data import TABLES, load
from benchmarks.studies.fresh_tables.plot import draw, report
from benchmarks.studies.large_tables.run import METHODS
from benchmarks.studies.packaged_tables.run import COLUMNS, KEY, judged

STUDY = Path(__file__).parent


def main(argv: Sequence[str] | None = None) -> Path:
    parser = common.options(__doc__ or "", trials=4)
    add_data_option(parser, ["the files of export.py"])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    parser.add_argument("--patience", type=float, default=600.0, help="seconds for one fit (default 600)")
    parser.add_argument("--again", action="store_true", help="measure anew what results.csv has already")
    args = parser.parse_args(argv)
    needed = [f"{table}.npz" for table in args.tables]
    data = data_folder(args.data, needed, instead="export.py makes them")
    folder = common.output_folder(args.out, STUDY, args.quick)
    splits = 1 if args.quick else args.trials
    asked = [(t, s, m) for s in range(splits) for t in args.tables for m in args.methods]

    def measure(key: Key, _: Any) -> dict[str, Any] | None:
        if key[2] == "L1" and np.unique(load(data, key[0])[1]).size > 2:
            return None  # of many classes it is saga's, for minutes: see the studies of many classes
        row = isolated(measured, data, key[0], int(key[1]), key[2], patience=args.patience)
        told = row.get("stopped") or f"error {row['error']:.4f}, log loss {row['log_loss']:.4f}"
        print(f"{key[0]:20s} split {key[1]}  {key[2]:8s} {told}", flush=True)
        return row

    complete(folder, COLUMNS, KEY, asked, measure, again=args.again, patience=args.patience)
    print("\n" + report(folder))
    draw(folder)
    print(f"\nresults.csv, figure.png and machine.json are in {folder}")
    return folder


def measured(data: Path, table: str, split: int, method: str) -> dict[str, Any]:
    return judged(*load(data, table), split, method)


if __name__ == "__main__":
    main()
