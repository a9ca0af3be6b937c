"""Random reads of one file by one host thread, as fast as an engine can."""

from __future__ import annotations

from ctypes import POINTER, byref, c_double, c_int, c_uint32, c_uint64, c_void_p

from bam.errors import ConfigError, StorageError
from bam.native import function
from bam.storage.native import NativeEngine
from bam.storage.open import open_engine

_ARGUMENTS = [
    c_void_p,
    c_uint32,
    c_uint32,
    c_uint64,
    c_double,
    POINTER(c_uint64),
    POINTER(c_uint64),
    POINTER(c_double),
]


def random_reads_per_s(path: str, depth: int, read_bytes: int, *, seed: int, seconds: float) -> float:
    """Reads per second through io_uring, with `depth` of them in flight all the time.

    Parameters
    ----------
    path : str
        A file that is much larger than what is read in the time, or the rate is that of repeated reads.
    depth : int
    read_bytes : int
        Length and alignment of each read.
    seed : int
        Another one for each measurement, so that none repeats the reads of another.
    seconds : float

    Raises
    ------
    ConfigError
        The file is shorter than one read.
    EngineUnavailable, NativeLibraryMissing
    StorageError
        A read failed.
    """
    with open_engine("uring", [path]) as engine:
        assert isinstance(engine, NativeEngine)
        return engine_reads_per_s(engine, depth, read_bytes, seed=seed, seconds=seconds)


def engine_reads_per_s(
    engine: NativeEngine, depth: int, read_bytes: int, *, seed: int, seconds: float
) -> float:
    """The same through any engine of the C++ library, of its file 0.

    Raises
    ------
    ConfigError, StorageError, NativeLibraryMissing
    """
    path, n_bytes = engine.files[0].path, engine.files[0].bytes
    if n_bytes < read_bytes:
        raise ConfigError("read_bytes", read_bytes, f"at most {n_bytes}, the bytes of {path}")
    read = function("bam_bench_random_reads", c_int, _ARGUMENTS)
    completed, failed, elapsed = c_uint64(), c_uint64(), c_double()
    counts = byref(completed), byref(failed), byref(elapsed)
    status = read(engine.handle, depth, read_bytes, seed, seconds, *counts)
    if status or failed.value:
        note = f"{failed.value} of {completed.value} random reads failed"
        raise StorageError(path, 0, read_bytes, abs(status), note=note)
    return completed.value / elapsed.value
