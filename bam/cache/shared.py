"""One page cache for several arrays: the hottest rows stay, whichever array they are of."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from typing import Any

from bam.cache.geometry import MAX_PAGE_ID
from bam.cache.open import CacheKind, open_cache
from bam.cache.page_cache import PageCache
from bam.config import PolicyKind, StoreConfig, parse_bytes, parse_cache_lines, parse_kind
from bam.errors import ClosedError, ConfigError


@dataclass(frozen=True)
class CacheLease:
    """A share in a cache: its pages 0, 1 ... are the cache's ``first_page_id`` and following."""

    cache: PageCache
    first_page_id: int


class SharedCache:
    """A page cache that arrays share. Give it to :func:`bam.open_array` as `cache`.

    The memory is taken when the first array is opened. Safe to use from several threads; a forked child, and
    whoever unpickles it, gets an empty cache of the same settings, shared among the arrays that came along.

    Parameters
    ----------
    size : int or str
        Bytes, ``"64MiB"``, or ``"16 lines"``.
    page_bytes : int or str
        A power of two from 512 to 65536; the arrays' too.
    policy : str
    seed : int
        Of policy ``random``.

    Raises
    ------
    ConfigError
    """

    def __init__(
        self,
        size: int | str,
        *,
        page_bytes: int | str = 4096,
        policy: PolicyKind | str = PolicyKind.CLOCK,
        seed: int = 0,
    ) -> None:
        page = parse_bytes(page_bytes, "page_bytes")
        StoreConfig(page_bytes=page, merge_bytes=max(page, 65536))
        self.n_lines = parse_cache_lines(size, page)
        self.page_bytes = page
        self.policy = parse_kind("policy", policy, PolicyKind)
        self.seed = seed
        self._closed = False
        self._start_anew()

    def _start_anew(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._cache: PageCache | None = None
        self._kind: CacheKind | None = None
        self._next_page_id = 0

    def lease(self, n_pages: int, kind: CacheKind) -> CacheLease:
        """Page ids for an array of `n_pages`; they are never given to another one.

        Raises
        ------
        ClosedError
        ConfigError
            The arrays before this one are read through a cache of another kind, or the page ids are used up.
        """
        if os.getpid() != self._pid:
            self._start_anew()
        with self._lock:
            if self._closed:
                raise ClosedError("shared cache")
            if self._next_page_id + n_pages > MAX_PAGE_ID:
                raise ConfigError("cache", self, f"a cache that has named fewer than {MAX_PAGE_ID} pages")
            if self._cache is None:
                self._cache = open_cache(
                    kind,
                    n_lines=self.n_lines,
                    page_bytes=self.page_bytes,
                    policy=self.policy,
                    seed=self.seed,
                )
                self._kind = kind
            if kind is not self._kind:
                raise ConfigError("cache", self, f"arrays that are all read through a {kind.value} cache")
            first = self._next_page_id
            self._next_page_id += n_pages
            return CacheLease(self._cache, first)

    def close(self) -> None:
        """Release the memory once the arrays are closed too; calling it again does nothing."""
        with self._lock:
            self._closed = True
            if self._cache is not None and os.getpid() == self._pid:
                self._cache.close()
            self._cache = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _from_settings, (self.n_lines, self.page_bytes, self.policy, self.seed)

    def __repr__(self) -> str:
        return f"<bam.SharedCache {self.n_lines} lines of {self.page_bytes} bytes, {self.policy.value}>"


def _from_settings(n_lines: int, page_bytes: int, policy: PolicyKind, seed: int) -> SharedCache:
    return SharedCache(f"{n_lines} lines", page_bytes=page_bytes, policy=policy, seed=seed)
