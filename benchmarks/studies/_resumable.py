"""A results.csv that is added to: what was measured once is measured again only if asked for."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.studies import _common as common

Key = tuple[str, ...]


def stored_rows(path: Path, key: Sequence[str]) -> dict[Key, dict[str, str]]:
    """The rows of an earlier run by what they measured."""
    return {tuple(row[name] for name in key): row for row in common.read_rows(path)}


def complete(
    folder: Path,
    columns: Sequence[str],
    key: Sequence[str],
    asked: Iterable[Key],
    measure: Callable[[Key, dict[Key, dict[str, Any]]], dict[str, Any] | None],
    *,
    again: bool,
    **settings: Any,
) -> None:
    """Measure every key that results.csv lacks, or every key asked for; all other rows stay.

    `measure` is given the key and the rows so far, and returns None for what is not worth measuring.
    """
    wanted = [tuple(map(str, one)) for one in asked]
    rows: dict[Key, dict[str, Any]] = dict(stored_rows(folder / "results.csv", key))
    if again:
        rows = {one: row for one, row in rows.items() if one not in set(wanted)}
    earlier = earlier_runs(folder / "machine.json") if rows else []
    common.write_machine(folder, **settings, earlier_runs=earlier)
    with common.Results(folder, columns) as results:
        for row in rows.values():
            results.add(**row)
        for one in wanted:
            if one in rows:
                continue
            found = measure(one, rows)
            if found is not None:
                rows[one] = dict(zip(key, one, strict=True)) | found
                results.add(**rows[one])


def earlier_runs(path: Path) -> list[dict[str, Any]]:
    """When and how the rows that stay were measured."""
    if not path.exists():
        return []
    last = json.loads(path.read_text())
    about = {name: last.get(name) for name in ("date", "commit", "command", "load_before", "versions")}
    return [*last["settings"].get("earlier_runs", []), about]
