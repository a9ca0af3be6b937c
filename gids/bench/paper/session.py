"""One call of the comparison: data made, bounds measured, and as many runs as there is time for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bam.bench.machine import command, commit
from gids.bench.ceilings import measure_ceilings
from gids.bench.data import open_data, prepare_data
from gids.bench.device import TrainingDevice
from gids.bench.e2e import describe_data, describe_run_machine, measure, record_batches
from gids.bench.job import Job, JobKind
from gids.bench.launch import run_job
from gids.bench.paper.bounds import reading_bounds
from gids.bench.paper.folder import RunsFolder
from gids.bench.paper.regimes import TECHNIQUES, Regime, Run
from gids.bench.recorded import INDEX_NAME, open_recorded
from gids.config.sections import RunConfig
from gids.errors import GidsError
from gids.fetch.calibration import calibrate, load_calibration, store_calibration
from gids.fetch.memory import available_memory_bytes
from gids.graph.open_dataset import largest_feature_file
from gids.graph.progress import Progress, no_progress

#: Steps that show how much memory a loader's process needs for itself.
_PROBE_STEPS = 3
_PROBE_CACHE_BYTES = 16 * 2**20
#: On top of what those showed: buffers still grow with the largest mini-batch.
_OWN_SLACK_SHARE = 0.1
_OWN_SLACK_BYTES = 256 * 2**20
#: Of a run that was never made: opening, importing and verifying, beside the steps themselves.
_OPENING_S = 45.0
#: How many times longer `gids` may take when a technique is off.
_WITHOUT_A_TECHNIQUE = 3.0


class BoundsFailed(GidsError, RuntimeError):
    """What a step takes at least could not be measured, and without that no run would say much."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"computing alone could not be measured: {reason}")


@dataclass(frozen=True)
class SessionSettings:
    """How a call goes about it.

    Attributes
    ----------
    root, work : Path
        Folder that all data sets are below; folder for recorded mini-batches.
    verify_steps : int
        Mini-batches whose every byte is hashed, in the first repetition of regimes without a memory limit.
        Of every run some rows of every mini-batch are, while its clock runs.
    run_seconds : int
        A run that takes longer stops early.
    budget_s : float
        No run is begun that is not expected to end within so much time; infinite: all are made.
    own_bytes : int
        Memory of a loader's own process where memory is limited; 0: measured.
    ceiling_seconds, calibrate_seconds : float
        Length of the measurements of the disk.
    """

    root: Path
    work: Path
    verify_steps: int = 2
    run_seconds: int = 120
    budget_s: float = float("inf")
    own_bytes: int = 0
    ceiling_seconds: float = 2.0
    calibrate_seconds: float = 10.0


@dataclass(frozen=True)
class SessionEnd:
    """What a call came to.

    Attributes
    ----------
    made, left : int
        Runs made in this call, and planned ones that are still to be made.
    """

    made: int
    left: int


def run_session(
    config: RunConfig,
    folder: RunsFolder,
    runs: list[Run],
    settings: SessionSettings,
    *,
    report: Callable[[str], object] = lambda line: None,
    progress: Progress = no_progress,
) -> SessionEnd:
    """Make the runs that the folder has not got yet, as far as the time allows.

    Raises
    ------
    ConfigError, DatasetError
        Before any run. A run that fails has ``failed`` in its file, and the others go on.
    """
    begin = time.monotonic()
    todo = [run for run in runs if folder.result(run) is None]
    if not todo:
        return SessionEnd(0, 0)
    session = _Session(config, folder, settings, report, progress)
    made = 0
    for run in todo:
        needed = expected_s(folder, run, settings.run_seconds)
        if time.monotonic() - begin + needed > settings.budget_s:
            continue  # a shorter one may still fit
        session.make(run)
        made += 1
    return SessionEnd(made, len(todo) - made)


def expected_s(folder: RunsFolder, run: Run, run_seconds: int) -> float:
    """How long a run will take: as long as an earlier one of its kind, or else what it may take at most."""
    earlier = [replace(run, repetition=number) for number in range(run.repetition)]
    slower = 1.0
    if run.name in TECHNIQUES:
        earlier, slower = [replace(run, name="gids")], _WITHOUT_A_TECHNIQUE
    known = [result for result in map(folder.result, earlier) if result is not None]
    if not known:
        return run_seconds + _OPENING_S
    return slower * max(float(result["wall_s"]) for result in known)


