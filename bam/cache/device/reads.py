"""Gathers in flight: which kernels run for them, in which order, and what they report.

A gather is cut into chunks of as many rows as a flight has slots for. A chunk is *submitted* when it gets a
flight, and *finished* (drain, fill, gather: three more launches) when its flight is wanted again or somebody
waits for it. So the reads of one chunk are in the queues while those of another are awaited.
"""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from ctypes import c_uint64, c_void_p
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from bam.cache.device.gpu import DeviceMemory, DeviceTensor, Gpu, GpuEvent, Grid
from bam.cache.device.memory import StoreMemory
from bam.cache.device.structs import (
    FEW_PARTS,
    FLIGHT,
    FLIGHT_REPORT,
    PART_COUNTS,
    CBatchPart,
    CConstantRows,
    CRowBatch,
)
from bam.errors import ClosedError, ConfigError

#: Most parts of a request that is counted.
MAX_COUNTED_PARTS = 32
_N_REPORTS = 4096
#: `pieces_per_warp` of device_copy.h: a warp takes 32 pieces, or 8 of longer rows (16 where they are many).
LONG_ROW_BYTES, THREADS_PER_LONG_PIECE = 2048, 4
_ERROR_BITS = 32
_COUNTS_BYTES = MAX_COUNTED_PARTS * PART_COUNTS.itemsize


@dataclass(frozen=True)
class ConstantRows:
    """Rows of one array that are in memory for good; see `bam::ConstantRows`.

    Attributes
    ----------
    address : int
        Of the rows, one after the other, in pinned host memory or the GPU's.
    n_rows : int
        Rows that are there, in rising order.
    first_row : int
        Where the range begins, if they are one.
    words, ranks : int
        Addresses of a set's bitmap and ranks, in the GPU's memory (`gids.fetch.row_set`); 0: a range.
    owner : object
        What keeps the memory alive.
    """

    address: int = 0
    n_rows: int = 0
    first_row: int = 0
    words: int = 0
    ranks: int = 0
    owner: object = None


NO_CONSTANT_ROWS = ConstantRows()


@dataclass(frozen=True)
class RowPart:
    """Rows of one array in a gather; see `bam::BatchPart`.

    Attributes
    ----------
    first_row : int
        Position of the part's first id.
    n_rows : int
        Rows of the array, at logical byte `first_byte` of the store.
    out : DeviceTensor
        Rows of the part one after the other, or, with `out_rows` (int64), any rows.
    constant, resident : ConstantRows
        In pinned memory, and in the GPU's, which is looked at first.
    """

    first_row: int
    n_rows: int
    first_byte: int
    out: DeviceTensor
    out_rows: DeviceTensor | None = None
    constant: ConstantRows = NO_CONSTANT_ROWS
    resident: ConstantRows = NO_CONSTANT_ROWS


@dataclass(frozen=True)
class RowRequest:
    """One gather: the ids of all parts, one after the other, each of `row_bytes`.

    `counted`: where the rows of each part came from is counted, too (at most MAX_COUNTED_PARTS parts).
    """

    ids: DeviceTensor
    row_bytes: int
    parts: tuple[RowPart, ...]
    next_use: DeviceTensor | None = None
    counted: bool = False


@dataclass(frozen=True)
class Failure:
    """The first row of a gather whose bytes are not there.

    Attributes
    ----------
    errno, error_number : int
        And the number of the controller's error record, or 0.
    page_id : int
    position : int
        Of its id in the request.
    """

    errno: int
    error_number: int
    page_id: int
    position: int


@dataclass
class GatherCounts:
    """Summed over the finished gathers of a store."""

    gathers: int = 0
    rows: int = 0
    constant_rows: int = 0
    hits: int = 0
    joins: int = 0
    claims: int = 0
    bypasses: int = 0
    failures: int = 0


@dataclass
class _Chunk:
    batch: CRowBatch
    gather: RunningGather
    report: int


@dataclass(eq=False)
class RunningGather:
    """A gather that was begun. :meth:`Reads.wait` waits for it.

    `part_counts` (of PART_COUNTS, one for each part) are there then, if the request is counted.
    """

    request: RowRequest
    parts: ctypes.Array[CBatchPart]
    uploaded: DeviceMemory | None
    unfinished: int = 0
    reports: list[int] = field(default_factory=list)
    event: GpuEvent | None = None
    harvested: bool = False
    failure: Failure | None = None
    part_counts: npt.NDArray[np.void] | None = None

    def done(self) -> bool:
        """Whether its last kernel has run."""
        return self.event is not None and self.event.done()


