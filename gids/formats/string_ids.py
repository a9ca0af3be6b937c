"""Ids of any kind, text too, numbered from 0: in DuckDB, which goes to the disk where memory does not do.

Ids are compared as text, as they stand in the files. Which number an id got is kept in the store, in an
Arrow file: row `n` of ``ids/<type>.arrow`` is the id of node `n`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gids.errors import DatabaseError, DatasetError, PackageMissing
from gids.table.pyarrow_import import import_pyarrow
from gids.table.write import write_arrow

#: DuckDB itself needs some; below this it fails where it should spill.
_LEAST_BYTES = 128 * 2**20
_BATCH_ROWS = 100_000


class StringIds:
    """Numbers of ids, by node type. A temporary database in a folder; close it.

    Parameters
    ----------
    folder : Path
        For the database and what it spills; emptied of an earlier one.
    memory_bytes : int

    Raises
    ------
    PackageMissing
    DatabaseError
        DuckDB cannot go on: no room on the disk, for instance. Every method may raise it.
    """

    def __init__(self, folder: Path, memory_bytes: int) -> None:
        try:
            import duckdb
        except ImportError as error:
            remedy = "pip install 'gids-bam[databases]'"
            raise PackageMissing("duckdb", "numbering ids that are no row numbers", remedy) from error
        self.pa = import_pyarrow()
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "ids.duckdb"
        self._path, self._failures = str(path), duckdb.Error
        for left in folder.glob("ids.duckdb*"):
            left.unlink()
        self._connection: Any = duckdb.connect(str(path))
        for setting in (
            f"memory_limit = '{max(memory_bytes, _LEAST_BYTES)}B'",
            f"temp_directory = '{str(folder / 'spill').replace(chr(39), chr(39) * 2)}'",
            "threads = 1",
            # Every order that counts is asked for.
            "preserve_insertion_order = false",
            "enable_progress_bar = false",
        ):
            self._run(f"SET {setting}")
        self._tables: dict[str, str] = {}

    def add_nodes(self, node_type: str, where: str, ids: Iterable[Any]) -> int:
        """Number the ids of a type in their order; `ids` are pyarrow arrays. Returns how many there are.

        Raises
        ------
        DatasetError
            An id is missing or there twice.
        """
        table = self._new_table(node_type)
        first = 0
        for part in ids:
            texts = self._texts(where, part, first)
            nodes = self.pa.array(np.arange(first, first + len(texts)))
            self._insert(table, [nodes, texts], ["node", "id"])
            first += len(texts)
        twice = self._run(
            f"SELECT id, min(node), max(node) FROM {table} GROUP BY id HAVING count(*) > 1 ORDER BY 2 LIMIT 1"
        ).fetchone()
        if twice is not None:
            raise DatasetError(where, "each id once", f"{twice[0]!r} in rows {twice[1]} and {twice[2]}")
        return first

    def has(self, node_type: str) -> bool:
        """Whether ids of the type were numbered."""
        return node_type in self._tables

    def add_seen(self, node_type: str, where: str, ids: Iterable[Any]) -> int:
        """Number the distinct ids in order of their text; returns how many there are."""
        table = self._new_table(node_type)
        self._run("CREATE OR REPLACE TABLE seen(id VARCHAR)")
        first = 0
        for part in ids:
            self._insert("seen", [self._texts(where, part, first)], ["id"])
            first += len(part)
        self._run(
            f"INSERT INTO {table} SELECT row_number() OVER (ORDER BY id) - 1, id "
            "FROM (SELECT DISTINCT id FROM seen)"
        )
        self._run("DROP TABLE seen")
        found: int = self._run(f"SELECT count(*) FROM {table}").fetchone()[0]
        return found

    def edges(
        self, where: str, src_type: str, dst_type: str, ends: Iterable[tuple[Any, Any]]
    ) -> Iterator[npt.NDArray[np.int64]]:
        """Node numbers of both ends of edges, in their order: int64, shape (n, 2).

        Raises
        ------
        DatasetError
            An id is missing, or is no node.
        """
        self._run("CREATE OR REPLACE TABLE ends(place BIGINT, src VARCHAR, dst VARCHAR)")
        first = 0
        for sources, destinations in ends:
            texts = [self._texts(where, each, first) for each in (sources, destinations)]
            places = self.pa.array(np.arange(first, first + len(texts[0])))
            self._insert("ends", [places, *texts], ["place", "src", "dst"])
            first += len(texts[0])
        # One join at a time, each into a table: together they would not do with little memory.
        for number, (end, node_type) in enumerate((("src", src_type), ("dst", dst_type))):
            kept = "" if number == 0 else ", e.src_node"
            self._run(
                f"CREATE OR REPLACE TABLE joined_{number} AS SELECT place{kept}, "
                f"n.node AS {end}_node, e.src, e.dst FROM {'ends' if number == 0 else 'joined_0'} e "
                f"LEFT JOIN {self._tables[node_type]} n ON e.{end} = n.id"
            )
            self._run(f"DROP TABLE {'ends' if number == 0 else 'joined_0'}")
        self._require_known(where, "src", src_type)
        self._require_known(where, "dst", dst_type)
        for batch in self._rows("SELECT src_node, dst_node FROM joined_1 ORDER BY place"):
            yield np.stack([each.to_numpy() for each in batch.columns], axis=1)
        self._run("DROP TABLE joined_1")

    def _require_known(self, where: str, end: str, node_type: str) -> None:
        unknown = self._run(
            f"SELECT {end}, place FROM joined_1 WHERE {end}_node IS NULL ORDER BY place LIMIT 1"
        ).fetchone()
        if unknown is not None:
            found = f"{unknown[0]!r} in row {unknown[1]}"
            raise DatasetError(where, f"ids of {node_type} nodes", found)

    def write(self, node_type: str, path: Path) -> None:
        """Write the ids of a type in order of their numbers."""
        found = self._rows(f"SELECT id FROM {self._tables[node_type]} ORDER BY node")
        write_arrow(path, self.pa.schema([("id", self.pa.string())]), found)

    def close(self) -> None:
        """Let go of the database; its files stay until their folder goes."""
        self._connection.close()

    def _run(self, query: str) -> Any:
        try:
            return self._connection.execute(query)
        except self._failures as error:
            raise DatabaseError(self._path, " ".join(str(error).split())[:300]) from error

    def _rows(self, query: str) -> Iterator[Any]:
        """Record batches of a result, as they are made."""
        try:
            result = self._connection.sql(query)
            stream = getattr(result, "to_arrow_reader", None) or result.fetch_arrow_reader
            yield from stream(_BATCH_ROWS)
        except (self._failures, OSError) as error:
            raise DatabaseError(self._path, " ".join(str(error).split())[:300]) from error

    def _new_table(self, node_type: str) -> str:
        table = self._tables.setdefault(node_type, f"nodes_{len(self._tables)}")
        self._run(f"CREATE TABLE {table}(node BIGINT, id VARCHAR)")
        return table

    def _insert(self, table: str, columns: list[Any], names: list[str]) -> None:
        self._connection.register("part", self.pa.table(columns, names))
        self._run(f"INSERT INTO {table} SELECT * FROM part")
        self._connection.unregister("part")

    def _texts(self, where: str, ids: Any, first: int) -> Any:
        if ids.null_count:
            row = first + int(np.argmin(ids.is_valid().to_numpy(zero_copy_only=False)))
            raise DatasetError(where, "an id in every row", f"none in row {row}")
        kind = ids.type
        types = self.pa.types
        is_text = types.is_string(kind) or types.is_large_string(kind)
        if not (is_text or types.is_integer(kind) or types.is_dictionary(kind)):
            raise DatasetError(where, "ids that are text or whole numbers", str(kind))
        return ids.cast(self.pa.string())
