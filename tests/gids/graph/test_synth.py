"""Synthetic folders: published layout and counts, same bytes for a seed, a signal that is in the graph."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from igbh_folders import REPOSITORY, check_kills, folder_bytes, run_with_small_files

from bam.errors import ConfigError
from gids.errors import DatasetError, DiskFullError, UnfinishedWorkError
from gids.graph import chunked, synth
from gids.graph.igbh import open_igbh, read_labels
from gids.graph.igbh_facts import PUBLISHED, IgbhSize
from gids.graph.schema import EdgeType
from gids.graph.synth import plan_synthesis, synthesize, total_bytes


def _load(folder: Path, name: str) -> npt.NDArray[np.generic]:
    return np.load(folder / "processed" / name)


def test_layout_is_the_published_one(synthetic: Path) -> None:
    files = sorted(str(path.relative_to(synthetic)) for path in synthetic.rglob("*") if path.is_file())
    assert files == [
        "processed/author/node_feat.npy",
        "processed/author__affiliated_to__institute/edge_index.npy",
        "processed/fos/node_feat.npy",
        "processed/institute/node_feat.npy",
        "processed/paper/node_feat.npy",
        "processed/paper/node_label_19.npy",
        "processed/paper/node_label_2K.npy",
        "processed/paper__cites__paper/edge_index.npy",
        "processed/paper__topic__fos/edge_index.npy",
        "processed/paper__written_by__author/edge_index.npy",
        "synthetic.toml",
    ]
    assert _load(synthetic, "author/node_feat.npy").dtype == np.float32
    assert _load(synthetic, "author/node_feat.npy").shape == (7141, 16)
    assert _load(synthetic, "paper__cites__paper/edge_index.npy").dtype == np.int64
    assert _load(synthetic, "paper__cites__paper/edge_index.npy").shape == (8949, 2)
    assert open_igbh(synthetic).num_nodes == {"paper": 2000, "author": 7141, "fos": 1685, "institute": 175}
    assert os.path.getsize(synthetic / "processed/paper/node_feat.npy") == 128 + 2000 * 64


def test_scales_have_the_published_counts() -> None:
    tiny = plan_synthesis("tiny", 0)
    assert tiny.nodes == {
        name: count
        for name, count in PUBLISHED[IgbhSize.TINY].nodes.items()
        if name in ("paper", "author", "institute", "fos")
    }
    assert tiny.edges == PUBLISHED[IgbhSize.TINY].edges
    assert total_bytes(tiny) == pytest.approx(2.285e9, rel=0.01)
    full = plan_synthesis("full", 0)
    assert full.nodes == PUBLISHED[IgbhSize.FULL].nodes
    assert full.headerless_types == {"paper", "author"}
    assert [str(relation) for relation in full.relations][-1] == "paper__venue__conference"
    assert plan_synthesis(0.1, 0).nodes["paper"] == plan_synthesis("0.1", 0).nodes["paper"] == 10_000


@pytest.mark.parametrize("scale", ["huge", 0, -1, 1.5, "nan"])
def test_scales_there_are_not(scale: str | float) -> None:
    with pytest.raises(ConfigError, match="scale"):
        plan_synthesis(scale, 0)


def test_same_seed_same_bytes_in_chunks_of_any_size(
    tmp_path: Path, synthetic: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(synth, "CHUNK_BYTES", 10_000)
    monkeypatch.setattr(chunked, "FLUSH_BYTES", 30_000)
    again = synthesize(tmp_path / "again", 0.02, seed=3, dim=16, workers=3)
    assert folder_bytes(again) == folder_bytes(synthetic)
    other = synthesize(tmp_path / "other", 0.02, seed=4, dim=16)
    different = [name for name, data in folder_bytes(other).items() if data != folder_bytes(synthetic)[name]]
    assert sorted(different) == sorted(folder_bytes(other))


def test_without_headers(tmp_path: Path, synthetic: Path) -> None:
    raw = open_igbh(synthesize(tmp_path / "raw", 0.02, seed=3, dim=16, headerless=True))
    path = tmp_path / "raw/processed/paper/node_feat.npy"
    assert np.array_equal(
        np.fromfile(path, np.float32).reshape(-1, 16), _load(synthetic, "paper/node_feat.npy")
    )
    assert np.array_equal(read_labels(raw, 19), read_labels(open_igbh(synthetic), 19))


def test_killed_at_any_moment_it_goes_on(
    tmp_path: Path, synthetic: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(synth, "CHUNK_BYTES", 40_000)
    monkeypatch.setattr(chunked, "FLUSH_BYTES", 80_000)

    def run(folder: Path) -> Path:
        return synthesize(folder / "out", 0.02, seed=3, dim=16, workers=2)

    check_kills(run, tmp_path, folder_bytes(synthetic), 10)


def test_a_finished_folder_is_left_alone(tmp_path: Path) -> None:
    out = synthesize(tmp_path / "out", 0.001, seed=3, dim=4)
    times = [path.stat().st_mtime_ns for path in sorted(out.rglob("*"))]
    assert synthesize(tmp_path / "out", 0.001, seed=3, dim=4) == out
    assert [path.stat().st_mtime_ns for path in sorted(out.rglob("*"))] == times
    with pytest.raises(DatasetError, match="a folder of other settings"):
        synthesize(tmp_path / "out", 0.001, seed=4, dim=4)
    (tmp_path / "mine").mkdir()
    with pytest.raises(DatasetError, match="something else"):
        synthesize(tmp_path / "mine", 0.001)


def test_unfinished_work_of_other_settings_is_not_continued(tmp_path: Path) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(synth.kernels, "fill_labels", interrupted)
        with pytest.raises(KeyboardInterrupt):
            synthesize(tmp_path / "out", 0.001, seed=3, dim=4)
    assert not (tmp_path / "out").exists()
    with pytest.raises(UnfinishedWorkError, match="whose record is"):
        synthesize(tmp_path / "out", 0.001, seed=4, dim=4)
    synthesize(tmp_path / "out", 0.001, seed=3, dim=4)


def test_too_little_room_is_found_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunked, "free_bytes", lambda folder: 1000)
    with pytest.raises(DiskFullError, match="1,000 are free") as caught:
        synthesize(tmp_path / "out", 0.001, dim=4)
    assert caught.value.needed_bytes == total_bytes(plan_synthesis(0.001, 0, dim=4))
    assert os.listdir(tmp_path) == []


def test_a_disk_that_fills_up_ends_in_a_clear_error_and_work_goes_on(tmp_path: Path, synthetic: Path) -> None:
    def run() -> Path:
        return synthesize(tmp_path / "out", 0.02, seed=3, dim=16)

    run_with_small_files(run, 120_000)
    assert not (tmp_path / "out").exists()
    assert folder_bytes(run()) == folder_bytes(synthetic)


def _peak_bytes(out: Path, scale: str) -> int:
    code = f"""