class Reads:
    """The gathers of one store. Thread-safe; they run in the order in which they were begun.

    Parameters
    ----------
    gpu : Gpu
    memory : StoreMemory
    """

    def __init__(self, gpu: Gpu, memory: StoreMemory) -> None:
        self._gpu, self._memory = gpu, memory
        self._lock = threading.RLock()
        self._chunks: deque[_Chunk] = deque()  # submitted, oldest first
        self._gathers: deque[RunningGather] = deque()  # not harvested, oldest first
        self._reports = gpu.pinned(_N_REPORTS * FLIGHT_REPORT.itemsize)
        self._free_reports = deque(range(_N_REPORTS))
        # Of the gather whose first report has the same number; all zero while that number is free.
        self._counts = gpu.memory(_N_REPORTS * _COUNTS_BYTES)
        self._host_counts = gpu.pinned(_N_REPORTS * _COUNTS_BYTES)
        # What launched kernels of note_uses() read.
        self._noted: deque[tuple[GpuEvent, RowRequest, DeviceMemory | None]] = deque()
        self._next_flight = 0
        self._closed = False
        self.counts = GatherCounts()

    def begin(self, request: RowRequest) -> RunningGather:
        """Submit what there are flights for; older chunks are finished to make room for the rest."""
        with self._lock, self._gpu.current():
            self._check_open()
            pages_per_row = self._pages_per_row(request)
            rows_per_chunk = self._memory.store.slots_per_flight // pages_per_row
            n_rows = request.ids.shape[0]
            firsts = range(0, n_rows, rows_per_chunk)
            if len(firsts) > _N_REPORTS:
                expected = f"more for so many rows ({n_rows}), or fewer rows in a gather"
                raise ConfigError("staging", f"{rows_per_chunk} rows a flight", expected)
            while self._gathers and self._gathers[0].done():  # nobody may ever wait for it
                self._harvest(self._gathers[0])
            while len(self._free_reports) < len(firsts):
                self._harvest(self._gathers[0])
            parts = _parts(request)
            if request.counted and len(parts) > MAX_COUNTED_PARTS:
                raise ConfigError("parts", len(parts), f"at most {MAX_COUNTED_PARTS}, to be counted")
            uploaded = None
            if len(parts) > FEW_PARTS:
                uploaded = self._gpu.upload(np.frombuffer(bytes(parts), np.uint8))
            gather = RunningGather(request, parts, uploaded, unfinished=len(firsts))
            self._gathers.append(gather)
            for first in firsts:
                n = min(rows_per_chunk, n_rows - first)
                self._submit(gather, CRowBatch(first_row=first, n_rows=n, pages_per_row=pages_per_row))
            if self._memory.store.n_lone_slots:
                # Kernels of others may join its reads and wait until its lines are filled.
                self.finish(gather)
            return gather

    def finish(self, gather: RunningGather) -> GpuEvent:
        """Launch all that is left of it; the event is after its last kernel. Does not wait."""
        with self._lock, self._gpu.current():
            while gather.unfinished:
                self._finish_oldest()
            if gather.event is None:  # it had no rows
                gather.event = self._gpu.mark()
            return gather.event

    def finish_all(self) -> GpuEvent:
        """The same for all gathers."""
        with self._lock, self._gpu.current():
            self._check_open()
            while self._chunks:
                self._finish_oldest()
            return self._gpu.mark()

    def wait(self, gather: RunningGather) -> Failure | None:
        """Wait until its rows are in the output; what failed, if anything did."""
        event = self.finish(gather)
        event.wait()
        with self._lock:
            while not gather.harvested:
                self._harvest(self._gathers[0])
        return gather.failure

    def note_uses(self, request: RowRequest, next_use: int) -> None:
        """All pages of these rows, as far as they are cached, will be used at `next_use`.

        Outputs do not matter. Launched after what was submitted so far; does not wait.
        """
        with self._lock, self._gpu.current():
            self._check_open()
            parts = _parts(request)
            uploaded = None
            if len(parts) > FEW_PARTS:
                uploaded = self._gpu.upload(np.frombuffer(bytes(parts), np.uint8))
            n_rows, pages_per_row = request.ids.shape[0], self._pages_per_row(request)
            if n_rows == 0:
                return
            batch = CRowBatch(first_row=0, n_rows=n_rows, pages_per_row=pages_per_row)
            self._describe(batch, request, parts, uploaded)
            grid = self._grid("bam_note_uses", batch)
            self._gpu.launch("bam_note_uses", grid, [self._memory.store, batch, c_uint64(next_use)])
            self._noted.append((self._gpu.mark(), request, uploaded))
            while self._noted and self._noted[0][0].done():
                self._noted.popleft()

    def forget_uses(self, horizon: int, instead: int) -> None:
        """Uses of cached pages before `horizon` become `instead`; does not wait."""
        with self._lock, self._gpu.current():
            self._check_open()
            grid = self._gpu.grids["bam_forget_uses"]
            arguments = [self._memory.store, c_uint64(horizon), c_uint64(instead)]
            self._gpu.launch("bam_forget_uses", grid, arguments)

    def stuck(self) -> bool:
        """Whether commands that timed out are still outstanding: looks for their completions once."""
        with self._lock, self._gpu.current():
            self._check_open()
            store = self._memory.store
            while self._chunks:
                self._finish_oldest()
            for flight in range(store.n_flights):
                self._gpu.launch(
                    "bam_drain_flight", self._gpu.grids["bam_drain_flight"], [store, c_uint64(flight)]
                )
            found = self._gpu.read(store.flights, store.n_flights * FLIGHT.itemsize).view(FLIGHT)
        return bool(found["stuck"].any())

    def close(self) -> None:
        """Finish what was begun; calling it again does nothing."""
        with self._lock, self._gpu.current():
            if self._closed:
                return
            self._closed = True
            while self._chunks:
                self._finish_oldest()
            while self._gathers:
                self._harvest(self._gathers[0])
            self._noted.clear()
            # What belongs to the store goes with it, whoever still holds a gather.
            del self._memory, self._reports, self._counts, self._host_counts

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("device array")

    def _pages_per_row(self, request: RowRequest) -> int:
        """Most pages that a row of the request touches."""
        page_bytes = 1 << self._memory.store.page_shift
        starts = {part.first_byte % page_bytes for part in request.parts} | {0}
        if request.row_bytes % page_bytes == 0 and starts == {0}:
            pages = request.row_bytes // page_bytes
        elif page_bytes % request.row_bytes == 0 and all(start % request.row_bytes == 0 for start in starts):
            pages = 1
        else:
            pages = (request.row_bytes + page_bytes - 2) // page_bytes + 1
        if pages > self._memory.store.slots_per_flight:
            expected = (
                f"more: a row touches {pages} pages of {page_bytes} bytes, and so many go into a flight"
            )
            raise ConfigError("staging", f"{self._memory.store.slots_per_flight} pages a flight", expected)
        return int(pages)

    def _submit(self, gather: RunningGather, batch: CRowBatch) -> None:
        store = self._memory.store
        self._describe(batch, gather.request, gather.parts, gather.uploaded)
        batch.flight = self._next_flight
        self._next_flight = (self._next_flight + 1) % store.n_flights
        if len(self._chunks) == store.n_flights:
            self._finish_oldest()
        chunk = _Chunk(batch, gather, self._free_reports.popleft())
        gather.reports.append(chunk.report)
        self._gpu.launch("bam_submit_rows", self._grid("bam_submit_rows", batch), [store, batch])
        self._chunks.append(chunk)

    @staticmethod
    def _describe(
        batch: CRowBatch,
        request: RowRequest,
        parts: ctypes.Array[CBatchPart],
        uploaded: DeviceMemory | None,
    ) -> None:
        """What rows the batch is of."""
        batch.ids, batch.row_bytes = request.ids.address, request.row_bytes
        batch.next_use = None if request.next_use is None else request.next_use.address
        batch.n_parts = len(parts)
        if uploaded is not None:
            batch.parts = uploaded.address
            return
        for number, part in enumerate(parts):
            batch.few_parts[number] = part

    def _grid(self, kernel: str, batch: CRowBatch) -> Grid:
        """The kernel's grid, smaller when there is less to do."""
        most = self._gpu.grids[kernel]
        threads = batch.n_rows * batch.pages_per_row
        copies = kernel in ("bam_submit_rows", "bam_gather_rows")
        if copies and batch.row_bytes > LONG_ROW_BYTES:
            threads *= THREADS_PER_LONG_PIECE
        blocks = -(-threads // most.threads) + (1 if kernel == "bam_submit_rows" else 0)
        return Grid(min(most.blocks, blocks), most.threads)

    def _finish_oldest(self) -> None:
        chunk = self._chunks.popleft()
        store, batch, gather = self._memory.store, chunk.batch, chunk.gather
        launch, flight = self._gpu.launch, c_uint64(batch.flight)
        launch("bam_drain_flight", self._gpu.grids["bam_drain_flight"], [store, flight])
        launch("bam_fill_lines", self._grid("bam_fill_lines", batch), [store, batch])
        if gather.request.counted:
            counts = c_void_p(self._counts.address + gather.reports[0] * _COUNTS_BYTES)
            launch("bam_count_rows", self._grid("bam_count_rows", batch), [store, batch, counts])
        report = c_void_p(self._reports.address + chunk.report * FLIGHT_REPORT.itemsize)
        launch("bam_gather_rows", self._grid("bam_gather_rows", batch), [store, batch, report])
        gather.unfinished -= 1
        if gather.unfinished == 0:
            if gather.request.counted:
                self._take_counts(gather)
            gather.event = self._gpu.mark()

    def _take_counts(self, gather: RunningGather) -> None:
        """To the host, and zero for the next one."""
        begin, n_bytes = gather.reports[0] * _COUNTS_BYTES, len(gather.parts) * PART_COUNTS.itemsize
        self._gpu.download(self._host_counts, begin, self._counts.address + begin, n_bytes)
        self._gpu.zero(self._counts.address + begin, n_bytes)

    def _harvest(self, gather: RunningGather) -> None:
        """Take the reports of the oldest gather, which may have to be waited for."""
        while gather.unfinished:
            self._finish_oldest()
        (gather.event or self._gpu.mark()).wait()
        self._gathers.popleft()
        reports = self._reports.array.view(FLIGHT_REPORT)[gather.reports]
        self._count(gather, reports)
        failed = reports[reports["result"] != 0]
        if len(failed):
            first = failed[np.argmin(failed["row"])]
            result = int(first["result"])
            errno, number = result & (1 << _ERROR_BITS) - 1, result >> _ERROR_BITS
            gather.failure = Failure(errno, number, int(first["page_id"]), int(first["row"]))
        if gather.request.counted:
            gather.part_counts = self._part_counts(gather)
        self._free_reports.extend(gather.reports)
        gather.harvested = True

    def _part_counts(self, gather: RunningGather) -> npt.NDArray[np.void]:
        if not gather.reports:
            return np.zeros(len(gather.parts), PART_COUNTS)
        begin, n_bytes = gather.reports[0] * _COUNTS_BYTES, len(gather.parts) * PART_COUNTS.itemsize
        found: npt.NDArray[np.void] = (
            self._host_counts.array[begin : begin + n_bytes].view(PART_COUNTS).copy()
        )
        return found

    def _count(self, gather: RunningGather, reports: np.ndarray[tuple[int], np.dtype[np.void]]) -> None:
        counts = self.counts
        counts.gathers += 1
        counts.rows += gather.request.ids.shape[0]
        counts.failures += int((reports["result"] != 0).sum())
        for name in ("constant_rows", "hits", "joins", "claims", "bypasses"):
            setattr(counts, name, getattr(counts, name) + int(reports[name].sum()))


def _parts(request: RowRequest) -> ctypes.Array[CBatchPart]:
    parts = (CBatchPart * len(request.parts))()
    for record, part in zip(parts, request.parts, strict=True):
        record.first_row, record.n_rows, record.first_byte = part.first_row, part.n_rows, part.first_byte
        record.out = part.out.address
        record.out_rows = None if part.out_rows is None else part.out_rows.address
        record.constant, record.resident = _constant(part.constant), _constant(part.resident)
    return parts


def _constant(rows: ConstantRows) -> CConstantRows:
    return CConstantRows(
        rows.address or None, rows.n_rows, rows.first_row, rows.words or None, rows.ranks or None
    )
