"""OGB's node property data sets as they are downloaded: ``raw`` and ``split`` folders.

    raw/edge.csv.gz, num-node-list.csv.gz, num-edge-list.csv.gz, node-feat.csv.gz, node-label.csv.gz
    raw/data.npz, node-label.npz                                   (binary sets, such as papers100M)
    raw/triplet-type-list.csv.gz, num-node-dict.csv.gz             (heterogeneous sets, such as mag)
    raw/relations/<src>___<rel>___<dst>/edge.csv.gz, raw/node-feat/<type>/…, raw/node-label/<type>/…
    split/<rule>/train.csv.gz, valid.csv.gz, test.csv.gz           (heterogeneous: in a folder a type)

Source: Hu et al., "Open Graph Benchmark", NeurIPS 2020, and the layout its package reads.
"""

from __future__ import annotations

import logging
from pathlib import Path

from bam.array.description import ArrayDescription
from gids.errors import DatasetError
from gids.formats.array_files import StoredArray, member, open_npz
from gids.formats.format import Format, SourceGraph
from gids.formats.labels import task_of
from gids.formats.ogb_text import read_heterogeneous, read_text, split, tell_left_out
from gids.formats.staging import Staging
from gids.formats.stored_edges import edges_of
from gids.formats.text_rows import csv_file
from gids.graph.graph_source import TaskSource
from gids.graph.schema import HOMOGENEOUS_EDGE_TYPE, HOMOGENEOUS_NODE_TYPE

logger = logging.getLogger(__name__)


class OgbFormat(Format):
    """See the module."""

    name = "ogb"
    layout = "raw/edge.csv.gz, raw/data.npz or raw/triplet-type-list.csv.gz"

    def recognises(self, path: Path) -> bool:
        raw = path / "raw"
        return (
            csv_file(raw, "edge") is not None
            or csv_file(raw, "triplet-type-list") is not None
            or (raw / "data.npz").is_file()
        )

    def files(self, path: Path) -> list[Path]:
        return sorted(
            each for part in ("raw", "split") for each in (path / part).rglob("*") if each.is_file()
        )

    def read(self, path: Path, staging: Staging) -> SourceGraph:
        raw = path / "raw"
        if (raw / "data.npz").is_file():
            return _read_binary(path, staging)
        if csv_file(raw, "triplet-type-list") is not None:
            return read_heterogeneous(path, staging)
        return read_text(path, staging)


def _read_binary(path: Path, staging: Staging) -> SourceGraph:
    archive_path = path / "raw" / "data.npz"
    archive, node_type = open_npz(archive_path), HOMOGENEOUS_NODE_TYPE
    counts = [member(archive, archive_path, f"num_{what}_list").whole() for what in ("nodes", "edges")]
    if any(each.shape != (1,) or each.dtype.kind not in "iu" for each in counts):
        raise DatasetError(str(archive_path), "one graph", f"{len(counts[0].reshape(-1))} of them")
    n_nodes, n_edges = (int(each[0]) for each in counts)
    edges = edges_of(member(archive, archive_path, "edge_index"), staging, "edge_index")
    if edges.n_edges != n_edges:
        raise DatasetError(str(archive_path), f"{n_edges} edges", f"{edges.n_edges}")
    features = {}
    if "node_feat" in archive:
        features[node_type] = _float_rows(archive["node_feat"], node_type, staging)
    tasks: list[TaskSource] = []
    label_path = path / "raw" / "node-label.npz"
    if label_path.is_file():
        stored = member(open_npz(label_path), label_path, "node_label")
        found = split(path, "", staging)
        tasks.append(
            task_of("label", node_type, n_nodes, stored.where, lambda: stored.rows(staging), split=found)
        )
    tell_left_out(archive_path, [key for key in archive if key.startswith(("node_", "edge_"))])
    return SourceGraph({node_type: n_nodes}, {HOMOGENEOUS_EDGE_TYPE: edges}, features, tuple(tasks))


def _float_rows(stored: StoredArray, node_type: str, staging: Staging) -> ArrayDescription:
    """In place where they are floats that lie row by row."""
    if len(stored.shape) != 2:
        raise DatasetError(stored.where, "features of shape (nodes, dim)", f"shape {stored.shape}")
    if stored.dtype.kind == "f" and not stored.fortran and not stored.compressed:
        return stored.describe(staging, node_type)
    return staging.features(
        node_type, stored.where, stored.dtype, stored.shape[1], lambda: stored.rows(staging)
    )
