"""Several arrays in one store on a GPU: one cache, and one gather for all of the same row size."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields
from types import TracebackType
from typing import Any

import numpy as np

from bam.array.description import ArrayDescription
from bam.cache.device.gpu import DeviceTensor
from bam.cache.device.reads import (
    MAX_COUNTED_PARTS,
    NO_CONSTANT_ROWS,
    ConstantRows,
    RowPart,
    RowRequest,
    RunningGather,
)
from bam.cache.device.store import DeviceStats, DeviceStore
from bam.errors import ClosedError, ConfigError
from bam.layout import Extent, Layout
from bam.storage.engine import EngineInfo
from bam.storage.native import NativeEngine


@dataclass(frozen=True)
class JoinedLayout:
    """Layouts one behind the other, each from the beginning of a page.

    Attributes
    ----------
    layout : Layout
    first_bytes : tuple of int
        Where each begins.
    """

    layout: Layout
    first_bytes: tuple[int, ...]

    @classmethod
    def of(cls, layouts: Sequence[Layout], page_bytes: int) -> JoinedLayout:
        """Join them; the space up to the next page is filled with bytes of the same file, no part of any row.

        Raises
        ------
        ConfigError
            A striped layout, which cannot be a part of another.
        """
        files: list[str] = []
        extents: list[Extent] = []
        first_bytes = []
        position = 0
        for layout in layouts:
            if layout.stripe_bytes:
                raise ConfigError("source", layout.files[0], "arrays that are not striped, to share a store")
            first_bytes.append(position)
            for extent in layout.extents:
                number = len(files) + extent.file
                extents.append(Extent(position, extent.length, number, extent.file_offset))
                position += extent.length
            while position % page_bytes:
                # The longest: padding by short pieces would take as many reads.
                any_bytes = max(extents, key=lambda extent: extent.length)
                n_bytes = min(any_bytes.length, page_bytes - position % page_bytes)
                extents.append(Extent(position, n_bytes, any_bytes.file, any_bytes.file_offset))
                position += n_bytes
            files += layout.files
        return cls(Layout(tuple(files), position, tuple(extents)), tuple(first_bytes))


@dataclass(frozen=True)
class GroupCounts:
    """Where the rows of one array came from in one gather, and what looking their pages up found.

    Attributes
    ----------
    rows_resident, rows_constant, rows_hit, rows_joined, rows_read : int
        Each row once: in the GPU's memory or pinned memory for good, else by the worst of its pages.
    pages_hit, pages_joined, pages_claimed, pages_bypassed : int
        The last two were read.
    """

    rows_resident: int = 0
    rows_constant: int = 0
    rows_hit: int = 0
    rows_joined: int = 0
    rows_read: int = 0
    pages_hit: int = 0
    pages_joined: int = 0
    pages_claimed: int = 0
    pages_bypassed: int = 0


_N_COUNTERS = len(fields(GroupCounts))


@dataclass(frozen=True)
class _Running:
    """One gather of a group's, and which arrays its parts are of."""

    gather: RunningGather
    names: tuple[str, ...]


class DeviceGroupGather:
    """Rows of several arrays on their way, from :meth:`DeviceGroup.begin`. Keeps ids and outputs alive."""

    def __init__(self, store: DeviceStore, running: Sequence[_Running], out: Mapping[str, Any]) -> None:
        self._store, self._out = store, dict(out)
        self._parts = tuple(running)
        self._running = tuple(each.gather for each in running)

    def launch(self) -> None:
        """Put all that is left on the store's stream; never waits."""
        for running in self._running:
            self._store.finish(running)

    def before(self, stream: int) -> dict[str, Any]:
        """Have `stream` wait for the rows; errors show in :meth:`wait` alone."""
        for running in self._running:
            self._store.before(running, stream)
        return dict(self._out)

    def wait(self) -> dict[str, Any]:
        """Wait until all rows are in the outputs, and return those by name.

        Raises
        ------
        RowOutOfRange, StorageError, WaitTimeout
        """
        for running in self._running:
            self._store.wait(running)
        return dict(self._out)

    def counts(self) -> dict[str, GroupCounts]:
        """Of each array, after :meth:`wait`; empty unless they were asked for."""
        found = {}
        for part in self._parts:
            if part.gather.part_counts is None:
                continue
            for name, record in zip(part.names, part.gather.part_counts, strict=True):
                found[name] = GroupCounts(*record.item()[:_N_COUNTERS])
        return found


