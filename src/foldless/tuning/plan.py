"""Which models are fitted to a table, by which solvers, and why: the one place where that is decided.

`plan` is a pure function of what a survey found (`tuning.table`), of what may be spent (`tuning.costs`), and
of what was asked for. Its result is data (`tuning.planned`). `flags_of` decides, after a fit, what its reader
should be careful about.

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

from collections.abc import Callable
from dataclasses import replace

from foldless.solvers.multinomial_ridge import SETS, leave_one_out_cost, sets_cost
from foldless.tuning.costs import Budget, exact_cost, kernel_cost
from foldless.tuning.planned import (
    ALONG_OWN,
    CLASS_MEANS,
    IN_SETS,
    ONE_BY_ONE,
    PLAIN,
    SETS_OF_GROUPS,
    DensePlan,
    Plan,
    Reason,
    Recipe,
    SparsePlan,
)
from foldless.tuning.table import Facts

# ---------------------------------------------------------------------- what a table is like

# Up to this spectral excess diagonal covariances are good enough: columns of the correlation 0.5^|i - j|, at
# 1.1, are fitted alike with them and with exact ones.
TOLERATED_EXCESS = 1.25
# In standard errors. Samples along the differences of class means form clusters, some of whose labels are
# wrong, if their tails are shorter than Gaussian ones by more than this, and classes differ there by as much.
CLUSTERED = 3.0
# A table has words if half of its columns are not zero in a smaller share of the rows than this. Most words
# are; most genotypes, and counts of what is common, are not.
RARE = 0.1
# Samples far outnumber features from so many per feature on. Then columns can be chosen by what they explain
# (which takes more than a sample or two for each), and wrong labels of several classes can be told, if there
# are as many samples of a class: of a class of one sample any label may as well be wrong.
FAR_MORE_SAMPLES = 2.0

# ---------------------------------------------------------------------- the sparse model

# Plain parameters: few features, each of about two log-odds per standard deviation.
EXPECTED_ACTIVE = 10.0
PLAIN_SLAB_VARIANCE = 4.0
# The score variance of the background that it has where columns are correlated: of very many small effects
# beside the few. With less, inclusion probabilities are too large, and below 3 fits of real tables run away;
# with more than 30 they are too small.
BACKGROUND_SCORE_VARIANCE = 20.0
# With at least as many samples as features, small effects can be told from none. A background is needed only
# because columns that can stand in for each other would otherwise change places for ever.
NARROW_BACKGROUND = 1.0
# If samples outnumber features and all columns would cost too much, the sparse model is solved over so many
# candidates; of two classes each comes with the columns that resemble it most. (With hundreds of such
# columns, rows of weights do not settle.)
CANDIDATES, NEIGHBOURS, CANDIDATES_OF_MANY = 20, 16, 40
# With more features than samples any labels can be separated. A ridge as wide as this leaves the labels to
# decide how far, as a Bayes point machine does, and the certainty of predictions to wrong labels and to the
# average. Rows of weights are settled from such a ridge: in it all are in, and what is not needed drops out.
INFORMED_VARIANCE = 1000.0
# A run that has not found a smaller change in so many iterations will not settle.
PATIENCE = 60
# Relative change at which a sparse model has settled. That of several classes is larger, because their sites
# circle about the fixed point for as long again before they come nearer. That of words over a background is,
# because words that go together change places long after scores have settled.
TOLERANCE, TOLERANCE_OF_MANY, WORD_TOLERANCE = 1e-3, 5e-3, 2e-2
# EM goes on for so many iterations from plain parameters: near its start the evidence is flat.
EM_ITERATIONS, EM_ITERATIONS_OF_MANY = 40, 20
# Parameters of few samples depend on each of them. Those learnt without a tenth of the samples are about as
# good as those that refits without single samples would learn, or a little worse.
RELEARNT_PARTS = 10
# The largest share of a blend with class means in means and variances of weights; the rest are those of the
# likelihood alone.
MOST_OF_BLEND = 0.5
# A fit of some rows is not trusted if it predicts other rows worse than its leave-one-out by more than so
# many standard errors.
HONEST_STANDARD_ERRORS = 3.0
# The name of a spike and slab that has seen the class means.
CLASS_MEANS_PRIOR = "class-means"

# ---------------------------------------------------------------------- the dense models

# For at most as many features as samples, or words. Labels may be wrong under narrow priors only: a wide one
# can call every sample that does not fit wrongly labelled, and leave-one-out does not notice.
RIDGES = (Recipe(1.0), Recipe(10.0), Recipe(100.0), Recipe(1.0, 0.1), Recipe(10.0, 0.1))
# For more features than samples. Labels may be wrong in the one that trusts class means most.
INFORMED = (
    Recipe(INFORMED_VARIANCE),
    Recipe(INFORMED_VARIANCE, exponent=1),
    Recipe(INFORMED_VARIANCE, 0.1, exponent=2),
)
# For large tables, whose kernel is made once: informed ridges would need another one for each recipe, and for
# what is left out.
RIDGES_OF_ONE_KERNEL = (Recipe(10.0), Recipe(100.0), Recipe(1000.0))
# By message passing. Where ridges may not be worth their time the first to be fitted is the second: if it has
# no share in the average, neither have the others.
RIDGES_BY_MESSAGES = (Recipe(1.0), Recipe(10.0), Recipe(100.0), Recipe(1000.0))
FIRST_RIDGE = RIDGES_BY_MESSAGES[1]
# Prior variances of scores, in squared log-odds: from weak signals to separated classes, and to spectra whose
# classes differ where columns hardly vary. A search begins in the middle, and keeps the best decade and its
# neighbours.
SEARCHED_RIDGES = tuple(Recipe(variance) for variance in (0.1, 1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6))
# The background of correlated words. An average over narrower and wider ones predicts no better than one of
# 30 to 100 at its best certainty. Over wider ones effects are missed, over narrower ones they circle.
BACKGROUND_OF_WORDS = Recipe(50.0)
# Ridges by message passing are only averaged, and need not settle further than this.
RIDGE_TOLERANCE = 1e-2
RIDGE_MAX_ITER = 200

# ---------------------------------------------------------------------- what comes of the models

# In an average, a model of less weight than this is hardly missed.
WORTH_IT = 0.1
# From this share of one model in predictions on, other models need not be fitted again.
NEARLY_ALL = 0.9
# Groups are left out by so many fits at most, where that cannot be computed from exact covariances.
GROUP_SETS = 10
# A model predicts clearly better than another if it does by more than so many standard errors. Dense models
# that predict clearly better than the sparse one are a reason for care. A widest one that predicts clearly
# better than all others is a reason to fit wider ones.
CLEAR_STANDARD_ERRORS = 2.0
# There is no reason for care if the sparse model has at least this weight in the average all the same.
MOST_WEIGHT = 0.5
# Above this p value what was found may be chance, and so may weights and probabilities of features: a prior
# that expects ten effects finds likely places for them in any labels. No groups are reported then.
CHANCE = 0.05
# A smaller panel of features may lose this share of the log loss that the best gains over class frequencies.
UNNOTICED = 0.02


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
        tuning=tuning,
        search_rows=budget.rows_to_search(shape[0]) if searched else 0,
        screened=can_screen and shape[1] >= budget.screened,
    )
    test = budget.null_test(shape, n_classes, in_memory=in_memory)
    return Plan("requested", sparse, None, "groups" if groups else "samples", reasons, null_test=test)


def learnt_by(tuning: str, *, laplace: bool, max_sum: bool, rate_asked: bool, kinked: bool) -> str:
    """SURE, if the rate of a Laplace prior under max-sum is learnt; see `tuning.sure`.

    Not under a channel with a kink: there variances mean nothing, and no noise to tell weights from is known.
    """
    by_sure = laplace and max_sum and rate_asked and not kinked
    return "sure" if tuning == "sure" or by_sure else "em"


def flags_of(
    plan: Plan, *, settled: bool, fell_back: bool, exactly: bool, dense_lead: float, sparse_share: float
) -> tuple[str, ...]:
    """Codes of what to be careful about: as known before the fit, and by how its sparse model ended.

    `fell_back`: its answer is that of the fallback; `exactly`: exact covariances had a part in it;
    `dense_lead`: by how many standard errors dense models predict better; `sparse_share`: its weight in the
    average.
    """
    flags, independent = list(plan.flags), plan.path.startswith("independent")
    if fell_back:
        assert plan.sparse.fallback is not None
        if plan.sparse.fallback.background:
            flags.append("fell-back-on-background")
        elif plan.sparse.fallback.solver == "GAMP":
            flags.append("fell-back")
    if plan.path != "requested" and not settled:
        flags.append("unsettled")
    elif independent and plan.facts is not None and plan.facts.n_classes == 2 and not exactly:
        flags.append("narrow-intervals")
    if dense_lead > CLEAR_STANDARD_ERRORS and sparse_share < MOST_WEIGHT:
        flags.append("not-sparse" if independent or exactly else "misled")
    return tuple(flags)


class _Planning:
    """Facts and budget, what follows from them at once, and the reasons as they come up."""

    def __init__(self, facts: Facts, budget: Budget, groups: bool, generative_weight: float | None) -> None:
        self.facts, self.budget = facts, budget
        self.generative_weight = generative_weight
        self.many = facts.n_classes > 2
        # Rows as weights count them, in this and in `wide`: a weight of 2 and a row twice have the same plan,
        # as far as costs are the same.
        self.far_more = facts.total_weight >= FAR_MORE_SAMPLES * facts.n_features
        self.wide = facts.n_features > facts.total_weight
        self.words = facts.n_free > 0 and facts.median_nonzero_fraction < RARE
        # Labels of several classes may be wrong only at the price of a response to each class: so many scores
        # for each class of a sample.
        n_responses = facts.n_samples * facts.n_classes**2
        filled = facts.total_weight >= FAR_MORE_SAMPLES * facts.n_classes
        self.doubtful = self.many and self.far_more and filled and n_responses <= budget.flips
        beyond = facts.spectral_excess > TOLERATED_EXCESS
        self.wrong_labels = (
            beyond
            and facts.class_tails < -CLUSTERED
            and facts.class_gap > CLUSTERED
            and facts.excess_beside <= TOLERATED_EXCESS
        )
        self.correlated = beyond and not self.wrong_labels
        self.cost = exact_cost(facts.n_samples, facts.n_features, facts.n_classes if self.many else 1)
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
        # The blend with class means is for more features than samples, or for so many samples that they tell
        # which labels are wrong. Between these exact covariances are cheap.
        by_messages = self.far_more and (self.words or self.doubtful or self.cost > budget.all_columns)
        tall_many = self.many and not self.wide and not by_messages
        self.exact = self.affordable and (self.correlated or self.groups or tall_many)
        self.reasons: list[Reason] = []
        self.flags: list[str] = []

    def plan(self) -> Plan:
        facts = self.facts
        self._look()
        dense_of: Callable[[], DensePlan] | None = self._diagonal_dense
        if self._few_columns():
            self._refuse_blend()
            path, sparse, dense_of = "exact", self._few_sparse(), self._tall_ridges
        elif self.exact:
            self._refuse_blend()
            path, sparse, dense_of = "exact", self._exact_sparse(), self._exact_dense
        elif self.correlated:
            path, sparse = "diagonal", self._diagonal_sparse()
            self.flags.append("diagonal-covariances")
        elif self.words:
            path, sparse = "independent words", self._independent_sparse()
        else:
            path, sparse = "independent", self._independent_sparse()
            dense_of = self._diagonal_dense if self.many and self.far_more else None
        self._explain(sparse)
        if dense_of is None:
            self._because("alone", "Independent columns are described by the sparse model alone.")
        dense = dense_of() if dense_of is not None and facts.n_free else None
        left_out = ("groups" if self.groups else SETS_OF_GROUPS) if self.groups_asked else "samples"
        shape = facts.n_samples, facts.n_features
        test = self.budget.null_test(shape, facts.n_classes, in_memory=facts.in_memory)
        reasons, flags = tuple(self.reasons), tuple(self.flags)
        return Plan(path, sparse, dense, left_out, reasons, facts, flags, self.cost, test)

    def _because(self, code: str, text: str) -> None:
        self.reasons.append(Reason(code, text))

    def _look(self) -> None:
        """Reasons that lie in the table, whatever is fitted to it."""
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
        if self.large and self.exact:
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

    def _explain(self, sparse: SparsePlan) -> None:
        """Reasons of the sparse model that is fitted first; a fallback has none of its own."""
        if sparse.candidates:
            beside = f", with {sparse.neighbours} that resemble each," if sparse.neighbours else ""
            self._because(
                "few-columns",
                f"{self.facts.n_samples} samples outnumber {self.facts.n_features} features: the sparse "
                f"model is solved over {sparse.candidates} columns that explain classes best, each given "
                f"those before{beside} and others that turn out to matter; the rest are judged by these.",
            )
        if sparse.from_ridge:
            self._because("from-ridge", "Rows of weights settle from a wide ridge, in which all are in.")
        if sparse.flips:
            self._because(
                "flips", "Each label may be wrong, and is then any of the others; samples tell how many."
            )
        if sparse.left_out_edges:
            again = "A blend with class means is settled"
            if self.many:
                again = "The weights of a blend with class means are found"
            self._because(
                "left-out-answers",
                f"{again} again without each sample, with parameters as they are: that is its leave-one-out.",
            )
        if sparse.relearnt_parts:
            self._because(
                "relearnt",
                f"Parameters of a blend are learnt again without each of {sparse.relearnt_parts} parts of "
                "the samples, which are left out at these: labels that have tuned a fit would flatter it.",
            )
        if sparse.search_rows:
            self._because(
                "many-rows",
                f"A search needs no more than {sparse.search_rows} of {self.facts.n_samples} rows.",
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
    def _left_out_edges(self) -> int:
        """None where samples are so many that they hardly move when one of them goes."""
        most = self.budget.left_out_edges
        few = self.facts.n_samples**2 <= most
        return 0 if self.groups or not few or self.screened else most

    # ------------------------------------------------------------------ the sparse model

    def _independent_sparse(self) -> SparsePlan:
        polish = not self.many and self.cost <= self.budget.polish
        words_of_many = self.many and self.words
        flips = self.doubtful and not self.words
        fallback = self._over_background() if self._may_fall_back and not self.many else None
        if flips and self.cost <= self.budget.all_columns:
            # A class of one sample looks like a wrong label, and parameters may run away.
            fallback = self._by_ep
        integrate = polish and self.cost <= self.budget.integrate
        left_out_edges = self._left_out_edges
        relearnt = integrate and left_out_edges > 0 and not (self.words or self.groups_asked)
        return SparsePlan(
            self._prior,
            "GAMP",
            blend_tolerance=TOLERANCE_OF_MANY if words_of_many else 0.0,
            patience=PATIENCE if words_of_many else None,
            search_rows=self.budget.rows_to_search(self.facts.n_samples),
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
            starts=(PLAIN,),
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
            return replace(self._over_background(NARROW_BACKGROUND), from_ridge=from_ridge, fallback=fallback)
        em = EM_ITERATIONS
        if self.many:
            em = EM_ITERATIONS_OF_MANY if self.cost <= self.budget.tune_many else 0
        return replace(self._by_ep, from_ridge=from_ridge, em_iterations=em, fallback=self._behind_ep)

    @property
    def _behind_ep(self) -> SparsePlan | None:
        """What is fitted where exact covariances do not settle."""
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
        if self.many:
            self.flags.append("few-columns")
        few = replace(self._by_ep, fallback=self._behind_ep, groups=not self.many)
        return replace(few, candidates=candidates, neighbours=neighbours)

    def _diagonal_sparse(self) -> SparsePlan:
        # Rows of many weights run in circles from plain parameters where there are samples for all of them.
        only_blend = self.generative_weight or (self.many and not self.wide)
        both = (CLASS_MEANS, PLAIN) if self.many else (PLAIN, CLASS_MEANS)
        starts = (CLASS_MEANS,) if only_blend else both
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
            search_rows=self.budget.rows_to_search(self.facts.n_samples),
            sample_checked=True,
            screened=self.screened and not self.many,
            left_out_edges=self._left_out_edges,
            conditional=not self.many,
        )

    # ------------------------------------------------------------------ the dense models

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
            return self._with_wider(DensePlan("kernel EP", recipes, single=self.single))
        if self.cost > self.budget.ridge_ep and not self.groups:
            return self._tall_ridges()
        return self._with_wider(DensePlan("EP", RIDGES))

    def _with_wider(self, dense: DensePlan) -> DensePlan:
        """With the searched ridges beyond the widest, to be fitted if that is clearly the best.

        Not where more than one sample is left out at once, a group or a sample of larger weight: under the
        widest priors the sites of all others would move then, too, and labels that mean nothing seem to be
        predicted.
        """
        if self.groups_asked or self.facts.heavy:
            return dense
        widest = dense.widest.score_variance
        return replace(dense, wider=tuple(r for r in SEARCHED_RIDGES if r.score_variance > widest))

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
