from __future__ import annotations

import pytest

from bam.config import EngineKind, PolicyKind, StoreConfig, parse_bytes, parse_cache_lines
from bam.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (4096, 4096),
        (0, 0),
        ("4096", 4096),
        ("8GiB", 8 * 2**30),
        (" 64 mib ", 64 * 2**20),
        ("1.5KiB", 1536),
        ("2 GB", 2 * 10**9),
        ("7B", 7),
        ("1TiB", 2**40),
    ],
)
def test_sizes(text: int | str, expected: int) -> None:
    assert parse_bytes(text) == expected


@pytest.mark.parametrize("value", ["", "GiB", "-1", "4 parsecs", "1e6", "0.3B", -1, 1.5, None, True])
def test_what_is_not_a_size(value: object) -> None:
    with pytest.raises(ConfigError, match="limit="):
        parse_bytes(value, "limit")


def test_cache_sizes() -> None:
    assert parse_cache_lines("64MiB", 4096) == 16384
    assert parse_cache_lines(10000, 4096) == 2
    assert parse_cache_lines("1 line", 4096) == 1
    assert parse_cache_lines("300 lines", 65536) == 300


@pytest.mark.parametrize("value", ["0 lines", 4095, "-3 lines", "lines", 0])
def test_a_cache_holds_at_least_one_page(value: int | str) -> None:
    with pytest.raises(ConfigError, match="cache="):
        parse_cache_lines(value, 4096)


def test_config_takes_names() -> None:
    config = StoreConfig(policy="sieve", engine="file")
    assert (config.policy, config.engine) == (PolicyKind.SIEVE, EngineKind.FILE)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("page_bytes", 256),
        ("page_bytes", 131072),
        ("page_bytes", 5000),
        ("page_bytes", 4096.0),
        ("page_bytes", True),
        ("cache_lines", 0),
        ("queue_depth", 0),
        ("queue_depth", 10**6),
        ("merge_bytes", 4095),
        ("merge_bytes", 2**30),
        ("policy", "lru"),
        ("engine", "magic"),
        ("timeout_s", 0),
        ("timeout_s", float("inf")),
        ("timeout_s", 2**32 / 1000),  # as milliseconds in 32 bits it would be 0
        ("timeout_s", "soon"),
        ("seed", -1),
    ],
)
def test_settings_that_cannot_work(name: str, value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        StoreConfig(**{name: value})
    assert caught.value.setting == name
    assert caught.value.value == value
