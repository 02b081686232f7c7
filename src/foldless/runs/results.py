"""What a run leaves behind: the model, its features, leave-one-out predictions, and a record of the run."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

import foldless
from foldless.beliefs import Array
from foldless.estimators._summary import Summary, summary_of
from foldless.io.files import sha256_of, write_whole
from foldless.io.table import BadTable, Table
from foldless.io.tsv import write_tsv
from foldless.plots.readings import NORMAL_90
from foldless.runs.compare import Score
from foldless.runs.fit import Run
from foldless.theory.learning_curve import LearningCurve

MODEL, FEATURES, PREDICTIONS = "model.safetensors", "features.tsv", "predictions.tsv"
REPORT, RECORD = "report.html", "run.json"
RESULTS = (MODEL, FEATURES, PREDICTIONS, REPORT, RECORD)
COMPARISON = "comparison.tsv"
COMPARISON_RESULTS = (COMPARISON, RECORD)
PACKAGES = ("numpy", "scipy", "scikit-learn", "pandas", "threadpoolctl", "safetensors")

Column = tuple[str, Any]


def write_results(
    folder: Path, run: Run, facts: Mapping[str, Any], learning_curve: LearningCurve | None = None
) -> list[Path]:
    """Write everything; the record comes last, so that a folder with one is complete."""
    folder.mkdir(parents=True, exist_ok=True)
    written = [run.model.save(folder / MODEL)]
    write_tsv(folder / FEATURES, feature_columns(run.summary, run.table.feature_names))
    write_tsv(folder / PREDICTIONS, left_out_columns(run))
    written += [folder / FEATURES, folder / PREDICTIONS]
    shown = {"seed": facts["seed"], "seconds to fit": f"{run.seconds:.2f}", "sha256": run.table.sha256}
    written.append(write_report(folder / REPORT, run.model, run.table, shown, learning_curve))
    record = run_record(run, facts) | {"files": {path.name: sha256_of(path) for path in written}}
    write_json(folder / RECORD, record)
    return [*written, folder / RECORD]


def write_report(
    path: Path,
    model: Any,
    table: Table,
    facts: Mapping[str, Any],
    learning_curve: LearningCurve | None = None,
) -> Path:
    from foldless import report

    return report.write(
        model,
        path,
        y=table.target,
        feature_names=table.feature_names,
        sample_names=table.sample_names,
        groups=table.groups,
        source=table.source,
        steps=table.steps,
        facts=facts,
        learning_curve=learning_curve,
    )


def report_again(path: Path, model: Any, table: Table) -> Path:
    """The report of a model that was saved, with the table it was fitted to."""
    loo = summary_of(model).loo
    n_fitted = len(table.sample_names if loo is None else loo.proba)
    if table.shape[0] != n_fitted:
        raise BadTable(
            table.path,
            f"there are {table.shape[0]} samples, and the model was fitted to {n_fitted}.",
            "A report needs the table of the fit. For other samples, see `foldless predict`.",
        )
    return write_report(path, model, table, {"sha256": table.sha256})


def write_comparison(
    folder: Path, table: Table, scores: Sequence[Score], facts: Mapping[str, Any]
) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    names = [f.name for f in fields(Score)]
    write_tsv(folder / COMPARISON, [(name, [getattr(s, name) for s in scores]) for name in names])
    record = record_of(table, facts) | {"files": {COMPARISON: sha256_of(folder / COMPARISON)}}
    write_json(folder / RECORD, record)
    return [folder / COMPARISON, folder / RECORD]


def feature_columns(summary: Summary, names: Sequence[str]) -> list[Column]:
    """One row for each feature, the surest first; of several classes, a weight for each.

    What is kept by decree is no discovery, and is called kept instead of selected.
    """
    coef, inclusion, classes = summary.weights, summary.inclusion, summary.classes
    size = np.max(np.abs(coef), axis=0)
    surest = size if inclusion is None else inclusion
    order = np.lexsort((np.arange(size.size), -size, -surest))
    columns: list[Column] = [("feature", [names[j] for j in order]), ("column", order + 1)]
    if inclusion is not None:
        columns += _by_class("inclusion_probability", inclusion, classes, order)
    columns += _by_class("weight", coef, classes, order)
    deviation = summary.weight_std
    if deviation is not None:
        columns += _by_class("weight_sd", deviation, classes, order)
        columns += _by_class("lower_90", coef - NORMAL_90 * deviation, classes, order)
        columns += _by_class("upper_90", coef + NORMAL_90 * deviation, classes, order)
    if summary.selects:
        verdict = {int(j): "yes" for j in summary.selected()} | {int(j): "kept" for j in summary.kept}
        columns.append(("selected", [verdict.get(int(j), "no") for j in order]))
    if summary.credible_sets is not None:
        member = np.zeros(size.size, dtype=int)
        for number, found in enumerate(summary.credible_sets, start=1):
            member[found.columns] = number
        columns.append(("credible_set", [int(member[j]) or None for j in order]))
    return columns


def left_out_columns(run: Run) -> list[Column]:
    """What the fit says of each sample from all others, or, with groups, from all other groups."""
    table, summary = run.table, run.summary
    columns: list[Column] = [("sample", table.sample_names)]
    if table.groups is not None:
        columns.append(("group", [str(group) for group in table.groups]))
    columns.append(("label", [str(label) for label in table.labels()]))
    if summary.loo is not None:
        columns += prediction_columns(summary.loo.proba, summary.classes)
    if summary.mislabel_probability is not None:
        columns.append(("mislabel_probability", summary.mislabel_probability))
    return columns


def prediction_columns(proba: Array, classes: Any) -> list[Column]:
    predicted = [str(label) for label in classes[np.argmax(proba, axis=1)]]
    return [("predicted", predicted)] + [
        (f"probability:{label}", proba[:, k]) for k, label in enumerate(classes)
    ]


def run_record(run: Run, facts: Mapping[str, Any]) -> dict[str, Any]:
    """What somebody needs to know to do it again, and how it went."""
    model, summary, table = run.model, run.summary, run.table
    outcome, loo, plan = summary.outcome, summary.loo, summary.plan
    found = {
        "outcome": None if outcome is None else str(outcome),
        "converged": run.converged,
        "advice": None if outcome is None else outcome.advice,
        "iterations": summary.n_iter,
        "leave_one_out_error": None if loo is None else loo.error,
        "leave_one_out_log_loss": None if loo is None else loo.log_loss,
        "selected": len(summary.selected()),
        "flags": [{"code": flag.code, "text": flag.text} for flag in summary.flags],
        "method": [sentence.text for sentence in summary.method],
        "models": [share._asdict() for share in summary.models],
        "plan": None if plan is None else plan.as_dict(),
        "warnings": list(run.notes),
    }
    return {
        **record_of(table, facts),
        "classes": table.class_counts(),
        "model": {"class": type(model).__name__, "parameters": _plain(model.get_params(deep=False))},
        "result": _plain(found),
        "fit_seconds": run.seconds,
    }


def record_of(table: Table, facts: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a record that every command's has."""
    return {
        "foldless": foldless.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: _version(name) for name in PACKAGES},
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        **_plain(dict(facts)),
        "table": {
            "path": str(table.path),
            "sha256": table.sha256,
            "samples": table.shape[0],
            "features": table.shape[1],
            "target": table.target_name,
            "steps": list(table.steps),
            "renamed": dict(table.renamed),
        },
    }


def write_json(path: Path, content: Any) -> None:
    # ASCII only: a name of others cannot steer a terminal that shows the file.
    text = json.dumps(content, indent=2, ensure_ascii=True, allow_nan=False)
    write_whole(path, text.encode("ascii") + b"\n")


def _by_class(name: str, values: Any, classes: Any, order: Any) -> list[Column]:
    rows = np.asarray(values).reshape(-1, order.size)
    if rows.shape[0] == 1:
        return [(name, rows[0, order])]
    return [(f"{name}:{label}", row[order]) for label, row in zip(classes, rows, strict=True)]


def _plain(value: Any) -> Any:
    """A value as JSON can hold it; objects as they describe themselves."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if np.isfinite(value) else str(value)
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
