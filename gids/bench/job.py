"""What one loader is to do in a process of its own, as a file that the process reads."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from gids.config.read import as_table, run_config
from gids.config.sections import RunConfig


class JobKind(Enum):
    """``TIME``: deliver and train while the clock runs, then verify. ``VERIFY``: hash what is delivered.
    ``BELADY``: find out how few reads a run could have done with. ``BOUNDS``: what a step takes at least."""

    TIME = "time"
    VERIFY = "verify"
    BELADY = "belady"
    BOUNDS = "bounds"


@dataclass(frozen=True)
class Job:
    """One loader's work.

    Attributes
    ----------
    kind : JobKind
    loader : str
    steps, verify_steps : int
        Mini-batches that are timed, and whose every byte is hashed.
    config : RunConfig
    root : str
        Folder that all data sets are below.
    work : str
        Folder for files of this benchmark.
    recorded : str
        Folder of recorded mini-batches; empty: the loader samples.
    cache_lines, misses : int
        Of the run that ``BELADY`` looks at.
    """

    kind: JobKind
    loader: str
    steps: int
    verify_steps: int
    config: RunConfig
    root: str
    work: str
    recorded: str = ""
    cache_lines: int = 0
    misses: int = 0

    def write(self, path: Path) -> None:
        """Write the job for the process."""
        table = {**asdict(self), "kind": self.kind.value, "config": as_table(self.config)}
        path.write_text(json.dumps(table))

    @classmethod
    def read(cls, path: Path) -> Job:
        """The job that a file holds."""
        table: dict[str, Any] = json.loads(path.read_text())
        return cls(**{**table, "kind": JobKind(table["kind"]), "config": run_config(table["config"])})
