"""Wrappers that show the faults a file system can show, for tests of whatever reads through them."""

from __future__ import annotations

import ctypes
import errno as errno_codes
import threading
import time
from collections.abc import Sequence
from ctypes import POINTER, c_double, c_int32, c_int64, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from enum import Enum

from bam.errors import ClosedError, ConfigError
from bam.native import function
from bam.storage.engine import ByteArray, Engine, EngineInfo, ReadSpan
from bam.storage.native import NativeEngine, create
from bam.storage.python_engine import PythonEngine

_UNLIMITED = 2**64 - 1
_MASK = 2**64 - 1


class FaultKind(Enum):
    """What happens to a read; values as in fault_engine.cc."""

    ERROR = 0
    SHORT_READ = 1
    DELAY = 2
    CORRUPT = 3
    #: The read never ends. In C++ alone: in plain Python whoever reads would never come back.
    SILENCE = 4


@dataclass(frozen=True)
class FaultRule:
    """When something happens to a read. Exactly one of `nth`, `every` and `probability` is given.

    Attributes
    ----------
    kind : FaultKind
    nth : int
        The n-th read counted by this rule, from 1.
    every : int
        Every k-th read.
    probability : float
        Each read with this probability, drawn by a hash of `seed` and the number of the read.
    errno : int
        Of an ERROR.
    n_bytes : int
        Most bytes a SHORT_READ brings; bytes a CORRUPT flips.
    delay_us : int
        By which a DELAY is later.
    max_injections : int
        None: no limit.
    file : int
        Only reads of this file are counted. None: every file.
    seed : int

    Raises
    ------
    ConfigError
    """

    kind: FaultKind
    nth: int | None = None
    every: int | None = None
    probability: float | None = None
    errno: int = errno_codes.EIO
    n_bytes: int = 0
    delay_us: int = 0
    max_injections: int | None = None
    file: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if sum(given is not None for given in (self.nth, self.every, self.probability)) != 1:
            raise ConfigError("nth, every, probability", self, "exactly one of them")
        for period in (self.nth, self.every):
            if period is not None and period < 1:
                raise ConfigError("nth, every", period, "1 or more")
        if self.kind is FaultKind.ERROR and self.errno < 1:
            raise ConfigError("errno", self.errno, "an errno, 1 or more")


@dataclass(frozen=True)
class FaultCount:
    """How many reads a rule has counted, and how often it fired."""

    seen: int
    injected: int


class FaultEngine(PythonEngine):
    """Any engine, with faults, in plain Python.

    Parameters
    ----------
    inner : Engine
        Stays open when this one closes.
    rules : sequence of FaultRule
        Of those that fire, the first ERROR, the shortest SHORT_READ and the last CORRUPT win; delays add up.
    """

    def __init__(self, inner: Engine, rules: Sequence[FaultRule]) -> None:
        if any(rule.kind is FaultKind.SILENCE for rule in rules):
            raise ConfigError("rules", FaultKind.SILENCE, "a native engine, which can be given up")
        super().__init__("fault", inner.files)
        self._inner, self._rules = inner, tuple(rules)
        self._seen, self._injected = [0] * len(rules), [0] * len(rules)
        self._counting = threading.Lock()

    def counts(self) -> list[FaultCount]:
        """Of each rule."""
        with self._counting:
            return [FaultCount(*pair) for pair in zip(self._seen, self._injected, strict=True)]

    def check_file(self, file: int, end: int = 0) -> int:
        return self._inner.check_file(file, end)

    def bytes_now(self, file: int) -> int:
        return self._inner.bytes_now(file)

    def info(self) -> EngineInfo:
        inner = self._inner.info()
        features = {"rules": len(self._rules), "reorder_window": 0}
        return EngineInfo("fault", "python", inner.direct, features, inner=(inner,))

    def _read_span(self, span: ReadSpan, buffer: ByteArray) -> int:
        fired = self._decide(span.file)
        time.sleep(sum(found.rule.delay_us for found in fired[FaultKind.DELAY]) * 1e-6)
        for found in fired[FaultKind.ERROR]:
            return -found.rule.errno
        (result,) = self._inner.read([span], [buffer])
        longest = min((found.rule.n_bytes for found in fired[FaultKind.SHORT_READ]), default=result)
        if result > longest:
            buffer[longest:] = 0xA5  # bytes past a short read are undefined, so they are made wrong
            result = longest
        for found in fired[FaultKind.CORRUPT][-1:] if result > 0 else []:
            key = _draw(found.rule.seed, found.injection)
            for i in range(found.rule.n_bytes):
                buffer[_draw(key, i) % result] ^= 0xFF
        return result

    def _decide(self, file: int) -> dict[FaultKind, list[_Fired]]:
        """The rules that fire for the next read of `file`."""
        fired: dict[FaultKind, list[_Fired]] = {kind: [] for kind in FaultKind}
        with self._counting:
            for i, rule in enumerate(self._rules):
                if rule.file is not None and rule.file != file:
                    continue
                self._seen[i] += 1
                limit = _UNLIMITED if rule.max_injections is None else rule.max_injections
                if _chosen(rule, self._seen[i]) and self._injected[i] < limit:
                    self._injected[i] += 1
                    fired[rule.kind].append(_Fired(rule, self._injected[i]))
        return fired

    def _release(self) -> None:
        """Nothing of its own."""


