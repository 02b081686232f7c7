"""Twelve files as people have them, each checked, and fitted by the command that `foldless check` prints.

    python -m benchmarks.everyday_tables --data DIR [--keep FOLDER]

The colon table (62 samples, 2000 genes) is written the way R users, spreadsheets, GEO and biologists do. What
comes out must be what comes out of the clean file: the same features selected, the same twenty first, and the
same weights. Where a file has lost or added something (missing values, a batch), the clean file has the same
thing by hand.
"""

from __future__ import annotations

import argparse
import gzip
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from foldless.io.table import unique_names
from foldless.io.tsv import read_tsv

TARGET = "tissue type"
TOLERANCE = 1e-6  # of the largest weight
N_FIRST = 20  # features that must come first, in the same order
MISSING_SHARE = 0.02


class Study:
    """The published table, and what its files share."""

    def __init__(self, data: Path) -> None:
        stored = np.load(data / "colon.npz")
        self.X, self.labels = stored["X"].astype(np.float64), stored["y"].astype(str)
        self.published = [str(name) for name in stored["feature_names"]]
        self.genes = unique_names(self.published)[0]
        self.samples = [f"GSM{100 + i}" for i in range(len(self.labels))]
        rng = np.random.default_rng(0)
        self.batch = rng.choice(["A", "B", "C"], len(self.labels))
        self.gaps = rng.random(self.X.shape) < MISSING_SHARE

    def frame(self, X: np.ndarray | None = None) -> pd.DataFrame:
        frame = pd.DataFrame(self.X if X is None else X, columns=self.genes)
        frame.insert(0, TARGET, self.labels)
        frame.insert(0, "sample", self.samples)
        return frame

    def turned(self) -> pd.DataFrame:
        return pd.DataFrame(self.X.T, index=pd.Index(self.genes, name="ID_REF"), columns=self.samples)

    def text(self, **options: object) -> str:
        return self.frame().to_csv(index=False, **options)  # type: ignore[call-overload,no-any-return]


def clean(study: Study, folder: Path) -> list[str]:
    (folder / "clean.csv").write_text(study.text(), encoding="utf-8")
    return ["clean.csv"]


def clean_filled(study: Study, folder: Path) -> list[str]:
    X = np.where(study.gaps, np.nan, study.X)
    study.frame(np.where(study.gaps, np.nanmedian(X, axis=0), study.X)).to_csv(
        folder / "filled.csv", index=False
    )
    return ["filled.csv"]


def clean_batches(study: Study, folder: Path) -> list[str]:
    frame = study.frame()
    common = max(sorted(set(study.batch)), key=lambda b: int(np.sum(study.batch == b)))
    others = [level for level in "ABC" if level != common]
    for level in others:
        frame.insert(2, f"batch={level}", (study.batch == level).astype(int))
    frame.to_csv(folder / "batches.csv", index=False)
    return ["batches.csv", *(word for level in others for word in ("--covariates", f"batch={level}"))]


def genes_in_rows(study: Study, folder: Path) -> list[str]:
    turned = study.turned()
    turned.insert(0, "description", [f"a gene, number {j}" for j in range(len(turned))])
    turned.to_csv(folder / "expression.tsv", sep="\t")
    sheet = pd.DataFrame({"GSM": study.samples, TARGET: study.labels, "age": range(len(study.samples))})
    sheet.sample(frac=1, random_state=0).to_csv(folder / "meta.csv", index=False)
    return ["expression.tsv", "--sample-sheet", "meta.csv", "--id", "GSM"]


def geo(study: Study, folder: Path) -> list[str]:
    def line(name: str, values: list[str]) -> str:
        return "\t".join([name, *(f'"{value}"' for value in values)])

    lines = [
        '!Series_title\t"Colon tumours"',
        '!Series_geo_accession\t"GSE0"',
        "",
        line("!Sample_title", [f"sample {i}" for i in range(len(study.samples))]),
        line("!Sample_geo_accession", study.samples),
        line("!Sample_characteristics_ch1", [f"{TARGET}: {label}" for label in study.labels]),
        line("!Sample_characteristics_ch1", ["organism part: colon"] * len(study.samples)),
        "!series_matrix_table_begin",
        study.turned().to_csv(sep="\t", quoting=2).rstrip("\n"),
        "!series_matrix_table_end",
    ]
    content = "\n".join(lines) + "\n"
    (folder / "GSE0_series_matrix.txt.gz").write_bytes(gzip.compress(content.encode()))
    return ["GSE0_series_matrix.txt.gz"]


def spreadsheet(study: Study, folder: Path) -> list[str]:
    study.frame().to_excel(folder / "colon.xlsx", index=False)
    return ["colon.xlsx"]


def decimal_commas(study: Study, folder: Path) -> list[str]:
    (folder / "deutsch.csv").write_text(study.text(sep=";", decimal=","), encoding="utf-8")
    return ["deutsch.csv"]


