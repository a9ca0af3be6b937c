"""Whole arrays against numpy: every engine, policy, reader, page size, row size and place in a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from npy_files import VERSIONS, npy_bytes, npy_with_header, write

import bam
from bam.native import available

ENGINES = ["uring", "file", "memory"]
POLICIES = ["random", "clock", "sieve", "look_ahead"]
READERS = ["native", "reference"] if available() else ["reference"]
ROW_BYTES = [4, 12, 508, 512, 516, 4096, 4100, 8192, 12000, 65536]


@dataclass(frozen=True)
class Settings:
    """One way to read an array."""

    page_bytes: int
    row_bytes: int
    cache: str
    policy: str
    form: str
    padding: int


all_settings = st.builds(
    Settings,
    page_bytes=st.sampled_from([512, 1024, 4096, 65536]),
    row_bytes=st.sampled_from(ROW_BYTES) | st.integers(1, 2000).map(lambda n: 4 * n),
    cache=st.sampled_from(["1 line", "2 lines", "33 lines", "1MiB"]),
    policy=st.sampled_from(POLICIES),
    form=st.sampled_from(["npy 1", "npy 2", "npy 3", "any header", "raw", "many files", "striped", "array"]),
    padding=st.integers(0, 5000),
)


def make_source(folder: Path, array: npt.NDArray[Any], how: Settings) -> Any:
    """The array in the form asked for, as something that can be opened."""
    if how.form == "array":
        return array
    if how.form.startswith("npy"):
        return write(folder, npy_bytes(array, VERSIONS[int(how.form[-1]) - 1]))
    if how.form == "any header":  # data at any offset: numpy aligns it, others need not
        fields = {"descr": array.dtype.str, "fortran_order": False, "shape": array.shape}
        return write(folder, npy_with_header(repr(fields), array.tobytes(), 2, how.padding))
    if how.form == "raw":
        path = write(folder, bytes(how.padding) + array.tobytes())
        return bam.RawSource(path, array.dtype, array.shape, offset=how.padding)
    if how.form == "many files":
        cut = how.padding % (len(array) + 1)
        return [write(folder, npy_bytes(part), f"{n}") for n, part in enumerate([array[:cut], array[cut:]])]
    content, stripe = array.tobytes(), 512 + how.padding
    units = [content[start : start + stripe] for start in range(0, len(content), stripe)]
    paths = [write(folder, b"".join(units[n::3]), f"s{n}") for n in range(3)]
    return bam.StripedSource(paths, stripe, array.dtype, array.shape)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("engine", ENGINES)
@given(how=all_settings, data=st.data())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_equal_to_numpy(tmp_path: Path, reader: str, engine: str, how: Settings, data: st.DataObject) -> None:
    n_rows = data.draw(st.integers(1, max(2, min(200, 300_000 // how.row_bytes))))
    words = np.random.default_rng(0).integers(0, 2**32, (n_rows, how.row_bytes // 4), np.uint32)
    array = words.view(data.draw(st.sampled_from(["<u4", ">f4", "<i4", "<f2", "u1"])))
    source = make_source(tmp_path, array, how)
    chosen = "memory" if how.form == "array" else engine
    ids = data.draw(st.lists(st.integers(-n_rows, n_rows - 1), max_size=30))
    try:
        opened = bam.open_array(
            source,
            reader=reader,
            engine=chosen,
            policy=how.policy,
            cache=how.cache,
            page_bytes=how.page_bytes,
        )
    except bam.EngineUnavailable as refusal:
        pytest.skip(str(refusal))
    with opened:
        for _ in range(2):
            rows = opened.gather(ids)
            assert rows.shape == (len(ids), *array.shape[1:])
            expected = np.take(array, np.array(ids, np.int64), axis=0).astype(opened.dtype)
            assert rows.tobytes() == expected.tobytes()
        first, last = sorted(data.draw(st.tuples(st.integers(0, n_rows), st.integers(0, n_rows))))
        assert opened[first:last].tobytes() == array[first:last].astype(opened.dtype).tobytes()
        wrong = data.draw(st.sampled_from([n_rows, -n_rows - 1, 2**63 - 1, 2**64]))
        with pytest.raises(bam.RowOutOfRange) as caught:
            opened[[*ids, wrong]]
        assert (caught.value.row_id, caught.value.position) == (wrong, len(ids))


def has_rows_in_place(path: Path) -> bool:
    """Whether numpy finds rows in the file, one after the other, and no Python objects."""
    try:
        array = np.load(path, allow_pickle=False)
    except ValueError:
        return False
    return array.ndim > 0 and array.flags.c_contiguous


def test_real_files(shared_data: Path) -> None:
    paths = sorted((shared_data / "npy").rglob("*.npy"))
    assert sum(map(has_rows_in_place, paths)) > 50
    for path in paths:
        if not has_rows_in_place(path):
            with pytest.raises(bam.SourceError, match=path.name):
                bam.open_array(path)
            continue
        with bam.open_array(path, cache="1 line", page_bytes=512) as array:
            expected = np.load(path)
            assert array.shape == expected.shape
            assert np.asarray(array).tobytes() == expected.astype(array.dtype).tobytes()
