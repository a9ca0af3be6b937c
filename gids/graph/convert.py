"""``gids convert``: an IGBH folder becomes a store.

Memory: about 200 MB for Python and compiled code, and at most `memory_bytes` on top, whatever the size of the
graph. Temporary files are as large as 8 bytes an edge of the largest relation (16 beyond 2^31 nodes), plus 16
bytes a node of the largest type when rows are reordered.

Killed at any moment, the same call goes on: what is finished is in a journal, and the store gets its name
last.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bam.config import parse_bytes
from bam.errors import ConfigError
from gids.errors import DatasetError
from gids.graph.checksums import FileRecord, record_file
from gids.graph.chunked import disk_full_named, require_free_bytes, write_text
from gids.graph.convert_options import ConvertOptions, Reorder
from gids.graph.csc_build import INDICES_FILE, INDPTR_FILE, CscBuild, build_csc, check_edges
from gids.graph.feature_build import FeatureBuild, find_scale, workers_within, write_features
from gids.graph.feature_types import FeatureDtype
from gids.graph.hotness import HotOrder, write_hot_order
from gids.graph.igbh import IgbhFolder, label_chunks, open_igbh
from gids.graph.igbh_facts import LABELLED_TYPE, labelled_papers, mlperf_papers
from gids.graph.journal import JOURNAL_NAME, Journal, clear_leftovers, partial_folder, publish
from gids.graph.manifest import (
    MANIFEST_NAME,
    VERSION,
    FeatureRecord,
    Manifest,
    RelationRecord,
    TaskRecord,
    read_manifest,
)
from gids.graph.npy_text import npy_header
from gids.graph.progress import Progress, no_progress
from gids.graph.relations import plan_relations

MIN_MEMORY_BYTES = 16 * 2**20
DEFAULT_MEMORY = "1GiB"


def convert_igbh(
    src: str | os.PathLike[str],
    dst: str | os.PathLike[str],
    options: ConvertOptions | None = None,
    *,
    memory_bytes: int | str = DEFAULT_MEMORY,
    workers: int | None = None,
    overwrite: bool = False,
    progress: Progress = no_progress,
) -> Path:
    """Convert an IGBH folder to a store, or finish what an earlier, interrupted call began.

    Parameters
    ----------
    src : path
        As :func:`gids.graph.igbh.open_igbh` takes it.
    dst : path
        Folder to make. When it is there already, made from the same files with the same options, nothing is
        done.
    options : ConvertOptions, optional
    memory_bytes : int or str
        Bound of the memory used on top of the interpreter's, 16 MiB or more.
    workers : int, optional
        Threads that write features; by default two per CPU this process may use. Less when memory is short.
    overwrite : bool
        Replace another store at `dst`, once the new one is complete.
    progress : Progress

    Returns
    -------
    Path
        `dst`.

    Raises
    ------
    ConfigError, DatasetError, bam.errors.SourceError, UnfinishedWorkError
        Before any work: settings or files that cannot be. During work: contents that cannot be (edges are
        checked before anything is built).
    DiskFullError
        Before any work, or later; calling again goes on.
    """
    chosen = ConvertOptions() if options is None else options
    bound = parse_bytes(memory_bytes, "memory_bytes")
    if bound < MIN_MEMORY_BYTES:
        raise ConfigError("memory_bytes", memory_bytes, f"at least {MIN_MEMORY_BYTES}")
    folder, final = open_igbh(src), Path(dst)
    identity = _identity(folder, chosen)
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
    if _is_done(final, digest, overwrite):
        return final
    threads = workers_within(bound, workers or 2 * len(os.sched_getaffinity(0)))
    conversion = _Conversion(folder, chosen, partial_folder(final), bound, threads, progress)
    require_free_bytes(conversion.out.parent, conversion.needed_bytes() - _bytes_in(conversion.out))
    with Journal.open_or_resume(conversion.out, identity) as journal:
        if not (conversion.out / MANIFEST_NAME).is_file():
            manifest = conversion.run(journal, digest, str(folder.processed))
            write_text(conversion.out / MANIFEST_NAME, manifest.text())
        publish(conversion.out, final, replace=overwrite)
    return final


def _identity(folder: IgbhFolder, options: ConvertOptions) -> dict[str, Any]:
    described = [*folder.features.values(), *folder.edges.values(), *folder.labels.values()]
    files = [[file.path, file.bytes, file.modified_ns] for each in described for file in each.files]
    return {"work": "convert", "version": VERSION, "files": sorted(files), "settings": options.table()}


def _is_done(final: Path, digest: str, overwrite: bool) -> bool:
    """Whether `final` is the store wanted; raises when it is something that must not be replaced."""
    if not final.exists():
        return False
    is_store = (final / MANIFEST_NAME).is_file()
    if is_store and read_manifest(final).identity == digest:
        clear_leftovers(final)
        return True
    if is_store and overwrite:
        return False
    found = "a store of other files or settings; overwrite it or choose another place" if is_store else "it"
    raise DatasetError(str(final), "a name that is free", found)


def _bytes_in(folder: Path) -> int:
    """Bytes that an interrupted run's files occupy on the disk."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


