"""Splits are those of the data set's own loaders and of MLPerf's reference."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bam.errors import ConfigError
from gids.graph.dataset import Task
from gids.graph.splits import Split, SplitRule, igb_split, mlperf_split


def test_sixty_twenty_twenty_in_order() -> None:
    split = igb_split(1003)
    assert np.array_equal(np.concatenate([split.train, split.validation, split.test]), np.arange(1003))
    assert (len(split.train), len(split.validation), len(split.test)) == (601, 200, 202)
    assert split.train.dtype == np.int64


def test_mlperf_permutation_is_the_reference_s() -> None:
    torch.manual_seed(42)
    order = torch.randperm(10_000).numpy()
    split = mlperf_split(10_000, 10_000)
    assert np.array_equal(split.train, order[:6000])
    assert np.array_equal(split.validation, order[6000:6050])
    assert len(split.test) == 0


def test_mlperf_split_leaves_padding_out() -> None:
    split = mlperf_split(1000, 970)
    torch.manual_seed(42)
    order = torch.randperm(1000).numpy()
    assert np.array_equal(split.train, [paper for paper in order[:600] if paper < 970])
    assert split.validation.max() < 970


def test_a_task_offers_the_splits_it_has() -> None:
    labels = np.zeros(100, np.int16)
    task = Task("19", "paper", 19, labels, 100, 100)
    assert len(task.split().train) == len(task.split("mlperf").train) == 60
    with pytest.raises(ConfigError, match="'igb' or 'mlperf'"):
        task.split(SplitRule.FILES)
    given = Split(np.array([3]), np.array([4]), np.array([5]))
    own = Task("x", "paper", 19, labels, 100, given=given)
    assert own.split("files") is given
    with pytest.raises(ConfigError, match="'files'"):
        own.split("igb")
