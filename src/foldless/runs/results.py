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
from typing import TYPE_CHECKING, Any

import numpy as np

import foldless
from foldless.beliefs import Array
from foldless.estimators._base import MessagePassingClassifier
from foldless.estimators._feature_table import feature_table
from foldless.estimators._summary import Summary, summary_of
from foldless.estimators.panel import PanelClassifier
from foldless.io.archive import MODEL
from foldless.io.files import sha256_of, write_whole
from foldless.io.spreadsheet import write_workbook
from foldless.io.table import Table
from foldless.io.tsv import write_tsv
from foldless.operators import stays_elsewhere
from foldless.plots.readings import NORMAL_90, ranking
from foldless.runs.compare import Score
from foldless.runs.fit import Run
from foldless.runs.take_along import FIGURES, LISTS, WORKBOOK, TakeAlong, write_lists
from foldless.selection.panel import STAND_INS
from foldless.theory.learning_curve import LearningCurve

if TYPE_CHECKING:
    import pandas as pd

    from foldless.report.subject import Subject

FEATURES, PREDICTIONS = "features.tsv", "predictions.tsv"
REPORT, RECORD = "report.html", "run.json"
# In the record: how the table was read, and whether a learning curve was asked for.
ASKED, CURVE = "asked", "learning_curve"
RESULTS = (MODEL, FEATURES, PREDICTIONS, REPORT, RECORD)
PANEL, MEMBERS, SIZES, PICTURE = "panel.safetensors", "panel.tsv", "panel_sizes.tsv", "panel.png"
PANEL_RESULTS = (PANEL, MEMBERS, SIZES, PICTURE)
COMPARISON = "comparison.tsv"
COMPARISON_RESULTS = (COMPARISON, RECORD)
# Values that are ranked for areas under curves, in seconds.
MOST_RANKED = 20_000_000
PACKAGES = ("numpy", "scipy", "scikit-learn", "pandas", "threadpoolctl", "safetensors")

NOTHING_MORE = TakeAlong()

Column = tuple[str, Any]


def write_results(
    folder: Path,
    run: Run,
    facts: Mapping[str, Any],
    learning_curve: LearningCurve | None = None,
    take_along: TakeAlong = NOTHING_MORE,
) -> list[Path]:
    """Write everything; the record comes last, so that a folder with one is complete."""
    from foldless.report.page import write_page
    from foldless.report.pictures import write_figures
    from foldless.report.subject import Subject

    folder.mkdir(parents=True, exist_ok=True)
    former = _files_of_record(folder)
    written = [run.model.save(folder / MODEL)]
    features = feature_columns(run.summary, run.table.feature_names, feature_table_of(run))
    if described := run.table.about:
        features.append(("description", [described.get(name, "") for name in features[0][1]]))
    predictions = left_out_columns(run)
    write_tsv(folder / FEATURES, features)
    write_tsv(folder / PREDICTIONS, predictions)
    written += [folder / FEATURES, folder / PREDICTIONS]
    if run.panel is not None:
        written += write_panel(folder, run.panel)
    shown = facts_shown(facts["seed"], run.seconds, run.table)
    about = about_table(run.table) | {"facts": shown, "learning_curve": learning_curve, "panel": run.panel}
    about["cautions"] = facts.get("cautions", ())
    subject = Subject(run.model, **about)
    written.append(write_page(folder / REPORT, subject))
    if take_along.workbook:
        write_workbook(folder / WORKBOOK, _sheets(run, subject, features, predictions))
        written.append(folder / WORKBOOK)
    if take_along.lists:
        written += write_lists(folder / LISTS, run.summary, run.table.feature_names)
    if take_along.figures:
        written += write_figures(subject, folder / FIGURES, take_along.figures)
    for path in former.difference(written):
        path.unlink(missing_ok=True)
    hashes = {path.relative_to(folder).as_posix(): sha256_of(path) for path in written}
    more = {CURVE: learning_curve is not None, "files": hashes}
    write_json(folder / RECORD, run_record(run, facts) | more)
    return [*written, folder / RECORD]


def _files_of_record(folder: Path) -> set[Path]:
    """What a former fit has written here: nothing of it stays beside the new results."""
    try:
        paths = {folder / name for name in json.loads((folder / RECORD).read_text("utf-8"))["files"]}
    except (OSError, ValueError, TypeError, KeyError):
        return set()
    return {path for path in paths if folder.resolve() in path.resolve().parents}


def _sheets(
    run: Run, subject: Subject, features: list[Column], predictions: list[Column]
) -> dict[str, list[Column]]:
    """The answers first; then the tables."""
    from foldless.report import answer

    said = [
        (each.question, each.verdict, sentence)
        for each in answer.answers(subject)
        for sentence in each.sentences
    ]
    said += [("Read with care", "", caution) for caution in answer.cautions(subject)]
    said += [(what, value, note) for value, what, note in answer.figures(subject)]
    said += [("About the table", "", step) for step in run.table.steps]
    sheets = {
        "Answers": list(zip(("about", "in short", "in words"), zip(*said, strict=True), strict=True)),
        "Features": features,
        "Predictions": predictions,
    }
    if run.panel is not None:
        sheets |= {"Panel": panel_columns(run.panel), "Panel sizes": panel_size_columns(run.panel)}
    return sheets


