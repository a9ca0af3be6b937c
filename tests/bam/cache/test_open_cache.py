"""Caches by name."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from cache_support import PAGE_BYTES, POLICIES, host_cache, policy_name

import bam.cache.open
from bam.cache.host import HostCache
from bam.cache.open import CacheKind, open_cache
from bam.cache.page_cache import PolicyKind
from bam.cache.reference import ReferenceCache
from bam.errors import ConfigError
from bam.native import available


def open_small(kind: CacheKind | str = CacheKind.REFERENCE, **settings: Any) -> Any:
    return open_cache(kind, **{"n_lines": 4, "page_bytes": PAGE_BYTES, **settings})


@pytest.mark.parametrize("policy", POLICIES, ids=policy_name)
def test_policies_by_name(policy: PolicyKind) -> None:
    cache = open_small(policy=policy.value)
    assert isinstance(cache, ReferenceCache)
    assert (cache.policy, cache.n_lines, cache.page_bytes) == (policy, 4, PAGE_BYTES)


def test_the_host_cache_by_name() -> None:
    host_cache(1, PolicyKind.CLOCK)  # or skip
    cache = open_small("host", policy=PolicyKind.SIEVE, seed=2**64 - 1)
    assert isinstance(cache, HostCache)
    assert cache.policy is PolicyKind.SIEVE


def test_auto_takes_the_host_cache_where_it_can() -> None:
    assert isinstance(open_small("auto"), HostCache if available() else ReferenceCache)


def test_auto_without_the_native_library_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(bam.cache.open, "available", lambda: False)
    with caplog.at_level(logging.WARNING):
        assert isinstance(open_small("auto"), ReferenceCache)
    assert "native library was not built" in caplog.text


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("policy", "seive", "did you mean 'sieve'"),
        ("policy", "lookahead", "did you mean 'look_ahead'"),
        ("policy", "lru", "one of 'random', 'clock', 'sieve', 'look_ahead'"),
        ("n_lines", 0, "n_lines=0"),
        ("page_bytes", 1000, "power of two"),
        ("page_bytes", 256, "power of two from 512"),
        ("page_bytes", 2**17, "to 65536"),
        ("seed", -1, "seed"),
        ("seed", 2**64, "seed"),
    ],
)
def test_settings_that_cannot_work(setting: str, value: object, message: str) -> None:
    for kind in ("reference", "host", "auto"):
        with pytest.raises(ConfigError, match=message):
            open_small(kind, **{setting: value})


def test_no_such_kind() -> None:
    with pytest.raises(ConfigError, match="did you mean 'reference'"):
        open_small("referense")


def test_more_memory_than_an_address_space_holds() -> None:
    host_cache(1, PolicyKind.CLOCK)  # or skip
    with pytest.raises(ConfigError, match="memory"):
        open_small("host", n_lines=2**42, page_bytes=65536)
