"""The field's own objects: AnnData with results in its places, nilearn images in and maps out."""

from __future__ import annotations

import builtins

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

import foldless
from reference.tables import anndata_of, small


@pytest.fixture
def without(monkeypatch):
    """A way to pretend that a package is not installed."""
    real = builtins.__import__

    def hide(package):
        def refuse(name, *rest):
            if name.partition(".")[0] == package:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
            return real(name, *rest)

        monkeypatch.setattr(builtins, "__import__", refuse)

    return hide


# ------------------------------------------------------------------ AnnData


def test_anndata_round_trip_with_sparse_x(tmp_path):
    anndata = pytest.importorskip("anndata")
    import foldless.anndata

    adata = anndata_of(small())
    adata.X = adata.X.astype(np.float32)
    before = adata.X.copy()
    model = foldless.anndata.classify(adata, "state", groups="donor", covariates=["age"])
    assert sp.issparse(adata.X)
    assert (before != adata.X).nnz == 0
    adata.write_h5ad(tmp_path / "a.h5ad")
    read = anndata.read_h5ad(tmp_path / "a.h5ad")
    assert sp.issparse(read.X)
    assert read.X.dtype == np.float32
    # Covariates of obs stand before the genes in the model, and nowhere in var.
    assert_array_equal(read.var["foldless_weight"], model.sparse_coef_[0, 1:])
    assert_array_equal(read.var["foldless_weight_sd"], model.sparse_coef_std_[0, 1:])
    assert_array_equal(read.var["foldless_inclusion_probability"], model.inclusion_probability_[1:])
    assert_array_equal(read.var["foldless_selected"], model.get_support()[1:])
    assert set(read.var["foldless_inclusion_probability"].nlargest(2).index) == {"gene 0", "gene 1"}
    assert_array_equal(read.obs["foldless_loo_probability"], model.loo_proba_.max(axis=1))
    assert set(read.obs["foldless_loo_predicted"]) == {"ill", "well"}
    found = read.uns["foldless"]
    assert list(found["classes"]) == ["ill", "well"]
    assert_allclose(found["loo_error"], model.loo_error_)
    assert_array_equal(found["covariate_weights"], model.sparse_coef_[:, [0]])
    # The model predicts the same from the matrix it was fitted to.
    both = sp.hstack([sp.csr_matrix(adata.obs[["age"]].to_numpy(np.float32)), adata.X], format="csr")
    with pytest.warns(UserWarning, match="feature names"):
        assert (model.predict(both) == adata.obs["state"]).mean() > 0.9


def test_anndata_by_layer_key_and_model():
    pytest.importorskip("anndata")
    import foldless.anndata

    adata = anndata_of(small())
    adata.layers["doubled"] = 2.0 * adata.X
    estimator = foldless.SMLRClassifier(n_rates=5)
    model = foldless.anndata.classify(adata, "state", layer="doubled", model=estimator, key="l1")
    plain = clone(estimator).fit(adata.layers["doubled"], adata.obs["state"].to_numpy())
    assert_allclose(adata.var["l1_weight"], plain.coef_[0])
    assert not hasattr(estimator, "coef_")
    assert "l1_inclusion_probability" not in adata.var
    assert adata.uns["l1"]["layer"] == "doubled"
    assert model.feature_names_in_.tolist() == small().features


def test_anndata_says_what_is_missing():
    pytest.importorskip("anndata")
    import foldless.anndata

    adata = anndata_of(small())
    with pytest.raises(ValueError, match=r"no column of obs 'stat'.*Did you mean 'state'"):
        foldless.anndata.classify(adata, "stat")
    with pytest.raises(ValueError, match="no layer 'counts'"):
        foldless.anndata.classify(adata, "state", layer="counts")
    assert list(adata.var.columns) == []


def test_without_anndata_the_extra_is_named(without):
    import foldless.anndata

    without("anndata")
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'foldless\[anndata\]'"):
        foldless.anndata.classify(object(), "state")


