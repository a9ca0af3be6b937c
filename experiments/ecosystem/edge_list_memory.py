"""Resident memory and time of numbering text ids out of core, beside those of a file a hundred times smaller.

    python experiments/ecosystem/edge_list_memory.py --edges 5000000 --json F

Both ends of an edge are names of 35 characters, half of them distinct. What the small file takes (the
interpreter, what is imported, DuckDB itself) is taken off.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from bam.bench.machine import command, commit, describe_machine
from gids.graph.store import open_store

SCHEMA = 1
MEMORY_BYTES = 64 * 2**20
DUCKDB_BYTES = 128 * 2**20
#: Of DuckDB and pyarrow, outside what they count.
ALLOWED_MORE_BYTES = 64 * 2**20
GROUP_ROWS = 100_000

CONVERSION = """
import json, sys
from gids.bench.observe import peak_rss_bytes
from gids.formats.convert import convert_dataset
convert_dataset(sys.argv[1], sys.argv[2], "edges", memory_bytes=int(sys.argv[3]))
print(json.dumps(peak_rss_bytes()))
"""


def names(ids: np.ndarray[Any, Any]) -> Any:
    """Ids as text of 35 characters."""
    return pa.array([f"node with a rather long name {each:06x}" for each in ids.tolist()])


def write(path: Path, n_edges: int) -> None:
    """A Parquet file of edges, a row group at a time."""
    random = np.random.default_rng(0)
    schema = pa.schema([("src", pa.string()), ("dst", pa.string())])
    with pyarrow.parquet.ParquetWriter(path, schema) as writer:
        for _ in range(0, n_edges, GROUP_ROWS):
            ends = [names(random.integers(0, n_edges, GROUP_ROWS)) for _ in range(2)]
            writer.write_table(pa.table(ends, schema=schema), GROUP_ROWS)


def measure(folder: Path, n_edges: int) -> dict[str, Any]:
    """One conversion in a process of its own."""
    source, store = folder / f"{n_edges}.parquet", folder / f"store{n_edges}"
    write(source, n_edges)
    begin = time.monotonic()
    arguments = [str(source), str(store), str(MEMORY_BYTES)]
    done = subprocess.run(
        [sys.executable, "-c", CONVERSION, *arguments], stdout=subprocess.PIPE, check=True, env=os.environ
    )
    seconds = time.monotonic() - begin
    graph = open_store(store).graph
    assert graph.num_edges == n_edges
    return {
        "edges": n_edges,
        "nodes": graph.schema.num_nodes["_N"],
        "text_bytes": 2 * 35 * n_edges,
        "peak_bytes": json.loads(done.stdout),
        "seconds": round(seconds, 1),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure both; the exit status is 1 where the bound was not kept."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--edges", type=int, default=5_000_000)
    parser.add_argument("--json", metavar="F", help="write the result file")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="gids-edges-") as work:
        small = measure(Path(work), max(GROUP_ROWS, given.edges // 100))
        large = measure(Path(work), given.edges)
        machine = describe_machine(Path(work))
    taken, bound = large["peak_bytes"] - small["peak_bytes"], MEMORY_BYTES + DUCKDB_BYTES + ALLOWED_MORE_BYTES
    result = {
        "schema": SCHEMA,
        "name": "edge_list_memory",
        "commit": commit(),
        "command": command(),
        "machine": machine,
        "memory_bytes": MEMORY_BYTES,
        "duckdb_bytes": DUCKDB_BYTES,
        "allowed_more_bytes": ALLOWED_MORE_BYTES,
        "small": small,
        "large": large,
        "taken_bytes": taken,
        "within": taken <= bound,
    }
    print(json.dumps(result, indent=1))
    if given.json:
        Path(given.json).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0 if taken <= bound else 1


if __name__ == "__main__":
    sys.exit(main())
