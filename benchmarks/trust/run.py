"""Measure how far foldless can be trusted, and write docs/trust.md: `make trust`.

    python -m benchmarks.trust.run                              # the long forms: hours
    python -m benchmarks.trust.run --parts hostile calibration  # some of them
    python -m benchmarks.trust.run --parts properties --only order gamp   # pieces whose name has one of these
    python -m benchmarks.trust.run --parts properties --share 0.05        # a twentieth of it

A part has pieces: an estimator, a property, a room. Each is written down when it is done, with its commit, to
benchmarks/trust/results, over what was there of the same piece; the page is made of these files, so pieces
may be run on different days, and of scikit-learn's checks with different versions.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.trust import page

ROOT = Path(__file__).parents[2]
# Whether a piece is wanted, by its name.
Wanted = Callable[[str], bool]
Pieces = Iterator[tuple[str, dict[str, Any]]]


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


def properties(share: float, wanted: Wanted) -> Pieces:
    examples = max(int(1000 * share), 5)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    listed = subprocess.run(
        [*command, "tests/trust", "-k", "properties", "--collect-only", "-q"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    tests = re.findall(r"^tests/\S+::test_\S+", listed.stdout, flags=re.MULTILINE)
    tests = [test for test in tests if wanted(test.partition("::test_")[2])]
    environment = os.environ | {"FOLDLESS_EXAMPLES": str(examples), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        [*command, "-v", *tests], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    ) as running:
        for line in running.stdout or ():
            if found := re.match(r"\S+::test_(\S+) (PASSED|FAILED|SKIPPED)", line):
                name, verdict = found.groups()
                failed = [name] if verdict == "FAILED" else []
                yield name, {"examples": examples, "counts": {verdict.lower(): 1}, "failed": failed}


def common(share: float, wanted: Wanted) -> Pieces:
    from foldless.testing.estimators import CHECKS

    yield "all", {"checks": len(CHECKS), **_pytest("tests/testing/test_estimators.py")}


def hostile(share: float, wanted: Wanted) -> Pieces:
    from benchmarks.trust import estimators, hostile

    for name in filter(wanted, estimators.every_estimator()):
        yield name, hostile.run([name])


def calibration(share: float, wanted: Wanted) -> Pieces:
    from benchmarks.trust import sbc

    for k, setting in enumerate(sbc.SETTINGS):
        if wanted(sbc.named(setting)):
            yield sbc.named(setting), sbc.run(k, max(int(1000 * share), 50))


def kills(share: float, wanted: Wanted) -> Pieces:
    from benchmarks.trust import kills

    yield "all", kills.run(max(int(200 * share), 5))


def fuzz(share: float, wanted: Wanted) -> Pieces:
    from benchmarks.trust import fuzz

    for seed in range(10):
        if wanted(f"models {seed}"):
            yield f"models {seed}", fuzz.models(max(int(100_000 * share), 500), seed)
    for suffix in filter(wanted, fuzz.SUFFIXES):
        yield suffix, fuzz.tables(suffix, max(int(2000 * share), 50))


def agreement(share: float, wanted: Wanted) -> Pieces:
    from benchmarks.trust import agreement

    for name in agreement.OURS:
        if wanted(f"units {name}"):
            yield f"units {name}", agreement.units(name, max(int(20 * share), 2))
    if wanted("enumeration"):
        yield "enumeration", agreement.enumeration(max(int(200 * share), 10))
    if wanted("Gibbs"):
        yield "Gibbs", agreement.gibbs(max(int(50 * share), 3))
    if wanted("threads"):
        yield "threads", agreement.threads(2)
    if wanted("processors"):
        yield "processors", agreement.processors()


def references(share: float, wanted: Wanted) -> Pieces:
    from benchmarks.trust import references

    data = os.environ.get("FOLDLESS_DATA")
    stored = json.loads((references.STORED / "chains.json").read_text(encoding="utf-8"))
    for name in filter(wanted, stored):
        found = references.compared(name, Path(data) if data else None)
        if found is not None:
            independent = references.of_independent_draws(name)
            yield name, found | {"chains": stored[name], "within if independent": independent}


def adversarial(share: float, wanted: Wanted) -> Pieces:
    yield "all", {"fits": 500, **_pytest("tests/estimators/test_adversarial.py")}


def faults(share: float, wanted: Wanted) -> Pieces:
    from benchmarks.trust import faults

    for name in filter(wanted, faults.FAULTS):
        yield name, faults.run(name, max(int(20 * share), 2))


def honesty(share: float, wanted: Wanted) -> Pieces:
    from benchmarks.trust import honesty

    yield "all", honesty.run(max(int(120 * share), 6))


def numerics(share: float, wanted: Wanted) -> Pieces:
    from benchmarks.trust import numerics

    yield "all", numerics.run(max(int(10_000 * share), 500))


def checks(share: float, wanted: Wanted) -> Pieces:
    import sklearn

    from benchmarks.trust import checks, estimators

    for name in filter(wanted, estimators.every_estimator()):
        yield f"{name}, scikit-learn {sklearn.__version__}", checks.run(name)


def mutants(share: float, wanted: Wanted) -> Pieces:
    from benchmarks.trust import mutants

    for first in range(0, max(int(100 * share), 20), 20):
        for room in mutants.ROOMS:
            if wanted(name := f"{room} {first:03d}"):
                yield name, mutants.run(room, 20, first)


def rooms(share: float, wanted: Wanted) -> Pieces:
    """The test suite in this environment, room by room."""
    import numpy
    import sklearn

    here = (
        f"Python {platform.python_version()}, scikit-learn {sklearn.__version__}, NumPy {numpy.__version__}"
    )
    for room in filter(wanted, page.test_rooms()):
        files = [str(path.relative_to(ROOT)) for path in ROOT.glob(room)]
        yield f"{room}, {here}", _pytest(*files, "-m", "not study")


PARTS: dict[str, Callable[[float, Wanted], Pieces]] = {
    "numerics": numerics,
    "calibration": calibration,
    "agreement": agreement,
    "references": references,
    "adversarial": adversarial,
    "honesty": honesty,
    "fuzz": fuzz,
    "faults": faults,
    "kills": kills,
    "hostile": hostile,
    "common": common,
    "checks": checks,
    "properties": properties,
    "mutants": mutants,
    "rooms": rooms,
}


def commit() -> str:
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip()[:7] or "unknown"


def record(part: str, piece: str, result: dict[str, Any]) -> None:
    import numpy
    import scipy
    import sklearn

    page.RESULTS.mkdir(exist_ok=True)
    path = page.RESULTS / f"{part}.json"
    before = json.loads(path.read_text(encoding="utf-8"))["pieces"] if path.exists() else {}
    result |= {
        "commit": commit(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "versions": {m.__name__: m.__version__ for m in (numpy, scipy, sklearn)},
    }
    content = {
        "command": f"python -m benchmarks.trust.run --parts {part}",
        "pieces": before | {piece: result},
    }
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--only", nargs="*", default=[""], help="pieces whose name has one of these words")
    parser.add_argument("--share", type=float, default=1.0, help="of the long form")
    options = parser.parse_args()

    def wanted(name: str) -> bool:
        return any(word in name for word in options.only)

    for part in options.parts:
        for piece, result in PARTS[part](options.share, wanted):
            record(part, piece, result)
            page.write()
            print(f"{part}, {piece}: {result}"[:300], flush=True)
    print(f"The page is {page.PAGE}")


if __name__ == "__main__":
    main()
