"""One way to open any data set: a store, or an IGBH folder in place."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np

from bam.array.sources import FileSource
from gids.errors import DatasetError
from gids.graph.convert import convert_igbh
from gids.graph.convert_options import ConvertOptions
from gids.graph.csc import Csc
from gids.graph.csc_kernels import scan_edges
from gids.graph.dataset import Dataset, Features, Task
from gids.graph.feature_types import FeatureDtype
from gids.graph.graph import Graph
from gids.graph.igbh import IgbhFolder, is_igbh, open_igbh, read_labels
from gids.graph.igbh_facts import LABELLED_TYPE, labelled_papers, mlperf_papers
from gids.graph.manifest import read_manifest
from gids.graph.progress import Progress, no_progress
from gids.graph.relations import GraphOptions, RelationPlan, plan_relations
from gids.graph.schema import Schema
from gids.graph.store import is_store, open_store


def open_dataset(
    path: str | os.PathLike[str],
    *,
    graph: GraphOptions | None = None,
    graph_cache: str | os.PathLike[str] | None = None,
    progress: Progress = no_progress,
) -> Dataset:
    """Open a store, or an IGBH folder in place.

    Parameters
    ----------
    path : path
    graph : GraphOptions, optional
        How an IGBH folder's edges become a graph. A store was made with its own.
    graph_cache : path, optional
        Where to keep the CSC arrays of an IGBH folder: built there once, within bounded memory, and opened
        there from then on (rebuilt when the data has changed). Left out: they are built in memory on every
        call, which takes about 30 bytes an edge.
    progress : Progress

    Raises
    ------
    DatasetError, bam.errors.SourceError
        Neither a store nor IGBH, or something in it is wrong.
    """
    if is_store(path):
        return open_store(path)
    if not is_igbh(path):
        expected = "a store (dataset.toml) or an IGBH folder (processed/...)"
        raise DatasetError(str(path), expected, "neither; gids convert makes stores of other data sets")
    options = GraphOptions() if graph is None else graph
    if graph_cache is None:
        return _open_in_memory(Path(path), options)
    _require_cache(Path(graph_cache))
    in_place = ConvertOptions(graph=options, features_in_place=True)
    opened = open_store(convert_igbh(path, graph_cache, in_place, overwrite=True, progress=progress))
    # What was measured about the data lies beside the data.
    return replace(opened, path=Path(path))


def largest_feature_file(path: str | os.PathLike[str]) -> str:
    """The largest file with features of a store or an IGBH folder; its graph is not looked at.

    Raises
    ------
    DatasetError
        There is none.
    """
    if is_store(path):
        described = [each.description for each in open_store(path).features.values()]
    elif is_igbh(path):
        described = list(open_igbh(path).features.values())
    else:
        described = []
    files = [file for each in described for file in each.files]
    if not files:
        raise DatasetError(str(path), "a store or an IGBH folder with features", "no feature files")
    return max(files, key=lambda file: file.bytes).path


def _require_cache(path: Path) -> None:
    """A cache is replaced when the data has changed, so it must not be somebody's store."""
    if is_store(path) and not read_manifest(path).settings.get("features_in_place"):
        raise DatasetError(str(path), "a graph cache, or nothing", "a store with features of its own")


def _open_in_memory(path: Path, options: GraphOptions) -> Dataset:
    folder = open_igbh(path)
    plans = plan_relations(folder.edges, options)
    schema = Schema(folder.num_nodes, [plan.edge_type for plan in plans])
    relations = {plan.edge_type: _csc(folder, plan) for plan in plans}
    features = {name: _features(folder, name) for name in folder.features}
    tasks = {str(n_classes): _task(folder, n_classes) for n_classes in sorted(folder.labels)}
    return Dataset(path, Graph(schema, relations), features, tasks)


def _csc(folder: IgbhFolder, plan: RelationPlan) -> Csc:
    """The relation's edges as :mod:`gids.graph.csc_build` would write them, by a plain sort."""
    n_src, n_dst = folder.num_nodes[plan.edge_type.src], folder.num_nodes[plan.edge_type.dst]
    edges = plan.edges.read(0, plan.edges.n_edges)
    ends = folder.num_nodes[plan.stored.src], folder.num_nodes[plan.stored.dst]
    row, column, _ = scan_edges(edges, *ends)
    if row >= 0:
        expected = f"{plan.stored[2 * column]} ids from 0 to {ends[column] - 1}"
        found = f"{edges[row, column]} in column {column} of row {row}"
        raise DatasetError(plan.edges.path, expected, found)
    if plan.drop_loops:
        edges = edges[edges[:, 0] != edges[:, 1]]
    loops = np.arange(n_dst if plan.add_loops else 0)
    src = np.concatenate([*(edges[:, column] for column in plan.source_columns), loops])
    dst = np.concatenate([*(edges[:, 1 - column] for column in plan.source_columns), loops])
    return replace(Csc.from_coo(src, dst, n_src, n_dst, str(plan.edge_type)), edge_ids=None)


def _features(folder: IgbhFolder, name: str) -> Features:
    described = folder.features[name]
    dtype = FeatureDtype(str(described.dtype))
    source = FileSource(described.files[0].path, dtype.stored, described.shape)
    return Features(name, dtype, described.shape[1], source, described)


def _task(folder: IgbhFolder, n_classes: int) -> Task:
    n_papers = folder.num_nodes[LABELLED_TYPE]
    return Task(
        str(n_classes),
        LABELLED_TYPE,
        n_classes,
        read_labels(folder, n_classes),
        labelled_papers(n_papers, n_classes),
        mlperf_papers(n_papers, n_classes),
    )
