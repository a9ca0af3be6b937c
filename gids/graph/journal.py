"""Work in a folder that survives being killed: what is finished is written down, and a later run goes on from
there.

The folder under construction is a sibling of the wanted one (``<name>.partial``) and becomes it by one
rename, so the wanted name never shows half-finished work. Data is flushed to the disk before its journal line
is written; a line torn by a crash is dropped.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from gids.errors import UnfinishedWorkError

LOGGER = logging.getLogger(__name__)

JOURNAL_NAME = "journal.jsonl"
Result = dict[str, Any]


def partial_folder(final: Path) -> Path:
    """Where the folder `final` is built."""
    return final.with_name(final.name + ".partial")


class Journal:
    """Finished steps and chunks of the work that builds one folder.

    Open it with :meth:`open_or_resume`; one process at a time holds it.

    Attributes
    ----------
    folder : Path
        The folder under construction.
    resumed : bool
        Whether an earlier run left finished work here.
    """

    def __init__(self, folder: Path, descriptor: int, lines: list[Result]) -> None:
        self.folder, self._descriptor = folder, descriptor
        self._steps: dict[str, Result] = {}
        self._chunks: dict[str, list[Result]] = {}
        for line in lines:
            if "chunks" in line:
                self._chunks.setdefault(line["step"], []).extend(line["chunks"])
            else:
                self._steps[line["step"]] = line["result"]
        self.resumed = bool(lines)

    @classmethod
    def open_or_resume(cls, folder: Path, identity: Mapping[str, object]) -> Journal:
        """Start work in `folder`, or go on with what an earlier run of the same work left there.

        Parameters
        ----------
        folder : Path
            Made when missing.
        identity : mapping of str to JSON values
            What the work is made of: sources, settings, versions. Work with another identity is never
            continued.

        Raises
        ------
        UnfinishedWorkError
            The folder holds other work, or another process is at it, or it was not made by this program.
        """
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / JOURNAL_NAME
        if not path.exists() and any(folder.iterdir()):
            raise UnfinishedWorkError(str(folder), "it holds files but no journal", "Move it away")
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UnfinishedWorkError(
                    str(folder), "another process is working in it", "Wait for it, or stop it"
                ) from None
            wanted = json.loads(json.dumps(identity))
            lines = _whole_lines(descriptor)
            if lines:
                _require_same(folder, lines[0]["identity"], wanted)
                return cls(folder, descriptor, lines[1:])
            journal = cls(folder, descriptor, [])
            journal._append({"identity": wanted})
            flush_folder(folder)
            return journal
        except BaseException:
            os.close(descriptor)
            raise

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let another process have the folder."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def result(self, step: str) -> Result | None:
        """What :meth:`record` was given for `step`, or None when it is not finished."""
        return self._steps.get(step)

    def record(self, step: str, result: Result) -> Result:
        """Mark `step` finished. The files it made must have been flushed."""
        self._append({"step": step, "result": result})
        self._steps[step] = result
        return result

    def chunks(self, step: str) -> list[Result]:
        """Results of the chunks 0, 1, … of `step` that are finished."""
        return list(self._chunks.get(step, []))

    def record_chunks(self, step: str, results: list[Result]) -> None:
        """Mark the next ``len(results)`` chunks of `step` finished. Their bytes must have been flushed."""
        self._append({"step": step, "chunks": results})
        self._chunks.setdefault(step, []).extend(results)

    def _append(self, line: Result) -> None:
        data = (json.dumps(line, separators=(",", ":")) + "\n").encode()
        written = os.write(self._descriptor, data)
        if written != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.folder / JOURNAL_NAME))
        os.fsync(self._descriptor)


def publish(folder: Path, final: Path, *, replace: bool) -> None:
    """Give the finished `folder` its name, and flush that to the disk.

    With `replace`, an older `final` is moved aside (``<name>.replaced``) first and deleted afterwards; killed
    in between, the next run of the same work finishes the exchange.
    """
    flush_folder(folder)
    if replace and final.exists():
        os.rename(final, _replaced_folder(final))
    os.rename(folder, final)
    flush_folder(final.parent)
    clear_leftovers(final)


def clear_leftovers(final: Path) -> None:
    """Delete what a run that was killed while it published `final` did not get to delete."""
    (final / JOURNAL_NAME).unlink(missing_ok=True)
    if _replaced_folder(final).exists():
        shutil.rmtree(_replaced_folder(final))


def _replaced_folder(final: Path) -> Path:
    return final.with_name(final.name + ".replaced")


def flush_folder(folder: Path) -> None:
    """Make the names in `folder` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _whole_lines(descriptor: int) -> list[Result]:
    """The journal's lines; a torn last one is cut off the file."""
    data = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) != len(data):
        LOGGER.warning("dropping a journal line that a crash tore")
        os.ftruncate(descriptor, len(whole))
    return [json.loads(line) for line in whole.splitlines()]


def _require_same(folder: Path, found: Result, wanted: Result) -> None:
    for key in sorted(found.keys() | wanted.keys()):
        if found.get(key) != wanted.get(key):
            raise UnfinishedWorkError(
                str(folder),
                f"it holds unfinished work whose {key} is {found.get(key)!r}, not {wanted.get(key)!r}",
                "Run it with the old settings to finish it, or delete the folder to start anew",
            )
