"""Several arrays in one store: all node types of one row size in one launch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from device_groups import SETTINGS, check_constant_rows, check_group, check_next_uses, make_arrays
from emulated_gpu import EmulatedGpu

from bam.array.device_group import JoinedLayout
from bam.array.open_group import open_group
from bam.errors import ConfigError, RowOutOfRange
from bam.layout import Layout
from bam.native import available

pytestmark = pytest.mark.skipif(not available(), reason="the native library was not built")


def test_rows_of_all_arrays(tmp_path: Path) -> None:
    gpu = EmulatedGpu()
    counted = check_group(gpu, tmp_path)
    # three calls of two row sizes each, one of them of no rows
    assert counted.gathers == 6
    assert gpu.launches.count("bam_gather_rows") == 4
    assert counted.rows == 6 * 170


def test_rows_that_are_there_for_good(tmp_path: Path) -> None:
    check_constant_rows(EmulatedGpu(), tmp_path)


def test_uses_that_are_foreseen_and_forgotten(tmp_path: Path) -> None:
    check_next_uses(EmulatedGpu(), tmp_path)


def test_arrays_begin_at_pages_and_the_space_between_is_never_a_row() -> None:
    layouts = [Layout.single("a", 128, 1000), Layout.single("b", 0, 30), Layout.single("c", 64, 512)]
    joined = JoinedLayout.of(layouts, 512)
    assert joined.first_bytes == (0, 1024, 1536)
    assert joined.layout.logical_bytes == 2048
    for layout, first in zip(layouts, joined.first_bytes, strict=True):
        run = joined.layout.locate(first, 1)
        assert (joined.layout.files[run.file], run.file_offset) == (
            layout.files[0],
            layout.extents[0].file_offset,
        )


def test_an_error_names_the_row_of_its_array(tmp_path: Path) -> None:
    arrays = make_arrays(tmp_path)
    sources = {name: tmp_path / f"{name}.npy" for name in arrays}
    with open_group(sources, page_bytes=512, cache="8 lines", gpu=SETTINGS, on=EmulatedGpu()) as group:
        with pytest.raises(RowOutOfRange) as caught:
            group.gather({"paper": [3, 300], "author": [0, 77]})
        assert (caught.value.row_id, caught.value.n_rows, caught.value.position) == (77, 77, 1)
        with pytest.raises(ConfigError, match="venues"):
            group.gather({"venues": [1]})
        with pytest.raises(ConfigError, match="author"):
            group.gather({"author": [1]}, {"author": np.zeros((2, 96), np.float32)})


def test_striped_arrays_cannot_share_a_store() -> None:
    with pytest.raises(ConfigError, match="striped"):
        JoinedLayout.of([Layout.striped(["a", "b"], 512, 4096)], 512)


def test_next_uses_are_one_for_each_id_of_each_array(tmp_path: Path) -> None:
    arrays = make_arrays(tmp_path)
    sources = {name: tmp_path / f"{name}.npy" for name in arrays}
    with open_group(sources, page_bytes=512, cache="8 lines", gpu=SETTINGS, on=EmulatedGpu()) as group:
        ids = {"paper": np.array([3, 300]), "author": np.array([0])}
        for uses in ({"paper": [7], "author": [8]}, {"paper": [7, 8]}):
            with pytest.raises(ConfigError, match="next_use"):
                group.begin(ids, next_use={name: np.array(each, np.uint64) for name, each in uses.items()})
        assert group.stats().gathers == 0


def test_space_is_filled_from_the_longest_piece() -> None:
    layouts = [Layout.single("a", 0, 8192), Layout.single("b", 0, 4)]
    assert len(JoinedLayout.of(layouts, 4096).layout.extents) == 3
