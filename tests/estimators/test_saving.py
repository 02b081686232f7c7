"""Model files: the same bits in another process, nothing executed, plain words for what is no model."""

from __future__ import annotations

import hashlib
import json
import re
import struct
import subprocess
import sys
from collections import namedtuple
from dataclasses import dataclass

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import foldless
from foldless import registry
from foldless.channels import Channel
from foldless.estimators import _saving
from foldless.estimators._saving import Saved
from foldless.io import archive
from foldless.io.archive import read_archive
from foldless.priors import Gaussian, Prior
from foldless.solvers.message_passing import AdaptiveDamping, ConstantDamping
from golden import make
from golden.make import table
from reference.hostile_names import HOSTILE_NAMES

RNG = np.random.default_rng(0)
X, Y, _ = table(40, 15)
GROUPS = np.arange(40) // 4


@pytest.fixture(scope="module")
def fitted():
    return {kind: make.fitted(kind, *X.shape) for kind in make.KINDS}


def outputs(model, X=X):
    methods = ("predict", "decision_function", "predict_proba", "predict_log_proba")
    return {name: getattr(model, name)(X) for name in methods if hasattr(model, name)}


@pytest.mark.parametrize("name", make.KINDS)
def test_a_saved_model_is_the_model(name, fitted, tmp_path):
    model = fitted[name]
    loaded = foldless.load(model.save(tmp_path / "model.safetensors"))
    assert type(loaded) is type(model)
    assert repr(loaded) == repr(model)
    left_behind = set(vars(model)) - set(vars(loaded))
    assert left_behind <= _saving.NOT_SAVED | model._not_saved
    for method, promised in outputs(model).items():
        assert_array_equal(outputs(loaded)[method], promised, strict=True)
    for attribute in ("coef_", "inclusion_probability_", "loo_proba_", "mislabel_probability_", "classes_"):
        if hasattr(model, attribute):
            assert_array_equal(getattr(loaded, attribute), getattr(model, attribute), strict=True)
    for attribute in (
        "outcome_",
        "n_iter_",
        "loo_error_",
        "models_",
        "flags_",
        "prior_",
        "channel_",
        "history_",
    ):
        if hasattr(model, attribute):
            assert getattr(loaded, attribute) == getattr(model, attribute)
    # Saved again, it is the same file.
    again = loaded.save(tmp_path / "again.safetensors")
    assert again.read_bytes() == (tmp_path / "model.safetensors").read_bytes()


