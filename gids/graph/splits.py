"""Which labelled nodes train, validate and test."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

import numpy as np
import numpy.typing as npt

MLPERF_SEED = 42
MLPERF_VALIDATION_SHARE = 0.005


class SplitRule(Enum):
    """How a split came about.

    ``IGB``: the first 60 % of the labelled nodes train, the next 20 % validate, the others test, as in the
    data set's own loaders. ``MLPERF``: 60 % and 0.5 % of a random permutation, no test nodes, as in MLPerf's
    reference. ``FILES``: lists of node ids that came with the data.
    """

    IGB = "igb"
    MLPERF = "mlperf"
    FILES = "files"


@dataclass(frozen=True, eq=False)
class Split:
    """Node ids, int64, each array of shape (n,); no id is in two of them.

    Attributes
    ----------
    train, validation, test : int64 array
    """

    train: npt.NDArray[np.int64]
    validation: npt.NDArray[np.int64]
    test: npt.NDArray[np.int64]


def igb_split(n_labelled: int) -> Split:
    """60 / 20 / 20 of the nodes 0 … ``n_labelled - 1``, in order."""
    train, validation = int(n_labelled * 0.6), int(n_labelled * 0.2)
    bounds = [0, train, train + validation, n_labelled]
    return Split(*(np.arange(*ends, dtype=np.int64) for ends in pairwise(bounds)))


def mlperf_split(n_permuted: int, n_labelled: int) -> Split:
    """The split of MLPerf's GNN benchmark (`split_seeds.py` with its default seed).

    The reference permutes ``n_permuted`` nodes; in the full set with 2,983 classes that takes in nodes whose
    labels are padding. They are left out here, so that 2.7 % of the reference's nodes are missing in that one
    case.

    Parameters
    ----------
    n_permuted, n_labelled : int
    """
    import torch

    order = torch.randperm(n_permuted, generator=torch.Generator().manual_seed(MLPERF_SEED)).numpy()
    train = int(n_permuted * 0.6)
    validation = order[train : train + int(n_permuted * MLPERF_VALIDATION_SHARE)]
    labelled = (part[part < n_labelled] for part in (order[:train], validation, order[:0]))
    return Split(*labelled)
