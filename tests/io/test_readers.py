"""Good tables of every format: the same numbers, names and roles come out of each."""

from __future__ import annotations

import gzip

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from numpy.testing import assert_array_equal

from foldless.io import BadTable, OverBudget, Reading, Roles
from foldless.io.read import read_table
from foldless.io.sheet import sheet_of_series_matrix
from reference.hostile_names import HOSTILE_NAMES
from reference.tables import NEEDS, WRITERS, anndata_of, small, text_of

ROLES = Roles(target="state", groups="donor", covariates=("age",))


def written(name, tmp_path):
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    WRITERS[name](tmp_path / name, small())
    return tmp_path / name


@pytest.mark.parametrize("name", ["table.csv", "table.tsv.gz", "table.parquet", "table.h5ad"])
def test_tables_with_names(name, tmp_path):
    table, read = small(), read_table(written(name, tmp_path), ROLES)
    assert read.feature_names == ["age", *table.features]
    assert read.sample_names == table.samples
    assert read.target.tolist() == table.labels
    assert read.groups.tolist() == table.donors
    assert read.covariate_positions == [0]
    X = read.X.toarray() if sp.issparse(read.X) else read.X
    assert_array_equal(X[:, 1:], table.X)
    assert_array_equal(X[:, 0], table.ages)
    assert sp.issparse(read.X) == (name == "table.h5ad")
    assert any("age" in step for step in read.steps)
    assert any("donor" in step for step in read.steps)


def test_npz(tmp_path):
    table, read = (
        small(),
        read_table(written("table.npz", tmp_path), Roles(target="state", ignore=("gene 2",))),
    )
    assert read.feature_names == [name for name in table.features if name != "gene 2"]
    assert_array_equal(read.X, np.delete(table.X, 2, axis=1))
    assert (read.target.tolist(), read.sample_names) == (table.labels, table.samples)


@pytest.mark.parametrize("build", [sp.csr_matrix, sp.csc_matrix])
def test_sparse_npz_stays_sparse_and_single(build, tmp_path, monkeypatch):
    table, looked = small(), []
    check = build.check_format

    def counted(X, full_check=True):
        looked.append(full_check)
        return check(X, full_check=full_check)

    sp.save_npz(tmp_path / "x.npz", build(table.X.astype(np.float32)))
    with np.load(tmp_path / "x.npz") as stored:
        np.savez(tmp_path / "x.npz", **dict(stored), y=np.array(table.labels))
    monkeypatch.setattr(build, "check_format", counted)
    read = read_table(tmp_path / "x.npz")
    assert sum(looked) == 1  # at every index, once
    assert sp.issparse(read.X)
    assert read.X.dtype == np.float32
    assert_array_equal(read.X.toarray(), table.X.astype(np.float32))
    assert read.target.tolist() == table.labels


def test_svmlight_names_features_by_their_index(tmp_path):
    table, read = small(), read_table(written("table.svmlight", tmp_path))
    assert read.feature_names == [str(j) for j in range(1, 13)]
    assert_array_equal(read.X.toarray(), table.X)
    assert set(read.target.tolist()) == {-1, 1}


def test_svmlight_of_other_samples_lacks_nothing(tmp_path):
    """What does not occur in a file is zero, and counting from 1 is not guessed anew."""
    (tmp_path / "new.svmlight").write_text("1 3:2.5\n-1 2:1.0\n", encoding="ascii")
    read = read_table(tmp_path / "new.svmlight", Roles(features=("1", "2", "3", "4")))
    assert_array_equal(read.X.toarray(), [[0, 0, 2.5, 0], [0, 1, 0, 0]])
    (tmp_path / "zero.svmlight").write_text("1 0:2.5\n-1 2:1.0\n", encoding="ascii")
    assert read_table(tmp_path / "zero.svmlight").feature_names == ["0", "1", "2"]


def test_lines_of_svmlight_that_hold_no_sample_are_passed_over(tmp_path):
    path = tmp_path / "t.svmlight"
    path.write_text("# made in May\n\n  # 1 1:2\n1 0:2.5\n \n-1 0:1.0\n", encoding="ascii")
    assert_array_equal(read_table(path).X.toarray(), [[2.5], [1.0]])
    for content, missing in (("", "samples"), ("# made in May\n\n", "samples"), ("1\n-1\n", "values")):
        path.write_text(content, encoding="ascii")
        with pytest.raises(BadTable, match=f"holds no {missing}"):
            read_table(path)


