"""``gids info``: what a data set holds."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from gids.cli.text import size_text, table_text
from gids.graph.igbh import open_igbh
from gids.graph.manifest import read_manifest
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
    counts = manifest.num_nodes
    return {
        "path": str(path),
        "kind": "store",
        "source": manifest.source,
        "bytes": store_bytes(manifest),
        "settings": manifest.settings,
        "node_types": [
            {
                "name": record.node_type,
                "nodes": counts[record.node_type],
                "dim": record.dim,
                "dtype": record.dtype.value,
                "order": "hot" if record.levels else "original",
                "bytes": counts[record.node_type] * record.row_bytes,
                "non_finite": record.n_non_finite,
            }
            for record in manifest.features
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
