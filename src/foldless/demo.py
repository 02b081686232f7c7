"""The demo: a simulated study of which the truth is known, fitted, told in the terminal, drawn, reported."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from rich.text import Text
from sklearn.exceptions import ConvergenceWarning

from foldless import report
from foldless.beliefs import Array
from foldless.datasets import Simulated, make_class_means
from foldless.estimators import SparseClassifier
from foldless.io import printable
from foldless.io.names import counted
from foldless.plots import InclusionDisplay, LeaveOneOutDisplay, save
from foldless.plots.readings import NORMAL_90
from foldless.report.wording import percent, plural, probability
from foldless.runs.printing import Progress, empty_table, where_it_is

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLASSES = ("healthy", "tumour")  # of labels -1 and +1, and in the order of the alphabet
MISLABELLED = 0.05
BAYES_ERROR = 0.05
PICTURE, REPORT = "demo.png", "report.html"
N_SUSPECTS_SHOWN = 10
N_MISSED_SHOWN = 6


@dataclass(frozen=True, eq=False)
class Study:
    """A fitted simulation beside its truth."""

    data: Simulated
    names: list[str]
    model: SparseClassifier
    seconds: float  # of the fit

    @property
    def selected(self) -> NDArray[np.intp]:
        """Positions of the selected features, the surest first."""
        chosen = self.model.get_support(indices=True)
        return chosen[np.argsort(-self.model.inclusion_probability_[chosen], kind="stable")]

    @property
    def labels(self) -> NDArray[np.str_]:
        """As recorded, the wrong ones included."""
        return np.array(CLASSES)[(self.data.y > 0).astype(np.intp)]

    @property
    def is_marker(self) -> NDArray[np.bool_]:
        return self.data.weights != 0

    @property
    def is_mislabelled(self) -> NDArray[np.bool_]:
        wrong = np.zeros(self.data.y.size, dtype=bool)
        wrong[self.data.mislabelled] = True
        return wrong

    @property
    def true_log_odds(self) -> Array:
        """The weights in the units of `sparse_coef_`: for classes N(±w, v I), the log-odds are 2 w'x / v."""
        assert self.data.noise_var is not None  # these are class-means data
        return (2.0 / self.data.noise_var) * self.data.weights

    @property
    def error(self) -> float:
        """The exact error on new samples with right labels."""
        return self.data.test_error(self.model.coef_, float(self.model.intercept_[0]))

    @property
    def error_as_recorded(self) -> float:
        """The exact error on new samples whose labels are as often wrong as those of the study.

        A wrong label f of the time turns an error e into e (1 - f) + (1 - e) f.
        """
        wrong = self.data.mislabelled.size / self.data.y.size
        return self.error * (1 - 2 * wrong) + wrong


def run(console: Console, folder: Path, *, seed: int = 0, fdr: float = 0.1) -> Study:
    """Simulate, fit, tell, draw and report; the picture and the page go to `folder`."""
    folder.mkdir(parents=True, exist_ok=True)  # a folder that cannot be is known before any work
    data = make_class_means(
        200, 10_000, 20, bayes_error=BAYES_ERROR, mislabelled=MISLABELLED, random_state=seed
    )
    introduce(console, data)
    study = fit(console, data, fdr)
    tell(console, study)
    with console.status("Drawing"):
        save(draw(study), folder / PICTURE)
        write_report(study, folder / REPORT, seed)
    for what, name in (("The picture", PICTURE), ("The report", REPORT)):
        console.print(where_it_is(what, folder / name), soft_wrap=True)
    return study


def fit(console: Console, data: Simulated, fdr: float) -> Study:
    labels = np.array(CLASSES)[(data.y > 0).astype(np.intp)]
    model = SparseClassifier(fdr=fdr)
    start = time.perf_counter()
    with console.status("Fitting") as status, warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # `tell` says how the fit ended
        model._on_iteration = Progress(status)
        model.fit(data.X, labels)
    seconds = time.perf_counter() - start
    del model._on_iteration  # a terminal is no part of a model
    digits = len(str(data.X.shape[1] - 1))
    return Study(data, [f"gene {j:0{digits}d}" for j in range(data.X.shape[1])], model, seconds)


def introduce(console: Console, data: Simulated) -> None:
    n_samples, n_features = data.X.shape
    console.print(
        f"A simulated study: {n_samples} samples of two classes, {CLASSES[0]} and {CLASSES[1]}, with "
        f"{counted(n_features)} genes each. {data.active.size} of the genes are markers of the class, and "
        f"{data.mislabelled.size} of the samples carry the wrong label. The classifier is told neither.\n"
    )


