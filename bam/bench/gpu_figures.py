"""Figures of the GPU benchmark: a value beside the ceiling that the same run measured."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Figure:
    """`value` and `ceiling` in `unit`; `notes` are further numbers of the same measurement."""

    value: float
    unit: str
    ceiling: float
    notes: dict[str, float] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        """Share of the ceiling."""
        return self.value / self.ceiling

    def as_json(self) -> dict[str, Any]:
        """As result files have it."""
        return {
            "value": self.value,
            "unit": self.unit,
            "ceiling": self.ceiling,
            "ratio": self.ratio,
            **self.notes,
        }


def median(values: Sequence[float]) -> float:
    """Of repeated measurements."""
    return float(statistics.median(values))