def written_by_r(study: Study, folder: Path) -> list[str]:
    """write.table(frame, "r.txt"): separated by spaces, texts in quotes, row names without a heading."""
    frame = study.frame().set_index("sample")
    lines = [" ".join(f'"{name}"' for name in frame.columns)]
    for name, row in zip(frame.index, frame.itertuples(index=False), strict=True):
        numbers = " ".join(repr(float(value)) for value in row[1:])
        lines.append(f'"{name}" "{row[0]}" {numbers}')
    (folder / "r.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return ["r.txt"]


def latin_1(study: Study, folder: Path) -> list[str]:
    frame = study.frame()
    frame["sample"] = [f"Präparat {name}" for name in study.samples]
    frame.to_csv(folder / "latin.csv", index=False, encoding="latin-1")
    return ["latin.csv"]


def utf_16(study: Study, folder: Path) -> list[str]:
    """What spreadsheets call Unicode text."""
    (folder / "unicode.txt").write_text(study.text(sep="\t"), encoding="utf-16")
    return ["unicode.txt"]


def title_line(study: Study, folder: Path) -> list[str]:
    text = study.text()
    commas = "," * text.splitlines()[0].count(",")
    (folder / "titled.csv").write_text(
        f"Colon tumours (Alon 1999){commas}\n{commas}\n{text}", encoding="utf-8"
    )
    return ["titled.csv"]


def trailing_commas(study: Study, folder: Path) -> list[str]:
    header, *rows = study.text().splitlines()
    (folder / "trailing.csv").write_text("\n".join([header, *(f"{row}," for row in rows)]), encoding="utf-8")
    return ["trailing.csv"]


def repeated_names(study: Study, folder: Path) -> list[str]:
    frame = study.frame()
    frame.columns = ["sample", TARGET, *study.published[:-1], ""]
    frame.to_csv(folder / "published.csv", index=False)
    return ["published.csv"]


def missing_values(study: Study, folder: Path) -> list[str]:
    study.frame(np.where(study.gaps, np.nan, study.X)).to_csv(folder / "gaps.csv", index=False, na_rep="NA")
    return ["gaps.csv"]


def covariate_of_words(study: Study, folder: Path) -> list[str]:
    frame = study.frame()
    frame.insert(2, "batch", study.batch)
    frame.to_csv(folder / "batch.csv", index=False)
    return ["batch.csv"]


Maker = Callable[[Study, Path], list[str]]
FILES: list[tuple[str, Maker, Maker]] = [
    ("genes in rows, classes in a sample sheet", genes_in_rows, clean),
    ("GEO series matrix", geo, clean),
    ("spreadsheet", spreadsheet, clean),
    ("semicolons and decimal commas", decimal_commas, clean),
    ("R's write.table", written_by_r, clean),
    ("Latin-1", latin_1, clean),
    ("UTF-16", utf_16, clean),
    ("title line", title_line, clean),
    ("trailing commas", trailing_commas, clean),
    ("repeated and blank names", repeated_names, clean),
    ("missing values", missing_values, clean_filled),
    ("a covariate of words", covariate_of_words, clean_batches),
]


def command(folder: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "foldless", *words],
        cwd=folder, capture_output=True, text=True, check=False, encoding="utf-8",
    )  # fmt: skip
    if done.returncode not in (0, 4):
        raise RuntimeError(f"foldless {shlex.join(words)}: {done.stderr}")
    return done.stdout


def fitted(folder: Path, words: list[str], name: str) -> dict[int, tuple[float, str]]:
    """Weight and verdict of each feature, by its position."""
    command(folder, *words, "--out", name)
    if not (folder / name / "report.html").is_file():
        raise RuntimeError("there is no report")
    header, rows = read_tsv(folder / name / "features.tsv")
    column, weight, chosen = (header.index(key) for key in ("column", "weight", "selected"))
    return {int(row[column]): (float(row[weight]), row[chosen]) for row in rows}  # the surest first


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--keep", type=Path, help="a folder for the files and their results")
    asked = parser.parse_args()
    study, same = Study(asked.data), 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = (asked.keep or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        expected: dict[Maker, dict[int, tuple[float, str]]] = {}
        for number, (name, make, reference) in enumerate(FILES, start=1):
            if reference not in expected:
                words = ["fit", *reference(study, folder), "--target", TARGET]
                expected[reference] = fitted(folder, words, f"results-{reference.__name__}")
            told = command(folder, "check", *make(study, folder))
            # The command stands on the last line.
            typed = shlex.split(re.sub(r"\s+", " ", told.strip().splitlines()[-1]))
            found = fitted(folder, typed[1:], f"results-{number}")
            wanted = expected[reference]
            size = max(abs(weight) for weight, _ in wanted.values())
            gap = (
                max(abs(found[j][0] - wanted[j][0]) for j in wanted) / size
                if found.keys() == wanted.keys()
                else np.inf
            )
            chosen = {j for j, (_, verdict) in found.items() if verdict == "yes"}
            agrees = gap < TOLERANCE and chosen == {
                j for j, (_, verdict) in wanted.items() if verdict == "yes"
            }
            agrees = agrees and list(found)[:N_FIRST] == list(wanted)[:N_FIRST]
            same += agrees
            print(
                f"{number:2}. {name}: {'the same' if agrees else 'DIFFERS'} ({gap:.1e}, {len(chosen)} "
                "selected)"
            )
            print(f"    {shlex.join(typed)}", flush=True)
    print(f"{same} of {len(FILES)}")
    if same < len(FILES):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
