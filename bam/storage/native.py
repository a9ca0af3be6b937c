"""Engines that live in the C++ library: what they have in common."""

from __future__ import annotations

import ctypes
import functools
import json
import os
from collections.abc import Callable, Sequence
from ctypes import c_char_p, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from dataclasses import replace
from typing import Any

import numpy as np

from bam.errors import BamError, ClosedError, ConfigError, EngineUnavailable, ForkedError, SourceError
from bam.native import function
from bam.storage.buffers import check_spans
from bam.storage.engine import ByteArray, Engine, EngineInfo, FileInfo, ReadSpan

_ERROR_BYTES = 16384

#: `bam::ReadRequest`.
_REQUEST = np.dtype(
    [("destination", "u8"), ("offset", "u8"), ("length", "u4"), ("file", "u4"), ("tag", "u8")]
)


class NativeEngine(Engine):
    """An engine of the C++ library, of which other C++ code takes the :attr:`handle`.

    Its reads release the GIL. Whatever was made from the handle keeps the C++ engine alive, so handles may be
    closed in any order; a read under way when the engine is closed finishes first.

    Parameters
    ----------
    handle : int
        Of an engine that this object now owns.
    inner : sequence of NativeEngine
        The engines a wrapper reads through; kept alive with the memory they may own.
    """

    def __init__(self, handle: int, inner: Sequence[NativeEngine] = ()) -> None:
        self._handle: int | None = handle
        self._inner = tuple(inner)
        self._pid = os.getpid()
        self._notes: tuple[str, ...] = ()
        self._files = tuple(FileInfo(**entry) for entry in json.loads(_text("bam_engine_files", handle)))
        self._name = str(json.loads(_text("bam_engine_describe", handle))["engine"])

    @property
    def handle(self) -> int:
        """Address of the C++ engine.

        Raises
        ------
        ClosedError, ForkedError
        """
        if os.getpid() != self._pid:
            raise ForkedError(f"engine {self._name!r}")
        if self._handle is None:
            raise ClosedError(f"engine {self._name!r}")
        return self._handle

    @property
    def is_open(self) -> bool:
        """Whether it can still be read through."""
        return self._handle is not None

    @property
    def files(self) -> tuple[FileInfo, ...]:
        return self._files

    def read(self, spans: Sequence[ReadSpan], buffers: Sequence[ByteArray]) -> list[int]:
        handle = self.handle
        check_spans(spans, buffers)
        requests = np.empty(len(spans), _REQUEST)
        for i, (span, buffer) in enumerate(zip(spans, buffers, strict=True)):
            requests[i] = (buffer.ctypes.data, span.offset, span.length, span.file, i)
        results = np.zeros(len(spans), np.int64)
        text = ctypes.create_string_buffer(_ERROR_BYTES)
        call = _declared("bam_engine_read")
        status = call(handle, requests.ctypes.data, len(spans), results.ctypes.data, text, _ERROR_BYTES)
        if status:
            reason = text.value.decode(errors="surrogateescape")
            if not reason:
                raise ClosedError(f"engine {self._name!r}")
            raise EngineUnavailable(self._name, reason, "Close other engines, or raise the limit it names")
        return [int(result) for result in results]

    def check_file(self, file: int, end: int = 0) -> int:
        return int(_declared("bam_engine_check_file")(self.handle, file, end))

    def bytes_now(self, file: int) -> int:
        return int(_declared("bam_engine_bytes_now")(self.handle, file))

    def explain(self, file: int, offset: int) -> str:
        text = ctypes.create_string_buffer(_ERROR_BYTES)
        _declared("bam_engine_explain")(self.handle, file, offset, text, _ERROR_BYTES)
        return text.value.decode(errors="surrogateescape")

    def info(self) -> EngineInfo:
        found = parse_info(json.loads(_text("bam_engine_describe", self.handle)))
        return replace(found, notes=found.notes + self._notes)

    def add_note(self, note: str) -> None:
        """Have :meth:`info` say `note` too."""
        self._notes += (note,)

    def close(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None and os.getpid() == self._pid:
            _declared("bam_engine_destroy")(handle)

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self.close()


def parse_info(described: dict[str, Any]) -> EngineInfo:
    """What a C++ engine's description says."""
    return EngineInfo(
        engine=described["engine"],
        implementation=described["implementation"],
        direct=described["direct"],
        features=described.get("features", {}),
        notes=tuple(described.get("notes", ())),
        inner=tuple(parse_info(inner) for inner in described.get("inner", ())),
    )


def create(name: str, argument_types: Sequence[Any], *arguments: Any) -> int:
    """Handle of the engine that the C function `name` makes.

    Raises
    ------
    SourceError, EngineUnavailable, ConfigError
        As the function says.
    NativeLibraryMissing
    """
    call = function(name, c_void_p, [*argument_types, c_char_p, c_size_t])
    text = ctypes.create_string_buffer(_ERROR_BYTES)
    handle = call(*arguments, text, _ERROR_BYTES)
    if not handle:
        raise failure(text.value)
    return int(handle)


def failure(text: bytes) -> BamError:
    """The error that `bam::Failure` (JSON) describes."""
    found = json.loads(text.decode(errors="surrogateescape"))
    errno = found["errno"] or None
    if found["kind"] == "source":
        return SourceError(found["subject"], found["expected"], found["found"], errno)
    if found["kind"] == "setting":
        return ConfigError(found["subject"], found["found"], found["expected"])
    return EngineUnavailable(found["subject"], found["expected"], found["found"])


def path_list(paths: Sequence[str | os.PathLike[str]]) -> Any:
    """`paths` as a C array of strings.

    Raises
    ------
    ConfigError
        An empty list, or a path with a zero byte.
    """
    if isinstance(paths, (str, bytes, os.PathLike)):
        raise ConfigError("paths", paths, "a list of paths")
    encoded = [os.fsencode(path) for path in paths]
    if not encoded or any(b"\0" in path for path in encoded):
        raise ConfigError("paths", list(paths), "at least one file, and no zero bytes in paths")
    return (c_char_p * len(encoded))(*encoded)


_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "bam_engine_destroy": (None, [c_void_p]),
    "bam_engine_describe": (c_size_t, [c_void_p, c_char_p, c_size_t]),
    "bam_engine_files": (c_size_t, [c_void_p, c_char_p, c_size_t]),
    "bam_engine_check_file": (c_int32, [c_void_p, c_uint32, c_uint64]),
    "bam_engine_bytes_now": (c_int64, [c_void_p, c_uint32]),
    "bam_engine_explain": (c_size_t, [c_void_p, c_uint32, c_uint64, c_char_p, c_size_t]),
    "bam_engine_read": (c_int32, [c_void_p, c_void_p, c_uint64, c_void_p, c_char_p, c_size_t]),
}


@functools.cache
def _declared(name: str) -> Callable[..., Any]:
    call: Callable[..., Any] = function(name, *_SIGNATURES[name])
    return call


def _text(name: str, handle: int) -> str:
    """What a function that copies text says, however long it is."""
    capacity = 4096
    while True:
        text = ctypes.create_string_buffer(capacity)
        needed = _declared(name)(handle, text, capacity)
        if needed < capacity:
            return text.value.decode(errors="surrogateescape")
        capacity = needed + 1
