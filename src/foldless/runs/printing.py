"""The answer of a run, printed to the terminal: a sentence, a short table, and where the rest is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich import box
from rich.console import Console
from rich.status import Status
from rich.table import Table as Shown
from rich.text import Text

from foldless.estimators._preparation import in_per_cent, missing_share
from foldless.estimators._summary import Summary, summary_of
from foldless.io import Table, printable
from foldless.io.budget import free_memory, in_words
from foldless.io.names import counted
from foldless.plots.readings import NORMAL_90, ranking
from foldless.problem import Iteration
from foldless.report.choice import run_rows
from foldless.report.features import panel_in_words
from foldless.runs.check import Findings
from foldless.runs.compare import Score
from foldless.runs.fit import Run
from foldless.runs.predict import Prediction
from foldless.selection.marginal import q_values

N_SHOWN = 10
N_SUSPECTS = 5


class Progress:
    """The iterations of a fit as one line that changes in place; nothing where lines cannot change."""

    def __init__(self, status: Status) -> None:
        self.status, self.n_iter = status, 0

    def __call__(self, iteration: int, line: Iteration) -> None:
        self.n_iter += 1
        self.status.update(f"Fitting: iteration {self.n_iter}, weights change by {line.change:.1e}")


def print_fit(console: Console, run: Run, folder: Path, written: Sequence[str]) -> None:
    """The answer, and the names of what is in the folder of results."""
    summary, table = run.summary, run.table
    n_samples, n_features = table.shape
    console.print(
        f"{counted(n_samples)} samples of {summary.classes.size} classes ({_classes(summary)}), "
        f"{counted(n_features)} features; fitted in {run.seconds:.1f} s."
    )
    for step in table.steps:
        console.print(step)
    verb = "selected" if summary.selects else "used"
    sentence = f"{_plural(len(summary.selected()), 'feature')} {verb}"
    if summary.inclusion is not None:
        sentence += f" at a false discovery rate of {summary.fdr:g}"
    if summary.loo is not None:
        left_out = {"samples": "leave-one-out error", "groups": "leave-one-group-out error"}
        sentence += (
            f"; {left_out.get(summary.loo.of, 'error of groups left out')} {100 * summary.loo.error:.1f} %"
        )
        if (worth := summary.loo.worth) is not None:
            lower, upper = worth.error_interval
            sentence += f" (95 % interval {100 * lower:.1f} to {100 * upper:.1f} %)"
            if summary.loo.error >= worth.guessing_error:
                sentence += f", no less than the {100 * worth.guessing_error:.1f} % of guessing"
            sentence += "" if worth.p_value is None else f", p = {worth.p_value:.2g}"
    console.print(sentence + ".", style="bold")
    differing = summary.differing()
    if differing.size and not len(summary.selected()):
        # No name by itself: those that differ together are worth more than a list of small probabilities.
        console.print(
            f"{_plural(differing.size, 'feature')} {'differs' if differing.size == 1 else 'differ'} between "
            f"the classes (q < {summary.fdr:g}):"
        )
        console.print(_differing(summary, differing[:N_SHOWN], table.feature_names))
    else:
        console.print(_features(summary, table.feature_names))
    suspects = _suspects(summary, table.sample_names)
    if suspects:
        console.print(suspects)
    if run.panel is not None:
        console.print(panel_in_words(run.panel), style="bold")
    for note in [*run.notes, *summary.flags, *(() if run.panel is None else run.panel.flags_)]:
        console.print(f"Note: {printable(note, longest=600)}")
    console.print(where_it_is("Results", folder), soft_wrap=True)
    console.print(f"  {', '.join(written)}")


def print_prediction(console: Console, prediction: Prediction, path: Path) -> None:
    labels, counts = np.unique(prediction.predicted.astype(str), return_counts=True)
    shares = ", ".join(f"{count} {printable(label)}" for label, count in zip(labels, counts, strict=True))
    console.print(f"{_plural(prediction.table.shape[0], 'sample')}: {shares}.", style="bold")
    if prediction.error is not None:
        console.print(f"Predicted otherwise than the table says: {100 * prediction.error:.1f} %.")
    if unknown := prediction.unknown_labels:
        shown = ", ".join(
            f"{printable(label) or 'none'} ({n})" for label, n in list(unknown.items())[:N_SHOWN]
        )
        console.print(f"Labels that the model does not know, not compared: {shown}.")
    print_cautions(console, prediction.cautions)
    for step in prediction.table.steps:
        console.print(step)
    console.print(Text(f"Predictions: {printable(path, longest=4096)}"), soft_wrap=True)


def print_findings(console: Console, findings: Findings) -> None:
    table = findings.table
    n_samples, n_features = table.shape
    kind = "sparse" if hasattr(table.X, "indptr") else str(table.X.dtype)
    console.print(f"{counted(n_samples)} samples, {counted(n_features)} features ({kind}).", style="bold")
    for step in table.steps:
        console.print(step)
    if table.target is None:
        for name, counts in list(table.candidates.items())[:N_SHOWN]:
            values = ", ".join(f"{printable(label)} ({n})" for label, n in list(counts.items())[:N_SHOWN])
            console.print(f"Could be the target: {printable(name)!r}: {values}.")
        if share := missing_share(table.X):
            console.print(f"{in_per_cent(share)} of values are missing.")
        if table.candidates:
            console.print("Name the column with the class of each sample, for instance:")
        else:
            console.print(
                "No column looks like classes. Where samples are in columns (genes in rows), these are in "
                "another table, or another sheet of the same workbook. Look at both:"
            )
    else:
        counts = table.class_counts()
        console.print(f"Classes: {', '.join(f'{printable(label)} ({n})' for label, n in counts.items())}.")
        console.print(
            f"A fit needs up to {in_words(findings.needed)} of memory; {in_words(free_memory())} are free."
        )
        console.print("What SparseClassifier, the default, would do:")
        for sentence in findings.plan:
            console.print(f"  {sentence}")
        print_cautions(console, findings.problems)
        console.print("A fit is possible:" if findings.problems else "Nothing stands in the way of a fit:")
    console.print(Text(f"  {printable(findings.command, longest=4096)}"), soft_wrap=True)


def print_cautions(console: Console, cautions: Sequence[str]) -> None:
    for caution in cautions:
        console.print(f"Note: {caution}")


def print_model(console: Console, metadata: dict[str, Any], model: Any) -> None:
    summary = summary_of(model)
    made_by = (
        f"foldless {printable(metadata.get('foldless', 'unknown'))}, format {printable(metadata['format'])}"
    )
    console.print(f"{summary.name}, saved by {made_by}.", style="bold")
    console.print(f"Classes {_classes(summary)}; {counted(summary.n_features)} features.")
    changed = {name: value for name, value in model.get_params(deep=False).items() if value is not None}
    console.print(
        "Parameters: " + ", ".join(f"{k}={printable(repr(v), longest=60)}" for k, v in changed.items())
    )
    for sentence in (*summary.method, summary.columns):
        console.print(printable(sentence.text, longest=600))
    for share in summary.models if len(summary.models) > 1 else ():
        console.print(f"  {100 * share.weight:3.0f} %  {share.name} (log loss {share.log_loss:.3f})")
    for row in [] if summary.record is None else run_rows(summary.record):
        unused = "" if row.used else ", not in the answer"
        console.print(f"  {row.model}: {row.purpose}; {row.solver}, {row.runs} x, {row.ended}{unused}")
    if summary.outcome is not None:
        console.print(f"The fit {summary.outcome} after {summary.n_iter} iterations.")
    if summary.loo is not None:
        console.print(f"Leave-one-out error {100 * summary.loo.error:.1f} %.")
    if summary.kernel is None:
        names = range(1, summary.n_features + 1) if summary.feature_names is None else summary.feature_names
        console.print(_features(summary, [str(name) for name in names]))
    for flag in summary.flags:
        console.print(f"Note: {printable(flag, longest=600)}")


def print_comparison(console: Console, table: Table, scores: Sequence[Score], folder: Path | None) -> None:
    """Means over splits, with standard errors."""
    n_splits = max(score.split for score in scores)
    console.print(
        f"{counted(table.shape[0])} samples, {counted(table.shape[1])} features, {n_splits} test parts, each "
        "predicted by models fitted to the rest."
    )
    shown = empty_table("method", "error", "log loss", "used", "selected", "seconds")
    for method in dict.fromkeys(score.method for score in scores):
        own = [score for score in scores if score.method == method]
        errors = np.array([score.error for score in own])
        spread = errors.std(ddof=1) / np.sqrt(errors.size) if errors.size > 1 else 0.0
        losses = [score.log_loss for score in own if score.log_loss is not None]
        selected = [score.n_selected for score in own if score.n_selected is not None]
        shown.add_row(
            method,
            f"{100 * errors.mean():.1f} ± {100 * spread:.1f} %",
            f"{np.mean(losses):.3f}" if losses else "–",
            f"{np.mean([score.n_features for score in own]):.0f}",
            f"{np.mean(selected):.0f}" if selected else "–",
            f"{np.mean([score.seconds for score in own]):.1f}",
        )
    console.print(shown)
    console.print(
        "Rivals are tuned by cross-validation within training parts. Used are features that predictions rest "
        "on, selected those that `foldless fit` would count."
    )
    if folder is not None:
        console.print(where_it_is("Results", folder), soft_wrap=True)


def _features(summary: Summary, names: list[str]) -> Shown:
    """The surest features, selected or not: a ranking is of more use than an empty list."""
    selected, coef, std = summary.selected(), summary.weights, summary.weight_std
    digits = 3 if coef.shape[0] == 1 else 2  # a column more must fit into the same 80
    largest = np.argmax(np.abs(coef), axis=0)
    weight = coef[largest, np.arange(coef.shape[1])]
    inclusion = summary.inclusion
    headings = ["probability"] if inclusion is not None else []
    headings += ["weight"] + (["90 % interval"] if std is not None else [])
    shown = empty_table("feature", *headings)
    if coef.shape[0] > 1:
        shown.add_column("for class", no_wrap=True)
    shown.add_column("", no_wrap=True)
    for j in ranking(summary)[:N_SHOWN]:
        cells = [Text(printable(names[j]))]
        if inclusion is not None:
            cells.append(Text(f"{inclusion[j]:.3f}"))
        cells.append(Text(f"{weight[j]:+.3g}"))
        if std is not None:
            reach = NORMAL_90 * std[largest[j], j]
            lower, upper = f"{weight[j] - reach:+.{digits}g}", f"{weight[j] + reach:+.{digits}g}"
            cells.append(Text(f"{lower} to {upper}"))
        if coef.shape[0] > 1:
            cells.append(Text(printable(summary.classes[largest[j]])))
        chosen = "selected" if j in selected and summary.selects else ""
        shown.add_row(*cells, "kept" if j in summary.kept else chosen)
    return shown


def _differing(summary: Summary, features: NDArray[np.intp], names: list[str]) -> Shown:
    """Each feature by itself, the clearest first."""
    sums = summary.class_sums
    assert sums is not None
    difference, q = np.abs(sums.difference), q_values(sums.p_value)
    shown = empty_table("feature", "difference in s.d.", "q")
    shown.add_column("higher in", no_wrap=True)
    for j in features:
        higher = printable(summary.classes[int(sums.means[j].argmax())])
        shown.add_row(Text(printable(names[j])), f"{difference[j]:.2f}", f"{q[j]:.1e}", Text(higher))
    return shown


def where_it_is(what: str, path: Path) -> Text:
    """A path on one line however long, so that it can be copied."""
    return Text(f"{what}: {printable(path.resolve(), longest=4096)}")


def empty_table(first: str, *numbers: str) -> Shown:
    """An empty table with a column of names and columns of numbers."""
    shown = Shown(box=box.SIMPLE_HEAD, pad_edge=False)
    shown.add_column(first, no_wrap=True)
    for heading in numbers:
        shown.add_column(heading, justify="right", no_wrap=True)
    return shown


def _classes(summary: Summary) -> str:
    """All classes, or the first of many, as in a sentence."""
    names = [repr(printable(label)) for label in summary.classes[:N_SHOWN]]
    last = f"{summary.classes.size - N_SHOWN} more" if summary.classes.size > N_SHOWN else names.pop()
    return f"{', '.join(names)} and {last}"


def _suspects(summary: Summary, samples: list[str]) -> str:
    wrong, order = summary.mislabel_probability, summary.suspected()[:N_SUSPECTS]
    if wrong is None or not order.size:
        return ""
    named = ", ".join(f"{printable(samples[i])} ({wrong[i]:.2f})" for i in order)
    return f"Labels that look wrong (probability): {named}."


def _plural(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
