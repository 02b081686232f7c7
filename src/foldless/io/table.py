"""A table: samples in rows, features in columns, and what each of the other columns is for."""

from __future__ import annotations

import errno
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from foldless.io.files import sha256_of
from foldless.io.names import printable

N_NAMES_SHOWN = 8
# A class column repeats its values. One with more values than this share of its rows is a measurement.
LARGEST_SHARE_OF_CLASSES = 0.5


class BadTable(ValueError):
    """A file that cannot be used: what is wrong, where, and what to do."""

    def __init__(self, path: Path, problem: str, remedy: str) -> None:
        super().__init__(f"{path}: {problem} {remedy}")


@contextmanager
def readable_as(path: Path, kind: str, remedy: str) -> Iterator[None]:
    """A context in which whatever a damaged file makes of a reader becomes a `BadTable`."""
    try:
        yield
    except (BadTable, MemoryError, ImportError):
        raise
    except Exception as error:
        # A file that cannot be opened has an errno, and its own words; EINVAL is a place that a file names.
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise
        reason = printable(f"{type(error).__name__}: {error}".splitlines()[0], longest=200)
        raise BadTable(path, f"this cannot be read as {kind} ({reason}).", remedy) from None


class OverBudget(MemoryError):
    """A table, or a fit, that needs more memory than it may have."""


@dataclass(frozen=True)
class Roles:
    """What columns are for. What is not named here is a feature."""

    target: str | None = None
    groups: str | None = None
    samples: str | None = None
    covariates: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()  # covariates whose numbers are codes
    ignore: tuple[str, ...] = ()
    # What a model needs, in its order: nothing else of the table is then read as a feature.
    features: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        given = [name for name in (self.target, self.groups, self.samples) if name is not None]
        given += [*self.covariates, *self.categories, *self.ignore]
        twice = [n for n, count in Counter(given).items() if count > 1]
        if twice:
            raise ValueError(
                f"The column {printable(twice[0])!r} is named for two purposes. Give each column one: "
                "target, groups, samples, covariates, categories or ignore."
            )

    @property
    def named(self) -> tuple[str | None, ...]:
        """Columns that cannot name rows without being asked to, since they are for something else."""
        others = (*self.covariates, *self.categories, *self.ignore, *(self.features or ()))
        return (self.target, self.groups, *others)

    @property
    def purposes(self) -> dict[str, str]:
        """The option that names each column."""
        one = {self.target: "--target", self.groups: "--groups", self.samples: "--samples"}
        # Nobody has named those of an earlier fit.
        categories = (
            "--categories"
            if self.features is None
            else "a covariate of the fit (of a sample sheet: --sample-sheet)"
        )
        many = {"--covariates": self.covariates, categories: self.categories, "--ignore": self.ignore}
        found = {name: option for name, option in one.items() if name is not None}
        return found | {name: option for option, names in many.items() for name in names}


@dataclass(frozen=True)
class Reading:
    """How a file is to be read, where it does not show, or is to be overruled."""

    delimiter: str | None = None
    decimal: str | None = None
    encoding: str | None = None
    transpose: bool | None = None  # samples are in columns
    sheet: str | None = None  # of a spreadsheet
    sample_sheet: Path | None = None
    id: str | None = None  # its column with names of samples
    layer: str | None = None  # of an .h5ad, instead of X; "raw" for .raw
    average: bool = False  # features of one name, instead of telling them apart
    tidy_labels: bool = False  # join those that differ by case or spaces only


@dataclass(frozen=True)
class Layout:
    """Positions of the columns by purpose."""

    features: list[int]
    target: int | None
    groups: int | None
    samples: int | None


