"""A store that is damaged does not open, or is found by verifying; what opens is what was written."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from igbh_folders import NODES

from bam.errors import SourceError
from gids.errors import ChecksumError, DatasetError, GraphError, NodeOutOfRange
from gids.graph.convert import convert_igbh
from gids.graph.convert_options import ConvertOptions, Reorder
from gids.graph.feature_types import FeatureDtype
from gids.graph.manifest import read_manifest
from gids.graph.open_dataset import open_dataset
from gids.graph.store import is_store, open_store, store_bytes, verify_store


@pytest.fixture
def store(igbh: Path, tmp_path: Path) -> Path:
    return convert_igbh(igbh, tmp_path / "store", ConvertOptions(dtype=FeatureDtype.INT8))


def _files(store: Path) -> list[str]:
    return [record.path for record in read_manifest(store).files]


def test_the_manifest_names_every_file(store: Path) -> None:
    on_disk = sorted(str(path.relative_to(store)) for path in store.rglob("*") if path.is_file())
    assert sorted([*_files(store), "dataset.toml"]) == on_disk
    assert store_bytes(read_manifest(store)) == sum((store / name).stat().st_size for name in _files(store))
    assert read_manifest(store).text() == (store / "dataset.toml").read_text()


def test_a_store_that_was_moved_opens(store: Path, tmp_path: Path) -> None:
    moved = shutil.move(store, tmp_path / "moved")
    assert open_dataset(moved).graph.num_edges > 0
    assert verify_store(moved) == []


def test_missing_truncated_and_longer_files(store: Path) -> None:
    for name in _files(store):
        path = store / name
        whole = path.read_bytes()
        for damaged, message in (
            (whole[:-1], "bytes, found"),
            (whole + b"x", "bytes, found"),
            (None, "No such file"),
        ):
            path.unlink()
            if damaged is not None:
                path.write_bytes(damaged)
            else:
                path.unlink(missing_ok=True)
            with pytest.raises(DatasetError, match=message) as caught:
                open_store(store)
            assert caught.value.file == str(path)
            path.write_bytes(whole)
    open_store(store)


def test_swapped_files_of_different_size(store: Path) -> None:
    one, other = store / "features/paper.bin", store / "features/author.bin"
    one.rename(store / "x")
    other.rename(one)
    (store / "x").rename(other)
    with pytest.raises(DatasetError, match=r"expected \d+ bytes"):
        open_store(store)


def test_every_changed_byte_is_found_where_it_is(store: Path) -> None:
    for name in _files(store):
        path = store / name
        whole = bytearray(path.read_bytes())
        at = len(whole) // 2
        whole[at] ^= 0x10
        path.write_bytes(whole)
        (damage,) = verify_store(store, workers=1)
        assert isinstance(damage, ChecksumError)
        assert damage.file == str(path)
        assert damage.offset <= at < damage.offset + damage.length
        whole[at] ^= 0x10
        path.write_bytes(whole)
    assert verify_store(store) == []


def test_a_torn_manifest_does_not_open(store: Path) -> None:
    manifest = store / "dataset.toml"
    text = manifest.read_text()
    lines = text.splitlines(keepends=True)
    for n_lines in range(0, len(lines), 7):
        manifest.write_text("".join(lines[:n_lines]))
        with pytest.raises((DatasetError, GraphError)):
            open_store(store)
    manifest.write_text(text[: len(text) // 2])
    with pytest.raises((DatasetError, GraphError)):
        open_store(store)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("version = 1", "version = 2", "version 2"),
        ('"gids-store"', '"x"', "format 'x'"),
        ('dtype = "int8"\ndim', 'dtype = "int4"\ndim', "int4"),
        ("dim = 12", "dim = 11", "11"),
        ("author = 70", "author = 71", "71"),
        ('crc32 = "', 'crc32 = "00000000', "checksums"),
        ("[settings]", "[settings", "TOML"),
    ],
)
def test_manifests_that_are_wrong(store: Path, old: str, new: str, message: str) -> None:
    text = (store / "dataset.toml").read_text()
    assert old in text
    (store / "dataset.toml").write_text(text.replace(old, new, 1))
    with pytest.raises((DatasetError, SourceError), match=message):
        open_store(store)


def test_ids_out_of_range_are_found_by_verifying(store: Path) -> None:
    path = store / "graph/paper__topic__fos/indices.npy"
    indices = np.load(path)
    indices[5] = 120
    np.save(path, indices)
    assert isinstance(verify_store(store)[0], ChecksumError)
    with pytest.raises(GraphError, match="120 at position 5"):
        open_store(store).graph.verify()


def test_features_of_a_hot_store(store: Path) -> None:
    features = open_store(store).features["author"]
    assert features.rank is not None
    assert np.array_equal(np.sort(features.rank), np.arange(70))
    assert features.levels is not None
    assert features.levels[:, 1].sum() == 70
    assert np.array_equal(features.rows_of(np.array([3, 3, 0])), features.rank[[3, 3, 0]])
    assert features.take([]).shape == (0, 12)
    for bad in (-1, 70):
        with pytest.raises(NodeOutOfRange):
            features.take([0, bad])


def test_bam_opens_the_source(store: Path) -> None:
    description = open_store(store).features["paper"].source.describe()
    assert description.shape == (NODES["paper"], 12)
    assert description.dtype == np.int8
    assert description.layout.extents[0].file_offset == 0


def test_features_in_place_that_changed_are_refused(igbh: Path, tmp_path: Path) -> None:
    open_dataset(igbh, graph_cache=tmp_path / "cache")
    assert is_store(tmp_path / "cache")
    path = igbh / "processed/fos/node_feat.npy"
    np.save(path, np.load(path))
    with pytest.raises(DatasetError, match="a file changed since"):
        open_store(tmp_path / "cache")
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(DatasetError, match="bytes, found"):
        open_store(tmp_path / "cache")


def test_a_store_in_original_order_has_no_rank(igbh: Path, tmp_path: Path) -> None:
    store = open_store(convert_igbh(igbh, tmp_path / "store", ConvertOptions(reorder=Reorder.NONE)))
    nodes = np.array([5, 2])
    assert store.features["fos"].rows_of(nodes) is nodes
