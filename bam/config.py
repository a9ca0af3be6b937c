"""Settings of a store, checked before any work."""

from __future__ import annotations

import difflib
import operator
import re
from dataclasses import dataclass
from enum import Enum
from typing import SupportsIndex, TypeVar

from bam.errors import ConfigError

MIN_PAGE_BYTES = 512
MAX_PAGE_BYTES = 65536
MAX_QUEUE_DEPTH = 32768
MAX_MERGE_BYTES = 64 * 2**20
MAX_STAGING_BYTES = 2**40
# The native library counts milliseconds in 32 bits.
MAX_TIMEOUT_S = 1_000_000
# Pages are numbered with 42 bits in a line's state word.
MAX_CACHE_LINES = 2**42

_UNIT_BYTES = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNIT_BYTES |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
Kind = TypeVar("Kind", bound=Enum)

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", re.ASCII)


class EngineKind(Enum):
    """Engines that can be named in settings."""

    AUTO = "auto"
    MEMORY = "memory"
    FILE = "file"
    URING = "uring"


class PolicyKind(Enum):
    """Eviction policies by name; values as in policy.h."""

    RANDOM = "random"
    CLOCK = "clock"
    SIEVE = "sieve"
    LOOK_AHEAD = "look_ahead"
    LOOK_AHEAD_GLOBAL = "look_ahead_global"

    @property
    def orders_by_use(self) -> bool:
        """Whether the caller's next uses matter."""
        return self in (PolicyKind.LOOK_AHEAD, PolicyKind.LOOK_AHEAD_GLOBAL)


class ReaderKind(Enum):
    """What turns row ids into bytes: the C++ reader, or the plain Python one."""

    AUTO = "auto"
    NATIVE = "native"
    REFERENCE = "reference"


class DeviceKind(Enum):
    """Where rows are gathered: in the host's memory, or in a GPU's."""

    CPU = "cpu"
    CUDA = "cuda"


def parse_bytes(value: int | str, setting: str = "size") -> int:
    """Number of bytes in `value`.

    Parameters
    ----------
    value : int or str
        Bytes, or a number with a unit: ``"4096"``, ``"64MiB"``, ``"1.5 GB"``. kB, MB, GB, TB count in
        thousands; KiB, MiB, GiB, TiB in 1024s. Case does not matter.
    setting : str
        Name used in the error.

    Raises
    ------
    ConfigError
        Not a size, negative, or not a whole number of bytes.
    """
    expected = "a size such as 4096, '64MiB' or '8GiB'"
    if isinstance(value, str):
        match = _SIZE.fullmatch(value)
        unit = None if match is None else _UNIT_BYTES.get(match[2].lower())
        if match is None or unit is None:
            raise ConfigError(setting, value, expected)
        whole, _, fraction = match[1].partition(".")
        scaled, rest = divmod(int(whole + fraction) * unit, int("1" + "0" * len(fraction)))
        if rest:
            raise ConfigError(setting, value, "a whole number of bytes")
        return scaled
    return _whole_number(setting, value, 0, None, expected)


def parse_cache_lines(value: int | str, page_bytes: int) -> int:
    """Lines in a cache of the size `value`.

    Parameters
    ----------
    value : int or str
        Bytes, a size with a unit (rounded down to whole lines), or a number of lines: ``"16 lines"``.
    page_bytes : int

    Raises
    ------
    ConfigError
        Not a size, or less than one line.
    """
    expected = f"at least one page ({page_bytes} bytes), such as '64MiB', or lines, such as '16 lines'"
    if isinstance(value, str) and (match := re.fullmatch(r"\s*(\d+)\s*lines?\s*", value, re.ASCII)):
        lines = int(match[1])
    else:
        lines = parse_bytes(value, "cache") // page_bytes
    if lines < 1:
        raise ConfigError("cache", value, expected)
    return lines