@dataclass(frozen=True, eq=False)
class Table:
    """What was read, and in `steps` what was done to it."""

    path: Path
    X: Any  # (samples, features): an array, a sparse matrix if the file's was, an operator if it stays there
    feature_names: list[str]
    sample_names: list[str]
    target: NDArray[Any] | None = None
    target_name: str | None = None
    groups: NDArray[Any] | None = None
    covariates: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    words: dict[str, NDArray[Any]] = field(default_factory=dict)  # covariates that are no numbers
    renamed: dict[str, str] = field(default_factory=dict)  # features by the name the file has for them
    about: dict[str, str] = field(
        default_factory=dict
    )  # descriptions of features in the file, by their names
    # What could be the target of a table that has none yet: values, and how often each occurs.
    candidates: dict[str, dict[str, int]] = field(default_factory=dict)
    unused: tuple[str, ...] = ()  # its columns of words, which have no purpose yet

    @property
    def shape(self) -> tuple[int, int]:
        return int(self.X.shape[0]), int(self.X.shape[1])

    @property
    def covariate_positions(self) -> list[int]:
        where = {name: j for j, name in enumerate(self.feature_names)}
        return [where[name] for name in self.covariates]

    @cached_property
    def sha256(self) -> str:
        """Of the file, to say later which one it was."""
        if not self.path.is_dir():
            return sha256_of(self.path)
        # A store of many files: their names and digests, in the order of names.
        found = hashlib.sha256()
        for path in sorted(each for each in self.path.rglob("*") if each.is_file()):
            found.update(f"{path.relative_to(self.path).as_posix()} {sha256_of(path)}\n".encode())
        return found.hexdigest()

    @property
    def source(self) -> str:
        return f"{self.path.name}, sha256 {self.sha256[:16]}"

    def labels(self) -> NDArray[Any]:
        """The target of a table that is to be fitted to."""
        if self.target is None:
            raise BadTable(
                self.path, "no column is named as the class of each sample.", "Name it: --target COLUMN."
            )
        n_classes = np.unique(self.target).size
        n_samples = self.target.size
        if n_classes == 1:
            raise BadTable(
                self.path,
                f"all {n_samples} samples are of one class, {printable(self.target[0])!r}.",
                f"Is {printable(self.target_name)!r} the right column for --target?",
            )
        if n_classes > 2 and n_classes > LARGEST_SHARE_OF_CLASSES * n_samples:
            raise BadTable(
                self.path,
                f"the target {printable(self.target_name)!r} has {n_classes} different values in "
                f"{n_samples} rows: a measurement or an identifier, not a class.",
                "Name another column with --target, or cut the measurement into classes first.",
            )
        return self.target

    def tidied(self) -> Table:
        """Labels that differ by case or spaces only as one, in the spelling that most have."""
        if self.target is None or self.target.dtype.kind != "U":
            return self
        spelt = Counter(" ".join(label.split()) for label in self.target)
        best: dict[str, str] = {}
        for label, _ in spelt.most_common():
            best.setdefault(label.casefold(), label)
        return replace(
            self, target=np.array([best[" ".join(each.split()).casefold()] for each in self.target])
        )

    def class_counts(self) -> dict[str, int]:
        """How many samples each class has."""
        labels, counts = np.unique(self.labels(), return_counts=True)
        return dict(zip(map(str, labels), counts.tolist(), strict=True))

    def aligned(self, names: Sequence[str]) -> Table:
        """The table with these features only, in this order."""
        if list(names) == self.feature_names:
            return self
        where = {name: j for j, name in enumerate(self.feature_names)}
        check_present(self.path, names, where, "column", "a feature that the model was fitted to")
        positions = [where[name] for name in names]
        left_out = len(self.feature_names) - len(positions)
        steps = self.steps
        if left_out:
            steps = (*steps, f"{left_out} columns that the model does not know left out.")
        return replace(self, X=self.X[:, positions], feature_names=list(names), steps=steps)


