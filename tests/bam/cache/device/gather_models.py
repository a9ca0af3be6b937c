"""Checks of what gathers on a GPU count against their plain model, for the emulated one and a real one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
from device_arrays import as_numpy

import bam
from bam.array.device_gather_model import MANY_PIECES, DeviceGatherModel, PlainArray, PlainRow
from bam.array.sources import MemorySource
from bam.cache.device.gpu import Gpu, Grid
from bam.cache.page_cache import NEVER, PolicyKind
from bam.cache.reference import ReferenceCache

PAGE_BYTES, FLIGHTS, SLOTS, LINES = 512, 3, 40, 90
#: Name, rows and bytes of each: several to a page, straddling, several pages each.
ARRAYS = [("short", 400, 64), ("long", 60, 2560), ("uneven", 150, 600)]


def check_gathers(make_gpu: Callable[[], Gpu], policy: PolicyKind, seed: int) -> set[str]:
    """Gathers that are begun together count as foretold, each by itself; which counters were not zero."""
    random = np.random.default_rng(seed)
    tables = {name: random.integers(-128, 128, (n, size), np.int8) for name, n, size in ARRAYS}
    gpu = make_gpu()
    gpu.grids["bam_submit_rows"] = Grid(2, 32)
    settings = bam.GpuSettings(
        queue_pairs=2, queue_slots=16, staging=FLIGHTS * SLOTS * PAGE_BYTES, flights=FLIGHTS
    )
    seen: set[str] = set()
    with bam.open_group(
        {name: MemorySource(rows) for name, rows in tables.items()},
        cache=f"{LINES} lines",
        policy=policy,
        page_bytes=PAGE_BYTES,
        gpu=settings,
        on=gpu,
    ) as group:
        arrays = {name: PlainArray(size, group.first_byte(name)) for name, _, size in ARRAYS}
        model = DeviceGatherModel(arrays, ReferenceCache(LINES, PAGE_BYTES, policy), FLIGHTS, SLOTS)
        for clock in range(12):
            begun = [_begin(group, model, tables, random, clock) for _ in range(random.integers(1, 4))]
            for place in random.permutation(len(begun)):
                seen |= _check(*begun[place], model)
    return seen


def check_a_large_gather(make_gpu: Callable[[], Gpu]) -> None:
    """So many long rows that a warp takes 16 pieces of them: the second gather hits 78, with 8 it hit 77."""
    n_rows, row_bytes, lines = 14_000, 2560, 512
    n_pieces = n_rows * row_bytes // PAGE_BYTES
    assert n_pieces >= MANY_PIECES
    random = np.random.default_rng(1)
    rows = np.random.default_rng(2).integers(-128, 128, (n_rows, row_bytes), np.int8)
    gpu = make_gpu()
    gpu.grids["bam_submit_rows"] = Grid(2, 32)
    settings = bam.GpuSettings(staging=n_pieces * PAGE_BYTES, flights=1)
    with bam.open_group(
        {"": MemorySource(rows)}, cache=f"{lines} lines", page_bytes=PAGE_BYTES, gpu=settings, on=gpu
    ) as group:
        array = {"": PlainArray(row_bytes, group.first_byte(""))}
        reference = ReferenceCache(lines, PAGE_BYTES, PolicyKind.CLOCK)
        model = DeviceGatherModel(array, reference, 1, n_pieces)
        for _ in range(2):
            ids = (n_rows * random.random(n_rows) ** 4).astype(np.int64)
            begun = group.begin({"": ids}, counted=True)
            _check(begun, model.begin([PlainRow("", row, NEVER) for row in ids.tolist()]), model)
            np.testing.assert_array_equal(as_numpy(begun.wait()[""]), rows[ids])


def _begin(group: Any, model: DeviceGatherModel, tables: Any, random: Any, clock: int) -> tuple[Any, Any]:
    """One gather of an array's rows, in any order, some twice; other rows are noted first."""
    name = str(random.choice(sorted(tables)))
    n_rows = len(tables[name])
    noted = np.unique(random.integers(0, n_rows, 10))
    group.note_next_use({name: noted}, clock + 1)
    model.note_use([PlainRow(name, row, clock + 1) for row in noted.tolist()])
    ids = (n_rows * random.random(random.integers(1, 60)) ** 2).astype(np.int64)
    # As a loader's: of rows that lie in one page with others the same.
    uses = (clock + 1 + ids * tables[name].shape[1] // PAGE_BYTES % 7).astype(np.uint64)
    if name != "short":
        uses += random.integers(0, 3, len(ids)).astype(np.uint64)
    begun = group.begin({name: ids}, next_use={name: uses}, counted=True)
    rows = [PlainRow(name, row, use) for row, use in zip(ids.tolist(), uses.tolist(), strict=True)]
    return begun, model.begin(rows)


def _check(begun: Any, foretold: Any, model: DeviceGatherModel) -> set[str]:
    begun.wait()
    model.wait(foretold)
    found = {name: asdict(counts) for name, counts in begun.counts().items()}
    assert found == {
        name: {counter: counts[counter] for counter in found[name]}
        for name, counts in foretold.counts.items()
    }
    return {counter for counts in found.values() for counter, count in counts.items() if count}
