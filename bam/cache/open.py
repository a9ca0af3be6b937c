"""Page caches by name."""

from __future__ import annotations

import logging
from enum import Enum

from bam.cache.host import HostCache
from bam.cache.page_cache import PageCache, PolicyKind
from bam.cache.reference import ReferenceCache
from bam.config import parse_kind
from bam.native import available

logger = logging.getLogger(__name__)


class CacheKind(Enum):
    """Page caches that can be named in settings. AUTO: HOST, or without the native library REFERENCE."""

    AUTO = "auto"
    HOST = "host"
    REFERENCE = "reference"


def open_cache(
    kind: CacheKind | str = CacheKind.AUTO,
    *,
    n_lines: int,
    page_bytes: int,
    policy: PolicyKind | str = PolicyKind.CLOCK,
    seed: int = 0,
) -> PageCache:
    """A new, empty page cache.

    Parameters
    ----------
    kind : CacheKind or str
    n_lines : int
        Lines wanted; up to one a set fewer are used, so that all sets are of one size.
    page_bytes : int
        A power of two from 512 to 65536.
    policy : PolicyKind or str
    seed : int
        Of the random policy.

    Returns
    -------
    PageCache
        Owned by the caller, who closes it.

    Raises
    ------
    ConfigError
        A value that cannot work; of a misspelt name it says which one is near.
    NativeLibraryMissing
        `kind` is HOST and the native library was not built.
    """
    kind = parse_kind("cache", kind, CacheKind)
    policy = parse_kind("policy", policy, PolicyKind)
    if kind is CacheKind.AUTO:
        kind = CacheKind.HOST if available() else CacheKind.REFERENCE
        if kind is CacheKind.REFERENCE:
            logger.warning("the native library was not built: using the reference page cache, which is slow")
    make = HostCache if kind is CacheKind.HOST else ReferenceCache
    return make(n_lines, page_bytes, policy, seed)
