"""Arrays of the caller that are used in place: checked, and never copied."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from bam.errors import ConfigError


def as_output(out: object, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """The caller's memory as a numpy array.

    Parameters
    ----------
    out : numpy array or anything with DLPack on the CPU
        A torch tensor for instance, pinned ones too.
    shape : tuple of int
    dtype : numpy.dtype

    Returns
    -------
    array of that shape and dtype
        Shares memory with `out`; C-contiguous and writable.

    Raises
    ------
    ConfigError
        It is not such an array.
    """
    array = out if isinstance(out, np.ndarray) else _from_dlpack(out)
    if array.dtype != dtype:
        raise ConfigError("out", f"dtype {array.dtype}", f"dtype {dtype}")
    if array.shape != shape:
        raise ConfigError("out", f"shape {array.shape}", f"shape {shape}, a row for each id")
    if not array.flags.c_contiguous:
        raise ConfigError("out", f"strides {array.strides}", "rows one after the other (C-contiguous)")
    if not array.flags.writeable:
        raise ConfigError("out", "a read-only array", "a writable one")
    return array


def check_vector(
    setting: str, array: npt.NDArray[Any], dtype: npt.DTypeLike, length: int | None = None
) -> None:
    """Raise :class:`ConfigError` unless it has one dimension, this dtype and length, and is contiguous."""
    if not isinstance(array, np.ndarray):
        raise ConfigError(setting, type(array).__name__, f"a numpy array of {np.dtype(dtype)}")
    wanted = (array.size if length is None else length,)
    if array.dtype != dtype or array.shape != wanted or not array.flags.c_contiguous:
        found = f"{array.dtype} of shape {array.shape}, strides {array.strides}"
        raise ConfigError(setting, found, f"contiguous {np.dtype(dtype)} of shape {wanted}")


def _from_dlpack(out: Any) -> npt.NDArray[Any]:
    expected = "a numpy array, or a tensor in CPU memory that DLPack can share"
    try:
        return np.from_dlpack(out)
    except (AttributeError, TypeError, BufferError, RuntimeError, ValueError) as error:
        raise ConfigError("out", f"{type(out).__name__} ({error})", expected) from error
