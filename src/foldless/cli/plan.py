"""`foldless plan`: how many samples a study needs, in a sentence, a table, a picture and JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foldless.cli import options
from foldless.cli.terminal import ExitCode, exit_codes

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from foldless.estimators import SparseClassifier
    from foldless.estimators.planning import Simulation
    from foldless.theory.learning_curve import LearningCurve
    from foldless.theory.planning import Plan
    from foldless.theory.study import Study

PICTURE, ANSWER, CURVE_PICTURE = "plan.png", "plan.json", "learning_curve.png"
# Of the sizes in a table, as many are simulated: the one needed, and others on either side.
SIMULATED_SIZES = 3


@options.reads_a_table("target", "ignore")
def plan(
    asked: options.Asked,
    features: Annotated[int | None, typer.Option(help="Number of features measured.", min=2)] = None,
    markers: Annotated[
        float | None, typer.Option(help="A guess of how many of them differ between the classes.")
    ] = None,
    effect: Annotated[
        float | None,
        typer.Option(
            help="By how many standard deviations a marker's means differ: 0.2 is small, 0.5 medium, 0.8 "
            "large. If not given: 0.8, or what the pilot says."
        ),
    ] = None,
    weight: Annotated[
        float | None,
        typer.Option(help="Instead of --effect: log-odds per standard deviation in a logistic model."),
    ] = None,
    error: Annotated[float | None, typer.Option(help="Target: at most this share of errors.")] = None,
    power: Annotated[float | None, typer.Option(help="Target: find at least this share of markers.")] = None,
    samples: Annotated[
        list[int] | None, typer.Option(help="What to expect of so many samples; may be repeated.", min=8)
    ] = None,
    balance: Annotated[float | None, typer.Option(help="Share of one class; 0.5 if not given.")] = None,
    mislabelled: Annotated[float | None, typer.Option(help="Share of wrong labels; 0 if not given.")] = None,
    fdr: Annotated[float, typer.Option(help="The false discovery rate of the selection.")] = 0.1,
    pilot: Annotated[
        Path | None,
        typer.Option(
            help="A table, as for `foldless fit`, from which markers, effect, correlations and label noise "
            "are estimated.",
            exists=True,
            dir_okay=False,
            readable=True,
        ),
    ] = None,
    simulate: Annotated[bool, typer.Option("--simulate", help="Check the plan by simulated fits.")] = False,
    runs: Annotated[int, typer.Option(help="Simulated studies of each size.", min=2)] = 10,
    seed: Annotated[int, typer.Option(help="Of the simulation.", min=0)] = 0,
    out: Annotated[
        Path | None, typer.Option(help="A folder for picture and JSON.", file_okay=False, writable=True)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """How many samples does a study need, and what can be expected of it?

    \b
    Example:
      foldless plan --features 20000 --markers 20 --error 0.1
    """
    if pilot is None and (features is None or markers is None):
        raise typer.BadParameter("give --features and --markers, or a --pilot table to estimate them from.")
    if pilot is not None and features is not None:
        raise typer.BadParameter("the number of features is that of the pilot: leave --features out.")
    if pilot is not None:
        options.check_target(pilot, asked.roles.target)
    if effect is not None and weight is not None:
        raise typer.BadParameter("--effect and --weight are two ways to say the same: give one.")
    with exit_codes() as terminal:
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)  # a folder that cannot be is known before any work
        said: dict[str, Any] = {
            "n_markers": markers,
            "effect": weight if effect is None else effect,
            "balance": balance,
            "mislabelled": mislabelled,
            "labels": None if weight is None else "logistic",
        }
        said = {name: value for name, value in said.items() if value is not None}
        with terminal.status("Planning") as status:
            from dataclasses import replace

            from foldless.theory.planning import plan as planned
            from foldless.theory.study import Study

            curve: LearningCurve | None = None
            converged = True
            if pilot is None:
                assert features is not None
                study = Study(n_features=features, **said)
            else:
                status.update("Fitting the pilot")
                study, curve, converged = _from_pilot(pilot, asked, replace_with=said)
                study = replace(study, **said)
            answer = planned(
                study,
                samples or None,
                error=error,
                power=power,
                fdr=fdr,
                watch=lambda row: status.update(f"Planning: {row.n_samples} samples"),
            )
        simulations = _simulated(terminal, answer, runs, seed) if simulate else []
        whole = answer.to_dict()
        whole["learning_curve"] = None if curve is None else curve.to_dict()
        whole["simulated"] = [simulation.to_dict() for simulation in simulations]
        if as_json:
            typer.echo(json.dumps(whole, indent=2, allow_nan=False))
        else:
            _tell(terminal, answer, curve, simulations)
        if out is not None:
            _write(out, answer, curve, simulations, whole)
            if not as_json:
                terminal.print(f"Picture and JSON: {options.shown(out.resolve())}", soft_wrap=True)
        if not converged or not all(row.converged for row in answer.rows):
            raise typer.Exit(ExitCode.NOT_CONVERGED)


def read_pilot(path: Path, asked: options.Asked) -> tuple[Any, Any]:
    """Features and classes of a table, read as by `foldless fit`."""
    from foldless.io.read import read_table
    from foldless.io.table import check_finite

    table = read_table(path, asked.roles, asked.reading, budget=asked.budget)
    check_finite(path, table.X, table.feature_names)
    return table.X, table.labels()


def _from_pilot(
    path: Path, asked: options.Asked, replace_with: dict[str, Any]
) -> tuple[Study, LearningCurve | None, bool]:
    """The study a pilot was a sample of, what more like it would bring, and whether its fit is sound."""
    import warnings

    from sklearn.exceptions import ConvergenceWarning

    from foldless.estimators import SparseClassifier
    from foldless.estimators.planning import learning_curve, pilot_study

    X, y = read_pilot(path, asked)
    model: SparseClassifier = SparseClassifier()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the exit code says it
        model.fit(X, y)
    study = pilot_study(model, X, y)
    # What is said of the population overrides the pilot, and with it the pilot's curve.
    curve = None if replace_with else learning_curve(model, X, y)
    return study, curve, model.outcome_.trustworthy


def _simulated(terminal: Console, answer: Plan, runs: int, seed: int) -> list[Simulation]:
    """Fits of simulated studies of the size needed and of sizes around it, with progress."""
    from foldless.estimators.planning import simulate

    sizes = [row.n_samples for row in answer.rows]
    if answer.needed is not None:
        needed = answer.needed.n_samples
        sizes = sorted({needed, *sorted(sizes, key=lambda n: abs(n / needed - 1))[: SIMULATED_SIZES - 1]})
    elif len(sizes) > SIMULATED_SIZES:
        sizes = [sizes[i * (len(sizes) - 1) // (SIMULATED_SIZES - 1)] for i in range(SIMULATED_SIZES)]
    done = []
    with terminal.status("Simulating") as status:
        for size in sizes:

            def watch(run: int, size: int = size) -> None:
                status.update(f"Simulating: study {run} of {runs} with {size} samples")

            done.append(simulate(answer.study, size, runs, fdr=answer.fdr, seed=seed, watch=watch))
    return done


def _tell(
    terminal: Console, answer: Plan, curve: LearningCurve | None, simulations: list[Simulation]
) -> None:
    if curve is not None:
        seen = curve.seen
        terminal.print(
            f"The pilot's {seen.n_samples} samples suggest about {answer.study.n_markers:.0f} markers with "
            f"an effect of {answer.study.effect:.2g}; {100 * seen.error:.0f} % of its samples are misjudged "
            f"when left out. {curve.sentence(seen.n_samples)}\n"
        )
    if answer.has_target or len(answer.rows) <= SIMULATED_SIZES:
        terminal.print(answer.sentence() + "\n", style="bold")
    else:
        terminal.print("For a number of samples, give a target: --error 0.1, --power 0.8, or both.\n")
    terminal.print(table(answer, simulations))
    terminal.print("Assumed:")
    for line in answer.assumptions():
        terminal.print(f"- {line}")
    terminal.print()


def table(answer: Plan, simulations: list[Simulation]) -> Table:
    """One line for each number of samples."""
    from foldless.runs.printing import empty_table

    more = ("simulated error", "simulated power") if simulations else ()
    lines = empty_table("samples", "error", "power", "selected", "false", *more)
    lines.columns[0].justify = "right"
    rows = {row.n_samples: row for row in answer.rows}
    if answer.needed is not None:
        rows[answer.needed.n_samples] = answer.needed
    by_size = {simulation.n_samples: simulation for simulation in simulations}
    for size in sorted(rows):
        row, needed = rows[size], answer.needed is not None and size == answer.needed.n_samples
        cells = [
            f"{size}",
            f"{100 * row.error:.1f} %",
            f"{100 * row.power:.0f} %",
            f"{row.n_selected:.1f}",
            f"{row.n_false:.1f}",
        ]
        if size in by_size:
            simulation = by_size[size]
            spread = f"{100 * simulation.standard_error:.1f}"
            cells += [f"{100 * simulation.error:.1f} ± {spread} %", f"{100 * simulation.power:.0f} %"]
        lines.add_row(*cells, style="bold" if needed else "")
    return lines


def _write(
    folder: Path,
    answer: Plan,
    curve: LearningCurve | None,
    simulations: list[Simulation],
    whole: dict[str, Any],
) -> None:
    from matplotlib.figure import Figure

    from foldless.plots import LearningCurveDisplay, PlanDisplay, save
    from foldless.runs.results import write_json

    write_json(folder / ANSWER, whole)
    figure = Figure(figsize=(7, 5.5), layout="constrained")
    beside = [(s.n_samples, s.error, s.standard_error) for s in simulations]
    simulated: Any = tuple(zip(*beside, strict=True)) or None
    PlanDisplay.from_plan(answer, simulated=simulated, ax=figure.subplots())
    save(figure, folder / PICTURE)
    if curve is not None:
        figure = Figure(figsize=(7, 5), layout="constrained")
        LearningCurveDisplay.from_curve(curve, ax=figure.subplots())
        save(figure, folder / CURVE_PICTURE)
