"""What other processes run; light to import, because spawned ones import it anew."""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

import bam


def take_rows(array: bam.VirtualArray, results: Any) -> None:
    try:
        results.put(("rows", array[[3, 1, 3]], array.stats().gathers))
    except bam.BamError as error:
        results.put((type(error).__name__, str(error), 0))
    array.close()


def take_rows_for_ever(array: bam.VirtualArray, started: Any) -> None:
    while True:
        array[:]
        started.set()


def fork_and_end(path: str, reader: str) -> None:
    """Forks with the array open; both processes read it and leave it to the interpreter's shutdown."""
    logging.getLogger("bam").setLevel(logging.ERROR)
    array = bam.open_array(path, reader=reader)
    rows = array[:].tobytes()
    child = os.fork()
    print("same rows" if array[:].tobytes() == rows else "other rows", flush=True)
    if child:
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


if __name__ == "__main__":
    fork_and_end(*sys.argv[1:])
