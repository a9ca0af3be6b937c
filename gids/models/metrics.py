"""Accuracy and macro-F1 from counts of (true class, predicted class)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gids.models.config import Measure


@dataclass(frozen=True)
class Score:
    """How good predictions are.

    Attributes
    ----------
    accuracy : float
        Share of right ones; with one class per node that is micro-F1.
    macro_f1 : float
        Mean F1 over the classes that occur among labels or predictions.
    n : int
        Predictions.
    """

    accuracy: float
    macro_f1: float
    n: int

    def by(self, measure: Measure) -> float:
        """One of the two."""
        return self.accuracy if measure is Measure.ACCURACY else self.macro_f1


class Confusion:
    """Counts of (true class, predicted class), added up batch by batch.

    Parameters
    ----------
    n_classes : int
    """

    def __init__(self, n_classes: int) -> None:
        self.counts = torch.zeros(n_classes, n_classes, dtype=torch.int64)

    def add(self, labels: Tensor, predictions: Tensor) -> None:
        """Count predictions, integers of shape (n,), for labels of the same shape."""
        n_classes = len(self.counts)
        codes = labels.to("cpu", torch.int64) * n_classes + predictions.to("cpu", torch.int64)
        self.counts += torch.bincount(codes, minlength=n_classes * n_classes).reshape(self.counts.shape)

    def score(self) -> Score:
        """What was counted so far; zeros for nothing."""
        n = int(self.counts.sum())
        right = self.counts.diagonal().to(torch.float64)
        labelled_or_predicted = (self.counts.sum(0) + self.counts.sum(1)).to(torch.float64)
        occurs = labelled_or_predicted > 0
        if n == 0:
            return Score(0.0, 0.0, 0)
        f1 = 2 * right[occurs] / labelled_or_predicted[occurs]
        return Score(float(right.sum()) / n, float(f1.mean()), n)
