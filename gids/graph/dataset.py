"""A data set that can be trained on: graph, features that stay in files, labels and splits.

A converted store and an official folder opened in place look the same here, and node ids are those of the
original data in both: a hot-first store moves feature rows only, and `Features.rank` says where to. So the
same seeds give the same mini-batches from either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bam.array.description import ArrayDescription
from bam.array.sources import Source
from bam.errors import ConfigError
from gids.errors import NodeOutOfRange
from gids.graph.feature_types import FeatureDtype, decode_rows
from gids.graph.graph import Graph
from gids.graph.splits import Split, SplitRule, igb_split, mlperf_split


@dataclass(frozen=True, eq=False)
class Features:
    """Feature rows of one node type.

    Attributes
    ----------
    node_type : str
    dtype : FeatureDtype
    dim : int
    source : bam source
        Opens the rows as they are stored, shape (rows, dim).
    description : ArrayDescription
        Where they lie.
    rank : int32 or int64 array, shape (nodes,), optional
        Row of each node (a memory map); None: node v's row is v. In a hot-first store row 0 is the hottest.
    levels : int64 array, shape (n, 2), optional
        Of a hot-first store: falling degrees and how many rows have each; see :mod:`gids.graph.hotness`.
    scale : float32 array, shape (dim,), optional
        Of int8 rows.
    """

    node_type: str
    dtype: FeatureDtype
    dim: int
    source: Source
    description: ArrayDescription
    rank: npt.NDArray[Any] | None = None
    levels: npt.NDArray[np.int64] | None = None
    scale: npt.NDArray[np.float32] | None = None

    @property
    def n_rows(self) -> int:
        """Rows, one for each node."""
        return self.description.shape[0]

    @property
    def row_bytes(self) -> int:
        """Bytes of a stored row."""
        return self.description.row_bytes

    def rows_of(self, nodes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Row numbers of nodes, int64."""
        return nodes if self.rank is None else self.rank[nodes].astype(np.int64)

    def take(self, nodes: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """Features of nodes, decoded to float32, shape (n, dim): the plain path, through a memory map.

        Raises
        ------
        NodeOutOfRange
        """
        ids = np.asarray(nodes, np.int64).reshape(-1)
        wrong = (ids < 0) | (ids >= self.n_rows)
        if wrong.any():
            at = int(np.argmax(wrong))
            raise NodeOutOfRange(self.node_type, int(ids[at]), self.n_rows, at)
        rows = self.rows_of(ids)
        stored = np.empty((len(ids), self.dim), self.dtype.stored)
        first = 0
        for extent in self.description.layout.extents:
            count = extent.length // self.row_bytes
            mapped = self._view(extent.file, extent.file_offset, count)
            inside = (rows >= first) & (rows < first + count)
            stored[inside] = mapped[rows[inside] - first]
            first += count
        return decode_rows(stored, self.dtype, self.scale)

    def _view(self, file: int, offset: int, n_rows: int) -> npt.NDArray[Any]:
        """Rows of one file, or of the array in memory, without reading them."""
        if self.description.memory:
            part = self.description.memory[file][offset : offset + n_rows * self.row_bytes]
            return part.view(self.dtype.stored).reshape(n_rows, self.dim)
        path = self.description.files[file].path
        return np.memmap(path, self.dtype.stored, "r", offset, (n_rows, self.dim))


@dataclass(frozen=True, eq=False)
class Task:
    """What is to be learned about one node type.

    Attributes
    ----------
    name, node_type : str
    n_classes : int
    labels : int16 array, shape (nodes,)
        -1 where there is no label.
    n_labelled, n_permuted : int
        As in :class:`gids.graph.manifest.TaskRecord`.
    given : Split, optional
        A split that came with the data.
    """

    name: str
    node_type: str
    n_classes: int
    labels: npt.NDArray[np.int16]
    n_labelled: int
    n_permuted: int = 0
    given: Split | None = None

    def split(self, rule: SplitRule | str = SplitRule.IGB) -> Split:
        """Nodes that train, validate and test.

        Raises
        ------
        ConfigError
            The data has no such split.
        """
        rules = [SplitRule.IGB] if self.given is None else [SplitRule.FILES]
        rules += [SplitRule.MLPERF] if self.n_permuted else []
        if rule not in rules and rule not in [each.value for each in rules]:
            raise ConfigError("split", rule, " or ".join(repr(each.value) for each in rules))
        chosen = SplitRule(rule)
        if self.given is not None and chosen is SplitRule.FILES:
            return self.given
        if chosen is SplitRule.MLPERF:
            return mlperf_split(self.n_permuted, self.n_labelled)
        return igb_split(self.n_labelled)

    def usual_split(self, rule: SplitRule | str = "") -> Split:
        """By `rule`; without one the split that came with the data, or else the first that it can be given.

        Raises
        ------
        ConfigError
        """
        if rule:
            return self.split(rule)
        return self.split() if self.given is None else self.given

    def class_counts(self, nodes: npt.NDArray[np.int64]) -> list[int]:
        """How many of `nodes`, which have labels, are of each class."""
        counts: list[int] = np.bincount(self.labels[nodes], minlength=self.n_classes).tolist()
        return counts


@dataclass(frozen=True, eq=False)
class Dataset:
    """Graph, features by node type, tasks by name.

    Attributes
    ----------
    path : Path
    graph : Graph
    features : mapping of str to Features
    tasks : mapping of str to Task
        IGBH has ``"19"`` and ``"2983"``, named after the number of classes.
    """

    path: Path
    graph: Graph
    features: Mapping[str, Features]
    tasks: Mapping[str, Task]