def test_groups_of_svmlight_are_query_ids(tmp_path):
    (tmp_path / "q.svmlight").write_text("1 qid:7 1:2.5\n-1 qid:8 2:1.0\n", encoding="ascii")
    assert read_table(tmp_path / "q.svmlight", Roles(groups="qid")).groups.tolist() == ["7", "8"]


def test_features_of_a_model_are_found_by_name_in_its_order(tmp_path):
    table = small()
    wanted = ("gene 5", "gene 0")
    for name in ("table.csv", "table.npz"):
        read = read_table(written(name, tmp_path), Roles(features=wanted))
        assert read.feature_names == list(wanted)
        assert_array_equal(read.X, table.X[:, [5, 0]])
    with pytest.raises(BadTable, match=r"no column 'gene 99', named as a feature that the model"):
        read_table(tmp_path / "table.csv", Roles(features=("gene 99",)))


def test_hostile_names_are_read_to_the_letter(tmp_path):
    import csv

    names = [name for name in HOSTILE_NAMES if name]  # a column without a name is refused
    with open(tmp_path / "hostile.csv", "w", encoding="utf-8", newline="") as stream:
        rows = csv.writer(stream)
        rows.writerow(["class", *names])
        rows.writerow([names[0], *range(len(names))])
        rows.writerow([names[1], *range(len(names))])
    read = read_table(tmp_path / "hostile.csv", Roles(target="class"))
    assert read.feature_names == names
    assert read.target.tolist() == names[:2]


@pytest.mark.parametrize(
    ("text", "samples"),
    [
        ("id,y,x\na,0,1\nb,1,2\n", ["a", "b"]),  # a first column of text
        (",y,x\n1,0,1\n2,1,2\n", ["1", "2"]),  # written by R or pandas
        ("y,x\n0,1\n1,2\n", ["1", "2"]),  # no names
        ("﻿y,x\r\n0,1\r\n1,2\r\n", ["1", "2"]),  # from a spreadsheet: a mark and other line ends
        ('y,"x"\n\n0,"1"\n1, 2 \n', ["1", "2"]),  # quotes, spaces, an empty line
    ],
)
def test_ways_to_write_text(text, samples, tmp_path):
    (tmp_path / "t.csv").write_bytes(text.encode())
    read = read_table(tmp_path / "t.csv", Roles(target="y"))
    assert (read.sample_names, read.feature_names) == (samples, ["x"])
    assert read.target.tolist() == [0, 1]
    assert read.X.tolist() == [[1.0], [2.0]]


def test_delimiters_can_be_said(tmp_path):
    (tmp_path / "t.data").write_text(text_of(small(), "|"), encoding="utf-8")
    assert read_table(tmp_path / "t.data", ROLES, Reading(delimiter="|")).shape == (40, 13)
    with pytest.raises(BadTable, match="Known are"):
        read_table(tmp_path / "t.data", ROLES)


def test_labels_keep_their_spelling():
    from foldless.io.table import class_labels

    assert class_labels(["01", "1"]).tolist() == ["01", "1"]
    assert class_labels(["-1", "1"]).tolist() == [-1, 1]
    assert class_labels(["1.0", "2.0"]).tolist() == ["1.0", "2.0"]


@pytest.mark.parametrize("name", WRITERS)
def test_what_is_too_large_is_not_read(name, tmp_path):
    path = written(name, tmp_path)
    with_columns = name in ("table.csv", "table.tsv.gz", "table.parquet")
    roles = Roles(target="state", ignore=("donor",)) if with_columns else None
    with pytest.raises(OverBudget, match=r"--max-memory"):
        read_table(path, roles, budget=100.0)


def test_compressed_text_is_known_by_its_content(tmp_path):
    (tmp_path / "t.csv").write_bytes(gzip.compress(text_of(small()).encode()))
    assert read_table(tmp_path / "t.csv", ROLES).shape == (40, 13)


@pytest.mark.parametrize("gone", ["pyarrow", "anndata"])
def test_what_is_not_installed_is_named(gone, tmp_path, monkeypatch):
    import builtins

    path = written({"pyarrow": "table.parquet", "anndata": "table.h5ad"}[gone], tmp_path)
    real = builtins.__import__

    def without(name, *rest):
        if name.partition(".")[0] == gone:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'foldless\["):
        read_table(path, ROLES)


