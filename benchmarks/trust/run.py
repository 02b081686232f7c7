"""Measure how far foldless can be trusted, and write docs/trust.md: `make trust`.

    python -m benchmarks.trust.run                              # the long forms: hours
    python -m benchmarks.trust.run --parts hostile sbc          # some of them
    python -m benchmarks.trust.run --parts properties --share 0.05   # a twentieth of it

Each part leaves a file in benchmarks/trust/results that names its command, commit and versions; the page is
made of these files, so parts may be run on different days.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.trust import page

ROOT = Path(__file__).parents[2]


def _pytest(
    *arguments: str, environment: dict[str, str] | None = None, python: str = sys.executable
) -> dict[str, Any]:
    """Counts of a run of tests."""
    done = subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=ROOT, env=os.environ | (environment or {}), capture_output=True, text=True,
    )  # fmt: skip
    closing = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else done.stderr[-300:]
    counts = {what: int(n) for n, what in re.findall(r"(\d+) (passed|failed|skipped|errors?)", closing)}
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, flags=re.MULTILINE)
    return {"counts": counts, "failed": failed}


def properties(share: float) -> dict[str, Any]:
    examples = max(int(1000 * share), 5)
    found = _pytest("tests/trust", "-k", "properties", environment={"FOLDLESS_EXAMPLES": str(examples)})
    return {"examples": examples, **found}


def common(share: float) -> dict[str, Any]:
    from foldless.testing.estimators import CHECKS

    return {"checks": len(CHECKS), **_pytest("tests/testing/test_estimators.py")}


def hostile(share: float) -> dict[str, Any]:
    from benchmarks.trust import hostile

    return hostile.run()


def calibration(share: float) -> dict[str, Any]:
    from benchmarks.trust import sbc

    return sbc.run(max(int(1000 * share), 50))


def kills(share: float) -> dict[str, Any]:
    from benchmarks.trust import kills

    return kills.run(max(int(200 * share), 5))


def fuzz(share: float) -> dict[str, Any]:
    from benchmarks.trust import fuzz

    return fuzz.run(max(int(100_000 * share), 500), max(int(2000 * share), 50))


def numerics(share: float) -> dict[str, Any]:
    from benchmarks.trust import numerics

    return numerics.run(max(int(10_000 * share), 500))


def checks(share: float) -> dict[str, Any]:
    from benchmarks.trust import checks

    return checks.run()


def mutants(share: float) -> dict[str, Any]:
    from benchmarks.trust import mutants

    return {room: mutants.run(room, max(int(100 * share), 5)) for room in ("io", "solvers", "tuning")}


def oldest(share: float) -> dict[str, Any]:
    """The whole suite with the oldest dependencies; `make .venv-oldest/.installed-test` first."""
    python = ROOT / ".venv-oldest" / "bin" / "python"
    return _pytest("-m", "not study", python=str(python), environment={"PYTHONPATH": ""})


PARTS: dict[str, Callable[[float], dict[str, Any]]] = {
    "numerics": numerics,
    "calibration": calibration,
    "fuzz": fuzz,
    "kills": kills,
    "hostile": hostile,
    "common": common,
    "checks": checks,
    "properties": properties,
    "mutants": mutants,
    "oldest": oldest,
}


def commit() -> str:
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def record(part: str, result: dict[str, Any], command: str) -> None:
    import numpy
    import scipy
    import sklearn

    page.RESULTS.mkdir(exist_ok=True)
    content = {
        "part": part,
        "command": command,
        "commit": commit(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "versions": {m.__name__: m.__version__ for m in (numpy, scipy, sklearn)},
        "result": result,
    }
    (page.RESULTS / f"{part}.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--share", type=float, default=1.0, help="of the long form")
    options = parser.parse_args()
    for part in options.parts:
        share = f" --share {options.share:g}" if options.share != 1.0 else ""
        record(part, PARTS[part](options.share), f"python -m benchmarks.trust.run --parts {part}{share}")
        page.write()
        print(f"{part}: {page.RESULTS / f'{part}.json'}", flush=True)
    print(f"The page is {page.PAGE}")


if __name__ == "__main__":
    main()