class _Session:
    def __init__(
        self,
        config: RunConfig,
        folder: RunsFolder,
        settings: SessionSettings,
        report: Callable[[str], object],
        progress: Progress,
    ) -> None:
        self._config, self._folder, self._settings, self._report = config, folder, settings, report
        bench, device = config.bench, TrainingDevice.named(config.loader.device)  # raises, before any work
        settings.work.mkdir(parents=True, exist_ok=True)
        prepared = _prepare(config, settings, progress)
        self._data = open_data(config.data, settings.root, settings.work)
        self._job = Job(JobKind.TIME, "gids", bench.steps, 0, config, str(settings.root), str(settings.work))
        self._job = replace(self._job, recorded=self._recorded(progress))
        self._described = describe_data(self._data)
        report(", ".join(f"{what} {seconds:.1f} s" for what, seconds in prepared.items()))
        largest = self._data.files()[0]
        self._number = folder.add_session(
            {
                "commit": commit(),
                "command": command(),
                "machine": describe_run_machine(Path(largest), config),
                "device": device.name,
                "data": self._described,
                "prepare_s": prepared,
                "ceilings": measure_ceilings(largest, settings.ceiling_seconds),
            }
        )

    def _recorded(self, progress: Progress) -> str:
        """The folder of recorded mini-batches: those of an earlier call with equal settings, or new ones."""
        work = self._settings.work / self._folder.fingerprint[:16]
        if (work / "recorded" / INDEX_NAME).exists():
            return str(work / "recorded")
        return record_batches(replace(self._job, work=str(work)), self._data, progress)

    def make(self, run: Run) -> None:
        """One run, and what has to be known of its regime before."""
        facts = self._folder.facts(run.regime) or self._find_facts(run.regime)
        config = run.config(self._config, self._features_bytes)
        limit = f"{facts['limit_bytes']}" if run.regime.limited else ""
        bench = replace(config.bench, max_seconds=self._settings.run_seconds, memory_limit=limit)
        verifies = run.repetition == 0 and not run.regime.limited
        verified = min(bench.steps, self._settings.verify_steps) if verifies else 0
        job = replace(
            self._job, loader=run.loader, verify_steps=verified, config=replace(config, bench=bench)
        )
        begin = time.monotonic()
        result = measure(job, self._data, belady=False)
        result |= {
            "wall_s": time.monotonic() - begin,
            "session": self._number,
            "repetition": run.repetition,
            "position": run.position,
        }
        result.pop("storage", None)
        self._folder.write(run, result)
        self._report(f"{run}: {_one_line(result)}, {result['wall_s']:.0f} s in all")

    @property
    def _features_bytes(self) -> int:
        found: int = self._described["feature_bytes"]
        return found

    def _find_facts(self, regime: Regime) -> dict[str, Any]:
        config = regime.applied(self._config, self._features_bytes)
        alone, recorded = self._step_bounds(), open_recorded(self._job.recorded)
        reading = reading_bounds(self._data, config, recorded, alone["accumulate_bytes"])
        facts = {"bounds": {**alone, **reading}, "limit_bytes": 0, "own_bytes": 0}
        if regime.limited:
            own = self._settings.own_bytes or self._own_bytes(config)
            shares = regime.cache_bytes(self._features_bytes) + regime.buffer_bytes(self._features_bytes)
            facts |= {"own_bytes": own, "limit_bytes": own + shares}
        self._folder.write_facts(regime, facts)
        self._report(f"{regime.name.value}: bounds measured")
        return facts

    def _step_bounds(self) -> dict[str, Any]:
        """What is the same in all regimes, measured where training runs: in a process of its own.

        Raises
        ------
        BoundsFailed
        """
        found = self._folder.step_bounds()
        if found is None:
            found = run_job(replace(self._job, kind=JobKind.BOUNDS))
            found.pop("memory")
            if "failed" in found:
                raise BoundsFailed(found["failed"])
            self._folder.write_step_bounds(found)
        return found

    def _own_bytes(self, config: RunConfig) -> int:
        """Memory that a loader's process needs beside cached features, page cache left out.

        The most of two: of a memory map's, and of `gids` with next to nothing cached.
        """
        steps = min(_PROBE_STEPS, self._job.steps)
        bare = replace(config, loader=replace(config.loader, cache=_PROBE_CACHE_BYTES, cpu_buffer=0))
        is_gpu = TrainingDevice.named(config.loader.device).is_gpu
        own = 0
        for loader in ("dgl-mmap-tuned", "gids"):
            # On a machine that others use too, what they take meanwhile would count.
            with _most_taken(is_gpu) as taken:
                result = run_job(replace(self._job, loader=loader, steps=steps, config=bare))
            own = max(own, result.get("anonymous_bytes", 0), *taken)
        return int(own * (1 + _OWN_SLACK_SHARE)) + _OWN_SLACK_BYTES


def _prepare(config: RunConfig, settings: SessionSettings, progress: Progress) -> dict[str, float]:
    """Data set, store and calibration, unless they are there; seconds of each."""
    begin = time.monotonic()
    prepare_data(config.data, settings.root, progress)
    made = time.monotonic()
    store = settings.root / (config.data.store or config.data.folder)
    if load_calibration(store) is None and settings.calibrate_seconds:
        file = largest_feature_file(store)
        store_calibration(calibrate(file, seconds=settings.calibrate_seconds), store)
    return {"data": made - begin, "calibration": time.monotonic() - made}


@contextmanager
def _most_taken(watches: bool) -> Iterator[list[int]]:
    """Bytes of the machine's memory that went during the `with` block; pinned memory is in no other count."""
    taken, ended, before = [0], threading.Event(), available_memory_bytes()

    def watch() -> None:
        while watches and not ended.wait(0.05):
            taken[0] = max(taken[0], before - available_memory_bytes())

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield taken
    finally:
        ended.set()
        thread.join()


def _one_line(result: dict[str, Any]) -> str:
    if "failed" in result:
        return f"failed: {result['failed']}"
    return f"{result['steps']} steps, {1000 * result['end_to_end_s'] / result['steps']:.1f} ms each"
