"""How functions of this package are compiled, and how long it took.

numba's cache on disk notices a change of the file that holds a function, but not of the files it calls into.
So only functions called from Python are cached, under a name that carries a digest of all sources of this
package, and what they call is compiled with them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from numba import njit


@cache
def _sources_digest() -> str:
    digest = hashlib.sha256()
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:12]


def entry_point(function: Callable[..., Any]) -> Any:
    """Compile a function that Python calls: cached on disk, run without the interpreter lock."""
    function.__qualname__ = f"{function.__qualname__}_{_sources_digest()}"
    return njit(cache=True, nogil=True)(function)


def compiled(function: Callable[..., Any]) -> Any:
    """Compile a function that only compiled functions call."""
    return njit(nogil=True)(function)


def inlined(function: Callable[..., Any]) -> Any:
    """The same for small functions of inner loops: always inlined."""
    return njit(nogil=True, forceinline=True)(function)


def compiled_parallel(function: Callable[..., Any]) -> Any:
    """The same with `prange` loops run by numba's threads."""
    return njit(nogil=True, parallel=True)(function)
