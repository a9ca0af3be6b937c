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
from pathlib import Path
from typing import Any

from bam.config import parse_bytes
from bam.errors import ConfigError
from gids.errors import DatasetError
from gids.graph.chunked import require_free_bytes, write_text
from gids.graph.convert_options import ConvertOptions
from gids.graph.feature_build import workers_within
from gids.graph.graph_source import igbh_source
from gids.graph.igbh import IgbhFolder, open_igbh
from gids.graph.journal import Journal, clear_leftovers, partial_folder, publish
from gids.graph.manifest import MANIFEST_NAME, VERSION, read_manifest
from gids.graph.progress import Progress, no_progress
from gids.graph.store_build import StoreBuild

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
    bound = parse_memory(memory_bytes)
    folder, final = open_igbh(src), Path(dst)
    identity = _identity(folder, chosen)
    digest = digest_of(identity)
    if is_done(final, digest, overwrite):
        return final
    threads = writers_within(bound, workers)
    build = StoreBuild(igbh_source(folder, chosen), chosen, partial_folder(final), bound, threads, progress)
    require_room(build)
    with Journal.open_or_resume(build.out, identity) as journal:
        if not (build.out / MANIFEST_NAME).is_file():
            manifest = build.run(journal, digest, chosen.table())
            write_text(build.out / MANIFEST_NAME, manifest.text())
        publish(build.out, final, replace=overwrite)
    return final


def parse_memory(memory_bytes: int | str) -> int:
    """The bound in bytes.

    Raises
    ------
    ConfigError
    """
    bound = parse_bytes(memory_bytes, "memory_bytes")
    if bound < MIN_MEMORY_BYTES:
        raise ConfigError("memory_bytes", memory_bytes, f"at least {MIN_MEMORY_BYTES}")
    return bound


def writers_within(memory_bytes: int, workers: int | None) -> int:
    """Threads that write features: `workers`, or two per CPU, as far as memory allows."""
    return workers_within(memory_bytes, workers or 2 * len(os.sched_getaffinity(0)))


def digest_of(identity: Mapping[str, Any]) -> str:
    """By which a finished store is known to be of these files and settings."""
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()


def require_room(build: StoreBuild) -> None:
    """Raise :class:`DiskFullError` when the disk cannot take what is not there yet."""
    require_free_bytes(build.out.parent, build.needed_bytes() - _bytes_in(build.out))


def _identity(folder: IgbhFolder, options: ConvertOptions) -> dict[str, Any]:
    described = [*folder.features.values(), *folder.edges.values(), *folder.labels.values()]
    files = [[file.path, file.bytes, file.modified_ns] for each in described for file in each.files]
    return {"work": "convert", "version": VERSION, "files": sorted(files), "settings": options.table()}


def is_done(final: Path, digest: str, overwrite: bool) -> bool:
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
