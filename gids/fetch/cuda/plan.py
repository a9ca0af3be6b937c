"""Where the features of a mini-batch lie that was sampled for a GPU."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from gids.fetch.accumulator import GroupMember
from gids.sampling.tensor_batch import TensorBatch


@dataclass(frozen=True, eq=False)
class GpuPlan:
    """Where the features of a mini-batch lie. Tensors were made on the stream that samples.

    Attributes
    ----------
    batch : TensorBatch
    rows : int64 tensor
        Of all tables, in the store's order.
    firsts : tuple of int
        Where the rows of each table begin; then their end.
    out_rows : int64 tensor, optional
        Place of each row among those of its table in the mini-batch; None: rows are in its order.
    pages : int64 tensor, optional
        Rising; None where nothing is looked ahead for.
    member : GroupMember
        Pages that are to be read, as :meth:`gids.fetch.cuda.grouping.Grouping.sampled`, on the host, where
        mini-batches are read together; else none.
    ready : object
        Mark after all of it.
    """

    batch: TensorBatch
    rows: torch.Tensor
    firsts: tuple[int, ...]
    out_rows: torch.Tensor | None
    pages: torch.Tensor | None
    member: GroupMember
    ready: object

    @property
    def n_pages(self) -> int:
        """Pages of its rows; one that several rows lie in counts for each."""
        return 0 if self.pages is None else len(self.pages)

    @property
    def feature_bytes(self) -> int:
        """Memory of its features."""
        return self.member.feature_bytes

    def part(self, values: torch.Tensor, table: int) -> torch.Tensor:
        """Those of `values`, one for each row, that are of this table."""
        return values[self.firsts[table] : self.firsts[table + 1]]
