"""The Debian package graph: counts of the real one, and the rules on a list made by hand."""

from __future__ import annotations

import lzma
from pathlib import Path

import numpy as np
import pytest

from gids.errors import DatasetError
from gids.graph.dataset import Dataset
from gids.graph.real import load_debian
from gids.graph.real.debian_facts import PACKAGES_FILE

# Source of the numbers: SOURCES.md of the shared data folder.
NODES = {"package": 63681, "virtual": 43857, "source": 34172, "host": 6839, "maintainer": 2116, "tag": 597}
TO_PACKAGE_AND_VIRTUAL = {
    "depends": (247393, 34809),
    "pre-depends": (1001, 30),
    "recommends": (28941, 1502),
    "suggests": (23283, 5273),
    "enhances": (1737, 328),
    "breaks": (6004, 5616),
    "conflicts": (1614, 5283),
    "replaces": (3721, 7317),
    "provides": (495, 37087),
}
TO_OTHERS = {
    ("built-from", "source"): 63681,
    ("maintained-by", "maintainer"): 63681,
    ("tagged", "tag"): 109697,
    ("hosted-at", "host"): 59219,
    ("built-using", "source"): 9859,
}

STANZAS = """Package: one
Source: alpha (1.2-3)
Maintainer: m1
Depends: two (>= 1), three | four:any, two, self-made
Provides: four
Built-Using: alpha (= 1), gone (= 2)
Homepage: HTTPS://x
Tag: role::program,
 use::editing
Description: The first package
Section: contrib/games

Package: two
Maintainer: m1
Homepage: https://Example.org:8080/two
Depends: two
Description: Second
 with a longer text
Section: games

Package: three
Source: alpha
Maintainer: m2
Homepage: http://example.org/
Description: Third
Section: libs
"""


def write(folder: Path, text: str) -> Path:
    (folder / PACKAGES_FILE).write_bytes(lzma.compress(text.encode()))
    return folder


def pairs(dataset: Dataset, relation: tuple[str, str, str]) -> set[tuple[int, int]]:
    csc = dataset.graph[relation]
    return {(int(src), dst) for dst in range(csc.num_dst) for src in csc.in_edges(dst)}


@pytest.fixture(scope="module")
def debian(shared_data: Path) -> Dataset:
    return load_debian(shared_data / "debian-bookworm", tags=True, reverse=False, text_dim=64)


def test_real_counts(debian: Dataset) -> None:
    assert dict(debian.graph.schema.num_nodes) == NODES
    assert sum(NODES.values()) == 151_262
    expected = {("package", rel, dst): n for (rel, dst), n in TO_OTHERS.items()}
    for rel, (to_package, to_virtual) in TO_PACKAGE_AND_VIRTUAL.items():
        expected |= {("package", rel, "package"): to_package, ("package", rel, "virtual"): to_virtual}
    found = {tuple(edge_type): csc.num_edges for edge_type, csc in debian.graph.relations.items()}
    assert found == expected
    assert len(found) == 23
    assert debian.graph.num_edges == 717_571


def test_real_shape(debian: Dataset) -> None:
    degrees = debian.graph["package", "depends", "package"].degrees()
    assert degrees.max() == 21_815
    ordered = np.sort(degrees).astype(np.float64)
    ranks = np.arange(1, len(ordered) + 1)
    gini = 2 * (ranks * ordered).sum() / (len(ordered) * ordered.sum()) - (len(ordered) + 1) / len(ordered)
    assert round(gini, 2) == 0.90
    task = debian.tasks["section"]
    assert task.n_classes == 58
    counts = np.bincount(task.labels, minlength=58)
    assert (counts.max(), counts.min()) == (6711, 15)


def test_real_split_is_60_percent(debian: Dataset) -> None:
    split = debian.tasks["section"].split("files")
    n = [len(part) for part in (split.train, split.validation, split.test)]
    assert sum(n) == 63_681
    assert abs(n[0] / 63_681 - 0.6) < 0.001
    assert len(np.unique(np.concatenate([split.train, split.validation, split.test]))) == 63_681
    for part in (split.train, split.test):
        assert len(np.unique(debian.tasks["section"].labels[part])) == 58


def test_rules_by_hand(tmp_path: Path) -> None:
    dataset = load_debian(write(tmp_path, STANZAS), tags=True, reverse=False, text_dim=32)
    counts = dataset.graph.schema.num_nodes
    assert counts == {"host": 1, "maintainer": 2, "package": 3, "source": 2, "tag": 2, "virtual": 2}
    # One edge for a name that is repeated, one for each alternative, a self loop stays.
    assert pairs(dataset, ("package", "depends", "package")) == {(0, 1), (0, 2), (1, 1)}
    assert pairs(dataset, ("package", "depends", "virtual")) == {(0, 0), (0, 1)}
    assert pairs(dataset, ("package", "provides", "virtual")) == {(0, 0)}
    # `one` and `three` share a source, `two` is its own; `gone` is no source of the list.
    assert pairs(dataset, ("package", "built-from", "source")) == {(0, 0), (1, 1), (2, 0)}
    assert pairs(dataset, ("package", "built-using", "source")) == {(0, 0)}
    # The host ignores case and port; a scheme in capitals is none that counts.
    assert pairs(dataset, ("package", "hosted-at", "host")) == {(1, 0), (2, 0)}
    task = dataset.tasks["section"]
    assert task.labels.tolist() == [0, 0, 1]


def test_tags_and_reverses_are_a_choice(tmp_path: Path) -> None:
    dataset = load_debian(write(tmp_path, STANZAS))
    assert "tag" not in dataset.graph.schema.num_nodes
    forward = pairs(dataset, ("package", "depends", "package"))
    assert pairs(dataset, ("package", "rev_depends", "package")) == {(dst, src) for src, dst in forward}


def test_only_the_first_line_of_a_description_counts(tmp_path: Path) -> None:
    longer = load_debian(write(tmp_path, STANZAS)).features["package"].take([1])
    shorter = load_debian(write(tmp_path, STANZAS.replace(" with a longer text\n", ""))).features["package"]
    assert np.array_equal(longer, shorter.take([1]))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (STANZAS.replace("Section: libs\n", ""), "Section"),
        (STANZAS.replace("Package: two", "Package: one"), "one stanza"),
        (STANZAS.replace("Maintainer: m2", "Maintainer"), "Field: value"),
    ],
)
def test_damaged_stanzas(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(DatasetError, match=expected):
        load_debian(write(tmp_path, text))


def test_missing_and_truncated_file(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="xz file"):
        load_debian(tmp_path)
    path = write(tmp_path, STANZAS) / PACKAGES_FILE
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DatasetError, match="xz file"):
        load_debian(tmp_path)
