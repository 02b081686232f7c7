"""The answer of a run in the terminal: a sentence, a short table, and where the rest is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table as Shown
from rich.text import Text

from foldless.io import printable
from foldless.runs.fit import Run
from foldless.runs.results import NORMAL_90, RESULTS

N_SHOWN = 10
N_SUSPECTS = 5


def tell_fit(console: Console, run: Run, folder: Path) -> None:
    model, table = run.model, run.table
    n_samples, n_features = table.shape
    classes = " and ".join(repr(printable(label)) for label in model.classes_)
    console.print(
        f"{n_samples} samples of {model.classes_.size} classes ({classes}), {counted(n_features)} features; "
        f"fitted in {run.seconds:.1f} s."
    )
    for step in table.steps:
        console.print(step)
    selected = np.asarray(model.get_support(indices=True))
    sentence = f"{_plural(selected.size, 'feature')} selected"
    if hasattr(model, "inclusion_probability_"):
        sentence += f" at a false discovery rate of {model.fdr:g}"
    if hasattr(model, "loo_error_"):
        left_out = "leave-one-out" if table.groups is None else "leave-one-group-out"
        sentence += f"; {left_out} error {100 * model.loo_error_:.1f} %"
    console.print(sentence + ".", style="bold")
    console.print(_features(model, table.feature_names, selected))
    suspects = _suspects(model, table.sample_names)
    if suspects:
        console.print(suspects)
    for note in [*run.notes, *getattr(model, "flags_", [])]:
        console.print(f"Note: {printable(note, longest=600)}")
    console.print(Text(f"Results: {printable(folder.resolve(), longest=4096)}"), soft_wrap=True)
    console.print(f"  {', '.join(RESULTS)}")


def _features(model: Any, names: list[str], selected: Any) -> Shown:
    """The surest features, selected or not: an empty list says less than a ranking."""
    coef = np.atleast_2d(model.coef_)
    largest = np.argmax(np.abs(coef), axis=0)
    weight = coef[largest, np.arange(coef.shape[1])]
    inclusion = getattr(model, "inclusion_probability_", None)
    surest = (
        np.abs(weight) if inclusion is None else np.asarray(inclusion).reshape(-1, weight.size).max(axis=0)
    )
    order = np.lexsort((np.arange(weight.size), -np.abs(weight), -surest))[:N_SHOWN]
    shown = Shown(box=box.SIMPLE_HEAD, pad_edge=False)
    shown.add_column("feature", no_wrap=True)
    headings = ["probability"] if inclusion is not None else []
    headings += ["weight"] + (["90 % interval"] if hasattr(model, "coef_std_") else [])
    for heading in headings:
        shown.add_column(heading, justify="right", no_wrap=True)
    if coef.shape[0] > 1:
        shown.add_column("for class", no_wrap=True)
    shown.add_column("", no_wrap=True)
    for j in order:
        cells = [Text(printable(names[j]))]
        if inclusion is not None:
            cells.append(Text(f"{surest[j]:.3f}"))
        cells.append(Text(f"{weight[j]:+.3g}"))
        if hasattr(model, "coef_std_"):
            reach = NORMAL_90 * np.atleast_2d(model.coef_std_)[largest[j], j]
            cells.append(Text(f"{weight[j] - reach:+.3g} to {weight[j] + reach:+.3g}"))
        if coef.shape[0] > 1:
            cells.append(Text(printable(model.classes_[largest[j]])))
        shown.add_row(*cells, "selected" if j in selected else "")
    return shown


def _suspects(model: Any, samples: list[str]) -> str:
    wrong = getattr(model, "mislabel_probability_", None)
    if wrong is None:
        return ""
    order = [int(i) for i in np.argsort(-wrong, kind="stable")[:N_SUSPECTS] if wrong[i] > 0.5]
    if not order:
        return ""
    named = ", ".join(f"{printable(samples[i])} ({wrong[i]:.2f})" for i in order)
    return f"Labels that look wrong (probability): {named}."


def counted(number: int) -> str:
    return f"{number:,}".replace(",", " ")


def _plural(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
