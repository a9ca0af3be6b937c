"""Tables of nodes and edges with ids of any kind: numbered as their order says, and kept beside the store."""

from __future__ import annotations

import csv
import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from stores import assert_edges, assert_features, assert_split, converted, random_edges

from gids.cli.main import main
from gids.errors import DatasetError, UnknownColumn
from gids.formats.convert import convert_dataset
from gids.graph.open_dataset import open_dataset

pytest.importorskip("duckdb", reason="duckdb is not installed: pip install 'gids-bam[databases]'")

DESCRIPTION = """
[nodes.paper]
file = ["papers-0.parquet", "papers-1.parquet"]
id = "doi"
features = ["embedding", "pages"]
label = "topic"
split = "part"

[nodes.author]

[nodes.year]
count = 9

[[edges]]
type = ["author", "writes", "paper"]
file = "writes.csv"
src = "author"
dst = "doi"

[[edges]]
type = ["paper", "of", "year"]
file = "years.arrow"
src = "doi"
dst = "year"

[[edges]]
type = ["year", "after", "year"]
file = "after.csv"
"""


@pytest.fixture
def tables(tmp_path: Path) -> dict[str, Any]:
    random = np.random.default_rng(3)
    dois = [f"10.1/{random.integers(0, 10**9):09d}" for _ in range(40)]
    authors = np.array([f"{k:03d} ü" for k in random.permutation(15)])
    writes, of_year, after = (random_edges(random, *ends) for ends in ((15, 40, 90), (40, 9, 40), (9, 9, 12)))
    rows = random.standard_normal((40, 4)).astype(np.float32)
    pages = random.integers(1, 90, 40)
    topics = random.choice(["graphs", "vision", "audio"], 40).tolist()
    topics[5] = None
    parts = np.array(["train"] * 20 + ["val"] * 8 + ["test"] * 6 + ["none"] * 6)
    folder = tmp_path / "made"
    folder.mkdir()
    table = pa.table(
        {
            "doi": dois,
            "embedding": pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), 4),
            "pages": pages,
            "topic": topics,
            "part": parts,
        }
    )
    for number, part in enumerate((table.slice(0, 25), table.slice(25))):
        pyarrow.parquet.write_table(part, folder / f"papers-{number}.parquet", row_group_size=10)
    with open(folder / "writes.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["doi", "author"])
        writer.writerows([dois[dst], authors[src]] for src, dst in writes.T)
    years = pa.table({"doi": [dois[each] for each in of_year[0]], "year": of_year[1]})
    with pa.OSFile(str(folder / "years.arrow"), "wb") as file, pa.ipc.new_file(file, years.schema) as out:
        out.write_table(years, 7)
    np.savetxt(folder / "after.csv", after.T, "%d", ",", header="src,dst", comments="")
    (folder / "graph.toml").write_text(DESCRIPTION)
    seen = sorted({authors[each] for each in writes[0]})
    numbered = np.array([seen.index(authors[each]) for each in writes[0]])
    return {
        "folder": folder,
        "dois": dois,
        "authors": seen,
        "rows": np.concatenate([rows, pages[:, None]], axis=1).astype(np.float32),
        "topics": topics,
        "edges": {
            ("author", "writes", "paper"): np.stack([numbered, writes[1]]),
            ("paper", "of", "year"): of_year,
            ("year", "after", "year"): after,
        },
    }


def ids_of(store: Path, name: str) -> list[str]:
    with pa.OSFile(str(store / "ids" / f"{name}.arrow")) as file:
        found: list[str] = pa.ipc.open_file(file).read_all().column("id").to_pylist()
    return found


def test_described_tables(tables: dict[str, Any], tmp_path: Path) -> None:
    found = converted(tables["folder"], tmp_path / "store")
    assert_edges(found, tables["edges"])
    assert_features(found, {"paper": tables["rows"]})
    assert ids_of(tmp_path / "store", "paper") == tables["dois"]
    assert ids_of(tmp_path / "store", "author") == tables["authors"]
    assert not (tmp_path / "store/ids/year.arrow").exists()
    classes = ["audio", "graphs", "vision"]
    assert (tmp_path / "store/labels/paper.classes.txt").read_text().split() == classes
    expected = [classes.index(each) if each else -1 for each in tables["topics"]]
    np.testing.assert_array_equal(found.tasks["topic"].labels, expected)
    train = np.array([each for each in range(20) if each != 5])
    assert_split(found, "topic", train, np.arange(20, 28), np.arange(28, 34))


def test_a_single_file_and_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "e.csv").write_text("from,to,weight\n007,b,1\nb,7,2\n007,007,3\n")
    arguments = ["--src-column", "from", "--dst-column", "to", "--memory", "16MiB"]
    assert main(["convert", "auto", str(tmp_path / "e.csv"), str(tmp_path / "store"), *arguments]) == 0
    found = open_dataset(tmp_path / "store")
    assert ids_of(tmp_path / "store", "_N") == ["007", "7", "b"]
    assert_edges(found, {("_N", "_E", "_N"): np.array([[0, 2, 0], [2, 1, 0]])})
    status = main(["convert", "edges", str(tmp_path / "e.csv"), str(tmp_path / "other")])
    assert status == 1
    assert "no column 'src'" in capsys.readouterr().err
    status = main(
        ["convert", "edges", str(tmp_path / "e.csv"), str(tmp_path / "3"), *arguments[:4], "--symmetric", "F"]
    )
    assert status == 1
    assert "a relation within one node type: _E" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "error", "message"),
    [
        ('id = "doi"', 'id = "isbn"', UnknownColumn, "isbn"),
        (
            'id = "doi"',
            'idd = "doi"',
            DatasetError,
            r"nodes\.paper\.idd: expected a known key, found 'idd'; did you",
        ),
        (
            'id = "doi"',
            'id = "topic"',
            DatasetError,
            "column 'topic': expected an id in every row, found none in row 5",
        ),
        ('id = "doi"', 'id = "part"', DatasetError, "each id once, found 'train' in rows 0 and 19"),
        ('"embedding", "pages"', '"topic"', DatasetError, "column 'topic': expected numbers"),
        ('src = "author"', 'src = "doi"\nextra = 1', DatasetError, r"edges\[0\]\.extra"),
        ('"author", "writes"', '"writer", "writes"', DatasetError, r"a table \[nodes\.writer\]"),
        ('file = "writes.csv"', 'file = "wrote.csv"', DatasetError, r"wrote\.csv"),
        ('dst = "doi"', 'dst = "author"', DatasetError, r"writes\.csv: expected ids of paper nodes, found"),
        ("count = 9", "count = 8", DatasetError, "ids of year nodes, found '8' in row"),
        ("count = 9", 'label = "x"', DatasetError, r"nodes\.year\.file"),
        ('label = "topic"', 'label = "embedding"', DatasetError, "labels|column"),
        ("[nodes.paper]", "[nodes.paper", DatasetError, "TOML"),
    ],
)
def test_descriptions_that_cannot_be(
    tables: dict[str, Any], tmp_path: Path, old: str, new: str, error: type[Exception], message: str
) -> None:
    assert old in DESCRIPTION
    (tables["folder"] / "graph.toml").write_text(DESCRIPTION.replace(old, new, 1))
    with pytest.raises(error, match=message):
        convert_dataset(tables["folder"], tmp_path / "store", "edges")


