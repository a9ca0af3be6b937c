"""A striped engine shows the bytes a plain file would; its failures are those of the stripes they touch."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest
from engine_contract import random_bytes, read_one, write_files
from hypothesis import given, settings
from hypothesis import strategies as st
from test_engines import deal

from bam.errors import ConfigError, SourceError, TruncatedFileError
from bam.layout import Layout
from bam.native import available
from bam.storage import (
    FaultKind,
    FaultRule,
    NativeFaultEngine,
    NativeFileEngine,
    NativeMemoryEngine,
    ReadSpan,
    StripedEngine,
    UringEngine,
    read_ranges,
)

pytestmark = pytest.mark.skipif(not available(), reason="the native library was not built")

quick = settings(max_examples=80, deadline=None, derandomize=True, database=None)


@given(data=st.data())
@quick
def test_equals_a_plain_file(data: st.DataObject) -> None:
    content = random_bytes(data.draw(st.integers(1, 20_000), "bytes"), 1)
    unit = data.draw(st.sampled_from([1, 8, 512]), "alignment")
    stripe = data.draw(st.integers(1, 12), "units in a stripe") * unit * data.draw(st.sampled_from([1, 100]))
    shares = deal(content, data.draw(st.integers(1, 5), "files"), stripe)
    inner = [NativeMemoryEngine([share], unit) for share in shares]
    with StripedEngine(inner, stripe) as engine:
        assert engine.files[0].bytes == len(content)
        for _ in range(10):
            offset = data.draw(st.integers(0, len(content) // unit + 1), "offset") * unit
            length = data.draw(st.integers(0, 20_000 // unit + 2), "length") * unit
            result, found = read_one(engine, ReadSpan(0, offset, length))
            expected = content[offset : offset + length]
            assert result == len(expected)
            assert (found[:result] == expected).all()


@given(data=st.data())
@quick
def test_short_reads_and_errors_of_stripes(data: st.DataObject) -> None:
    """The result is the unbroken part from the beginning; an error shows when nothing came before it."""
    content = random_bytes(10_000, 1)
    stripe = data.draw(st.integers(50, 900), "stripe")
    shares = deal(content, 3, stripe)
    broken = data.draw(st.integers(0, 2), "file")
    kind = data.draw(st.sampled_from([FaultKind.ERROR, FaultKind.SHORT_READ]))
    rule = FaultRule(
        kind, every=data.draw(st.integers(1, 3), "every"), n_bytes=data.draw(st.integers(0, 900), "bytes")
    )
    inner = [NativeMemoryEngine([share]) for share in shares]
    faulty = NativeFaultEngine(inner[broken], [rule])
    with StripedEngine([*inner[:broken], faulty, *inner[broken + 1 :]], stripe) as engine:
        for _ in range(5):
            offset = data.draw(st.integers(0, 9_999), "offset")
            length = data.draw(st.integers(1, 5000), "length")
            result, found = read_one(engine, ReadSpan(0, offset, length))
            if result < 0:
                assert result == -errno.EIO
                assert offset // stripe % 3 == broken
            else:
                whole = min(length, len(content) - offset)
                assert result <= whole
                assert (found[:result] == content[offset : offset + result]).all()
                assert result == whole or (offset + result) // stripe % 3 == broken


@pytest.mark.parametrize("kind", [UringEngine, NativeFileEngine])
def test_through_the_span_reader(kind: type[UringEngine] | type[NativeFileEngine], tmp_path: Path) -> None:
    content = random_bytes(300_000, 1)
    paths = write_files(tmp_path, deal(content, 4, 8192))
    random = np.random.default_rng(1)
    lengths = [int(length) for length in random.integers(0, 40_000, 100)]
    offsets = [int(random.integers(0, len(content) - length + 1)) for length in lengths]
    layout = Layout.single("striped", 0, len(content))
    inner = [kind([path]) for path in paths]
    with StripedEngine(inner, 8192) as engine:
        reads = read_ranges(engine, layout, offsets, lengths, depth=16)
        assert not any(reads.errors)
        for offset, length, found in zip(offsets, lengths, reads.bytes, strict=True):
            assert (found == content[offset : offset + length]).all()
        os.truncate(paths[1], 8192 + 100)  # its stripes 1 and 5; the second is cut at 100 bytes
        cut = 5 * 8192 + 100
        assert engine.bytes_now(0) == cut
        ends = [cut - 50, cut + 1, 7 * 8192]
        reads = read_ranges(engine, layout, [end - 60 for end in ends], [60] * 3)
        assert [type(error) for error in reads.errors] == [type(None), TruncatedFileError, type(None)]
        assert reads.errors[1] is not None
        assert reads.errors[1].offset == cut
        os.utime(paths[2], ns=(1, 1))
        assert engine.check_file(0) == errno.ESTALE


class TestRefused:
    def test_stripes_that_reads_cannot_keep_to(self) -> None:
        inner = [NativeMemoryEngine([bytes(4096)], 512) for _ in range(2)]
        for stripe in (0, -512, 100, 513):
            with pytest.raises(ConfigError):
                StripedEngine(inner, stripe)

    def test_files_that_were_not_dealt_so(self) -> None:
        inner = [NativeMemoryEngine([bytes(n_bytes)]) for n_bytes in (100, 200)]
        with pytest.raises(SourceError) as raised:
            StripedEngine(inner, 100)
        assert "memory:0" in str(raised.value)

    def test_files_too_short_for_what_is_to_be_shown(self) -> None:
        inner = [NativeMemoryEngine([bytes(100)]) for _ in range(2)]
        with StripedEngine(inner, 50, logical_bytes=190) as engine:
            assert engine.files[0].bytes == 190
            assert read_one(engine, ReadSpan(0, 100, 100))[0] == 90
        with pytest.raises(SourceError):
            StripedEngine(inner, 50, logical_bytes=201)

    def test_engines_of_several_files_or_none(self) -> None:
        with pytest.raises(ConfigError):
            StripedEngine([NativeMemoryEngine([b"a", b"b"])], 100)
        with pytest.raises(ConfigError):
            StripedEngine([], 100)
