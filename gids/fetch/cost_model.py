"""What reads of each length cost a disk that is kept busy, and so which of them are worth merging."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bam.errors import ConfigError

#: Longest read that is ever planned: its staging memory is taken for several.
MAX_MERGE_BYTES = 256 * 1024
#: A read is long enough when it reaches this share of the best rate of bytes.
_LONG_ENOUGH = 0.9


@dataclass(frozen=True)
class CostModel:
    """Device time of a read by its length; straight lines between what was measured.

    Attributes
    ----------
    read_bytes : tuple of int
        Rising lengths.
    read_us : tuple of float
        Device time of such a read when many are under way: 1e6 / reads per second.
    """

    read_bytes: tuple[int, ...]
    read_us: tuple[float, ...]

    def __post_init__(self) -> None:
        rising = all(a < b for a, b in zip(self.read_bytes, self.read_bytes[1:], strict=False))
        if not self.read_bytes or len(self.read_bytes) != len(self.read_us) or not rising:
            raise ConfigError("read_bytes", self.read_bytes, "rising lengths, one for each cost")

    @classmethod
    def of_rates(cls, reads_per_s: Mapping[int, float]) -> CostModel:
        """Of measured rates by length. A longer read never costs less: where it seems to, that was noise."""
        lengths = tuple(sorted(reads_per_s))
        costs = np.maximum.accumulate([1e6 / reads_per_s[length] for length in lengths])
        return cls(lengths, tuple(costs.tolist()))

    @classmethod
    def linear(cls, read_us: float, us_per_kib: float) -> CostModel:
        """`read_us` for a read, however short, and `us_per_kib` for its bytes."""
        lengths = tuple(2**power for power in range(9, 21))
        return cls(lengths, tuple(read_us + us_per_kib * length / 1024 for length in lengths))

    def cost_us(self, lengths: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Device time of reads of these lengths (bytes)."""
        asked = np.asarray(lengths, np.float64)
        longest = self.read_bytes[-1]
        within = np.interp(asked, self.read_bytes, self.read_us)
        # Past what was measured a read is as long as several of the longest.
        return np.where(asked > longest, self.read_us[-1] * asked / longest, within)

    def best_mb_per_s(self) -> float:
        """Bytes per microsecond of the length that moves most."""
        return float(max(length / cost for length, cost in zip(self.read_bytes, self.read_us, strict=True)))

    def merge_bytes(self, page_bytes: int) -> int:
        """Longest read worth planning: shorter ones waste bandwidth, longer ones only take memory."""
        enough = _LONG_ENOUGH * self.best_mb_per_s()
        pairs = zip(self.read_bytes, self.read_us, strict=True)
        first = next((length for length, cost in pairs if length / cost >= enough), self.read_bytes[-1])
        return max(page_bytes, min(first, MAX_MERGE_BYTES))

    def bridge_bytes(self, page_bytes: int) -> int:
        """Longest hole between two reads that costs no more to read along than the second read saves.

        Whole pages; it has to pay both between two pages and between a long read and a page.
        """
        merge_bytes, hole = self.merge_bytes(page_bytes), 0
        while (
            hole + 3 * page_bytes <= merge_bytes
            and self._pays(page_bytes, hole + page_bytes, page_bytes)
            and self._pays(max(page_bytes, merge_bytes // 2), hole + page_bytes, page_bytes)
        ):
            hole += page_bytes
        return hole

    def _pays(self, first_bytes: int, hole_bytes: int, second_bytes: int) -> bool:
        first, second, merged = self.cost_us(
            [first_bytes, second_bytes, first_bytes + hole_bytes + second_bytes]
        )
        return bool(merged <= first + second)
