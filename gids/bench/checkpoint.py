"""Where a training run is, on disk: whatever moment it is killed at, it goes on with equal losses.

`checkpoint.pt` is replaced as a whole; `losses.bin` grows, and what lies beyond the checkpoint is cut off
when the run goes on.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from gids.errors import UnfinishedWorkError
from gids.graph.chunked import disk_full_named
from gids.graph.journal import flush_folder

VERSION = 1
CHECKPOINT_NAME = "checkpoint.pt"
LOSSES_NAME = "losses.bin"
MODEL_NAME = "model.pt"


@dataclass
class RunState:
    """Everything the next step depends on, but for what lies in `losses.bin`.

    Attributes
    ----------
    settings : str
        Fingerprint of what the run depends on.
    epoch, batch : int
        The mini-batch that comes next.
    n_losses : int
        Steps done.
    resumed : int
        How often the run was taken up again.
    trainer : dict
        :meth:`gids.models.train.Trainer.state_dict`; empty before the first checkpoint.
    generator, device_generator : tensor, optional
        States of torch's generators: the CPU's, and that of the GPU which trains.
    times : dict of str to float
        Seconds of the epoch under way.
    epochs : list of dict
        Results of finished epochs.
    best_epoch : int
    best_model : dict
        Weights after that epoch; empty before the first.
    """

    settings: str
    epoch: int = 0
    batch: int = 0
    n_losses: int = 0
    resumed: int = 0
    trainer: dict[str, Any] = field(default_factory=dict)
    generator: torch.Tensor | None = None
    device_generator: torch.Tensor | None = None
    times: dict[str, float] = field(default_factory=dict)
    epochs: list[dict[str, Any]] = field(default_factory=list)
    best_epoch: int = 0
    best_model: dict[str, Any] = field(default_factory=dict)


def fingerprint(settings: Mapping[str, Any]) -> str:
    """Of plain values."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


class RunFolder:
    """The folder of one training run.

    Parameters
    ----------
    path : path
        Made if it is not there.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.path.mkdir(parents=True, exist_ok=True)

    def load(self, settings: str) -> RunState:
        """The state to go on from; a new one where there is none.

        Raises
        ------
        UnfinishedWorkError
            The folder is of a run with other settings, or its checkpoint cannot be read.
        """
        file = self.path / CHECKPOINT_NAME
        if not file.exists():
            (self.path / LOSSES_NAME).unlink(missing_ok=True)
            return RunState(settings)
        remedy = "Train into another folder, or delete this one"
        try:
            stored = torch.load(file, weights_only=True)
        except Exception as error:
            reason = f"{CHECKPOINT_NAME} cannot be read ({error})"
            raise UnfinishedWorkError(str(self.path), reason, remedy) from error
        version = stored.pop("version", None)
        if version != VERSION or stored["settings"] != settings:
            reason = "it holds a run with other settings, data or loader"
            raise UnfinishedWorkError(str(self.path), reason, remedy)
        state = RunState(**stored)
        losses = self.path / LOSSES_NAME
        if state.n_losses and losses.stat().st_size < 8 * state.n_losses:
            reason = f"{LOSSES_NAME} holds fewer than the {state.n_losses} losses of the checkpoint"
            raise UnfinishedWorkError(str(self.path), reason, remedy)
        if losses.exists():
            os.truncate(losses, 8 * state.n_losses)
        state.resumed += 1
        return state

    def save(self, state: RunState, new_losses: Sequence[float]) -> None:
        """Write a checkpoint; `new_losses` are those since the last one, which `state` counts already.

        Raises
        ------
        DiskFullError
            The checkpoint before is whole, and a run goes on from it.
        """
        file = self.path / LOSSES_NAME
        values = np.array(new_losses, np.float64).tobytes()
        with disk_full_named(file, len(values)), open(file, "ab") as stream:
            stream.write(values)
            stream.flush()
            os.fsync(stream.fileno())
        self._replace(CHECKPOINT_NAME, {"version": VERSION, **vars(state)})

    def save_model(self, weights: Mapping[str, Any]) -> None:
        """Write the weights of the best epoch: at any moment the file is whole, or not there."""
        self._replace(MODEL_NAME, weights)

    def _replace(self, name: str, content: Mapping[str, Any]) -> None:
        # Not straight into the file: torch would tell of a full disk without saying so.
        written = io.BytesIO()
        torch.save(content, written)
        partial = self.path / (name + ".partial")
        with disk_full_named(partial, written.getbuffer().nbytes), open(partial, "wb") as file:
            file.write(written.getbuffer())
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self.path / name)
        flush_folder(self.path)

    def losses(self) -> npt.NDArray[np.float64]:
        """Losses of all steps that a checkpoint holds."""
        file = self.path / LOSSES_NAME
        return np.fromfile(file, np.float64) if file.exists() else np.empty(0)
