"""Accuracy and macro-F1 against their definitions."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from gids.models.metrics import Confusion, Score

pairs = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=30)


@given(pairs, st.integers(0, 30))
def test_score_is_what_the_definitions_say(chosen: list[tuple[int, int]], cut: int) -> None:
    labels, predictions = np.array(chosen).T
    confusion = Confusion(5)
    for part in (slice(None, cut), slice(cut, None)):
        confusion.add(torch.from_numpy(labels[part].copy()), torch.from_numpy(predictions[part].copy()))
    f1 = []
    for name in np.union1d(labels, predictions):
        right = ((labels == name) & (predictions == name)).sum()
        precision = right / max(1, (predictions == name).sum())
        recall = right / max(1, (labels == name).sum())
        f1.append(2 * precision * recall / (precision + recall) if right else 0.0)
    score = confusion.score()
    assert score.n == len(labels)
    assert np.isclose(score.accuracy, (labels == predictions).mean())
    assert np.isclose(score.macro_f1, np.mean(f1))


def test_nothing_counted() -> None:
    assert Confusion(3).score() == Score(0.0, 0.0, 0)
