"""Model files of every version, as they were written then, give the answers that they gave then."""

from __future__ import annotations

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import foldless
from foldless.estimators._saving import register_all
from foldless.registry import name_of, registered_names
from golden import make

FILES = sorted(make.HERE.glob("format-*/*.foldless"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_file_of_any_version_gives_its_answers(path, tmp_path):
    expected = json.loads(path.with_suffix(".json").read_text())
    X = np.array(expected.pop("X"))
    # Saved again, it is a file of today.
    loaded = foldless.load(path)
    for model in (loaded, foldless.load(loaded.save(tmp_path / "m"))):
        found = make.answers(model, X)
        assert expected.keys() <= found.keys()
        for name, values in expected.items():
            if name in ("predict", "get_support"):
                assert_array_equal(found[name], values)
            else:
                assert_allclose(found[name], values, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", make.KINDS)
def test_every_kind_has_a_file_of_this_version(kind):
    assert make.golden_path(kind) in FILES, "Run python tests/golden/make.py and commit what it makes."


def test_kinds_are_all_estimators():
    register_all()
    estimators = {name for name in registered_names() if name.startswith("estimator/")}
    assert {name_of(model) for model in make.KINDS.values()} == estimators


def test_existing_files_are_never_written_again(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(make, "HERE", tmp_path)
    make.make_missing(["smlr", "rvm"])
    assert len(capsys.readouterr().out.splitlines()) == 2
    path = make.golden_path("smlr")
    path.write_bytes(b"as it was")
    make.golden_path("rvm").unlink()
    make.make_missing(["smlr", "rvm"])
    assert path.read_bytes() == b"as it was"
    assert capsys.readouterr().out.startswith("format-")
    assert make.golden_path("rvm").exists()
