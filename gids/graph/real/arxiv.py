"""Parts of ogbn-arxiv (Hu et al., NeurIPS 2020) in OGB's raw layout: labels, years and counts.

There is no edge list and there are no features in these parts, so they make no data set to train on; they fix
how OGB's files are read and what its split by time is.
"""

from __future__ import annotations

import gzip
import os
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gids.errors import DatasetError
from gids.graph.splits import Split

LAST_TRAINING_YEAR = 2017
VALIDATION_YEAR = 2018


@dataclass(frozen=True, eq=False)
class ArxivParts:
    """What is there of ogbn-arxiv.

    Attributes
    ----------
    n_nodes, n_edges : int
    labels : int64 array, shape (n_nodes,)
        Number of the paper's arXiv category.
    years : int64 array, shape (n_nodes,)
    categories : tuple of str
        Names by number.
    """

    n_nodes: int
    n_edges: int
    labels: npt.NDArray[np.int64]
    years: npt.NDArray[np.int64]
    categories: tuple[str, ...]

    def split(self) -> Split:
        """By time, as OGB does: up to 2017, 2018, later."""
        return Split(
            np.flatnonzero(self.years <= LAST_TRAINING_YEAR),
            np.flatnonzero(self.years == VALIDATION_YEAR),
            np.flatnonzero(self.years > VALIDATION_YEAR),
        )


def load_arxiv_parts(folder: str | os.PathLike[str]) -> ArxivParts:
    """Read `raw/*.csv.gz` and the names of the categories in `mapping/`.

    Raises
    ------
    DatasetError
        A file is missing or damaged, or the files do not fit together.
    """
    raw, mapping = Path(folder) / "raw", Path(folder) / "mapping"
    (n_nodes,), (n_edges,) = (_column(raw / f"num-{what}-list.csv.gz") for what in ("node", "edge"))
    categories = _categories(mapping / "labelidx2arxivcategeory.csv.gz")
    labels, years = (_column(raw / name) for name in ("node-label.csv.gz", "node_year.csv.gz"))
    for name, column in (("node-label.csv.gz", labels), ("node_year.csv.gz", years)):
        if len(column) != n_nodes:
            raise DatasetError(str(raw / name), f"{n_nodes} lines, one a node", f"{len(column)}")
    if labels.min() < 0 or labels.max() >= len(categories):
        expected = f"numbers of {len(categories)} categories"
        raise DatasetError(str(raw / "node-label.csv.gz"), expected, f"{labels.min()} to {labels.max()}")
    return ArxivParts(int(n_nodes), int(n_edges), labels, years, categories)


def _lines(path: Path) -> list[str]:
    try:
        with gzip.open(path, "rt", encoding="utf-8") as stream:
            lines = stream.read().splitlines()
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise DatasetError(str(path), "a gzip file of lines", str(error)) from error
    if not lines:
        raise DatasetError(str(path), "at least one line", "none")
    return lines


def _column(path: Path) -> npt.NDArray[np.int64]:
    try:
        return np.array([int(line) for line in _lines(path)], np.int64)
    except (ValueError, OverflowError) as error:
        if isinstance(error, DatasetError):
            raise
        raise DatasetError(str(path), "a whole number a line", str(error)) from error


def _categories(path: Path) -> tuple[str, ...]:
    names = []
    for number, line in enumerate(_lines(path)[1:]):
        index, comma, name = line.partition(",")
        if not comma or index != str(number):
            raise DatasetError(str(path), f"category {number} in line {number + 2}", repr(line))
        names.append(name)
    return tuple(names)