from gids.graph.synth import synthesize
synthesize({str(out)!r}, {scale!r}, dim=1024)
print(*(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, check=True)
    return int(done.stdout) * 1024


def test_memory_does_not_grow_with_the_scale(tmp_path: Path) -> None:
    """docs/store.md says how much it is."""
    synthesize(tmp_path / "compiled", 0.001, dim=1024)
    small, large = (_peak_bytes(tmp_path / scale, scale) for scale in ("0.02", "0.1"))
    assert (tmp_path / "0.1/processed/author/node_feat.npy").stat().st_size > 100 * 2**20
    assert large - small < 24 * 2**20
    assert large < 300 * 2**20


@pytest.fixture(scope="module")
def larger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """8,000 papers with features of dim 64."""
    return synthesize(tmp_path_factory.mktemp("data") / "larger", 0.08, seed=1, dim=64)


def test_classes_and_subclasses_agree(larger: Path) -> None:
    folder = open_igbh(larger)
    classes, subclasses = read_labels(folder, 19), read_labels(folder, 2983)
    assert np.array_equal(subclasses // 157, classes)
    counts = np.bincount(classes, minlength=19)
    assert counts.min() > 0.95 * 8000 / 19
    assert len(np.unique(subclasses)) == 2983


def test_degrees_follow_a_power_law_and_edges_stay_in_their_class(larger: Path) -> None:
    edges = _load(larger, "paper__cites__paper/edge_index.npy")
    classes = read_labels(open_igbh(larger), 19)
    assert (classes[edges[:, 0]] == classes[edges[:, 1]]).mean() > 0.6
    assert (edges[:, 0] == edges[:, 1]).mean() < 0.03
    in_degree = np.sort(np.bincount(edges[:, 1], minlength=8000))[::-1]
    out_degree = np.bincount(edges[:, 0], minlength=8000)
    assert out_degree.min() >= 1
    # The hottest tenth gets a good part of all edges, as in the citation graph.
    assert in_degree[:800].sum() > 0.35 * len(edges)
    assert in_degree[0] > 20 * len(edges) / 8000


def test_arithmetic_holds_at_the_size_of_the_full_set() -> None:
    plan = plan_synthesis("full", 5)
    n_papers, n_authors = plan.nodes["paper"], plan.nodes["author"]
    papers, authors = (
        synth.node_space(n, 5, name) for n, name in ((n_papers, "paper"), (n_authors, "author"))
    )
    for first in (0, n_papers - 500, plan.edges["written_by"] - 1000):
        edges = np.empty((1000, 2), np.int64)
        always = np.uint64(65536)
        synth.kernels.fill_edges(edges, first, np.uint64(1), papers, authors, always, np.uint64(0))
        assert edges.min() >= 0
        assert (edges.max(axis=0) < [n_papers, n_authors]).all()
        assert len(np.unique(edges[:, 0])) > 900
        for paper, author in edges[:50].tolist():
            # In Python's own integers: both are in the same slice of their type's permutation.
            slices = [
                (int(space[1]) * node + int(space[2])) % int(space[0]) * 2983 // int(space[0])
                for space, node in ((papers, paper), (authors, author))
            ]
            assert slices[0] == slices[1]
            assert slices[0] == synth.kernels.subclass_of(paper, *papers[:3].tolist())


def _ridge_accuracy(features: npt.NDArray[np.float32], classes: npt.NDArray[np.int16]) -> float:
    """Validation accuracy of a linear classifier on the 60 / 20 split, in closed form."""
    train, end = int(len(classes) * 0.6), int(len(classes) * 0.8)
    inputs = np.concatenate([features, np.ones((len(features), 1), np.float32)], axis=1)
    gram = inputs[:train].T @ inputs[:train] + np.eye(inputs.shape[1])
    weights = np.linalg.solve(gram, inputs[:train].T @ np.eye(19)[classes[:train]])
    return float(((inputs[train:end] @ weights).argmax(axis=1) == classes[train:end]).mean())


def _mean_of_neighbours(larger: Path, relation: EdgeType) -> npt.NDArray[np.float32]:
    edges = _load(larger, f"{relation}/edge_index.npy")
    rows = _load(larger, f"{relation.dst}/node_feat.npy")
    total = np.zeros((8000, 64), np.float32)
    np.add.at(total, edges[:, 0], rows[edges[:, 1]])
    return total / np.maximum(np.bincount(edges[:, 0], minlength=8000), 1)[:, None]


def test_the_graph_tells_what_features_alone_do_not(larger: Path) -> None:
    classes = read_labels(open_igbh(larger), 19)
    own = _load(larger, "paper/node_feat.npy")
    relations = [EdgeType("paper", "cites", "paper"), EdgeType("paper", "written_by", "author")]
    relations.append(EdgeType("paper", "topic", "fos"))
    around = [_mean_of_neighbours(larger, relation) for relation in relations]
    features_only = _ridge_accuracy(own, classes)
    with_graph = _ridge_accuracy(np.concatenate([own, *around], axis=1), classes)
    assert 1.5 / 19 < features_only < 0.45
    assert with_graph > 0.7
