"""Large tables of near twins: do fits settle, at what price, and what do they find?

python -m benchmarks.studies.background.large [--trials 8] [--revision NAME]

The simulated designs whose neighbours go together most, and ten factors, at sizes of which only active
features move in every iteration (`Budget.every_feature`); the first runs of each, whose sizes take turns.
Rows are in large/results.csv; those that are there stay, unless --again.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from threadpoolctl import threadpool_limits

from benchmarks.studies import _common as common
from benchmarks.studies._resumable import Key, complete
from benchmarks.studies.background.designs import task
from benchmarks.studies.background.methods import FOLDLESS
from benchmarks.studies.background.run import COLUMNS, KEY, QUICK_SHARE, measured, tell

STUDY = Path(__file__).parent / "large"
DESIGNS = ("Toeplitz 0.9", "Toeplitz 0.95", "blocks 0.9", "LD genotypes", "10 factors")
RUNS = 8
SHAPES = ((300, 6000), (300, 12_000), (400, 9000), (400, 12_000))


def main(argv: Sequence[str] | None = None) -> Path:
    parser = common.options(__doc__ or "", trials=RUNS)
    parser.add_argument("--designs", nargs="+", choices=DESIGNS, default=DESIGNS, metavar="NAME")
    parser.add_argument("--revision", help="name of the rows (default: the commit)")
    parser.add_argument("--again", action="store_true", help="measure anew what results.csv has already")
    args = parser.parse_args(argv)
    folder = common.output_folder(args.out, STUDY, args.quick)
    revision = args.revision or common.commit()
    trials, share = (1, 2 * QUICK_SHARE) if args.quick else (args.trials, 1.0)
    asked = [(design, str(run), FOLDLESS, revision) for run in range(trials) for design in args.designs]

    def measure(key: Key, _: Any) -> dict[str, Any]:
        n_samples, n_features = SHAPES[int(key[1]) % len(SHAPES)]
        shape = int(share * n_samples), int(share * n_features)
        row = measured(key[2], task(key[0], int(key[1]), None, shape=shape))
        tell(key, row)
        return row

    with threadpool_limits(1):
        complete(folder, COLUMNS, KEY, asked, measure, again=args.again, trials=trials)
    print("\n" + report(folder))
    return folder


def report(folder: Path) -> str:
    rows = pd.read_csv(folder / "results.csv", dtype={"revision": str})
    rows["false share"] = rows["false_0.1"] / rows["selected_0.1"].clip(lower=1)
    rows["found"] = rows["selected_0.1"] - rows["false_0.1"]
    table = rows.groupby(["design", "revision"], sort=False).agg(
        tables=("run", "size"),
        settled=("settled", "sum"),
        true=("n_active", "sum"),
        found=("found", "sum"),
        false=("false share", "mean"),
        precision=("average_precision", "mean"),
        groups=("groups", "sum"),
        right=("groups_right", "sum"),
        seconds=("cpu_seconds", "median"),
    )
    return str(table.round(3).to_string())


if __name__ == "__main__":
    main()
