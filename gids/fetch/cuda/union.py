"""Rows of mini-batches that are read together: each row once, and where each mini-batch finds its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from gids.fetch.counts import FetchCounts
from gids.fetch.cuda.plan import GpuPlan
from gids.fetch.cuda.store import N_TIERS, GpuFeatureStore
from gids.fetch.shared_counts import divided


@dataclass(frozen=True, eq=False)
class RowUnion:
    """Distinct rows of some mini-batches. Tensors are on the stream that was current.

    Attributes
    ----------
    rows : int64 tensor
        Of all tables, in the store's order; those of a table rise.
    firsts : tuple of int
        Where the rows of each table begin; then their end.
    places : tuple of (tuple of int64 tensor)
        By table and mini-batch: place of each of its rows among those of the table.
    tiers : int64 tensor, shape (tables, mini-batches, N_TIERS)
        Rows of each, by where they are.
    """

    rows: torch.Tensor
    firsts: tuple[int, ...]
    places: tuple[tuple[torch.Tensor, ...], ...]
    tiers: torch.Tensor

    def divide(
        self, read: Mapping[str, torch.Tensor], store: GpuFeatureStore, batch: int
    ) -> dict[str, torch.Tensor]:
        """The features of one of the mini-batches, of those of the distinct rows; in memory of their own."""
        tables = zip(store.ordered, self.places, strict=True)
        return {table.name: read[table.name].index_select(0, places[batch]) for table, places in tables}

    def shares(self, read: Mapping[str, FetchCounts], store: GpuFeatureStore) -> list[dict[str, FetchCounts]]:
        """What each mini-batch cost, of what its distinct rows did; waits for the tensors.

        A row that several ask for counts as joined for all but one.
        """
        found: list[dict[str, FetchCounts]] = [{} for _ in self.places[0]] if self.places else []
        for table, tiers in zip(store.ordered, self.tiers.tolist(), strict=True):
            stored, pinned, resident = zip(*tiers, strict=True)  # in the order of Tier
            constant = [sum(each) for each in zip(pinned, resident, strict=True)]
            once = read[table.name]
            again = sum(stored) - once.rows_cache - once.rows_joined - once.rows_storage
            total = replace(
                once, rows_joined=once.rows_joined + again, bytes_useful=sum(stored) * table.row_bytes
            )
            parts = divided(total, stored, constant)
            for mine, part, n_resident in zip(found, parts, resident, strict=True):
                mine[table.name] = replace(part, rows_resident=n_resident)
        return found


def unite(plans: Sequence[GpuPlan], store: GpuFeatureStore) -> RowUnion:
    """Distinct rows of these mini-batches; on the current stream, which is waited for."""
    rows: list[torch.Tensor] = []
    places: list[tuple[torch.Tensor, ...]] = []
    tiers: list[torch.Tensor] = []
    for number, table in enumerate(store.ordered):
        parts = [plan.part(plan.rows, number) for plan in plans]
        lengths = [len(part) for part in parts]
        together = torch.cat(parts)
        found: Any = torch.unique(together, return_inverse=True)
        rows.append(found[0])
        orders = [None if plan.out_rows is None else plan.part(plan.out_rows, number) for plan in plans]
        divided_places = zip(found[1].split(lengths), orders, strict=True)
        places.append(tuple(_in_order(each, order) for each, order in divided_places))
        tiers.append(_counted(store.tiers_of(table, together), lengths))
    firsts = [0]
    for each in rows:
        firsts.append(firsts[-1] + len(each))
    return RowUnion(torch.cat(rows), tuple(firsts), tuple(places), torch.stack(tiers))


def _in_order(places: torch.Tensor, order: torch.Tensor | None) -> torch.Tensor:
    """Of rows that stand in another order than those of the mini-batch, in its own."""
    return places if order is None else torch.empty_like(places).scatter_(0, order, places)


def _counted(tiers: torch.Tensor, lengths: Sequence[int]) -> torch.Tensor:
    """How many of each mini-batch's rows are in which tier: shape (mini-batches, N_TIERS)."""
    n_batches, device = len(lengths), tiers.device
    repeats = torch.tensor(lengths, device=device)
    owner = torch.repeat_interleave(torch.arange(n_batches, device=device), repeats, output_size=len(tiers))
    counts = torch.zeros(n_batches * N_TIERS, dtype=torch.int64, device=device)
    return counts.scatter_add_(0, owner * N_TIERS + tiers, torch.ones_like(owner)).view(n_batches, N_TIERS)
