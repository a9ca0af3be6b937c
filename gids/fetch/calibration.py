"""Measures a device once and keeps what was found beside the data set."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bam.bench.random_reads import engine_reads_per_s
from bam.config import EngineKind, parse_kind
from bam.errors import ConfigError
from bam.storage.buffers import aligned_buffer
from bam.storage.bulk.settings import BulkSettings, Destination
from bam.storage.engine import Engine, ReadSpan
from bam.storage.native import NativeEngine
from bam.storage.open import open_engine
from gids.errors import DatasetError
from gids.fetch.bulk_points import BulkPoint, best_point, measure_bulk
from gids.fetch.cost_model import CostModel
from gids.fetch.device_identity import DeviceIdentity
from gids.fetch.device_model import SsdFacts

logger = logging.getLogger(__name__)

FILE_NAME = "calibration.json"
VERSION = 1
READ_BYTES = tuple(2**power for power in range(9, 21))
DEPTHS = (1, 16, 64, 256)
DEFAULT_SECONDS = 15.0
#: Depths at which this much would be under way measure nothing that a smaller one does not.
_MAX_BYTES_UNDER_WAY = 32 * 2**20
#: Share of the time for bulk reads.
_BULK_SHARE = 0.25
#: A file much smaller than this is read again and again, and the device answers from its own cache.
SMALL_FILE_BYTES = 256 * 2**20


@dataclass(frozen=True)
class Point:
    """One measurement.

    Attributes
    ----------
    read_bytes, depth : int
        Length of the reads, and how many were under way all the time.
    reads_per_s : float
    """

    read_bytes: int
    depth: int
    reads_per_s: float

    @property
    def latency_us(self) -> float:
        """Mean time from submission to completion: by Little's law, depth over rate."""
        return 1e6 * self.depth / self.reads_per_s


@dataclass(frozen=True)
class Calibration:
    """What was measured, and of what.

    Attributes
    ----------
    device : DeviceIdentity
    engine : str
        The engine that read.
    direct : bool
        Whether the reads went past the page cache.
    file_bytes : int
        Size of the file that was read.
    points : tuple of Point
    bulk : tuple of BulkPoint
        Long reads of several threads; empty in files of earlier versions.
    """

    device: DeviceIdentity
    engine: str
    direct: bool
    file_bytes: int
    points: tuple[Point, ...]
    bulk: tuple[BulkPoint, ...] = ()

    def best_rates(self) -> dict[int, float]:
        """Reads per second by length, at the depth that is best for it."""
        rates: dict[int, float] = {}
        for point in self.points:
            rates[point.read_bytes] = max(point.reads_per_s, rates.get(point.read_bytes, 0.0))
        return rates

    def cost_model(self) -> CostModel:
        """Device time by length."""
        return CostModel.of_rates(self.best_rates())

    def facts(self, page_bytes: int) -> SsdFacts:
        """Peak and fixed latency of reads of one page."""
        measured = sorted(self.best_rates())
        length = next((each for each in measured if each >= page_bytes), measured[-1])
        shallow = min((point for point in self.points if point.read_bytes == length), key=_depth)
        return SsdFacts(self.best_rates()[length], shallow.latency_us)

    def bulk_settings(self) -> dict[Destination, BulkSettings]:
        """The best for bulk reads, by the memory they were measured into."""
        best = {destination: best_point(self.bulk, destination) for destination in Destination}
        return {destination: point.settings for destination, point in best.items() if point is not None}

    def to_json(self) -> dict[str, Any]:
        """Plain values; :meth:`from_json` reads them back."""
        points = [{**asdict(point), "latency_us": point.latency_us} for point in self.points]
        return {"version": VERSION, **asdict(self), "points": points}

    @classmethod
    def from_json(cls, table: dict[str, Any]) -> Calibration:
        """The calibration of :meth:`to_json`."""
        points = tuple(
            Point(each["read_bytes"], each["depth"], each["reads_per_s"]) for each in table["points"]
        )
        device = DeviceIdentity(**table["device"])
        bulk = tuple(BulkPoint(**each) for each in table.get("bulk", ()))
        return cls(device, table["engine"], table["direct"], table["file_bytes"], points, bulk)


def _depth(point: Point) -> int:
    return point.depth


