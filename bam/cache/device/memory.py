"""What a store has on a GPU and in pinned memory: cache, queues, staging, flights."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import numpy as np

from bam.cache.device.gpu import DeviceMemory, Gpu, Grid, PinnedMemory
from bam.cache.device.settings import GpuSettings
from bam.cache.device.structs import (
    CQE_BYTES,
    FLIGHT,
    NO_PIECE,
    QUEUE_WORDS_BYTES,
    SET_BYTES,
    SQE_BYTES,
    CCacheState,
    CDeviceStore,
)
from bam.cache.geometry import FRAME_BYTES_PER_LINE, FRAME_COUNTER_BYTES
from bam.cache.page_cache import PolicyKind
from bam.cache.settings import CacheSettings
from bam.storage.queues import BLOCK_BYTES, CQueuePair

#: `bam::Policy` of policy.h.
POLICY_NUMBERS = {
    PolicyKind.RANDOM: 0,
    PolicyKind.CLOCK: 1,
    PolicyKind.SIEVE: 2,
    PolicyKind.LOOK_AHEAD: 3,
    PolicyKind.LOOK_AHEAD_GLOBAL: 4,
}
#: Doorbells are this far apart, so that no two are written in one transaction.
_DOORBELL_BYTES = 64


@dataclass(frozen=True)
class CacheMemory:
    """Lines and their state in a GPU's memory; `state` is for the kernels."""

    state: CCacheState
    lines: DeviceMemory
    words: DeviceMemory
    metas: DeviceMemory
    sets: DeviceMemory
    frames: DeviceMemory | None
    n_pages: int
    state_bytes: int

    @classmethod
    def create(cls, gpu: Gpu, settings: CacheSettings) -> CacheMemory:
        """An empty cache."""
        shape = settings.geometry
        lines = gpu.memory(shape.n_pages * settings.page_bytes)
        words, metas = gpu.memory(8 * shape.n_lines), gpu.memory(8 * shape.n_lines)
        sets = gpu.memory(SET_BYTES * shape.n_sets)
        policy = POLICY_NUMBERS[settings.policy]
        state = CCacheState(
            words.address, metas.address, sets.address, shape.n_sets, shape.ways, policy, settings.seed
        )
        frames = None
        if shape.n_frames is not None:
            frames = gpu.memory(FRAME_COUNTER_BYTES + FRAME_BYTES_PER_LINE * shape.n_lines)
            state.frame_counters = frames.address
            state.frame_of_line = frames.address + FRAME_COUNTER_BYTES
            state.n_frames = shape.n_frames
        return cls(state, lines, words, metas, sets, frames, shape.n_pages, shape.state_bytes)


@dataclass(frozen=True)
class QueueMemory:
    """Queue pairs: rings and doorbells in pinned memory, the submitting side's words on the GPU."""

    pairs: ctypes.Array[CQueuePair]
    on_gpu: DeviceMemory
    owners: DeviceMemory
    kept: tuple[DeviceMemory | PinnedMemory, ...]

    @classmethod
    def create(cls, gpu: Gpu, n_pairs: int, depth: int) -> QueueMemory:
        """Queue pairs whose command ids `bam_init_queues` has still to number."""
        rings = gpu.pinned(n_pairs * depth * (SQE_BYTES + CQE_BYTES))
        doorbells = gpu.pinned(2 * n_pairs * _DOORBELL_BYTES)
        pairs = (CQueuePair * n_pairs)()
        cq = rings.address + n_pairs * depth * SQE_BYTES
        for number, pair in enumerate(pairs):
            pair.sq = rings.address + number * depth * SQE_BYTES
            pair.cq = cq + number * depth * CQE_BYTES
            pair.sq_doorbell = doorbells.address + 2 * number * _DOORBELL_BYTES
            pair.cq_doorbell = doorbells.address + (2 * number + 1) * _DOORBELL_BYTES
            pair.depth, pair.queue_id = depth, number
        return cls.of(gpu, pairs, (rings, doorbells))

    @classmethod
    def of(
        cls, gpu: Gpu, pairs: ctypes.Array[CQueuePair], kept: tuple[DeviceMemory | PinnedMemory, ...] = ()
    ) -> QueueMemory:
        """Queue pairs whose rings and doorbells lie where `pairs` says; the rest is made."""
        n_pairs, depth = len(pairs), pairs[0].depth
        words, cids = gpu.memory(n_pairs * QUEUE_WORDS_BYTES), gpu.memory(2 * n_pairs * depth)
        for number, pair in enumerate(pairs):
            pair.words = words.address + number * QUEUE_WORDS_BYTES
            pair.free_cids = cids.address + 2 * number * depth
        on_gpu = gpu.memory(ctypes.sizeof(pairs))
        gpu.write(on_gpu.address, np.frombuffer(bytes(pairs), np.uint8))
        owners = gpu.memory(4 * n_pairs * depth)
        return cls(pairs, on_gpu, owners, (*kept, words, cids))