# ------------------------------------------------------------------ nilearn


def volumes(rng, n_samples=40):
    nibabel = pytest.importorskip("nibabel")
    mask = np.zeros((5, 6, 7), np.int8)
    mask[1:4, 1:5, 1:6] = 1
    affine = np.diag([3.0, 3.0, 3.0, 1.0])
    labels = np.array(["face", "house"] * (n_samples // 2))
    data = rng.standard_normal((*mask.shape, n_samples)).astype(np.float32)
    data[2, 3, 4, labels == "face"] += 3.0
    return nibabel.Nifti1Image(data, affine), nibabel.Nifti1Image(mask, affine), labels


@pytest.mark.filterwarnings("default:boolean values:FutureWarning")
def test_nilearn_round_trip_on_a_small_nifti(tmp_path):
    pytest.importorskip("nilearn")
    import nibabel
    from nilearn.maskers import NiftiMasker

    from foldless.neuro import Decoder

    images, mask, labels = volumes(np.random.default_rng(0))
    nibabel.save(images, tmp_path / "run.nii.gz")
    nibabel.save(mask, tmp_path / "mask.nii.gz")
    masker = NiftiMasker(mask_img=str(tmp_path / "mask.nii.gz"), standardize=None)
    decoder = Decoder(masker).fit(str(tmp_path / "run.nii.gz"), labels, groups=np.arange(40) // 10)
    # The same fit by hand, and the maps are its numbers where the mask is.
    inside = mask.get_fdata() > 0
    signals = images.get_fdata(dtype=np.float32)[inside].T
    model = foldless.SparseClassifier().fit(signals, labels, groups=np.arange(40) // 10)
    decoder.coef_img_.to_filename(tmp_path / "coef.nii.gz")
    weights = nibabel.load(tmp_path / "coef.nii.gz").get_fdata()
    assert weights.shape == mask.shape
    assert_allclose(weights[inside], model.coef_[0], rtol=1e-4, atol=1e-6)
    assert not weights[~inside].any()
    inclusion = decoder.inclusion_img_.get_fdata()
    assert_allclose(inclusion[inside], model.inclusion_probability_, rtol=1e-4, atol=1e-6)
    assert np.unravel_index(np.argmax(inclusion), inclusion.shape) == (2, 3, 4)
    new, _, truth = volumes(np.random.default_rng(1))
    assert (decoder.predict(new) == truth).mean() > 0.8
    assert_allclose(decoder.predict_proba(new).sum(axis=1), 1.0, rtol=1e-6)
    assert decoder.score(new, truth) == (decoder.predict(new) == truth).mean()
    assert list(decoder.classes_) == ["face", "house"]


@pytest.mark.filterwarnings("default:boolean values:FutureWarning")
def test_a_map_for_each_of_many_classes():
    pytest.importorskip("nilearn")
    from nilearn.maskers import NiftiMasker

    from foldless.neuro import Decoder

    images, mask, _ = volumes(np.random.default_rng(0))
    labels = np.array(["face", "house", "cat", "shoe"] * 10)
    decoder = Decoder(NiftiMasker(mask, standardize=None), foldless.SMLRClassifier(n_rates=4)).fit(
        images, labels
    )
    assert decoder.coef_img_.shape == (*mask.shape, 4)
    assert not hasattr(decoder, "inclusion_img_")
    with pytest.raises(ValueError, match="40 volumes and y has shape"):
        Decoder(NiftiMasker(mask, standardize=None)).fit(images, labels[:-1])


def test_without_nilearn_the_extra_is_named(without):
    from foldless.neuro import Decoder

    decoder = Decoder(masker=None)
    without("nilearn")
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'foldless\[neuro\]'"):
        decoder.fit([], [])


def test_a_masker_is_needed():
    pytest.importorskip("nilearn")
    from foldless.neuro import Decoder

    with pytest.raises(TypeError, match="must be a nilearn masker"):
        Decoder("mask.nii.gz").fit([], [])
