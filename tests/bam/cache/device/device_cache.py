"""The GPU's page cache step by step, each a launch: for tests that hold it against the plain one."""

from __future__ import annotations

import ctypes
from ctypes import c_uint64, c_void_p

import numpy as np
from cache_support import WholeState

from bam.cache.device.gpu import Gpu, Grid
from bam.cache.device.memory import CacheMemory
from bam.cache.geometry import FRAME_COUNTER_BYTES
from bam.cache.page_cache import NEVER, Acquired, Outcome, PolicyKind
from bam.cache.settings import CacheSettings

PAGE_BYTES = 512
ACTIONS = ("acquire", "publish", "fail", "unpin", "note_use", "forget_uses")


class _Step(ctypes.Structure):
    """`bam::CacheStep`."""

    _fields_ = [("action", c_uint64), ("subject", c_uint64), ("value", c_uint64)]


class DeviceCache:
    """The part of :class:`PageCache` that steps use, and the whole state."""

    def __init__(self, gpu: Gpu, n_lines: int, policy: PolicyKind, seed: int) -> None:
        self._gpu = gpu
        self._memory = CacheMemory.create(gpu, CacheSettings(n_lines, PAGE_BYTES, policy, seed))
        self._got = gpu.memory(16)

    def acquire(self, page_id: int, next_use: int = NEVER) -> Acquired:
        self._run("acquire", page_id, next_use)
        outcome, line_id = self._gpu.read(self._got.address, 16).view(np.uint64).tolist()
        kind = tuple(Outcome)[outcome & 0xFFFFFFFF]
        return Acquired(kind, None if kind is Outcome.BYPASS else line_id)

    def publish(self, line_id: int) -> None:
        self._run("publish", line_id, 0)

    def fail(self, line_id: int, errno: int) -> None:
        self._run("fail", line_id, errno)

    def unpin(self, line_id: int) -> None:
        self._run("unpin", line_id, 0)

    def note_use(self, page_id: int, next_use: int) -> None:
        self._run("note_use", page_id, next_use)

    def forget_uses(self, horizon: int, instead: int) -> None:
        self._run("forget_uses", horizon, instead)

    def whole_state(self) -> WholeState:
        words, metas, sets = (
            self._gpu.read(memory.address, memory.n_bytes)
            for memory in (self._memory.words, self._memory.metas, self._memory.sets)
        )
        hands = sets.view(np.uint32).reshape(-1, 2)[:, 1]
        frames: list[int] = []
        if (memory := self._memory.frames) is not None:
            frames = (
                self._gpu.read(memory.address, memory.n_bytes)[FRAME_COUNTER_BYTES:].view(np.uint32).tolist()
            )
        lists = words.view(np.uint64).tolist(), metas.view(np.uint64).tolist(), hands.tolist()
        return WholeState(*lists, frames)

    def _run(self, action: str, subject: int, value: int) -> None:
        step = _Step(ACTIONS.index(action), subject, value)
        arguments = [self._memory.state, step, c_void_p(self._got.address)]
        self._gpu.launch("bam_cache_step", Grid(1, 32), arguments)
        self._gpu.mark().wait()


def check_lockstep(gpu: Gpu, policy: PolicyKind, n_lines: int, n_pages: int, n_steps: int) -> set[Outcome]:
    """Random steps leave it in the plain cache's state, word for word; which outcomes there were."""
    from cache_support import reference_cache, whole_state
    from test_host_equals_reference import Lockstep, random_steps

    cache, plain = DeviceCache(gpu, n_lines, policy, 12345), reference_cache(n_lines, policy, 12345)
    lockstep = Lockstep([cache, plain])
    for number, step in enumerate(random_steps(n_steps, n_pages, np.random.default_rng(n_lines))):
        lockstep.run(step)
        if number % 8 == 0:
            assert cache.whole_state() == whole_state(plain)
    return {acquired.outcome for acquired in lockstep.outcomes}
