"""One table written the ways people write it: the same numbers, labels and names come out of each."""

from __future__ import annotations

import gzip
import io

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from foldless.io import BadTable, Reading, Roles
from foldless.io.dialect import N_LINES, _first_lines, encoding_of
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


def test_decimals_of_a_sample_sheet_are_said_where_they_can_be_read_in_two_ways(tmp_path):
    (tmp_path / "t.csv").write_text("id,x,z\na,1.5,2\nb,2.5,3\nc,3.5,1\n", encoding="utf-8")
    sheet = tmp_path / "s.txt"
    sheet.write_text("id\ty\tdose\na\tA\t1,250\nb\tB\t2,500\nc\tB\t3,125\n", encoding="utf-8")
    roles = Roles(target="y", covariates=("dose",))
    with pytest.raises(BadTable, match=r"s\.txt: '1,250' may have a decimal comma.*--decimal"):
        read_table(tmp_path / "t.csv", roles, Reading(sample_sheet=sheet))
    for decimal, value in ((",", 1.25), (".", 1250.0)):
        read = read_table(tmp_path / "t.csv", roles, Reading(sample_sheet=sheet, decimal=decimal))
        assert read.X[0, read.feature_names.index("dose")] == value
        assert read.X[0, read.feature_names.index("x")] == 1.5
    # What can be read in one way only is not overruled by what is said of the other.
    sheet.write_text("id\ty\tdose\na\tA\t1,25\nb\tB\t2,5\nc\tB\t3,125\n", encoding="utf-8")
    read = read_table(tmp_path / "t.csv", roles, Reading(sample_sheet=sheet, decimal="."))
    assert read.X[0, read.feature_names.index("dose")] == 1.25


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


def test_a_sheet_without_a_sample_leaves_it_out_of_a_table_with_samples_in_rows_too(tmp_path):
    (tmp_path / "sheet.csv").write_text("id,state\ns0,a\ns1,b\ns3,b\n")
    text = "id,g,h\ns0,1,2\ns1,2,3\ns2,3,4\ns3,5,6\n"
    read = read_of(tmp_path, text, Roles(target="state"), sample_sheet=tmp_path / "sheet.csv")
    assert read.sample_names == ["s0", "s1", "s3"]
    assert read.target.tolist() == ["a", "b", "b"]
    assert_array_equal(read.X, [[1, 2], [2, 3], [5, 6]])
    assert any("1 samples are not in the sample sheet" in step and "s2" in step for step in read.steps)


def test_a_sheet_counts_whatever_stands_above_a_table(tmp_path):
    (tmp_path / "sheet.csv").write_text("id,state\ns0,mine\ns1,yours\n")
    roles, sheet = Roles(target="state"), tmp_path / "sheet.csv"
    titled = "Measured in May\n\nid,g,h\ns0,1,2\ns1,2,3\n"
    assert read_of(tmp_path, titled, roles, sample_sheet=sheet).target.tolist() == ["mine", "yours"]
    (tmp_path / "sheet.csv").write_text(f"id,state\n{TABLE.samples[0]},mine\n{TABLE.samples[1]},yours\n")
    found = read_of(tmp_path, series_matrix(), roles, "s.txt", sample_sheet=sheet)
    assert found.target.tolist() == ["mine", "yours"]


def test_names_that_look_like_numbers_keep_their_zeros(tmp_path):
    found = read_of(tmp_path, ",g,h\n001,1,2\n010,2,3\n", Roles())
    assert found.sample_names == ["001", "010"]


def test_only_the_first_lines_show_how_a_text_is_written(tmp_path):
    assert len(_first_lines(io.StringIO("1,2\n" * 500))) == N_LINES
    # Lines about samples stand above the table, however many there are.
    lines = _first_lines(io.StringIO('!Sample\t"a"\n' * 200 + "1\t2\n" * 500))
    assert [line[0] for line in lines] == ["!"] * 200 + ["1"] * N_LINES


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_two_bytes_for_each_sign_are_seen_in_four_signs(encoding):
    assert encoding_of("a,b\n".encode(encoding)) == encoding
    assert encoding_of("a,b".encode(encoding)) == "utf-8"  # too short to tell


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


