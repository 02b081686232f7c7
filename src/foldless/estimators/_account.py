"""What a fit by message passing did, in sentences made of its plan and its record, each with its claims."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from foldless.channels import Channel, FlippedLabels
from foldless.component import Component
from foldless.estimators._summary import Parameter, Sentence, said
from foldless.priors import Prior
from foldless.solvers.multinomial_ridge import SETS
from foldless.tuning.em import without_base
from foldless.tuning.plan import GROUP_SETS
from foldless.tuning.planned import ALONG_OWN, CLASS_MEANS, IN_SETS, ONE_BY_ONE, PLAIN, SETS_OF_GROUPS, Plan
from foldless.tuning.portfolio import ModelShare
from foldless.tuning.record import Record, Run

SOLVERS = {
    "GAMP": "generalised approximate message passing (Rangan 2011; Ziniel et al. 2015)",
    "HyGAMP": "hybrid generalised approximate message passing (Byrne 2015)",
    "VAMP": "vector approximate message passing (Schniter et al. 2016)",
    "EP": "expectation propagation with exact covariances (Minka 2001; Hernández-Lobato et al. 2015)",
    "BackgroundEP": "expectation propagation over a Gaussian background, in kernels of samples (Minka 2001; "
    "Zhou et al. 2013)",
    "EdgeMessages": "belief propagation with a message on every edge",
    "kernel EP": "expectation propagation in kernels of samples (Minka 2001)",
    "primal EP": "expectation propagation (Minka 2001)",
    "Newton": "Newton's method",
}
# With the scores of several classes.
SHYGAMP = "simplified hybrid generalised approximate message passing (Byrne 2015)"
VARIANTS = {
    " (max-sum)": ", in its max-sum form, which finds the regularised maximum",
    ", variances held": ", with variances held where they would not settle (Chambolle and Pock 2011)",
    ", screened": ", over the features that may matter, with visits to all of them",
}
PRIORS = {
    "SpikeAndSlab": "a spike-and-slab prior on the weights",
    "Observed": "a spike-and-slab prior on the weights that has seen the class means",
    "RowSparse": "a spike-and-slab prior by which a feature matters for all classes or for none",
    "OverBackground": "a spike-and-slab prior over a Gaussian background on the weights",
    "Gaussian": "a Gaussian prior on the weights",
    "Laplace": "a Laplace prior on the weights",
    "ElasticNet": "an elastic-net prior on the weights",
    "GaussianMixture": "a mixture of Gaussians as the prior of the weights",
    "Pruned": "a prior under which a fixed share of the features is on and the squares of their weights have "
    "a fixed sum (Uda and Kabashima 2005)",
}
LIKELIHOODS = {
    "Logistic": "a logistic likelihood",
    "Probit": "a probit likelihood",
    "Hinge": "the hinge loss as the likelihood",
    "Step": "a likelihood by which labels are signs of scores, a share of them wrong",
    "Multinomial": "a multinomial logistic likelihood",
}
TUNINGS = {"em": "expectation maximisation within the fit", "sure": "Stein's unbiased risk estimate"}
PARAMETERS = {
    "prior__inclusion": "share of features that matter, before seeing any",
    "prior__slab__variance": "variance of the weights of those that do",
    "prior__rate": "rate of the prior",
    "prior__variance": "variance of the weights",
    "prior__density": "share of features that are on",
    "channel__flip_prob": "share of labels that are wrong",
    "channel__noise": "share of labels that are wrong",
}
DENSE = {
    "ridge": "ridges, whose priors do not depend on the labels",
    "informed": "informed ridges, in which a feature has the more the further apart its class means are",
    "strongly-informed": "strongly informed ridges, in which these differences count squared",
}
# Runs that end with an answer, rather than compare, start or refine one.
ANSWERS = ("fit", "fallback", "tune", "settle")


def solver_words(name: str, n_classes: int) -> str:
    for ending, words in VARIANTS.items():
        if name.endswith(ending):
            return solver_words(name.removesuffix(ending), n_classes) + words
    return SHYGAMP if name == "GAMP" and n_classes > 2 else SOLVERS.get(name, name)


def component_name(component: Component) -> str:
    """With what it is wrapped around: ``FlippedLabels(Logistic)``."""
    base = component.base if isinstance(component, FlippedLabels) else None
    name = type(component).__name__
    return name if base is None else f"{name}({component_name(base)})"


def meaning(name: str) -> str:
    """Of a parameter such as ``prior__inclusion``, in words."""
    part, _, rest = name.partition("__")
    what = "prior" if part == "prior" else "likelihood"
    return PARAMETERS.get(name, f"{rest.replace('__', ' ').replace('_', ' ')} of the {what}")


def parameters(prior: Prior, channel: Channel, learnt: frozenset[str]) -> tuple[Parameter, ...]:
    """Numbers that were learnt, or that have a meaning of their own."""
    learnt = frozenset(without_base(name) for name in learnt)
    found = []
    for part, component in (("prior", prior), ("channel", channel)):
        for key, value in component.get_params().items():
            name = without_base(f"{part}__{key}")
            if isinstance(value, int | float) and (name in learnt or name in PARAMETERS):
                found.append(Parameter(meaning(name), float(value), name in learnt))
    return tuple(found)


@dataclass(frozen=True)
class Account:
    """A fit by message passing, as far as words need it."""

    plan: Plan
    record: Record
    models: Sequence[ModelShare]
    prior: Prior
    channel: Channel
    generative_weight: float | None  # None where there is no such thing
    n_weights_tried: int  # generative weights
    n_classes: int

    def sentences(self) -> tuple[Sentence, ...]:
        return (
            *self._model(),
            *(said(reason.text, ("reason", reason.code)) for reason in self.plan.reasons),
            *self._solved(),
            *self._blended(),
            *self._learnt(),
            *self._refined(),
            *self._dense(),
            *self._averaged(),
        )

    @property
    def _used(self) -> tuple[Run, ...]:
        return self.record.used("sparse")

    def _for(self, *purposes: str) -> list[Run]:
        return [run for run in self._used if run.purpose in purposes]

    @property
    def _answer(self) -> Run:
        """The run that others lead to, or refine."""
        return (self._for(*ANSWERS) or list(self._used))[-1]

    def _words(self, solver: str) -> str:
        return solver_words(solver, self.n_classes)

    def _model(self) -> Iterator[Sentence]:
        prior, channel = type(self.prior).__name__, component_name(self.channel)
        plain = channel.removeprefix("FlippedLabels(").removesuffix(")")
        likelihood = LIKELIHOODS.get(plain, f"the likelihood {plain}")
        likelihood += " in which a share of labels may be wrong" if plain != channel else ""
        which = "model" if self.plan.dense is None else "sparse model"
        text = f"The {which} has {PRIORS.get(prior, f'the prior {prior}')} and {likelihood}."
        yield said(text, ("prior", prior), ("channel", channel))

    def _solved(self) -> Iterator[Sentence]:
        if self._for("sample"):
            yield said(
                "Some of the rows were fitted first, and all of them from there.", ("some rows", "used")
            )
        elif self.record.of("sparse", "sample"):
            text = "A fit of some of the rows did not hold for others, and was not used."
            yield said(text, ("some rows", "rejected"))
        answer = self._answer
        rejected = [run for run in self.record.of("sparse", "fit", "fallback") if not run.used]
        fell_back = any(run.used for run in self.record.of("sparse", "fallback"))
        # Fits of the model as planned, or of its fallback, whichever the answer is.
        alike = [run for run in rejected if (run.purpose == "fallback") == fell_back]
        alike = [run for run in alike if run.solver == answer.solver]
        words, solved = self._words(answer.solver), ("solver", answer.solver)
        other = next((run for run in rejected if run not in alike), None)
        if other is None:
            yield said(f"The model was solved by {words}.", solved)
        else:
            tried = self._words(other.solver)
            same = other.solver == answer.solver
            if fell_back:
                instead = (
                    "in the same way, over a background of very many small weights,"
                    if same
                    else f"by {words}"
                )
                text = f"The model did not settle by {tried}, and was solved {instead} instead."
            else:
                tried = "the same over a background of very many small weights" if same else tried
                text = f"The model was solved by {words}; {tried} was tried and did not settle either."
            yield said(text, ("did not settle", other.solver), solved)
        # One of them may be a fit of all rows that began at some of them.
        if len(alike) > bool(self.record.of("sparse", "sample")):
            start = PLAIN if any(run.detail == PLAIN for run in self._used) else CLASS_MEANS
            settled = all(run.outcome.trustworthy for run in alike)
            why = "it predicts left-out labels better" if settled else "the other did not settle"
            text = f"Of fits from {CLASS_MEANS} and from {PLAIN} the one from {start} was taken: {why}."
            yield said(text, ("start", start))

    def _blended(self) -> Iterator[Sentence]:
        weight, compared = self.generative_weight, self.n_weights_tried > 1 or bool(self._for("search"))
        if weight is None:
            return
        claims = (("generative weight", weight), ("weights compared", compared))
        if weight:
            how = "chosen by leave-one-out log loss" if compared else "as asked for"
            yield said(
                "The likelihood was blended with one of the features given the class, with the generative "
                f"weight {weight:g}, {how}.",
                *claims,
            )
        elif compared:
            yield said(
                "Blends of the likelihood with one of the features given the class were tried and do not "
                "predict left-out labels better (generative weight 0).",
                *claims,
            )

    def _learnt(self) -> Iterator[Sentence]:
        names = sorted({without_base(name) for name in self.record.learnt})
        if names:
            # SURE learns one parameter, and EM whatever else is learnt.
            rate = [name for name in names if self.plan.sparse.tuning == "sure" and name == "prior__rate"]
            for by, some in (("sure", rate), ("em", [name for name in names if name not in rate])):
                if some:
                    plural = "was" if len(some) == 1 else "were"
                    words = "; ".join(meaning(name) for name in some)
                    claims = (*(("learnt", name) for name in some), ("learnt by", by))
                    yield said(f"Learnt by {TUNINGS[by]} {plural}: {words}.", *claims)
            return
        if self.generative_weight is None:
            return
        tried = any(not run.used for run in self.record.of("sparse", "tune"))
        why = ""
        if tried:
            why = ": expectation maximisation from there did not settle at a larger evidence"
        elif self.plan.sparse.em_iterations:
            settled = self._answer.outcome.trustworthy
            why = ": there was nothing to learn them from" if settled else ": the fit there did not settle"
        values = "those it began with" if self.plan.path == "requested" else "left at plain values"
        text = f"Parameters of the prior and the likelihood were {values}{why}."
        yield said(text, ("learnt", None), ("tuning tried", tried))

    def _refined(self) -> Iterator[Sentence]:
        exact = self._words("EP")
        for run in self.record.of("sparse", "polish"):
            if run.used:
                text = f"From there it was finished by {exact}, at the same parameters."
                yield said(text, ("polished", run.solver))
            else:
                text = f"Finishing it by {exact} was tried and did not settle."
                yield said(text, ("did not settle", run.solver))
        if self._for("unblended") and not self.generative_weight:
            text = (
                f"Weights and their probabilities are therefore those of another fit by {exact}, with a "
                "plain variance of the slab; classes are predicted by the fit before it."
            )
            yield said(text, ("weights instead", "EP"))
        elif self._for("unblended"):
            text = (
                "Weights and their probabilities are averaged with those of the likelihood alone, by "
                f"{exact}, which counts by what left-out labels make of it, and in weights at least half; "
                "classes are predicted by the blend."
            )
            yield said(text, ("unblended", "EP"))
        if self._for("relearn"):
            text = (
                "Its parameters were learnt again without each of "
                f"{self.plan.sparse.relearnt_parts} parts of the samples, which were left out at these."
            )
            yield said(text, ("relearnt", self.plan.sparse.relearnt_parts))
        if self.plan.sparse.conditional and self.generative_weight and self._answer.outcome.trustworthy:
            text = (
                "Class means are of features one by one: of features that are correlated within classes, the "
                "probabilities in the blend are those beside each other."
            )
            yield said(text, ("beside correlated", True))
        around = [run for run in self._for("integrate") if run.outcome.trustworthy]
        if around:
            yield said(
                f"The posterior was integrated over these parameters and {len(around)} neighbours of them, "
                "weighted by their evidence.",
                ("integrated", len(around)),
            )
        if self._for("more flips"):
            yield said(
                "Standard deviations of weights count what more wrong labels would make of them, as far as "
                "the evidence allows for these.",
                ("more flips", "EP"),
            )

    def _dense(self) -> Iterator[Sentence]:
        dense, runs = self.plan.dense, [run for run in self.record.all if run.model in DENSE and run.used]
        if dense is None or not runs:
            return
        codes = [code for code in DENSE if any(run.model == code for run in runs)]
        fitted = {(run.model, run.detail) for run in runs}
        settled = {(run.model, run.detail) for run in runs if run.outcome.trustworthy}
        lost = f"; {len(fitted) - len(settled)} of them did not settle" if fitted != settled else ""
        yield said(
            f"Beside it stand {len(fitted)} models with Gaussian priors on all weights, fitted by "
            f"{self._words(runs[0].solver)}: {', and '.join(DENSE[code] for code in codes)}{lost}.",
            *(("dense", code) for code in codes),
            ("dense solver", runs[0].solver),
            ("dense fits", len(fitted)),
            ("dense settled", len(settled)),
        )
        if dense.per_occurrence:
            text = "Prior variances of their weights are in proportion to how often a feature is not zero."
            yield said(text, ("per occurrence", True))

    def _averaged(self) -> Iterator[Sentence]:
        if self.plan.dense is None:
            yield said("Classes are predicted by this model alone.", ("averaged", 1))
            return
        weight = sum(model.weight for model in self.models if model.code == "sparse")
        yield said(
            f"Features are selected by the sparse model. Classes are predicted by an average over "
            f"{len(self.models)} models, class frequencies among them, weighted by stacking of what they "
            f"predict for left-out labels (Yao et al. 2018); the sparse one has {100 * weight:.0f} % of the "
            "weight.",
            ("averaged", len(self.models)),
            ("weight of the sparse model", round(weight, 2)),
        )
        if self._for("tune") and weight:
            text = "There it stands with the plain parameters, which do not depend on the labels."
            yield said(text, ("average at", "plain"))
        elif self._for("polish") and weight:
            yield said("There it stands as message passing has left it.", ("average at", "message passing"))


def planned(plan: Plan) -> tuple[str, ...]:
    """What a plan is about to do, and why."""
    sparse, dense = plan.sparse, plan.dense
    n_classes = 2 if plan.facts is None else plan.facts.n_classes
    sentences = [reason.text for reason in plan.reasons]
    starts = " or ".join(sparse.starts)
    line = f"A sparse model is fitted by {solver_words(sparse.solver, n_classes)}, from {starts}"
    line += ", finished with exact covariances" if sparse.polish else ""
    line += " and integrated over its parameters" if sparse.integrate else ""
    line += "; intervals count what more wrong labels would make of weights" if sparse.more_flips else ""
    sentences.append(f"{line}.")
    if dense is not None:
        kinds = " and ".join(dict.fromkeys(f"{recipe.code} models" for recipe in dense.recipes))
        more = ", if they are worth it" if dense.if_worthwhile else ""
        sentences.append(
            f"Beside it up to {len(dense.recipes)} dense models are fitted by "
            f"{solver_words(dense.solver, n_classes)}: {kinds.replace('-', ' ')}{more}"
            f"{'; wider ones, as long as the widest predicts best' if dense.wider else ''}. Classes are "
            "predicted by the average of all."
        )
    what = {"groups": "a group", SETS_OF_GROUPS: f"a set of groups, of at most {GROUP_SETS}"}
    sentences.append(f"Left out at a time: {what.get(plan.left_out, 'a sample')}.")
    return tuple(sentences)


CAVITIES = "read off the cavity distributions of the same fit (Opper and Winther 2000)"
FROM_CAVITIES = said(f"leave-one-out, {CAVITIES}", ("left out", "samples"), ("left out by", "cavities"))
# How samples are left out of ridges by Newton's method.
RIDGES_LEFT_OUT = {
    "groups": "by refits without each group",
    ONE_BY_ONE: "by taking out a sample's own quadratic",
    IN_SETS: f"by a Newton step without a {SETS}th of the samples at a time",
    ALONG_OWN: "by taking out a sample's own quadratic along the score of its class, with the factor that "
    "Newton steps without half of the samples show",
}


def left_out_words(plan: Plan) -> Sentence:
    """How left-out labels were predicted, from the middle of a sentence on."""
    of, dense = plan.left_out, plan.dense
    if of == SETS_OF_GROUPS:
        text = f"leaving out sets of groups, at most {GROUP_SETS}, each predicted by a fit to all others"
        return said(text, ("left out", of), ("left out by", "fits"))
    one = "leaving out one group at a time" if of == "groups" else "leave-one-out"
    how, claims = f"{one}, {CAVITIES}", [("left out", of), ("left out by", "cavities")]
    if dense is not None and dense.solver == "Newton":
        by = "groups" if of == "groups" else dense.left_out
        how += f" and, of ridges, {RIDGES_LEFT_OUT[by]}"
        claims.append(("ridges left out", by))
    elif dense is not None and dense.solver == "kernel EP":
        how += ", the variances of informed ridges being made without what is left out"
        claims.append(("informed without", of))
    return said(how, *claims)
