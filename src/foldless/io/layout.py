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
    steps: tuple[str, ...] = ()
    about: dict[str, str] = field(default_factory=dict)  # of features: symbols, descriptions


def turned(columns: Columns, as_text: Callable[[], Any], decimal: str, known: set[str] | None) -> Columns:
    """Genes in rows laid out as samples in rows; of columns that are `known` to be samples, if that is."""
    header, frame = columns.header, columns.frame
    keep = [j for j in range(1, len(header)) if known is None or header[j].strip() in known]
    about_genes = [j for j in keep if share_of_words(frame[j]) > SHARE_OF_WORDS]
    keep = [j for j in keep if j not in set(about_genes)]
    genes = ["" if name != name else str(name) for name in frame[0]]
    steps = ["Samples are in columns and were turned into rows."]
    others = [j for j in range(1, len(header)) if j not in set(keep)]
    words = [j for j in others if share_of_words(frame[j]) > SHARE_OF_WORDS]
    about = dict(
        zip(genes, map(" · ".join, zip(*(texts_of(frame[j]) for j in words), strict=True)), strict=False)
    )
    if words:
        steps.append(f"Words about features, shown beside their names: {listed([header[j] for j in words])}.")
    if left_out := [header[j] for j in others if j not in set(words)]:
        steps.append(f"Columns that are not in the sample sheet left out: {listed(left_out)}.")
    if any(frame[j].dtype.kind == "O" for j in keep):
        texts = as_text()[keep].to_numpy(dtype=object).T
        laid_out = _frame_of(texts, decimal)
    else:
        laid_out = _frame_of(frame[keep].to_numpy(dtype=np.float64).T, decimal)
    laid_out.insert(0, 0, np.array([header[j] for j in keep], dtype=object))
    return Columns(["", *genes], laid_out, (*columns.steps, *steps), about)


def _frame_of(values: NDArray[Any], decimal: str) -> Any:
    """A frame of positions from 1 on; columns of texts that are all numbers are numbers."""
    import pandas as pd

    if values.dtype != object:
        return pd.DataFrame(values, columns=range(1, values.shape[1] + 1))
    plain = values if decimal == "." else np.vectorize(_with_point, otypes=[object])(values)
    numbers = pd.to_numeric(pd.Series(plain.ravel()), errors="coerce").isna().to_numpy()
    bad = numbers.reshape(values.shape) & ~pd.isna(plain)
    # Python reads every digit; pandas' own way here may miss the last bit.
    return pd.DataFrame(
        {
            j + 1: values[:, j] if bad[:, j].any() else plain[:, j].astype(float)
            for j in range(values.shape[1])
        }
    )


def _with_point(text: Any) -> Any:
    return text.replace(",", ".") if isinstance(text, str) else text


def share_of_words(column: Any) -> float:
    """Of values that are there, how many are no numbers."""
    import pandas as pd

    # Of objects, or of the strings that pandas has for texts from version 3 on.
    if column.dtype.kind != "O":
        return 0.0
    there = column.dropna()
    there = there[there.astype(str).str.strip() != ""]
    return float(pd.to_numeric(there, errors="coerce").isna().mean()) if len(there) else 0.0