def tell(console: Console, study: Study) -> None:
    """The answer in a sentence, the selected features in a table, and every estimate beside the truth."""
    model, data = study.model, study.data
    n_selected = study.selected.size
    n_found = int(study.is_marker[study.selected].sum())
    console.print(
        f"Fitted and tuned in {study.seconds:.2f} s: {model.outcome_} after {model.n_iter_} iterations, "
        "no folds."
    )
    if not model.outcome_.trustworthy:
        console.print(model.outcome_.advice, style="bold")
    console.print(
        f"{plural(n_selected, 'gene')} selected, {n_found} of the {data.active.size} markers among them; "
        f"the classifier errs on {percent(study.error)} of new samples.\n",
        style="bold",
    )
    if n_selected:
        console.print(selection_table(study))
    console.print(promise_table(study))


def selection_table(study: Study) -> Table:
    """One line for each selected feature."""
    model = study.model
    table = empty_table("gene", "probability", "weight", "90 % interval", "true weight")
    table.title = f"Genes selected at a false discovery rate of {model.fdr:g}"
    table.title_justify, table.title_style = "left", "bold"
    table.add_column("")
    for j in study.selected:
        weight, reach = model.sparse_coef_[0, j], NORMAL_90 * model.sparse_coef_std_[0, j]
        is_marker = bool(study.is_marker[j])
        table.add_row(
            Text(printable(study.names[j])),
            probability(model.inclusion_probability_[j]),
            f"{weight:+.2f}",
            f"{weight - reach:+.2f} to {weight + reach:+.2f}",
            f"{study.true_log_odds[j]:+.2f}" if is_marker else "0",
            "marker" if is_marker else Text("false", style="bold red"),
        )
    return table


def promise_table(study: Study) -> Table:
    """What the one fit estimates of itself, beside the truth."""
    model, data, selected = study.model, study.data, study.selected
    missed = np.setdiff1d(data.active, selected)
    found = f"{data.active.size - missed.size} of {data.active.size}"
    if missed.size:
        found += "; missed: " + ", ".join(printable(study.names[j]) for j in missed[:N_MISSED_SHOWN])
        found += f" and {missed.size - N_MISSED_SHOWN} more" if missed.size > N_MISSED_SHOWN else ""
    rows = {"Markers found": found}
    if selected.size:
        n_false = int((~study.is_marker[selected]).sum())
        expected = float(1 - model.inclusion_probability_[selected].mean())
        rows["False among selected"] = (
            f"{n_false} of {selected.size}, {percent(n_false / selected.size)}; the model expects "
            f"{percent(expected)}, the limit asked for is {percent(model.fdr)} on average"
        )
    assert model.loo_worth_ is not None
    lower, upper = model.loo_worth_.error_interval
    rows["Leave-one-out error"] = (
        f"{percent(model.loo_error_)} of the recorded labels, from the same one fit "
        f"(95 % interval {percent(lower)} to {percent(upper)})"
    )
    rows["True error"] = (
        f"{percent(study.error_as_recorded)} on new labels recorded as carelessly, "
        f"{percent(study.error)} on right ones; with all markers known it would be {percent(BAYES_ERROR)}"
    )
    wrong = model.mislabel_probability_
    rows["Labels suspected"] = (
        f"{np.count_nonzero(wrong > 0.5)} with a probability above 0.5 of being wrong; "
        f"{np.count_nonzero(study.is_mislabelled & (wrong > 0.5))} of them are, of {data.mislabelled.size} "
        "wrong labels in all"
    )
    order = np.argsort(-wrong, kind="stable")[:N_SUSPECTS_SHOWN]
    samples = ", ".join(f"{i}*" if study.is_mislabelled[i] else f"{i}" for i in order)
    rows["Most suspicious"] = (
        f"samples {samples}; probabilities from {wrong[order[0]]:.2f} to {wrong[order[-1]]:.2f}, "
        "* is wrong indeed"
    )
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="bold")
    table.add_column()
    for name, text in rows.items():
        table.add_row(name, Text(text))
    table.add_row()
    return table


def draw(study: Study) -> Figure:
    """Features at the left, samples at the right."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 6), layout="constrained")
    left, right = figure.subplots(1, 2)
    InclusionDisplay.from_estimator(study.model, names=study.names, truth=study.is_marker, ax=left)
    LeaveOneOutDisplay.from_estimator(study.model, study.labels, mislabelled=study.is_mislabelled, ax=right)
    return figure


def write_report(study: Study, path: Path, seed: int) -> None:
    """The page that a fit of real data would have, with the truth told in what was done to the data."""
    data = study.data
    report.write(
        study.model,
        path,
        X=data.X,
        y=study.labels,
        feature_names=study.names,
        sample_names=[f"sample {i}" for i in range(data.y.size)],
        source=f"A simulated study: {data.y.size} samples, {counted(data.X.shape[1])} genes (foldless demo)",
        steps=[
            f"Simulated: {data.active.size} genes are markers of the class, the others are noise.",
            f"The labels of {data.mislabelled.size} samples were turned over; the model is told neither.",
        ],
        facts={
            "seed": seed,
            "seconds of the fit": f"{study.seconds:.2f}",
            "true error on new samples with right labels": percent(study.error),
            "markers found": f"{int(study.is_marker[study.selected].sum())} of {data.active.size}",
        },
    )
