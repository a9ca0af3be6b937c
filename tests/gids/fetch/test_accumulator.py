"""Which mini-batches are read together, what that counts, and that it changes no byte."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_fetcher import Nodes, trace

import bam
from bam.cache.reference import ReferenceCache
from bam.config import PolicyKind
from bam.errors import ConfigError
from bam.native import available
from gids.fetch.accumulator import Accumulator, GroupMember, accumulate_bytes
from gids.fetch.constant_buffer import ConstantBuffer
from gids.fetch.cost_model import CostModel
from gids.fetch.counts import FetchCounts, total
from gids.fetch.device_model import SsdFacts
from gids.fetch.feature_store import FeatureStore
from gids.fetch.fetch_model import FetchModel, PlainAccumulator, plain_read_lengths
from gids.fetch.fetcher import Fetcher
from gids.fetch.output_pool import OutputPool
from gids.fetch.read_plan import ReadRules, read_lengths
from gids.fetch.shared_counts import divided
from gids.fetch.storage_model import StorageModel
from gids.fetch.table import StoredTable

PAGE = 512
COST = CostModel.linear(8.0, 1.0)
RULES = [ReadRules.page_by_page(PAGE), ReadRules(PAGE, 16 * PAGE, 0), ReadRules(PAGE, 64 * PAGE, 4 * PAGE)]

page_sets = st.sets(st.integers(0, 300), max_size=80)


def storage(rules: ReadRules, needed: float, cost: CostModel | None = COST) -> StorageModel:
    return StorageModel(SsdFacts(iops=needed / 19 * 1e4, latency_us=100), rules, cost)


@given(page_sets, st.sampled_from(RULES))
def test_reads_are_those_of_a_plain_loop(pages: set[int], rules: ReadRules) -> None:
    lengths = read_lengths(np.array(sorted(pages), np.int64), rules)
    assert lengths.tolist() == plain_read_lengths(pages, rules)


@settings(max_examples=200)
@given(
    st.lists(st.tuples(page_sets, page_sets, st.integers(0, 3000)), max_size=12),
    st.sampled_from(RULES),
    st.sampled_from([1.0, 30.0, 500.0]),
    st.sampled_from([0, 2000, 10**6]),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_groups_are_those_of_a_plain_loop(
    batches: list[tuple[set[int], set[int], int]],
    rules: ReadRules,
    needed: float,
    budget_bytes: int,
    measured: bool,
    random: Any,
) -> None:
    cost = COST if measured else None
    accumulator = Accumulator(storage(rules, needed, cost), budget_bytes, 0.95)
    plain = PlainAccumulator(rules, cost, accumulator.reads_needed, budget_bytes)
    waiting = [({"a": a, "b": b}, n_bytes) for a, b, n_bytes in batches]
    members = [
        GroupMember({name: np.array(sorted(pages), np.int64) for name, pages in each.items()}, n_bytes)
        for each, n_bytes in waiting
    ]
    share = 1.0
    while members:
        for count in range(1, len(members) + 1):
            size = accumulator.extend(members[:count])
            assert (size.n_batches, size.complete) == plain.group(waiting[:count], share)
        planned = plain.planned_reads(waiting[: size.n_batches])
        reads = random.randint(0, planned)
        accumulator.observe(reads)
        share += 0.5 * (reads / planned - share) if planned else 0
        members, waiting = members[size.n_batches :], waiting[size.n_batches :]
    report = accumulator.report()
    assert report.batches == len(batches) == sum(each for each, _ in report.history)


rows = st.integers(0, 500)


@given(st.lists(st.tuples(rows, rows), min_size=1, max_size=6), st.integers(0, 2**32))
def test_what_a_group_cost_is_divided_whole(sizes: list[tuple[int, int]], seed: int) -> None:
    stored, constant = [each for each, _ in sizes], [each for _, each in sizes]
    random = np.random.default_rng(seed)
    hit, joined = sorted(random.integers(0, sum(stored) + 1, 2).tolist())
    pages = random.integers(0, 900, 3).tolist() if sum(stored) else [0, 0, 0]
    whole = FetchCounts(
        rows_requested=sum(stored),
        rows_cache=hit,
        rows_joined=joined - hit,
        rows_storage=sum(stored) - joined,
        pages_requested=sum(pages),
        pages_hit=pages[0],
        pages_joined=pages[1],
        pages_read=pages[2],
        pages_bypassed=pages[2] // 2,
        reads=pages[2] // 3,
        bytes_read=pages[2] * PAGE,
        bytes_useful=sum(stored) * 96,
    )
    parts = divided(whole, stored, constant)
    assert total(parts) == whole + FetchCounts.of(sum(constant))
    for part, own, fixed in zip(parts, stored, constant, strict=True):
        assert part.rows_constant == fixed
        assert part.rows_cache + part.rows_joined + part.rows_storage == own
        assert part.rows_requested == own + fixed
        assert part.pages_hit + part.pages_joined + part.pages_read == part.pages_requested
        assert part.bytes_useful == own * 96
        assert all(value >= 0 for value in vars(part).values())


def deliver(
    store: FeatureStore, batches: Sequence[Nodes], window: int, accumulator: Accumulator | None
) -> list[Any]:
    fetcher = Fetcher(store, OutputPool(), accumulator)
    waiting, results = list(batches), []
    while waiting or len(fetcher):
        while waiting and fetcher.wants_more(window):
            fetcher.announce(waiting.pop(0))
        results.append(fetcher.fetch())
    fetcher.close()
    return results


@pytest.fixture
def files(tmp_path: Path) -> dict[str, np.ndarray]:
    random = np.random.default_rng(3)
    made = {
        "paper": random.standard_normal((700, 96)).astype(np.float32),
        "author": random.standard_normal((350, 1024)).astype(np.float32),
        "fos": random.integers(-99, 99, (50, 7)).astype(np.int8),
    }
    for name, each in made.items():
        np.save(tmp_path / f"{name}.npy", each)
    return made


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("budget_bytes", [0, 2**21, 2**40])
@pytest.mark.parametrize("window", [0, 3])
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_bytes_do_not_depend_on_groups_or_merging(
    files: dict[str, np.ndarray],
    tmp_path: Path,
    rules: ReadRules,
    budget_bytes: int,
    window: int,
    share: float,
) -> None:
    shared = bam.SharedCache("40 lines", policy="look_ahead", page_bytes=PAGE)
    tables = {
        name: StoredTable(
            name,
            bam.open_array(
                tmp_path / f"{name}.npy",
                cache=shared,
                page_bytes=PAGE,
                merge_bytes=rules.merge_bytes,
                bridge_bytes=rules.bridge_bytes,
            ),
        )
        for name in files
    }
    hot = {name: np.arange(0, int(share * len(each)), dtype=np.int64) * 2 for name, each in files.items()}
    buffers = {
        name: ConstantBuffer(tables[name], ids[ids < len(files[name])])
        for name, ids in hot.items()
        if len(ids)
    }
    model = storage(rules, 300.0)
    store = FeatureStore(tables, buffers, model)
    before = total(store.counts().values())
    batches = trace(files)
    accumulator = Accumulator(model, budget_bytes, 0.95)
    results = deliver(store, batches, window, accumulator)
    assert [each for each, _ in results] == batches
    for batch, fetched in results:
        for name, each in files.items():
            np.testing.assert_array_equal(fetched.tensors[name].numpy(), each[batch.nodes[name]])
            assert fetched.counts[name].rows_requested == len(batch.nodes[name])
    counted = total(part for _, fetched in results for part in fetched.counts.values())
    whole = total(store.counts().values())
    assert counted.reads == whole.reads - before.reads
    assert counted.bytes_read == whole.bytes_read - before.bytes_read
    assert (accumulator.report().groups < len(batches)) == (budget_bytes > 0)
    store.close()


@pytest.mark.skipif(not available(), reason="the native library was not built")
@settings(max_examples=60)
@given(
    st.integers(0, 2**32),
    st.sampled_from(RULES),
    st.sampled_from([1, 30, 300]),
    st.sampled_from([0, 4, 40]),
    st.sampled_from([0, 20_000, 10**8]),
    st.sampled_from([0, 1, 5]),
    st.sampled_from(["look_ahead", "look_ahead_global", "clock"]),
)
def test_a_plain_model_predicts_every_count(
    seed: int, rules: ReadRules, lines: int, needed: int, budget_bytes: int, window: int, policy: str
) -> None:
    random = np.random.default_rng(seed)
    data = {
        "a": random.integers(-128, 128, (200, 700), np.int8),
        "b": random.integers(-128, 128, (300, 64), np.int8),
    }
    batches = [
        {name: random.permutation(len(each))[: random.integers(0, 40)] for name, each in data.items()}
        for _ in range(random.integers(1, 9))
    ]
    constant = {"a": set(range(0, 200, 7))} if seed % 2 else {}
    shared = bam.SharedCache(f"{lines} lines", policy=policy, page_bytes=PAGE)
    tables = {
        name: StoredTable(
            name,
            bam.open_array(
                each,
                cache=shared,
                page_bytes=PAGE,
                merge_bytes=rules.merge_bytes,
                bridge_bytes=rules.bridge_bytes,
            ),
        )
        for name, each in data.items()
    }
    cache = ReferenceCache(lines, PAGE, PolicyKind(policy), 0)
    plain = None
    if needed:
        plain = PlainAccumulator(rules, COST, storage(rules, needed).facts.reads_needed(), budget_bytes)
    buffers = {}
    model = FetchModel(
        {name: each.shape[1] for name, each in data.items()},
        {name: len(each) for name, each in data.items()},
        cache,
        rules,
        plain,
        constant,
    )
    if constant:
        held = np.array(sorted(constant["a"]), np.int64)
        buffers["a"] = ConstantBuffer(tables["a"], held)
        model.counts["a"].clear()
        model._gathers["a"].gather(held.tolist())
        model.counts["a"].clear()
    store = FeatureStore(tables, buffers, storage(rules, max(1, needed)))
    accumulator = Accumulator(store.storage, budget_bytes, 0.95) if needed else None
    before = {name: table.counts() for name, table in tables.items()}
    nodes = [Nodes({name: ids.astype(np.int64) for name, ids in batch.items()}) for batch in batches]
    deliver(store, nodes, window, accumulator)
    model.run([{name: ids.tolist() for name, ids in batch.items()} for batch in batches], window)
    for name, table in tables.items():
        counted, expected = table.counts(), model.counts[name]
        for mine, theirs in (
            ("rows_cache", "rows_hit"),
            ("rows_joined", "rows_joined"),
            ("rows_storage", "rows_storage"),
            ("pages_requested", "pages"),
            ("pages_hit", "hits"),
            ("pages_joined", "joins"),
            ("pages_read", "misses"),
            ("pages_bypassed", "bypasses"),
            ("reads", "reads"),
            ("bytes_read", "bytes_read"),
        ):
            assert getattr(counted, mine) - getattr(before[name], mine) == expected[theirs], (name, mine)
    if accumulator is not None:
        assert list(accumulator.report().history) == model.groups
    store.close()


def test_a_group_that_needs_no_reads_is_not_waited_for() -> None:
    accumulator = Accumulator(storage(RULES[0], 1000.0), 2**40, 0.95)
    empty = GroupMember({}, 10)
    assert accumulator.extend([empty, empty, empty]).n_batches == 1
    assert accumulator.extend([empty]).complete


def test_hits_make_groups_longer() -> None:
    accumulator = Accumulator(storage(RULES[0], 1000.0), 2**40, 0.95)
    members = [GroupMember({"a": np.arange(100 * i, 100 * i + 100)}, 1) for i in range(40)]
    first = accumulator.extend(members).n_batches
    accumulator.observe(first * 20)  # four of five pages were in memory
    assert first == 11
    assert accumulator.extend(members[first:]).n_batches > 14


def test_the_budget_as_a_setting() -> None:
    assert accumulate_bytes("1MiB") == 2**20
    assert accumulate_bytes(0) == 0
    assert 0 < accumulate_bytes("auto") <= 256 * 2**20
    with pytest.raises(ConfigError, match="accumulate"):
        accumulate_bytes("much")


def test_an_error_reaches_the_mini_batch_that_needs_the_bytes(tmp_path: Path) -> None:
    rows = np.arange(100 * 128, dtype=np.float32).reshape(100, 128)
    np.save(tmp_path / "a.npy", rows)
    array = bam.open_array(tmp_path / "a.npy", cache="1 lines", page_bytes=PAGE)
    with open(tmp_path / "a.npy", "r+b") as file:
        file.truncate(128 + 50 * 512)
    store = FeatureStore({"a": StoredTable("a", array)})
    accumulator = Accumulator(storage(RULES[0], 1000.0), 2**40, 0.95)
    fetcher = Fetcher(store, OutputPool(), accumulator)
    asked = [np.arange(begin, begin + 10) for begin in (0, 20, 60, 30)]
    for ids in asked:
        fetcher.announce(Nodes({"a": ids}))
    for ids in asked[:2]:
        np.testing.assert_array_equal(fetcher.fetch()[1].tensors["a"].numpy(), rows[ids])
    with pytest.raises(bam.StorageError):
        fetcher.fetch()
    # Read one by one, it was one group all the same.
    assert (accumulator.report().groups, accumulator.report().batches) == (1, 4)
    assert accumulator.report().history == ((4, accumulator.report().reads),)
    store.close()