def test_another_process_predicts_the_same_bytes(fitted, tmp_path):
    np.save(tmp_path / "X.npy", X)
    for name, model in fitted.items():
        model.save(tmp_path / f"{name}.safetensors")
    code = """
import sys, numpy as np, foldless
from pathlib import Path
folder = Path(sys.argv[1])
X = np.load(folder / "X.npy")
for path in sorted(folder.glob("*.safetensors")):
    model = foldless.load(path)
    np.save(path.with_suffix(".npy"), model.decision_function(X))
    if hasattr(model, "predict_proba"):
        np.save(path.with_suffix(".proba.npy"), model.predict_proba(X))
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    for name, model in fitted.items():
        assert np.load(tmp_path / f"{name}.npy").tobytes() == model.decision_function(X).tobytes()
        if hasattr(model, "predict_proba"):
            assert np.load(tmp_path / f"{name}.proba.npy").tobytes() == model.predict_proba(X).tobytes()


@pytest.mark.parametrize(
    "labels",
    [
        np.where(Y == "tumour", 1, -1),
        (Y == "tumour").astype(np.int8),
        Y == "tumour",
        Y.astype(object),
        np.where(Y == "tumour", 1.0, 0.0),
        np.where(Y == "tumour", HOSTILE_NAMES[0], HOSTILE_NAMES[1]),
    ],
    ids=lambda labels: str(labels.dtype),
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_labels_and_precision_come_back_as_they_were(labels, dtype, tmp_path):
    model = foldless.GAMPClassifier().fit(X.astype(dtype), labels)
    loaded = foldless.load(model.save(tmp_path / "m"))
    assert loaded.classes_.dtype == model.classes_.dtype
    assert_array_equal(loaded.predict(X.astype(dtype)), model.predict(X.astype(dtype)), strict=True)
    assert loaded.coef_.dtype == dtype


def test_hostile_names_come_back_unchanged(tmp_path):
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(1)
    data = pd.DataFrame(rng.standard_normal((30, len(HOSTILE_NAMES))), columns=list(HOSTILE_NAMES))
    model = foldless.SMLRClassifier(n_rates=5).fit(data, rng.integers(0, 2, 30))
    loaded = foldless.load(model.save(tmp_path / "m"))
    assert loaded.feature_names_in_.tolist() == list(HOSTILE_NAMES)
    assert_array_equal(loaded.predict_proba(data), model.predict_proba(data))


def test_groups_credible_sets_and_sparse_kernels(tmp_path):
    twins = np.column_stack([X, X[:, 0] + 1e-3 * RNG.standard_normal(40)])
    model = foldless.SparseClassifier().fit(twins, Y, groups=GROUPS)
    loaded = foldless.load(model.save(tmp_path / "m"))
    assert [str(s) for s in loaded.credible_sets_] == [str(s) for s in model.credible_sets_]
    S = sp.csr_matrix(np.where(np.abs(X) > 1, X, 0))
    kernel = foldless.SMLRClassifier(kernel="linear", n_rates=5).fit(S, Y)
    loaded = foldless.load(kernel.save(tmp_path / "k"))
    assert sp.issparse(loaded.basis_)
    assert_array_equal(loaded.predict_proba(S), kernel.predict_proba(S))


def test_what_cannot_be_data_is_named(fitted, tmp_path):
    with pytest.raises(NotFittedError):
        foldless.SparseClassifier().save(tmp_path / "m")
    model = foldless.SMLRClassifier(kernel=lambda a, b: float(a @ b), n_rates=3).fit(X, Y)
    with pytest.raises(TypeError, match=r"kernel is of type builtins\.function, which cannot be"):
        model.save(tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


def test_a_failing_write_leaves_the_old_file(fitted, tmp_path, monkeypatch):
    path = fitted["gamp"].save(tmp_path / "m")
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        fitted["smlr"].save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


# ------------------------------------------------------------------ names

PLAIN_KINDS = {"float", "scalar", "array", "texts", "sparse", "dict", "tuple", "set"}


def names_in(document):
    """Every name of a class in a document."""
    if isinstance(document, list):
        return set().union(*map(names_in, document))
    if not isinstance(document, dict):
        return set()
    own = {document[key] for key in ("$", "class") if key in document}
    return (own | names_in(list(document.values()))) - PLAIN_KINDS


@pytest.mark.parametrize("name", make.KINDS)
def test_files_name_no_modules(name, fitted, tmp_path):
    stored = read_archive(fitted[name].save(tmp_path / "m"))
    names = names_in(stored.document)
    assert names <= registry.registered_names()
    assert stored.metadata == {
        "format": archive.FORMAT,
        "foldless": foldless.__version__,
        "class": stored.document["class"],
    }
    assert "foldless" not in json.dumps(stored.document)
    for part in names:
        assert re.fullmatch(r"[a-z0-9-]+/[a-z0-9-]+", part)


def test_every_class_has_its_name_when_a_file_is_loaded():
    """Whatever of foldless is imported besides; and what draws figures is not imported for it."""
    code = """
import pkgutil, sys
from importlib import import_module
import foldless
from foldless import registry
from foldless.estimators._saving import register_all
register_all()
assert not {"matplotlib", "typer", "jinja2"} & set(sys.modules)
complete = registry.registered_names()
for room in pkgutil.walk_packages(foldless.__path__, "foldless."):
    if not room.name.startswith(("foldless.__main__", "foldless.cli", "foldless.anndata", "foldless.neuro")):
        import_module(room.name)
assert registry.registered_names() == complete
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("base", [Prior, Channel, ConstantDamping, AdaptiveDamping, Saved])
def test_whatever_a_model_may_hold_has_a_name(base):
    """All priors, channels and estimators that are not made to be derived from."""
    _saving.register_all()
    waiting, named = [base], 0
    while waiting:
        kind = waiting.pop()
        below = [each for each in kind.__subclasses__() if each.__module__.startswith("foldless.")]
        waiting += below
        assert below or kind in registry._names, kind
        named += kind in registry._names
    assert named


# Names are entered for good, so these are only ever defined here.
@registry.registered("test/wide-gaussian")
@dataclass(frozen=True)
class WideGaussian(Gaussian):
    times: float = 10.0


class Unnamed(foldless.GAMPClassifier):
    pass


def test_classes_of_others_can_be_saved_under_a_name(tmp_path):
    model = foldless.GAMPClassifier(WideGaussian(2.0, times=3.0), tune=False).fit(X, Y)
    loaded = foldless.load(model.save(tmp_path / "m"))
    assert loaded.prior == model.prior
    assert type(loaded.prior_) is WideGaussian
    with pytest.raises(TypeError, match=r"the model is of type .*Unnamed, .* foldless\.registry\.registered"):
        Unnamed().fit(X, Y).save(tmp_path / "n")


