"""Merged reads on a hot-first store, from sparse to dense windows, beside the disk's 4 KiB random ceiling.

    python experiments/storage/contiguous.py STORE --calibration DIR --json F

Mini-batches of growing size are sampled from the store and read cold (O_DIRECT), page by page and then
merged: rows of several mini-batches together, in page order, over holes where `gids calibrate`
found that to pay.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np

import gids
from bam.bench.machine import command, commit, describe_machine
from gids.bench.ceilings import measure_ceilings
from gids.fetch.open import FeatureSettings, open_features
from gids.graph.dataset import Dataset
from gids.graph.open_dataset import largest_feature_file

CACHE = "64MiB"
WINDOW = 2
FANOUTS = [10, 5]
#: Seeds of a mini-batch, how many are read, and the memory that may be read together.
CASES = ((64, 24, 2**29), (512, 6, 2**29), (4096, 2, 2**31), (16384, 1, 2**31))


def read(dataset: Dataset, seeds: int, steps: int, calibration: str, together: int) -> dict[str, Any]:
    """One case; `together` 0: page by page."""
    settings = FeatureSettings(cache=CACHE, contiguous=together > 0, calibration=calibration)
    store = open_features(dataset, settings)
    task = next(iter(dataset.tasks.values()))
    numbers = np.random.default_rng(0).permutation(dataset.graph.schema.num_nodes[task.node_type])
    loader = gids.DataLoader(
        dataset,
        {task.node_type: numbers[: seeds * steps]},
        gids.NeighborSampler(FANOUTS),
        batch_size=seeds,
        features=store,
        window=WINDOW,
        accumulate=together,
    )
    with loader:
        for batch in loader:
            del batch
        metrics = loader.metrics()
    counts, seconds = metrics.total, metrics.fetch_s
    pages = sum(table.n_rows * table.row_bytes // 4096 for table in store.tables.values())
    assert metrics.accumulator is not None
    groups = metrics.accumulator.groups
    store.close()
    return {
        "rows": counts.rows_requested,
        "seconds": seconds,
        "rows_per_s": counts.rows_requested / seconds,
        "pages_read": counts.pages_read,
        "pages_per_s": counts.pages_read / seconds,
        "reads": counts.reads,
        "pages_per_read": counts.pages_read / counts.reads,
        "useful_share": 4096 * counts.pages_read / counts.bytes_read,
        "groups": groups,
        "share_of_store_read_in_a_group": counts.pages_read / groups / pages,
    }


def main() -> None:
    """Run all cases and write the result file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store")
    parser.add_argument("--calibration", default="")
    parser.add_argument("--json", required=True)
    arguments = parser.parse_args()
    dataset = gids.open_dataset(arguments.store)
    file = largest_feature_file(arguments.store)
    read(dataset, 8, 1, arguments.calibration, 0)  # loads what is compiled
    result: dict[str, Any] = {
        "schema": 1,
        "name": "contiguous",
        "commit": commit(),
        "command": command(),
        "machine": describe_machine(Path(file)),
        "ceilings": measure_ceilings(file, 2.0),
        "cases": [],
    }
    for seeds, steps, together in CASES:
        case: dict[str, Any] = {"batch_size": seeds, "steps": steps}
        for variant, n_bytes in (("page_by_page", 0), ("merged", together)):
            case[variant] = read(dataset, seeds, steps, arguments.calibration, n_bytes)
            print(seeds, variant, {key: round(value, 2) for key, value in case[variant].items()})
        result["cases"].append(case)
    result["ceilings_after"] = measure_ceilings(file, 2.0)
    print(result["ceilings"], result["ceilings_after"])
    Path(arguments.json).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
