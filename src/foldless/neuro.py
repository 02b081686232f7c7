"""Decoding with nilearn: images in, a map of weights and a map of inclusion probabilities out.

    from nilearn.maskers import NiftiMasker
    from foldless.neuro import Decoder

    decoder = Decoder(NiftiMasker(mask_img="mask.nii.gz")).fit(images, labels, groups=runs)
    decoder.inclusion_img_.to_filename("inclusion.nii.gz")

The masker does what maskers do (reading, smoothing, detrending); the classifier sees samples and voxels.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.validation import check_is_fitted

from foldless.estimators import SparseClassifier
from foldless.io.extras import needs


class Decoder(ClassifierMixin, BaseEstimator):
    """A masker and a classifier of what it extracts.

    Parameters
    ----------
    masker : nilearn masker
        Such as ``NiftiMasker``; it is cloned, and fitted unless it is already.
    estimator : foldless estimator, optional
        `SparseClassifier()` by default.

    Attributes
    ----------
    coef_img_ : image
        Weights of voxels, in log-odds per unit of signal; for more than two classes one volume each.
    inclusion_img_ : image
        The probability of each voxel to be part of the pattern, if the estimator gives one.
    masker_, estimator_ : as fitted
    classes_ : the classes
    """

    def __init__(self, masker: Any, estimator: Any = None) -> None:
        self.masker = masker
        self.estimator = estimator

    def fit(self, imgs: Any, y: ArrayLike, groups: ArrayLike | None = None) -> Self:
        """Fit to images, or a 4D image, one volume for each sample.

        Parameters
        ----------
        imgs : image or list of images
        y : array of shape (n_samples,)
        groups : array of shape (n_samples,), optional
            Runs or subjects: what is left out together when the error is estimated.
        """
        with needs("nilearn", "neuro", "to decode images"):
            import nilearn  # noqa: F401
        if not hasattr(self.masker, "inverse_transform"):
            raise TypeError(
                f"masker must be a nilearn masker, such as NiftiMasker(mask_img); got {self.masker!r}."
            )
        self.masker_ = clone(self.masker)
        signals = self.masker_.fit_transform(imgs)
        labels = np.asarray(y)
        if labels.shape != (signals.shape[0],):
            raise ValueError(
                f"There are {signals.shape[0]} volumes and y has shape {labels.shape}: one label for each "
                "volume is needed."
            )
        self.estimator_ = SparseClassifier() if self.estimator is None else clone(self.estimator)
        options = {} if groups is None else {"groups": np.asarray(groups)}
        self.estimator_.fit(signals, labels, **options)
        self.classes_ = self.estimator_.classes_
        self.coef_img_ = self._image(self.estimator_.coef_)
        if hasattr(self.estimator_, "inclusion_probability_"):
            self.inclusion_img_ = self._image(self.estimator_.inclusion_probability_)
        return self

    def predict(self, imgs: Any) -> NDArray[Any]:
        """The class of each volume."""
        return np.asarray(self.estimator_.predict(self._signals(imgs)))

    def predict_proba(self, imgs: Any) -> NDArray[Any]:
        """Class probabilities of each volume."""
        return np.asarray(self.estimator_.predict_proba(self._signals(imgs)))

    def decision_function(self, imgs: Any) -> NDArray[Any]:
        """Log-odds of each volume."""
        return np.asarray(self.estimator_.decision_function(self._signals(imgs)))

    def _signals(self, imgs: Any) -> NDArray[Any]:
        check_is_fitted(self)
        return np.asarray(self.masker_.transform(imgs))

    def _image(self, values: Any) -> Any:
        """A map over the mask: one volume, or one for each row."""
        rows = np.atleast_2d(values)
        return self.masker_.inverse_transform(rows[0] if len(rows) == 1 else rows)
