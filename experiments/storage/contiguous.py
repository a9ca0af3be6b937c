"""Merged reads on a hot-first store, from sparse to dense windows, beside the disk's 4 KiB random ceiling.

    python experiments/storage/contiguous.py STORE [--calibration DIR] --json F [--model IOPS BYTES_PER_S]

Mini-batches of growing size are sampled from the store and read cold (O_DIRECT), page by page and then
merged: rows of several mini-batches together, in page order, over holes where `gids calibrate`
found that to pay.

With `--model IOPS BYTES_PER_S` rows are in memory behind a modelled disk (`bam.storage.LatencyEngine`) whose
clock is manual: a read takes the longer of 1 / IOPS and its bytes over BYTES_PER_S, and time passes only
where reads are awaited. So the figures do not depend on what else the machine does.

Without it the disk itself is read, in rounds of both variants, and its ceiling measured before and after
each reading, since disks that are shared move from minute to minute; the median of each counts. A loader's
second epoch is timed: in the first one outputs lie in memory that a virtual machine may have to ask for, page
by page. What is found goes to `disk` of the result file, whose figures of the modelled one stay. The machine
must be idle: it is the processor that limits such reads next.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from statistics import median
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np

import bam
import gids
from bam.bench.machine import command, commit, describe_machine
from bam.storage.engine import Engine
from bam.storage.latency import LatencyEngine, LognormalLatency, SsdModel
from bam.storage.native import NativeEngine
from gids.bench.ceilings import measure_ceilings
from gids.fetch.cost_model import CostModel
from gids.fetch.counts import FetchCounts
from gids.fetch.device_model import SsdFacts
from gids.fetch.feature_store import FeatureStore
from gids.fetch.open import FeatureSettings, open_features
from gids.fetch.read_plan import ReadRules
from gids.fetch.storage_model import StorageModel
from gids.fetch.table import StoredTable
from gids.graph.dataset import Dataset
from gids.graph.open_dataset import largest_feature_file

PAGE_BYTES = 4096
LATENCY_US = 200.0
CACHE = "64MiB"
WINDOW = 2
FANOUTS = [10, 5]
ROUNDS, EPOCHS = 5, 2
#: Seeds of a mini-batch, how many are read, and the memory that may be read together.
CASES = ((64, 12, 2**29), (512, 4, 2**29), (4096, 2, 2**31), (16384, 1, 2**31))


@dataclass(frozen=True)
class DiskModel:
    """A disk that needs the longer of 1 / `iops` and bytes / `bytes_per_s` for a read."""

    iops: float
    bytes_per_s: float

    def storage(self, *, contiguous: bool) -> StorageModel:
        """What a calibration of it would have found."""
        lengths = tuple(2**power for power in range(9, 21))
        costs = tuple(max(1e6 / self.iops, 1e6 * length / self.bytes_per_s) for length in lengths)
        cost = CostModel(lengths, costs)
        merged = ReadRules(PAGE_BYTES, cost.merge_bytes(PAGE_BYTES), cost.bridge_bytes(PAGE_BYTES))
        rules = merged if contiguous else ReadRules.page_by_page(PAGE_BYTES)
        return StorageModel(SsdFacts(self.iops, LATENCY_US), rules, cost, "settings")


class Clocks:
    """The manual clocks of the disks under all tables, which are read one after the other."""

    def __init__(self, model: DiskModel) -> None:
        self._model, self._engines = model, list[LatencyEngine]()

    def wrap(self, engine: Engine) -> Engine:
        """The modelled disk over an engine."""
        assert isinstance(engine, NativeEngine)
        model = SsdModel(self._model.iops, self._model.bytes_per_s, LognormalLatency(LATENCY_US))
        self._engines.append(LatencyEngine(engine, model, manual_clock=True))
        return self._engines[-1]

    def seconds(self) -> float:
        """Time that passed on all of them together."""
        return sum(engine.now_ns() for engine in self._engines) / 1e9


def modelled_store(
    dataset: Dataset, rows: Mapping[str, Any], model: DiskModel, clocks: Clocks, *, contiguous: bool
) -> FeatureStore:
    """Feature tables over rows in memory, behind the modelled disk."""
    storage = model.storage(contiguous=contiguous)
    cache = bam.SharedCache(CACHE, policy="look_ahead_global")
    tables = {}
    for name, each in dataset.features.items():
        array = bam.open_array(
            rows[name],
            cache=cache,
            merge_bytes=storage.rules.merge_bytes,
            bridge_bytes=storage.rules.bridge_bytes,
            wrap=clocks.wrap,
        )
        tables[name] = StoredTable(name, array, each)
    return FeatureStore(tables, storage=storage)


def read(
    dataset: Dataset,
    seeds: int,
    steps: int,
    calibration: str,
    together: int,
    model: DiskModel | None,
    rows: Mapping[str, Any],
) -> dict[str, Any]:
    """One case; `together` 0: page by page."""
    clocks = None if model is None else Clocks(model)
    if model is None or clocks is None:
        settings = FeatureSettings(cache=CACHE, contiguous=together > 0, calibration=calibration)
        store = open_features(dataset, settings)
    else:
        store = modelled_store(dataset, rows, model, clocks, contiguous=together > 0)
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
        for _ in range(EPOCHS if clocks is None else 1):
            before = loader.metrics()
            for batch in loader:
                del batch
        metrics = loader.metrics()
    counts = FetchCounts(
        *(
            getattr(metrics.total, each.name) - getattr(before.total, each.name)
            for each in fields(FetchCounts)
        )
    )
    seconds = metrics.fetch_s - before.fetch_s if clocks is None else clocks.seconds()
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


def median_round(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """The one of median time, with the rates of all."""
    chosen = sorted(rounds, key=lambda each: float(each["seconds"]))[len(rounds) // 2]
    return {**chosen, "rounds_rows_per_s": [each["rows_per_s"] for each in rounds]}


def random_4k_iops(file: str) -> float:
    """Of the disk, now."""
    return float(measure_ceilings(file, 1.5)["random_4k_iops"] or 0.0)


def main() -> None:
    """Run all cases and write the result file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store")
    parser.add_argument("--calibration", default="")
    parser.add_argument("--json", required=True)
    parser.add_argument("--model", nargs=2, type=float, metavar=("IOPS", "BYTES_PER_S"))
    arguments = parser.parse_args()
    model = DiskModel(*arguments.model) if arguments.model else None
    dataset = gids.open_dataset(arguments.store)
    file = largest_feature_file(arguments.store)
    rows = {name: bam.open_array(each.source)[:] for name, each in dataset.features.items()} if model else {}
    read(dataset, 8, 1, arguments.calibration, 0, model, rows)  # loads what is compiled
    path = Path(arguments.json)
    before = json.loads(path.read_text()) if path.exists() else {}
    found: dict[str, Any] = {
        "commit": commit(),
        "command": command(),
        "machine": describe_machine(Path(file)),
        "random_4k_iops": model.iops if model else 0.0,
        "cases": [],
    }
    for seeds, steps, together in CASES:
        case: dict[str, Any] = {"batch_size": seeds, "steps": steps}
        ceilings = [] if model else [random_4k_iops(file)]
        rounds: dict[str, list[dict[str, Any]]] = {"page_by_page": [], "merged": []}
        for _ in range(1 if model else ROUNDS):
            for variant, n_bytes in (("page_by_page", 0), ("merged", together)):
                found_now = read(dataset, seeds, steps, arguments.calibration, n_bytes, model, rows)
                rounds[variant].append(found_now)
                if model is None:
                    ceilings.append(random_4k_iops(file))
        for variant, each in rounds.items():
            case[variant] = median_round(each)
            print(seeds, variant, case[variant])
        if ceilings:
            case["ceilings_4k_iops"], case["random_4k_iops"] = ceilings, median(ceilings)
            print(seeds, "random 4 KiB reads a second", ceilings)
        found["cases"].append(case)
    if model is None:
        found["random_4k_iops"] = median(case["random_4k_iops"] for case in found["cases"])
    print(f"random 4 KiB reads a second: {found['random_4k_iops']:,.0f}")
    if model:
        result = {**before, "schema": 1, "name": "contiguous", "model": asdict(model), **found}
    else:
        result = {**before, "disk": found}
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
