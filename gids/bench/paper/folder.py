"""The folder of a comparison: a file for each run, so that calls on several machines add up to the whole."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gids.bench.checkpoint import fingerprint
from gids.bench.paper.regimes import Regime, Run
from gids.config.read import as_table
from gids.config.sections import RunConfig
from gids.errors import UnfinishedWorkError

VERSION = 2
SETTINGS_NAME = "comparison.json"
SESSIONS = "sessions"
STEP_NAME = "step.json"
FACTS_NAME = "facts.json"


class RunsFolder:
    """Results of finished runs.

    Parameters
    ----------
    path : path
        Made if it is not there.
    config : RunConfig
        What the comparison is of.

    Raises
    ------
    UnfinishedWorkError
        The folder is of a comparison with other settings.
    """

    def __init__(self, path: str | os.PathLike[str], config: RunConfig) -> None:
        self.path = Path(path)
        self.path.mkdir(parents=True, exist_ok=True)
        self.fingerprint = settings_fingerprint(config)
        file = self.path / SETTINGS_NAME
        if file.exists():
            if json.loads(file.read_text()).get("fingerprint") != self.fingerprint:
                reason = "it holds runs with other settings"
                raise UnfinishedWorkError(str(self.path), reason, "Take another folder, or delete this one")
        else:
            table = {"version": VERSION, "fingerprint": self.fingerprint, "config": as_table(config)}
            write_whole_json(file, table)

    def result(self, run: Run) -> dict[str, Any] | None:
        """What a run gave; None before it has ended."""
        return _read(self._run_file(run))

    def write(self, run: Run, result: Mapping[str, Any]) -> None:
        """Keep what a run gave."""
        write_whole_json(self._run_file(run), result)

    def forget_failures(self, runs: list[Run]) -> None:
        """Let runs that failed be made again."""
        for run in runs:
            if "failed" in (self.result(run) or {}):
                self._run_file(run).unlink()

    def step_bounds(self) -> dict[str, Any] | None:
        """What a step needs beside reading; None before it was measured."""
        return _read(self.path / STEP_NAME)

    def write_step_bounds(self, found: Mapping[str, Any]) -> None:
        """Keep what a step needs beside reading."""
        write_whole_json(self.path / STEP_NAME, found)

    def facts(self, regime: Regime) -> dict[str, Any] | None:
        """What is known of a regime apart from its runs: its bounds."""
        return _read(self.path / regime.name.value / FACTS_NAME)

    def write_facts(self, regime: Regime, facts: Mapping[str, Any]) -> None:
        """Keep what is known of a regime."""
        write_whole_json(self.path / regime.name.value / FACTS_NAME, facts)

    def sessions(self) -> list[dict[str, Any]]:
        """Of each call that ran something: machine, commit, command, the disk's ceilings."""
        files = sorted((self.path / SESSIONS).glob("*.json"))
        return [json.loads(file.read_text()) for file in files]

    def add_session(self, session: Mapping[str, Any]) -> int:
        """Keep what is known of this call; its number."""
        number = len(list((self.path / SESSIONS).glob("*.json")))
        write_whole_json(self.path / SESSIONS / f"{number:03}.json", session)
        return number

    def _run_file(self, run: Run) -> Path:
        return self.path / run.regime.name.value / f"{run.name}.{run.repetition}.json"


def settings_fingerprint(config: RunConfig) -> str:
    """Of all that results depend on: how long a run may take is no part of it."""
    table = as_table(config)
    table["bench"] = {key: table["bench"][key] for key in ("steps", "threads", "tuned_threads", "train")}
    return fingerprint({"version": VERSION, **table})


def write_whole_json(file: Path, content: Mapping[str, Any]) -> None:
    """At any moment the file is whole, or not there."""
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(file.name + ".partial")
    partial.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    partial.replace(file)


def _read(file: Path) -> dict[str, Any] | None:
    if not file.exists():
        return None
    found: dict[str, Any] = json.loads(file.read_text())
    return found
