"""docs/trust.md, made of benchmarks/trust/results: targets, figures, commands, and defects that were found.

python -m benchmarks.trust.page
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).parent / "results"
PAGE = ROOT / "docs" / "trust.md"

Results = dict[str, dict[str, Any]]


class Target(NamedTuple):
    name: str
    what: str
    part: str | None  # whose results are shown, or
    figure: Callable[[dict[str, Any]], tuple[str, str]]  # the figure, and met, partly, missed or not run
    command: str = ""  # of figures that other studies and tests have


def elsewhere(figure: str, verdict: str) -> Callable[[dict[str, Any]], tuple[str, str]]:
    return lambda _: (figure, verdict)


def _verdict(met: bool, complete: bool = True) -> str:
    return ("met" if complete else "partly: less was run") if met else "missed"


def _counts(result: dict[str, Any]) -> str:
    return ", ".join(f"{n} {what}" for what, n in result["counts"].items())


def _checks(result: dict[str, Any]) -> tuple[str, str]:
    passed = sum(of.get("passed", 0) for of in result["counts"].values())
    skipped = sum(of.get("skipped", 0) for of in result["counts"].values())
    text = f"{len(result['counts'])} estimators, {passed} checks passed, {skipped} skipped, "
    text += f"{len(result['failed'])} "
    return f"{text}failed with scikit-learn {result['scikit-learn']}", _verdict(not result["failed"])


def _common(result: dict[str, Any]) -> tuple[str, str]:
    return f"{result['checks']} checks: {_counts(result)}", _verdict(not result["failed"])


def _properties(result: dict[str, Any]) -> tuple[str, str]:
    complete = result["examples"] >= 1000
    text = f"{_counts(result)}, {result['examples']} examples each"
    return text, _verdict(not result["failed"] and result["counts"].get("passed", 0) >= 60, complete)


def _hostile(result: dict[str, Any]) -> tuple[str, str]:
    how = f" ({result['how']})" if "how" in result else ""
    text = f"{result['good']} of {result['cells']}, slowest {result['slowest']:.1f} s{how}"
    return text, _verdict(result["good"] == result["cells"])


def _calibration(result: dict[str, Any]) -> tuple[str, str]:
    n, settings = 3 * len(result["settings"]), len(result["settings"])
    text = f"{result['inside']} of {n} inside, {result['simulations']} simulations x {settings}"
    return text, _verdict(result["inside"] == n, result["simulations"] >= 1000)


def _kills(result: dict[str, Any]) -> tuple[str, str]:
    different = result["different after resuming"]
    text = f"{result['kills']} kills ({result['at work']} at work): "
    text += f"{len(result['truncated'])} truncated, {different} "
    met = not result["truncated"] and not different
    return f"{text}different after going on", _verdict(met, result["kills"] >= 200)


def _models(result: dict[str, Any]) -> tuple[str, str]:
    found = result["models"]
    wrong = sum(found["wrong"].values()) + found["accepted"]
    text = f"{found['mutations']} mutations: {found['refused']} refused, {found['accepted']} accepted, "
    text += f"{sum(found['wrong'].values())} other errors, {sum(found['executed'].values())} executions"
    return text, _verdict(not wrong and not found["executed"], found["mutations"] >= 1e6)


def _tables(result: dict[str, Any]) -> tuple[str, str]:
    wrong = {kind: sum(of["wrong"].values()) for kind, of in result["tables"].items() if of["wrong"]}
    n = next(iter(result["tables"].values()))["mutations"]
    kinds = " ".join(result["tables"])
    # h5ad and NIfTI go through libraries that can crash a process; they are not among these.
    return f"{n} mutations each of {kinds}: {wrong or 'no'} other errors", _verdict(not wrong, complete=False)


def _numerics(result: dict[str, Any]) -> tuple[str, str]:
    worst = max(max(errors) for errors in result["worst relative error"].values())
    text = f"{result['points']} points, worst relative error {worst:.1e}, NaN in {len(result['NaN'])}"
    return text, _verdict(worst <= 1e-12 and not result["NaN"], result["points"] >= 10_000)


def _mutants(result: dict[str, Any]) -> tuple[str, str]:
    parts, scores = [], []
    for room, of in result.items():
        judged = of["killed"] + of["survived"]  # a run that was cut off says nothing
        scores.append(of["killed"] / max(judged, 1))
        parts.append(f"{room} {of['killed']} of {judged} noticed")
    complete = all(of["mutants"] >= 100 for of in result.values()) and len(result) == 3
    return "; ".join(parts), _verdict(min(scores) >= 0.85, complete)


def _oldest(result: dict[str, Any]) -> tuple[str, str]:
    return _counts(result), _verdict(not result["failed"])


TRUST = "python -m benchmarks.studies.trust.run --data DIR"
TARGETS = [
    Target("R1", "All scikit-learn checks on every estimator, none expected to fail", "checks", _checks),
    Target("R2", "40 common checks of our own over every estimator", "common", _common),
    Target("R3", "60 properties, 1000 examples each", "properties", _properties),
    Target("R4", "25 hostile inputs x 3 storages x 3 precisions x every estimator, all fitted or refused "
           "with a reason within 5 s", "hostile", _hostile),
    Target("R5", "Units 1e-100 to 1e100 and offsets do not matter (rtol 1e-6)", None,
           elsewhere("among the properties: units 2^±300, shifts to 2^20", "partly: no offsets of 1e8 sd"),
           "pytest tests/trust -k unit"),
    Target("R6", "Simulation-based calibration inside the band, 1000 simulations x 6", "calibration",
           _calibration),
    Target("R7", "Inclusion within .02 in ten bins, 90 % intervals cover 88 to 92 %, in domain", None,
           elsewhere(".0011; 89.9 %", "met"), TRUST),
    Target("R8", "Miscalibrated fits of 6 correlated designs carry a flag", None,
           elsewhere("of 419 fits 29 were miscalibrated, none of them flagged", "missed"), TRUST),
    Target("R9", "Reference posteriors by long MCMC of 6 problems", None,
           elsewhere("not made to posteriordb's definition", "not run")),
    Target("R10", "Against enumeration and Gibbs sampling", None,
           elsewhere("EP against all supports and Gibbs in CI; not 200 and 50 cases", "partly"),
           "pytest tests/solvers/test_ep.py -k 'enumeration or gibbs'"),
    Target("R11", "Every fit ends in a named outcome, none silent", None,
           elsewhere("outcomes are an enumeration, tested on adversarial matrices; not 500", "partly"),
           "pytest tests/estimators/test_adversarial.py"),
    Target("R12", "The same bytes again; permutations within rounding", None,
           elsewhere("among common checks and properties", "partly: one machine, n_jobs not varied"),
           "pytest tests/testing tests/trust -k 'bits or order'"),
    Target("R13", "Extra memory at most .25 of X", None,
           elsewhere("no copy of X in tests of operators; 1.2 to 2.5 times X over a background", "missed"),
           "python -m benchmarks.scale.correlated_memory"),
    Target("R14", "First fit at most twice the second, import .5 s beyond scikit-learn", None,
           elsewhere("import .06 s beyond", "met"), "python -m benchmarks.scale.cold_start"),
    Target("R15", "200 SIGKILLs: nothing truncated, resuming gives the same bytes", "kills", _kills),
    Target("R16", "12 faults x 20 runs end in a result or a named error", None,
           elsewhere("disk full, broken journals, Dask workers and tasks in CI; not 240 runs", "partly"),
           "pytest tests/runs/test_on_dask.py tests/estimators/test_dask.py tests/io/test_journal.py -k "
           "'fail or kill or full or broken'"),
    Target("R17", "10^6 mutations of model files: none loads, crashes or runs code", "fuzz", _models),
    Target("R18", "No name becomes markup; axe-core without serious findings", None,
           elsewhere("hostile names in every slot, browser and axe-core in CI", "met"),
           "pytest tests/report"),
    Target("R19", "Malformed files end in an error that names them", "fuzz", _tables),
    Target("R20", "Scalar functions within 1e-12 of long arithmetic over all of double precision", "numerics",
           _numerics),
    Target("R21", "Mutation score 85 % on solvers, tuning, io", "mutants", _mutants),
    Target("R22", "Supply chain", None, elsewhere("see SECURITY.md and the release checklist", "see there")),
    Target("", "The whole suite with the oldest declared dependencies", "oldest", _oldest),
]  # fmt: skip

# What was found by looking for it, and the test that keeps it mended.
DEFECTS = [
    ("A value that is not finite was refused without its row and column",
     "tests/testing: what_is_not_finite_is_named"),
    ("Columns near the largest number of single precision failed inside of the fit (`array must not contain "
     "infs`, `cannot convert float NaN to integer`)",
     "tests/trust/test_short_forms.py: largest number, scale 1e150"),
    ("A damaged .npz could end in `OSError: Invalid argument` without the name of the file",
     "tests/trust/test_short_forms.py: changed tables"),
    ("SBMLR divided by zero where no column goes with the labels (constant, denormal, or equal rows of both "
     "classes)", "tests/trust/test_short_forms.py: all constant, equal rows"),
    ("The RVM overflowed where nothing is left, and gave LAPACK's message for values whose squares overflow",
     "tests/trust/test_short_forms.py: all zero, largest number"),
    ("log of the normal's variance far out had the rounding of LAPACK's weights, 6e-15, with SciPy 1.15",
     "tests/contracts/test_special.py"),
    ("`--fdr nan` was bad data instead of a usage error with older Typer", "tests/test_cli.py"),
    ("307 tests failed with the oldest declared dependencies: bounds are those of the last two years now",
     "make test-oldest"),
    ("Weights of samples of 1e30: a hang, LinAlgError, evidence that is not finite",
     "tests/testing: absurd_weights_are_refused"),
    ("Two columns of one name raised narwhals' DuplicateError", "tests/testing: a_name_twice_is_refused"),
    ("Changed model files were loaded without a word", "tests/testing: a_changed_file_is_refused"),
    ("`predict` disagreed with the most probable class at ties", "tests/testing: probabilities_add_up"),
    ("`loo_error_` of 1.0000000000000002", "tests/testing: published_numbers_are_in_their_ranges"),
]  # fmt: skip


def results() -> Results:
    return {
        path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob("*.json"))
    }


def text(found: Results) -> str:
    lines = [
        "# How far it can be trusted",
        "",
        "Every figure here is made by a command that you can run. `make trust` runs the long forms of all",
        "parts and writes this page; `make test` has short forms of each. *Partly* means that what was run",
        "held, but less was run than the target asks for. A target that was missed says so.",
        "",
        "| | target | figure | | command |",
        "|---|---|---|---|---|",
    ]
    for target in TARGETS:
        if target.part is None:
            figure, verdict = target.figure({})
            command = target.command
        elif target.part in found:
            stored = found[target.part]
            figure, verdict = target.figure(stored["result"])
            command = stored["command"]
            figure += f" (commit {stored['commit']})"
        else:
            figure, verdict, command = "", "not run", f"python -m benchmarks.trust.run --parts {target.part}"
        command = f"`{command}`" if command else ""
        lines.append(f"| {target.name} | {target.what} | {figure} | {verdict} | {command} |")
    lines += ["", "## Machines", ""]
    if "machines" in found:
        lines += [f"- {line}" for line in found["machines"]["result"]["lines"]]
    lines += ["", "## Defects that were found on the way", "", "| defect | kept mended by |", "|---|---|"]
    lines += [f"| {defect} | {test} |" for defect, test in DEFECTS]
    if "mutants" in found:
        lines += [
            "",
            "## Mutants that survived",
            "",
            "Changes that the tests of their file did not notice:",
            "",
        ]
        lines += [f"- `{what}`" for of in found["mutants"]["result"].values() for what in of["survivors"]]
    return "\n".join(lines).replace("|---|---|\n\n", "|---|---|\n") + "\n"


def write() -> None:
    PAGE.write_text(text(results()), encoding="utf-8")


if __name__ == "__main__":
    write()
