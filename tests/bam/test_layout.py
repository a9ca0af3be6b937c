from __future__ import annotations

import ctypes
import gc
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bam import native
from bam.errors import ConfigError
from bam.layout import Extent, FileRun, Layout, striped_file_bytes
from bam.native.structs import CExtent, CLayout

LOCATE = """
#include "bam/extent.h"
extern "C" void locate(const bam::Layout* layout, uint64_t logical, uint64_t length, uint64_t* run) {
  bam::FileRun found = bam::locate(*layout, logical, length);
  run[0] = found.file, run[1] = found.file_offset, run[2] = found.length;
}
extern "C" uint64_t layout_bytes() { return sizeof(bam::Layout); }
"""

table_layouts = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 300), st.integers(0, 50)), min_size=1, max_size=8
).map(Layout.concatenated)
striped_layouts = st.builds(
    Layout.striped,
    st.sampled_from([["a"], ["a", "b"], list("abcde")]),
    st.integers(1, 40),
    st.integers(0, 300),
)
layouts = st.one_of(table_layouts, striped_layouts)


def place_of_each_byte(layout: Layout) -> list[tuple[int, int]]:
    """(file, file offset) of every logical byte, from the definitions alone."""
    if layout.stripe_bytes:
        places = []
        for byte in range(layout.logical_bytes):
            stripe, inside = divmod(byte, layout.stripe_bytes)
            files = len(layout.files)
            places.append((stripe % files, stripe // files * layout.stripe_bytes + inside))
        return places
    return [(e.file, e.file_offset + byte) for e in layout.extents for byte in range(e.length)]


@given(layouts, st.data())
def test_runs_cover_exactly_the_bytes(layout: Layout, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, layout.logical_bytes))
    length = data.draw(st.integers(0, layout.logical_bytes - first))
    found = [
        (run.file, run.file_offset + byte) for run in layout.runs(first, length) for byte in range(run.length)
    ]
    assert found == place_of_each_byte(layout)[first : first + length]


@given(st.integers(0, 500), st.integers(1, 40), st.integers(1, 6))
def test_striped_file_sizes(logical_bytes: int, stripe_bytes: int, n_files: int) -> None:
    layout = Layout.striped([str(file) for file in range(n_files)], stripe_bytes, logical_bytes)
    places = place_of_each_byte(layout)
    sizes = [sum(file == number for file, _ in places) for number in range(n_files)]
    assert striped_file_bytes(logical_bytes, stripe_bytes, n_files) == sizes


def test_a_header_is_outside_the_address_space() -> None:
    assert Layout.single("a", 128, 1000).locate(0, 512) == FileRun(0, 128, 512)


@pytest.mark.parametrize(
    "extents",
    [
        (Extent(1, 9, 0, 0),),
        (Extent(0, 4, 0, 0), Extent(5, 5, 0, 4)),
        (Extent(0, 6, 0, 0), Extent(5, 4, 0, 4)),
        (Extent(0, 10, 1, 0),),
        (Extent(0, 10, 0, -1),),
        (Extent(0, 0, 0, 0), Extent(0, 10, 0, 0)),
        (Extent(0, 9, 0, 0),),
    ],
)
def test_tables_with_gaps_or_overlaps_are_refused(extents: tuple[Extent, ...]) -> None:
    with pytest.raises(ConfigError):
        Layout(("a",), 10, extents)


def test_layouts_without_files_or_stripes_are_refused() -> None:
    with pytest.raises(ConfigError):
        Layout((), 0)
    with pytest.raises(ConfigError):
        Layout.striped(["a"], 0, 10)


@pytest.fixture(scope="module")
def extent_h(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler: extent.h cannot be compared")
    folder = tmp_path_factory.mktemp("extent")
    source, library = folder / "locate.cc", folder / "locate.so"
    source.write_text(LOCATE)
    include = Path(native.__file__).parent / "include"
    subprocess.run(
        [compiler, "-std=c++20", "-shared", "-fPIC", "-I", include, source, "-o", library], check=True
    )
    return ctypes.CDLL(str(library))


@given(layouts)
def test_extent_h_locates_the_same(extent_h: ctypes.CDLL, layout: Layout) -> None:
    assert extent_h.layout_bytes() == ctypes.sizeof(CLayout)
    assert ctypes.sizeof(CExtent) == 32
    mirror = CLayout.from_layout(layout)
    run = (ctypes.c_uint64 * 3)()
    for first in range(0, layout.logical_bytes, 7):
        for length in (1, 5, layout.logical_bytes - first):
            extent_h.locate(
                ctypes.byref(mirror), ctypes.c_uint64(first), ctypes.c_uint64(length), ctypes.byref(run)
            )
            assert FileRun(*run) == layout.locate(first, length)


def test_a_mirror_keeps_its_extents() -> None:
    mirror = CLayout.from_layout(Layout.concatenated([("a", number, 1) for number in range(2000)]))
    gc.collect()
    filler = [bytearray(64000) for _ in range(50)]
    assert [mirror.extents[number].file_offset for number in range(2000)] == list(range(2000))
    assert len(filler) == 50
