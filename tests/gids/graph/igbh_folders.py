"""Small IGBH folders, plain versions of what a conversion does, and processes that are killed."""

from __future__ import annotations

import os
import resource
import signal
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gids.errors import DiskFullError
from gids.graph.igbh_facts import LABEL_FILES

REPOSITORY = Path(__file__).resolve().parents[3]
NODES = {"paper": 120, "author": 70, "institute": 9, "fos": 40}
EDGES = {
    "paper__cites__paper": ("paper", "paper", 500),
    "paper__written_by__author": ("paper", "author", 300),
    "author__affiliated_to__institute": ("author", "institute", 0),
    "paper__topic__fos": ("paper", "fos", 700),
}


def write_igbh(
    folder: Path,
    *,
    nodes: Mapping[str, int] = NODES,
    dim: int = 12,
    seed: int = 0,
    headerless: tuple[str, ...] = (),
) -> Path:
    """A folder with random contents: loops, duplicate edges, isolated nodes, a relation without edges."""
    generator = np.random.default_rng(seed)
    processed = folder / "processed"
    for name, count in nodes.items():
        rows = generator.standard_normal((count, dim)).astype(np.float32)
        path = processed / name / "node_feat.npy"
        path.parent.mkdir(parents=True)
        if name in headerless:
            rows.tofile(path)
        else:
            np.save(path, rows)
    for n_classes, file in LABEL_FILES.items():
        labels = generator.integers(0, n_classes, nodes["paper"])
        np.save(processed / "paper" / file, labels.astype(np.float32))
    for relation, (src, dst, count) in EDGES.items():
        # The last quarter of the nodes has no edges; the first ones have many.
        ends = [(generator.random(count) ** 2 * nodes[end] * 0.75).astype(np.int64) for end in (src, dst)]
        path = processed / relation / "edge_index.npy"
        path.parent.mkdir(parents=True)
        np.save(path, np.stack(ends, axis=1))
    return folder


def plain_csc(
    src: npt.NDArray[np.int64], dst: npt.NDArray[np.int64], n_dst: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """`indptr` and `indices` by numpy's stable sort."""
    order = np.argsort(dst, kind="stable")
    indptr = np.concatenate([[0], np.cumsum(np.bincount(dst, minlength=n_dst))])
    return indptr, src[order]


def folder_bytes(folder: Path) -> dict[str, bytes]:
    """Every file of a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def count_calls(run: Callable[[], object]) -> int:
    """How often `run`, in a process of its own, changes something on the disk."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        calls = _count_changes(None)
        run()
        os.write(writer, calls[0].to_bytes(8, "little"))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0
    n_calls = int.from_bytes(os.read(reader, 8), "little")
    os.close(reader)
    os.close(writer)
    return n_calls


def run_killed(run: Callable[[], object], at_call: int) -> bool:
    """Run in a process that kills itself (-9) at its `at_call`-th change of the disk; whether it did."""
    child = os.fork()
    if child == 0:
        try:
            _count_changes(at_call)
            run()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL), "the run failed before it was killed"
    return status == signal.SIGKILL


def _count_changes(kill_at: int | None) -> list[int]:
    """Count calls that change the disk, and make half of the writes before a kill torn ones."""
    calls = [0]
    for name in (
        "pwrite",
        "write",
        "fsync",
        "fdatasync",
        "ftruncate",
        "rename",
        "replace",
        "unlink",
        "mkdir",
    ):
        setattr(os, name, _counted(getattr(os, name), calls, kill_at))
    return calls


def _counted(call: Callable[..., Any], calls: list[int], kill_at: int | None) -> Callable[..., Any]:
    def counted(*arguments: Any, **named: Any) -> Any:
        calls[0] += 1
        if calls[0] == kill_at:
            if call.__name__ in ("pwrite", "write") and kill_at % 2:
                call(arguments[0], arguments[1][: len(arguments[1]) // 2], *arguments[2:])
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*arguments, **named)

    return counted


def check_kills(
    run: Callable[[Path], Path],
    tmp_path: Path,
    expected: dict[str, bytes],
    n_kills: int,
    prepare: Callable[[Path], object] = lambda folder: None,
) -> None:
    """Kill ``run(folder)`` at `n_kills` moments, some twice, and let it finish: the result is as expected.

    ``prepare(folder)`` goes before it and is not killed.
    """
    (tmp_path / "counted").mkdir()
    prepare(tmp_path / "counted")
    n_calls = count_calls(lambda: run(tmp_path / "counted"))
    generator = np.random.default_rng(0)
    for attempt in range(n_kills):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        prepare(folder)
        at_call = 1 + attempt * (n_calls - 1) // max(1, n_kills - 1)

        def attempt_run(folder: Path = folder) -> Path:
            return run(folder)

        assert run_killed(attempt_run, at_call)
        if attempt % 2:
            run_killed(attempt_run, int(generator.integers(1, n_calls)))
        made = run(folder)
        assert folder_bytes(made) == expected
        assert os.listdir(folder) == [made.name]


def run_with_small_files(run: Callable[[], object], limit_bytes: int) -> None:
    """Run in a process that may write no file longer than `limit_bytes`; it must say what to do then."""
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, resource.RLIM_INFINITY))
        try:
            run()
        except DiskFullError as error:
            os._exit(7 if "run the same command again" in str(error) else 8)
        finally:
            traceback.print_exc()
            os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
