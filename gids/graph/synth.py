"""A synthetic IGBH folder: published layout and node counts, contents that a graph model can learn.

Every paper has one of 2,983 subclasses, 157 in each of 19 classes; so do authors, fields of study and the
others. Edges prefer nodes of the same (sub)class; features are the mean of the class plus noise so strong
that one row tells little, and several neighbours' rows tell much.

Written from any point on: each chunk depends on the seed and its position only (see
:mod:`gids.graph.synth_kernels`). Memory in use: about 100 MB for Python and compiled code, 12 MB at dim 1024
for the class means, and 8 MiB a worker, whatever the scale.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bam.errors import ConfigError
from gids.errors import DatasetError
from gids.graph import synth_kernels as kernels
from gids.graph.chunked import ChunkedFile, require_free_bytes, write_chunks, write_text
from gids.graph.igbh_facts import (
    EDGE_FILE,
    FEATURE_FILE,
    LABEL_FILES,
    LABELLED_TYPE,
    OPTIONAL_RELATIONS,
    PROCESSED,
    PUBLISHED,
    PUBLISHED_DIM,
    REQUIRED_RELATIONS,
    IgbhSize,
)
from gids.graph.journal import Journal, Result, clear_leftovers, partial_folder, publish
from gids.graph.npy_text import npy_header
from gids.graph.progress import Progress, no_progress
from gids.graph.schema import EdgeType
from gids.graph.toml_text import toml_text

CHUNK_BYTES = 8 * 2**20
RECORD_NAME = "synthetic.toml"
VERSION = 1

#: Length of the mean vectors of classes and subclasses, in standard deviations of the noise.
CLASS_SIGNAL = 1.5
SUBCLASS_SIGNAL = 1.0
#: Share of edges that stay in the subclass, and of the others that stay in the class, by relation.
HOMOPHILY = {
    "cites": (0.45, 0.25),
    "written_by": (0.55, 0.25),
    "affiliated_to": (0.30, 0.30),
    "topic": (0.40, 0.25),
    "published": (0.40, 0.35),
    "venue": (0.40, 0.35),
}
#: Edges per paper where the data set's count is not published.
EDGES_PER_PAPER = {"published": 0.5, "venue": 0.1}


@dataclass(frozen=True)
class SynthPlan:
    """What a synthetic folder will hold.

    Attributes
    ----------
    nodes, edges : dict of str to int
        Counts by node type, and by relation.
    headerless_types : frozenset of str
        Node types whose ``node_feat.npy`` has no npy header; labels have none either when ``paper`` is among
        them.
    dim : int
        Elements of a feature row (float32).
    seed : int
    """

    nodes: dict[str, int]
    edges: dict[str, int]
    headerless_types: frozenset[str]
    dim: int
    seed: int

    @property
    def relations(self) -> tuple[EdgeType, ...]:
        """The edge folders."""
        known = REQUIRED_RELATIONS + OPTIONAL_RELATIONS
        return tuple(relation for relation in known if relation.rel in self.edges)


def synthesize(
    out: str | os.PathLike[str],
    scale: str | float,
    seed: int = 0,
    *,
    dim: int = PUBLISHED_DIM,
    headerless: bool | None = None,
    workers: int | None = None,
    progress: Progress = no_progress,
) -> Path:
    """Write a synthetic IGBH folder, or finish one that an earlier, interrupted call began.

    Parameters
    ----------
    out : path
        Folder to make; it appears when it is complete.
    scale : str or float
        ``tiny``, ``small``, ``medium``, ``large``, ``full``: the published counts; or a number in (0, 1]:
        that share of tiny's nodes and edges.
    seed : int
        The same seed, scale and dim give the same bytes.
    dim : int
        Elements of a feature row.
    headerless : bool, optional
        Write features of papers and authors, and labels, without npy headers. Left out: as published, that is
        for ``large`` and ``full``.
    workers : int, optional
        Threads; by default one per CPU this process may use.
    progress : Progress

    Returns
    -------
    Path
        `out`.

    Raises
    ------
    ConfigError, DatasetError, UnfinishedWorkError
        A setting cannot work; `out` exists and is something else; other unfinished work lies in its place.
    DiskFullError
        Before any work, or later; calling again goes on.
    """
    final = Path(out)
    plan = plan_synthesis(scale, seed, dim=dim, headerless=headerless)
    record = _record(plan)
    if final.exists():
        found = (final / RECORD_NAME).read_text() if (final / RECORD_NAME).is_file() else None
        if found == record:
            clear_leftovers(final)
            return final
        raise DatasetError(
            str(final),
            "nothing there, or the synthetic folder of these settings",
            "a folder of other settings" if found else "something else",
        )
    folder = partial_folder(final)
    require_free_bytes(folder, total_bytes(plan) - _bytes_in(folder))
    with Journal.open_or_resume(folder, {"work": "synth", "record": record}) as journal:
        for array in _arrays(plan):
            _write_array(journal, array, workers or len(os.sched_getaffinity(0)), progress)
        write_text(folder / RECORD_NAME, record)
        publish(folder, final, replace=False)
    return final


def plan_synthesis(
    scale: str | float, seed: int, *, dim: int = PUBLISHED_DIM, headerless: bool | None = None
) -> SynthPlan:
    """Counts of a synthetic folder; see :func:`synthesize` for the parameters."""
    if dim < 1:
        raise ConfigError("dim", dim, "at least 1")
    if not 0 <= seed < 2**63:
        raise ConfigError("seed", seed, "a number from 0 to 2**63 - 1")
    size, share = _parse_scale(scale)
    facts = PUBLISHED[size]
    nodes = {name: max(1, math.ceil(count * share)) for name, count in facts.nodes.items()}
    edges = {name: math.ceil(count * share) for name, count in facts.edges.items()}
    if size in (IgbhSize.LARGE, IgbhSize.FULL):
        edges |= {name: int(nodes["paper"] * per_paper) for name, per_paper in EDGES_PER_PAPER.items()}
    else:
        nodes = {name: count for name, count in nodes.items() if name not in ("journal", "conference")}
    raw_types = frozenset({"paper", "author"}) if headerless else frozenset[str]()
    return SynthPlan(nodes, edges, facts.headerless_types if headerless is None else raw_types, dim, seed)


def total_bytes(plan: SynthPlan) -> int:
    """Bytes of all files of the folder, within a few kB."""
    rows = sum(plan.nodes.values()) * plan.dim * 4
    return rows + 16 * sum(plan.edges.values()) + 4 * len(LABEL_FILES) * plan.nodes[LABELLED_TYPE]


def _parse_scale(scale: str | float) -> tuple[IgbhSize, float]:
    expected = f"one of {', '.join(size.value for size in IgbhSize)}, or a share of tiny in (0, 1]"
    try:
        return IgbhSize(scale), 1.0
    except ValueError:
        pass
    try:
        share = float(scale)
    except ValueError:
        raise ConfigError("scale", scale, expected) from None
    if not 0 < share <= 1:
        raise ConfigError("scale", scale, expected)
    return IgbhSize.TINY, share


def _record(plan: SynthPlan) -> str:
    return toml_text(
        {
            "format": "gids-synthetic-igbh",
            "version": VERSION,
            "seed": plan.seed,
            "dim": plan.dim,
            "headerless_types": sorted(plan.headerless_types),
            "nodes": plan.nodes,
            "edges": plan.edges,
        }
    )


def _bytes_in(folder: Path) -> int:
    """Bytes that the files of an interrupted run already occupy on the disk."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


