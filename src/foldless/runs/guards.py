"""What makes a fit come out well and mean nothing: looked for before the fit, each with what to do.

None of it is an error, since each may be meant; what makes a fit impossible is found elsewhere.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property
from math import lgamma
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.stats import chi2_contingency, kruskal

from foldless.estimators._preparation import missing_share
from foldless.io.names import printable
from foldless.io.table import Table, listed

FEW_SAMPLES_OF_A_CLASS = 5
# Below this probability chance is no explanation.
BY_CHANCE = 1e-3
# A numeric target with more values than this is a measurement, whatever the number of rows.
MOST_NUMERIC_CLASSES = 20
# Different values of a column that stands for categories.
MOST_LEVELS = 10
# Rows of which one is that many times larger than another are not on one scale.
SCALES = 30.0
# Entries of a table that are looked at together.
BLOCK = 2_000_000
# Smallest numbers of samples that can show an order.
SHORTEST_ORDER = 8
CODES_FOR_MISSING = (-99.0, -999.0, -9999.0, -99999.0, 99.0, 999.0, 9999.0, 99999.0)
NO_LABELS = {
    "unknown",
    "missing",
    "unclear",
    "not available",
    "not reported",
    "undetermined",
    "not known",
    "tbd",
}
NAMED_ID = re.compile(r"(?:.*[\s_.-])?(?:id|ids|nr|no|number|index|row|barcode|accession)", re.IGNORECASE)
NAMED_DATE = re.compile(r".*(?:date|time|day).*", re.IGNORECASE)
NAMED_PREDICTION = re.compile(r".*(?:prob(?!e)|predict(?!or)|posterior|score|p_?hat).*", re.IGNORECASE)
# SEPT2, MARCH1 and DEC1 as a spreadsheet leaves them.
GENE_AS_DATE = re.compile(r"\d{1,2}-(?:Mar|Sep|Sept|Dec|Oct)|(?:Mar|Sep|Sept|Dec|Oct)-\d{1,2}", re.IGNORECASE)


def cautions(table: Table, *, log_cpm: bool = False) -> list[str]:
    """Sentences on what to look at before a fit is believed; counts are known for such if `log_cpm`."""
    look = _Look(table, known_as_counts=log_cpm)
    guards = (
        _labels, _classes, _numeric_target, _columns_in_order, _dates, _leaks, _predictions, _covariates,
        _groups, _copies, _constants, _codes_for_missing, _missing, _totals, _scales, _counts, _mangled_names,
    )  # fmt: skip
    of_columns = (_dates, _leaks, _predictions, _codes_for_missing, _missing, _totals, _scales)
    skipped = () if look.dense.shape[1] else of_columns
    return [sentence for guard in guards if guard not in skipped for sentence in guard(look)]


class _Look:
    """A table and what several guards need of it, from one pass over blocks of columns."""

    def __init__(self, table: Table, *, known_as_counts: bool) -> None:
        self.table, self.X, self.names = table, table.X, table.feature_names
        self.known_as_counts = known_as_counts
        self.classes, self.codes = np.unique(table.labels(), return_inverse=True)
        self.kept = set(table.covariate_positions)
        # Columns to be looked at one by one; of a sparse table none.
        self.dense = np.empty((self.X.shape[0], 0)) if sp.issparse(self.X) else np.asarray(self.X)
        n_samples, n_columns = self.dense.shape
        self.lows = np.empty((self.classes.size, n_columns))  # of each class
        self.highs = np.empty_like(self.lows)
        self.whole, self.rising = np.empty(n_columns, dtype=bool), np.empty(n_columns, dtype=bool)
        members = [np.flatnonzero(self.codes == k) for k in range(self.classes.size)]
        step = max(BLOCK // n_samples, 1)
        for columns in (slice(start, start + step) for start in range(0, n_columns, step)):
            block = self.dense[:, columns]
            for k, rows in enumerate(members):
                self.lows[k, columns] = np.fmin.reduce(block[rows], axis=0)
                self.highs[k, columns] = np.fmax.reduce(block[rows], axis=0)
            steps = np.diff(block, axis=0)
            self.whole[columns] = np.all(block == np.floor(block), axis=0)
            self.rising[columns] = np.all(steps > 0, axis=0) | np.all(steps < 0, axis=0)
        self.lowest, self.highest = np.fmin.reduce(self.lows, axis=0), np.fmax.reduce(self.highs, axis=0)

    @cached_property
    def ordered(self) -> NDArray[np.intp]:
        """Columns that rise or fall from row to row, or number the rows in any order."""
        n_samples = self.dense.shape[0]
        if n_samples < SHORTEST_ORDER:
            return np.array([], dtype=np.intp)
        found = self.rising.copy()
        named = self.columns_named(NAMED_ID)
        numbered = self.highest - self.lowest == n_samples - 1
        for j in np.flatnonzero(self.whole & (named | numbered) & ~found):
            found[j] = np.unique(self.dense[:, j]).size == n_samples
        return np.flatnonzero(found)

    @cached_property
    def holds_counts(self) -> bool:
        """Whether all values are whole numbers from 0 on, and some of them large."""
        values = self.X.data if sp.issparse(self.X) else self.dense
        if self.X.shape[1] < 100 or values.size == 0 or values.min() < 0 or values.max() < 100:
            return False
        return bool(np.all(values == np.floor(values)))

    def columns_named(self, pattern: re.Pattern[str]) -> NDArray[np.bool_]:
        """Of columns that are looked at one by one, those with such a name."""
        return np.array([bool(pattern.fullmatch(name)) for name in self.names[: self.whole.size]], dtype=bool)

    def called(self, columns: Any) -> str:
        return listed([self.names[j] for j in columns])


def _labels(look: _Look) -> Iterator[str]:
    alike = defaultdict(list)
    for label in look.classes:
        alike[" ".join(str(label).split()).casefold()].append(str(label))
    for labels in alike.values():
        if len(labels) > 1:
            shown = " and ".join(repr(printable(label)) for label in labels)
            yield (
                f"Labels {shown} differ by case or spaces only, and count as classes of their own. To join "
                "them: --tidy-labels."
            )
    unknown = [str(label) for label in look.classes if str(label).strip().casefold() in NO_LABELS]
    if unknown:
        yield (
            f"The label {listed(unknown)} is taken for a class. If it stands for samples of unknown class, "
            "remove these rows."
        )


def _classes(look: _Look) -> Iterator[str]:
    counts = look.table.class_counts()
    single = [label for label, count in counts.items() if count == 1]
    if single:
        yield (
            f"Classes with one sample: {listed(single)}. Nothing is learnt from one, and left out it is "
            "always wrong: remove it, or join the class with another."
        )
    rare = [label for label, count in counts.items() if 1 < count < FEW_SAMPLES_OF_A_CLASS]
    if rare:
        yield (
            f"Classes with fewer than {FEW_SAMPLES_OF_A_CLASS} samples: {listed(rare)}. Add samples, or "
            "expect little."
        )


def _numeric_target(look: _Look) -> Iterator[str]:
    try:
        look.classes.astype(float)
    except ValueError:
        return
    if look.classes.size > MOST_NUMERIC_CLASSES:
        yield (
            f"The target {printable(look.table.target_name)!r} has {look.classes.size} different numbers: "
            "a measurement? Cut it into classes first, or name another column with --target."
        )


def _columns_in_order(look: _Look) -> Iterator[str]:
    found = [j for j in look.ordered if j not in look.kept]
    if not found:
        return
    yield (
        f"Numbers of rows or identifiers among features: {look.called(found)} (no two samples alike, in "
        "order). Leave them out: --ignore, or name samples by one: --samples."
    )
    if np.count_nonzero(np.diff(look.codes)) == look.classes.size - 1:
        yield "Rows are sorted by class, so that such a column gives the class away."


def _dates(look: _Look) -> Iterator[str]:
    low, high = look.lowest, look.highest
    days = (low >= 19000101) & (high <= 20991231)
    for j in np.flatnonzero(days):
        month, day = look.dense[:, j] // 100 % 100, look.dense[:, j] % 100
        days[j] = bool(np.all((month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)))
    seconds = (low >= 9e8) & (high <= 2.2e9) | (low >= 9e11) & (high <= 2.2e12)
    serial = look.columns_named(NAMED_DATE) & (low >= 20000) & (high <= 80000)
    found = np.flatnonzero(look.whole & (days | seconds | serial) & (low < high))
    if found.size:
        yield (
            f"Dates among features: {look.called(found)}. When a sample was taken is no measurement of it: "
            "leave it out with --ignore, or keep it as a covariate."
        )


def _leaks(look: _Look) -> Iterator[str]:
    sizes = np.bincount(look.codes)
    orders = lgamma(sizes.sum() + 1) - sum(lgamma(size + 1) for size in sizes)
    # As many orders of the classes as there are, and as many columns to find one in.
    if np.log(look.dense.shape[1]) + lgamma(sizes.size + 1) - orders > np.log(BY_CHANCE):
        return
    order = np.argsort(look.lows, axis=0)
    lows, highs = np.take_along_axis(look.lows, order, axis=0), np.take_along_axis(look.highs, order, axis=0)
    telling = np.all(highs[:-1] < lows[1:], axis=0)
    for j in np.flatnonzero(look.whole & ~telling):
        if np.unique(look.dense[: 3 * MOST_LEVELS, j]).size > MOST_LEVELS:
            continue
        values, code = np.unique(look.dense[:, j], return_inverse=True)
        pairs = np.unique(np.column_stack([code, look.codes]), axis=0)
        telling[j] = 1 < values.size <= MOST_LEVELS and pairs.shape[0] == values.size
    found = [j for j in np.flatnonzero(telling) if j not in look.kept]
    if found:
        yield (
            f"The class can be read off single columns without a mistake: {look.called(found)}. If one was "
            "made from the class, or known only after it (a grade, a treatment), leave it out: --ignore."
        )


def _predictions(look: _Look) -> Iterator[str]:
    low, high = look.lowest, look.highest
    shares = np.flatnonzero((low >= 0) & (high <= 1) & ~look.whole)
    named = [j for j in shares if NAMED_PREDICTION.fullmatch(look.names[j])]
    seen: dict[bytes, Any] = {}
    for j in shares:
        column = np.asarray(look.dense[:, j], dtype=np.float64)
        other = seen.get(np.round(1.0 - column, 6).tobytes())
        if other is not None:
            named += [other, j]
        seen[np.round(column, 6).tobytes()] = j
    of_class = [j for j in shares if any(look.names[j].endswith(str(label)) for label in look.classes)]
    if len(of_class) == look.classes.size and np.allclose(
        look.dense[:, of_class].sum(axis=1), 1.0, atol=1e-3
    ):
        named += of_class
    if named:
        yield (
            f"Columns that look like probabilities predicted before: {look.called(sorted(set(named)))} "
            "(between 0 and 1, adding up to 1, or so called). If a model made them from these labels, "
            "leave them out: --ignore."
        )


def _covariates(look: _Look) -> Iterator[str]:
    table = look.table
    beside: dict[str, Any] = {
        name: np.unique(words.astype(str), return_inverse=True)[1] for name, words in table.words.items()
    }
    numeric = {
        name: np.asarray(table.X[:, [j]].toarray() if sp.issparse(table.X) else table.X[:, [j]]).ravel()
        for name, j in zip(table.covariates, table.covariate_positions, strict=True)
    }
    for name, values in (beside | numeric).items():
        if np.unique(values).size < 2:
            continue
        if name in beside:
            p_value = float(chi2_contingency(_counts_of(values, look.codes)).pvalue)
        else:
            parts = [values[(look.codes == k) & np.isfinite(values)] for k in range(look.classes.size)]
            p_value = float(kruskal(*[part for part in parts if part.size]).pvalue)
        if p_value < BY_CHANCE:
            yield (
                f"The covariate {printable(name)!r} goes with the class (p = {p_value:.1g}): what differs "
                "with it cannot be told from what differs between classes. Balance it in the next study, "
                "and read the error as one with it."
            )


def _counts_of(values: NDArray[Any], codes: NDArray[np.intp]) -> NDArray[np.intp]:
    found = np.zeros((values.max() + 1, codes.max() + 1), dtype=np.intp)
    np.add.at(found, (values, codes), 1)
    return found


def _groups(look: _Look) -> Iterator[str]:
    groups = look.table.groups
    if groups is None:
        return
    names, code = np.unique(groups, return_inverse=True)
    table = _counts_of(code, look.codes)
    alone = np.flatnonzero(np.any((table > 0) & (table == table.sum(axis=0)), axis=0))
    if alone.size:
        classes = listed([str(look.classes[k]) for k in alone])
        yield (
            f"All samples of {classes} are in one group: left out, no other is there to learn from. Is "
            "--groups the right column?"
        )
    if names.size > 0.9 * groups.size:
        yield "Nearly every sample has a group of its own: is --groups the right column?"


def _copies(look: _Look) -> Iterator[str]:
    rows = [_digest(look.X, i) for i in range(look.X.shape[0])]
    repeated = len(rows) - len(set(rows))
    labelled = len(set(zip(rows, look.codes.tolist(), strict=True))) - len(set(rows))
    if repeated and labelled:
        yield (
            f"{labelled} samples have all values of another and a different label. Unless columns are a "
            "few answers that many give alike, one of each pair is mislabelled, or files were joined "
            "wrongly: look at them."
        )
    elif repeated and look.table.groups is None:
        yield (
            f"{repeated} samples repeat another to the last digit. If they are measurements of the same "
            "thing, name what they have in common with --groups, or errors look too small."
        )
    columns = look.X.tocsc() if sp.issparse(look.X) else look.X.T
    constant = set(_constant(look.X).tolist())
    seen: dict[bytes, int] = {}
    twins = [
        (first, j)
        for j in range(look.X.shape[1])
        if j not in constant and (first := seen.setdefault(_digest(columns, j), j)) != j
    ]
    if twins:
        first, second = twins[0]
        repeat = "feature repeats" if len(twins) == 1 else "features repeat"
        yield (
            f"{len(twins)} {repeat} another to the last digit, such as "
            f"{printable(look.names[second])!r} and {printable(look.names[first])!r}: what is found is "
            "shared among them."
        )


def _constants(look: _Look) -> Iterator[str]:
    constant = _constant(look.X)
    if constant.size:
        never = "feature never varies" if constant.size == 1 else "features never vary"
        yield f"{constant.size} {never} and will not be used: {look.called(constant)}."


def _constant(X: Any) -> NDArray[np.intp]:
    if sp.issparse(X):
        return np.flatnonzero(X.max(axis=0).toarray().ravel() == X.min(axis=0).toarray().ravel())
    return np.flatnonzero(np.all((X[:1] == X) | np.isnan(X), axis=0))


def _digest(lines: Any, i: int) -> bytes:
    """A row of an array, or a row or column of a sparse matrix, in sixteen bytes."""
    if sp.issparse(lines):
        part = slice(lines.indptr[i], lines.indptr[i + 1])
        content = lines.indices[part].tobytes() + lines.data[part].tobytes()
    else:
        content = np.ascontiguousarray(lines[i]).tobytes()
    return hashlib.blake2b(content, digest_size=16).digest()


def _codes_for_missing(look: _Look) -> Iterator[str]:
    # A count of 99 or 999 is no code.
    for code in () if look.holds_counts else CODES_FOR_MISSING:
        extreme = np.flatnonzero((look.lowest if code < 0 else look.highest) == code)
        found = []
        for j in extreme:
            others = look.dense[look.dense[:, j] != code, j]
            # Beyond the others by more than they reach themselves.
            reach = np.ptp(others[np.isfinite(others)]) if others.size > 1 else 0.0
            if 0 < reach < np.min(np.abs(others - code)):
                found.append(j)
        if found:
            yield (
                f"The value {code:g} stands far from all others in {look.called(found)}: if it means "
                "missing, leave the cells empty, and say --impute median."
            )


def _missing(look: _Look) -> Iterator[str]:
    if not missing_share(look.X):
        return
    # How many there are is said by what fills them in.
    of_samples = np.isnan(look.dense).mean(axis=1)
    parts = [of_samples[look.codes == k] for k in range(look.classes.size)]
    if np.ptp(of_samples) > 0 and float(kruskal(*parts).pvalue) < BY_CHANCE:
        yield (
            "More values are missing in one class than in another: classes were measured differently, and "
            "what is filled in gives them away. Leave out features that are missing often."
        )


def _totals(look: _Look) -> Iterator[str]:
    if look.dense.shape[0] < 3:
        return
    above, last = look.dense[:-1], look.dense[-1]
    varied = np.flatnonzero(look.lowest < look.highest)
    for what, value in (("sum", above.sum(axis=0)), ("mean", above.mean(axis=0))):
        if varied.size > 1 and np.mean(np.isclose(last, value, rtol=1e-4)[varied]) > 0.9:
            yield (
                f"The last row, {printable(look.table.sample_names[-1])!r}, is the {what} of all others, "
                "not a sample. Remove it."
            )


def _scales(look: _Look) -> Iterator[str]:
    size = np.nanmedian(np.abs(look.dense), axis=1)
    low, high = int(np.argmin(size)), int(np.argmax(size))
    if size[low] > 0 and size[high] > SCALES * size[low]:
        first, second = (printable(look.table.sample_names[i]) for i in (high, low))
        yield (
            f"Samples are on different scales: values of {first!r} are {size[high] / size[low]:.0f} times "
            f"those of {second!r}. Are some logarithms, or in other units? Bring all to one scale."
        )


def _counts(look: _Look) -> Iterator[str]:
    if look.holds_counts and not look.known_as_counts:
        yield (
            "All values are whole numbers from 0 on. If they are counts of reads: --log-cpm makes samples "
            "comparable."
        )


def _mangled_names(look: _Look) -> Iterator[str]:
    found = [name for name in look.names if GENE_AS_DATE.fullmatch(name.strip())]
    if found:
        yield (
            f"Names that a spreadsheet turned into dates: {listed(found)}. They were genes such as SEPT2 "
            "or MARCH1: get the names from the source again."
        )
