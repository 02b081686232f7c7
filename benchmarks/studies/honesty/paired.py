"""Leave-one-out beside refits without the same samples, on the simulated designs: chance cancels.

python -m benchmarks.studies.honesty.paired      # runs that paired.csv lacks

Leave-one-out of a hundred samples is off by chance, and refits without each of them would be off in the same
way. So their difference on the same samples is what the formulas of one fit get wrong, and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.studies import _common as common
from benchmarks.studies._resumable import stored_rows
from benchmarks.studies.honesty.designs import DESIGNS
from benchmarks.studies.honesty.run import (
    FULL,
    KEY,
    PAIRED,
    QUICK,
    STUDY,
    Sizes,
    beside_refits,
    learnt_from,
    report,
)
from foldless import SparseClassifier

COLUMNS = [*KEY, "solver", "refits", "loo_error", "refit_error", "loo_log_loss", "refit_log_loss"]
# Of each run, spread over its rows: runs differ more than samples of a run do.
REFITS = 4


def main(argv: Sequence[str] | None = None) -> Path:
    parser = common.options(__doc__ or "", trials=5)
    # Left-out groups are predicted at the class frequencies of all samples, refits at those of the others.
    single = [name for name, design in DESIGNS.items() if not design.grouped]
    parser.add_argument("--designs", nargs="+", choices=single, default=single)
    args = parser.parse_args(argv)
    folder = common.output_folder(args.out, STUDY, args.quick)
    sizes, trials = (QUICK, 1) if args.quick else (FULL, args.trials)
    stored = stored_rows(folder / PAIRED, KEY)
    with common.Results(folder, COLUMNS, PAIRED) as results:
        for row in stored.values():
            results.add(**row)
        for run in range(trials):
            for design in args.designs:
                if (design, str(run)) not in stored:
                    row = {"design": design, "run": run} | compared(design, run, sizes)
                    results.add(**row)
                    print(row, flush=True)
    if (folder / "results.csv").exists():
        (folder / "README.md").write_text(report(folder))
    print(beside_refits(folder / PAIRED))
    return folder


def compared(design: str, run: int, sizes: Sizes) -> dict[str, Any]:
    """One fit, and those without some of its samples."""
    n, of = learnt_from(design, run, sizes)
    X, y = of.X[:n], of.y[:n]

    def fitted(rows: NDArray[np.bool_]) -> SparseClassifier:
        weight = None if of.sample_weight is None else of.sample_weight[:n][rows]
        return SparseClassifier().fit(X[rows], y[rows], sample_weight=weight)

    whole = fitted(np.ones(n, dtype=bool))
    log_probas = []
    for row in np.unique(np.linspace(0, n - 1, REFITS).astype(int)):
        others = np.arange(n) != row
        if np.unique(y[others]).size == np.unique(y).size:
            claimed = np.log(whole.loo_proba_[row].astype(np.float64))
            log_probas.append((claimed, fitted(others).predict_log_proba(X[[row]])[0], y[row]))
    code = [np.searchsorted(whole.classes_, label) for *_, label in log_probas]
    found: dict[str, Any] = {"solver": whole.solver_, "refits": len(code)}
    for name, said in zip(("loo", "refit"), list(zip(*log_probas, strict=True))[:2], strict=True):
        own = np.array(said)
        found[f"{name}_error"] = float(np.mean(own.argmax(axis=1) != code))
        found[f"{name}_log_loss"] = -float(np.mean(own[np.arange(len(code)), code]))
    return found


if __name__ == "__main__":
    main()