def test_tables_that_are_damaged(tables: dict[str, Any], tmp_path: Path) -> None:
    path = tables["folder"] / "papers-1.parquet"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(DatasetError, match="arquet"):
        convert_dataset(tables["folder"], tmp_path / "store")
    (tables["folder"] / "writes.csv").write_text("doi,author\n1\n")
    with pytest.raises(DatasetError):
        convert_dataset(tables["folder"], tmp_path / "other")


def test_real_packages_by_name(tmp_path: Path, shared_data: Path | None) -> None:
    """Debian's dependencies as a CSV file of names, against the naive numbering."""
    if shared_data is None:
        pytest.skip("the shared data folder is not there")
    pairs = []
    with lzma.open(shared_data / "debian-bookworm" / "packages.txt.xz", "rt", encoding="utf-8") as lines:
        for line in lines:
            field, _, text = line.rstrip("\n").partition(": ")
            if field == "Package":
                package = text
            elif field == "Depends":
                pairs += [(package, each.split()[0]) for each in text.replace("|", ",").split(",")]
    assert len(pairs) > 200_000
    with open(tmp_path / "depends.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("src", "dst"), *pairs])
    found = converted(tmp_path / "depends.csv", tmp_path / "store")
    names = sorted({name for pair in pairs for name in pair}, key=lambda name: name.encode())
    number = {name: at for at, name in enumerate(names)}
    assert ids_of(tmp_path / "store", "_N") == names
    assert_edges(found, {("_N", "_E", "_N"): np.array([[number[each] for each in pair] for pair in pairs]).T})
