"""One table written the ways people write it: the same numbers, labels and names come out of each."""

from __future__ import annotations

import gzip

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from foldless.io import BadTable, Reading, Roles
from foldless.io.read import read_table
from reference.tables import small, text_of

ROLES = Roles(target="state", groups="donor", covariates=("age",))
TABLE = small()


def turned(table=TABLE, delimiter="\t", extra=()):
    lines = [delimiter.join(["ID_REF", *(name for name, _ in extra), *table.samples])]
    for j, gene in enumerate(table.features):
        about = [value for _, value in extra]
        lines.append(delimiter.join([gene, *about, *(repr(float(v)) for v in table.X[:, j])]))
    return "\n".join(lines) + "\n"


def sheet():
    about = {"GSM": TABLE.samples, "state": TABLE.labels, "donor": TABLE.donors, "age": TABLE.ages}
    return pd.DataFrame(about).sample(frac=1, random_state=1).to_csv(index=False, sep=";")


def series_matrix():
    lines = [
        '!Series_title\t"A study"',
        "",
        "\t".join(["!Sample_geo_accession", *(f'"{name}"' for name in TABLE.samples)]),
        "\t".join(["!Sample_characteristics_ch1", *(f'"state: {label}"' for label in TABLE.labels)]),
        "\t".join(["!Sample_characteristics_ch1", *(f'"donor: {donor}"' for donor in TABLE.donors)]),
        "\t".join(["!Sample_characteristics_ch1", *(f'"age: {age}"' for age in TABLE.ages)]),
        "!series_matrix_table_begin",
        turned().rstrip("\n"),
        "!series_matrix_table_end",
    ]
    return "\n".join(lines) + "\n"


def by_r():
    header, *rows = text_of(TABLE, " ").splitlines()
    # csv quotes names with spaces; R writes no heading for the names of rows.
    return "\n".join([header.removeprefix("id "), *rows]) + "\n"


def decimal_commas(delimiter=";"):
    lines = text_of(TABLE, delimiter).splitlines()
    return "\n".join([lines[0], *(line.replace(".", ",") for line in lines[1:])]) + "\n"


def with_title():
    lines = text_of(TABLE).splitlines()
    commas = "," * lines[0].count(",")
    return "\n".join([f"Results of 2019{commas}", commas, *lines]) + "\n"


def label_in_a_row():
    rows = [line.split(",") for line in text_of(TABLE).splitlines()]
    return "\n".join(",".join(column) for column in zip(*rows, strict=True)) + "\n"


