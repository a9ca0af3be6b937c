"""A data set of any known layout becomes a store.

Arrays that lie in files as they are in memory are read in place; others are written to temporary files
once, a few megabytes at a time. From there on it is the conversion of an IGBH folder: out of core, within
`memory_bytes`, and what is finished is not done again after a kill.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bam.array.description import ArrayDescription, open_regular
from bam.errors import ConfigError
from gids.formats.detect import detect_format, format_named
from gids.formats.format import Format, RelationOptions, check_graph, plan_edges
from gids.formats.staging import Staging
from gids.graph.chunked import write_text
from gids.graph.convert import (
    DEFAULT_MEMORY,
    digest_of,
    is_done,
    parse_memory,
    require_room,
    writers_within,
)
from gids.graph.convert_options import ConvertOptions
from gids.graph.feature_types import FeatureDtype
from gids.graph.graph_source import GraphSource
from gids.graph.journal import Journal, partial_folder, publish
from gids.graph.manifest import MANIFEST_NAME, VERSION
from gids.graph.progress import Progress, no_progress
from gids.graph.store_build import STAGING, StoreBuild

logger = logging.getLogger(__name__)


def convert_dataset(
    src: str | os.PathLike[str],
    dst: str | os.PathLike[str],
    layout: Format | str | None = None,
    options: ConvertOptions | None = None,
    *,
    keep_half: bool = True,
    relations: RelationOptions | None = None,
    memory_bytes: int | str = DEFAULT_MEMORY,
    workers: int | None = None,
    overwrite: bool = False,
    progress: Progress = no_progress,
) -> Path:
    """Make a store of a data set, or finish what an earlier, interrupted call began.

    Parameters
    ----------
    src : path
        File or folder.
    dst : path
        Folder to make. When it is there already, made from the same files with the same options, nothing is
        done.
    layout : Format or str, optional
        ``ogb``, ``mag240m``, ``pyg``, ``dgl``, ``graphbolt`` or ``edges``; left out: found out.
    options : ConvertOptions, optional
        Its `graph` and `features_in_place` do not apply.
    keep_half : bool
        Where all features are float16 and the dtype is float32, store float16: half the bytes, nothing lost.
    relations : RelationOptions, optional
        Left out: those of the layout.
    memory_bytes, workers, overwrite, progress
        See :func:`gids.graph.convert.convert_igbh`. DuckDB and pyarrow take some more memory: see
        docs/data_sets.md.

    Returns
    -------
    Path
        `dst`.

    Raises
    ------
    ConfigError, DatasetError, bam.errors.SourceError, UnfinishedWorkError, DiskFullError, PackageMissing
    """
    source, final = Path(src), Path(dst)
    found = layout if isinstance(layout, Format) else None
    if found is None:
        found = detect_format(source) if layout is None else format_named(str(layout))
    chosen, bound = options or ConvertOptions(), parse_memory(memory_bytes)
    if chosen.features_in_place:
        raise ConfigError("features_in_place", True, "False; it is for IGBH folders")
    wanted = found.relations if relations is None else relations
    settings = _settings(found, chosen, keep_half, wanted)
    identity = _identity(found, source, settings)
    digest = digest_of(identity)
    if is_done(final, digest, overwrite):
        return final
    out = partial_folder(final)
    with Journal.open_or_resume(out, identity) as journal:
        if not (out / MANIFEST_NAME).is_file():
            staging = Staging(out / STAGING, out, journal, bound)
            graph = _graph(found, source, staging, wanted)
            if keep_half and chosen.dtype is FeatureDtype.FLOAT32 and _all_half(graph.features):
                chosen = replace(chosen, dtype=FeatureDtype.FLOAT16)
            build = StoreBuild(graph, chosen, out, bound, writers_within(bound, workers), progress)
            require_room(build)
            manifest = build.run(journal, digest, settings | {"dtype": chosen.dtype.value})
            shutil.rmtree(staging.folder, ignore_errors=True)
            write_text(out / MANIFEST_NAME, manifest.text())
        publish(out, final, replace=overwrite)
    return final


def _graph(layout: Format, source: Path, staging: Staging, relations: RelationOptions) -> GraphSource:
    read = check_graph(str(source), layout.read(source, staging))
    logger.info("%s: %s, nodes %s", source, layout.name, dict(read.num_nodes))
    plans = plan_edges(read.edges, relations)
    return GraphSource(str(source), read.num_nodes, read.features, read.edges, plans, read.tasks)


def _settings(
    layout: Format, options: ConvertOptions, keep_half: bool, relations: RelationOptions
) -> dict[str, Any]:
    return {
        "format": layout.name,
        "dtype": options.dtype.value,
        "keep_half": keep_half,
        "reorder": options.reorder.value,
        "non_finite": options.non_finite.value,
        "reverse": relations.reverse,
        "symmetric": list(relations.symmetric),
    }


def _identity(layout: Format, source: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    files = []
    for path in layout.files(source):
        with open_regular(str(path)) as (_, identity):
            files.append([identity.path, identity.bytes, identity.modified_ns])
    return {"work": "convert", "version": VERSION, "files": sorted(files), "settings": dict(settings)}


def _all_half(features: Mapping[str, ArrayDescription]) -> bool:
    return bool(features) and all(each.stored_dtype == np.float16 for each in features.values())
