"""Tables whose fit would come out well and mean nothing: each is noticed before the fit, with what to do."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from foldless.cli import app
from foldless.datasets import make_class_means

N, P = 60, 40


def table(n=N, p=P):
    """A sound one: two classes in no order, genes, and no more."""
    data = make_class_means(n, p, 3, bayes_error=0.1, random_state=1)
    order = np.random.default_rng(2).permutation(n)
    frame = pd.DataFrame(data.X[order], columns=[f"gene {j}" for j in range(p)])
    frame.insert(0, "tissue", np.where(data.y[order] > 0, "tumour", "healthy"))
    frame.insert(0, "sample", [f"s{i}" for i in range(n)])
    return frame


def row_numbers(frame):
    frame.insert(2, "Unnamed: 0", range(N))


def sorted_ids(frame):
    frame.insert(2, "patient_id", 1000 + 7 * np.arange(N))


def shuffled_ids(frame):
    frame.insert(2, "patient id", np.random.default_rng(0).choice(10**6, N, replace=False))


def sorted_by_class_with_ids(frame):
    frame.sort_values("tissue", inplace=True, ignore_index=True)
    frame.insert(2, "number", 1 + np.arange(N))


def dates_as_numbers(frame):
    days = pd.date_range("2019-01-01", periods=N, freq="9D")[np.random.default_rng(0).permutation(N)]
    frame.insert(2, "taken", days.strftime("%Y%m%d").astype(int))


def dates(frame):
    frame.insert(2, "taken", pd.date_range("2019-01-01", periods=N).strftime("%d.%m.%Y"))


def leaked_grade(frame):
    grade = np.where(frame["tissue"] == "tumour", np.random.default_rng(0).integers(0, 2, N) * 2 + 1, 2)
    frame.insert(2, "grade", grade)  # 1 and 3 are tumours, 2 is not


def leaked_measurement(frame):
    frame.insert(2, "marker", (frame["tissue"] == "tumour") * 3.0 + np.random.default_rng(0).random(N))


def class_as_number(frame):
    frame["y"] = (frame["tissue"] == "tumour").astype(int)


def labels_by_case(frame):
    frame.loc[frame.index[frame["tissue"] == "tumour"][:4], "tissue"] = "Tumour "


def unknown_label(frame):
    frame.loc[:7, "tissue"] = "unknown"


def one_sample(frame):
    frame.loc[0, "tissue"] = "polyp"


def duplicated_rows(frame):
    frame.iloc[10:20, 2:] = frame.iloc[0:10, 2:].to_numpy()
    frame.loc[10:19, "tissue"] = frame.loc[0:9, "tissue"].to_numpy()


def contradictory_rows(frame):
    frame.iloc[10:20, 2:] = frame.iloc[0:10, 2:].to_numpy()
    other = {"tumour": "healthy", "healthy": "tumour"}
    frame.loc[10:19, "tissue"] = [other[label] for label in frame.loc[0:9, "tissue"]]


def constant_table(frame):
    frame.iloc[:, 2:] = 1.5


def predicted_probabilities(frame):
    tumour = (frame["tissue"] == "tumour").to_numpy()
    chance = np.clip(
        0.5 + 0.3 * (tumour - 0.5) + 0.2 * np.random.default_rng(0).standard_normal(N), 0.01, 0.99
    )
    frame["m1"], frame["m2"] = chance, 1 - chance


def continuous_target(frame):
    frame["tissue"] = np.random.default_rng(0).integers(30, 55, N)


def measured_target(frame):
    frame["tissue"] = np.random.default_rng(0).random(N)


def codes_for_missing(frame):
    frame.loc[[3, 9, 30], "gene 4"] = -999.0


def missing_in_one_class(frame):
    ill = np.flatnonzero(frame["tissue"] == "tumour")
    frame.iloc[ill[:20], 5:15] = np.nan


def total_row(frame):
    frame.loc[N - 1, "sample"] = "Total"
    frame.iloc[N - 1, 2:] = frame.iloc[: N - 1, 2:].sum()


def two_scales(frame):
    frame.iloc[:20, 2:] = 2.0 ** (8 + frame.iloc[:20, 2:])


def mangled_names(frame):
    frame.rename(columns={"gene 3": "2-Sep", "gene 4": "1-Mar"}, inplace=True)


def thousands(frame):
    frame["gene 3"] = [f"{1 + i % 9},{100 + i}" for i in range(N)]


def header_twice(frame):
    frame.loc[30] = list(frame.columns)


def covariate_is_the_class(frame):
    frame.insert(2, "batch", np.where(frame["tissue"] == "tumour", "A", "B"))


def group_is_the_class(frame):
    frame.insert(2, "clinic", np.where(frame["tissue"] == "tumour", "east", "west"))


def repeated_features(frame):
    frame["copy"] = frame["gene 7"]


NONSENSE = {
    row_numbers: "identifiers among features: 'Unnamed: 0'",
    sorted_ids: "identifiers among features: 'patient_id'",
    shuffled_ids: "identifiers among features: 'patient id'",
    sorted_by_class_with_ids: "Rows are sorted by class",
    dates_as_numbers: "Dates among features: 'taken'",
    dates: "not numbers but dates: 'taken'",
    leaked_grade: "read off single columns without a mistake: 'grade'",
    leaked_measurement: "read off single columns without a mistake: 'marker'",
    class_as_number: "read off single columns without a mistake: 'y'",
    labels_by_case: "differ by case or spaces only",
    unknown_label: "'unknown' is taken for a class",
    one_sample: "Classes with one sample: 'polyp'",
    duplicated_rows: "10 samples repeat another to the last digit",
    contradictory_rows: "all values of another and a different label",
    constant_table: "no feature varies",
    predicted_probabilities: "probabilities predicted before: 'm1', 'm2'",
    continuous_target: "different numbers: a measurement?",
    measured_target: "a measurement or an identifier, not a class",
    codes_for_missing: "The value -999 stands far from all others in 'gene 4'",
    missing_in_one_class: "More values are missing in one class",
    total_row: "The last row, 'Total', is the sum",
    two_scales: "Samples are on different scales",
    mangled_names: "turned into dates: '2-Sep', '1-Mar'",
    thousands: "may have a decimal comma, or commas between thousands",
    header_twice: "line 32, column 'gene 0': 'gene 0' is not a number",
    covariate_is_the_class: "The covariate 'batch' goes with the class",
    group_is_the_class: "are in one group",
    repeated_features: "1 feature repeats another to the last digit",
}  # fmt: skip
MORE = {covariate_is_the_class: ["--covariates", "batch"], group_is_the_class: ["--groups", "clinic"]}


def looked_at(frame, path, *more):
    frame.to_csv(path, index=False, sep="\t")
    done = CliRunner().invoke(app, ["check", str(path), "--target", "tissue", *more])
    return " ".join((done.output + done.stderr).split())


def test_a_sound_table_has_nothing_against_it(tmp_path):
    assert "Nothing stands in the way of a fit" in looked_at(table(), tmp_path / "t.tsv")


@pytest.mark.parametrize("spoil", NONSENSE, ids=lambda spoil: spoil.__name__)
def test_nonsense_is_noticed(spoil, tmp_path):
    frame = table().astype({"tissue": object})
    frame = frame.astype(object) if spoil is header_twice else frame
    spoil(frame)
    told = looked_at(frame, tmp_path / "t.tsv", *MORE.get(spoil, []))
    assert NONSENSE[spoil] in told, told


def test_probes_and_predictors_are_no_predictions(tmp_path):
    frame = table()
    frame["probe_17"], frame["predictor 3"] = np.random.default_rng(0).random((2, N))
    assert "Nothing stands in the way of a fit" in looked_at(frame, tmp_path / "t.tsv")


def test_counts_are_offered_their_logarithm(tmp_path):
    frame = table(40, 120)
    rng = np.random.default_rng(0)
    depth = rng.uniform(0.3, 3.0, 40)[:, np.newaxis]
    frame.iloc[:, 2:] = rng.poisson(200 * depth * np.exp(0.3 * frame.iloc[:, 2:].to_numpy()))
    assert "--log-cpm makes samples comparable" in looked_at(frame, tmp_path / "t.tsv")


def test_what_is_too_large_is_said_before(tmp_path):
    told = looked_at(table(), tmp_path / "t.tsv", "--max-memory", "0.01")
    assert "--max-memory" in told


def test_fit_tells_before_it_fits(tmp_path):
    frame = table()
    sorted_by_class_with_ids(frame)
    frame.to_csv(tmp_path / "t.csv", index=False)
    asked = ["fit", str(tmp_path / "t.csv"), "--target", "tissue", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output + done.stderr
    assert done.output.startswith("Note: Numbers of rows or identifiers")
    assert "identifiers among features" in (tmp_path / "out" / "run.json").read_text(encoding="ascii")