class NativeFaultEngine(NativeEngine):
    """The same over a native engine, in C++, which can also hand completions out in another order.

    Parameters
    ----------
    inner : NativeEngine
        Stays open when this one closes.
    rules : sequence of FaultRule
    reorder_window : int
        So many completions are held back, and one of them is drawn by a hash. 0: off.
    reorder_seed : int
    """

    def __init__(
        self,
        inner: NativeEngine,
        rules: Sequence[FaultRule],
        *,
        reorder_window: int = 0,
        reorder_seed: int = 0,
    ) -> None:
        table = (_CRule * max(1, len(rules)))(*[_as_c(rule) for rule in rules])
        types = [c_void_p, POINTER(_CRule), c_uint32, c_uint32, c_uint64]
        arguments = (inner.handle, table, len(rules), reorder_window, reorder_seed)
        super().__init__(create("bam_fault_engine_create", types, *arguments), [inner])
        self._n_rules = len(rules)

    def counts(self) -> list[FaultCount]:
        """Of each rule."""
        found = (_CCount * max(1, self._n_rules))()
        call = function("bam_fault_engine_counts", c_int64, [c_void_p, POINTER(_CCount), c_uint64])
        if call(self.handle, found, self._n_rules) < 0:
            raise ClosedError("engine 'fault'")
        return [FaultCount(count.seen, count.injected) for count in found[: self._n_rules]]


class _CRule(ctypes.Structure):
    """`bam::FaultRule`."""

    _fields_ = [
        ("kind", c_uint32),
        ("when", c_uint32),
        ("period", c_uint64),
        ("probability", c_double),
        ("seed", c_uint64),
        ("value", c_uint64),
        ("max_injections", c_uint64),
        ("file", c_int32),
        ("reserved", c_uint32),
    ]


class _CCount(ctypes.Structure):
    """`bam::FaultCount`."""

    _fields_ = [("seen", c_uint64), ("injected", c_uint64)]


def _as_c(rule: FaultRule) -> _CRule:
    values = {
        FaultKind.ERROR: rule.errno,
        FaultKind.SHORT_READ: rule.n_bytes,
        FaultKind.DELAY: rule.delay_us,
        FaultKind.CORRUPT: rule.n_bytes,
        FaultKind.SILENCE: 0,
    }
    return _CRule(
        kind=rule.kind.value,
        when=0 if rule.nth is not None else 1 if rule.every is not None else 2,
        period=rule.nth or rule.every or 1,
        probability=rule.probability or 0.0,
        seed=rule.seed & _MASK,
        value=values[rule.kind],
        max_injections=_UNLIMITED if rule.max_injections is None else rule.max_injections,
        file=-1 if rule.file is None else rule.file,
    )


@dataclass(frozen=True)
class _Fired:
    rule: FaultRule
    injection: int


def _chosen(rule: FaultRule, number: int) -> bool:
    if rule.nth is not None:
        return number == rule.nth
    if rule.every is not None:
        return number % rule.every == 0
    return (_draw(rule.seed, number) >> 11) * 2.0**-53 < (rule.probability or 0.0)


def _draw(seed: int, number: int) -> int:
    """64 bits that depend on seed and number alone; `draw()` of fault_engine.cc."""
    return _mix64(_mix64((seed + 0x9E3779B97F4A7C15) & _MASK) ^ number)


def _mix64(x: int) -> int:
    """`mix64()` of policy.h."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)