def layout_of(path: Path, header: Sequence[str], roles: Roles, *, samples: int | None = None) -> Layout:
    """Where everything is, given the names of columns; `samples` is where the file itself has names."""
    where: dict[str, int] = {}
    for j, name in enumerate(header):
        if where.setdefault(name, j) != j:
            twice = f"columns {where[name] + 1} and {j + 1} are both called {printable(name)!r}."
            raise BadTable(path, twice, "Rename one of them: names say which feature is meant.")
    for name, purpose in roles.purposes.items():
        check_present(path, [name], where, "column", purpose)
    target = None if roles.target is None else where[roles.target]
    groups = None if roles.groups is None else where[roles.groups]
    samples = where[roles.samples] if roles.samples is not None else samples
    if samples in (target, groups):
        samples = None
    if roles.features is None:
        taken = {target, groups, samples, *(where[name] for name in roles.ignore)}
        features = [j for j in range(len(header)) if j not in taken]
    else:
        check_present(path, roles.features, where, "column", "a feature that the model was fitted to")
        features = [where[name] for name in roles.features]
    for j in features:
        if not header[j]:
            raise BadTable(path, f"column {j + 1} has no name.", "Name it in the header, or remove it.")
    if not features:
        raise BadTable(
            path, "no column is left as a feature.", "Is the delimiter right? See --delimiter and --ignore."
        )
    return Layout(features, target, groups, samples)


def steps_of(roles: Roles, samples: str | None = None) -> list[str]:
    """Sentences for what the roles do to a table."""
    steps = []
    if samples:
        steps.append(f"Samples are named by the column {printable(samples)!r}.")
    if roles.groups is not None:
        steps.append(f"Samples of one {printable(roles.groups)!r} are left out together.")
    if roles.covariates or roles.categories:
        steps.append(f"Always kept as covariates: {listed([*roles.covariates, *roles.categories])}.")
    if roles.ignore:
        steps.append(f"Ignored: {listed(roles.ignore)}.")
    return steps


def assembled(
    path: Path,
    X: Any,
    roles: Roles,
    feature_names: Sequence[str] | None,
    sample_names: Sequence[str] | None,
    target: NDArray[Any] | None,
    groups: NDArray[Any] | None,
    *,
    target_name: str | None = None,
    named_by: str | None = None,
    steps: Iterable[str] = (),
    words: dict[str, NDArray[Any]] | None = None,
    average: bool = False,
    originals: Sequence[str] | None = None,
) -> Table:
    """What was read, as a table; what has no names is numbered. The column `named_by` names samples.

    Features of one name are told apart by numbers, or averaged; `originals` has names from before that.
    """
    found = [*steps_of(roles, named_by), *steps]
    given = numbered(X.shape[1]) if feature_names is None else list(feature_names)
    features, renamed = unique_names(given)
    if originals is not None:
        renamed = {new: old for new, old in zip(given, originals, strict=True) if new != old}
    twice = [name for name, old in renamed.items() if old]
    if twice and average:
        shared = [renamed.get(name) or name for name in features]
        features = list(dict.fromkeys(shared))
        X = _averaged(X, shared, features)
        found.append(f"{len(twice)} more columns of names that others have were averaged with them.")
        renamed = {name: old for name, old in renamed.items() if not old}
    elif twice:
        found.append(
            f"{len(twice)} names of features occur more than once and were numbered, such as "
            f"{printable(twice[0])!r}; run.json has all of them. To average features of one name: "
            "--average."
        )
    if len(twice) < len(renamed):
        blank = [name for name, old in renamed.items() if not old]
        found.append(f"{len(blank)} features without a name are called {listed(blank)}.")
    check_present(path, roles.covariates, [*features, *(words or ())], "feature", "--covariates")
    samples, again = unique_names(
        numbered(X.shape[0]) if sample_names is None else list(sample_names), "sample"
    )
    if again:
        found.append(
            f"{len(again)} names of samples occur more than once, or are empty, and were numbered, such as "
            f"{printable(next(iter(again)))!r}. Samples of one patient are left out together with --groups."
        )
    target_name = roles.target if target_name is None else target_name
    covariates = tuple(name for name in roles.covariates if name not in (words or ()))
    return Table(
        path,
        X,
        features,
        samples,
        target,
        target_name,
        groups,
        covariates,
        tuple(found),
        words or {},
        renamed,
    )


def unique_names(names: Sequence[str], thing: str = "column") -> tuple[list[str], dict[str, str]]:
    """Names of which none is empty or occurs twice, and of those that are new the old ones."""
    taken, seen = set(names), set()
    unique, renamed = [], {}
    for j, name in enumerate(names):
        new = name or f"{thing} {j + 1}"
        number = 2
        while new in seen or (new != name and new in taken):
            new, number = f"{name or thing}.{number}", number + 1
        if new != name:
            renamed[new] = name
        seen.add(new)
        unique.append(new)
    return unique, renamed


