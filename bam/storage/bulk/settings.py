"""How bulk reads are made, checked before any work."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from bam.config import MAX_TIMEOUT_S, parse_bytes, parse_kind
from bam.errors import ConfigError

MIN_TASK_BYTES, MAX_TASK_BYTES = 2**16, 2**30
MAX_THREADS = 256
#: Offsets that every engine, drive and GPU takes.
TASK_UNIT_BYTES = 4096


class BulkEngineKind(Enum):
    """What moves the bytes of a bulk read."""

    #: kvikio for a GPU's memory where it works here, else native; says which and why.
    AUTO = "auto"
    #: An engine of this package, with long reads; for a GPU through pinned memory.
    NATIVE = "native"
    KVIKIO = "kvikio"


class Destination(Enum):
    """Kinds of memory that bulk reads go to."""

    HOST = "host"
    PINNED = "pinned"
    CUDA = "cuda"

    @property
    def on_gpu(self) -> bool:
        """Whether a copy over PCI is part of the way."""
        return self is Destination.CUDA


@dataclass(frozen=True)
class BulkSettings:
    """How many bytes are read at a time, by how many threads, and by what; see docs/settings.md.

    Attributes
    ----------
    engine : BulkEngineKind or str
    task_bytes : int or str
        Longest read; a multiple of 4096. Each thread has a buffer of this size where it needs one.
    threads : int
        That read at a time.
    direct : bool
        Whether to bypass the page cache where the file system takes that; else the kernel's read-ahead and
        page cache are used.
    numa : bool
        Whether threads run on the cores next to the disk and the GPU.
    timeout_s : float
        A load that makes no progress for so long raises :class:`bam.WaitTimeout`.

    Raises
    ------
    ConfigError
    """

    engine: BulkEngineKind | str = BulkEngineKind.AUTO
    task_bytes: int | str = "4MiB"
    threads: int = 4
    direct: bool = True
    numa: bool = False
    timeout_s: float = 60.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "engine", parse_kind("engine", self.engine, BulkEngineKind))
        size = parse_bytes(self.task_bytes, "task_bytes")
        object.__setattr__(self, "task_bytes", size)
        if not MIN_TASK_BYTES <= size <= MAX_TASK_BYTES or size % TASK_UNIT_BYTES:
            expected = f"a multiple of {TASK_UNIT_BYTES} bytes from {MIN_TASK_BYTES} to {MAX_TASK_BYTES}"
            raise ConfigError("task_bytes", size, expected)
        whole = isinstance(self.threads, int) and not isinstance(self.threads, bool)
        if not whole or not 1 <= self.threads <= MAX_THREADS:
            raise ConfigError("threads", self.threads, f"a number from 1 to {MAX_THREADS}")
        if not (isinstance(self.timeout_s, (int, float)) and 0 < self.timeout_s <= MAX_TIMEOUT_S):
            raise ConfigError("timeout_s", self.timeout_s, f"seconds, above 0 and up to {MAX_TIMEOUT_S}")

    @property
    def bytes_of_task(self) -> int:
        """`task_bytes` as a number."""
        return parse_bytes(self.task_bytes)

    @property
    def kind(self) -> BulkEngineKind:
        """`engine` as a member."""
        return BulkEngineKind(self.engine)
