"""What a page cache is made of, checked before any memory is taken."""

from __future__ import annotations

import operator
from dataclasses import dataclass

from bam.cache.geometry import MAX_PAGE_ID, Geometry, geometry, geometry_with_frames
from bam.cache.page_cache import NEVER, PolicyKind
from bam.config import MAX_PAGE_BYTES, MIN_PAGE_BYTES, parse_kind
from bam.errors import ConfigError


@dataclass(frozen=True)
class CacheSettings:
    """Settings every kind of page cache takes.

    Attributes
    ----------
    n_lines : int
        Lines wanted; :attr:`geometry` says how many are used.
    page_bytes : int
        A power of two from 512 to 65536.
    policy : PolicyKind
        Or its name.
    seed : int
        Of the random policy; from 0 to 2**64 - 1.

    Raises
    ------
    ConfigError
    """

    n_lines: int
    page_bytes: int
    policy: PolicyKind
    seed: int = 0

    def __post_init__(self) -> None:
        page = self.page_bytes
        if not MIN_PAGE_BYTES <= page <= MAX_PAGE_BYTES or page & (page - 1):
            expected = f"a power of two from {MIN_PAGE_BYTES} to {MAX_PAGE_BYTES}"
            raise ConfigError("page_bytes", page, expected)
        if not 0 <= self.seed < 2**64:
            raise ConfigError("seed", self.seed, "a number from 0 to 2**64 - 1")
        object.__setattr__(self, "policy", parse_kind("policy", self.policy, PolicyKind))
        _ = self.geometry  # raises

    @property
    def geometry(self) -> Geometry:
        """Sets, ways and frames."""
        if self.policy is PolicyKind.LOOK_AHEAD_GLOBAL:
            return geometry_with_frames(self.n_lines)
        return geometry(self.n_lines)


def checked_page_id(page_id: int) -> int:
    """`page_id` as an int; raises :class:`bam.errors.ConfigError` for what no page can be called."""
    number = operator.index(page_id)
    if not 0 <= number <= MAX_PAGE_ID:
        raise ConfigError("page_id", page_id, f"a number from 0 to {MAX_PAGE_ID}")
    return number


def checked_use(setting: str, use: int) -> int:
    """`use` as an int; raises :class:`bam.errors.ConfigError` for what cannot be the time of a use."""
    number = operator.index(use)
    if not 0 <= number <= NEVER:
        raise ConfigError(setting, use, f"a number from 0 to {NEVER}")
    return number


def check_errno(errno: int) -> None:
    """Raises :class:`bam.errors.ConfigError` for what cannot be the reason of a failed read."""
    if not 0 < errno < 2**31:
        raise ConfigError("errno", errno, "a positive errno")
