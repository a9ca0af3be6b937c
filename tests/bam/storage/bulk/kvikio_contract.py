"""The contract of bulk readers, for kvikio itself.

Not collected by name: `test_bulk_kvikio` runs it in a process of its own, with a driver that sees no GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import kvikio
import kvikio.defaults
import numpy as np
import pytest
from bulk_contract import SMALL, BulkReaderContract, two_files

import bam
from bam.errors import StorageError
from bam.layout import Layout
from bam.storage.bulk import BulkRange, BulkReader, BulkSettings, HostMemory
from bam.storage.bulk.kvikio_reader import KvikioBulkReader

SETTINGS = ("num_threads", "task_size", "auto_direct_io_read", "compat_mode")


class TestKvikio(BulkReaderContract):
    def open(self, paths: Sequence[str], layout: Layout, settings: BulkSettings) -> BulkReader:
        return KvikioBulkReader(paths, layout, settings)


def test_its_settings_come_back(tmp_path: Path) -> None:
    before = [kvikio.defaults.get(name) for name in SETTINGS]
    paths, layout, content = two_files(tmp_path)
    with KvikioBulkReader(paths, layout, SMALL) as reader:
        reader.read([BulkRange(0, len(content))], HostMemory(np.zeros(len(content), np.uint8)))
    assert [kvikio.defaults.get(name) for name in SETTINGS] == before


def test_an_array_by_name(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).standard_normal((50_000, 24)).astype(np.float32)
    np.save(tmp_path / "a.npy", rows)
    loaded = bam.load_array(tmp_path / "a.npy", bulk=BulkSettings(engine="kvikio"))
    np.testing.assert_array_equal(loaded.rows, rows)
    assert loaded.report.engine == "kvikio"


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    """It opens files anew for each read."""
    paths, layout, _ = two_files(tmp_path)
    with KvikioBulkReader(paths, layout, SMALL) as reader:
        Path(paths[1]).unlink()
        with pytest.raises(StorageError) as failed:
            reader.read([BulkRange(0, 10)], HostMemory(np.zeros(10, np.uint8)))
        assert failed.value.file == paths[1]
        assert failed.value.errno == 2
