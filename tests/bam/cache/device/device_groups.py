"""Checks of array groups, for the emulated GPU and a real one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from device_arrays import as_numpy

from bam.array.open_group import open_group
from bam.cache.device.gpu import Gpu
from bam.cache.device.reads import ConstantRows
from bam.cache.device.settings import GpuSettings
from gids.fetch.row_set import RowSet

SETTINGS = GpuSettings(queue_pairs=4, queue_slots=64, staging="2MiB")


def make_arrays(folder: Path) -> dict[str, Any]:
    """Six node types, five of which have rows of one size: more than fit into the kernels' arguments."""
    rng = np.random.default_rng(0)
    arrays = {
        "paper": rng.random((301, 96), dtype=np.float32),
        "author": rng.random((77, 96), dtype=np.float32),
        "field": rng.integers(0, 100, (40, 7), dtype=np.int8),
    }
    arrays |= {name: rng.random((9, 96), dtype=np.float32) for name in ("venue", "institute", "journal")}
    for name, rows in arrays.items():
        np.save(folder / f"{name}.npy", rows)
    return arrays


def check_group(gpu: Gpu, folder: Path) -> Any:
    """Random requests to all arrays together equal numpy's rows; returns the statistics."""
    arrays = make_arrays(folder)
    sources = {name: folder / f"{name}.npy" for name in arrays}
    with open_group(sources, page_bytes=512, cache="200 lines", gpu=SETTINGS, on=gpu) as group:
        rng = np.random.default_rng(1)
        for n in (50, 0, 120):
            ids = {name: rng.integers(-len(rows), len(rows), n) for name, rows in arrays.items()}
            found = group.gather(ids)
            for name, rows in arrays.items():
                np.testing.assert_array_equal(as_numpy(found[name]), rows[ids[name]])
        return group.stats()


def check_constant_rows(gpu: Gpu, folder: Path) -> None:
    """Rows in pinned memory and in the GPU's, as a range and as a set, are served from there, and counted."""
    rng = np.random.default_rng(5)
    arrays = make_arrays(folder)
    sources = {name: folder / f"{name}.npy" for name in arrays}
    members = np.sort(rng.permutation(77)[:40])
    hot = RowSet(members, 77)
    bitmap, ranks = gpu.upload(hot.words.view(np.uint8)), gpu.upload(hot.ranks.view(np.uint8))
    with open_group(sources, page_bytes=512, cache="40 lines", gpu=SETTINGS, on=gpu) as group:
        resident = gpu.upload(arrays["paper"][:20].reshape(-1).view(np.uint8))
        pinned = {name: gpu.pinned(rows.nbytes) for name, rows in arrays.items()}
        pinned["paper"].array[: 80 * 384] = arrays["paper"][20:100].reshape(-1).view(np.uint8)
        pinned["author"].array[: 40 * 384] = arrays["author"][members].reshape(-1).view(np.uint8)
        constant = {
            "paper": ConstantRows(pinned["paper"].address, 80, first_row=20),
            # only the first 30 members are there yet
            "author": ConstantRows(pinned["author"].address, 30, 0, bitmap.address, ranks.address),
        }
        on_gpu = {"paper": ConstantRows(resident.address, 20)}
        ids = {name: rng.integers(-len(rows), len(rows), 300) for name, rows in arrays.items()}
        gather = group.begin(ids, constant=constant, resident=on_gpu, counted=True)
        found, counts = gather.wait(), gather.counts()
        for name, rows in arrays.items():
            np.testing.assert_array_equal(as_numpy(found[name]), rows[ids[name]])
        rows_of = {name: ids[name] % len(rows) for name, rows in arrays.items()}
        assert counts["paper"].rows_resident == (rows_of["paper"] < 20).sum()
        assert counts["paper"].rows_constant == ((rows_of["paper"] >= 20) & (rows_of["paper"] < 100)).sum()
        assert counts["author"].rows_constant == np.isin(rows_of["author"], members[:30]).sum()
        for name, rows in arrays.items():
            mine, row_bytes = counts[name], rows[0].nbytes
            assert mine.rows_resident + mine.rows_constant + mine.rows_hit + mine.rows_joined + (
                mine.rows_read
            ) == len(ids[name])
            kept = np.zeros(300, bool)
            if name == "paper":
                kept = rows_of[name] < 100
            if name == "author":
                kept = np.isin(rows_of[name], members[:30])
            stored = rows_of[name][~kept]
            touched = (stored * row_bytes + row_bytes - 1) // 512 - stored * row_bytes // 512 + 1
            pages = mine.pages_hit + mine.pages_joined + mine.pages_claimed + mine.pages_bypassed
            assert pages == touched.sum()
        assert group.begin({"field": []}, counted=True).wait()["field"].shape == (0, 7)


def check_next_uses(gpu: Gpu, folder: Path) -> None:
    """Noted uses keep pages against others that come sooner than nothing; forgotten ones do not."""
    rows = np.arange(200 * 64, dtype=np.uint64).reshape(200, 64)
    np.save(folder / "rows.npy", rows)
    settings = {"page_bytes": 512, "cache": "32 lines", "policy": "look_ahead", "gpu": SETTINGS, "on": gpu}
    with open_group({"rows": rows}, **settings) as group:  # one set of 32 lines, a page a row

        def misses(ids: Any, use: int) -> int:
            uses = np.full(len(ids), use, np.uint64)
            gather = group.begin({"rows": ids}, next_use={"rows": uses}, counted=True)
            np.testing.assert_array_equal(as_numpy(gather.wait()["rows"]), rows[ids])
            return gather.counts()["rows"].rows_read

        first, second = np.arange(32), np.arange(50, 82)
        assert misses(first, 1000) == 32
        group.note_next_use({"rows": first[:20]}, 5)
        assert misses(second, 500) == 32  # takes the twelve lines that nobody noted
        assert misses(first[:20], 1000) == 0
        group.note_next_use({"rows": first[:20]}, 6)
        group.forget_next_uses(100, 2000)
        assert misses(second, 400) <= 20
        assert misses(first[:20], 1000) == 20
