"""The sampler comparison: what it counts, what it refuses; not how fast anything is."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from documented_fields import documented

from bam.errors import ConfigError
from gids.bench import sample
from gids.bench.sample import BatchesDiffer, CountsDiffer, SampleBench, SamplerDied, run_sample
from gids.bench.samplers import Work
from gids.errors import DatasetError, PackageMissing
from gids.graph.graph import Graph
from gids.graph.synth import synthesize
from gids.sampling.dgl_import import import_dgl

SMALL = SampleBench(((3, 2),), batch_sizes=(16,), steps=2, rounds=3, threads=1, times_compilation=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "little"
    synthesize(path, "0.005", dim=4)
    return path


def test_both_samplers_do_the_same_work(folder: Path) -> None:
    try:
        import_dgl()
    except PackageMissing as missing:
        pytest.skip(str(missing))
    result = json.loads(json.dumps(run_sample(folder, SMALL)))
    assert (result["schema"], result["name"]) == (1, "sample")
    assert set(result) == documented("`sample`")
    assert result["data"]["nodes"]["paper"] == 500
    [measured] = result["fanouts"]
    assert measured["fanouts"] == [3, 2]
    assert list(measured["samplers"]) == list(sample.CPU_SAMPLERS)
    ours = measured["samplers"]["gids"]
    assert ours["edges"] == measured["samplers"]["gids-concurrent"]["edges"] > 3 * 2 * 16
    assert ours["edges"] == measured["samplers"]["gids-to-dgl"]["edges"]
    assert sorted(ours["rounds_edges_per_s"])[1] == ours["edges_per_s"]
    theirs = measured["samplers"]["dgl"]
    assert measured["ratios"]["gids"] == ours["edges_per_s"] / theirs["edges_per_s"]
    assert abs(theirs["edges"] / ours["edges"] - 1) < 0.2


def test_a_process_that_dies_is_reported(tmp_path: Path) -> None:
    (tmp_path / "processed" / "paper__cites__paper").mkdir(parents=True)  # looks like IGBH, and is none
    with pytest.raises(SamplerDied, match="'gids' ended with status 1"):
        run_sample(tmp_path, SMALL)


def test_settings_that_measure_nothing() -> None:
    for settings in (
        {"rounds": 0},
        {"batch_sizes": ()},
        {"samplers": ("gids",)},
        {"samplers": ("gids", "dgl", "x")},
    ):
        with pytest.raises(ConfigError):
            replace(SMALL, **settings)
    with pytest.raises(DatasetError, match="neither"):
        run_sample("nowhere", SMALL)


class Counter:
    """Answers like a sampler's process."""

    def __init__(self, counts: dict[str, int]) -> None:
        self._counts = counts

    def counts(self, work: Work) -> dict[str, int]:
        return self._counts


def test_samplers_that_count_differently_are_not_compared() -> None:
    work = Work([3, 2], "paper", 16, 0, 2)
    one = Counter({"a__r__b 0": 7, "a__r__b 1": 4, "a": 9})
    sample._require_equal_counts(one, one, work)
    with pytest.raises(CountsDiffer, match=r"a__r__b 1.*\(4, 5\)"):
        sample._require_equal_counts(one, Counter({**one.counts(work), "a__r__b 1": 5}), work)


def test_figure_is_the_speed_and_how_many_times_dgl_it_is() -> None:
    def measured(fanouts: list[int], batch_size: int, *names: str) -> dict[str, object]:
        samplers = {name: {"edges_per_s": 100.0 * (1 + number)} for number, name in enumerate(names)}
        return {"fanouts": fanouts, "batch_size": batch_size, "samplers": samplers}

    others = [measured([10, 5], 512, "dgl", "gids-cuda"), measured([15, 10, 5], 4096, "dgl", "gids-cuda")]
    assert sample._figures([*others, measured([15, 10, 5], 512, "dgl", "gids")]) == {}
    [figure] = sample._figures([*others, measured([15, 10, 5], 512, "dgl", "gids-cuda")]).values()
    assert (figure["value"], figure["ceiling"], figure["ratio"]) == (200.0, 100.0, 2.0)


class Digester(Counter):
    """One that also has a digest."""

    def __init__(self, name: str, digest: str) -> None:
        super().__init__({"a": 1})
        self.name, self._digest = name, digest

    def digest(self, work: Work) -> str:
        return self._digest


def test_batches_that_differ_are_not_timed() -> None:
    samplers = [Digester("gids", "x"), Digester("dgl", ""), Digester("gids-cuda", "y")]
    with pytest.raises(BatchesDiffer, match="512 seeds"):
        sample._measure(samplers, SMALL, (3, 2), 512)


def test_mini_batches_go_round_the_nodes() -> None:
    graph = Graph.from_coo(([0], [1]), 10)
    seeds = Work([1], "_N", 4, 1, 3).seeds(graph)
    assert [len(ids) for ids in seeds] == [4, 4, 4]
    assert seeds[0].tolist() == seeds[2].tolist() != seeds[1].tolist()
    assert len(set(seeds[0]) | set(seeds[1])) == 8
