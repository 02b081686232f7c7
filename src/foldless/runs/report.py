"""The page about a saved model once more, from what its fit has left in its folder."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import foldless
from foldless.estimators._summary import summary_of
from foldless.estimators.planning import learning_curve
from foldless.io.archive import MODEL
from foldless.io.files import sha256_of
from foldless.io.table import BadTable, Reading, Roles, Table
from foldless.operators import stays_elsewhere
from foldless.runs.fit import names_apart
from foldless.runs.predict import read_for
from foldless.runs.results import ASKED, CURVE, PANEL, RECORD, about_table, facts_shown

TABLE, LABELS, SHEET = "table", "labels", "sample_sheet"
# What a page needs of a table beside the features, which the model has by name.
PURPOSES = ("target", "groups", "samples")


class Again(NamedTuple):
    """A saved model with the table of its fit, and what else is told on the page."""

    model: Any
    table: Table
    about: dict[str, Any]


def to_remember(table: Path, roles: Roles, reading: Reading, labels: Path | None = None) -> dict[str, Any]:
    """Where a table is and how it is read, as far as that was said; files by their whole paths."""
    said = {name: getattr(roles, name) for name in PURPOSES}
    said |= {each.name: getattr(reading, each.name) for each in fields(reading)}
    unsaid = {each.name: each.default for each in fields(reading)}
    given = {TABLE: table, LABELS: labels} | {n: v for n, v in said.items() if v != unsaid.get(n)}
    return {n: str(v.resolve()) if isinstance(v, Path) else v for n, v in given.items() if v is not None}


def read_again(
    model: Path, table: Path | None, roles: Roles, reading: Reading, *, budget: float | None = None
) -> Again:
    """With the table of the fit, found where it was and read as it was, unless anything else is said."""
    file = model / MODEL if model.is_dir() else model
    loaded, record = foldless.load(file), _record(file)
    asked = record.get(ASKED, {})
    if table is None and not asked:
        problem = f"there is no {RECORD} of its fit beside it, which would tell where the table is."
        raise BadTable(file, problem, "Name the table: foldless report MODEL TABLE --target COLUMN.")
    labels = Path(asked[LABELS]) if LABELS in asked else None
    where = Path(asked[TABLE]) if table is None else table
    if table is None and not where.exists():
        problem = "the table of the fit is no longer there."
        raise BadTable(where, problem, "Name where it is now: foldless report MODEL TABLE.")
    read = read_for(loaded, where, _said(roles, asked), _said(reading, asked), labels=labels, budget=budget)
    # Classes may be in a sheet of their own.
    same = table is not None or (read.sha256, read.class_counts()) == _seen(record)
    if not same:
        problem = "the table is not what it was at the fit."
        raise BadTable(where, problem, "If it is the right one all the same: foldless report MODEL TABLE.")
    _check_samples(loaded, read)
    return Again(loaded, read, _about(file, record, loaded, read))


def write_again(path: Path, again: Again) -> Path:
    from foldless import report

    return report.write(again.model, path, **again.about)


def _said(options: Any, asked: dict[str, Any]) -> Any:
    """Options as they are given, and else as they were for the fit."""
    earlier = {
        each.name: asked[each.name]
        for each in fields(options)
        if each.name in asked and getattr(options, each.name) == each.default
    }
    if SHEET in earlier:
        earlier[SHEET] = Path(earlier[SHEET])
    return replace(options, **earlier)


def _record(file: Path) -> dict[str, Any]:
    """Of the run that has written this very file; empty if there is none beside it."""
    try:
        record = json.loads((file.parent / RECORD).read_text("utf-8"))
        own = record["files"][file.name] == sha256_of(file) and bool(_seen(record))
    except (OSError, ValueError, TypeError, KeyError):
        return {}
    return record if own else {}


def _seen(record: dict[str, Any]) -> tuple[str, dict[str, int]]:
    """The table of the fit, and its classes."""
    return record["table"]["sha256"], record["classes"]


def _about(file: Path, record: dict[str, Any], model: Any, table: Table) -> dict[str, Any]:
    """What the page of the fit had, if there is a record of it."""
    about = about_table(table)
    if not record:
        return about | {"facts": {"sha256": table.sha256}}
    about["facts"] = facts_shown(record["seed"], record["fit_seconds"], table)
    about |= {"steps": record["table"]["steps"], "cautions": record.get("cautions", ())}
    if file.name == MODEL and PANEL in record["files"]:
        about["panel"] = panel = foldless.load(file.parent / PANEL)
        panel.feature_names_in_ = model.feature_names_in_  # saved once, with the model
    if file.name == MODEL and record.get(CURVE) and not stays_elsewhere(table.X):
        with names_apart():
            about["learning_curve"] = learning_curve(model, table.X, table.labels())
    return about


def _check_samples(model: Any, table: Table) -> None:
    loo = summary_of(model).loo
    n_fitted = len(table.sample_names if loo is None else loo.proba)
    if table.shape[0] != n_fitted:
        raise BadTable(
            table.path,
            f"there are {table.shape[0]} samples, and the model was fitted to {n_fitted}.",
            "A report needs the table of the fit. For other samples, see `foldless predict`.",
        )
