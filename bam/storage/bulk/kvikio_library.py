"""Loads kvikio, where it can work: without a CUDA driver some of its calls never return."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from bam.errors import EngineUnavailable, WaitTimeout
from bam.storage.bulk.path import CompatMode
from bam.storage.bulk.settings import BulkSettings

_REMEDY = "Use engine='native', or "


class _Use:
    """kvikio's settings and threads are the process's: one bulk read at a time has them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.left_behind = False


_in_use = _Use()


class KvikioLibrary:
    """The module `kvikio`, with its settings changed for the time of a read only.

    Parameters
    ----------
    module : module, optional
        By default the one that is installed.

    Raises
    ------
    EngineUnavailable
        It is not installed, or cannot work here.
    """

    def __init__(self, module: Any = None) -> None:
        self._module = load_kvikio() if module is None else module

    def compat_mode(self) -> CompatMode:
        """What the user told kvikio (KVIKIO_COMPAT_MODE, or ``kvikio.defaults``)."""
        mode = self._module.defaults.get("compat_mode")
        return CompatMode(str(getattr(mode, "name", mode)))

    def open(self, path: str) -> Any:
        """A `CuFile`; inside :meth:`configured`, whose compatibility mode it then has."""
        return self._module.CuFile(path, "r")

    @contextmanager
    def configured(self, settings: BulkSettings, *, to_gpu: bool, pin: Callable[[], None]) -> Iterator[None]:
        """Have kvikio work as the settings say, until the block is left.

        Parameters
        ----------
        settings : BulkSettings
        to_gpu : bool
            Else files are opened without cuFile, which has no part in reads to host memory.
        pin : callable
            Called in the thread that starts kvikio's threads, which run where that one does.
        """
        values: dict[str, Any] = {
            "task_size": settings.bytes_of_task,
            "auto_direct_io_read": settings.direct,
        }
        if not to_gpu:
            values["compat_mode"] = self._module.CompatMode.ON
        with _in_use.lock, self._module.defaults.set(values):
            if _in_use.left_behind:
                reason = "reads that timed out have not ended, and its threads are at them"
                raise EngineUnavailable("kvikio", reason, "Use engine='native', and check the disk")
            before = int(self._module.defaults.get("num_threads"))
            # In a thread of its own: setting their number starts the threads anew, with its affinity.
            _in_thread(lambda: self._start_threads(settings.threads, pin))
            try:
                yield
            except WaitTimeout:
                _in_use.left_behind = True  # what comes below would wait for them for ever
                raise
            finally:
                if not _in_use.left_behind:
                    # Waits for what they do, after an error too.
                    self._module.defaults.set("num_threads", before)

    def _start_threads(self, n_threads: int, pin: Callable[[], None]) -> None:
        pin()
        self._module.defaults.set("num_threads", n_threads)


def load_kvikio() -> Any:
    """The module.

    Raises
    ------
    EngineUnavailable
        There is no CUDA driver, or kvikio is not installed or cannot be loaded.
    """
    if reason := why_no_driver():
        raise EngineUnavailable("kvikio", reason, _REMEDY + "install a driver that sees a GPU")
    try:
        import kvikio
        import kvikio.defaults
    except Exception as error:  # what loads it finds libraries in ways of its own, with errors of its own
        raise EngineUnavailable(
            "kvikio",
            f"{type(error).__name__}: {error}",
            _REMEDY + "install the extra of your driver: cuda13 or cuda12 (kvikio needs Python 3.11)",
        ) from error
    return kvikio


def why_no_driver() -> str:
    """Why CUDA's driver library cannot be loaded; empty where it can."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return f"there is no CUDA driver ({error})"
    return ""


def _in_thread(work: Callable[[], None]) -> None:
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # raised by whoever waits for the thread
            errors.append(error)

    thread = threading.Thread(target=run, name="bam-bulk-kvikio-start")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