plain = text_of(TABLE)
WAYS = {
    "semicolons": ("t.csv", text_of(TABLE, ";").encode(), ["semicolons"]),
    "bars": ("t.tsv", text_of(TABLE, "|").encode(), ["bars"]),
    "decimal commas": ("t.csv", decimal_commas().encode(), ["semicolons", "commas"]),
    "decimal commas and tabs": ("t.txt", decimal_commas("\t").encode(), ["Decimals are written with commas"]),
    "Latin-1": ("t.csv", plain.replace("sample", "Größe").encode("latin-1"), ["Latin-1"]),
    "UTF-16": ("t.txt", text_of(TABLE, "\t").encode("utf-16"), ["UTF-16"]),
    "UTF-16 without a mark": ("t.txt", text_of(TABLE, "\t").encode("utf-16-le"), ["UTF-16"]),
    "a title": ("t.csv", with_title().encode(), ["above the header"]),
    "trailing commas": ("t.csv", plain.replace("\n", ",\n").encode(), ["empty columns"]),
    "trailing commas below": ("t.csv", plain.replace("\n", ",\n").replace(",\n", "\n", 1).encode(), []),
    "R's write.table": ("t.txt", by_r().encode(), ["R writes"]),
    "on its side": ("t.csv", label_in_a_row().encode(), ["turned into rows"]),
    "GEO": (
        "GSE1_series_matrix.txt.gz",
        gzip.compress(series_matrix().encode()),
        ["GEO", "turned into rows"],
    ),
    "genes in rows": ("t.tsv", turned(extra=[("about", "a gene")]).encode(), ["'about'", "turned into rows"]),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_same_table_in_many_ways(way, tmp_path):
    name, content, told = WAYS[way]
    (tmp_path / name).write_bytes(content)
    (tmp_path / "sheet.csv").write_text(sheet(), encoding="utf-8")
    reading = Reading(sample_sheet=tmp_path / "sheet.csv") if way == "genes in rows" else Reading()
    read = read_table(tmp_path / name, ROLES, reading)
    assert sorted(read.feature_names) == sorted(["age", *TABLE.features])
    place = [read.feature_names.index(feature) for feature in ("age", *TABLE.features)]
    assert_array_equal(read.X[:, place], np.column_stack([TABLE.ages, TABLE.X]))
    assert read.target.tolist() == TABLE.labels
    assert read.groups.tolist() == TABLE.donors
    assert [name.replace("Größe", "sample") for name in read.sample_names] == TABLE.samples
    assert read.covariates == ("age",)
    for words in told:
        assert any(words in step for step in read.steps), read.steps


def test_spreadsheets(tmp_path):
    pytest.importorskip("openpyxl")
    pytest.importorskip("python_calamine")
    frame = pd.DataFrame(TABLE.X, columns=TABLE.features)
    frame.insert(0, "state", TABLE.labels)
    with pd.ExcelWriter(tmp_path / "t.xlsx") as book:
        pd.DataFrame({"a": [1]}).to_excel(book, sheet_name="about")
        frame.to_excel(book, sheet_name="data")
    read = read_table(tmp_path / "t.xlsx", Roles(target="state"), Reading(sheet="data"))
    assert_allclose(read.X, TABLE.X, rtol=1e-15)  # who wrote it left out a digit
    assert read.target.tolist() == TABLE.labels
    with pytest.raises(BadTable, match=r"no sheet 'dat'.*Did you mean 'data'"):
        read_table(tmp_path / "t.xlsx", Roles(target="state"), Reading(sheet="dat"))


def test_a_workbook_has_its_own_sample_sheet(tmp_path):
    pytest.importorskip("openpyxl")
    pytest.importorskip("python_calamine")
    names = [f"sample {i}" for i in range(len(TABLE.labels))]
    genes = pd.DataFrame(TABLE.X.T, index=TABLE.features, columns=names)
    samples = pd.DataFrame({"name": names[::-1], "state": TABLE.labels[::-1]})
    path = tmp_path / "t.xlsx"
    with pd.ExcelWriter(path) as book:
        samples.to_excel(book, sheet_name="samples", index=False)
        genes.to_excel(book, sheet_name="genes")
    for reading in (
        Reading(sheet="genes", sample_sheet=path),
        Reading(sheet="genes", sample_sheet=path, id="name"),
    ):
        read = read_table(path, Roles(target="state"), reading)
        assert_allclose(read.X, TABLE.X, rtol=1e-15)
        assert read.target.tolist() == TABLE.labels
    genes.to_excel(path)
    with pytest.raises(BadTable, match="one sheet only, 'Sheet1'"):
        read_table(path, Roles(target="state"), Reading(sample_sheet=path))


def test_what_is_recognised_can_be_overruled(tmp_path):
    (tmp_path / "t.txt").write_text("y\tx\nA\t1,250\nB\t2,500\n", encoding="utf-8")
    with pytest.raises(
        BadTable, match=r"'1,250' may have a decimal comma, or commas between thousands.*--decimal"
    ):
        read_table(tmp_path / "t.txt", Roles(target="y"))
    for decimal, value in ((",", 1.25), (".", 1250.0)):
        read = read_table(tmp_path / "t.txt", Roles(target="y"), Reading(decimal=decimal))
        assert read.X[0, 0] == value
    (tmp_path / "t.csv").write_bytes("y,é\nA,1\nB,2\n".encode("mac-roman"))
    assert read_table(tmp_path / "t.csv", Roles(target="y"), Reading(encoding="mac-roman")).feature_names == [
        "é"
    ]


def test_repeated_and_empty_names(tmp_path):
    (tmp_path / "t.csv").write_text("y,a,b,a,,a\nA,1,2,3,4,5\nB,2,3,4,5,9\n", encoding="utf-8")
    read = read_table(tmp_path / "t.csv", Roles(target="y"))
    assert read.feature_names == ["a", "b", "a.2", "column 5", "a.3"]
    assert read.renamed == {"a.2": "a", "column 5": "", "a.3": "a"}
    assert any("2 names of features occur more than once" in step for step in read.steps)
    averaged = read_table(tmp_path / "t.csv", Roles(target="y"), Reading(average=True))
    assert averaged.feature_names == ["a", "b", "column 5"]
    assert_allclose(averaged.X, [[3, 2, 4], [5, 3, 5]])
    # A model finds them again by the names it knows.
    again = read_table(tmp_path / "t.csv", Roles(features=("a.3", "b")))
    assert_array_equal(again.X, [[5, 2], [9, 3]])


def test_a_sample_sheet_need_not_have_every_sample(tmp_path):
    (tmp_path / "t.tsv").write_text(turned(), encoding="utf-8")
    lines = sheet().splitlines()
    gone = lines.pop().split(";")[0]
    unlabelled = lines[-1].split(";")
    lines[-1] = ";".join([unlabelled[0], "", *unlabelled[2:]])
    (tmp_path / "sheet.csv").write_text("\n".join(lines), encoding="utf-8")
    reading = Reading(sample_sheet=tmp_path / "sheet.csv")
    read = read_table(tmp_path / "t.tsv", Roles(target="state"), reading)
    assert read.shape == (38, 12)
    assert not {gone, unlabelled[0]} & set(read.sample_names)
    labels = dict(zip(TABLE.samples, TABLE.labels, strict=True))
    assert read.target.tolist() == [labels[name] for name in read.sample_names]
    assert any("not in the sample sheet" in step and gone in step for step in read.steps), read.steps
    with pytest.raises(BadTable, match=r"no sample of the table is in column 'donor'.*--id"):
        read_table(
            tmp_path / "t.tsv",
            Roles(target="state"),
            Reading(sample_sheet=tmp_path / "sheet.csv", id="donor"),
        )
    with pytest.raises(BadTable, match=r"--id names a column of a sample sheet.*--samples"):
        read_table(tmp_path / "t.tsv", Roles(target="state"), Reading(id="donor"))


def test_columns_of_words_need_a_purpose(tmp_path):
    (tmp_path / "t.csv").write_text("y,sex,x\nA,m,1\nB,f,2\nA,m,3\nB,m,4\n", encoding="utf-8")
    with pytest.raises(BadTable, match=r"not numbers but words: 'sex'.*--covariates.*--ignore sex"):
        read_table(tmp_path / "t.csv", Roles(target="y"))
    read = read_table(tmp_path / "t.csv", Roles(target="y", covariates=("sex",)))
    assert read.words["sex"].tolist() == ["m", "f", "m", "m"]
    assert read.feature_names == ["x"]
    seen = read_table(tmp_path / "t.csv")
    assert (set(seen.candidates), seen.unused) == ({"y", "sex"}, ("y", "sex"))


def test_a_single_mistake_is_found_by_its_line(tmp_path):
    rows = [f"{'AB'[i % 2]},{i},{i * i}" for i in range(30)]
    rows[20] = "A,20,4OO"
    (tmp_path / "t.csv").write_text("\n".join(["y,a,b", *rows]), encoding="utf-8")
    with pytest.raises(BadTable, match=r"line 22, column 'b': '4OO' is not a number"):
        read_table(tmp_path / "t.csv", Roles(target="y"))


def test_layers_of_anndata(tmp_path):
    pytest.importorskip("anndata")
    from reference.tables import anndata_of

    adata = anndata_of(TABLE)
    adata.raw = adata.copy()
    adata.layers["doubled"] = adata.X * 2
    adata.obs["batch"] = ["A", "B"] * 20
    adata.write_h5ad(tmp_path / "t.h5ad")
    roles = Roles(target="state", covariates=("batch",))
    read = read_table(tmp_path / "t.h5ad", roles, Reading(layer="doubled"))
    assert_array_equal(read.X.toarray(), 2 * TABLE.X)
    assert read.words["batch"].tolist() == ["A", "B"] * 20
    assert_array_equal(read_table(tmp_path / "t.h5ad", roles, Reading(layer="raw")).X.toarray(), TABLE.X)
    with pytest.raises(BadTable, match=r"no layer 'trebled'"):
        read_table(tmp_path / "t.h5ad", roles, Reading(layer="trebled"))
