"""Which models are fitted to a table, by which solvers, and why: the one place where that is decided.

`plan` is a pure function of what a survey found, of what may be spent, and of what was asked for. A plan is
data: it is kept with the fit, saved with the model, and printed by reports.

    columns                     two classes                             more classes
    ------------------------    ------------------------------------    ----------------------------------
    independent                 sparse by GAMP, polished by EP          sparse by GAMP; if samples outnumber
                                                                        features EP and ridges, or, if far
                                                                        and classes are few, GAMP with wrong
                                                                        labels and ridges
    independent, mostly zeros   sparse by GAMP, ridges if worth it      sparse by GAMP, ridges
    correlated words            sparse over a ridge per occurrence,     as below
                                if samples are few enough
    correlated, affordable      sparse by EP, informed ridges (ridges   sparse by EP, ridges
                                of words, or if samples outnumber
                                features)
    correlated, many samples    sparse by EP over few columns, ridges   sparse by EP over few columns, ridges
    of fewer features
    correlated, too large       sparse by GAMP from two sides,          sparse by GAMP from two sides,
                                ridges by GAMP                          ridges, exact as far as possible
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from foldless.registry import registered
from foldless.solvers.multinomial_ridge import SETS, leave_one_out_cost, sets_cost
from foldless.tuning.table import Facts

# Up to here diagonal covariances do: AR(0.5) columns, at 1.1, are fitted alike by both solvers.
TOLERATED_EXCESS = 1.25
# Standard errors by which samples along class differences must have shorter tails than Gaussian ones, and
# classes must differ, for what goes together there to be clusters with wrong labels.
CLUSTERED = 3.0
# Most words are in fewer rows than this share; most genotypes, and counts of what is common, in more.
RARE = 0.1
# Plain parameters of the sparse model: few features, of about two log-odds per standard deviation.
EXPECTED_ACTIVE = 10.0
PLAIN_SLAB_VARIANCE = 4.0
# Its background, where columns are correlated: the score variance of very many small effects beside the few.
# With less, inclusion probabilities claim too much, and below 3 fits of real tables run away; with more than
# 30 they are too cautious.
BACKGROUND_SCORE_VARIANCE = 20.0
# With at least as many samples as features these tell small effects from none: a background is only to keep
# columns that can stand in for each other from changing places for ever, as they do without one.
NARROW_BACKGROUND = 1.0
# Columns that the sparse model is solved over where samples outnumber features and all would cost too much,
# and of two classes those that resemble each most. Rows of weights of hundreds of such columns do not settle.
CANDIDATES, NEIGHBOURS, CANDIDATES_OF_MANY = 20, 16, 40
# They are found by what they explain, for which a feature needs more than a sample or two. So are wrong
# labels of several classes.
FAR_MORE_SAMPLES = 2.0
# An iteration that has not found a smaller change for so long will not settle.
PATIENCE = 60
# Relative change at which a sparse model has settled; of several classes, whose sites circle about their
# fixed point for as long again before they come nearer; of ridges by messages, which are only averaged; of
# words over a background, where words that go together change places long after scores have settled.
TOLERANCE, TOLERANCE_OF_MANY, RIDGE_TOLERANCE, WORD_TOLERANCE = 1e-3, 5e-3, 1e-2, 2e-2
RIDGE_MAX_ITER = 200
# EM goes on for so many iterations from plain parameters: near its start the evidence is flat.
EM_ITERATIONS, EM_ITERATIONS_OF_MANY = 40, 20
# Prior variances of scores, in squared log-odds: from weak signals to separated classes, and to spectra whose
# classes differ where columns hardly vary. A search begins in the middle; the best decade and its neighbours
# are kept.
SEARCHED_VARIANCES = (0.1, 1.0, 10.0, 100.0, 1000.0, 1e4, 1e5, 1e6)
# With more features than samples any labels can be separated. A prior this wide leaves it to them how far, as
# a Bayes point machine does; how sure predictions are is left to wrong labels and certainties. From such a
# ridge rows of weights are settled: all are in, and what is not needed drops out.
INFORMED_VARIANCE = 1000.0
# An average in which a model has a smaller weight than this is hardly another without it.
WORTH_IT = 0.1
# Dense models that predict better than the sparse one by more than this are a reason for care, and the widest
# of them, if it predicts better than all others by as much, one for wider ones.
CLEAR_STANDARD_ERRORS = 2.0
# Not where the sparse one has most of the weight in the average all the same.
MOST_WEIGHT = 0.5
# Parameters of few samples depend on each of them. Learnt without a tenth at a time they are those that
# refits without single samples would learn, or a little worse.
RELEARNT_PARTS = 10
# Of a blend with class means, in means and variances of weights beside those of the likelihood alone.
MOST_OF_BLEND = 0.5
# Above this p value what was found may be chance, and so may weights and probabilities of features: a prior
# that expects ten effects finds likely places for them in any labels. No groups are reported then.
CHANCE = 0.05
# A loss on other samples beyond the leave-one-out loss by more than this is more than chance.
HONEST_STANDARD_ERRORS = 3.0

# Log loss that a smaller panel may lose, of what the best gains over class frequencies.
UNNOTICED = 0.02
# The name of a spike and slab that has seen the class means.
CLASS_MEANS_PRIOR = "class-means"

# How samples are left out of Newton's ridges of several classes, the cheaper the less exact: each along all
# scores; together with a few others; and each along the score of its class (`solvers.multinomial_ridge`).
ONE_BY_ONE, IN_SETS, ALONG_OWN = "one by one", "in sets", "along own scores"


@registered("plan/recipe")
class Recipe(NamedTuple):
    """One dense model: Gaussian weights, all alike or the wider the further apart class means are."""

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


# For at most as many features as samples, or words. There a wide prior can call every sample that does not
# fit wrongly labelled, and leave-one-out does not notice: wrong labels go with narrow priors only.
RIDGES = (Recipe(1.0), Recipe(10.0), Recipe(100.0), Recipe(1.0, 0.1), Recipe(10.0, 0.1))
# One of them doubts the labels, and it is the one that trusts class means most.
INFORMED = (
    Recipe(INFORMED_VARIANCE),
    Recipe(INFORMED_VARIANCE, exponent=1),
    Recipe(INFORMED_VARIANCE, 0.1, exponent=2),
)
# Of large tables, whose kernel is made once: informed ones would need another for each, and for what is left
# out.
RIDGES_OF_ONE_KERNEL = (Recipe(10.0), Recipe(100.0), Recipe(1000.0))
# The second is fitted first where the others may not be worth it: they are not if it has no share.
RIDGES_BY_MESSAGES = (Recipe(1.0), Recipe(10.0), Recipe(100.0), Recipe(1000.0))
FIRST_RIDGE = RIDGES_BY_MESSAGES[1]
# The background of correlated words. An average of narrower and wider ones predicts no better than one of 30
# to 100 with more or less of its certainty. Over wider ones effects are missed, over narrower they circle.
BACKGROUND_OF_WORDS = Recipe(50.0)
# Without exact covariances, groups are left out by fits to the others: so many at the most.
SETS_OF_GROUPS, GROUP_SETS = "sets of groups", 10
# A share in predictions beside which other models need not be fitted again.
NEARLY_ALL = 0.9
SEARCHED_RIDGES = tuple(Recipe(variance) for variance in SEARCHED_VARIANCES)


@dataclass(frozen=True)
class Budget:
    """What a fit may cost, in operations of one iteration if there is no other unit; seconds of one core."""

    exact: float = 1e10  # exact covariances: about half a second
    # Likewise over a background, where a dozen iterations do: two seconds of the caller's single precision.
    exact_over_background: float = 1e11
    # Up to here all features are visited in every iteration, and by informed ridges; a tenth of a second.
    every_feature: float = 5e8
    # Up to here products with X take no longer than what is beside them, and stay in the caller's precision.
    double: float = 5e6
    all_columns: float = 5e8  # of a sparse model where samples outnumber features: 20 milliseconds
    # Pairs of samples and columns that answer when a sample is left out of message passing: 30 milliseconds.
    left_out_edges: int = 500_000
    polish: float = 2e8  # message passing finished with exact covariances: ten milliseconds
    # The fit repeated at neighbours of its parameters, and parameters learnt without parts of the samples.
    integrate: float = 5e7
    tune_many: float = 2e8  # EM of several classes: about a second in all
    # Several classes whose labels may be wrong: a response to every class in place of one, so many scores of
    # all of them. A fifth of a second, in each of dozens of iterations.
    flips: float = 2e5
    ridge_step: float = 4e10  # a Newton step of a ridge: about two seconds
    ridge_left_out: float = 5e9  # samples left out of a ridge one by one: a quarter of one
    ridge_sets: float = 5e10  # samples left out of a ridge in sets: about two
    ridge_ep: float = 1e8  # expectation propagation for ridges: half a second for all of them
    # A search over generative weights needs no more rows than these, if they are a small share of all: with
    # so many a proportion is known to a third of a per cent.
    search_rows: int = 20_000
    search_share: float = 0.1
    # Features from which most weights of two classes are visited only now and then (`solvers.screening`).
    screened: int = 1_000_000
    permuted: float = 1e7  # labels, for the p value: entries of the table times its scores

    def null_test(self, shape: tuple[int, int], n_classes: int, *, in_memory: bool) -> str:
        """By permutations where products with many vectors cost little; else by losses of left-out labels."""
        n_values = shape[0] * shape[1] * (1 if n_classes == 2 else n_classes)
        return "permutation" if in_memory and n_values <= self.permuted else "losses"

    def rows_to_search(self, n_samples: int) -> int:
        """0 if they would be more than a small share."""
        return self.search_rows if n_samples * self.search_share >= self.search_rows else 0


@registered("plan/reason")
class Reason(NamedTuple):
    """Why something was decided; the code is stable, the text is for readers."""

    code: str
    text: str


@registered("plan/sparse")
@dataclass(frozen=True)
class SparsePlan:
    """The model that selects features."""

    prior: str
    solver: str  # "GAMP", "EP", "BackgroundEP", ...
    # Where fits start: "class means" (blended with them, tuned) or "plain parameters" (labels alone). Where
    # there are two, the first that settles is taken, or the one that predicts left-out labels better.
    starts: tuple[str, ...] = ("class means",)
    judged_by_left_out: bool = False
    from_ridge: float = 0.0  # score variance of a ridge that plain parameters are settled from; 0: none
    background: float = 0.0  # score variance of a dense background beside the sparse effects
    single: bool = False  # exact covariances from products with X in single precision
    variances: str = "rank-one"  # of message passing from plain parameters
    tuning: str = "em"  # or "sure": how parameters are learnt
    em_iterations: int = 0  # from plain parameters
    tolerance: float = 0.0  # at least, from plain parameters
    blend_tolerance: float = 0.0  # at least, from class means
    patience: int | None = None
    candidates: int = 0  # solved over so many columns, the others judged by them; 0: over all
    neighbours: int = 0  # that come with each of them
    search_rows: int = 0  # to search with before all rows are fitted; 0: no such search
    # Whether other rows must agree with the leave-one-out of those before all are fitted from them.
    sample_checked: bool = False
    screened: bool = False  # most weights are visited only now and then
    # Pairs of samples and columns that answer when a sample is left out; 0: cavities as they are.
    left_out_edges: int = 0
    # Parts of the samples without which parameters are learnt again; 0: leave-one-out has those of all.
    relearnt_parts: int = 0
    polish: bool = False
    integrate: bool = False
    more_flips: bool = False  # intervals count what more wrong labels would make of weights
    flips: bool = False  # of several classes: labels may be wrong; of two they always may
    # Where class means have a part, probabilities of features are those beside correlated ones.
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
    # How samples are left out of ridges of several classes: ONE_BY_ONE, IN_SETS or ALONG_OWN.
    left_out: str = ONE_BY_ONE
    single: bool = False  # products with X in single precision
    if_worthwhile: bool = False  # only if the first ridge has a share in the average
    # Fitted one after the other, as long as the widest so far predicts better than all other dense models.
    wider: tuple[Recipe, ...] = ()

    @property
    def widest(self) -> Recipe:
        """Of the ridges that take labels for right."""
        ridges = [recipe for recipe in self.recipes if not (recipe.exponent or recipe.flip_prob)]
        return max(ridges, key=lambda recipe: recipe.score_variance)


@registered("plan/plan")
@dataclass(frozen=True)
class Plan:
    """What is to be fitted, and why."""

    path: str  # "independent", "independent words", "exact", "diagonal", "requested"
    sparse: SparsePlan
    dense: DensePlan | None
    left_out: str  # "samples", "groups", or "sets of groups"
    reasons: tuple[Reason, ...]
    facts: Facts | None = None  # None where nothing was left to decide
    flags: tuple[str, ...] = ()  # codes of what is known before the fit
    # Operations of an iteration with exact covariances.
    exact_cost: float = 0.0
    null_test: str = "permutation"  # that labels have to do with the features; or "losses"

    def as_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return asdict(self)

    def flags_of(
        self, *, settled: bool, fell_back: bool, exactly: bool, dense_lead: float, sparse_share: float
    ) -> tuple[str, ...]:
        """Codes of what to be careful about: known before the fit, and of how its sparse model ended.

        `exactly`: exact covariances had a part in it; `dense_lead`: by how many standard errors dense models
        predict better; `sparse_share`: of the sparse one in the average.
        """
        flags, independent = list(self.flags), self.path.startswith("independent")
        if fell_back:
            assert self.sparse.fallback is not None
            if self.sparse.fallback.background:
                flags.append("fell-back-on-background")
            elif self.sparse.fallback.solver == "GAMP":
                flags.append("fell-back")
        if self.path != "requested" and not settled:
            flags.append("unsettled")
        elif independent and self.facts is not None and self.facts.n_classes == 2 and not exactly:
            flags.append("narrow-intervals")
        if dense_lead > CLEAR_STANDARD_ERRORS and sparse_share < MOST_WEIGHT:
            flags.append("not-sparse" if independent or exactly else "misled")
        return tuple(flags)

    def because(self, code: str) -> str | None:
        """The text of a reason, if it is one."""
        return next((r.text for r in self.reasons if r.code == code), None)


def exact_cost(n_samples: int, n_features: int, n_scores: int = 1) -> float:
    """Operations of one iteration with exact covariances."""
    small, large = sorted((n_samples, n_features))
    return float(small) ** 2 * (large + small) * n_scores


def kernel_cost(n_samples: int) -> float:
    """Operations of one iteration in matrices of samples by samples."""
    return float(n_samples) ** 3


def plan(
    facts: Facts,
    budget: Budget | None = None,
    *,
    groups: bool = False,
    generative_weight: float | None = None,
) -> Plan:
    """The plan of the default classifier; `groups` of samples may have to be left out.

    A `generative_weight` that was asked for is a blend with class means, which exact covariances do not have.
    """
    return _Planning(facts, budget or Budget(), groups, generative_weight).plan()


def requested(
    prior: str,
    solver: str,
    shape: tuple[int, int],
    *,
    searched: bool,
    n_classes: int = 2,
    tuning: str = "em",
    groups: bool = False,
    in_memory: bool = True,
    budget: Budget | None = None,
) -> Plan:
    """The plan of an estimator whose user has made the choices; `shape` is that of the samples in use."""
    budget = budget or Budget()
    reasons = (Reason("requested", "Prior, channel and solver are those that were asked for."),)
    # Max-sum has no odds to screen by, exact covariances need all columns, a joint prior all weights.
    can_screen = n_classes == 2 and solver == "GAMP" and prior not in ("Pruned", CLASS_MEANS_PRIOR)
    sparse = SparsePlan(
        prior,
        solver,
        starts=("class means",),
        tuning=tuning,
        search_rows=budget.rows_to_search(shape[0]) if searched else 0,
        screened=can_screen and shape[1] >= budget.screened,
    )
    test = budget.null_test(shape, n_classes, in_memory=in_memory)
    return Plan("requested", sparse, None, "groups" if groups else "samples", reasons, null_test=test)


def learnt_by(tuning: str, *, laplace: bool, max_sum: bool, rate_asked: bool, kinked: bool) -> str:
    """SURE, if the rate of a Laplace prior under max-sum is learnt; see `tuning.sure`.

    Under a channel with a kink variances are anything, and there is no noise to tell weights from.
    """
    by_sure = laplace and max_sum and rate_asked and not kinked
    return "sure" if tuning == "sure" or by_sure else "em"


class _Planning:
    """Facts and budget, and the reasons as they come up."""

    def __init__(self, facts: Facts, budget: Budget, groups: bool, generative_weight: float | None) -> None:
        self.facts, self.budget = facts, budget
        self.generative_weight = generative_weight
        self.many = facts.n_classes > 2
        self.far_more = facts.total_weight >= FAR_MORE_SAMPLES * facts.n_features
        self.cost = exact_cost(facts.n_samples, facts.n_features, facts.n_classes if self.many else 1)
        # Of several classes, any label may be wrong: as many answers for a sample as there are classes.
        may_doubt = self.many and self.far_more
        self.doubtful = may_doubt and facts.n_samples * facts.n_classes**2 <= self.budget.flips
        beyond = facts.spectral_excess > TOLERATED_EXCESS
        self.wrong_labels = (
            beyond
            and facts.class_tails < -CLUSTERED
            and facts.class_gap > CLUSTERED
            and facts.excess_beside <= TOLERATED_EXCESS
        )
        self.correlated = beyond and not self.wrong_labels
        self.wide = facts.n_features > facts.total_weight
        self.words = facts.n_free > 0 and facts.median_nonzero_fraction < RARE
        # The kernel of words is one product over the non-zeros, and stays as it is; iterations are few.
        self.in_kernel = (
            self.words
            and self.correlated
            and not self.many
            and kernel_cost(facts.n_samples) <= min(self.cost, budget.exact)
        )
        few_iterations = self.wide and not (self.many or self.words)
        self.exact_budget = budget.exact_over_background if few_iterations else budget.exact
        self.affordable = self.in_kernel or self.cost <= self.exact_budget
        self.large = few_iterations and self.cost > budget.every_feature
        self.single = self.cost > budget.double
        self.tolerance = TOLERANCE_OF_MANY if self.many else TOLERANCE
        self.screened = facts.n_features >= budget.screened
        self.groups_asked, self.groups = groups, groups and self.affordable
        self.reasons: list[Reason] = []
        self.flags: list[str] = []

    def plan(self) -> Plan:
        facts = self.facts
        self._look()
        # The blend with class means is for more features than samples, or so many samples that it tells which
        # labels are wrong; between these exact covariances are cheap.
        by_messages = self.far_more and (self.words or self.doubtful or self.cost > self.budget.all_columns)
        tall_many = self.many and facts.n_features <= facts.n_samples and not by_messages
        if self._few_columns():
            self._refuse_blend()
            path, sparse, dense = "exact", self._few_sparse(), self._tall_ridges()
        elif self.affordable and (self.correlated or self.groups or tall_many):
            self._refuse_blend()
            path, sparse, dense = "exact", self._exact_sparse(), self._exact_dense()
            if sparse.from_ridge:
                self._because("from-ridge", "Rows of weights settle from a wide ridge, in which all are in.")
        elif self.correlated:
            path, sparse, dense = "diagonal", self._diagonal_sparse(), self._diagonal_dense()
            self.flags.append("diagonal-covariances")
        elif self.words:
            path, sparse, dense = "independent words", self._independent_sparse(), self._diagonal_dense()
        elif self.many and self.far_more:
            path, sparse, dense = "independent", self._independent_sparse(), self._diagonal_dense()
        else:
            path, sparse, dense = "independent", self._independent_sparse(), None
            self._because("alone", "Independent columns are described by the sparse model alone.")
        left_out = ("groups" if self.groups else SETS_OF_GROUPS) if self.groups_asked else "samples"
        dense, shape = dense if facts.n_free else None, (facts.n_samples, facts.n_features)
        test = self.budget.null_test(shape, facts.n_classes, in_memory=facts.in_memory)
        reasons, flags = tuple(self.reasons), tuple(self.flags)
        return Plan(path, sparse, dense, left_out, reasons, facts, flags, self.cost, test)

    def _because(self, code: str, text: str) -> None:
        self.reasons.append(Reason(code, text))

    def _look(self) -> None:
        facts = self.facts
        excess = f"{facts.spectral_excess:.2f}"
        if self.correlated:
            self._because(
                "correlated",
                f"Within classes the columns are correlated: their largest eigenvalue is {excess} times what "
                "independent columns would have.",
            )
        elif self.wrong_labels:
            self._because(
                "wrong-labels",
                f"Within classes the columns go together only as classes differ ({excess} times what "
                f"independent columns would have, beside that {facts.excess_beside:.2f}), and samples form "
                "clusters there: labels are wrong, columns are independent.",
            )
        else:
            self._because(
                "independent",
                f"Within classes the columns look independent: their largest eigenvalue is {excess} times "
                "what independent columns would have.",
            )
        if self.words:
            self._because(
                "mostly-zeros",
                f"Columns are mostly zeros: half of them are not zero in fewer than "
                f"{100 * facts.median_nonzero_fraction:.2g} % of the rows.",
            )
        if self.many and self.screened:
            self._because(
                "not-screened",
                "Rows of weights, one for each class, are all visited in every iteration: screening is for "
                "two classes.",
            )
        if not self.affordable:
            self._because(
                "too-large",
                f"Exact covariances would cost {self.cost:.1g} operations an iteration, more than "
                f"{self.exact_budget:.1g}.",
            )
        if self.in_kernel:
            self._because(
                "in-kernel",
                "Few words are fitted over a background of all of them, whose covariance between samples is "
                f"made once: {kernel_cost(facts.n_samples):.1g} operations an iteration, whatever the number "
                "of words.",
            )
        if self.large and self.affordable and self.correlated:
            self._because(
                "few-looks",
                "Features that are hardly in are visited at every third iteration only, and ridges share the "
                "covariance that all features make between samples.",
            )
        if self.groups:
            self._because("groups", "Groups of samples are left out as a whole, from exact covariances.")
        elif self.groups_asked:
            self._because(
                "groups-in-sets",
                f"Groups of samples are left out in at most {GROUP_SETS} sets, each by a fit to all others.",
            )

    def _refuse_blend(self) -> None:
        if not self.generative_weight:
            return
        why = " ".join(reason.text for reason in self.reasons)
        raise ValueError(
            f"generative_weight={self.generative_weight:g} blends message passing with class means, and this "
            f"table is fitted with exact covariances, which have no such blend. {why} Leave "
            "generative_weight='auto', or use GAMPClassifier, which takes it for any table."
        )

    @property
    def _prior(self) -> str:
        return "row-sparse" if self.many else "spike-and-slab"

    @property
    def _search_rows(self) -> int:
        rows = self.budget.rows_to_search(self.facts.n_samples)
        if rows:
            self._because("many-rows", f"A search needs no more than {rows} of {self.facts.n_samples} rows.")
        return rows

    @property
    def _left_out_edges(self) -> int:
        """Very many samples hardly answer to the absence of one."""
        facts, most = self.facts, self.budget.left_out_edges
        few = facts.n_samples**2 <= most
        if self.many or self.groups or not few or self.screened:
            return 0
        self._because(
            "left-out-answers",
            "A blend with class means is settled again without each sample, with parameters as they are: "
            "that is its leave-one-out.",
        )
        return most

    def _independent_sparse(self) -> SparsePlan:
        polish = not self.many and self.cost <= self.budget.polish
        words_of_many = self.many and self.words
        flips = self.doubtful and not self.words
        fallback = self._over_background() if self._may_fall_back and not self.many else None
        if flips:
            # A class of one sample looks like a wrong label, and parameters may run away.
            fallback = self._by_ep if self.cost <= self.budget.all_columns else None
            self._because(
                "flips", "Each label may be wrong, and is then any of the others; samples tell how many."
            )
        integrate = polish and self.cost <= self.budget.integrate
        left_out_edges = self._left_out_edges
        relearnt = integrate and left_out_edges > 0 and not (self.words or self.groups_asked)
        if relearnt:
            self._because(
                "relearnt",
                f"Parameters of a blend are learnt again without each of {RELEARNT_PARTS} parts of the "
                "samples, which are left out at these: labels that have tuned a fit would flatter it.",
            )
        return SparsePlan(
            self._prior,
            "GAMP",
            blend_tolerance=TOLERANCE_OF_MANY if words_of_many else 0.0,
            patience=PATIENCE if words_of_many else None,
            search_rows=self._search_rows,
            sample_checked=self.words,
            screened=self.screened and not self.many,
            left_out_edges=left_out_edges,
            relearnt_parts=RELEARNT_PARTS if relearnt else 0,
            polish=polish,
            conditional=not self.many,
            integrate=integrate,
            flips=flips,
            fallback=fallback,
        )

    @property
    def _may_fall_back(self) -> bool:
        """Whether a sparse model that does not settle can be had over a background."""
        return self.affordable and not self.generative_weight and self.facts.n_free > 0

    def _over_background(self, background: float = BACKGROUND_SCORE_VARIANCE) -> SparsePlan:
        """Sparse effects over a dense background, at plain parameters: EM would follow a few cavities."""
        solver = "BackgroundEP" if self.large else "EP"
        more_flips = not self.many and self.cost <= self.budget.integrate
        return replace(self._by_ep, solver=solver, background=background, more_flips=more_flips)

    @property
    def _by_ep(self) -> SparsePlan:
        """At plain parameters, over all columns."""
        return SparsePlan(
            self._prior,
            "EP",
            starts=("plain parameters",),
            single=self.single,
            tolerance=self.tolerance,
            patience=PATIENCE,
            groups=True,
        )

    def _exact_sparse(self) -> SparsePlan:
        if self.in_kernel:
            return replace(
                self._by_ep,
                solver="BackgroundEP",
                background=BACKGROUND_OF_WORDS.score_variance,
                tolerance=WORD_TOLERANCE,
                single=False,
                groups=False,
            )
        if self.wide:
            return replace(self._over_background(), fallback=self._behind_ep)
        # Effects are few among many where less than half of the weights is expected to be in.
        few = self.facts.n_free > 2 * EXPECTED_ACTIVE
        from_ridge = INFORMED_VARIANCE if self.many else 0.0
        if few and not self.words:
            fallback = self._over_background() if self._may_fall_back else None
            return replace(
                self._over_background(NARROW_BACKGROUND), from_ridge=from_ridge, fallback=fallback
            )
        em = EM_ITERATIONS
        if self.many:
            em = EM_ITERATIONS_OF_MANY if self.cost <= self.budget.tune_many else 0
        return replace(self._by_ep, from_ridge=from_ridge, em_iterations=em, fallback=self._behind_ep)

    @property
    def _behind_ep(self) -> SparsePlan | None:
        if self.many:
            return None if self.groups else self._diagonal_sparse()
        return self._over_background() if self._may_fall_back and not self.wide else None

    def _few_columns(self) -> bool:
        """Whether samples far outnumber features, in a table too large for a sparse model of all columns.

        Words are many and rare, and message passing visits only where they are.
        """
        facts, budget = self.facts, self.budget
        large = self.far_more and self.cost > budget.all_columns and self.correlated
        return large and not (self.words or self.groups or budget.rows_to_search(facts.n_samples))

    def _few_sparse(self) -> SparsePlan:
        candidates, neighbours = (CANDIDATES_OF_MANY, 0) if self.many else (CANDIDATES, NEIGHBOURS)
        beside = f", with {neighbours} that resemble each," if neighbours else ""
        self._because(
            "few-columns",
            f"{self.facts.n_samples} samples outnumber {self.facts.n_features} features: the sparse model is "
            f"solved over {candidates} columns that explain classes best, each given those before{beside} "
            "and others that turn out to matter; the rest are judged by these.",
        )
        if self.many:
            self.flags.append("few-columns")
        few = replace(self._by_ep, fallback=self._behind_ep, groups=not self.many)
        return replace(few, candidates=candidates, neighbours=neighbours)

    def _diagonal_sparse(self) -> SparsePlan:
        starts: tuple[str, ...] = ("class means", "plain parameters")
        starts = starts if self.many else starts[::-1]
        # Rows of many weights from plain parameters run in circles where there are samples for all of them.
        tall_many = self.many and self.facts.n_features <= self.facts.total_weight
        if self.generative_weight or tall_many:
            starts = ("class means",)
        return SparsePlan(
            self._prior,
            "GAMP",
            starts=starts,
            judged_by_left_out=len(starts) > 1 and self.many,
            variances="rank-one" if self.many else "per-coordinate",
            em_iterations=0 if self.many else EM_ITERATIONS,
            tolerance=self.tolerance,
            blend_tolerance=TOLERANCE_OF_MANY if self.many else 0.0,
            patience=PATIENCE,
            search_rows=self._search_rows,
            sample_checked=True,
            screened=self.screened and not self.many,
            left_out_edges=self._left_out_edges,
            conditional=not self.many,
        )

    def _exact_dense(self) -> DensePlan:
        if self.many:
            return self._newton_ridges()
        if self.in_kernel:
            return DensePlan("BackgroundEP", (BACKGROUND_OF_WORDS,), per_occurrence=True)
        if self.words:
            # Informed priors follow class means, which of a rare word are those of a document or two.
            return DensePlan("EP", RIDGES, per_occurrence=True)
        if self.wide:
            recipes = RIDGES_OF_ONE_KERNEL if self.large else INFORMED
            return DensePlan("kernel EP", recipes, single=self.single, wider=self._wider_than(recipes))
        if self.cost > self.budget.ridge_ep and not self.groups:
            return self._tall_ridges()
        return DensePlan("EP", RIDGES, wider=self._wider_than(RIDGES))

    def _wider_than(self, recipes: tuple[Recipe, ...]) -> tuple[Recipe, ...]:
        """The searched ridges beyond the widest of some recipes.

        None where more than a sample is left out at once, a group or one of larger weight: of the widest the
        sites of all others would move with it, and it seems to be predicted where labels mean nothing.
        """
        if self.groups_asked or self.facts.heavy:
            return ()
        widest = max(recipe.score_variance for recipe in recipes)
        return tuple(recipe for recipe in SEARCHED_RIDGES if recipe.score_variance > widest)

    def _diagonal_dense(self) -> DensePlan:
        facts = self.facts
        if not self.many:
            worthwhile = not self.correlated
            return DensePlan("GAMP", RIDGES_BY_MESSAGES, per_occurrence=self.words, if_worthwhile=worthwhile)
        short, long = sorted((facts.n_samples, facts.n_free))
        if float(short) ** 2 * long > self.budget.ridge_step:
            return DensePlan("GAMP", SEARCHED_RIDGES, searched=True, per_occurrence=self.words)
        return self._newton_ridges()

    def _tall_ridges(self) -> DensePlan:
        """Of more samples than features."""
        if self.many or not self.affordable:
            return self._diagonal_dense()
        self._because(
            "primal",
            "Ridges have no sites of weights: what labels say of them is one matrix of features by features.",
        )
        return DensePlan("primal EP", SEARCHED_RIDGES, searched=True)

    def _newton_ridges(self) -> DensePlan:
        left_out = self._left_out()
        return DensePlan(
            "Newton", SEARCHED_RIDGES, searched=True, per_occurrence=self.words, left_out=left_out
        )

    def _left_out(self) -> str:
        facts, budget = self.facts, self.budget
        size = facts.n_samples, min(facts.n_samples, facts.n_free), facts.n_classes
        if leave_one_out_cost(*size) <= budget.ridge_left_out:
            return ONE_BY_ONE
        if sets_cost(*size) <= budget.ridge_sets:
            self._because(
                "in-sets", f"Samples are left out of ridges a {SETS}th at a time, by one Newton step each."
            )
            return IN_SETS
        self._because(
            "along-own-scores",
            "Samples are left out of ridges along the scores of their own classes; half of them, left out "
            "along all scores, put the others right.",
        )
        return ALONG_OWN
