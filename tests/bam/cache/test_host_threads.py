"""Threads that share one host cache: right bytes, no page twice, no pin left."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from cache_support import POLICIES, host_cache, policy_name

from bam.cache.host import HostCache
from bam.cache.page_cache import ByteArray, LineState, Outcome, PolicyKind
from bam.cache.pin import pin_page

N_THREADS = 8


@pytest.fixture(autouse=True)
def _threads_take_turns_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def check_at_rest(cache: HostCache) -> None:
    words = cache.raw_state().words
    states, pins, pages = (
        words & np.uint64(3),
        words >> np.uint64(2) & np.uint64(2**20 - 1),
        words >> np.uint64(22),
    )
    assert not pins.any()
    assert not (states == LineState.READING.value).any()
    cached = pages[states == LineState.VALID.value]
    assert len(np.unique(cached)) == len(cached), "a page is in two lines"


@pytest.mark.parametrize("n_lines", [1, 7, 48])
@pytest.mark.parametrize("policy", POLICIES, ids=policy_name)
def test_random_accesses(policy: PolicyKind, n_lines: int) -> None:
    cache = host_cache(n_lines, policy)

    def user(seed: int) -> set[Outcome]:
        rng = np.random.default_rng(seed)
        seen = set()
        for page_id, next_use in zip(rng.integers(0, 96, 250), rng.integers(0, 50, 250), strict=True):

            def read(page: ByteArray, number: int = int(page_id)) -> None:
                page.view(np.int64)[:] = number

            with pin_page(cache, page_id, read, next_use=next_use) as pin:
                assert (pin.bytes.view(np.int64) == page_id).all()
                seen.add(pin.outcome)
        return seen

    with ThreadPoolExecutor(N_THREADS) as pool:
        outcomes = set().union(*pool.map(user, range(N_THREADS)))
    assert outcomes >= {Outcome.HIT, Outcome.CLAIMED}
    check_at_rest(cache)


def test_a_cache_closed_while_others_use_it() -> None:
    """They get ClosedError or an answer, and the memory they hold stays."""
    for _ in range(20):
        cache = host_cache(4, PolicyKind.CLOCK)
        with ThreadPoolExecutor(4) as pool:
            users = [pool.submit(_use_until_closed, cache, seed) for seed in range(3)]
            pool.submit(cache.close)
            assert all(user.result(60) for user in users)


def _use_until_closed(cache: HostCache, seed: int) -> bool:
    rng = np.random.default_rng(seed)
    while True:
        try:
            pin = pin_page(cache, int(rng.integers(0, 9)), lambda page: page.fill(3))
        except ValueError as error:
            return "closed" in str(error)
        assert (pin.bytes == 3).all()
        pin.release()