@dataclass(frozen=True)
class StoreConfig:
    """How a store reads and caches.

    Attributes
    ----------
    page_bytes : int
        Unit of caching; a power of two from 512 to 65536.
    cache_lines : int
        Lines of the page cache, at least 1.
    policy : PolicyKind
    engine : EngineKind
    queue_depth : int
        Most reads in flight of one thread.
    merge_bytes : int
        Longest read that neighbouring pages are merged into; at least one page.
    bridge_bytes : int
        Pages this far apart are merged too: the hole between them is read along and dropped; 0 for none.
    timeout_s : float
        A gather that makes no progress for so long raises :class:`bam.errors.WaitTimeout`.
    seed : int
        Of the random policy.
    close_timeout_s : float
        Closing waits so long for reads that calls gave up, and then leaves them behind.
    staging_bytes : int
        Most memory of the buffers that one thread reads into; fewer reads are in flight where it is small.

    Raises
    ------
    ConfigError
        A value that cannot work.
    """

    page_bytes: int = 4096
    cache_lines: int = 16384
    policy: PolicyKind = PolicyKind.CLOCK
    engine: EngineKind = EngineKind.AUTO
    queue_depth: int = 256
    merge_bytes: int = 65536
    bridge_bytes: int = 0
    timeout_s: float = 60.0
    seed: int = 0
    close_timeout_s: float = 10.0
    staging_bytes: int = 64 * 2**20

    def __post_init__(self) -> None:
        power_of_two = f"a power of two from {MIN_PAGE_BYTES} to {MAX_PAGE_BYTES}"
        self._check_number("page_bytes", MIN_PAGE_BYTES, MAX_PAGE_BYTES, power_of_two)
        if self.page_bytes & (self.page_bytes - 1):
            raise ConfigError("page_bytes", self.page_bytes, power_of_two)
        self._check_number("cache_lines", 1, MAX_CACHE_LINES, f"lines, from 1 to {MAX_CACHE_LINES}")
        self._check_number("queue_depth", 1, MAX_QUEUE_DEPTH, f"a number from 1 to {MAX_QUEUE_DEPTH}")
        merge = f"bytes from page_bytes ({self.page_bytes}) to {MAX_MERGE_BYTES}"
        self._check_number("merge_bytes", self.page_bytes, MAX_MERGE_BYTES, merge)
        self._check_number("bridge_bytes", 0, MAX_MERGE_BYTES, f"bytes from 0 to {MAX_MERGE_BYTES}")
        staging = f"bytes from merge_bytes ({self.merge_bytes}) to {MAX_STAGING_BYTES}"
        self._check_number("staging_bytes", self.merge_bytes, MAX_STAGING_BYTES, staging)
        self._check_number("seed", 0, 2**64 - 1, "a number from 0 to 2**64 - 1")
        object.__setattr__(self, "policy", parse_kind("policy", self.policy, PolicyKind))
        object.__setattr__(self, "engine", parse_kind("engine", self.engine, EngineKind))
        if not (isinstance(self.timeout_s, (int, float)) and 0 < self.timeout_s <= MAX_TIMEOUT_S):
            raise ConfigError("timeout_s", self.timeout_s, f"seconds, above 0 and up to {MAX_TIMEOUT_S}")
        check_seconds("close_timeout_s", self.close_timeout_s)

    def _check_number(self, name: str, low: int, high: int, expected: str) -> None:
        number = _whole_number(name, getattr(self, name), low, high, expected)
        object.__setattr__(self, name, number)


def parse_kind(setting: str, value: object, kind: type[Kind]) -> Kind:
    """The member of `kind` that `value` is, or whose name in settings it is; else :class:`ConfigError`."""
    try:
        return kind(value)
    except ValueError:
        names = [str(member.value) for member in kind]
        near = difflib.get_close_matches(str(value), names, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ConfigError(setting, value, f"one of {', '.join(map(repr, names))}{hint}") from None


def check_seconds(setting: str, seconds: float) -> None:
    """Raise :class:`ConfigError` unless something can be waited for so long."""
    if not (isinstance(seconds, (int, float)) and 0 <= seconds <= MAX_TIMEOUT_S):
        raise ConfigError(setting, seconds, f"seconds, from 0 to {MAX_TIMEOUT_S}")


def _whole_number(setting: str, value: SupportsIndex, low: int, high: int | None, expected: str) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise ConfigError(setting, value, expected) from None
    if isinstance(value, bool) or number < low or (high is not None and number > high):
        raise ConfigError(setting, value, expected)
    return number