@dataclass(frozen=True)
class DriveMemory:
    """What kernels need to read a drive by themselves; made by :mod:`bam.cache.device.drive`.

    Attributes
    ----------
    pairs : array of CQueuePair
        Rings and doorbells, at addresses for kernels.
    staging : PinnedMemory
        A slot of a page for each read, which the drive writes to.
    pointers : DeviceMemory
        `bam::DataPointer` of each slot.
    first_block, nsid, block_bytes : int
        Where page 0 lies, in blocks of the namespace.
    """

    pairs: ctypes.Array[CQueuePair]
    staging: PinnedMemory
    pointers: DeviceMemory
    first_block: int
    nsid: int
    block_bytes: int


@dataclass(frozen=True)
class StoreMemory:
    """All of it, and the structure that kernels are given."""

    store: CDeviceStore
    queues: QueueMemory
    cache: CacheMemory | None
    staging: PinnedMemory
    kept: tuple[DeviceMemory, ...]

    @classmethod
    def create(
        cls,
        gpu: Gpu,
        page_bytes: int,
        logical_bytes: int,
        cache: CacheMemory | None,
        settings: GpuSettings,
        timeout_s: float,
        drive: DriveMemory | None = None,
    ) -> StoreMemory:
        """Memory for a store of pages of `page_bytes`; without `cache` every page is read for its request.

        With `drive` its queues are used; without, the software controller is to answer.
        """
        per_flight = settings.slots_per_flight(page_bytes)
        n_slots = per_flight * settings.flights + settings.lone_pages
        if drive is None:
            queues = QueueMemory.create(gpu, settings.queue_pairs, settings.queue_slots)
            staging = gpu.pinned(n_slots * page_bytes)
        else:
            queues, staging = QueueMemory.of(gpu, drive.pairs), drive.staging
        block_bytes = BLOCK_BYTES if drive is None else drive.block_bytes
        results, sources = gpu.memory(8 * n_slots), gpu.memory(8 * n_slots)
        flights = gpu.memory(FLIGHT.itemsize * settings.flights)
        fresh = np.zeros(settings.flights, FLIGHT)
        fresh["first_failed"] = NO_PIECE
        gpu.write(flights.address, fresh.view(np.uint8))
        lone, failure = gpu.memory(4 * max(1, settings.lone_pages)), gpu.memory(16)
        store = CDeviceStore(
            cache=CCacheState() if cache is None else cache.state,
            lines=0 if cache is None else cache.lines.address,
            queues=queues.on_gpu.address,
            owners=queues.owners.address,
            staging=staging.address,
            results=results.address,
            sources=sources.address,
            flights=flights.address,
            lone_slots=lone.address,
            failure=failure.address,
            pointers=0 if drive is None else drive.pointers.address,
            first_block=0 if drive is None else drive.first_block,
            n_blocks=-(-logical_bytes // block_bytes),
            timeout_ns=int(timeout_s * 1e9),
            n_queues=len(queues.pairs),
            n_flights=settings.flights,
            slots_per_flight=per_flight,
            n_lone_slots=settings.lone_pages,
            page_shift=page_bytes.bit_length() - 1,
            block_shift=block_bytes.bit_length() - 1,
            nsid=1 if drive is None else drive.nsid,
        )
        gpu.launch("bam_init_queues", Grid(len(queues.pairs), 256), [store])
        gpu.mark().wait()
        kept = (results, sources, flights, lone, failure)
        return cls(store, queues, cache, staging, kept if drive is None else (*kept, drive.pointers))