def table_of_columns(
    path: Path,
    columns: Columns,
    roles: Roles,
    reading: Reading,
    sheet: SampleSheet | None,
    steps: Sequence[str],
    find_fault: Callable[[Sequence[int]], None],
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
    names, originals, X, words = laid_out.features(set(empty), find_fault)
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
            check_present(path, [name], [*self.header, *self.beside], "column", purpose)
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
        is_text = share_of_words(first) > SHARE_OF_WORDS and first.nunique() > SHARE_OF_WORDS * len(first)
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

    def texts(self, name: str) -> NDArray[Any]:
        """A column to the letter, "" where it has nothing."""
        if name in self.where:
            return texts_of(self.frame[self.where[name]])[self.rows]
        return np.array(self.beside[name], dtype=object)[self.in_sheet]

    def features(
        self, empty: set[int], find_fault: Callable[[Sequence[int]], None]
    ) -> tuple[list[str], list[str], NDArray[np.float64], dict[str, NDArray[Any]]]:
        """Names, also as they are in the file, and numbers; and covariates that are words."""
        roles, header = self.roles, self.header
        # Names that occur twice are told apart in the order of the file, whichever are wanted.
        unique, _ = unique_names(header)
        words, beside = {}, []
        taken = {self.samples, *empty}
        taken |= {j for name, j in self.where.items() if name in (roles.target, roles.groups, *roles.ignore)}
        for name in (*roles.covariates, *roles.categories):
            values = self.texts(name)
            if name in roles.categories or share_of_words(_series(values)) > SHARE_OF_WORDS:
                words[name] = values
                taken.add(self.where.get(name))
            elif name not in self.where:
                beside.append(name)
        columns = [j for j in range(len(header)) if j not in taken]
        if roles.target is None:
            # A table that is only looked at: what its words are for is still to be said.
            words_too = [j for j in columns if share_of_words(self.frame[j]) > SHARE_OF_WORDS]
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
        X = self._numbers(columns, find_fault)[self.rows]
        names, originals = [unique[j] for j in columns], [header[j] for j in columns]
        if beside:
            front = np.column_stack([_numbers_of(self.path, name, self.texts(name)) for name in beside])
            X, names, originals = np.hstack([front, X]), [*beside, *names], [*beside, *originals]
        return names, originals, X, words

    def candidates(self) -> dict[str, dict[str, int]]:
        """Columns that could be the target, with how often each value occurs; the most likely first."""
        found = {}
        for name in [*self.beside, *self.header]:
            if name in self.roles.purposes or self.where.get(name, -1) == self.samples:
                continue
            column = self.frame[self.where[name]] if name in self.where else None
            if column is not None and share_of_words(column) <= SHARE_OF_WORDS and not LABELLED.search(name):
                continue
            counts = Counter(self.texts(name).tolist())
            if 2 <= len(counts) <= LARGEST_SHARE_OF_CLASSES * len(self.rows):
                found[name] = dict(counts.most_common())
        return dict(sorted(found.items(), key=lambda item: (not LABELLED.search(item[0]), len(item[1]))))

    def _numbers(
        self, columns: list[int], find_fault: Callable[[Sequence[int]], None]
    ) -> NDArray[np.float64]:
        """Columns as one matrix; an error if one of them holds words."""
        import pandas as pd

        others = [j for j in columns if self.frame[j].dtype.kind not in "fiub"]
        words = [j for j in others if share_of_words(self.frame[j]) > SHARE_OF_WORDS]
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
            numbers = {
                j: pd.to_numeric(self.frame[j].replace(r"^\s*$", np.nan, regex=True), errors="coerce")
                for j in others
            }
            if any((numbers[j].isna() & self.frame[j].notna()).any() for j in others):
                find_fault(others)
            self.frame = self.frame.copy(deep=False)
            for j, column in numbers.items():
                self.frame[j] = column
        return self.frame[columns].to_numpy(dtype=np.float64)


def _series(values: NDArray[Any]) -> Any:
    import pandas as pd

    return pd.Series(values, dtype=object)


def _numbers_of(path: Path, name: str, texts: NDArray[Any]) -> NDArray[np.float64]:
    import pandas as pd

    numbers = pd.to_numeric(_series(texts).replace("", np.nan), errors="coerce").to_numpy(dtype=np.float64)
    wrong = np.flatnonzero(np.isnan(numbers) & (texts != ""))
    if wrong.size:
        raise BadTable(
            path,
            f"sample {wrong[0] + 1}, {printable(name)!r}: {printable(texts[wrong[0]])!r} is not a number.",
            "Correct it, or have the values coded as categories: --categories COLUMN.",
        )
    return numbers


def looks_like_dates(column: Any) -> bool:
    """Most values are a day as people write it."""
    there = [str(value).strip() for value in column.dropna()]
    return bool(there) and sum(bool(DATE.fullmatch(text)) for text in there) > SHARE_OF_WORDS * len(there)
