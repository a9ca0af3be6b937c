from __future__ import annotations

import errno
import os
import pickle
import socket
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from npy_files import VERSIONS, header_text, npy_bytes, npy_with_header, write

from bam.array.description import ArrayDescription
from bam.array.npy_header import MAX_HEADER_BYTES
from bam.array.sources import (
    ConcatenatedSource,
    FileSource,
    MemorySource,
    NpySource,
    RawSource,
    Source,
    StripedSource,
    as_source,
)
from bam.errors import ConfigError, FileChangedError, SourceError, StorageError

MATRIX = np.arange(12, dtype=np.float32).reshape(4, 3)


def rows_of(description: ArrayDescription) -> npt.NDArray[np.generic]:
    """The whole array, read byte run by byte run from where the description says it lies."""
    content = bytearray()
    for run in description.layout.runs(0, description.layout.logical_bytes):
        if description.memory:
            source = description.memory[run.file].tobytes()
        else:
            source = Path(description.layout.files[run.file]).read_bytes()
        piece = source[run.file_offset : run.file_offset + run.length]
        assert len(piece) == run.length, "the description reaches past its file"
        content += piece
    stored = np.frombuffer(bytes(content), description.stored_dtype).reshape(description.shape)
    return stored.astype(description.dtype)


def refusal(source: Source) -> SourceError:
    with pytest.raises(SourceError) as caught:
        source.describe()
    return caught.value


def described_or_refused(path: Path) -> ArrayDescription | SourceError:
    try:
        return NpySource(path).describe()
    except SourceError as error:
        return error


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("dtype", ["<f4", ">f4", "|u1", "<c16", "?", "<U3", "|S5", "<M8[s]", "<f2", "|V6"])
def test_npy(tmp_path: Path, version: tuple[int, int], dtype: str) -> None:
    content = np.random.default_rng(0).integers(0, 2, 24 * np.dtype(dtype).itemsize, np.uint8)
    array = content.view(dtype).reshape(6, 2, 2)
    path = write(tmp_path, npy_bytes(array, version))
    described = NpySource(path).describe()
    assert described.shape == array.shape
    assert described.stored_dtype == array.dtype
    assert described.dtype.isnative
    assert rows_of(described).tobytes() == np.load(path).astype(described.dtype).tobytes()


def test_structured_dtypes_and_utf8_field_names(tmp_path: Path) -> None:
    array = np.array([(1, 2.5), (3, 4.5)], dtype=[("größe", "<i4"), ("日", ">f8")])
    described = NpySource(write(tmp_path, npy_bytes(array, (3, 0)))).describe()
    np.testing.assert_array_equal(rows_of(described), array)


@pytest.mark.parametrize("shape", [(0,), (0, 5), (5, 0), (1, 1), (7, 1), (1, 7), (2, 0, 3)])
def test_fortran_order_that_is_also_c_order(tmp_path: Path, shape: tuple[int, ...]) -> None:
    array = np.zeros(shape, np.float32)
    content = npy_with_header(header_text(array, fortran_order=True), array.tobytes())
    assert NpySource(write(tmp_path, content)).describe().shape == shape


def test_fortran_order_is_refused_with_the_remedy(tmp_path: Path) -> None:
    error = refusal(NpySource(write(tmp_path, npy_bytes(np.asfortranarray(MATRIX)))))
    assert "C order" in error.expected
    assert "ascontiguousarray" in error.found
    assert error.file == str(tmp_path / "a.npy")


@pytest.mark.parametrize("descr", ["|O", [("a", "<i4"), ("b", "|O")]])
def test_python_objects_are_refused_and_never_unpickled(tmp_path: Path, descr: object) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(tmp_path / "unpickled"),)

    header = repr({"descr": descr, "fortran_order": False, "shape": (2,)})
    error = refusal(NpySource(write(tmp_path, npy_with_header(header, pickle.dumps(Trap())))))
    assert "without Python objects" in error.expected
    assert not (tmp_path / "unpickled").exists()


