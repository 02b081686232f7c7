"""The page: what the rooms' files say of a subject, put into one self-contained HTML document.

It is read by people who did not make it, so what comes from data cannot do anything: no address outside the
page, and a content policy that forbids what a name may have smuggled in. Every text is escaped by Jinja2
(`autoescape=True`, not `select_autoescape`, which is off for templates named .j2). Put in unescaped are our
own style sheet and our own script, which adds controls to sort and search tables; the policy allows these
two by their hashes. Without scripts the page is complete.
"""

from __future__ import annotations

import re
from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import foldless
from foldless.io import replacing

if TYPE_CHECKING:
    from jinja2 import Template

    from foldless.report.subject import Subject


def write(model: Any, path: str | Path, **about: Any) -> Path:
    """Write the page about a fitted model, whole or not at all, and return where it is.

    What the model or the arguments do not tell is left out of the page, with a word why.

    Parameters
    ----------
    model : a fitted classifier of foldless, or a pipeline that ends in one
        Of a pipeline, `feature_names`, `feature_descriptions` and `X` are those of its first step, or of its
        last; the page shows what reaches the last one.
    path : str or Path
        The file; an old one is replaced.
    y : array of shape (n_samples,), optional
        The labels of the fit, for the confusion matrix, calibration and suspicious labels.
    feature_names, feature_descriptions : sequences, one entry for each column, optional
        Names are the model's own, or numbers, if not given.
    sample_names : sequence, one entry for each row, optional
    groups : array of shape (n_samples,), optional
        As given to `fit`: what was left out together.
    title, source : str, optional
        The heading, and a line about where the table is from.
    steps : sequence of str
        What was done to the data, in order, a sentence each.
    facts : mapping, optional
        More about the run: seed, seconds, hashes.
    learning_curve : LearningCurve, or a display with ``plot(ax=...)``, optional
    fdr : float, optional
        The false discovery rate of the selection; the model's own if not given.
    X : the table of the fit, optional
        For pictures of the values of the features that are named.
    panel : PanelClassifier, fitted, optional
        The few features that would do, for a section of their own.
    cautions : sequence of str
        What is doubtful about the table, a sentence each.
    images : bool
        Whether samples are brain images: adds the items that COBIDAS asks decoding studies for.

    Returns
    -------
    Path
        The file written.
    """
    return write_page(Path(path), _subject(model, about))


def write_page(path: Path, subject: Subject) -> Path:
    page = rendered(subject)
    with replacing(path) as unfinished, open(unfinished, "x", encoding="utf-8", newline="\n") as file:
        file.write(page)
    return path


def html(model: Any, **about: Any) -> str:
    """The page as text.

    Parameters
    ----------
    model : a fitted classifier of foldless, or a pipeline that ends in one
        Other arguments are those of `write`.

    Returns
    -------
    str
        HTML, whole and self-contained.
    """
    return rendered(_subject(model, about))


def _subject(model: Any, about: dict[str, Any]) -> Subject:
    from foldless.report.subject import Subject

    model, about = last_step(model, about)
    return Subject(model, **about)


def last_step(model: Any, about: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The classifier, and arguments of `write` as it sees them; a model that is no pipeline stays as it is.

    Columns are those that reach the last step. Names of as many columns, and steps of one's own, stay.
    """
    from sklearn.pipeline import Pipeline

    if not isinstance(model, Pipeline):
        return model, about
    before, last, about = model[:-1], model[-1], dict(about)
    names = about.get("feature_names")
    n_columns = getattr(last, "n_features_in_", None)
    if len(before):
        if about.get("X") is not None:
            about["X"] = before.transform(about["X"])
        if names is None or len(names) != n_columns:
            about["feature_names"] = _names_after(before, names)
        kinds = ", ".join(type(step).__name__ for _, step in before.steps)
        about["steps"] = [*about.get("steps", ()), f"Columns are those that {kinds} made of the table"]
    return last, about


def _names_after(steps: Any, names: Any) -> Any:
    """Of the columns after these steps; None where one of them has no names to give."""
    try:
        return steps.get_feature_names_out(names)
    except (AttributeError, ValueError):
        return None


def rendered(subject: Subject) -> str:
    from markupsafe import Markup

    from foldless.report import answer, choice, features, methods, pictures, samples
    from foldless.report.wording import PERCENT

    style, script = _file("page.css"), _file("page.js")
    page = _template().render(
        style=Markup(style),
        style_hash=_hash(style),
        script=Markup(script),
        script_hash=_hash(script),
        version=foldless.__version__,
        subject=subject,
        title=answer.title(subject),
        answers=answer.answers(subject),
        figures=answer.figures(subject),
        cautions=answer.cautions(subject),
        pictures={name: drawing.picture() for name, drawing in pictures.drawings(subject).items()},
        groups=features.feature_groups(subject),
        panel=features.panel_sentences(subject),
        most_in_group=features.MOST_IN_GROUP,
        most_selected=features.MOST_SELECTED,
        differing=features.differing_rows(subject),
        confusion=samples.confusion(subject),
        taken_for=samples.taken_for,
        most_columns=samples.MOST_COLUMNS,
        suspects=samples.suspects(subject),
        operating_points=samples.operating_points(subject),
        said=choice.said(subject),
        runs=[] if subject.summary.record is None else choice.run_rows(subject.summary.record),
        convergence=choice.convergence(subject),
        steps=choice.data_steps(subject),
        methods=methods.methods(subject),
        cobidas=methods.cobidas(subject) if subject.images else [],
        missing=missing(subject),
    )
    # Also what others have written, but names stay as they are.
    kept_together = re.compile(r"<bdi>.*?</bdi>|(?<=\d) %", re.DOTALL)
    return kept_together.sub(lambda found: PERCENT if found[0] == " %" else found[0], page)


def missing(subject: Subject) -> list[str]:
    """What is not on the page, and why."""
    name, sets, said = subject.summary.name, subject.summary.groups, []
    if subject.inclusion is None:
        said.append(f"Inclusion probabilities: {name} has none; its features are in or out.")
    if subject.weights.std is None:
        said.append(f"Intervals: {name} gives weights without a posterior.")
    if sets is None:
        said.append(f"Groups: {name} does not look for features of which one has an effect.")
    elif not any(group.columns.size > 1 for group in sets):
        said.append(
            "Groups: there is no group of several features of which it is sure enough that one has an effect."
        )
    if subject.loo_proba is None:
        said.append(f"Leave-one-out figures: {name} gives none; use cross-validation.")
    elif subject.codes is None:
        said.append(
            "Confusion matrix, calibration and suspicious labels: the labels were not passed on (y=...)."
        )
    elif subject.mislabel_probability is not None and not subject.summary.casts_doubt:
        said.append("Labels that look wrong: classes that cannot be told apart cast no doubt on any label.")
    if subject.learning_curve is None:
        said.append("Learning curve: none was computed (`foldless fit --learning-curve` does).")
    return said


def _hash(text: str) -> str:
    """As content policies name what they allow."""
    return b64encode(sha256(text.encode()).digest()).decode("ascii")


@cache
def _file(name: str) -> str:
    return files("foldless.report").joinpath(name).read_text(encoding="utf-8")


@cache
def _template() -> Template:
    return environment().from_string(_file("page.html.j2"))


def environment() -> Any:
    """Templates that escape every text, and fail for a name that is not there instead of leaving a gap."""
    from jinja2 import Environment, StrictUndefined

    from foldless.report.wording import counted, named, number, percent, probability, sentence

    made = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    for filter_ in (counted, named, number, percent, probability, sentence):
        made.filters[filter_.__name__] = filter_
    return made
