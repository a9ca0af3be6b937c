"""Figures of the GPU benchmark: a value beside the ceiling that the same run measured."""

from __future__ import annotations

import faulthandler
import logging
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

log = logging.getLogger(__name__)


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


def measured(
    measures: Mapping[str, Callable[[], dict[str, Figure]]], timeout_s: float
) -> Iterator[dict[str, Any]]:
    """Make each measurement; after each, give all `figures`, `errors` and `seconds` so far.

    They are as result files have them. One that fails does not keep the others from being made. One that
    takes longer than `timeout_s` ends the process, with the stack of every thread on stderr.
    """
    figures: dict[str, Any] = {}
    errors: dict[str, str] = {}
    seconds: dict[str, float] = {}
    for name, measure in measures.items():
        log.info("%s", name)
        begin = time.perf_counter()
        faulthandler.dump_traceback_later(timeout_s, exit=True)
        try:
            for key, figure in measure().items():
                notes = figure.notes or ""
                log.info(
                    "%-24s %10.2f %-14s ratio %.3f %s", key, figure.value, figure.unit, figure.ratio, notes
                )
                figures[key] = figure.as_json()
        except Exception as error:
            log.exception("%s failed", name)
            errors[name] = f"{type(error).__name__}: {error}"
        finally:
            faulthandler.cancel_dump_traceback_later()
        seconds[name] = round(time.perf_counter() - begin, 3)
        log.info("%s took %.1f s", name, seconds[name])
        yield {"figures": dict(figures), "errors": dict(errors), "seconds": dict(seconds)}
