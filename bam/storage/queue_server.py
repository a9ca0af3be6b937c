"""Host threads that answer NVMe queue pairs from any native engine. C++: software_controller.h."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from ctypes import POINTER, byref, c_char_p, c_int32, c_size_t, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from bam.config import MAX_MERGE_BYTES, check_seconds
from bam.errors import ClosedError, ConfigError, EngineUnavailable, ForkedError
from bam.layout import Layout
from bam.native import function
from bam.native.structs import CLayout
from bam.storage.handle import NativeHandle
from bam.storage.leftovers import keep_for_good, left_behind
from bam.storage.queues import BLOCK_BYTES, MAX_BLOCKS, CQueuePair

if TYPE_CHECKING:
    from bam.storage.native import NativeEngine

_ERROR_BYTES = 512


class _Config(ctypes.Structure):
    _fields_ = [
        ("n_threads", c_uint32),
        ("read_depth", c_uint32),
        ("max_transfer_bytes", c_uint32),
        ("close_wait_ms", c_uint32),
        ("n_cores", c_uint32),
        ("cores", POINTER(c_int32)),
        ("destinations", c_void_p),
        ("destination_bytes", c_uint64),
        ("merge_bytes", c_uint32),
        ("bridge_bytes", c_uint32),
    ]


class _ErrorRecord(ctypes.Structure):
    _fields_ = [
        ("slba", c_uint64),
        ("file_offset", c_uint64),
        ("n_blocks", c_uint32),
        ("file", c_uint32),
        ("number", c_uint32),
        ("error", c_int32),
    ]


class _Counters(ctypes.Structure):
    _fields_ = [
        (name, c_uint64)
        for name in (
            "commands",
            "errors",
            "aborted",
            "reads",
            "bytes_read",
            "invalid_doorbells",
            "idle_sleeps",
            "max_in_flight",
            "left_behind",
            "commands_read",
            "bytes_useful",
            "commands_merged",
        )
    ]


@dataclass(frozen=True)
class ControllerSettings:
    """How the controller runs; see docs/settings.md.

    Attributes
    ----------
    n_threads : int
        Host threads; each owns a share of the queue pairs and a channel of the engine.
    read_depth : int
        Reads in flight of one thread.
    max_transfer_bytes : int
        Longest command; a multiple of 512, at most 32 MiB. A thread has ``read_depth`` buffers of this size.
    cores : tuple of int
        Thread `i` runs on ``cores[i % len(cores)]``; empty: anywhere.
    close_timeout_s : float
        Stopping waits so long for reads in flight, and then leaves them behind.
    merge_bytes : int
        Longest read that commands for neighbouring blocks are merged into, up to 64 MiB; up to
        `max_transfer_bytes`, such as 0: each command is a read.
    bridge_bytes : int
        Those with a hole up to this long between them are merged too; what lies in it is read and dropped.
    """

    n_threads: int = 1
    read_depth: int = 128
    max_transfer_bytes: int = 128 << 10
    cores: tuple[int, ...] = ()
    close_timeout_s: float = 10.0
    merge_bytes: int = 0
    bridge_bytes: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.n_threads <= 1024:
            raise ConfigError("n_threads", self.n_threads, "1 to 1024")
        if not 1 <= self.read_depth <= 1 << 15:
            raise ConfigError("read_depth", self.read_depth, f"1 to {1 << 15}")
        blocks, rest = divmod(self.max_transfer_bytes, BLOCK_BYTES)
        if rest or not 1 <= blocks <= MAX_BLOCKS:
            raise ConfigError("max_transfer_bytes", self.max_transfer_bytes, "a multiple of 512 up to 32 MiB")
        check_seconds("close_timeout_s", self.close_timeout_s)
        for name in ("merge_bytes", "bridge_bytes"):
            if not 0 <= getattr(self, name) <= MAX_MERGE_BYTES:
                raise ConfigError(name, getattr(self, name), f"bytes from 0 to {MAX_MERGE_BYTES}")


@dataclass(frozen=True)
class ControllerStats:
    """Counters of a controller since it was started.

    Attributes
    ----------
    commands : int
        Taken from the queues.
    errors : int
        Completed with another status than success; `aborted` of them because the controller stopped.
    reads, bytes_read : int
        Of the engine, retries included.
    invalid_doorbells : int
        Doorbell values that are no slot of their queue.
    idle_sleeps : int
        Times a thread with nothing to do went to sleep.
    max_in_flight : int
        Most commands being read at once by one thread.
    left_behind : int
        Reads that had not ended when the controller stopped.
    commands_read : int
        Completed with success; `commands_merged` were part of a read of several.
    bytes_useful : int
        That they asked for; less than `bytes_read` where holes or what lies around them was read along.
    """

    commands: int
    errors: int
    aborted: int
    reads: int
    bytes_read: int
    invalid_doorbells: int
    idle_sleeps: int
    max_in_flight: int
    left_behind: int
    commands_read: int = 0
    bytes_useful: int = 0
    commands_merged: int = 0

    @property
    def commands_per_read(self) -> float:
        """Commands that one read of the engine served: pages, where each asks for one. 0 without reads."""
        return self.commands_read / self.reads if self.reads else 0.0


@dataclass(frozen=True)
class ErrorRecord:
    """Where a read of `n_blocks` blocks from `slba` failed: at byte `file_offset` of file number `file`."""

    slba: int
    n_blocks: int
    file: int
    file_offset: int
    errno: int


class QueueServer:
    """Threads that answer given queue pairs, wherever these lie.

    Parameters
    ----------
    engine : NativeEngine
        Kept alive by this object, and used until :meth:`stop` even if it is closed before.
    layout : Layout
        Its logical bytes are the namespace, in blocks of 512; a last block that is not full ends with zeros.
    pairs : array of CQueuePair
        Their memory must outlive the server.
    settings : ControllerSettings
    destinations : uint8 array, optional
        Memory that most commands read into; the engine may then register it. Must outlive the server.

    Raises
    ------
    EngineUnavailable
        The engine gives no channel, or a core does not exist.
    """

    def __init__(
        self,
        engine: NativeEngine,
        layout: Layout,
        pairs: ctypes.Array[CQueuePair],
        settings: ControllerSettings,
        destinations: npt.NDArray[np.uint8] | None = None,
    ) -> None:
        if settings.n_threads > len(pairs):
            raise ConfigError("n_threads", settings.n_threads, f"at most one a queue pair ({len(pairs)})")
        cores = (c_int32 * max(1, len(settings.cores)))(*settings.cores)
        config = _Config(
            settings.n_threads,
            settings.read_depth,
            settings.max_transfer_bytes,
            int(settings.close_timeout_s * 1000),
            len(settings.cores),
            cores,
            merge_bytes=settings.merge_bytes,
            bridge_bytes=settings.bridge_bytes,
        )
        if destinations is not None:
            config.destinations, config.destination_bytes = destinations.ctypes.data, destinations.nbytes
        create = function(
            "bam_controller_create",
            c_void_p,
            [c_void_p, POINTER(CLayout), c_void_p, c_uint32, POINTER(_Config), c_char_p, c_size_t],
        )
        reason = ctypes.create_string_buffer(_ERROR_BYTES)
        address = create(
            engine.handle,
            byref(CLayout.from_layout(layout)),
            pairs,
            len(pairs),
            byref(config),
            reason,
            _ERROR_BYTES,
        )
        self._engine, self._destinations = engine, destinations
        self._told = 0  # of these reads left behind stop() has raised
        self._close_timeout_s = settings.close_timeout_s
        if not address:
            why = reason.value.decode(errors="replace")
            raise EngineUnavailable("software controller", why, "Change the setting the reason names")
        self._handle = NativeHandle(address, "bam_controller_destroy", "software controller")

    def stop(self) -> None:
        """Finish reads in flight, complete commands still in the queues as aborted, and end the threads.

        Raises
        ------
        WaitTimeout
            Reads have not ended in time: their commands are completed as aborted, and they are left behind.
            The controller has stopped. Only the first call raises.
        """
        with self._handle.use() as handle:
            function("bam_controller_stop", None, [c_void_p])(handle)
        n_reads, self._told = self.stats().left_behind - self._told, self.stats().left_behind
        if n_reads:
            keep_for_good(self._destinations)
            raise left_behind(n_reads, self._engine.files, self._close_timeout_s)

    def stats(self) -> ControllerStats:
        """Counters now."""
        counters = _Counters()
        with self._handle.use() as handle:
            function("bam_controller_counters", None, [c_void_p, POINTER(_Counters)])(handle, byref(counters))
        return ControllerStats(*(getattr(counters, field[0]) for field in _Counters._fields_))

    def error(self, number: int) -> ErrorRecord | None:
        """The error record whose number a completion entry gave; the last 1024 are kept."""
        record = _ErrorRecord()
        find = function("bam_controller_error", c_int32, [c_void_p, c_uint32, POINTER(_ErrorRecord)])
        with self._handle.use() as handle:
            if not find(handle, number, byref(record)):
                return None
        return ErrorRecord(record.slba, record.n_blocks, record.file, record.file_offset, record.error)

    def close(self) -> None:
        """Stop and free it, after the calls of other threads. Calling it again does nothing.

        Raises
        ------
        WaitTimeout
            As :meth:`stop`, unless that has raised; everything else is freed, and memory given as
            `destinations` is kept for good.
        """
        try:
            with suppress(ClosedError, ForkedError):
                self.stop()
        finally:
            self._handle.close()
            self._destinations = None
