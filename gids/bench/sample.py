"""`gids bench sample`: sampled edges a second, on CPU or GPU, beside DGL's sampler on the same graph."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from bam.bench.machine import command, commit, describe_machine
from bam.errors import ConfigError
from gids.bench.launch import child_environment
from gids.bench.samplers import SAMPLERS, Work
from gids.errors import DatasetError, GidsError
from gids.graph.igbh import is_igbh
from gids.graph.igbh_facts import LABELLED_TYPE
from gids.graph.store import is_store

SCHEMA = 1
OURS, THEIRS, ON_GPU = "gids", "dgl", "gids-cuda"
WARM_UP_STEPS = 10  # buffers on a GPU have their sizes after a few
CPU_SAMPLERS = tuple(name for name in SAMPLERS if name != ON_GPU)
#: What is run with `--device cuda`: the sampler there, and those it is compared with.
CUDA_SAMPLERS = (OURS, ON_GPU, THEIRS)
#: The mini-batch that the figure `gpu_sampler` is about.
FIGURE_FANOUTS, FIGURE_BATCH_SIZE = (15, 10, 5), 512
EQUAL_STEPS = 3


class SamplerDied(GidsError, RuntimeError):
    """A sampler's process ended before it answered.

    Attributes
    ----------
    sampler : str
    status : int
        Its exit status; what it wrote stands on standard error.
    """

    def __init__(self, sampler: str, status: int) -> None:
        self.sampler, self.status = sampler, status
        super().__init__(f"sampler {sampler!r} ended with status {status}; its own message stands above")


class CountsDiffer(GidsError, AssertionError):
    """Two samplers do not mean the same by the same request, so their speeds do not compare.

    Attributes
    ----------
    differences : dict
        For each count that differs, the two numbers.
    """

    def __init__(self, fanouts: Sequence[int], differences: dict[str, tuple[int, int]]) -> None:
        self.differences = differences
        super().__init__(
            f"with fanouts {list(fanouts)}, {OURS} and {THEIRS} count differently: {differences}"
        )


class BatchesDiffer(GidsError, AssertionError):
    """The CPU's and the GPU's mini-batches are not the same bits.

    Attributes
    ----------
    fanouts : list of int
    batch_size : int
    """

    def __init__(self, fanouts: Sequence[int], batch_size: int) -> None:
        self.fanouts, self.batch_size = list(fanouts), batch_size
        super().__init__(f"with fanouts {self.fanouts} and {batch_size} seeds, {OURS} and {ON_GPU} differ")


@dataclass(frozen=True)
class SampleBench:
    """What to measure.

    Attributes
    ----------
    fanouts : tuple of tuple of int
    batch_sizes : tuple of int
        Every fanout is measured with each.
    steps, rounds : int
        Each round takes every sampler through `steps` mini-batches; the median round counts.
    threads : int
        Of every sampler; 0: as many as this process may use cores.
    node_type : str
        Of the seeds.
    times_compilation : bool
        Time the compilation as well, in further processes with a cache of their own.
    samplers : tuple of str
        Of `gids.bench.samplers.SAMPLERS`; `gids` and `dgl` are among them.
    """

    fanouts: tuple[tuple[int, ...], ...] = ((10, 5), (15, 10, 5))
    batch_sizes: tuple[int, ...] = (512,)
    steps: int = 20
    rounds: int = 5
    threads: int = 0
    node_type: str = LABELLED_TYPE
    times_compilation: bool = True
    samplers: tuple[str, ...] = CPU_SAMPLERS

    def __post_init__(self) -> None:
        if min(self.batch_sizes, default=0) < 1 or min(self.steps, self.rounds) < 1:
            raise ConfigError("batch_sizes, steps, rounds", self, "each 1 or more")
        if not {OURS, THEIRS} <= set(self.samplers) <= set(SAMPLERS):
            raise ConfigError(
                "samplers", self.samplers, f"{OURS}, {THEIRS} and others of {', '.join(SAMPLERS)}"
            )


class _Process:
    """A sampler in a process of its own; answers one request at a time."""

    def __init__(self, name: str, path: Path, threads: int, **environment: str) -> None:
        self.name = name
        self._child = subprocess.Popen(
            [sys.executable, "-m", "gids.bench.samplers", name, str(path), str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=child_environment(threads) | environment,
            text=True,
        )
        self._ready: dict[str, Any] | None = None

    def ready(self) -> dict[str, Any]:
        """What it says before the first request."""
        self._ready = self._ready or self._read()
        return self._ready

    def edges(self, work: Work) -> tuple[int, float]:
        """Edges of some mini-batches, and the seconds they took."""
        answer = self._ask(work, "edges")
        return answer["answer"], answer["seconds"]

    def counts(self, work: Work) -> dict[str, int]:
        """Counts of the first mini-batch."""
        counts: dict[str, int] = self._ask(work, "counts")["answer"]
        return counts

    def digest(self, work: Work) -> str:
        """Fingerprint of some mini-batches."""
        return str(self._ask(work, "digest")["answer"])

    def _ask(self, work: Work, what: str) -> dict[str, Any]:
        self.ready()
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps({"work": asdict(work), "what": what}) + "\n")
        self._child.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            raise SamplerDied(self.name, self._child.wait())
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __enter__(self) -> _Process:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._child.kill()
        self._child.communicate()


def run_sample(path: str | os.PathLike[str], bench: SampleBench | None = None) -> dict[str, Any]:
    """Measure, and return the result file's contents.

    Every sampler has a process of its own, so that idle threads of one do not take time from another; they
    take turns, so that whatever else the machine does meets all alike. Before anything is timed, both must
    count the same edges and nodes.

    Parameters
    ----------
    path : path
        A store or an IGBH folder.
    bench : SampleBench, optional

    Raises
    ------
    DatasetError
        Before any work.
    CountsDiffer, BatchesDiffer, SamplerDied
    """
    bench = bench or SampleBench()
    threads = bench.threads or len(os.sched_getaffinity(0))
    root = Path(path)
    if not is_store(root) and not is_igbh(root):
        raise DatasetError(str(root), "a store or an IGBH folder", "neither")
    with ExitStack() as opened:
        samplers = [opened.enter_context(_Process(name, root, threads)) for name in bench.samplers]
        described = [sampler.ready() for sampler in samplers]
        results = [
            _measure(samplers, bench, fanouts, batch_size)
            for batch_size in bench.batch_sizes
            for fanouts in bench.fanouts
        ]
    environment = child_environment(threads)
    names = ("OMP_WAIT_POLICY", "OMP_NUM_THREADS", "NUMBA_NUM_THREADS")
    return {
        "schema": SCHEMA,
        "name": "sample",
        "commit": commit(),
        "command": command(),
        "machine": {
            **describe_machine(root),
            "threads": threads,
            "gpu": "".join(each["gpu"] for each in described),
            "environment": {name: environment[name] for name in names},
        },
        "data": {"path": root.name, "nodes": described[0]["num_nodes"], "edges": described[0]["num_edges"]},
        "config": asdict(bench),
        "compile": _compile_times(root, threads) if bench.times_compilation else None,
        "fanouts": results,
        "figures": _figures(results),
    }


def _measure(
    samplers: Sequence[_Process], bench: SampleBench, fanouts: Sequence[int], batch_size: int
) -> dict[str, Any]:
    work = Work(list(fanouts), bench.node_type, batch_size, 0, bench.steps)
    by_name = {sampler.name: sampler for sampler in samplers}
    _require_equal_counts(by_name[OURS], by_name[THEIRS], work)
    if ON_GPU in by_name:
        few = replace(work, steps=EQUAL_STEPS)
        if by_name[OURS].digest(few) != by_name[ON_GPU].digest(few):
            raise BatchesDiffer(fanouts, batch_size)
    rounds: dict[str, list[float]] = {sampler.name: [] for sampler in samplers}
    edges: dict[str, int] = dict.fromkeys(rounds, 0)
    for sampler in samplers:
        sampler.edges(replace(work, steps=WARM_UP_STEPS))
    for number in range(bench.rounds):
        for sampler in samplers:
            count, seconds = sampler.edges(replace(work, first=number * bench.steps))
            rounds[sampler.name].append(count / seconds)
            edges[sampler.name] += count
    medians = {name: statistics.median(each) for name, each in rounds.items()}
    return {
        "fanouts": list(fanouts),
        "batch_size": batch_size,
        "samplers": {
            name: {"edges_per_s": medians[name], "edges": edges[name], "rounds_edges_per_s": rounds[name]}
            for name in rounds
        },
        "ratios": {name: medians[name] / medians[THEIRS] for name in rounds if name != THEIRS},
    }


def _figures(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """`gpu_sampler`: edges a second, and how many times DGL's."""
    for measured in results:
        case = tuple(measured["fanouts"]), measured["batch_size"]
        if case == (FIGURE_FANOUTS, FIGURE_BATCH_SIZE) and ON_GPU in measured["samplers"]:
            value, ceiling = (measured["samplers"][name]["edges_per_s"] for name in (ON_GPU, THEIRS))
            figure = {"value": value, "unit": "sampled edges/s", "ceiling": ceiling, "ratio": value / ceiling}
            return {"gpu_sampler": figure}
    return {}


def _require_equal_counts(ours: _Process, theirs: _Process, work: Work) -> None:
    """All neighbours: every count is equal. With the fanouts: those of the hop at the seeds are."""
    all_neighbours = replace(work, fanouts=[-1] * len(work.fanouts), batch_size=min(16, work.batch_size))
    last = f" {len(work.fanouts) - 1}"
    for request, ending in ((all_neighbours, ""), (work, last)):
        counts, their_counts = ours.counts(request), theirs.counts(request)
        differences = {
            name: (count, their_counts[name])
            for name, count in counts.items()
            if name.endswith(ending) and count != their_counts[name]
        }
        if differences:
            raise CountsDiffer(request.fanouts, differences)


def _compile_times(path: Path, threads: int) -> dict[str, float]:
    """Seconds until compiled code is ready: with an empty cache, and in the next process."""
    with tempfile.TemporaryDirectory(prefix="numba-") as folder:
        seconds = []
        for _ in range(2):
            with _Process(OURS, path, threads, NUMBA_CACHE_DIR=folder) as sampler:
                seconds.append(sampler.ready()["compile_s"])
    return {"first_s": seconds[0], "cached_s": seconds[1]}