def test_a_named_tuple_without_a_name_does_not_become_a_tuple(fitted, tmp_path):
    model = clone(make.KINDS["smlr"]).fit(X, Y)
    model.x_ = namedtuple("Pair", "a b")(1, 2)
    with pytest.raises(TypeError, match=r"x_ is of type .*Pair, which cannot be written"):
        model.save(tmp_path / "m")


# ------------------------------------------------------------------ files of other versions


def test_fields_that_came_later_take_their_defaults(tmp_path):
    path = foldless.GAMPClassifier(WideGaussian(2.0, times=3.0), tune=False).fit(X, Y).save(tmp_path / "m")

    def older(document, *_):
        del document["params"]["prior"]["times"]
        del document["params"]["fdr"]

    loaded = foldless.load(rewritten(path, older))
    assert loaded.prior == WideGaussian(2.0, times=10.0)
    assert loaded.fdr == foldless.GAMPClassifier().fdr


def test_what_a_newer_version_added_is_refused_by_name(fitted, tmp_path):
    path = fitted["gamp-components"].save(tmp_path / "m")

    def newer(document, metadata, _):
        metadata["foldless"] = "7.3"
        document["params"]["prior"]["colour"] = "red"

    with pytest.raises(ValueError, match=r"gamp\.prior has \['colour'\], .* Install foldless 7\.3"):
        foldless.load(rewritten(path, newer))
    path = fitted["gamp-components"].save(tmp_path / "m")
    rewritten(path, lambda d, m, a: m.update(format=archive.FORMAT + 1, foldless="8.0"))
    with pytest.raises(ValueError, match=rf"format {archive.FORMAT + 1} was made by foldless 8\.0; .* newer"):
        foldless.load(path)


def test_renamed_classes_fields_parameters_and_attributes(fitted, tmp_path, monkeypatch):
    model = fitted["gamp-components"]
    path = model.save(tmp_path / "m")

    def older(document, *_):
        prior = document["params"]["prior"]
        prior["$"], prior["rate"], prior["cached"] = "prior/bernoulli", prior.pop("inclusion"), [1, 2]
        document["params"]["q"] = document["params"].pop("fdr")
        document["fitted"]["weights_"] = document["fitted"].pop("coef_")
        document["class"] = "estimator/amp"
        document["fitted"]["outcome_"]["$"] = "outcome/done"

    rewritten(path, older)
    with pytest.raises(ValueError, match="'estimator/amp', which this foldless does not have"):
        foldless.load(path)
    aliases = {
        "prior/bernoulli": "prior/spike-and-slab",
        "prior/spike-and-slab.rate": "inclusion",
        "prior/spike-and-slab.cached": None,
        "estimator/amp": "estimator/gamp",
        "estimator/gamp.q": "fdr",
        "estimator/gamp.weights_": "coef_",
        "outcome/done": registry.name_of(model.outcome_),
    }
    for old, new in aliases.items():
        monkeypatch.setitem(registry.ALIASES, old, new)
    loaded = foldless.load(path)
    assert loaded.get_params(deep=False) == model.get_params(deep=False)
    assert loaded.outcome_ is model.outcome_
    assert_array_equal(loaded.predict_proba(X), model.predict_proba(X), strict=True)


def test_aliases_lead_to_names_of_today():
    _saving.register_all()
    for old, new in registry.ALIASES.items():
        kind, _, field = old.partition(".")
        assert (kind if field else new) in registry.registered_names()
        assert field or old not in registry.registered_names()


def test_every_earlier_format_can_be_read():
    assert sorted(_saving.CHANGES) == list(range(1, archive.FORMAT))


def test_an_earlier_format_is_read_by_its_change(fitted, tmp_path, monkeypatch):
    path = fitted["smlr"].save(tmp_path / "m")
    monkeypatch.setattr(archive, "FORMAT", archive.FORMAT + 1)
    monkeypatch.setattr(_saving, "FORMAT", archive.FORMAT)

    def in_percent(document):
        document["params"]["tol"] = document["params"]["tol"] / 100
        return document

    monkeypatch.setitem(_saving.CHANGES, archive.FORMAT - 1, in_percent)
    assert foldless.load(path).tol == fitted["smlr"].tol / 100
    monkeypatch.setitem(_saving.CHANGES, archive.FORMAT - 1, lambda document: document["nothing"])
    with pytest.raises(ValueError, match="the document cannot be read"):
        foldless.load(path)


# ------------------------------------------------------------------ files of others


