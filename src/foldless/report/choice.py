"""How the model was chosen: what was tried, what was learnt from the data, and what was decided by whom."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from foldless.component import Component
from foldless.report.subject import Subject
from foldless.report.wording import counted, named, number, percent, plural
from foldless.tuning.correlated import PLAIN_SLAB_VARIANCE

# Models of less weight than this are counted, not listed.
LEAST_WEIGHT = 0.005


class Share(NamedTuple):
    """A model of an average, by name."""

    name: str
    weight: str
    bar: int


class Choice(NamedTuple):
    said: list[str]
    shares: list[Share]
    found: list[tuple[str, str]]
    path: list[tuple[str, str, bool]]  # what was tried, its leave-one-out loss, whether it was taken


# Parameters of priors and channels, as a reader would say them.
PARAMETERS = {
    "inclusion": "share of features that matter, before seeing any",
    "slab__variance": "variance of the weights of those that do",
    "flip_prob": "share of labels that are wrong",
    "rate": "rate of the prior",
    "variance": "variance of the weights",
}
SOLVERS = {
    "GAMP": (
        "The columns look independent (their largest eigenvalue is what chance would make it), so the model "
        "was solved by message passing with one variance for each weight."
    ),
    "EP": (
        "The columns are correlated, so the model was solved by expectation propagation with exact "
        "covariances. Features are selected by the sparse model; classes are predicted by an average of it "
        "and of models in which every feature has a small weight. Probabilities of features on this page are "
        "the sparse model's, weights those of the average."
    ),
}


def choice(subject: Subject) -> Choice:
    model = subject.model
    said = [f"The estimator is {type(model).__name__}."]
    solver = getattr(model, "solver_", None)
    if solver is not None:
        said.append(SOLVERS.get(solver, f"It was solved by {solver}."))
    shares, others = _shares(model)
    if len(shares) > 1 or others:
        said.append(
            "Each model of the average has the weight with which it predicts left-out labels best"
            + (f"; {plural(others, 'other')} had next to none." if others else ".")
        )
    if any("informed" in share.name for share in shares):
        said.append(
            "“Ridge” gives every feature the same prior variance; “informed” models give a feature the more "
            "the further apart its class means are."
        )
    path = _path(model)
    if len(path) > 1:
        said.append(
            "The generative weight says how far the likelihood also models features given the class (0: not "
            "at all; 1: class means are trusted fully). The least leave-one-out log loss decides."
        )
    if hasattr(model, "rate_"):
        said.append(_rate_said(model))
    if hasattr(model, "tried_") and hasattr(model, "density_"):
        said.append(
            f"A share of {number(float(model.density_))} of the features is on and a share of "
            f"{number(float(model.noise_))} of the labels wrong: chosen by the leave-one-out error among "
            f"{plural(len(model.tried_), 'pair')}, for which that error is a little optimistic."
        )
    if hasattr(model, "settings_"):
        said.append(
            "What was left open is averaged over settings, weighted by errors on samples left out by folds."
        )
    listed = shares if len(shares) > 1 else []
    return Choice(said, listed, list(_found(model)), path if len(path) > 1 else [])


def _shares(model: Any) -> tuple[list[Share], int]:
    tried = list(getattr(model, "models_", []))
    if not tried and hasattr(model, "sparse_weight_"):
        weight = float(model.sparse_weight_)
        tried = [("sparse", weight), ("ridge", 1.0 - weight)]
    listed = [(name, float(weight)) for name, weight in tried if weight >= LEAST_WEIGHT]
    found = [Share(named(name), percent(weight), round(20 * weight)) for name, weight in listed]
    return found, len(tried) - len(listed)


def _path(model: Any) -> list[tuple[str, str, bool]]:
    path = getattr(model, "generative_path_", [])
    taken = getattr(model, "generative_weight_", None)
    return [(number(float(weight)), f"{float(loss):.3f}", weight == taken) for weight, loss in path]


def _rate_said(model: Any) -> str:
    path = getattr(model, "rate_path_", [])
    rate = f"The rate of the penalty is {number(float(model.rate_))}"
    if getattr(model, "penalty", "") == "none":
        return "There is no penalty: the fit is maximum likelihood."
    if len(path) < 2:
        given = "as given" if getattr(model, "rate", "auto") != "auto" else "with the rate integrated out"
        return f"{rate}, {given}."
    how = {
        "alo": "approximate leave-one-out log loss",
        "bound": "PAC-Bayes bound",
        "cv": "cross-validated log loss",
    }.get(getattr(model, "tuning", ""), "criterion")
    return f"{rate}: of {counted(len(path))} rates on a path it has the smallest {how}."


def learnt_names(model: Any) -> set[str]:
    """Names of the parameters that were learnt within the fit, as the history has them.

    Under correlation EM is followed by a run without it, and only the latter is kept: there it is parameters
    other than the plain ones that were learnt.
    """
    history = getattr(model, "history_", None)
    names = set() if history is None else {name for line in history.iterations for name in line.tuned}
    variance = getattr(getattr(getattr(model, "prior_", None), "slab", None), "variance", None)
    if getattr(model, "solver_", None) == "EP" and variance not in (None, PLAIN_SLAB_VARIANCE):
        names |= {"prior__inclusion", "prior__slab__variance", "channel__flip_prob"}
    return names


def _found(model: Any) -> Iterator[tuple[str, str]]:
    """What the fit found: parameters, with a word whether they were learnt, and how good it is."""
    tuned = learnt_names(model)
    for part, what in (("prior", "prior"), ("channel", "likelihood")):
        component = getattr(model, f"{part}_", None)
        if not isinstance(component, Component):
            continue
        yield f"{what} of the sparse model" if hasattr(model, "models_") else what, type(component).__name__
        for name, value in component.get_params().items():
            # Wrappers of the fit stand between a part and its parameters in the history's names.
            learnt = any(key.startswith(f"{part}__") and key.endswith(f"__{name}") for key in tuned)
            if isinstance(value, int | float) and (learnt or name in PARAMETERS):
                spoken = PARAMETERS.get(name, name.replace("__", " ").replace("_", " "))
                yield spoken, f"{number(float(value))} ({'learnt' if learnt else 'fixed'})"
    evidence = getattr(model, "log_evidence_", None)
    if evidence is not None and np.ndim(evidence) == 0 and np.isfinite(evidence):
        yield "log evidence", number(float(evidence))
    if hasattr(model, "duality_gap_"):
        yield "duality gap", f"{float(model.duality_gap_):.1e}"
        yield "largest violation of optimality", f"{float(model.kkt_residual_):.1e}"


def convergence(subject: Subject) -> list[str]:
    """How the iteration ended, in sentences; nothing if the estimator does not iterate."""
    model = subject.model
    outcome = getattr(model, "outcome_", None)
    if outcome is None:
        n_iter = getattr(model, "n_iter_", None)
        return [] if n_iter is None else [f"The fit took {plural(int(n_iter), 'iteration')}."]
    said = [f"The fit {_ended(outcome)} after {plural(int(model.n_iter_), 'iteration')}. {outcome.advice}"]
    if not hasattr(model, "history_"):
        said.append("The course of single iterations is not part of this model.")
    return said


def _ended(outcome: Any) -> str:
    return {"budget": "reached its limit of iterations", "interrupted": "was interrupted"}.get(
        str(outcome), str(outcome)
    )


def data_steps(subject: Subject) -> list[str]:
    """What was done to the data: by the user first, then by the fit."""
    model, said = subject.model, list(subject.steps)
    said += scaling(subject)
    if subject.kernel:
        said.append(f"Features enter through the kernel {named(getattr(model, 'kernel', ''))!r}.")
    if subject.kept.size:
        names = ", ".join(subject.feature(int(j)) for j in subject.kept[:20])
        said.append(f"Kept in the model whatever the data say: {names}.")
    class_weight = getattr(model, "class_weight", None)
    if class_weight is not None:
        said.append(f"Classes were weighted: {named(class_weight)}.")
    if subject.n_groups is not None:
        said.append(
            f"Samples belong to {plural(subject.n_groups, 'group')}, and a group is left out as a whole."
        )
    said.append("No sample was set aside: errors on this page are from leave-one-out.")
    return said if subject.loo_error is not None else said[:-1]


def scaling(subject: Subject) -> list[str]:
    """What was done to the columns, if the model knows."""
    model = subject.model
    if subject.weights.per == "standard deviation":
        return [
            "Columns were centred and scaled to unit variance inside the fit, without a copy; predictions do "
            "not depend on their units."
        ]
    if not getattr(model, "standardize", True):
        return ["Columns were used as they are, without centring or scaling."]
    return []