def _averaged(X: Any, names: Sequence[str], features: Sequence[str]) -> Any:
    """Columns of one name as their mean."""
    where = {name: k for k, name in enumerate(features)}
    code = np.array([where[name] for name in names])
    share = (1.0 / np.bincount(code)[code]).astype(X.dtype)
    return X @ sp.csr_array((share, (np.arange(code.size), code)), shape=(code.size, len(features)))


def class_labels(values: Iterable[str]) -> NDArray[Any]:
    """Labels as they are written, or as whole numbers if all are."""
    texts = list(values)
    try:
        numbers = [int(text) for text in texts]
    except ValueError:
        return np.array(texts, dtype=object).astype(str)
    # "007" is a name, and what is beyond 64 bits is no class number.
    if all(str(n) == t for n, t in zip(numbers, texts, strict=True)) and max(map(abs, numbers)) < 2**53:
        return np.array(numbers, dtype=np.int64)
    return np.array(texts, dtype=object).astype(str)


def texts_of(column: Any) -> NDArray[Any]:
    """As they are written; "" where there is nothing."""
    return np.array(["" if value != value or value is None else str(value) for value in column], dtype=object)


def numbered(n: int) -> list[str]:
    """Names of samples or features that have none: their numbers, from 1."""
    return [str(i) for i in range(1, n + 1)]


def check_present(path: Path, wanted: Sequence[str], known: Iterable[str], thing: str, purpose: str) -> None:
    """An error for the first that is not there, with what may have been meant."""
    known = dict.fromkeys(known)
    missing = [name for name in wanted if name not in known]
    if not missing:
        return
    first, more = missing[0], f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
    of_any_case = {name.casefold(): name for name in known if name}
    near = get_close_matches(first.casefold(), of_any_case, n=1)
    several = [name.strip() for name in first.split(",")]
    if len(several) > 1 and all(name in known for name in several):
        hint = f"Name one at a time: {' '.join(f'{purpose} {name}' for name in several)}."
    elif near:
        hint = f"Did you mean {printable(of_any_case[near[0]])!r}?"
    else:
        hint = f"It has: {listed(list(of_any_case.values()))}."
    raise BadTable(path, f"there is no {thing} {printable(first)!r}{more}, named as {purpose}.", hint)


def check_finite(path: Path, X: Any, feature_names: Sequence[str], *, missing: bool = False) -> None:
    """Infinite values are refused where they are, and missing ones unless they may be `missing`."""
    values = X.data if hasattr(X, "indptr") else X
    # The sum of finite numbers may overflow, but it never is NaN or infinite otherwise: one cheap pass.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(np.sum(values, dtype=np.float64)):
            return
    bad = np.isinf(values) if missing else ~np.isfinite(values)
    if not bad.any():
        return
    if hasattr(X, "indptr"):
        first = int(np.flatnonzero(bad)[0])
        row = int(np.searchsorted(X.indptr, first, side="right")) - 1
        column, value = int(X.indices[first]), float(values[first])
    else:
        row, column = (int(i) for i in np.argwhere(bad)[0])
        value = float(X[row, column])
    what = "is missing" if np.isnan(value) else "is infinite"
    raise BadTable(
        path,
        f"sample {row + 1}, column {printable(feature_names[column])!r}: the value {what} "
        f"({int(bad.sum())} such values in all).",
        "Have missing values filled in, in new samples too: fit with --impute median, or knn; or leave "
        "the column out with --ignore."
        if np.isnan(value)
        else "Correct it, or leave the column out with --ignore.",
    )


def listed(names: Sequence[str]) -> str:
    """A few names, and how many more there are."""
    shown = ", ".join(repr(printable(name)) for name in names[:N_NAMES_SHOWN])
    return shown + (f" and {len(names) - N_NAMES_SHOWN} more" if len(names) > N_NAMES_SHOWN else "")
