"""What is done to a table before a fit, and again to new samples: words coded, counts turned, gaps filled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.impute import KNNImputer

from foldless.io.names import printable
from foldless.io.table import BadTable, Table, check_finite, listed
from foldless.registry import registered

N_NEIGHBOURS = 5
# A covariate with more different words than this share of samples is a name, not a category.
LARGEST_SHARE_OF_LEVELS = 0.5
NO_WORD = "(missing)"


@registered("table/preparation")
@dataclass(frozen=True, eq=False)
class Preparation:
    """Kept with a model that was fitted to a file, so that `foldless predict` treats new samples alike."""

    levels: dict[str, tuple[str, ...]]  # words of covariates; the first, the most frequent, has no column
    impute: str = "none"
    log_cpm: bool = False
    average: bool = False
    covariates: tuple[str, ...] = ()  # with columns that words became
    medians: NDArray[Any] | None = None
    neighbours: NDArray[Any] | None = None  # the table of the fit, with its gaps
    spread: NDArray[Any] | None = None  # of its columns, to measure distances in

    @property
    def coded(self) -> list[str]:
        """Columns that words became."""
        return [f"{name}={level}" for name, levels in self.levels.items() for level in levels[1:]]

    @classmethod
    def fit(
        cls, table: Table, *, impute: str = "none", log_cpm: bool = False, average: bool = False
    ) -> tuple[Self, Table]:
        """Learn what is needed, and the table as it is to be fitted to."""
        found = cls({name: _levels(table, name) for name in table.words}, impute, log_cpm, average)
        coded = found._coded(table)
        found, coded = replace(found, covariates=coded.covariates), found._turned(coded)
        if impute == "none":
            check_finite(coded.path, coded.X, coded.feature_names)
            return found, coded
        found = replace(found, medians=_medians(coded))
        if impute == "knn":
            dense = coded.X.toarray() if sp.issparse(coded.X) else coded.X
            spread = np.nanstd(dense, axis=0)
            found = replace(found, neighbours=dense, spread=np.where(spread > 0, spread, 1.0))
        return found, found._filled(coded)

    def apply(self, table: Table, names: Sequence[str]) -> Table:
        """New samples, treated as those of the fit; `names` are the columns of the model."""
        aligned = replace(self._coded(table), covariates=self.covariates).aligned(names)
        return self._filled(self._turned(aligned))

    def _coded(self, table: Table) -> Table:
        if not self.levels:
            return table
        steps, columns = [], []
        for name, levels in self.levels.items():
            words = np.array([word.strip() or NO_WORD for word in table.words[name]], dtype=object)
            columns += [(words == level).astype(table.X.dtype) for level in levels[1:]]
            shown = listed([f"{name}={level}" for level in levels[1:]])
            steps.append(
                f"Words of {printable(name)!r} are coded as 0 and 1 beside {printable(levels[0])!r}: {shown}."
            )
            new = sorted(set(words) - set(levels))
            if new:
                steps.append(
                    f"Words of {printable(name)!r} that the model does not know count as "
                    f"{printable(levels[0])!r}: {listed(new)}."
                )
        front = np.column_stack(columns)
        X = (
            sp.hstack([sp.csr_array(front), table.X], format="csr")
            if sp.issparse(table.X)
            else np.hstack([front, table.X])
        )
        return replace(
            table,
            X=X,
            feature_names=[*self.coded, *table.feature_names],
            covariates=(*self.coded, *table.covariates),
            steps=(*table.steps, *steps),
            words={},
        )

    def _turned(self, table: Table) -> Table:
        """Counts as log2(1 + counts per million)."""
        if not self.log_cpm:
            return table
        kept = set(table.covariate_positions)
        counts = np.array([j for j in range(table.shape[1]) if j not in kept])
        X = table.X.astype(np.result_type(table.X.dtype, np.float32))
        part = X[:, counts]
        if (part.data if sp.issparse(part) else part).min(initial=0) < 0:
            raise BadTable(
                table.path, "counts are never negative, and some values are.", "Do without --log-cpm."
            )
        total = np.asarray(part.sum(axis=1) if sp.issparse(part) else np.nansum(part, axis=1)).ravel()
        per_million = 1e6 / np.where(total > 0, total, 1.0)
        if sp.issparse(X):
            part = (sp.diags_array(per_million) @ part).log1p() / np.log(2.0)
            X = sp.hstack([X[:, sorted(kept)], part], format="csr").astype(X.dtype)
            order = [*sorted(kept), *counts.tolist()]
            X = X[:, np.argsort(order)]
        else:
            X[:, counts] = np.log2(1.0 + part * per_million[:, np.newaxis])
        return replace(table, X=X, steps=(*table.steps, "Counts became log2(1 + counts per million)."))

    def _filled(self, table: Table) -> Table:
        share = missing_share(table.X)
        if share == 0 or self.medians is None:
            return table
        if sp.issparse(table.X):
            X = table.X.copy()
            gaps = np.isnan(X.data)
            X.data[gaps] = self.medians[X.indices[gaps]]
        elif self.neighbours is not None and self.spread is not None:
            imputer = KNNImputer(n_neighbors=N_NEIGHBOURS, keep_empty_features=True).fit(
                self.neighbours / self.spread
            )
            X = np.where(np.isnan(table.X), imputer.transform(table.X / self.spread) * self.spread, table.X)
        else:
            X = np.where(np.isnan(table.X), self.medians, table.X)
        how = (
            "the median of the feature"
            if self.impute == "median"
            else f"the {N_NEIGHBOURS} most similar samples"
        )
        step = (
            f"{in_per_cent(share)} of values are missing and were filled in by {how} in the table of the fit."
        )
        return replace(table, X=X.astype(table.X.dtype, copy=False), steps=(*table.steps, step))


def missing_share(X: Any) -> float:
    """Of all values; what is infinite is not missing."""
    values = X.data if sp.issparse(X) else X
    total = np.sum(values, dtype=np.float64)
    if np.isfinite(total):
        return 0.0
    return float(np.count_nonzero(np.isnan(values))) / max(X.shape[0] * X.shape[1], 1)


def in_per_cent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.995 else f"{100 * share:.0f} %"


def _medians(table: Table) -> NDArray[Any]:
    """Of each column; an error if one has no value at all."""
    if sp.issparse(table.X):
        found, columns = np.zeros(table.shape[1], dtype=table.X.dtype), table.X.tocsc()
        for j in np.unique(table.X.indices[np.isnan(table.X.data)]):
            found[j] = np.nanmedian(columns[:, [j]].toarray())
        return found
    gaps = np.isnan(table.X)
    found = np.zeros(table.shape[1], dtype=table.X.dtype)
    if (empty := np.flatnonzero(gaps.all(axis=0))).size:
        raise BadTable(
            table.path,
            f"features without any value: {listed([table.feature_names[j] for j in empty])}.",
            "Leave them out with --ignore.",
        )
    # New samples may lack what these have.
    found[:] = np.nanmedian(table.X, axis=0)
    return found


def _levels(table: Table, name: str) -> tuple[str, ...]:
    words = [word.strip() or NO_WORD for word in table.words[name]]
    counts = Counter(words)
    if len(counts) > max(LARGEST_SHARE_OF_LEVELS * len(words), 2):
        raise BadTable(
            table.path,
            f"the covariate {printable(name)!r} has {len(counts)} different words in {len(words)} rows: "
            "names, not categories.",
            "Leave it out with --ignore, or, if its samples belong together, name it with --groups.",
        )
    if len(counts) < 2:
        raise BadTable(
            table.path,
            f"the covariate {printable(name)!r} is {printable(words[0])!r} everywhere.",
            "Leave it out with --ignore.",
        )
    return tuple(sorted(counts, key=lambda word: (-counts[word], word)))