@dataclass(frozen=True)
class _Conversion:
    """The steps of one conversion, in the folder `out`."""

    folder: IgbhFolder
    options: ConvertOptions
    out: Path
    memory_bytes: int
    workers: int
    progress: Progress

    def needed_bytes(self) -> int:
        """Bytes that the store and its temporary files take at most."""
        builds = self.builds()
        counts = self.folder.num_nodes
        total = sum(build.output_bytes(0) for build in builds)
        total += max(build.temporary_bytes for build in builds)
        total += 2 * counts[LABELLED_TYPE] * len(self.folder.labels)
        if not self.options.features_in_place:
            total += sum(counts[name] * self._feature_build(name).row_bytes for name in self.folder.features)
            if self.options.reorder is Reorder.HOT:
                total += sum(8 * count for count in counts.values()) + 16 * max(counts.values())
        return total

    def builds(self) -> list[CscBuild]:
        """One for each relation of the graph."""
        counts = self.folder.num_nodes
        return [
            CscBuild(
                plan,
                counts[plan.edge_type.src],
                counts[plan.edge_type.dst],
                self.out / "graph" / str(plan.edge_type),
                self.memory_bytes,
            )
            for plan in plan_relations(self.folder.edges, self.options.graph)
        ]

    def run(self, journal: Journal, digest: str, source: str) -> Manifest:
        """Everything but the manifest's file."""
        counts = self.folder.num_nodes
        for stored, described in self.folder.edges.items():
            check_edges(journal, stored, described, counts, self.memory_bytes, self.progress)
        tasks = tuple(self._write_labels(journal, n_classes) for n_classes in sorted(self.folder.labels))
        relations = tuple(self._write_relation(journal, build) for build in self.builds())
        features, written = [], []
        for name in sorted(self.folder.features):
            record, file = self._write_features(journal, name)
            features.append(record)
            written += [] if file is None else [file]
        paths = [path for path in _files_in(self.out) if path not in {file.path for file in written}]
        files = [*written, *(self._checksum(journal, path) for path in paths)]
        files.sort(key=lambda file: file.path)
        settings = self.options.table()
        return Manifest(
            source,
            settings,
            digest,
            dict(sorted(counts.items())),
            tuple(features),
            relations,
            tasks,
            tuple(files),
        )

    def _write_labels(self, journal: Journal, n_classes: int) -> TaskRecord:
        n_papers = self.folder.num_nodes[LABELLED_TYPE]
        name = f"labels/{LABELLED_TYPE}_{n_classes}.npy"
        if journal.result(name) is None:
            path = self.out / name
            path.parent.mkdir(exist_ok=True)
            with disk_full_named(path, 2 * n_papers), open(path, "wb") as stream:
                stream.write(npy_header((n_papers,), np.dtype(np.int16)))
                for labels in label_chunks(self.folder, n_classes):
                    stream.write(labels.data)
                stream.flush()
                os.fsync(stream.fileno())
            journal.record(name, {})
        n_labelled, n_permuted = labelled_papers(n_papers, n_classes), mlperf_papers(n_papers, n_classes)
        return TaskRecord(str(n_classes), LABELLED_TYPE, n_classes, name, n_labelled, n_permuted)

    def _write_relation(self, journal: Journal, build: CscBuild) -> RelationRecord:
        n_edges = build_csc(journal, build, self.progress)
        folder = build.folder.relative_to(self.out)
        return RelationRecord(
            build.plan.edge_type, n_edges, str(folder / INDPTR_FILE), str(folder / INDICES_FILE)
        )

    def _feature_build(self, name: str, order: Path | None = None) -> FeatureBuild:
        path = self.out / "features" / f"{name}.bin"
        return FeatureBuild(
            name, self.folder.features[name], self.options.dtype, path, order, self.options.non_finite
        )

    def _write_features(self, journal: Journal, name: str) -> tuple[FeatureRecord, FileRecord | None]:
        source = self.folder.features[name]
        if self.options.features_in_place:
            dtype = FeatureDtype(str(source.dtype))
            file = source.files[0]
            times = (file.modified_ns,)
            path = str(Path(file.path).resolve())
            return FeatureRecord(name, dtype, source.shape[1], (path,), (file.bytes,), times), None
        (self.out / "features").mkdir(exist_ok=True)
        order = self._hot_order(journal, name) if self.options.reorder is Reorder.HOT else None
        build = self._feature_build(name, None if order is None else order.order)
        scale = self._scale(journal, build) if self.options.dtype is FeatureDtype.INT8 else None
        built = write_features(journal, build, scale, workers=self.workers, progress=self.progress)
        record = FeatureRecord(
            name,
            self.options.dtype,
            build.dim,
            (str(build.path.relative_to(self.out)),),
            (build.file.data_bytes,),
            rank="" if order is None else str(order.rank.relative_to(self.out)),
            levels="" if order is None else str(order.levels.relative_to(self.out)),
            scale="" if scale is None else _scale_name(name),
            n_non_finite=built.n_non_finite,
        )
        if order is not None:
            journal.record(f"{name}: done", {})
            order.order.unlink(missing_ok=True)
        path = str(build.path.relative_to(self.out))
        return record, FileRecord(path, build.file.data_bytes, build.file.chunk_bytes, built.crc32)

    def _hot_order(self, journal: Journal, name: str) -> HotOrder:
        folder = self.out / "features"
        order = HotOrder(
            folder / f"{name}.rank.npy", folder / f"{name}.levels.npy", folder / f"{name}.order.tmp"
        )
        if journal.result(f"{name}: order") is None:
            builds = [build for build in self.builds() if build.plan.edge_type.src == name]
            n_nodes = self.folder.num_nodes[name]
            write_hot_order(name, n_nodes, builds, order, self.memory_bytes, self.progress)
            journal.record(f"{name}: order", {})
        return order

    def _scale(self, journal: Journal, build: FeatureBuild) -> npt.NDArray[np.float32]:
        path = self.out / _scale_name(build.node_type)
        if journal.result(f"{build.node_type}: scale") is None:
            scale = find_scale(replace(build, order=None), workers=self.workers, progress=self.progress)
            with disk_full_named(path, scale.nbytes), open(path, "wb") as stream:
                np.save(stream, scale)
                stream.flush()
                os.fsync(stream.fileno())
            journal.record(f"{build.node_type}: scale", {})
        stored: npt.NDArray[np.float32] = np.load(path, allow_pickle=False)
        return stored

    def _checksum(self, journal: Journal, path: str) -> FileRecord:
        known = journal.result(f"checksum of {path}")
        if known is None:
            record = record_file(self.out, path, self.workers)
            known = {"bytes": record.bytes, "chunk_bytes": record.chunk_bytes, "crc32": list(record.crc32)}
            journal.record(f"checksum of {path}", known)
        return _file_record(path, known)


def _file_record(path: str, known: Mapping[str, Any]) -> FileRecord:
    return FileRecord(path, known["bytes"], known["chunk_bytes"], tuple(known["crc32"]))


def _scale_name(node_type: str) -> str:
    return f"features/{node_type}.scale.npy"


def _files_in(folder: Path) -> list[str]:
    """Every file of the store, relative to it."""
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    return [
        name
        for name in names
        if not name.endswith((".tmp", ".new")) and name not in (JOURNAL_NAME, MANIFEST_NAME)
    ]