@given(st.data())
def test_a_table_comes_back_from_every_way_to_write_it(tmp_path_factory, data):
    """Delimiter, decimal sign, titles, line ends, encoding and who names rows, in any combination."""
    draw = data.draw
    delimiter = draw(st.sampled_from([",", ";", "\t", "|"]))
    decimal = "." if delimiter == "," else draw(st.sampled_from([".", ","]))
    n_rows, n_columns = draw(st.integers(3, 8)), draw(st.integers(2, 5))
    values = draw(
        st.lists(
            st.lists(st.floats(-1e6, 1e6).map(lambda x: round(x, 4)), min_size=n_columns, max_size=n_columns),
            min_size=n_rows,
            max_size=n_rows,
        )
    )
    names = [f"gène {j}" if j % 2 else f"g{j}" for j in range(n_columns)]
    missing = draw(st.sampled_from(["", "NA", "nan", "?"]))
    holes = {(0, 0)} if draw(st.booleans()) and n_columns > 1 else set()
    cells = [
        [missing if (i, j) in holes else f"{value:.4f}".replace(".", decimal) for j, value in enumerate(row)]
        for i, row in enumerate(values)
    ]
    labels = ["a", "b"] * n_rows
    rows = [[f"s{i}", labels[i], *row] for i, row in enumerate(cells)]
    lines = [delimiter.join(row) for row in [["id", "y", *names], *rows]]
    if draw(st.booleans()):
        lines = [f"A study of {draw(st.integers(1, 9))}", *lines]
    ending = draw(st.sampled_from(["\n", "\r\n"]))
    encoding = draw(st.sampled_from(["utf-8", "utf-8-sig", "cp1252", "utf-16"]))
    content = (ending.join(lines) + ending * draw(st.integers(0, 2))).encode(encoding)
    suffix = draw(st.sampled_from(["csv", "txt", "tsv"]))
    path = tmp_path_factory.mktemp("way") / f"t.{suffix}"
    path.write_bytes(gzip.compress(content) if draw(st.booleans()) else content)
    read = read_table(path, Roles(target="y"))
    assert read.feature_names == names
    assert read.sample_names == [f"s{i}" for i in range(n_rows)]
    assert read.target.tolist() == labels[:n_rows]
    expected = np.array(values)
    for i, j in holes:
        expected[i, j] = np.nan
    assert_array_equal(read.X, expected)


def read_of(tmp_path, text, roles=None, name="t.csv", **reading):
    (tmp_path / name).write_text(text, encoding="utf-8")
    return read_table(tmp_path / name, roles or Roles(target="y"), Reading(**reading))


@pytest.mark.parametrize(
    ("text", "reading", "problem"),
    [
        ("y;a\nA;1,5\nB;2,5\nA;x\nB;1,5\nA;1,5\n", {}, "line 4, column 'a': 'x' is not a number.*--ignore"),
        ("y;a\nA;1,5\nB;2.5\nA;1,5\n", {"decimal": ","}, "line 3, column 'a': '2.5' .*decimals alike"),
        ("y;a\nA;1,500\nB;2,0x\nA;1,5\n", {"decimal": "."}, "line 3, column 'a': '2,0x'"),
        ("y,a\nA,1\nB,50%\nA,3\n", {}, "'50%' is not a number.*without units"),
        ('y,a\nA,1\nB,"1,5"\nA,3\n', {}, "'1,5' is not a number.*decimals alike"),
        ("y,a\nA,1\nB,1_5\nA,3\n", {}, "'1_5' is not a number"),
        ("y,a\nA,1\nB,2,3\n", {}, "line 3 has 3 fields, more than the 2 of the header"),
        ("y,a\nA,1\nB\n", {}, "line 3 has 1 fields, fewer than the 2 of the header"),
        ("y,a\nA,1\nB,2\n", {"encoding": "latin-99"}, "latin-99.*Known are utf-8"),
        ("y,a\nA,1\nB,2\n", {"decimal": ".", "delimiter": "|"}, "one column only"),
        ("y,a\n", {}, "a header and nothing below"),
        ("1,2\n3,4\n", {}, "the first line holds numbers only"),
        ('y,a\nA,"1"5\nB,2\n', {}, "line 2: there is text after a closing quote"),
        ('y,a\nA,"15\nB,2\n', {}, "a quote is opened and not closed"),
        ("y,a\nA,1\n,2\n", {}, "sample 2 has no value in 'y' .1 such"),
        ("y,when\nA,2020-01-02\nB,2020-02-03\n", {}, "not numbers but dates: 'when'"),
        ("y,y,a\nA,B,1\nB,A,2\n", {}, "columns 1 and 2 are both called 'y', which is named as --target"),
    ],
)
def test_mistakes_in_a_text_are_told_with_their_place_and_cure(text, reading, problem, tmp_path):
    with pytest.raises(BadTable, match=problem):
        read_of(tmp_path, text, **reading)


