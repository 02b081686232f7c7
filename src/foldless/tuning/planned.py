"""What a plan consists of: the sparse model, the dense models beside it, and a reason for each decision.

Only data. What goes into a plan is decided in `tuning.plan`; a plan is kept with the fit, saved with the
model, and printed by reports.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from foldless.registry import registered
from foldless.tuning.table import Facts

# Where a fit of the sparse model starts: from the labels alone, with plain parameters; or from class means,
# which are blended with the likelihood of the labels, with parameters that are tuned.
PLAIN, CLASS_MEANS = "plain parameters", "class means"
# How single samples are left out of Newton's ridges of several classes, each cheaper and less exact than the
# one before: along all scores; together with a few other samples; along the score of its own class only
# (`solvers.multinomial_ridge`).
ONE_BY_ONE, IN_SETS, ALONG_OWN = "one by one", "in sets", "along own scores"
# How groups of samples are left out where that cannot be computed from exact covariances: by fits to the
# others, several groups at a time.
SETS_OF_GROUPS = "sets of groups"


@registered("plan/reason")
class Reason(NamedTuple):
    """Why something was decided; the code is stable, the text is for readers."""

    code: str
    text: str


@registered("plan/recipe")
class Recipe(NamedTuple):
    """One dense model, with Gaussian weights: all of one variance, or wider where class means differ more."""

    score_variance: float  # of the scores of samples, a priori
    flip_prob: float = 0.0  # the share of labels that are wrong
    exponent: int = 0  # prior variances ∝ relevance to this power

    @property
    def code(self) -> str:
        return ("ridge", "informed", "strongly-informed")[self.exponent]

    @property
    def name(self) -> str:
        noise = ", labels may be wrong" if self.flip_prob else ""
        return f"{self.code.replace('-', ' ')}, score variance {self.score_variance:g}{noise}"


@registered("plan/sparse")
@dataclass(frozen=True)
class SparsePlan:
    """The model that selects features."""

    prior: str
    solver: str  # "GAMP", "EP", "BackgroundEP", ...
    # CLASS_MEANS or PLAIN. Of two, the first that settles is taken; or, if `judged_by_left_out`, the one that
    # predicts left-out labels better.
    starts: tuple[str, ...] = (CLASS_MEANS,)
    judged_by_left_out: bool = False
    # Plain parameters are settled from a ridge of this score variance; 0: from nothing.
    from_ridge: float = 0.0
    background: float = 0.0  # score variance of a dense background beside the sparse effects; 0: none
    single: bool = False  # exact covariances are made from products with X in single precision
    variances: str = "rank-one"  # of message passing from plain parameters
    tuning: str = "em"  # or "sure": how parameters are learnt
    em_iterations: int = 0  # from plain parameters
    # The user's tolerance counts, unless it is smaller than these: from plain parameters, from class means.
    tolerance: float = 0.0
    blend_tolerance: float = 0.0
    patience: int | None = None  # iterations without a smaller change, after which a run has stalled
    candidates: int = 0  # solved over so many columns, the others judged by them; 0: over all
    neighbours: int = 0  # so many columns that resemble it come with each candidate
    search_rows: int = 0  # fitted before all rows are; 0: all rows at once
    # Whether the fit of these rows must predict other rows as well as its leave-one-out, before all rows are
    # fitted from it.
    sample_checked: bool = False
    screened: bool = False  # most weights are visited only now and then
    # For leave-one-out, a blend is settled again without each sample, in so many pairs of samples and columns
    # at most (`solvers.left_out`); 0: leave-one-out is read off the cavities as they are.
    left_out_edges: int = 0
    # Parameters are learnt again without each of so many parts of the samples, for the leave-one-out of that
    # part; 0: leave-one-out is at the parameters of all samples.
    relearnt_parts: int = 0
    polish: bool = False  # message passing is finished with exact covariances
    integrate: bool = False  # over parameters, from fits at their neighbours
    more_flips: bool = False  # intervals count what more wrong labels would make of weights
    flips: bool = False  # of several classes: labels may be wrong (of two classes they always may)
    # Where class means have a part, the probability of a feature is that beside the features it is
    # correlated with.
    conditional: bool = False
    groups: bool = False  # of features, from the joint posterior: where there are exact covariances of all
    fallback: SparsePlan | None = None  # where this one does not settle


@registered("plan/dense")
@dataclass(frozen=True)
class DensePlan:
    """The models that only predict, beside the sparse one."""

    solver: str  # "kernel EP", "EP", "BackgroundEP", "primal EP", "GAMP", "Newton"
    recipes: tuple[Recipe, ...]
    searched: bool = False  # only the best recipe and its neighbours are kept
    per_occurrence: bool = False  # one size of weights per occurrence instead of per standard deviation
    left_out: str = ONE_BY_ONE  # or IN_SETS or ALONG_OWN: of Newton's ridges
    single: bool = False  # products with X in single precision
    if_worthwhile: bool = False  # only if the first ridge has a share in the average
    # Fitted one after the other, as long as the widest so far predicts better than all other dense models.
    wider: tuple[Recipe, ...] = ()

    @property
    def widest(self) -> Recipe:
        """Of the recipes with one variance for all weights that take all labels for right."""
        ridges = [recipe for recipe in self.recipes if not (recipe.exponent or recipe.flip_prob)]
        return max(ridges, key=lambda recipe: recipe.score_variance)


@registered("plan/plan")
@dataclass(frozen=True)
class Plan:
    """What is to be fitted, and why."""

    path: str  # "independent", "independent words", "exact", "diagonal", "requested"
    sparse: SparsePlan
    dense: DensePlan | None
    left_out: str  # "samples", "groups", or SETS_OF_GROUPS
    reasons: tuple[Reason, ...]
    facts: Facts | None = None  # None where nothing was left to decide
    flags: tuple[str, ...] = ()  # codes of what to be careful about, as far as known before the fit
    exact_cost: float = 0.0  # operations of an iteration with exact covariances
    # How it is tested whether labels have to do with the features: by permutations, or by "losses".
    null_test: str = "permutation"

    def as_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return asdict(self)

    def because(self, code: str) -> str | None:
        """The text of the reason with this code; None if there is none."""
        return next((r.text for r in self.reasons if r.code == code), None)
