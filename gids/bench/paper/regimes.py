"""What is compared: regimes, the loaders in each, and the techniques of `gids` turned off one by one.

The published comparison (Park et al., "GIDS", VLDB 2024, and a drive maker's white paper on it) trains 100
steps of 512 seeds with a window buffer of 8 GB and a constant CPU buffer of 20 % of the features, on
IGBH-small and on IGBH-full. All sizes are shares of the features, so that they are the published ones on
IGBH-small, and in proportion on anything else: 8 GB are 62 % of IGBH-small's features. IGBH-full does not fit
on most machines; of its 2.24 TB 8 GB are 0.357 %, and that share of a smaller data set makes its regime.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from gids.config.sections import RunConfig
from gids.graph.igbh_facts import PUBLISHED, PUBLISHED_DIM, IgbhSize

#: Of the published comparison.
WINDOW_BUFFER_BYTES = 8 * 10**9
CONSTANT_SHARE = 0.20
_ROW_BYTES = 4 * PUBLISHED_DIM
#: Features, float32, of all node types.
FULL_FEATURE_BYTES = _ROW_BYTES * sum(PUBLISHED[IgbhSize.FULL].nodes.values())
#: The same of IGBH-small, which comes without journals and conferences.
SMALL_FEATURE_BYTES = _ROW_BYTES * sum(
    PUBLISHED[IgbhSize.SMALL].nodes[name] for name in ("paper", "author", "fos", "institute")
)


class RegimeName(Enum):
    """``SMALL_COLD``: nothing in memory at first. ``SMALL_STEADY``: everything has been delivered once.
    ``FULL``: memory as short as it is for IGBH-full on the published server."""

    SMALL_COLD = "small-cold"
    SMALL_STEADY = "small-steady"
    FULL = "full"


@dataclass(frozen=True)
class Regime:
    """One of the comparisons.

    Attributes
    ----------
    name : RegimeName
    title : str
    cold, warm : bool
        As :class:`gids.config.BenchConfig`.
    limited : bool
        Host memory, page cache included, is what the loader's process needs and the two shares below.
    cache_share, buffer_share : float
        Cache and constant buffer of `gids`, as shares of all features.
    published_hits : float
        Share of requests that the published loader found in its cache; 0: not published.
    loaders : tuple of str
    once : tuple of str
        Loaders so slow here that one repetition must do.
    """

    name: RegimeName
    title: str
    cold: bool
    warm: bool
    limited: bool
    cache_share: float
    buffer_share: float
    published_hits: float
    loaders: tuple[str, ...]
    once: tuple[str, ...] = ()

    def cache_bytes(self, features_bytes: int) -> int:
        """Of `gids`, for features of this size."""
        return int(self.cache_share * features_bytes)

    def buffer_bytes(self, features_bytes: int) -> int:
        """The same of its constant buffer."""
        return int(self.buffer_share * features_bytes)

    def applied(self, config: RunConfig, features_bytes: int) -> RunConfig:
        """The configuration of this regime's runs; a memory limit is set later."""
        cache, buffer = self.cache_bytes(features_bytes), self.buffer_bytes(features_bytes)
        loader = replace(config.loader, cache=cache, cpu_buffer=buffer)
        bench = replace(config.bench, cold=self.cold, warm=self.warm, same_batches=True, memory_balloon=True)
        return replace(config, loader=loader, bench=bench)


_MAPPED = ("dgl-mmap-tuned", "dgl-mmap-128k", "dgl-mmap", "pyg-mmap")

REGIMES: Mapping[RegimeName, Regime] = {
    regime.name: regime
    for regime in (
        Regime(
            RegimeName.SMALL_COLD,
            "IGBH-small, cold",
            cold=True,
            warm=False,
            limited=False,
            cache_share=WINDOW_BUFFER_BYTES / SMALL_FEATURE_BYTES,
            buffer_share=CONSTANT_SHARE,
            published_hits=0.77,
            loaders=("gids", *_MAPPED, "in-memory", "on-device"),
        ),
        Regime(
            RegimeName.SMALL_STEADY,
            "IGBH-small, steady state",
            cold=False,
            warm=True,
            limited=False,
            cache_share=1.25,  # sets of the cache fill unevenly: with room to spare every page stays
            buffer_share=0.0,
            published_hits=0.0,
            loaders=("gids", "dgl-mmap-tuned", "dgl-mmap", "pyg-mmap", "in-memory", "on-device"),
        ),
        Regime(
            RegimeName.FULL,
            "IGBH-full's regime",
            cold=True,
            warm=False,
            limited=True,
            cache_share=WINDOW_BUFFER_BYTES / FULL_FEATURE_BYTES,
            buffer_share=CONSTANT_SHARE,
            published_hits=0.10,
            loaders=("gids", "dgl-mmap-tuned", "dgl-mmap-128k", "dgl-mmap", "pyg-mmap", "in-memory"),
            once=("dgl-mmap", "pyg-mmap"),
        ),
    )
}

#: What `gids` runs without, by the name of the run. The last one has neither window nor constant buffer, nor
#: any other technique: how many of its requests hit says how short memory is.
TECHNIQUES: Mapping[str, Mapping[str, Any]] = {
    "gids-no-window": {"window": 0, "foresight": 0},
    "gids-no-foresight": {"foresight": 0},
    "gids-no-constant-buffer": {"cpu_buffer": 0},
    "gids-no-accumulator": {"accumulate": 0},
    "gids-no-merging": {"contiguous": False},
    "gids-none": {"window": 0, "foresight": 0, "cpu_buffer": 0, "accumulate": 0, "contiguous": False},
}


@dataclass(frozen=True)
class Run:
    """One loader, run once.

    Attributes
    ----------
    regime : Regime
    name : str
        Of a loader, or of a key of :data:`TECHNIQUES`.
    repetition, position : int
        Position among the runs of its repetition.
    """

    regime: Regime
    name: str
    repetition: int
    position: int

    @property
    def loader(self) -> str:
        """Which loader it is."""
        return "gids" if self.name in TECHNIQUES else self.name

    def config(self, config: RunConfig, features_bytes: int) -> RunConfig:
        """Its configuration."""
        applied = self.regime.applied(config, features_bytes)
        return replace(applied, loader=replace(applied.loader, **TECHNIQUES.get(self.name, {})))

    def __str__(self) -> str:
        return f"{self.regime.name.value} {self.name} {self.repetition + 1}"


def planned_runs(
    regimes: tuple[Regime, ...],
    repetitions: int,
    loaders: tuple[str, ...] = (),
    techniques: bool = True,
) -> list[Run]:
    """All runs, in order: each repetition goes through all regimes, its loaders rotated; techniques last.

    Parameters
    ----------
    regimes : tuple of Regime
    repetitions : int
    loaders : tuple of str
        Only these; empty: all of the regime.
    techniques : bool
        Whether those are turned off one by one, once each.
    """
    runs = []
    for repetition in range(repetitions):
        for regime in regimes:
            names = [each for each in regime.loaders if not loaders or each in loaders]
            first = repetition * len(names) // max(1, repetitions)
            turn = [*names[first:], *names[:first]]
            turn = [each for each in turn if repetition == 0 or each not in regime.once]
            runs += [Run(regime, name, repetition, position) for position, name in enumerate(turn)]
    if techniques:
        variants = [each for each in TECHNIQUES if not loaders or "gids" in loaders]
        # A warm loader reads nothing, so there is nothing that a technique could do.
        runs += [
            Run(regime, name, 0, len(regime.loaders) + position)
            for regime in regimes
            for position, name in enumerate(variants)
            if not regime.warm
        ]
    return runs