def test_which_way_round_a_table_is_can_be_said(tmp_path):
    square = "y,a,b\na,1,2\nb,3,4\n"
    assert_array_equal(read_of(tmp_path, square, Roles(samples="y"), transpose=False).X, [[1, 2], [3, 4]])
    assert_array_equal(read_of(tmp_path, square, Roles(), transpose=True).X, [[1, 3], [2, 4]])


def test_numbers_with_commas_between_thousands(tmp_path):
    found = read_of(tmp_path, "y\ta\nA\t1,250.5\nB\t2,500,000\n", name="t.txt", decimal=".")
    assert found.X.ravel().tolist() == [1250.5, 2_500_000.0]


def test_a_mistake_in_a_turned_table_is_found_by_its_sample(tmp_path):
    text = "gene,s1,s2,s3,s4\nstate,A,B,A,B\ng1,1,2,3,4\ng2,5,6,4OO,8\ng3,5,6,7,8\n"
    with pytest.raises(BadTable, match=r"sample 3, 'g2': '4OO' is not a number.*--ignore"):
        read_of(tmp_path, text, Roles(target="state"))


def test_cells_of_spaces_are_missing_whatever_the_decimal_sign(tmp_path):
    for decimal, delimiter in ((".", ","), (",", ";")):
        rows = [f"{'AB'[i % 2]}{delimiter}{'  ' if i == 1 else f'{i}{decimal}5'}" for i in range(4)]
        found = read_of(tmp_path, "\n".join([f"y{delimiter}g", *rows]))
        assert_array_equal(found.X.ravel(), [0.5, np.nan, 2.5, 3.5])


def test_a_covariate_with_decimal_commas_is_a_number(tmp_path):
    rows = [f"s{i};{'AB'[i % 2]};{i},5" for i in range(4)]
    (tmp_path / "sheet.csv").write_text("\n".join(["id;state;dose", *rows]), encoding="utf-8")
    roles = Roles(target="state", covariates=("dose",))
    beside = read_of(tmp_path, "id,g\ns0,1\ns1,2\ns2,3\ns3,4\n", roles, sample_sheet=tmp_path / "sheet.csv")
    within = read_of(
        tmp_path, "\n".join(["id;state;dose;g", *(f"{row};{i}" for i, row in enumerate(rows))]), roles
    )
    for found in (beside, within):
        assert found.words == {}
        assert found.X[:, found.feature_names.index("dose")].tolist() == [0.5, 1.5, 2.5, 3.5]


def test_a_turned_table_may_have_more_rows_about_samples_than_genes(tmp_path):
    text = "gene,s1,s2,s3\nstate,A,B,A\nsex,m,f,m\nsite,x,y,y\ng1,1,2,3\n"
    found = read_of(tmp_path, text, Roles(target="state", ignore=("sex", "site")))
    assert (found.feature_names, found.X.tolist()) == (["g1"], [[1], [2], [3]])


def test_turned_tables_have_decimal_commas_as_well(tmp_path):
    text = "gene;s1;s2;s3\nstate;A;B;A\ng1;1,5;2,5;3,25\ng2;;1e3;-0,5\n"
    found = read_of(tmp_path, text, Roles(target="state"), decimal=",")
    assert found.feature_names == ["g1", "g2"]
    assert_array_equal(found.X, [[1.5, np.nan], [2.5, 1000.0], [3.25, -0.5]])
    assert found.target.tolist() == ["A", "B", "A"]


