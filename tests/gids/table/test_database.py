"""Queries of real databases as Arrow files; the PostgreSQL server is started here."""

from __future__ import annotations

import glob
import os
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gids
from bam.errors import ConfigError
from gids.cli.main import main
from gids.errors import DatabaseError, UnknownColumn
from gids.table.database import import_query, without_password
from gids.table.features import column_features

ROWS = 25_000


def _as_postgres(command: list[str]) -> None:
    prefix = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    subprocess.run([*prefix, *command], check=True, capture_output=True, timeout=60)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Address of a PostgreSQL server with a table `papers` and two wide ones."""
    pytest.importorskip("adbc_driver_postgresql")
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"))
    initdb = found[-1] if found else shutil.which("initdb")
    if initdb is None:
        pytest.skip("there is no PostgreSQL server: apt-get install postgresql")
    # Not below pytest's folder: a socket's path has at most 107 bytes, and another user must reach it.
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    programs = Path(initdb).parent
    try:
        if os.geteuid() == 0:
            shutil.chown(folder, "postgres")
        _as_postgres([initdb, "-D", f"{folder}/data", "-A", "trust", "-U", "tester", "--no-sync"])
        options = f"-k {folder} -c listen_addresses= -c fsync=off"
        control = [f"{programs}/pg_ctl", "-D", f"{folder}/data", "-w"]
        _as_postgres([*control, "-o", options, "-l", f"{folder}/log", "start"])
        try:
            uri = f"postgresql://tester:secret@/postgres?host={folder}"
            _fill(uri)
            yield uri
        finally:
            _as_postgres([*control, "-m", "immediate", "stop"])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _fill(uri: str) -> None:
    import adbc_driver_postgresql.dbapi as driver

    with driver.connect(uri) as connection, connection.cursor() as cursor:
        cursor.execute(
            f"CREATE TABLE papers AS SELECT n::bigint AS id, (2000 + n / 1000)::int AS year, "
            f"(n * 0.5)::float4 AS score, 'p' || n AS title FROM generate_series(0, {ROWS - 1}) AS n"
        )
        for table, first in (("wide_a", 0), ("wide_b", 900)):
            columns = ", ".join(f"(n * {k + 1})::real AS c{k}" for k in range(first, first + 900))
            cursor.execute(
                f"CREATE TABLE {table} AS SELECT n::int AS id, {columns} FROM generate_series(1, 40) AS n"
            )
        connection.commit()


def test_a_query_of_postgresql_streams_into_an_arrow_file(server: str, tmp_path: Path) -> None:
    out = tmp_path / "papers.arrow"
    query = "SELECT id, year, score, title FROM papers ORDER BY id"
    assert import_query(server, query, out, stats=["year"], batch_rows=1000) == ROWS
    with gids.open_table(out) as table:
        assert table.batch_rows.tolist() == [1000] * 25
        chosen = table.where("year >= 2020 and score < 10250")
        assert chosen.rows.tolist() == list(range(20000, 20500))
        assert (chosen.batches_loaded, chosen.batches_skipped) == (5, 20)
        with table.column("score") as score, table.column("id") as ids:
            np.testing.assert_array_equal(np.asarray(ids), np.arange(ROWS))
            np.testing.assert_array_equal(np.asarray(score), np.arange(ROWS, dtype=np.float32) / 2)


def test_more_columns_than_a_query_can_return_come_by_two(server: str, tmp_path: Path) -> None:
    out = tmp_path / "wide.arrow"
    queries = ["SELECT * FROM wide_a ORDER BY id", "SELECT * FROM wide_b ORDER BY id"]
    assert import_query(server, queries, out, key="id", batch_rows=16) == 40
    with gids.open_table(out) as table:
        assert len(table.columns) == 1801
        features = column_features("n", table, ["c0", "c899", "c900", "c1799"], cache="64KiB")
    rows = np.zeros((40, 4), np.float32)
    features.read(np.arange(40), rows.view(np.uint8), None, None)
    np.testing.assert_array_equal(rows, np.arange(1, 41)[:, None] * np.array([1, 900, 901, 1800], np.float32))
    features.close()


def test_queries_whose_keys_differ_are_refused(server: str, tmp_path: Path) -> None:
    out = tmp_path / "wide.arrow"
    ordered = "SELECT * FROM wide_a ORDER BY id"
    for other, said in (
        ("SELECT * FROM wide_b ORDER BY id DESC", "differ"),
        ("SELECT * FROM wide_b WHERE id < 40 ORDER BY id", "different numbers of rows"),
        ("SELECT * FROM wide_b WHERE id < 33 ORDER BY id", "different numbers of rows"),
        ("SELECT * FROM wide_a ORDER BY id", "two queries"),
    ):
        with pytest.raises(DatabaseError, match=said):
            import_query(server, [ordered, other], out, key="id", batch_rows=16)
    with pytest.raises(UnknownColumn, match="'key'"):
        import_query(server, [ordered, ordered], out, key="key")
    with pytest.raises(ConfigError, match="key"):
        import_query(server, [ordered, ordered], out)
    assert list(tmp_path.iterdir()) == []


def test_what_the_database_says_is_told_without_the_password(server: str, tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match="nowhere") as caught:
        import_query(server, "SELECT * FROM nowhere", tmp_path / "t.arrow")
    assert "secret" not in str(caught.value)
    with pytest.raises(DatabaseError) as caught:
        import_query("postgresql://me:secret@127.0.0.1:1/x", "SELECT 1", tmp_path / "t.arrow")
    assert "secret" not in str(caught.value)
    assert without_password("postgresql://me:secret@host/x") == "postgresql://me:***@host/x"
    assert list(tmp_path.iterdir()) == []


def sqlite_file(path: Path) -> Path:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (id INTEGER, score REAL)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", [(k, k / 2) for k in range(5000)])
    connection.close()
    return path


def duckdb_file(path: Path) -> Path:
    import duckdb

    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT i::BIGINT AS id, i / 2::DOUBLE AS score FROM range(5000) r(i)"
        )
    return path


@pytest.mark.parametrize(
    ("scheme", "module", "make"),
    [
        ("sqlite", "adbc_driver_sqlite", sqlite_file),
        ("duckdb", "duckdb", duckdb_file),
    ],
)
def test_sqlite_and_duckdb_by_the_same_door(scheme: str, module: str, make: Any, tmp_path: Path) -> None:
    pytest.importorskip(module)
    uri = f"{scheme}://{make(tmp_path / 'base.db')}"
    out = tmp_path / "t.arrow"
    arguments = ["import", uri, "--query", "SELECT id, score FROM t ORDER BY id", "--out", str(out)]
    assert main([*arguments, "--stats", "id", "--batch-rows", "1000"]) == 0
    with gids.open_table(out) as table:
        chosen = table.where("id >= 4990 and score > 2496")
        assert chosen.rows.tolist() == list(range(4993, 5000))
        assert chosen.batches_loaded == 1
    with pytest.raises(DatabaseError, match="nope"):
        import_query(uri, "SELECT * FROM nope", out)
    with pytest.raises(DatabaseError, match="no file"):
        import_query(f"{scheme}:///not/there.db", "SELECT 1", out)


def test_other_addresses_are_refused() -> None:
    with pytest.raises(ConfigError, match="postgresql"):
        import_query("mysql://host/x", "SELECT 1", "t.arrow")
