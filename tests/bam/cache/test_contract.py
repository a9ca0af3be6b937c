"""The contract, for each cache there is."""

from __future__ import annotations

from cache_contract import Cache, CacheContract
from cache_support import PAGE_BYTES, host_cache, reference_cache

from bam.cache.page_cache import PolicyKind


class TestReference(CacheContract):
    def make(self, n_lines: int, policy: PolicyKind, seed: int = 0) -> Cache:
        return reference_cache(n_lines, policy, seed)


class TestHost(CacheContract):
    def make(self, n_lines: int, policy: PolicyKind, seed: int = 0) -> Cache:
        return host_cache(n_lines, policy, seed)


def test_a_large_cache_takes_memory_only_where_it_is_used() -> None:
    cache = host_cache(2**24, PolicyKind.CLOCK)  # 8 GiB of lines
    before = _resident_bytes()
    for page_id in range(64):
        acquired = cache.acquire(page_id)
        assert acquired.line_id is not None
        cache.line(acquired.line_id)[:] = 1
    # 64 lines in 64 places: at most a huge page each, and as much for their state
    assert _resident_bytes() - before <= 64 * 2 * 2**21
    assert cache.n_lines * PAGE_BYTES == 2**33


def _resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096
