"""``gids info``: what a data set holds."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from gids.cli.text import size_text, table_text
from gids.graph.igbh import open_igbh
from gids.graph.manifest import FeatureRecord, read_manifest
from gids.graph.store import is_store, open_store, store_bytes

NAME = "info"
HELP = "say what a store or an IGBH folder holds (reads headers only)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("dir", metavar="DIR")
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Carry the command out; the exit status."""
    path = Path(arguments.dir)
    facts = _store_facts(path) if is_store(path) else _igbh_facts(path)
    print(json.dumps(facts, indent=2) if arguments.json else _as_text(facts))
    return 0


def _store_facts(path: Path) -> dict[str, Any]:
    open_store(path)
    manifest = read_manifest(path)
    counts, features = manifest.num_nodes, {record.node_type: record for record in manifest.features}
    return {
        "path": str(path),
        "kind": "store",
        "source": manifest.source,
        "bytes": store_bytes(manifest),
        "settings": manifest.settings,
        "node_types": [
            _node_facts(name, count, features.get(name)) for name, count in sorted(counts.items())
        ],
        "relations": [
            {"name": str(record.edge_type), "edges": record.n_edges} for record in manifest.relations
        ],
        "tasks": [
            {
                "name": record.name,
                "node_type": record.node_type,
                "classes": record.n_classes,
                "labelled": record.n_labelled,
            }
            for record in manifest.tasks
        ],
    }


def _node_facts(name: str, count: int, record: FeatureRecord | None) -> dict[str, Any]:
    """Of one node type; without features its dim is 0."""
    return {
        "name": name,
        "nodes": count,
        "dim": 0 if record is None else record.dim,
        "dtype": "" if record is None else record.dtype.value,
        "order": "" if record is None else "hot" if record.levels else "original",
        "bytes": 0 if record is None else count * record.row_bytes,
        "non_finite": 0 if record is None else record.n_non_finite,
    }


def _igbh_facts(path: Path) -> dict[str, Any]:
    folder = open_igbh(path)
    size = "of no published size" if folder.size is None else folder.size.value
    return {
        "path": str(path),
        "kind": f"IGBH folder, {size}",
        "bytes": sum(each.files[0].bytes for each in [*folder.features.values(), *folder.edges.values()]),
        "node_types": [
            {
                "name": name,
                "nodes": described.shape[0],
                "dim": described.shape[1],
                "dtype": str(described.dtype),
                "order": "original" if described.layout.extents[0].file_offset else "original, no npy header",
                "bytes": described.files[0].bytes,
            }
            for name, described in folder.features.items()
        ],
        "relations": [
            {"name": str(relation), "edges": described.shape[0]}
            for relation, described in folder.edges.items()
        ],
        "tasks": [
            {"name": str(n_classes), "node_type": "paper", "classes": n_classes}
            for n_classes in sorted(folder.labels)
        ],
    }


def _as_text(facts: dict[str, Any]) -> str:
    blocks = [f"{facts['path']}: {facts['kind']}, {size_text(facts['bytes'])}"]
    if "source" in facts:
        settings = ", ".join(f"{key}={value}" for key, value in facts["settings"].items())
        blocks.append(f"made from {facts['source']}\nwith {settings}")
    for title in ("node_types", "relations", "tasks"):
        entries = facts[title]
        if entries:
            rows = [
                [size_text(value) if key == "bytes" else value for key, value in entry.items()]
                for entry in entries
            ]
            blocks.append(table_text(list(entries[0]), rows))
    return "\n\n".join(blocks)
