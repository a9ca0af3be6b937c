"""Random work on a GPU, with one read in a hundred failing: no wrong byte, no leak, no hang.

    python experiments/gpu/soak.py --seconds 300 --seed 1 --json soak.json

Arrays of random shapes (caches of 1 line and up, 1 to 16 gathers under way) and loaders (windows of 1 to 16,
all policies, constant rows) take turns. Every row is compared with numpy's. After the first rounds neither
the process's memory nor the GPU's may grow. Several may run at once with different seeds; a result is added
to the file's `pieces`.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import bam
import gids
from bam.bench.machine import command, commit, describe_machine
from bam.storage.fault import FaultKind, FaultRule, NativeFaultEngine
from gids.bench.data import prepare_data
from gids.config import run_config
from gids.fetch.cuda.open import GpuFeatureSettings, open_gpu_features
from gids.fetch.open import FeatureSettings
from gids.graph.dataset import Dataset

WARM_UP_ROUNDS = 6
#: Growth that is no leak: allocators keep what they took, and grow in large steps.
ALLOWED_BYTES = 256 * 2**20
POLICIES = ("random", "clock", "sieve", "look_ahead", "look_ahead_global")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, required=True)
    arguments = parser.parse_args()
    rng = np.random.default_rng(arguments.seed)
    begin, rounds = time.monotonic(), 0
    done = {"batches": 0, "failed_reads": 0}
    settled = (0, 0)
    with tempfile.TemporaryDirectory() as folder:
        dataset = small_dataset(Path(folder))
        while time.monotonic() - begin < arguments.seconds:
            for work in (soak_array, lambda rng, done: soak_loader(rng, done, dataset)):
                work(rng, done)
            rounds += 1
            if rounds == WARM_UP_ROUNDS:
                settled = memory_in_use()
        grown = [now - then for now, then in zip(memory_in_use(), settled, strict=True)]
    piece = {
        "seconds": time.monotonic() - begin,
        "seed": arguments.seed,
        "rounds": rounds,
        **done,
        "host_bytes_grown": grown[0],
        "gpu_bytes_grown": grown[1],
        "commit": commit(),
        "command": command(),
        "machine": {**describe_machine(Path(tempfile.gettempdir())), "gpu": torch.cuda.get_device_name()},
    }
    add_piece(arguments.json, piece)
    print(json.dumps({key: piece[key] for key in list(piece)[:7]}))
    assert rounds > WARM_UP_ROUNDS, "too short to see a leak"
    assert max(grown) < ALLOWED_BYTES, f"grown by {grown} bytes"


def memory_in_use() -> tuple[int, int]:
    """Of this process: on the host, and on the GPU by what it holds itself."""
    status = Path("/proc/self/status").read_text()
    resident = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    import cupy

    cupy.get_default_memory_pool().free_all_blocks()
    held = cupy.get_default_memory_pool().total_bytes() + torch.cuda.memory_reserved()
    return int(resident.split()[1]) * 1024, held


def faulty(rng: np.random.Generator) -> Any:
    rule = FaultRule(FaultKind.ERROR, probability=0.01, seed=int(rng.integers(2**31)))
    return lambda engine: NativeFaultEngine(engine, [rule])


def soak_array(rng: np.random.Generator, done: dict[str, int]) -> None:
    """Gathers from an array in memory; each is asked for again until none of its reads fails."""
    row_bytes = int(rng.choice([1, 4, 96, 512, 700, 4096, 6000, 16384]))
    n_rows = int(rng.integers(50, min(400_000, 2**27 // row_bytes)))
    rows = rng.integers(0, 256, (n_rows, row_bytes), dtype=np.uint8)
    settings = bam.GpuSettings(
        queue_pairs=int(rng.integers(1, 33)),
        queue_slots=int(rng.choice([16, 256, 1024])),
        staging=int(rng.choice([2**20, 2**24, 2**26])),
        flights=int(rng.integers(1, 9)),
    )
    lines = int(rng.choice([1, 7, 500, 20_000, 2_000_000]))
    window = int(rng.integers(1, 17))
    with bam.open_array(
        rows,
        cache=f"{lines} lines",
        page_bytes=int(rng.choice([512, 4096, 65536])),
        policy=str(rng.choice(POLICIES)),
        device="cuda",
        gpu=settings,
        wrap=faulty(rng),
    ) as array:
        running: list[tuple[Any, Any]] = []
        for number in range(30 + window):
            if number < 30:
                ids = (n_rows * rng.random(rng.integers(1, 300)) ** 2).astype(np.int64)
                running.append((array.begin(ids), ids))
            if number >= window - 1 and running:
                gather, ids = running.pop(0)
                for _ in range(10_000):
                    try:
                        found = gather.wait().get()
                        break
                    except bam.StorageError:
                        done["failed_reads"] += 1
                        gather = array.begin(ids)
                np.testing.assert_array_equal(found, rows[ids])
                done["batches"] += 1


def small_dataset(folder: Path) -> Dataset:
    data = {"folder": "igbh", "store": "store", "task": "19", "synth_scale": "0.02", "synth_dim": 48}
    prepare_data(run_config({"name": "soak", "data": data}).data, folder)
    return gids.open_dataset(folder / "store")


def soak_loader(rng: np.random.Generator, done: dict[str, int], dataset: Dataset) -> None:
    """An epoch of a loader, taken up again after every failed read."""
    rows = {name: each.take(np.arange(each.n_rows)) for name, each in dataset.features.items()}
    shares = ["1%", "5%", "20%", "60%", "100%"]
    settings = FeatureSettings(
        cache=str(rng.choice(shares)),
        cpu_buffer=str(rng.choice(["0%", "10%", "30%"])),
        page_bytes=int(rng.choice([512, 4096])),
        policy=str(rng.choice(POLICIES)),
        wrap=faulty(rng),
    )
    gpu = bam.GpuSettings(staging=int(rng.choice([2**20, 2**24])), flights=int(rng.integers(1, 6)))
    device = torch.device("cuda", 0)
    chosen = GpuFeatureSettings(settings, str(rng.choice(["0%", "5%"])), gpu)
    store = open_gpu_features(dataset, chosen, device)
    try:
        loader = gids.DataLoader(
            dataset,
            {"paper": np.arange(1200)},
            gids.NeighborSampler([4, 3], seed=1),
            batch_size=60,
            shuffle=True,
            features=store,
            device=device,
            window=int(rng.integers(1, 17)),
            accumulate=int(rng.choice([0, 2**22, 2**26])),
        )
        with loader:
            taken = 0
            while taken < len(loader):
                try:
                    for batch in loader:
                        for name, found in batch.features.items():
                            nodes = batch.nodes[name].cpu().numpy()
                            np.testing.assert_array_equal(found.cpu().numpy(), rows[name][nodes])
                        taken += 1
                        done["batches"] += 1
                except bam.StorageError:
                    done["failed_reads"] += 1
                    loader.load_state_dict(loader.state_dict())
    finally:
        store.close()


def add_piece(path: Path, piece: dict[str, Any]) -> None:
    """Others may do so at the same time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = (
            json.loads(path.read_text()) if path.is_file() else {"schema": 1, "name": "soak", "pieces": []}
        )
        found["pieces"].append(piece)
        found["seconds"] = sum(each["seconds"] for each in found["pieces"])
        path.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
