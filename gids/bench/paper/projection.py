"""What the cost model says of a step: beside what was measured, and of IGBH-full, which was not run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from gids.bench.paper.regimes import CONSTANT_SHARE, FULL_FEATURE_BYTES, WINDOW_BUFFER_BYTES
from gids.bench.run_plan import PCIE_BYTES_PER_S
from gids.fetch.size_plan import BATCHES_IN_HAND
from gids.graph.igbh_facts import (
    LABELLED_TYPE,
    OPTIONAL_RELATIONS,
    PUBLISHED,
    PUBLISHED_DIM,
    REQUIRED_RELATIONS,
    IgbhSize,
)
from gids.graph.synth import EDGES_PER_PAPER

_ROW_BYTES = 4 * PUBLISHED_DIM


@dataclass(frozen=True)
class Drive:
    """An SSD as its maker describes such a one.

    Attributes
    ----------
    name : str
    iops, bytes_per_s : float
        Random reads of 4 KiB; sequential reads.
    """

    name: str
    iops: float
    bytes_per_s: float


#: A PCIe 5.0 drive with four lanes.
PCIE5_DRIVE = Drive("one PCIe 5.0 SSD, 3 M reads of 4 KiB a second, 12.5 GB/s", 3e6, 12.5e9)


def step_model(facts: Mapping[str, Any], measured_s: float) -> dict[str, Any]:
    """The model's step beside the measured one.

    Parameters
    ----------
    facts : mapping
        :func:`gids.bench.paper.bounds.measure_bounds`.
    measured_s : float
        A step of `gids` in the same regime.

    Returns
    -------
    dict
        ``predicted_s``: the longest of what goes on at the same time, reading at the calibrated cost of the
        reads that Belady's optimum leaves of groups of mini-batches, and its share of the training on the
        last group, beside which nothing is read; ``limited_by``; ``measured_s``; ``error``, signed, as a
        share of what was measured.
    """
    rate = facts["host_to_device_bytes_per_s"]
    parts = {
        "disk": facts["model"]["disk_s"],
        "copy": facts["copied_bytes"] / rate if rate else 0.0,
        "compute": facts["compute_s"],
        "sampling": facts["deliver_s"],
    }
    limited_by = max(parts, key=parts.__getitem__)
    rest_s = 0.0 if limited_by == "compute" else facts["compute_s"] * facts["model"]["batches_together"]
    predicted_s = parts[limited_by] + rest_s / facts["steps"]
    return {
        "predicted_s": predicted_s,
        "limited_by": limited_by,
        "measured_s": measured_s,
        "error": (predicted_s - measured_s) / measured_s,
        "storage": facts["model"]["storage"],
    }


def project(full: Mapping[str, Any], drive: Drive = PCIE5_DRIVE) -> dict[str, Any]:
    """IGBH-full itself, from what was measured in its regime.

    Two cases bracket it. ``few``: a step asks for as many rows as here, and window and cache keep as large a
    share as here. ``many``: every sampled edge brings another row, as in a graph so large that neighbours
    hardly meet, and only the constant buffer helps.

    Parameters
    ----------
    full : mapping
        The regime's result.
    drive : Drive
    """
    facts = full["facts"]
    pages = facts["pages"]
    constant = 1 - facts["pages_not_constant"] / pages
    few_rows = facts["rows"]
    many_rows = max(few_rows, facts["edges"])
    rate = facts["host_to_device_bytes_per_s"] or PCIE_BYTES_PER_S
    cases = {
        "few": _case(few_rows, constant, facts["optimal_pages"] / pages, facts, rate, drive),
        "many": _case(many_rows, constant, 1 - constant, facts, rate, drive),
    }
    batch_bytes = many_rows * _ROW_BYTES
    return {
        "drive": asdict(drive),
        "nodes": sum(PUBLISHED[IgbhSize.FULL].nodes.values()),
        "feature_bytes": FULL_FEATURE_BYTES,
        "constant_share_of_requests": constant,
        "gpu_bytes": WINDOW_BUFFER_BYTES + BATCHES_IN_HAND * batch_bytes,
        "constant_buffer_bytes": CONSTANT_SHARE * FULL_FEATURE_BYTES,
        "graph_bytes": _graph_bytes(),
        "cases": cases,
    }


def _case(
    rows: float, constant: float, missed: float, facts: Mapping[str, Any], rate: float, drive: Drive
) -> dict[str, Any]:
    """A step with this many rows, such shares of which are constant and read; a row of IGBH is a page."""
    reads = rows * missed
    parts = {
        "disk": max(reads / drive.iops, reads * _ROW_BYTES / drive.bytes_per_s),
        "copy": (rows * constant + reads) * _ROW_BYTES / rate,
        "compute": facts["compute_s"] * rows / facts["rows"],
        "sampling": facts["sampler_s"],
    }
    limited_by = max(parts, key=parts.__getitem__)
    return {
        "rows": rows,
        "reads": reads,
        "read_bytes": reads * _ROW_BYTES,
        "step_s": parts[limited_by],
        "limited_by": limited_by,
        **{f"{name}_s": seconds for name, seconds in parts.items()},
    }


def _graph_bytes() -> int:
    """IGBH-full's graph as it is held in memory: 4 bytes for an edge's source, 8 for a node of each relation.

    Citations once and with a loop for each paper, all other relations in both directions.
    """
    facts = PUBLISHED[IgbhSize.FULL]
    nodes, papers = facts.nodes, facts.nodes[LABELLED_TYPE]
    edges = dict(facts.edges) | {rel: int(papers * each) for rel, each in EDGES_PER_PAPER.items()}
    relations = [each for each in REQUIRED_RELATIONS + OPTIONAL_RELATIONS if each.src != each.dst]
    n_edges = edges["cites"] + papers + sum(2 * edges[each.rel] for each in relations)
    n_starts = papers + sum(nodes[each.src] + nodes[each.dst] for each in relations)
    return 4 * n_edges + 8 * n_starts