def rewritten(path, change):
    """The file with its document, metadata or arrays changed, by somebody who knows about checksums."""
    from safetensors import safe_open
    from safetensors.numpy import save

    with safe_open(path, framework="numpy") as stored:
        metadata = json.loads(stored.metadata()["foldless"])
        metadata["sha256"] = archive.NO_CHECKSUM
        arrays = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
    document = json.loads(arrays.pop("document").tobytes())
    document = change(document, metadata, arrays) or document
    text = document if isinstance(document, bytes) else json.dumps(document).encode()
    content = save(
        {"document": np.frombuffer(text, np.uint8), **arrays}, metadata={"foldless": json.dumps(metadata)}
    )
    digest = hashlib.sha256(content).hexdigest()
    path.write_bytes(content.replace(archive.NO_CHECKSUM.encode(), digest.encode(), 1))
    return path


def set_fitted(name, value):
    return lambda document, *_: document["fitted"].__setitem__(name, value)


HOSTILE = {
    "no format": lambda d, m, a: m.pop("format") and None,
    "newer format": lambda d, m, a: m.__setitem__("format", 2),
    "format before the first": lambda d, m, a: m.__setitem__("format", 0),
    "format that is no number": lambda d, m, a: m.__setitem__("format", True),
    "unknown class": lambda d, m, a: d.__setitem__("class", "Malware"),
    "class of another kind": lambda d, m, a: d.__setitem__("class", ["os", "system"]),
    "class by its name in Python": lambda d, m, a: d.__setitem__("class", "GAMPClassifier"),
    "class that is no estimator": lambda d, m, a: d.__setitem__("class", "prior/gaussian"),
    "class that is an outcome": lambda d, m, a: d.__setitem__("class", "outcome/converged"),
    "class missing": lambda d, m, a: d.pop("class") and None,
    "unknown part": set_fitted("prior_", {"$": "prior/secret"}),
    "part of another package": set_fitted("prior_", {"$": "subprocess.Popen", "args": "true"}),
    "part by its name in Python": set_fitted("prior_", {"$": "foldless.priors.gaussian.Gaussian"}),
    "part that is an estimator": set_fitted("x_", {"$": "estimator/gamp"}),
    "part that is no name": set_fitted("prior_", {"$": ["prior/gaussian"]}),
    "part with unknown fields": set_fitted("prior_", {"$": "prior/gaussian", "colour": "red"}),
    "part without what it needs": set_fitted("prior_", {"$": "selection/credible-set"}),
    "part with impossible values": set_fitted("prior_", {"$": "prior/gaussian", "variance": -1}),
    "no kind": set_fitted("prior_", {"fields": {}}),
    "method replaced": set_fitted("predict", "owned"),
    "dunder replaced": set_fitted("__class__", "owned"),
    "parameter among attributes": set_fitted("fdr", 2.0),
    "unknown parameter": lambda d, m, a: d["params"].__setitem__("command", "true"),
    "params a list": lambda d, m, a: d.__setitem__("params", [1, 2]),
    "fitted missing": lambda d, m, a: d.pop("fitted") and None,
    "document a list": lambda d, m, a: [1, 2, 3],
    "document no JSON": lambda d, m, a: b"{'class': __import__('os')}",
    "document not UTF-8": lambda d, m, a: b"\xff\xfe\xfd",
    "document with NaN": lambda d, m, a: b'{"class": NaN}',
    "document nested": lambda d, m, a: b"[" * 200 + b"]" * 200,
    "document nested beyond the stack": lambda d, m, a: b"[" * 10**6 + b"]" * 10**6,
    "array missing": lambda d, m, a: a.pop("array-0") is None,
    "array of another shape": lambda d, m, a: a.update({k: v.ravel()[:1] for k, v in a.items()}),
    "classes missing": lambda d, m, a: d["fitted"].pop("classes_") and None,
    "classes a number": set_fitted("classes_", 3),
    "one class": set_fitted("classes_", {"$": "texts", "dtype": "str", "shape": [1], "items": ["a"]}),
    "texts that are none": set_fitted("x_", {"$": "texts", "dtype": "str", "shape": [2], "items": [1, 2]}),
    "texts of another shape": set_fitted("x_", {"$": "texts", "dtype": "str", "shape": [9], "items": ["a"]}),
    "type that is none": set_fitted("x_", {"$": "scalar", "dtype": "object", "value": 1}),
    "outcome that is none": set_fitted("outcome_", {"$": "outcome/fine"}),
    "features as text": set_fitted("n_features_in_", "many"),
    "names too few": set_fitted(
        "feature_names_in_", {"$": "texts", "dtype": "object", "shape": [1], "items": ["a"]}
    ),
    "sparse beyond itself": set_fitted(
        "x_",
        {
            "$": "sparse", "format": "csr", "matrix": True, "shape": [2, 2],
            "data": {"$": "array", "name": "array-0", "order": "C"},
            "indices": {"$": "array", "name": "array-0", "order": "C"},
            "indptr": {"$": "array", "name": "array-0", "order": "C"},
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_documents_are_refused(case, fitted, tmp_path):
    path = fitted["gamp"].save(tmp_path / "m")
    rewritten(path, HOSTILE[case])
    with pytest.raises(ValueError, match=r".*/m: .+ .+") as raised:
        foldless.load(path)
    assert type(raised.value).__name__ == "BadModelFile"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 8,
        b"\x93NUMPY\x01\x00",
        b"PK\x03\x04" + b"\0" * 100,
        struct.pack("<Q", 2**63) + b"{}",  # a header of eight exabytes
        struct.pack("<Q", 99_000_000) + b"{}",
        struct.pack("<Q", 2) + b"{}",
        struct.pack("<Q", 60) + b'{"a":{"dtype":"F64","shape":[999999999,999999999],"data_o',
        b"\x80\x04\x95\x1d\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x8c\x06system\x93\x8c\x04true\x85R.",
        b"cos\nsystem\n(S'true'\ntR.",
    ],
    ids=["empty", "zeros", "npy", "zip", "huge", "large", "no metadata", "claims", "pickle", "old pickle"],
)
def test_files_that_are_no_models(content, tmp_path):
    (tmp_path / "m").write_bytes(content)
    with pytest.raises(ValueError, match=r"/m: this is no (complete )?model"):
        foldless.load(tmp_path / "m")


def test_every_truncation_is_noticed(fitted, tmp_path):
    path = fitted["gamp"].save(tmp_path / "m")
    content = path.read_bytes()
    for size in [*range(64), *np.linspace(64, len(content) - 1, 60, dtype=int)]:
        path.write_bytes(content[:size])
        with pytest.raises(ValueError, match=r"/m: "):
            foldless.load(path)


def test_a_missing_file_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError):
        foldless.load(tmp_path / "nothing")