SHEET = "id,state,age,sex\ns1,A,50,m\ns2,B,60,f\ns3,A,,m\n"


def test_what_belongs_to_samples_comes_from_a_sheet_in_the_order_of_the_table(tmp_path):
    (tmp_path / "sheet.csv").write_text(SHEET, encoding="utf-8")
    roles = Roles(target="state", covariates=("age", "sex"))
    text = "name,g\ns3,1\ns1,2\ns2,3\n"
    found = read_of(tmp_path, text, roles, sample_sheet=tmp_path / "sheet.csv")
    assert found.sample_names == ["s3", "s1", "s2"]
    assert found.target.tolist() == ["A", "A", "B"]
    assert found.feature_names == ["age", "g"]
    assert_array_equal(found.X, [[np.nan, 1], [50, 2], [60, 3]])
    assert found.words["sex"].tolist() == ["m", "m", "f"]
    assert found.covariates == ("age",)
    # A model that was fitted to both finds them again.
    again = read_of(
        tmp_path, text, Roles(features=("g", "age")), sample_sheet=tmp_path / "sheet.csv", id="id"
    )
    assert sorted(again.feature_names) == ["age", "g"]
    seen = read_of(tmp_path, text, Roles(), sample_sheet=tmp_path / "sheet.csv")
    assert seen.candidates == {}  # two values for three samples are a measurement, for all that is known


@pytest.mark.parametrize(
    ("text", "roles", "problem"),
    [
        ("name,g\ns1,1\ns2,2\n", {"target": "state", "categories": ("g",)}, "no column is left"),
        ("g,h\n1,1\n2,2\n", {"target": "g", "covariates": ("age",)}, "no column names samples"),
        ("name,g\nt1,1\nt2,2\n", {"target": "state"}, "no sample of the table is in column"),
    ],
)  # fmt: skip
def test_sheets_that_do_not_fit_are_refused(text, roles, problem, tmp_path):
    (tmp_path / "sheet.csv").write_text(SHEET, encoding="utf-8")
    with pytest.raises(BadTable, match=problem):
        read_of(tmp_path, text, Roles(**roles), sample_sheet=tmp_path / "sheet.csv")


def test_a_covariate_of_a_sheet_that_is_nearly_a_number_is_told(tmp_path):
    ages = "".join(f"s{i},{'AB'[i % 2]},{'4O' if i == 2 else i}\n" for i in range(5))
    (tmp_path / "sheet.csv").write_text("id,state,age\n" + ages, encoding="utf-8")
    text = "name,g\n" + "".join(f"s{i},{i}\n" for i in range(5))
    with pytest.raises(BadTable, match=r"sample 3, 'age': '4O' is not a number.*--categories"):
        read_of(
            tmp_path, text, Roles(target="state", covariates=("age",)), sample_sheet=tmp_path / "sheet.csv"
        )


def test_candidates_for_a_target_are_columns_of_few_values_likely_names_first(tmp_path):
    rows = [f"{i},{'xy'[i % 2]},{i % 3},{i % 2},{i * 1.5},{'abcdefgh'[i]}" for i in range(8)]
    text = "\n".join(["n,site,response,code,g,tag", *rows]) + "\n"
    found = read_of(tmp_path, text, Roles())
    assert list(found.candidates) == ["response", "site"]
    assert found.candidates["site"] == {"x": 4, "y": 4}
    assert found.candidates["response"] == {"0": 3, "1": 3, "2": 2}
    assert found.unused == ("site", "tag")
    assert found.feature_names == ["n", "response", "code", "g"]


def test_whole_numbers_and_texts_of_a_spreadsheet_are_spelt_as_people_do(tmp_path):
    pytest.importorskip("openpyxl")
    pytest.importorskip("python_calamine")
    frame = pd.DataFrame({"y": [1, 2, 1], "g": [0.1, -2.0, 2.0**53], "h": [1e300, 5.0, -0.5]})
    frame.to_excel(tmp_path / "t.xlsx", index=False)
    found = read_table(tmp_path / "t.xlsx", Roles(target="y"))
    assert found.target.tolist() == [1, 2, 1]
    assert_array_equal(found.X, frame[["g", "h"]])
    assert found.target.dtype.kind == "i"
