"""Pickles from strangers, opened without running anything they name.

A pickle may call any function it can import. Here it can reach numpy's array constructors, plain containers,
and nothing else; a SciPy matrix becomes a :class:`SparseRows`, so that SciPy is not needed either.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gids.errors import DatasetError

#: A dense matrix made from a file may take so many bytes; a damaged shape would otherwise ask for anything.
MAX_DENSE_BYTES = 4 * 2**30


@dataclass(frozen=True, eq=False)
class SparseRows:
    """A matrix in compressed sparse rows.

    Attributes
    ----------
    shape : tuple of int
    indptr, indices : integer arrays
    data : array
    """

    shape: tuple[int, int]
    indptr: npt.NDArray[Any]
    indices: npt.NDArray[Any]
    data: npt.NDArray[Any]

    def row_of_entry(self) -> npt.NDArray[np.int64]:
        """Row of each stored entry, int64."""
        return np.repeat(np.arange(self.shape[0]), np.diff(self.indptr))

    def dense(self, dtype: npt.DTypeLike = np.float32) -> npt.NDArray[Any]:
        """The matrix with its zeros; entries at one place add up."""
        matrix = np.zeros(self.shape, dtype)
        np.add.at(matrix, (self.row_of_entry(), self.indices), self.data.astype(dtype))
        return matrix


class _Matrix:
    """Stands for a SciPy matrix while a pickle is read: takes its state and has no behaviour."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.state = state


_ALLOWED: dict[tuple[str, str], Any] = {
    ("builtins", "list"): list,
    ("collections", "defaultdict"): defaultdict,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
}
# The constructor numpy pickles an array with; public under this name in every release that can unpickle.
_RECONSTRUCT = np.zeros(0).__reduce__()[0]
_SPARSE_MODULES = ("scipy.sparse.csr", "scipy.sparse._csr")


class _Restricted(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        module = {"__builtin__": "builtins"}.get(module, module)
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct":
            return _RECONSTRUCT
        if module in _SPARSE_MODULES and name == "csr_matrix":
            return _Matrix
        if (module, name) in _ALLOWED:
            return _ALLOWED[module, name]
        raise pickle.UnpicklingError(f"the pickle names {module}.{name}, which data has no use for")


def load_pickle(path: Path) -> Any:
    """The object in a pickle of arrays, lists, dictionaries and sparse matrices.

    Raises
    ------
    DatasetError
        The file is missing or damaged, or names anything else.
    """
    return _unpickle(read_bytes(path), path)


def load_npz(path: Path) -> dict[str, Any]:
    """Arrays of an npz file by name; an object array of shape () is given as its object.

    Raises
    ------
    DatasetError
    """
    arrays: dict[str, Any] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(read_bytes(path))) as archive:
            for member in archive.namelist():
                arrays[member.removesuffix(".npy")] = _npy(archive.read(member), path)
    except (zipfile.BadZipFile, zlib_error(), EOFError, RuntimeError) as error:
        raise DatasetError(str(path), "an npz file", str(error)) from error
    return arrays


def load_npy(path: Path) -> Any:
    """The array in an npy file.

    Raises
    ------
    DatasetError
    """
    return _npy(read_bytes(path), path)


def sparse_of_npz(path: Path) -> SparseRows:
    """A matrix that `scipy.sparse.save_npz` wrote, as csr or coo.

    Raises
    ------
    DatasetError
    """
    arrays = load_npz(path)
    stored = bytes(arrays["format"].item()).decode() if "format" in arrays else "none"
    needed = {"csr": ("shape", "data", "indices", "indptr"), "coo": ("shape", "data", "row", "col")}
    if stored not in needed or any(name not in arrays for name in needed[stored]):
        raise DatasetError(str(path), "a sparse matrix as csr or coo", f"format {stored}, {sorted(arrays)}")
    if stored == "coo":
        rows = np.asarray(arrays["row"], np.int64)
        order = np.argsort(rows, kind="stable")
        n_rows = int(arrays["shape"][0])
        counts = np.bincount(rows, minlength=n_rows) if len(rows) and rows.min() >= 0 else np.zeros(n_rows)
        arrays["indptr"] = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        arrays["indices"], arrays["data"] = arrays["col"][order], arrays["data"][order]
    return _checked(path, arrays["shape"], arrays["indptr"], arrays["indices"], arrays["data"])


def sparse_of_pickle(path: Path, matrix: Any) -> SparseRows:
    """A SciPy csr matrix that came out of a pickle.

    Raises
    ------
    DatasetError
    """
    state = getattr(matrix, "state", None)
    if not isinstance(state, dict) or not {"_shape", "indptr", "indices", "data"} <= state.keys():
        raise DatasetError(str(path), "a pickled csr matrix", type(matrix).__name__)
    return _checked(path, state["_shape"], state["indptr"], state["indices"], state["data"])


def read_bytes(path: Path) -> bytes:
    """All bytes of a file.

    Raises
    ------
    DatasetError
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise DatasetError(str(path), "a readable file", error.strerror or "an error") from error


def zlib_error() -> type[Exception]:
    """What a damaged compressed stream raises."""
    import zlib

    return zlib.error


def _npy(content: bytes, path: Path) -> Any:
    stream = io.BytesIO(content)
    try:
        version = np.lib.format.read_magic(stream)
        read_header = (
            np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        )
        shape, _, dtype = read_header(stream)
        if dtype.hasobject:
            array = _unpickle(content[stream.tell() :], path)
            if not isinstance(array, np.ndarray) or array.shape != shape:
                raise DatasetError(str(path), f"an object array of shape {shape}", type(array).__name__)
            return array.item() if shape == () else array
        stream.seek(0)
        return np.lib.format.read_array(stream, allow_pickle=False)
    except (ValueError, EOFError) as error:
        if isinstance(error, DatasetError):
            raise
        raise DatasetError(str(path), "an npy array", str(error)) from error


def _unpickle(content: bytes, path: Path) -> Any:
    try:
        # latin1: arrays that Python 2 pickled hold their bytes in a str.
        return _Restricted(io.BytesIO(content), encoding="latin1").load()
    except Exception as error:  # damage can make the machine of a pickle raise nearly anything
        raise DatasetError(
            str(path), "a pickle of arrays and containers", str(error) or repr(error)
        ) from error


def _checked(path: Path, shape: Any, indptr: Any, indices: Any, data: Any) -> SparseRows:
    arrays = [np.asarray(each) for each in (indptr, indices, data)]
    if len(shape) != 2 or any(each.ndim != 1 or each.dtype.kind not in "iuf" for each in arrays):
        raise DatasetError(str(path), "a numeric matrix of two dimensions", f"shape {tuple(shape)}")
    rows, columns = int(shape[0]), int(shape[1])
    starts, places, values = arrays
    if min(rows, columns) < 0 or rows * columns * 4 > MAX_DENSE_BYTES:
        raise DatasetError(str(path), f"at most {MAX_DENSE_BYTES} bytes as float32", f"shape {tuple(shape)}")
    fits = len(starts) == rows + 1 and starts[0] == 0 and starts[-1] == len(places) == len(values)
    if not fits or (np.diff(starts) < 0).any():
        raise DatasetError(str(path), f"row starts of {rows} rows and {len(places)} entries", "others")
    if len(places) and not (places.min() >= 0 and places.max() < columns):
        raise DatasetError(str(path), f"columns from 0 to {columns - 1}", f"{places.min()} to {places.max()}")
    return SparseRows((rows, columns), starts, places, values)