def write_panel(folder: Path, panel: PanelClassifier) -> list[Path]:
    """The model of the panel's columns, its members and what could replace them, errors against sizes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from foldless.plots import PanelDisplay, save

    write_tsv(folder / MEMBERS, panel_columns(panel))
    write_tsv(folder / SIZES, panel_size_columns(panel))
    figure = Figure(figsize=(6.6, 4.4), layout="constrained")
    FigureCanvasAgg(figure)
    PanelDisplay.from_estimator(panel, ax=figure.subplots())
    save(figure, folder / PICTURE)
    return [panel.save(folder / PANEL), *(folder / name for name in PANEL_RESULTS[1:])]


def panel_columns(panel: PanelClassifier) -> list[Column]:
    """Features in the order of their importance, and what could stand in for those of the panel."""
    names, order = panel.feature_names_in_, panel.order_
    stability = dict(zip(panel.features_.tolist(), panel.stability_, strict=True))
    replaced = [[str(names[other.feature]) for other in panel.alternatives_.get(int(j), ())] for j in order]
    return [
        ("rank", range(1, order.size + 1)),
        ("feature", names[order]),
        ("column", order + 1),
        ("in_panel", [int(j) in stability for j in order]),
        ("stability", [stability.get(int(j)) for j in order]),
        *(
            (f"stand_in_{n + 1}", [(*each, *[None] * STAND_INS)[n] for each in replaced])
            for n in range(STAND_INS)
        ),
    ]


def panel_size_columns(panel: PanelClassifier) -> list[Column]:
    sizes = [*panel.path_, panel.full_._replace(size=panel.n_features_in_)]
    return [(name, [getattr(each, name) for each in sizes]) for name in sizes[0]._fields]


def about_table(table: Table) -> dict[str, Any]:
    """What a page is told of the table that a model was fitted to."""
    descriptions = [table.about.get(name, "") for name in table.feature_names]
    return {
        "y": table.target,
        "feature_names": table.feature_names,
        "sample_names": table.sample_names,
        "groups": table.groups,
        "source": table.source,
        "steps": table.steps,
        "feature_descriptions": descriptions if table.about else None,
        "X": None if stays_elsewhere(table.X) else table.X,
    }


def facts_shown(seed: int, seconds: float, table: Table) -> dict[str, Any]:
    """Of the run, on the page."""
    return {"seed": seed, "seconds to fit": f"{seconds:.2f}", "sha256": table.sha256}


def write_comparison(
    folder: Path, table: Table, scores: Sequence[Score], facts: Mapping[str, Any]
) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    names = [f.name for f in fields(Score)]
    write_tsv(folder / COMPARISON, [(name, [getattr(s, name) for s in scores]) for name in names])
    record = record_of(table, facts) | {"files": {COMPARISON: sha256_of(folder / COMPARISON)}}
    write_json(folder / RECORD, record)
    return [folder / COMPARISON, folder / RECORD]


def feature_table_of(run: Run) -> pd.DataFrame | None:
    """With areas under curves where values are at hand and few; None of a model that has no such table."""
    if not isinstance(run.model, MessagePassingClassifier):
        return None
    X = run.table.X
    ranked = not stays_elsewhere(X) and np.prod(run.table.shape) <= MOST_RANKED
    data = {"X": X, "y": run.table.labels(), "groups": run.table.groups} if ranked else {}
    panel = None if run.panel is None else run.panel.features_
    return feature_table(run.model, **data, panel=panel)


def feature_columns(
    summary: Summary, names: Sequence[str], of_itself: pd.DataFrame | None = None
) -> list[Column]:
    """One row for each feature, the surest first; of several classes, a weight for each.

    What is kept by decree is no discovery, and is called kept instead of selected. `of_itself` has more
    columns in the order of the table: what each feature is by itself, and in a panel.
    """
    coef, inclusion, classes = summary.weights, summary.inclusion, summary.classes
    order = ranking(summary)
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
    if summary.groups is not None:
        member = np.zeros(order.size, dtype=int)
        for number, found in enumerate(summary.groups, start=1):
            member[found.columns] = number
        columns.append(("credible_set", [int(member[j]) or None for j in order]))
    if of_itself is not None:
        # Inclusion and weights are there already, in the units of the table.
        more = [
            name for name in of_itself.columns if not name.startswith(("inclusion", "selected", "effect"))
        ]
        # Nothing where there is no number.
        values = {name: of_itself[name].to_numpy()[order] for name in more}
        columns += [(name, [None if x != x else x for x in values[name]]) for name in more]
    return columns


def left_out_columns(run: Run) -> list[Column]:
    """What all others predict for each sample, or, with groups, all other groups."""
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
    """What is needed to do it again, and how it went."""
    model, summary, table, panel = run.model, run.summary, run.table, run.panel
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
    if panel is not None:
        found["panel"] = {
            "features": panel.feature_names_.tolist(),
            "path": [each._asdict() for each in panel.path_],
            "full": panel.full_._asdict(),
            "method": [sentence.text for sentence in summary_of(panel).method],
            "flags": [{"code": flag.code, "text": flag.text} for flag in panel.flags_],
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
