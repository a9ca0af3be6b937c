"""DGL's graphs in files of ``dgl.save_graphs`` (``.bin``).

DGL itself reads them, as a whole: the graph and its node data must fit in memory once. The graph is taken
as it is. Features are ``feat``, ``feature``, ``features`` or ``x``, labels ``label`` or ``y``, the split
the masks; other data is left out, which is logged.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gids.errors import DatasetError
from gids.formats.format import Format, SourceGraph
from gids.formats.node_arrays import edges_from, features_of, tasks_of, tell_left_out
from gids.formats.staging import Staging
from gids.formats.torch_files import as_array
from gids.graph.schema import EdgeType
from gids.sampling.dgl_import import import_dgl

#: How DGL marks its files (kDGLSerializeMagic).
MAGIC = 0xDD2E4FF046B4A13F.to_bytes(8, "little")


class DglFormat(Format):
    """See the module."""

    name = "dgl"
    layout = "a file of dgl.save_graphs"

    def recognises(self, path: Path) -> bool:
        if not path.is_file():
            return False
        with open(path, "rb") as stream:
            return stream.read(len(MAGIC)) == MAGIC

    def files(self, path: Path) -> list[Path]:
        return [path]

    def read(self, path: Path, staging: Staging) -> SourceGraph:
        graph = _load(path)
        where = str(path)
        counts = {name: int(graph.num_nodes(name)) for name in graph.ntypes}
        edges, arrays, features = {}, {}, {}
        for edge_type in map(EdgeType._make, graph.canonical_etypes):
            src, dst = (each.numpy() for each in graph.edges(etype=tuple(edge_type), order="eid"))
            edges[edge_type] = edges_from(edge_type, src, dst, where, staging)
        for name in graph.ntypes:
            data = graph.nodes[name].data
            arrays[name] = {key: array for key in data if (array := as_array(data[key])) is not None}
            found = features_of(where, name, arrays[name], staging)
            if found is not None:
                features[name] = found
            tell_left_out(where, name, list(data))
        return SourceGraph(counts, edges, features, tasks_of(where, counts, arrays, staging))


def _load(path: Path) -> Any:
    if not DglFormat().recognises(path):
        raise DatasetError(str(path), "a file of dgl.save_graphs", "another first word")
    dgl = import_dgl()
    try:
        graphs, _ = dgl.load_graphs(str(path))
    except Exception as error:
        # DGL has an error class of its own, and passes on those of the libraries below it.
        text = str(error).split("\n", 1)[0]
        raise DatasetError(str(path), "a whole file of dgl.save_graphs", text[:200]) from error
    if len(graphs) != 1:
        raise DatasetError(str(path), "one graph", f"{len(graphs)}")
    return graphs[0]
