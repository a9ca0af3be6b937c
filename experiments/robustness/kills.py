"""kill -9 at random moments of a conversion and of training, until 50 of each took effect; a result file.

    python experiments/robustness/kills.py --json F

Each conversion is killed, every second one twice, and runs again to its end: every file of the store must
have the bytes of a conversion that nobody disturbed. Each training writes a checkpoint after every step, is
killed likewise and goes on: all losses and all weights must be those of an undisturbed run, which they are
only when every step saw the mini-batch that it would have seen. Nothing may be left beside the result.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

# Before torch is loaded: its idle threads would otherwise spin while the loader's threads have work.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch

from bam.bench.machine import command, commit, describe_machine
from gids.bench.data import prepare_data
from gids.bench.training import run_training
from gids.config import RunConfig, as_table, run_config
from gids.graph.convert import convert_igbh

SCHEMA = 1
START_TIMEOUT_S = 120
PRELOADED = ["gids.bench.training", "gids.graph.convert", "torch_geometric.nn"]

TABLE: dict[str, Any] = {
    "name": "kills",
    "data": {"folder": "igbh", "store": "store", "task": "19", "synth_scale": "0.02", "synth_dim": 64},
    "model": {"hidden": 8, "heads": 2},
    "sampling": {"fanouts": [3, 3], "batch_size": 64, "evaluation_batch_size": 512},
    "training": {"epochs": 2, "learning_rate": 0.01},
    "loader": {"cache": "20%", "cpu_buffer": "5%", "window": 4},
}

#: What is converted: large enough that features are written in several chunks.
LARGER = {"folder": "larger", "store": "", "synth_scale": "0.1", "synth_dim": 256}

Work = Callable[[RunConfig, Path, Path], None]


def convert(config: RunConfig, root: Path, out: Path) -> None:
    """The work of a conversion."""
    convert_igbh(root / config.data.folder, out / "store", config.data.convert_options)


def train(config: RunConfig, root: Path, out: Path) -> None:
    """The work of a training run."""
    run_training(config, root, out, checkpoint_seconds=0)


def digests(folder: Path) -> dict[str, str]:
    """SHA-256 of every file, by its path in the folder; of weights, of their values."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix == ".pt":
            found[path.name] = _weights_sha256(path)
        elif path.is_file():
            found[str(path.relative_to(folder))] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def _weights_sha256(path: Path) -> str:
    """Of the model's weights; a checkpoint holds times and the number of resumptions beside them."""
    state = torch.load(path, weights_only=True)
    weights = state.get("trainer", {}).get("model", state)
    digest = hashlib.sha256()
    for name in sorted(weights):
        digest.update(f"{name}:{tuple(weights[name].shape)}:".encode())
        digest.update(weights[name].contiguous().numpy().tobytes())
    return digest.hexdigest()


def _child(work: Work, config: RunConfig, root: Path, out: Path, started: Any) -> None:
    torch.set_num_threads(1)
    started.set()
    work(config, root, out)


class Killer:
    """Starts work in processes of their own and kills them.

    Parameters
    ----------
    work : callable
    config : RunConfig
    root : Path
    """

    def __init__(self, work: Work, config: RunConfig, root: Path) -> None:
        # Forked from a server that has everything imported: a fresh interpreter would need seconds each time.
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(PRELOADED)
        self._work, self._config, self._root = work, config, root

    def run(self, out: Path, kill_after_s: float | None = None) -> tuple[bool, float]:
        """Run the work, killed after so many seconds; whether it was, and how long it ran.

        Raises
        ------
        RuntimeError
            The work failed by itself.
        """
        started = self._context.Event()
        process = self._context.Process(
            target=_child, args=(self._work, self._config, self._root, out, started)
        )
        process.start()
        if not started.wait(START_TIMEOUT_S):
            raise RuntimeError("the process did not start")
        begin = time.perf_counter()
        process.join(kill_after_s)
        process.kill()
        process.join()
        if process.exitcode not in (0, -signal.SIGKILL):
            raise RuntimeError(f"the work ended with exit status {process.exitcode}")
        return process.exitcode != 0, time.perf_counter() - begin


def kill_often(killer: Killer, kills: int, folder: Path, report: Callable[[str], object]) -> dict[str, Any]:
    """Undisturbed once; then until `kills` kills took effect, each round to its end and compared."""
    whole = folder / "whole"
    whole.mkdir(parents=True)
    killer.run(whole)  # compiles
    shutil.rmtree(whole)
    whole.mkdir()
    _, seconds = killer.run(whole)
    expected = digests(whole)
    chance = random.Random(0)
    moments: list[float] = []
    rounds = equal = 0
    while len(moments) < kills:
        out = folder / f"round-{rounds}"
        out.mkdir()
        for _ in range(1 + rounds % 2):
            killed, ran_s = killer.run(out, chance.uniform(0, seconds))
            if killed:
                moments.append(round(ran_s, 3))
        killer.run(out)
        equal += digests(out) == expected
        rounds += 1
        shutil.rmtree(out)
        report(f"{len(moments)} kills in {rounds} rounds, {equal} equal")
    return {
        "kills": len(moments),
        "rounds": rounds,
        "rounds_equal": equal,
        "undisturbed_s": round(seconds, 3),
        "killed_after_s": moments,
        "files": len(expected),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Kill and compare; the exit status is 1 where anything differed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=50, help="of each kind of work")
    parser.add_argument("--work", metavar="DIR", help="where temporary files go")
    parser.add_argument("--json", metavar="F", help="write the result file")
    given = parser.parse_args(arguments)
    config = run_config(TABLE)
    with tempfile.TemporaryDirectory(prefix="gids-kills-", dir=given.work) as folder:
        root = Path(folder)
        larger = run_config({**TABLE, "data": {**TABLE["data"], **LARGER}})
        for each in (config, larger):
            prepare_data(each.data, root)
        result: dict[str, Any] = {
            "schema": SCHEMA,
            "name": "kills",
            "commit": commit(),
            "command": command(),
            "machine": describe_machine(root),
            "config": {"training": as_table(config), "conversion": as_table(larger.data)},
        }
        for name, work, settings in (("conversion", convert, larger), ("training", train, config)):
            result[name] = kill_often(
                Killer(work, settings, root),
                given.kills,
                root / name,
                lambda line, name=name: print(f"{name}: {line}", flush=True),
            )
    if given.json:
        Path(given.json).write_text(json.dumps(result, indent=1) + "\n")
    done = all(result[name]["rounds_equal"] == result[name]["rounds"] for name in ("conversion", "training"))
    return 0 if done else 1


if __name__ == "__main__":
    sys.exit(main())
