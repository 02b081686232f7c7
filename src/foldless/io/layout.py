"""From columns of a data frame to a table: which are features, whatever way round the file has them."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foldless.io.matrix import as_texts
from foldless.io.names import printable
from foldless.io.sheet import SampleSheet
from foldless.io.table import (
    LARGEST_SHARE_OF_CLASSES,
    BadTable,
    Reading,
    Roles,
    Table,
    assembled,
    check_present,
    class_labels,
    listed,
    texts_of,
    unique_names,
)

DATE = re.compile(
    r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}([T ]\d.*)?|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2})([T ]\d.*)?"
    r"|\d{1,2}[- ][A-Za-z]{3,9}[- ]\d{2,4}"
)
# Names that columns with classes have.
LABELLED = re.compile(
    r"class|label|target|tissue|type|status|state|diagnos|group|outcome|response|disease|^y$", re.I
)
# A column of which more than this share is no number holds words; of which less, numbers with a mistake.
SHARE_OF_WORDS = 0.5


@dataclass(frozen=True, eq=False)
class Columns:
    """Names, and a data frame whose columns are called by their positions."""

    header: list[str]
    frame: Any
    plain: Callable[[str], str] | None = None  # from how texts write numbers to how Python does
    # Raises with the line of the file that lacks a number in these columns, if columns are those of the file.
    find_fault: Callable[[Sequence[int]], None] = lambda _: None
    steps: tuple[str, ...] = ()
    about: dict[str, str] = field(default_factory=dict)  # of features: symbols, descriptions


def turned(columns: Columns, as_text: Callable[[], Any], known: set[str] | None) -> Columns:
    """Genes in rows laid out as samples in rows; of columns that are `known` to be samples, if that is."""
    header, frame = columns.header, columns.frame
    keep = [j for j in range(1, len(header)) if known is None or header[j].strip() in known]
    share = {j: share_of_words(frame[j], columns.plain) for j in range(1, len(header))}
    # Where all hold more words than numbers, those are about samples, in rows of their own.
    keep = [j for j in keep if share[j] <= SHARE_OF_WORDS] or keep
    genes = ["" if name != name else str(name) for name in frame[0]]
    steps = ["Samples are in columns and were turned into rows."]
    others = [j for j in range(1, len(header)) if j not in set(keep)]
    words = [j for j in others if share[j] > SHARE_OF_WORDS]
    about = dict(
        zip(genes, map(" · ".join, zip(*(texts_of(frame[j]) for j in words), strict=True)), strict=False)
    )
    if words:
        steps.append(f"Words about features, shown beside their names: {listed([header[j] for j in words])}.")
    if left_out := [header[j] for j in others if j not in set(words)]:
        steps.append(f"Columns that are not in the sample sheet left out: {listed(left_out)}.")
    if any(frame[j].dtype.kind == "O" for j in keep):
        texts = as_text()[keep].to_numpy(dtype=object).T
        laid_out = _frame_of(texts, columns.plain)
    else:
        laid_out = _frame_of(frame[keep].to_numpy(dtype=np.float64).T)
    laid_out.insert(0, 0, np.array([header[j] for j in keep], dtype=object))
    return Columns(["", *genes], laid_out, columns.plain, steps=(*columns.steps, *steps), about=about)


def _frame_of(values: NDArray[Any], plain: Callable[[str], str] | None = None) -> Any:
    """A frame of positions from 1 on; columns of texts that are all numbers are numbers."""
    import pandas as pd

    if values.dtype != object:
        return pd.DataFrame(values, columns=range(1, values.shape[1] + 1))
    texts = _plain(pd.Series(values.ravel()), plain)
    bad = (pd.to_numeric(texts, errors="coerce").isna() & texts.notna()).to_numpy().reshape(values.shape)
    spelt = texts.to_numpy().reshape(values.shape)
    # Python reads every digit; pandas' own way here may miss the last bit.
    return pd.DataFrame(
        {
            j + 1: values[:, j] if bad[:, j].any() else spelt[:, j].astype(float)
            for j in range(values.shape[1])
        }
    )


def _plain(column: Any, plain: Callable[[str], str] | None) -> Any:
    """Texts with numbers as Python writes them."""
    return (
        column if plain is None else column.map(lambda each: plain(each) if isinstance(each, str) else each)
    )


def share_of_words(column: Any, plain: Callable[[str], str] | None = None) -> float:
    """Of values that are there, how many are no numbers."""
    import pandas as pd

    # Of objects, or of the strings that pandas has for texts from version 3 on.
    if column.dtype.kind != "O":
        return 0.0
    there = column.dropna()
    there = there[there.astype(str).str.strip() != ""]
    return float(pd.to_numeric(_plain(there, plain), errors="coerce").isna().mean()) if len(there) else 0.0


def table_of_columns(
    path: Path,
    columns: Columns,
    roles: Roles,
    reading: Reading,
    sheet: SampleSheet | None,
    steps: Sequence[str],
) -> Table:
    """Give each column its purpose; the sheet, if there is one, has others."""
    empty = [
        j for j, name in enumerate(columns.header) if j and not name.strip() and columns.frame[j].isna().all()
    ]
    steps = [*steps, *columns.steps]
    if empty:
        steps.append(f"{len(empty)} empty columns without a name left out.")
    laid_out = _Purposes(path, columns, roles, sheet, reading.id)
    target = None
    if roles.target is not None:
        if roles.features is None and roles.target not in columns.header:
            laid_out.keep_rows(laid_out.texts(roles.target) != "", "have no label in the sample sheet")
        target = laid_out.texts(roles.target)
        # What is predicted need not be known.
        target = class_labels(as_texts(path, target, roles.target) if roles.features is None else target)
    groups = None if roles.groups is None else as_texts(path, laid_out.texts(roles.groups), roles.groups)
    names, originals, X, words = laid_out.features(set(empty))
    table = assembled(
        path,
        X,
        roles,
        names,
        laid_out.sample_names,
        target,
        groups,
        named_by=laid_out.named_by,
        words=words,
        average=reading.average,
        originals=originals,
        steps=[*steps, *laid_out.steps],
    )
    if columns.about:
        found = (columns.about.get(table.renamed.get(name, name), "") for name in table.feature_names)
        table = replace(table, about=dict(zip(table.feature_names, found, strict=True)))
    if roles.target is None:
        table = replace(table, candidates=laid_out.candidates(), unused=laid_out.unused)
    return table


class _Purposes:
    """Columns by name, of a table and its sample sheet, for samples that are in both."""

    def __init__(
        self, path: Path, columns: Columns, roles: Roles, sheet: SampleSheet | None, id: str | None
    ) -> None:
        self.path, self.header, self.frame, self.roles = path, columns.header, columns.frame, roles
        self.beside = {} if sheet is None else sheet.columns
        self.plain, self.plain_beside = columns.plain, None if sheet is None else sheet.plain
        self.find_fault = columns.find_fault
        self.steps: list[str] = []
        self.unused: tuple[str, ...] = ()
        self.where: dict[str, int] = {}
        for j, name in enumerate(self.header):
            if self.where.setdefault(name, j) != j and name in roles.purposes:
                raise BadTable(
                    path,
                    f"columns {self.where[name] + 1} and {j + 1} are both called {printable(name)!r}, "
                    f"which is named as {roles.purposes[name]}.",
                    "Rename one of them.",
                )
        for name, purpose in roles.purposes.items():
            check_present(path, [name], [*self.beside, *self.header], "column", purpose)
        self.samples = self._samples(sheet)
        self.named_by = None if self.samples is None else self.header[self.samples]
        self.sample_names = None if self.samples is None else texts_of(self.frame[self.samples]).tolist()
        # Rows of the table that stay, and where each is in the sheet.
        self.rows = np.arange(len(self.frame))
        self.in_sheet = np.full(len(self.frame), -1)
        if sheet is not None:
            self._join(sheet, id)

    def _samples(self, sheet: SampleSheet | None) -> int | None:
        """Columns without a header name rows, as R and pandas write them; so does a first column of texts.

        Texts most of which are those of other rows as well are no names.
        """
        if self.roles.samples is not None:
            return self.where[self.roles.samples]
        if self.header[0] in self.roles.named:
            return None
        first = self.frame[0]
        is_text = self._holds_words(0) and first.nunique() > SHARE_OF_WORDS * len(first)
        return 0 if sheet is not None or not self.header[0].strip() or is_text else None

    def _join(self, sheet: SampleSheet, id: str | None) -> None:
        if self.sample_names is None:
            raise BadTable(self.path, "no column names samples.", "Name it: --samples COLUMN.")
        column, places = sheet.rows_of(self.sample_names, id)
        self.in_sheet = np.array([-1 if place is None else place for place in places])
        self.steps.append(
            f"Samples are found in the column {printable(column)!r} of {printable(sheet.path.name)}."
        )
        self.keep_rows(self.in_sheet >= 0, "are not in the sample sheet")

    def keep_rows(self, kept: NDArray[np.bool_], reason: str) -> None:
        if kept.all() or self.sample_names is None:
            return
        gone = [name for name, stays in zip(self.sample_names, kept, strict=True) if not stays]
        self.steps.append(f"{len(gone)} samples {reason} and were left out: {listed(gone)}.")
        self.sample_names = [name for name, stays in zip(self.sample_names, kept, strict=True) if stays]
        self.rows, self.in_sheet = self.rows[kept], self.in_sheet[kept]

    def _holds_words(self, j: int) -> bool:
        return share_of_words(self.frame[j], self.plain) > SHARE_OF_WORDS

    def texts(self, name: str) -> NDArray[Any]:
        """A column to the letter, "" where it has nothing."""
        if name in self.where:
            return texts_of(self.frame[self.where[name]])[self.rows]
        return np.array(self.beside[name], dtype=object)[self.in_sheet]

    def features(
        self, empty: set[int]
    ) -> tuple[list[str], list[str], NDArray[np.float64], dict[str, NDArray[Any]]]:
        """Names, also as they are in the file, and numbers; and covariates that are words."""
        roles, header = self.roles, self.header
        # Names that occur twice are told apart in the order of the file, whichever are wanted.
        unique, _ = unique_names(header)
        words, beside = {}, []
        taken = {self.samples, *empty}
        taken |= {j for name, j in self.where.items() if name in (roles.target, roles.groups, *roles.ignore)}
        for name in (*roles.covariates, *roles.categories):
            values, j = self.texts(name), self.where.get(name)
            if name in roles.categories or (
                share_of_words(_series(values), self.plain_beside) > SHARE_OF_WORDS
                if j is None
                else self._holds_words(j)
            ):
                words[name] = values
                taken.add(j)
            elif j is None:
                beside.append(name)
        columns = [j for j in range(len(header)) if j not in taken]
        if roles.target is None:
            # A table that is only looked at: what its words are for is still to be said.
            words_too = [j for j in columns if self._holds_words(j)]
            self.unused = tuple(header[j] for j in words_too)
            columns = [j for j in columns if j not in set(words_too)]
        if roles.features is not None:
            place = {name: j for j, name in enumerate(unique)}
            check_present(
                self.path,
                roles.features,
                [*unique, *self.beside],
                "column",
                "a feature that the model was fitted to",
            )
            columns = [place[name] for name in roles.features if name in place]
            beside = [name for name in roles.features if name not in place]
        if not columns:
            raise BadTable(
                self.path, "no column is left as a feature.", "Is the delimiter right? See --delimiter."
            )
        X = self._numbers(columns)[self.rows]
        names, originals = [unique[j] for j in columns], [header[j] for j in columns]
        if beside:
            front = np.column_stack([self._numbers_beside(name) for name in beside])
            X, names, originals = np.hstack([front, X]), [*beside, *names], [*beside, *originals]
        return names, originals, X, words

    def candidates(self) -> dict[str, dict[str, int]]:
        """Columns that could be the target, with how often each value occurs; the most likely first."""
        found = {}
        for name in [*self.beside, *self.header]:
            if name in self.roles.purposes or self.where.get(name, -1) == self.samples:
                continue
            if name in self.where and not (self._holds_words(self.where[name]) or LABELLED.search(name)):
                continue
            counts = Counter(self.texts(name).tolist())
            if 2 <= len(counts) <= LARGEST_SHARE_OF_CLASSES * len(self.rows):
                found[name] = dict(counts.most_common())
        return dict(sorted(found.items(), key=lambda item: (not LABELLED.search(item[0]), len(item[1]))))

    def _numbers(self, columns: list[int]) -> NDArray[np.float64]:
        """Columns as one matrix; an error if one of them holds words."""
        import pandas as pd

        others = [j for j in columns if self.frame[j].dtype.kind not in "fiub"]
        words = [j for j in others if self._holds_words(j)]
        if words:
            dates = [j for j in words if looks_like_dates(self.frame[j])]
            kind = "dates" if dates else "words"
            shown = [self.header[j] for j in dates or words]
            raise BadTable(
                self.path,
                f"columns that are not numbers but {kind}: {listed(shown)}.",
                "Say what each is for: --covariates COLUMN (words are coded by themselves), --groups or "
                f"--samples; or leave it out: --ignore {shlex.quote(printable(shown[0]))}.",
            )
        if others:
            texts = {j: self.frame[j].replace(r"^\s*$", np.nan, regex=True) for j in others}
            numbers = {j: pd.to_numeric(_plain(texts[j], self.plain), errors="coerce") for j in others}
            wrong = {j: np.flatnonzero(numbers[j].isna() & texts[j].notna()) for j in others}
            if any(rows.size for rows in wrong.values()):
                self.find_fault(others)
                j, i = next((j, rows[0]) for j, rows in wrong.items() if rows.size)
                raise self._not_a_number(i, self.header[j], texts[j].iloc[i], "leave it out with --ignore.")
            self.frame = self.frame.copy(deep=False)
            for j, column in numbers.items():
                self.frame[j] = column
        return self.frame[columns].to_numpy(dtype=np.float64)

    def _numbers_beside(self, name: str) -> NDArray[np.float64]:
        """A column of the sheet."""
        import pandas as pd

        texts = self.texts(name)
        plain = _plain(_series(texts).replace("", np.nan), self.plain_beside)
        numbers = pd.to_numeric(plain, errors="coerce").to_numpy(dtype=np.float64)
        wrong = np.flatnonzero(np.isnan(numbers) & (texts != ""))
        if wrong.size:
            remedy = "have the values coded as categories: --categories COLUMN."
            raise self._not_a_number(wrong[0], name, texts[wrong[0]], remedy)
        return numbers

    def _not_a_number(self, i: int, name: str, text: str, remedy: str) -> BadTable:
        problem = f"sample {i + 1}, {printable(name)!r}: {printable(text)!r} is not a number."
        return BadTable(self.path, problem, f"Correct it, or {remedy}")


def _series(values: NDArray[Any]) -> Any:
    import pandas as pd

    return pd.Series(values, dtype=object)


def looks_like_dates(column: Any) -> bool:
    """Most values are a day as people write it."""
    there = [str(value).strip() for value in column.dropna()]
    return bool(there) and sum(bool(DATE.fullmatch(text)) for text in there) > SHARE_OF_WORDS * len(there)
