"""The native library: found, loaded and typed once.

Each module that calls it declares the signatures it uses with :func:`function`. ctypes releases the GIL
during calls. Without the library (no C++ compiler at install time) :func:`available` is false and the Python
engines and the reference cache remain.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bam.errors import NativeFailure, NativeLibraryMissing

LIBRARY_NAME = "libbam_native.so"

#: Version of the C ABI; raised with every change of a signature or struct. `bam_abi_version()` must agree.
ABI_VERSION = 8


def library_path() -> Path | None:
    """Path of the library: ``BAM_NATIVE_LIBRARY`` if set, else the one installed beside this package."""
    override = os.environ.get("BAM_NATIVE_LIBRARY")
    if override is not None:
        return Path(override) if override else None
    for folder in __path__:
        path = Path(folder) / LIBRARY_NAME
        if path.is_file():
            return path
    return None


@functools.cache
def library() -> ctypes.CDLL:
    """The loaded library.

    Raises
    ------
    NativeLibraryMissing
        It was not built, cannot be loaded, or is of another version.
    """
    path = library_path()
    if path is None:
        raise NativeLibraryMissing("native")
    try:
        loaded = ctypes.CDLL(str(path), use_errno=False)
        loaded.bam_abi_version.restype = ctypes.c_uint32
        found = loaded.bam_abi_version()
    except (OSError, AttributeError) as error:
        raise NativeLibraryMissing("native", f"{path} cannot be loaded: {error}") from error
    if found != ABI_VERSION:
        reason = f"{path} has version {found} of the C ABI, and this package needs {ABI_VERSION}"
        raise NativeLibraryMissing("native", reason)
    return loaded


@functools.cache
def available() -> bool:
    """Whether the library can be used."""
    try:
        library()
    except NativeLibraryMissing:
        return False
    return True


def function(name: str, result: Any, arguments: Sequence[Any]) -> Any:
    """The C function `name` with its signature set; :class:`NativeLibraryMissing` where there is none.

    A call that fails for lack of memory raises :class:`MemoryError`.
    """
    found = getattr(library(), name)
    found.restype, found.argtypes = result, list(arguments)
    if name.endswith("_create") or not name.startswith(_NEVER_FAIL):
        found.errcheck = _raise_failure
    return found


#: Functions that allocate nothing, and are called often.
_NEVER_FAIL = ("bam_cache_", "bam_copy_", "bam_nvme_")


def _raise_failure(result: Any, called: Any, arguments: Any) -> Any:
    """The result of a call, or what was thrown in it: no C++ exception leaves the library (guard.h)."""
    code = _declared("bam_take_failure", ctypes.c_int32)()
    if not code:
        return result
    text: bytes = _declared("bam_failure_text", ctypes.c_char_p)()
    reason = f"{called.__name__}: {text.decode(errors='replace')}"
    if code == errno.ENOMEM:
        raise MemoryError(reason)
    raise NativeFailure(reason)


@functools.cache
def _declared(name: str, result: Any) -> Any:
    found = getattr(library(), name)
    found.restype, found.argtypes = result, []
    return found