def test_a_single_value_is_refused(tmp_path: Path) -> None:
    assert "shape ()" in refusal(NpySource(write(tmp_path, npy_bytes(np.float32(3) * np.ones(()))))).found


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"shape": (5, 3)}, "48: the file was cut short"),
        ({"shape": (3, 3)}, "48: 12 bytes follow the array"),
        ({"shape": (2**62, 2**62)}, "shape"),
        ({"shape": (2**70, 0)}, "shape"),
        ({"shape": (0, 2**62)}, "shape"),
        ({"shape": (-4, -3)}, "shape (-4, -3)"),
        ({"shape": (True, 12)}, "shape"),
        ({"shape": (1,) * 40}, "shape"),
        ({"shape": [4, 3]}, "shape"),
        ({"shape": (4.0, 3)}, "shape"),
        ({"descr": "<f3"}, "<f3"),
        ({"descr": "<U0"}, "<U0"),
        ({"descr": "|V0"}, "V0"),
        ({"descr": "V99999999999999"}, "V999"),
        ({"descr": None}, "None"),
        ({"descr": ("<f4", (3,))}, "f4"),
        ({"descr": [("a", "<f4"), ("a", "<f4")]}, "'a'"),
        ({"fortran_order": 0}, "fortran_order"),
        ({"more": 1}, "more"),
    ],
)
@pytest.mark.parametrize("version", [1, 2, 3])
def test_headers_that_lie(tmp_path: Path, changes: dict[str, object], found: str, version: int) -> None:
    content = npy_with_header(header_text(MATRIX, **changes), MATRIX.tobytes(), version)
    error = refusal(NpySource(write(tmp_path, content)))
    assert found in error.found


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x93",
        b"\x93NUMPY",
        b"\x93NUMPY\x01\x00\x10",
        b"\x93NUMPY\x02\x00\x10\x00",
        b"\x93NUMPY\x04\x00\x10\x00\x00\x00" + b" " * 16,
        b"\x93NUMPY\x01\x01\x10\x00" + b" " * 16,
        b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + b"{" * 64,
        b"\x93NUMPY\x01\x00\xff\xff" + b"{" * 64,
        npy_with_header("(" * 5000),
        npy_with_header("{'descr': '<f4', 'fortran_order': False, 'shape': ()" + "+()" * 1000 + "}"),
        npy_with_header("-" * 4000 + "1", version=3),
        npy_with_header("__import__('os').abort()"),
        npy_with_header("{}", padding=MAX_HEADER_BYTES),
        npy_with_header("\0" * 30),
        b"PK\x03\x04 an archive",
    ],
)
def test_damaged_headers(tmp_path: Path, content: bytes) -> None:
    refusal(NpySource(write(tmp_path, content)))


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.data())
def test_mutated_files_are_described_as_numpy_reads_them_or_refused(
    tmp_path: Path, data: st.DataObject
) -> None:
    whole = bytearray(npy_bytes(MATRIX, data.draw(st.sampled_from(VERSIONS))))
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(whole) - 1))
        whole[position] ^= data.draw(st.integers(1, 255))
    path = write(tmp_path, bytes(whole[: data.draw(st.integers(0, len(whole)) | st.just(len(whole)))]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        described = described_or_refused(path)
        if isinstance(described, SourceError):
            assert described.file == str(path)
            return
        expected = np.load(path, allow_pickle=False)
    assert described.shape == expected.shape
    assert rows_of(described).tobytes() == np.ascontiguousarray(expected).astype(described.dtype).tobytes()


@pytest.mark.parametrize("offset", [0, 1, 128, 5000])
def test_raw(tmp_path: Path, offset: int) -> None:
    path = write(tmp_path, b"x" * offset + MATRIX.tobytes(), "a.npy")
    for shape in [(4, 3), (-1, 3), (12,), (-1,), (2, 2, 3)]:
        described = RawSource(path, "<f4", shape, offset).describe()
        np.testing.assert_array_equal(rows_of(described).reshape(-1), MATRIX.reshape(-1))


@pytest.mark.parametrize("shape", [(4, 4), (3, 3), (-1, 5), (), (-1, 0), (-2, 3), (4, -1), (-1, -1)])
def test_raw_sizes_must_match_exactly(tmp_path: Path, shape: tuple[int, ...]) -> None:
    refusal(RawSource(write(tmp_path, MATRIX.tobytes()), "<f4", shape))


@pytest.mark.parametrize("dtype", ["object", "no such type", None, [("a", object)]])
def test_dtypes_that_cannot_be_read(tmp_path: Path, dtype: npt.DTypeLike) -> None:
    refusal(RawSource(write(tmp_path, MATRIX.tobytes()), dtype, (4, 3)))


def test_settings_that_cannot_work(tmp_path: Path) -> None:
    path = write(tmp_path, MATRIX.tobytes())
    with pytest.raises(ConfigError):
        RawSource(path, "<f4", (4, 3), offset=-1).describe()
    with pytest.raises(ConfigError):
        RawSource(path, "<f4", (4.0, 3)).describe()
    with pytest.raises(ConfigError):
        ConcatenatedSource([]).describe()
    with pytest.raises(ConfigError):
        StripedSource([], 512, "<f4", (4, 3)).describe()
    with pytest.raises(ConfigError):
        StripedSource([path], 0, "<f4", (4, 3)).describe()
    refusal(RawSource(write(tmp_path, b""), "<f4", (1,), offset=1))
    refusal(NpySource("a\0b"))


class TestHeaderOrNot:
    """The bytes decide, the name never does."""

    def test_a_header_is_found_whatever_the_name(self, tmp_path: Path) -> None:
        path = write(tmp_path, npy_bytes(MATRIX), "features.bin")
        for source in [
            FileSource(path),
            FileSource(path, "<f4", (4, 3)),
            FileSource(path, "<f4", (-1, 3)),
            FileSource(path, shape=(4, 3)),
            FileSource(path, dtype=np.float32),
        ]:
            np.testing.assert_array_equal(rows_of(source.describe()), MATRIX)

    def test_no_header_whatever_the_name(self, tmp_path: Path) -> None:
        path = write(tmp_path, MATRIX.tobytes(), "node_feat.npy")
        np.testing.assert_array_equal(rows_of(FileSource(path, "<f4", (4, 3)).describe()), MATRIX)
        assert "give dtype and shape" in refusal(FileSource(path)).found

    def test_a_header_that_says_something_else(self, tmp_path: Path) -> None:
        path = write(tmp_path, npy_bytes(MATRIX))
        for dtype, shape in [("<f4", (3, 4)), ("<f8", (4, 3)), (">f4", (4, 3)), (None, (4,)), ("<i4", None)]:
            assert "a header that says float32 and (4, 3)" in refusal(FileSource(path, dtype, shape)).found

    def test_both_readings_possible(self, tmp_path: Path) -> None:
        content = npy_bytes(MATRIX)
        path = write(tmp_path, content)
        error = refusal(FileSource(path, "u1", (len(content),)))
        assert "use NpySource or RawSource" in error.found
        assert RawSource(path, "u1", (len(content),)).describe().shape == (len(content),)

    def test_magic_that_is_data(self, tmp_path: Path) -> None:
        content = b"\x93NUMPY" + bytes(94)
        path = write(tmp_path, content)
        assert rows_of(FileSource(path, "u1", (10, 10)).describe()).tobytes() == content
        refusal(FileSource(path, "u1", (-1, 10)))
        refusal(FileSource(path, "u1", (10, 11)))

    def test_a_damaged_header_is_not_handed_out_as_rows(self, tmp_path: Path) -> None:
        content = bytearray(npy_bytes(MATRIX))
        content[20] ^= 255
        refusal(FileSource(write(tmp_path, bytes(content)), "<f4", (-1, 4)))


def test_many_files(tmp_path: Path) -> None:
    parts = [MATRIX[:1], MATRIX[1:1], MATRIX[1:]]
    npys = [write(tmp_path, npy_bytes(part, v), f"{v}") for part, v in zip(parts, VERSIONS, strict=True)]
    raws = [write(tmp_path, part.tobytes(), f"raw{number}") for number, part in enumerate(parts)]
    for source in [
        ConcatenatedSource(npys),
        ConcatenatedSource(npys, "<f4", (4, 3)),
        ConcatenatedSource(raws, "<f4", (4, 3)),
        ConcatenatedSource([raws[0], npys[2]], "<f4", (-1, 3)),
    ]:
        np.testing.assert_array_equal(rows_of(source.describe()), MATRIX)


def test_many_files_must_agree(tmp_path: Path) -> None:
    first = write(tmp_path, npy_bytes(MATRIX), "first")
    for name, other in [("dtype", MATRIX.astype("<f8")), ("shape", MATRIX.reshape(3, 4))]:
        path = write(tmp_path, npy_bytes(other), name)
        error = refusal(ConcatenatedSource([first, path]))
        assert error.file == str(path)
        assert str(first) in error.expected
    assert "shape (4, 3)" in refusal(ConcatenatedSource([first], "<f4", (5, 3))).found
    assert refusal(ConcatenatedSource([first, tmp_path / "none"])).errno == errno.ENOENT


@given(st.integers(1, 5), st.integers(1, 40))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)
def test_striped(tmp_path: Path, n_files: int, stripe_bytes: int) -> None:
    content = MATRIX.tobytes()
    parts = [b""] * n_files
    for unit, start in enumerate(range(0, len(content), stripe_bytes)):
        parts[unit % n_files] += content[start : start + stripe_bytes]
    paths = [write(tmp_path, part, f"part{number}") for number, part in enumerate(parts)]
    for shape in [(4, 3), (-1, 3)]:
        described = StripedSource(paths, stripe_bytes, "<f4", shape).describe()
        np.testing.assert_array_equal(rows_of(described), MATRIX)


def test_striped_files_of_other_sizes(tmp_path: Path) -> None:
    paths = [write(tmp_path, bytes(16), "a"), write(tmp_path, bytes(32), "b")]
    error = refusal(StripedSource(paths, 16, "<f4", (4, 3)))
    assert (error.file, error.found) == (str(paths[0]), "16")
    refusal(StripedSource(paths, 16, "<f4", (5, 3)))
    assert "give both" in refusal(StripedSource(paths, 16)).found


@pytest.mark.parametrize(
    "array", [MATRIX, MATRIX.T, MATRIX[::2], MATRIX[:, ::-1], MATRIX[:0], MATRIX.astype(">f4")]
)
def test_arrays_in_memory(array: npt.NDArray[np.float32]) -> None:
    described = MemorySource(array).describe()
    np.testing.assert_array_equal(rows_of(described), array)


def test_an_array_in_c_order_is_read_in_place() -> None:
    assert np.shares_memory(MemorySource(MATRIX).describe().memory[0], MATRIX)


def test_arrays_in_memory_that_are_refused() -> None:
    refusal(MemorySource(np.array([None])))
    refusal(MemorySource(np.array(3)))


def test_what_counts_as_a_source(tmp_path: Path) -> None:
    path = write(tmp_path, npy_bytes(MATRIX))
    for source in [path, str(path), [path], (str(path),), MATRIX, NpySource(path)]:
        np.testing.assert_array_equal(rows_of(as_source(source).describe()), MATRIX)
    raw = write(tmp_path, MATRIX.tobytes(), "raw")
    striped = as_source(StripedSource([raw], 4), "<f4", (4, 3))
    np.testing.assert_array_equal(rows_of(striped.describe()), MATRIX)
    for nothing in [None, 3, b"bytes"]:
        with pytest.raises(ConfigError):
            as_source(nothing)
    for complete in [MATRIX, NpySource(path)]:
        with pytest.raises(ConfigError):
            as_source(complete, "<f4")


class TestFilesThatCannotBeRead:
    @pytest.fixture(params=["npy", "raw", "auto", "many", "striped"])
    def source(self, request: pytest.FixtureRequest, tmp_path: Path) -> Source:
        path = tmp_path / "it"
        return {
            "npy": NpySource(path),
            "raw": RawSource(path, "<f4", (4, 3)),
            "auto": FileSource(path, "<f4", (4, 3)),
            "many": ConcatenatedSource([path], "<f4", (4, 3)),
            "striped": StripedSource([path], 64, "<f4", (4, 3)),
        }[request.param]

    def test_none(self, source: Source) -> None:
        assert refusal(source).errno == errno.ENOENT

    def test_directory(self, source: Source, tmp_path: Path) -> None:
        (tmp_path / "it").mkdir()
        error = refusal(source)
        assert (error.file, error.errno) == (str(tmp_path / "it"), errno.EISDIR)

    def test_fifo(self, source: Source, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "it")
        assert refusal(source).errno == errno.ESPIPE

    def test_socket(self, source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        with socket.socket(socket.AF_UNIX) as server:
            server.bind("it")
            assert refusal(source).errno == errno.ENXIO

    def test_device(self) -> None:
        assert refusal(NpySource("/dev/null")).errno == errno.EINVAL

    def test_a_link_that_leads_nowhere(self, source: Source, tmp_path: Path) -> None:
        (tmp_path / "it").symlink_to(tmp_path / "gone")
        assert refusal(source).errno == errno.ENOENT


def test_permission_denied(tmp_path: Path) -> None:
    path = write(tmp_path, npy_bytes(MATRIX))
    path.chmod(0)
    tmp_path.chmod(0o755)
    # A process without root's rights; in this one they may be in force. It imports before it gives them up.
    script = (
        "import os, sys; from bam.array.sources import NpySource; from bam.errors import SourceError\n"
        "if os.getuid() == 0: os.chdir(os.path.dirname(sys.argv[1])); os.setuid(65534)\n"
        "try: NpySource(os.path.basename(sys.argv[1])).describe()\n"
        "except SourceError as error: print(error.errno, error)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", script, path], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert run.stdout.startswith(f"{errno.EACCES} a.npy: expected a readable file")


class TestIdentity:
    def test_the_same_file(self, tmp_path: Path) -> None:
        NpySource(write(tmp_path, npy_bytes(MATRIX))).describe().check_files()

    def test_rewritten(self, tmp_path: Path) -> None:
        described = NpySource(path := write(tmp_path, npy_bytes(MATRIX))).describe()
        path.write_bytes(npy_bytes(MATRIX + 1))
        os.utime(path, ns=(0, 0))
        with pytest.raises(FileChangedError) as caught:
            described.check_files()
        assert (caught.value.file, caught.value.errno) == (str(path), errno.ESTALE)

    def test_replaced(self, tmp_path: Path) -> None:
        described = NpySource(path := write(tmp_path, npy_bytes(MATRIX))).describe()
        status = path.stat()
        other = write(tmp_path, npy_bytes(MATRIX + 1), "other")
        os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
        other.rename(path)
        with pytest.raises(FileChangedError):
            described.check_files()

    def test_gone(self, tmp_path: Path) -> None:
        described = NpySource(path := write(tmp_path, npy_bytes(MATRIX))).describe()
        path.unlink()
        with pytest.raises(StorageError) as caught:
            described.check_files()
        assert caught.value.errno == errno.ENOENT


def test_real_files_equal_numpy_or_are_refused(shared_data: Path) -> None:
    paths = sorted(shared_data.rglob("*.npy"))
    assert paths
    read = 0
    for path in paths:
        described = described_or_refused(path)
        if isinstance(described, SourceError):
            assert described.file == str(path)
            continue
        expected = np.load(path, allow_pickle=False)
        assert described.shape == expected.shape
        assert rows_of(described).tobytes() == expected.astype(described.dtype).tobytes(), path
        read += 1
    assert read >= len(paths) // 2
