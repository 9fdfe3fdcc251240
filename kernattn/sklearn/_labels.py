"""What classifiers share: from scores to labels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from kernattn._arrays.namespaces import Array
from kernattn.sklearn._inputs import likeliest, rows


class Classifier(ClassifierMixin, ABC):
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
        check_is_fitted(self)
        return self._scores(rows(self, X, reset=False))

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
        return likeliest(self.classes_, scores)
