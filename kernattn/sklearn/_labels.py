"""Classifiers: from scores to labels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from sklearn.base import ClassifierMixin

from kernattn._arrays.namespaces import Array
from kernattn.sklearn._inputs import pick_labels
from kernattn.sklearn._maps import MapEstimator


class Classifier(ClassifierMixin, MapEstimator, ABC):
    """A classifier by scores."""

    classes_: Any

    @abstractmethod
    def _scores(self, x: Array) -> Array:
        """Return scores (n,) of the second of two classes, or (n, K) of all."""

    def decision_function(self, X: Any) -> Any:
        """Return the scores of the classes.

        Parameters
        ----------
        X : (n, d) array_like
            Rows.

        Returns
        -------
        (n,) or (n, K) array
            Of two classes, that of the second alone, which is predicted where it is positive.
        """
        return self._scores(self._check_new(X))

    def predict(self, X: Any) -> Any:
        """Return the labels of the largest scores.

        Parameters
        ----------
        X : (n, d) array_like
            Rows.

        Returns
        -------
        (n,) array
            Labels.
        """
        scores = self.decision_function(X)
        return pick_labels(self.classes_, scores)
