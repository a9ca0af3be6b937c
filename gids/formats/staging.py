"""Arrays on their way into a store that cannot be read in place: compressed ones, text, foreign files.

They are written once as plain files, a few rows at a time, and deleted with the last step of the
conversion. What is finished is in the conversion's journal, so a later run finds it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bam.array.description import ArrayDescription
from bam.array.sources import RawSource
from gids.errors import DatasetError
from gids.graph.chunked import disk_full_named
from gids.graph.edge_array import EdgeArray
from gids.graph.journal import Journal
from gids.graph.schema import EdgeType

#: Whole numbers beyond are not each a float32.
_EXACT = 2**24

Chunks = Callable[[], Iterable[npt.NDArray[Any]]]


class Staging:
    """A folder for temporary files, and one for what goes into the store as it is.

    Parameters
    ----------
    folder : Path
    kept : Path
        The store under construction.
    journal : Journal
    memory_bytes : int
    """

    def __init__(self, folder: Path, kept: Path, journal: Journal, memory_bytes: int) -> None:
        self.folder, self.kept, self._journal, self.memory_bytes = folder, kept, journal, memory_bytes

    @property
    def chunk_bytes(self) -> int:
        """Bytes that one piece of an array may have."""
        return self.memory_bytes // 8

    def chunk_rows(self, row_bytes: int) -> int:
        """Rows that one piece of an array may have."""
        return max(1, self.chunk_bytes // max(1, row_bytes))

    def array(self, name: str, dtype: Any, row_shape: tuple[int, ...], chunks: Chunks) -> ArrayDescription:
        """Write an array, or find it; `chunks` are arrays of its rows, in order."""
        path = self.folder / f"{require_name(str(self.folder), name)}.bin"
        if self._journal.result(f"staged {name}") is None or not path.is_file():
            self.folder.mkdir(exist_ok=True)
            with disk_full_named(path, 0), open(path, "wb") as stream:
                for chunk in chunks():
                    stream.write(np.ascontiguousarray(chunk, dtype).data)
                stream.flush()
                os.fsync(stream.fileno())
            self._journal.record(f"staged {name}", {})
        return RawSource(path, np.dtype(dtype), (-1, *row_shape)).describe()

    def edges(self, edge_type: EdgeType, chunks: Chunks) -> EdgeArray:
        """Edges of a relation; `chunks` are int64 of shape (n, 2)."""
        return EdgeArray(self.array(f"edges {edge_type}", np.int64, (2,), chunks))

    def features(
        self, node_type: str, where: str, dtype: np.dtype[Any], dim: int, chunks: Chunks
    ) -> ArrayDescription:
        """Features of a node type; whole numbers and truth values become float32.

        Raises
        ------
        DatasetError
            Elements are no numbers, or so large that float32 does not tell them apart.
        """
        if dtype.kind not in "fiub" or dtype.itemsize > 8:
            raise DatasetError(where, "features that are numbers", str(dtype))
        is_float = dtype.kind == "f"

        def floats() -> Iterable[npt.NDArray[Any]]:
            first = 0
            for chunk in chunks():
                if not is_float and chunk.size and max(-int(chunk.min()), int(chunk.max())) > _EXACT:
                    raise DatasetError(
                        where, f"whole numbers up to {_EXACT}", f"larger ones from row {first} on"
                    )
                first += len(chunk)
                yield chunk.reshape(len(chunk), dim)

        stored = dtype.newbyteorder("=") if is_float else np.dtype(np.float32)
        return self.array(f"features {node_type}", stored, (dim,), floats)

    def keep(self, name: str, write: Callable[[Path], None]) -> Path:
        """A file that becomes part of the store, written by `write`, or found."""
        path = self.kept / name
        if self._journal.result(f"kept {name}") is None or not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            write(path)
            self._journal.record(f"kept {name}", {})
        return path


def require_name(where: str, name: object) -> str:
    """A type or relation as it may be part of file names.

    Raises
    ------
    DatasetError
    """
    text = str(name)
    if not isinstance(name, str) or not text or text.startswith(".") or any(c in text for c in "/\\\0\n"):
        raise DatasetError(where, "a name without '/' and line ends that begins with no dot", repr(name))
    return text
