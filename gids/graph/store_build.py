"""The steps that make a store of a data set whose arrays are in files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gids.graph.checksums import FileRecord, record_file
from gids.graph.chunked import disk_full_named
from gids.graph.convert_options import ConvertOptions, Reorder
from gids.graph.csc_build import INDICES_FILE, INDPTR_FILE, CscBuild, build_csc, check_edges
from gids.graph.feature_build import FeatureBuild, find_scale, write_features
from gids.graph.feature_types import FeatureDtype
from gids.graph.graph_source import GraphSource, TaskSource
from gids.graph.hotness import HotOrder, write_hot_order
from gids.graph.journal import JOURNAL_NAME, Journal
from gids.graph.manifest import MANIFEST_NAME, FeatureRecord, Manifest, RelationRecord, TaskRecord
from gids.graph.npy_text import npy_header
from gids.graph.progress import Progress
from gids.graph.splits import Split, igb_split

#: Folder for what a conversion needs only while it runs.
STAGING = "staging"


@dataclass(frozen=True)
class StoreBuild:
    """The steps of one conversion, in the folder `out`.

    Attributes
    ----------
    source : GraphSource
    options : ConvertOptions
    out : Path
    memory_bytes : int
    workers : int
    progress : Progress
    """

    source: GraphSource
    options: ConvertOptions
    out: Path
    memory_bytes: int
    workers: int
    progress: Progress

    def needed_bytes(self) -> int:
        """Bytes that the store and its temporary files take at most."""
        builds = self.builds()
        counts = self.source.num_nodes
        total = sum(build.output_bytes(0) for build in builds)
        total += max((build.temporary_bytes for build in builds), default=0)
        total += sum(2 * counts[task.node_type] for task in self.source.tasks)
        if not self.options.features_in_place:
            total += sum(counts[name] * self._feature_build(name).row_bytes for name in self.source.features)
            if self.options.reorder is Reorder.HOT:
                total += sum(8 * count for count in counts.values()) + 16 * max(counts.values())
        return total

    def builds(self) -> list[CscBuild]:
        """One for each relation of the graph."""
        counts = self.source.num_nodes
        return [
            CscBuild(
                plan,
                counts[plan.edge_type.src],
                counts[plan.edge_type.dst],
                self.out / "graph" / str(plan.edge_type),
                self.memory_bytes,
            )
            for plan in self.source.plans
        ]

    def run(self, journal: Journal, digest: str, settings: Mapping[str, Any]) -> Manifest:
        """Everything but the manifest's file."""
        counts = self.source.num_nodes
        for stored, edges in self.source.edges.items():
            check_edges(journal, stored, edges, counts, self.memory_bytes, self.progress)
        tasks = tuple(self._write_task(journal, task) for task in self.source.tasks)
        relations = tuple(self._write_relation(journal, build) for build in self.builds())
        features, written = [], []
        for name in sorted(self.source.features):
            record, file = self._write_features(journal, name)
            features.append(record)
            written += [] if file is None else [file]
        paths = [path for path in _files_in(self.out) if path not in {file.path for file in written}]
        files = [*written, *(self._checksum(journal, path) for path in paths)]
        files.sort(key=lambda file: file.path)
        return Manifest(
            self.source.place,
            dict(settings),
            digest,
            dict(sorted(counts.items())),
            tuple(features),
            relations,
            tasks,
            tuple(files),
        )

    def _write_task(self, journal: Journal, task: TaskSource) -> TaskRecord:
        n_nodes = self.source.num_nodes[task.node_type]
        name = f"labels/{task.node_type}_{task.name}.npy"
        found = journal.result(name)
        if found is None:
            path = self.out / name
            path.parent.mkdir(exist_ok=True)
            highest, n_labelled = -1, 0
            with disk_full_named(path, 2 * n_nodes), open(path, "wb") as stream:
                stream.write(npy_header((n_nodes,), np.dtype(np.int16)))
                for labels in task.chunks():
                    highest = max(highest, int(labels.max(initial=-1)))
                    n_labelled += int(np.count_nonzero(labels >= 0))
                    stream.write(labels.data)
                stream.flush()
                os.fsync(stream.fileno())
            found = journal.record(name, {"highest": highest, "n_labelled": n_labelled})
        n_classes = found["highest"] + 1 if task.n_classes is None else task.n_classes
        n_labelled = found["n_labelled"] if task.n_labelled is None else task.n_labelled
        split = task.split
        if split is None and task.n_labelled is None and n_labelled < n_nodes:
            # The rule takes the first nodes, which are not those with labels here.
            split = _share_out(np.flatnonzero(np.load(self.out / name, mmap_mode="r") >= 0))
        files = () if split is None else self._write_split(journal, task, split)
        return TaskRecord(task.name, task.node_type, n_classes, name, n_labelled, task.n_permuted, files)

    def _write_split(self, journal: Journal, task: TaskSource, split: Split) -> tuple[str, ...]:
        names = []
        for part in ("train", "validation", "test"):
            names.append(f"labels/{task.node_type}_{task.name}.{part}.npy")
            if journal.result(names[-1]) is None:
                _save(self.out / names[-1], np.asarray(getattr(split, part), np.int64))
                journal.record(names[-1], {})
        return tuple(names)

    def _write_relation(self, journal: Journal, build: CscBuild) -> RelationRecord:
        n_edges = build_csc(journal, build, self.progress)
        folder = build.folder.relative_to(self.out)
        return RelationRecord(
            build.plan.edge_type, n_edges, str(folder / INDPTR_FILE), str(folder / INDICES_FILE)
        )

    def _feature_build(self, name: str, order: Path | None = None) -> FeatureBuild:
        path = self.out / "features" / f"{name}.bin"
        return FeatureBuild(
            name, self.source.features[name], self.options.dtype, path, order, self.options.non_finite
        )

    def _write_features(self, journal: Journal, name: str) -> tuple[FeatureRecord, FileRecord | None]:
        source = self.source.features[name]
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
            n_nodes = self.source.num_nodes[name]
            write_hot_order(name, n_nodes, builds, order, self.memory_bytes, self.progress)
            journal.record(f"{name}: order", {})
        return order

    def _scale(self, journal: Journal, build: FeatureBuild) -> npt.NDArray[np.float32]:
        path = self.out / _scale_name(build.node_type)
        if journal.result(f"{build.node_type}: scale") is None:
            scale = find_scale(replace(build, order=None), workers=self.workers, progress=self.progress)
            _save(path, scale)
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


def _share_out(nodes: npt.NDArray[np.int64]) -> Split:
    """The 60 / 20 / 20 split of these nodes, in their order."""
    rule = igb_split(len(nodes))
    return Split(nodes[rule.train], nodes[rule.validation], nodes[rule.test])


def _save(path: Path, array: npt.NDArray[Any]) -> None:
    with disk_full_named(path, array.nbytes), open(path, "wb") as stream:
        np.save(stream, array)
        stream.flush()
        os.fsync(stream.fileno())


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
        if not name.endswith((".tmp", ".new"))
        and not name.startswith(f"{STAGING}/")
        and name not in (JOURNAL_NAME, MANIFEST_NAME)
    ]
