"""Tables that come with R packages, as `export.R` has written them into a folder."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfVectorizer

# What is in so few samples cannot be learnt from.
LEAST_SAMPLES = 3
COUNTS = ("lung_smokers", "mouse_diet", "soilrep")
BOOKS = "books"
TABLES = (
    *(
        "all_cells",
        "all_2_types",
        "all_3_types",
        "all_sex",
        "all_relapse",
        "bladder_cancer",
        "bladder_3_kinds",
    ),
    *("flu_sex", "flu_symptoms", *COUNTS, "enterotype", "hgdp_regions", "cattle_continents"),
    *("mdrr", "dhfr", "cox2", "musk", "spam", "satellite", "dna", BOOKS),
)
# A paragraph in four, so that neighbours are not of one sentence.
PARAGRAPH, STEP = 100, 400


def files(table: str) -> tuple[str, ...]:
    return ("books.csv",) if table == BOOKS else (f"{table}.bin", f"{table}.labels")


def load(folder: Path, table: str) -> tuple[Any, NDArray[Any]]:
    """X and the classes. Counts are logarithms of one more, CSR; books are paragraphs, by their words."""
    if table == BOOKS:
        return _paragraphs(folder)
    n, p, *labels = (folder / f"{table}.labels").read_text().splitlines()
    X = np.fromfile(folder / f"{table}.bin", dtype=np.float32).reshape(int(n), int(p)).astype(np.float64)
    if table in COUNTS:
        X = sp.csr_matrix(np.log1p(X[:, np.sum(X > 0, axis=0) >= LEAST_SAMPLES]))
    return X, np.array(labels)


def _paragraphs(folder: Path) -> tuple[Any, NDArray[Any]]:
    books: dict[str, list[str]] = {}
    with (folder / "books.csv").open(encoding="utf8", newline="") as lines:
        for row in csv.DictReader(lines):
            books.setdefault(row["title"], []).extend(row["text"].split())
    found = [
        (title, " ".join(words[at : at + PARAGRAPH]))
        for title, words in books.items()
        for at in range(0, len(words) - PARAGRAPH, STEP)
    ]
    titles, texts = zip(*found, strict=True)
    return TfidfVectorizer(min_df=2, sublinear_tf=True).fit_transform(texts), np.array(titles)
