"""Between `NeighborSampler` and the compiled code: arguments, threads, the first compilation, errors.

Compiled code is imported on first use, because importing numba takes longer than all of `gids`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bam.errors import ConfigError
from gids.errors import DuplicateSeed, GidsError, GraphError, NodeOutOfRange
from gids.graph.csc import Csc, Int64Array
from gids.graph.graph import Graph
from gids.graph.schema import Schema
from gids.sampling.fanouts import LayerFanout, fanout_matrix

logger = logging.getLogger(__name__)

Seeds = Mapping[str, npt.ArrayLike] | npt.ArrayLike
"""Node ids of each type, or of the only type there is."""

_compile_lock = threading.Lock()
_compiled: dict[bool, float] = {}

# Not every threading layer of numba survives parallel code entered from two threads at once (workqueue
# aborts the process), and two that share all cores gain nothing.
_parallel_lock = threading.Lock()


@dataclass(frozen=True, eq=False)
class GraphArguments:
    """What the compiled code gets to know of a graph: addresses, which are valid while the graph lives.

    Attributes
    ----------
    table : int64 array, shape (edge types, columns)
        See the column names in `gids.sampling.pick`.
    num_nodes : int64 array, shape (node types,)
    fanouts : int64 array, shape (hops, edge types)
    """

    table: np.ndarray[tuple[int, int], np.dtype[np.int64]]
    num_nodes: Int64Array
    fanouts: np.ndarray[tuple[int, int], np.dtype[np.int64]]

    @classmethod
    def of(cls, graph: Graph, layers: Sequence[LayerFanout]) -> GraphArguments:
        from gids.sampling import pick

        schema = graph.schema
        num_nodes = np.array(list(schema.num_nodes.values()), np.int64)
        table = np.zeros((len(schema.edge_types), pick.COLUMNS), np.int64)
        for row, (edge_type, csc) in zip(table, graph.relations.items(), strict=True):
            row[pick.INDPTR] = csc.indptr.ctypes.data
            row[pick.INDICES] = csc.indices.ctypes.data
            row[pick.INDEX_BYTES] = csc.indices.itemsize
            row[pick.EDGE_IDS] = 0 if csc.edge_ids is None else csc.edge_ids.ctypes.data
            row[pick.NUM_EDGES] = csc.num_edges
            row[pick.SRC_TYPE] = schema.node_type_index(edge_type.src)
            row[pick.DST_TYPE] = schema.node_type_index(edge_type.dst)
        return cls(table, num_nodes, fanout_matrix(layers, schema))


def flat_seeds(seeds: Seeds, schema: Schema) -> tuple[Int64Array, Int64Array]:
    """Seeds of all types behind one another in the schema's order, and how many each type has.

    Raises
    ------
    UnknownNodeType, GraphError
    """
    if not isinstance(seeds, Mapping):
        if len(schema.node_types) != 1:
            raise GraphError("seeds", f"a mapping with some of {schema.node_types}", "a list")
        seeds = {schema.node_types[0]: seeds}
    parts = [np.empty(0, np.int64)] * len(schema.node_types)
    for node_type, ids in seeds.items():
        array = np.asarray(ids)
        if array.ndim != 1 or (array.size and not np.issubdtype(array.dtype, np.integer)):
            found = f"{array.dtype} of shape {array.shape}"
            raise GraphError(f"seeds of {node_type!r}", "integers in one dimension", found)
        parts[schema.node_type_index(node_type)] = array.astype(np.int64)
    return np.concatenate(parts), np.array([len(part) for part in parts], np.int64)


def run_kernel(threads: int, arguments: tuple[Any, ...], shared: tuple[int, int] | None) -> Any:
    """Call `gids.sampling.batch_kernel.sample_batch` ; its argument `parallel` follows from `threads`.

    Raises
    ------
    ConfigError
        There are fewer threads than asked for.
    """
    compile_seconds(parallel=threads > 1)
    from gids.sampling.batch_kernel import sample_batch

    if threads == 1:
        return sample_batch(*arguments, None, shared)
    import numba

    with _parallel_lock:
        before = numba.get_num_threads()
        try:
            numba.set_num_threads(threads)
        except ValueError as error:
            raise ConfigError(
                "threads", threads, "no more threads than numba has (NUMBA_NUM_THREADS)"
            ) from error
        try:
            return sample_batch(*arguments, True, shared)
        finally:
            numba.set_num_threads(before)


def compile_seconds(parallel: bool) -> float:
    """Make one version of the compiled code ready, if it is not, and say how long that took.

    It is compiled once and cached on disk (beside the source, or in numba's cache folder), from where a
    later process loads it in a fraction of a second.
    """
    with _compile_lock:
        if parallel not in _compiled:
            _compiled[parallel] = _warm_up(parallel)
    return _compiled[parallel]


def _warm_up(parallel: bool) -> float:
    start = time.perf_counter()
    import numba

    from gids.sampling.batch_kernel import sample_batch

    if parallel:
        numba.get_num_threads()  # starts numba's threads, which code loaded from the cache refers to
    hits = sum(sample_batch.stats.cache_hits.values())
    graph = Graph.from_coo(([0], [0]), 1)
    known = GraphArguments.of(graph, (1,))
    seeds = np.zeros(1, np.int64), np.ones(1, np.int64)
    flags = False, True, False
    sample_batch(
        *(known.table, known.num_nodes, known.fanouts, *flags, *seeds, np.uint64(0), 0, 0, 1),
        *(parallel or None, None),
    )
    seconds = time.perf_counter() - start
    how = "loaded from numba's cache" if sum(sample_batch.stats.cache_hits.values()) > hits else "compiled"
    logger.info("sampler (%s) %s in %.1f s", "parallel" if parallel else "one thread", how, seconds)
    return seconds


def failure(status: Sequence[int], graph: Graph) -> GidsError:
    """The error a status of the compiled code stands for."""
    from gids.sampling import batch_kernel

    code, index, value, position = status
    if code in (batch_kernel.DUPLICATE_SEED, batch_kernel.SEED_OUT_OF_RANGE):
        node_type = graph.schema.node_types[index]
        if code == batch_kernel.DUPLICATE_SEED:
            return DuplicateSeed(node_type, value, position)
        return NodeOutOfRange(node_type, value, graph.schema.num_nodes[node_type], position)
    if code == batch_kernel.TOO_MANY_NODES:
        return GraphError(
            "mini-batch", "fewer nodes of one type; use fewer seeds or smaller fanouts", f"{value:,}"
        )
    csc: Csc = list(graph.relations.values())[index]
    if code == batch_kernel.BAD_INDEX:
        return GraphError(f"{csc.name}: indices", f"ids from 0 to {csc.num_src - 1}", str(value))
    start, end = csc.indptr[value : value + 2].tolist()
    expected = f"two rising numbers up to {csc.num_edges}, less than 2^32 apart"
    return GraphError(f"{csc.name}: indptr at node {value}", expected, f"{start} and {end}")