@dataclass(frozen=True)
class _Array:
    """A file of the folder; ``fill(rows, first)`` makes the rows from number `first` on."""

    path: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    has_header: bool
    fill: Callable[[npt.NDArray[Any], int], None]

    def file(self, folder: Path) -> ChunkedFile:
        row_bytes = self.dtype.itemsize * math.prod(self.shape[1:])
        chunk_rows = max(1, CHUNK_BYTES // row_bytes)
        header = npy_header(self.shape, self.dtype) if self.has_header else b""
        return ChunkedFile(folder / self.path, header, self.shape[0] * row_bytes, chunk_rows * row_bytes)


def _arrays(plan: SynthPlan) -> Iterator[_Array]:
    for relation in plan.relations:
        yield _edges(plan, relation)
    for n_classes, name in LABEL_FILES.items():
        yield _labels(plan, n_classes, name)
    means = _means(plan, "class", kernels.N_CLASSES, CLASS_SIGNAL)
    submeans = _means(plan, "subclass", kernels.N_SUBCLASSES, SUBCLASS_SIGNAL)
    for node_type in plan.nodes:
        yield _features(plan, node_type, means, submeans)


def _edges(plan: SynthPlan, relation: EdgeType) -> _Array:
    source = node_space(plan.nodes[relation.src], plan.seed, relation.src)
    destination = node_space(plan.nodes[relation.dst], plan.seed, relation.dst)
    key = _key(plan.seed, f"edges of {relation.rel}")
    same_subclass, same_class = (np.uint64(round(share * 65536)) for share in HOMOPHILY[relation.rel])

    def fill(rows: npt.NDArray[Any], first: int) -> None:
        kernels.fill_edges(rows, first, key, source, destination, same_subclass, same_class)

    path = f"{PROCESSED}/{relation}/{EDGE_FILE}"
    return _Array(path, (plan.edges[relation.rel], 2), np.dtype(np.int64), True, fill)


def _labels(plan: SynthPlan, n_classes: int, name: str) -> _Array:
    papers = plan.nodes[LABELLED_TYPE]
    space, group = node_space(papers, plan.seed, LABELLED_TYPE), kernels.N_SUBCLASSES // n_classes

    def fill(rows: npt.NDArray[Any], first: int) -> None:
        kernels.fill_labels(rows, first, space, group)

    path, has_header = f"{PROCESSED}/{LABELLED_TYPE}/{name}", LABELLED_TYPE not in plan.headerless_types
    return _Array(path, (papers,), np.dtype(np.float32), has_header, fill)


def _features(
    plan: SynthPlan, node_type: str, means: npt.NDArray[np.float32], submeans: npt.NDArray[np.float32]
) -> _Array:
    count = plan.nodes[node_type]
    space, key = node_space(count, plan.seed, node_type), _key(plan.seed, f"features of {node_type}")

    def fill(rows: npt.NDArray[Any], first: int) -> None:
        kernels.fill_features(rows, first, key, space, means, submeans)

    path, has_header = f"{PROCESSED}/{node_type}/{FEATURE_FILE}", node_type not in plan.headerless_types
    return _Array(path, (count, plan.dim), np.dtype(np.float32), has_header, fill)


def _write_array(journal: Journal, array: _Array, workers: int, progress: Progress) -> None:
    file = array.file(journal.folder)
    file.path.parent.mkdir(parents=True, exist_ok=True)
    row_bytes = array.dtype.itemsize * math.prod(array.shape[1:])
    chunk_rows = file.chunk_bytes // row_bytes
    own = threading.local()

    def make(chunk: int, write: Callable[[memoryview], None]) -> Result:
        if not hasattr(own, "rows"):
            own.rows = np.empty((chunk_rows, *array.shape[1:]), array.dtype)
        rows = own.rows[: file.length(chunk) // row_bytes]
        array.fill(rows, chunk * chunk_rows)
        write(memoryview(rows.reshape(-1).view(np.uint8)))
        return {}

    write_chunks(journal, array.path, file, make, workers=workers, progress=progress)


def node_space(n: int, seed: int, node_type: str) -> npt.NDArray[np.int64]:
    """(n, multiplier, offset, inverse of the multiplier) of a node type's permutation."""
    multiplier = int(n * 0.6180339887498949) | 1
    while math.gcd(multiplier, n) != 1:
        multiplier += 2
    multiplier %= n
    offset = int(_key(seed, f"offset of {node_type}")) % n
    return np.array([n, multiplier, offset, pow(multiplier, -1, n) if n > 1 else 0], np.int64)


def _means(plan: SynthPlan, name: str, n: int, length: float) -> npt.NDArray[np.float32]:
    means = np.empty((n, plan.dim), np.float32)
    kernels.fill_signs(means, _key(plan.seed, f"means of {name}"), np.float32(length / math.sqrt(plan.dim)))
    return means


def _key(seed: int, purpose: str) -> Any:
    """Start of the counter of one stream of random numbers."""
    key = seed
    for byte in purpose.encode():
        key = int(kernels.mix(np.uint64((key * 257 + byte + 1) % 2**64)))
    return np.uint64(key)