@pytest.fixture(scope="module")
def content(fitted, tmp_path_factory):
    return fitted["gamp"].save(tmp_path_factory.mktemp("fuzz") / "m").read_bytes()


@settings(max_examples=100)
@given(data=st.data())
def test_mutated_files_are_refused(content, tmp_path_factory, data):
    """Bytes changed anywhere, mostly in the header and the document."""
    position = data.draw(st.integers(0, len(content) - 1) | st.integers(0, 4000))
    replacement = data.draw(st.binary(min_size=1, max_size=8))
    mutated = content[:position] + replacement + content[position + len(replacement) :]
    assume(mutated != content)
    path = tmp_path_factory.mktemp("fuzz") / "m"
    path.write_bytes(mutated)
    with pytest.raises(ValueError, match=r"/m: "):
        foldless.load(path)


def test_every_byte_counts(content, tmp_path):
    """A bit of each byte of the header, and of some of the arrays."""
    path, rng = tmp_path / "m", np.random.default_rng(0)
    header = 8 + struct.unpack("<Q", content[:8])[0]
    for position in [*range(0, header, 3), *rng.integers(header, len(content), 100)]:
        path.write_bytes(
            content[:position] + bytes([content[position] ^ 1 << rng.integers(8)]) + content[position + 1 :]
        )
        with pytest.raises(ValueError, match=r"/m: "):
            foldless.load(path)


def test_a_checksum_that_was_moved_out_of_the_header_is_missed(fitted, tmp_path):
    """Two stretches that change places can make it part of an array's name; the rest is as it was."""
    path = fitted["gamp"].save(tmp_path / "m")
    content = path.read_bytes()
    entry = content[content.index(b', \\"sha256') : content.index(b'"},"array-')]
    path.write_bytes(content.replace(entry + b'"},"', b'}"},"' + entry[:-1]))
    with pytest.raises(ValueError, match="it has been changed"):
        foldless.load(path)


def test_weights_must_be_finite(fitted, tmp_path):
    def spoilt(document, _, arrays):
        name = document["fitted"]["coef_"]["name"]
        arrays[name] = np.full_like(arrays[name], np.nan)

    with pytest.raises(ValueError, match="coef_ has values that are not finite"):
        foldless.load(rewritten(fitted["gamp"].save(tmp_path / "m"), spoilt))