def calibrate(
    path: str | os.PathLike[str],
    *,
    engine: EngineKind | str = EngineKind.AUTO,
    seconds: float = DEFAULT_SECONDS,
    read_bytes: tuple[int, ...] = READ_BYTES,
    depths: tuple[int, ...] = DEPTHS,
) -> Calibration:
    """Measure random reads of a file, by length and depth, and bulk reads, by task size and threads.

    Parameters
    ----------
    path : path
        A file on the device, larger than the device's own cache; not changed.
    engine : str
        As for reading features.
    seconds : float
        All measurements together, about.
    read_bytes, depths : tuple of int
        Lengths below what direct reads allow are left out.

    Raises
    ------
    ConfigError
        No length fits the file.
    StorageError, EngineUnavailable
    """
    kind, bulk_seconds = parse_kind("engine", engine, EngineKind), _BULK_SHARE * seconds
    with open_engine(kind, [str(path)]) as opened:
        points = measure(opened, seconds=seconds - bulk_seconds, read_bytes=read_bytes, depths=depths)
        info, n_bytes = opened.info(), opened.files[0].bytes
    bulk = measure_bulk(path, seconds=bulk_seconds, engine=kind)
    return Calibration(DeviceIdentity.of_path(path), info.engine, info.direct, n_bytes, tuple(points), bulk)


def measure(
    engine: Engine,
    *,
    seconds: float,
    read_bytes: tuple[int, ...] = READ_BYTES,
    depths: tuple[int, ...] = DEPTHS,
) -> list[Point]:
    """Measure an engine that is open already, such as one that a wrapper slows down; reads its file 0."""
    plan = list(_plan(engine, read_bytes, depths))
    if not plan:
        file = engine.files[0]
        raise ConfigError("file", file.path, f"a file of at least {max(file.offset_alignment, 512)} bytes")
    points = []
    for number, (length, depth) in enumerate(plan):
        rate = _rate(engine, depth, length, number, seconds / len(plan))
        points.append(Point(length, depth, rate))
    return points


def _plan(engine: Engine, read_bytes: tuple[int, ...], depths: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    file = engine.files[0]
    for length in read_bytes:
        if length % file.offset_alignment or length > file.bytes:
            continue
        for depth in depths:
            if depth == min(depths) or depth * length <= _MAX_BYTES_UNDER_WAY:
                yield length, depth


def _rate(engine: Engine, depth: int, length: int, seed: int, seconds: float) -> float:
    if isinstance(engine, NativeEngine):
        return engine_reads_per_s(engine, depth, length, seed=seed, seconds=seconds)
    return _python_rate(engine, depth, length, seed, seconds)


def _python_rate(engine: Engine, depth: int, length: int, seed: int, seconds: float) -> float:
    """The same through an engine in Python, which reads `depth` spans at a time."""
    random = np.random.default_rng(seed)
    file = engine.files[0]
    buffers = [aligned_buffer(length, file.memory_alignment) for _ in range(depth)]
    begin, done = time.perf_counter(), 0
    while done == 0 or time.perf_counter() - begin < seconds:
        blocks = random.integers(0, file.bytes // length, depth).tolist()
        engine.read([ReadSpan(0, block * length, length) for block in blocks], buffers)
        done += depth
    return done / (time.perf_counter() - begin)


def store_calibration(calibration: Calibration, folder: str | os.PathLike[str]) -> Path:
    """Write it beside the data set, as a whole."""
    file = Path(folder) / FILE_NAME
    partial = file.with_name(file.name + ".partial")
    partial.write_text(json.dumps(calibration.to_json(), indent=1) + "\n", encoding="utf-8")
    partial.replace(file)
    return file


def load_calibration(
    folder: str | os.PathLike[str], data: str | os.PathLike[str] | None = None
) -> Calibration | None:
    """What was measured for a data set, if its device is still the same; else None.

    Parameters
    ----------
    folder : path
        Where the measurement lies.
    data : path, optional
        The data set; by default `folder`.

    Raises
    ------
    DatasetError
        The file is damaged.
    """
    file = Path(folder) / FILE_NAME
    if not file.exists():
        return None
    try:
        table = json.loads(file.read_text(encoding="utf-8"))
        calibration = Calibration.from_json(table) if table["version"] == VERSION else None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DatasetError(str(file), "a calibration; run `gids calibrate`", repr(error)) from error
    if calibration is None or calibration.device != DeviceIdentity.of_path(data or folder):
        logger.warning("%s is of another device or version: run `gids calibrate` again", file)
        return None
    return calibration