def _registered(store: DeviceStore, description: ArrayDescription) -> ConstantRows:
    """All rows of an array in the host's memory, for kernels to read in place."""
    memory = description.memory[0]
    address = store.gpu.register(memory.ctypes.data, memory.nbytes)
    return ConstantRows(address, description.shape[0], owner=memory)


@dataclass(frozen=True)
class _Constant:
    """Constant rows by array, in pinned memory and in the GPU's."""

    pinned: Mapping[str, ConstantRows]
    resident: Mapping[str, ConstantRows]


class DeviceGroup:
    """Arrays by name on a GPU. Made by :func:`bam.open_group`; the caller closes it. Thread-safe.

    Attributes
    ----------
    names : tuple of str
    """

    def __init__(
        self,
        descriptions: Mapping[str, ArrayDescription],
        first_bytes: Sequence[int],
        in_place: Mapping[str, ArrayDescription],
        store: DeviceStore,
        engine: NativeEngine,
        closing: ExitStack,
    ) -> None:
        self._first_byte = dict(zip(descriptions, first_bytes, strict=True)) | dict.fromkeys(in_place, 0)
        self._descriptions = {**descriptions, **in_place}
        self.names = tuple(self._descriptions)
        self._store, self._engine, self._closing = store, engine, closing
        self._in_place = {name: _registered(store, each) for name, each in in_place.items()}
        self._closed = False

    def begin(
        self,
        ids: Mapping[str, object],
        out: Mapping[str, Any] | None = None,
        *,
        next_use: Mapping[str, object] | None = None,
        out_rows: Mapping[str, object] | None = None,
        constant: Mapping[str, ConstantRows] | None = None,
        resident: Mapping[str, ConstantRows] | None = None,
        counted: bool = False,
        stream: int | None = None,
    ) -> DeviceGroupGather:
        """Start to gather rows of some of the arrays, and return at once.

        Parameters
        ----------
        ids, out, next_use : mapping
            By array name; each as in :meth:`DeviceArray.begin`, ids of one dimension.
        out_rows : mapping, optional
            Row of the output for each id, by array name; by default they are in the order of the ids.
        constant, resident : mapping, optional
            Rows that are in pinned memory or in the GPU's for good, by array name; they stay there until the
            gather has been waited for.
        counted : bool
            Whether :meth:`DeviceGroupGather.counts` is to have something.
        stream : int, optional
            On which they are made; default: CuPy's current one.

        Raises
        ------
        ConfigError
            An unknown name, or an `out` that does not fit.
        WaitTimeout, ClosedError
        """
        if self._closed:
            raise ClosedError("device arrays")
        gpu = self._store.gpu
        gpu.after(stream)
        with gpu.current():
            rows = {name: gpu.vector(each, np.dtype(np.int64)) for name, each in ids.items()}
            outputs = {name: self._output(name, rows[name], (out or {}).get(name)) for name in ids}
            uses_of = self._numbers(rows, next_use, "next_use", np.uint64)  # all checked before any is begun
            places = self._numbers(rows, out_rows, "out_rows", np.int64)
            running = []
            for names in self._by_row_bytes(ids):
                kept = _Constant({**(constant or {}), **self._in_place}, {**(resident or {})})
                request = self._request(names, rows, outputs, uses_of, kept, counted, places)
                running.append(_Running(self._store.begin(request), tuple(names)))
        given = out or {}
        found = {name: given.get(name, outputs[name].owner) for name in ids}
        return DeviceGroupGather(self._store, running, found)

    def note_next_use(
        self,
        ids: Mapping[str, object],
        next_use: int,
        *,
        constant: Mapping[str, ConstantRows] | None = None,
        resident: Mapping[str, ConstantRows] | None = None,
        stream: int | None = None,
    ) -> None:
        """Pages of these rows will be used at `next_use`, if they are cached and that is sooner than known.

        Parameters are as in :meth:`begin`; never waits.
        """
        if self._closed:
            raise ClosedError("device arrays")
        gpu = self._store.gpu
        gpu.after(stream)
        with gpu.current():
            ids = {name: each for name, each in ids.items() if name not in self._in_place}
            rows = {name: gpu.vector(each, np.dtype(np.int64)) for name, each in ids.items()}
            nowhere = dict.fromkeys(ids, DeviceTensor(0, (), np.dtype(np.uint8), None))
            for names in self._by_row_bytes(ids):
                kept = _Constant(constant or {}, resident or {})
                request = self._request(names, rows, nowhere, {}, kept, False)
                self._store.note_uses(request, next_use)

    def forget_next_uses(self, horizon: int, instead: int) -> None:
        """Uses that were foreseen before `horizon` become `instead`; never waits."""
        self._store.forget_uses(horizon, instead)

    def gather(self, ids: Mapping[str, object], out: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """:meth:`begin` and :meth:`DeviceGroupGather.wait`."""
        return self.begin(ids, out).wait()

    @property
    def store(self) -> DeviceStore:
        """The pages below."""
        return self._store

    def engine_info(self) -> EngineInfo:
        """What reads the files."""
        return self._engine.info()

    def stats(self) -> DeviceStats:
        """Counters of gathers that were waited for; one for each row size."""
        return self._store.stats()

    def close(self) -> None:
        """Finish what was begun and release everything; calling it again does nothing."""
        self._closed = True
        self._closing.close()

    def __enter__(self) -> DeviceGroup:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def first_byte(self, name: str) -> int:
        """Where an array begins in the store's address space; a page's beginning.

        Raises
        ------
        ConfigError
            There is no such array.
        """
        self._description(name)
        return self._first_byte[name]

    def _by_row_bytes(self, ids: Mapping[str, object]) -> list[list[str]]:
        """Arrays that one gather can serve."""
        found: dict[int, list[str]] = {}
        for name in ids:
            found.setdefault(self._description(name).row_bytes, []).append(name)
        return [
            names[first : first + MAX_COUNTED_PARTS]
            for names in found.values()
            for first in range(0, len(names), MAX_COUNTED_PARTS)
        ]

    def _request(
        self,
        names: Sequence[str],
        rows: Mapping[str, DeviceTensor],
        outputs: Mapping[str, DeviceTensor],
        uses_of: Mapping[str, DeviceTensor],
        kept: _Constant,
        counted: bool,
        places: Mapping[str, DeviceTensor] | None = None,
    ) -> RowRequest:
        """Of arrays with one row size."""
        gpu, parts, first = self._store.gpu, [], 0
        for name in names:
            n_rows, start = self._descriptions[name].shape[0], self._first_byte[name]
            constant = kept.pinned.get(name, NO_CONSTANT_ROWS)
            resident = kept.resident.get(name, NO_CONSTANT_ROWS)
            parts.append(
                RowPart(
                    first,
                    n_rows,
                    start,
                    outputs[name],
                    (places or {}).get(name),
                    constant=constant,
                    resident=resident,
                )
            )
            first += math.prod(rows[name].shape)
        joined = gpu.joined([rows[name] for name in names])
        uses = gpu.joined([uses_of[name] for name in names]) if uses_of else None
        return RowRequest(joined, self._descriptions[names[0]].row_bytes, tuple(parts), uses, counted)

    def _description(self, name: str) -> ArrayDescription:
        if name not in self._descriptions:
            raise ConfigError("ids", name, f"one of {', '.join(map(repr, self.names))}")
        return self._descriptions[name]

    def _numbers(
        self,
        rows: Mapping[str, DeviceTensor],
        given: Mapping[str, object] | None,
        setting: str,
        dtype: type[np.generic],
    ) -> dict[str, DeviceTensor]:
        """A number for each id: kernels find them by position."""
        if given is None:
            return {}
        found = {}
        for name, ids in rows.items():
            if name not in given:
                raise ConfigError(setting, list(given), f"numbers for {name!r} too")
            found[name] = self._store.gpu.vector(given[name], np.dtype(dtype))
            if math.prod(found[name].shape) != math.prod(ids.shape):
                expected = f"{math.prod(ids.shape)} numbers, one for each id"
                raise ConfigError(f"{setting}[{name!r}]", found[name].shape, expected)
        return found

    def _output(self, name: str, rows: DeviceTensor, out: Any) -> DeviceTensor:
        description, gpu = self._description(name), self._store.gpu
        shape = (*rows.shape, *description.row_shape)
        if out is None:
            return gpu.empty(shape, description.dtype)
        tensor = gpu.tensor(out)
        n_bytes = math.prod(shape) * description.dtype.itemsize
        same = tensor.shape == shape and tensor.dtype == description.dtype
        if not same and (tensor.dtype != np.uint8 or math.prod(tensor.shape) != n_bytes):
            expected = f"{description.dtype} of shape {shape}, or uint8 of {n_bytes} bytes"
            raise ConfigError("out", f"{name}: {tensor.dtype} of shape {tensor.shape}", expected)
        return tensor