def test_h5ad_keeps_dtype_and_takes_covariates_from_genes_as_well(tmp_path):
    pytest.importorskip("anndata")
    adata = anndata_of(small())
    adata.X = adata.X.astype(np.float32)
    adata.write_h5ad(tmp_path / "s.h5ad")
    read = read_table(tmp_path / "s.h5ad", Roles(target="state", covariates=("gene 3",)))
    assert read.X.dtype == np.float32
    assert read.X.format == "csr"
    assert read.covariate_positions == [3]


def test_one_column_has_one_purpose():
    with pytest.raises(ValueError, match="named for two purposes"):
        Roles(target="y", groups="y")


@pytest.mark.parametrize("sparse", [False, True])
def test_an_anndata_object_is_read_by_layer(sparse, tmp_path):
    anndata = pytest.importorskip("anndata")
    from foldless.io.h5ad import table_of_anndata

    X = np.arange(12, dtype=np.float32).reshape(4, 3)
    store = sp.csr_matrix if sparse else np.asarray
    adata = anndata.AnnData(store(X), obs=pd.DataFrame({"state": list("abab")}, index=list("wxyz")))
    adata.layers["doubled"] = store(2 * X)
    adata.var_names = ["g", "h", "i"]
    adata.raw = anndata.AnnData(store(X[:, :2]), var=pd.DataFrame(index=["g", "raw only"]))

    def values(layer):
        table = table_of_anndata(tmp_path, adata, Roles(target="state"), Reading(layer=layer))
        assert table.target.tolist() == list("abab")
        return table.feature_names, table.X.toarray().tolist() if sparse else table.X.tolist()

    assert values(None) == (["g", "h", "i"], X.tolist())
    assert values("doubled") == (["g", "h", "i"], (2 * X).tolist())
    assert values("raw") == (["g", "raw only"], X[:, :2].tolist())
    with pytest.raises(BadTable, match=r"no layer 'tripled'.*'doubled', 'raw'"):
        values("tripled")
    adata.layers["raw"] = store(3 * X)  # a layer of that name goes first
    assert values("raw") == (["g", "h", "i"], (3 * X).tolist())
    del adata.raw
    adata.X = None
    with pytest.raises(BadTable, match=r"there is no matrix X.*--layer"):
        values(None)


def test_only_what_is_missing_is_said_to_be_missing():
    from foldless.io.extras import needs

    def importing(name):
        with needs("pyarrow", "parquet", "to read"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    for name in ("pyarrow", "pyarrow.parquet"):
        with pytest.raises(ModuleNotFoundError, match=r"pyarrow is needed to read.*foldless\[parquet\]"):
            importing(name)
    for name in ("pyarrowhead", "numpy", None):  # what it needs itself
        with pytest.raises(ModuleNotFoundError, match="No module named"):
            importing(name)


def test_what_is_no_file_of_a_table_is_refused(tmp_path):
    with pytest.raises(BadTable, match="this is a folder"):
        read_table(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_table(tmp_path / "gone.csv")
    np.savez(tmp_path / "t.npz", X=np.ones((2, 2)))
    with pytest.raises(BadTable, match="a sample sheet is for text and spreadsheets"):
        read_table(tmp_path / "t.npz", reading=Reading(sample_sheet=tmp_path / "s.csv"))
    for name in ("t.docx", "t.npz.gz", "t"):
        (tmp_path / name).write_text("a|b\n1|2\n")
        with pytest.raises(BadTable, match="the suffix does not say what kind"):
            read_table(tmp_path / name)
    assert read_table(tmp_path / "t", reading=Reading(delimiter="|")).feature_names == ["a", "b"]


def test_lines_above_a_series_matrix_that_are_called_alike_are_told_apart(tmp_path):
    lines = [
        "!Sample_title\tone\ttwo",
        "!Sample_geo_accession\ts1\ts2",
        "!Sample_characteristics_ch1\tstate: A\tstate: B",
        "!Sample_characteristics_ch1\tmixed\tage: 3",
        "!Sample_characteristics_ch1\tstate: C\tstate: D",
    ]
    with (tmp_path / "above").open("w+") as stream:
        stream.write("\n".join(["", *lines, "gene\ts1\ts2"]))
        stream.seek(0)
        sheet = sheet_of_series_matrix(tmp_path, stream)
    assert sheet.columns == {
        "title": ["one", "two"],
        "geo_accession": ["s1", "s2"],
        "state": ["A", "B"],
        "characteristics_ch1": ["mixed", "age: 3"],
        "state'": ["C", "D"],
    }
    with (tmp_path / "none").open("w+") as stream:
        assert sheet_of_series_matrix(tmp_path, stream) is None
