"""How often an epoch asks for each row of features, known before it runs, and kept beside the data set.

A row's count is kept as one byte, in steps of 6 %: for all 547 million nodes of IGBH-full half a gigabyte,
which is mapped and not read. Two decisions need it: which rows the constant buffer holds, and when a page is
needed again that the window does not reach.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gids.errors import DatasetError
from gids.graph.dataset import Dataset

Levels = npt.NDArray[np.uint8]
Counts = npt.NDArray[np.float32]

FOLDER = "hotness"
INDEX_NAME = "hotness.json"
VERSION = 1

_STEPS_PER_OCTAVE = 12
_SMALLEST_EXPONENT = -6
#: Dispersion where it was not measured: epochs of the same graph differ by little (see
#: :mod:`gids.fetch.forecast`).
USUAL_DISPERSION = 0.25


class HotnessMethod(Enum):
    """How expected requests were found; see :mod:`gids.fetch.hotness_methods`."""

    MEASURED = "measured"
    EXPECTED = "expected"
    PAGERANK = "pagerank"
    DEGREE = "degree"


@dataclass(frozen=True, eq=False)
class ExpectedRequests:
    """Requests of an epoch, by node type and row.

    Attributes
    ----------
    method : HotnessMethod
    n_batches : int
        Mini-batches of the epoch.
    epochs : int
        Sampled for it; 0 for methods that do not sample.
    dispersion : float
        Variance over mean of a row's count, between epochs: 1 were each request made by chance, 0 were all
        epochs alike.
    levels : mapping of str to uint8 array, shape (rows,)
        Steps of :func:`counts_of_levels`.
    settings : mapping
        What was sampled: fanouts, batch size, seeds. For people to read.
    """

    method: HotnessMethod
    n_batches: int
    epochs: int
    dispersion: float
    levels: Mapping[str, Levels]
    settings: Mapping[str, Any]

    def whole_counts(self, name: str) -> npt.NDArray[np.int64]:
        """Requests for each row of a type in 1000 epochs; int64, shape (rows,)."""
        per_level = np.rint(1000 * counts_of_levels()).astype(np.int64)
        counts: npt.NDArray[np.int64] = per_level[self.levels[name]]
        return counts


def counts_of_levels() -> Counts:
    """Count that each level stands for; float32, shape (256,). Level 0 is none at all."""
    exponents = _SMALLEST_EXPONENT + (np.arange(256) - 1) / _STEPS_PER_OCTAVE
    counts = np.exp2(exponents).astype(np.float32)
    counts[0] = 0
    return counts


def levels_of_counts(counts: npt.NDArray[np.floating[Any]]) -> Levels:
    """Nearest level of each count."""
    with np.errstate(divide="ignore"):
        steps = np.rint(_STEPS_PER_OCTAVE * (np.log2(counts) - _SMALLEST_EXPONENT)) + 1
    levels: Levels = np.clip(steps, 0, 255).astype(np.uint8)
    return levels


def save_expected(requests: ExpectedRequests, folder: str | os.PathLike[str]) -> Path:
    """Write to `folder`/hotness, replacing what is there; the index last, so that it never names what is
    missing.

    Returns
    -------
    Path
        The index.
    """
    inside = Path(folder) / FOLDER
    inside.mkdir(parents=True, exist_ok=True)
    index = inside / INDEX_NAME
    index.unlink(missing_ok=True)
    for name, levels in requests.levels.items():
        partial = inside / f"{name}.npy.partial"
        with open(partial, "wb") as file:
            np.save(file, levels)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(inside / f"{name}.npy")
    text = {
        "version": VERSION,
        "method": requests.method.value,
        "n_batches": requests.n_batches,
        "epochs": requests.epochs,
        "dispersion": requests.dispersion,
        "rows": {name: len(levels) for name, levels in requests.levels.items()},
        "settings": dict(requests.settings),
    }
    partial = index.with_name(INDEX_NAME + ".partial")
    partial.write_text(json.dumps(text, indent=1) + "\n", encoding="utf-8")
    partial.replace(index)
    return index


def load_expected_of(dataset: Dataset) -> ExpectedRequests | None:
    """What `gids hotness` saved beside a data set; None where it did not.

    Raises
    ------
    DatasetError
        It was of another data set: the node types, rows or edges are not the same.
    """
    requests = load_expected(dataset.path)
    if requests is None:
        return None
    index = Path(dataset.path) / FOLDER / INDEX_NAME
    edges = requests.settings.get("edges", dataset.graph.num_edges)
    if edges != dataset.graph.num_edges:
        raise _of_another(index, f"{dataset.graph.num_edges} edges", f"{edges} edges")
    for name, levels in requests.levels.items():
        n_rows = dataset.features[name].n_rows if name in dataset.features else 0
        if len(levels) != n_rows:
            raise _of_another(index, f"{n_rows} rows of {name!r}", f"{len(levels)} rows")
    return requests


def _of_another(index: Path, expected: str, found: str) -> DatasetError:
    return DatasetError(str(index), f"{expected}, as in the data set (run `gids hotness` again)", found)


def load_expected(folder: str | os.PathLike[str]) -> ExpectedRequests | None:
    """What was saved for a data set; None where nothing was.

    Raises
    ------
    DatasetError
        The files are of another version or do not fit each other.
    """
    index = Path(folder) / FOLDER / INDEX_NAME
    if not index.is_file():
        return None
    text = json.loads(index.read_text(encoding="utf-8"))
    if text.get("version") != VERSION:
        raise DatasetError(str(index), f"version {VERSION}", f"version {text.get('version')}")
    levels = {}
    for name, n_rows in text["rows"].items():
        path = index.with_name(f"{name}.npy")
        if not path.is_file():
            raise DatasetError(str(path), f"{n_rows} bytes, one for each row", "no file")
        levels[name] = np.load(path, mmap_mode="r")
        if levels[name].shape != (n_rows,) or levels[name].dtype != np.uint8:
            raise DatasetError(str(path), f"{n_rows} bytes, one for each row", str(levels[name].shape))
    return ExpectedRequests(
        HotnessMethod(text["method"]),
        text["n_batches"],
        text["epochs"],
        text["dispersion"],
        levels,
        text["settings"],
    )
