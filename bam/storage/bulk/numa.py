"""Which cores are next to the disk and the GPU, and running threads there.

Sources: the kernel's documentation of sysfs (``numa_node`` of devices, ``cpulist`` of nodes),
sched_setaffinity(2).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_SYS = Path("/sys")


@dataclass(frozen=True)
class Placement:
    """Where reading threads run.

    Attributes
    ----------
    cores : frozenset of int
        Empty: anywhere.
    note : str
        Why there.
    """

    cores: frozenset[int] = frozenset()
    note: str = "threads run on any core"

    def pin_this_thread(self) -> None:
        """Run the calling thread, and those it starts, on the cores."""
        if self.cores:
            os.sched_setaffinity(0, self.cores)


def find_placement(
    files: Sequence[str], gpu: str = "", *, allowed: frozenset[int] | None = None, sys: Path = _SYS
) -> Placement:
    """Cores of the NUMA nodes that the disks under `files` and the GPU belong to.

    Parameters
    ----------
    files : sequence of str
    gpu : str
        PCI address; empty: none takes part.
    allowed : frozenset of int, optional
        Cores this process may use; by default as the kernel says.
    sys : Path
        Where sysfs is; for tests.
    """
    node_cores = _cores_of_nodes(sys)
    if len(node_cores) < 2:
        return Placement(note="threads run on any core: there is one NUMA node only")
    found: dict[str, int] = {}
    for device in {os.stat(file).st_dev for file in files if os.path.exists(file)}:
        found |= _nodes_of_disk(sys, f"{os.major(device)}:{os.minor(device)}")
    if gpu:
        found[f"GPU {gpu}"] = _number(sys / "bus" / "pci" / "devices" / gpu.lower() / "numa_node")
    known = {name: node for name, node in found.items() if node in node_cores}
    if not known:
        said = ", ".join(found) or "the files"
        return Placement(note=f"threads run on any core: the system names no NUMA node for {said}")
    may_use = frozenset(os.sched_getaffinity(0)) if allowed is None else allowed
    nodes: frozenset[int] = frozenset()
    cores = nodes.union(*(node_cores[node] for node in known.values())) & may_use
    where = ", ".join(f"{name} on NUMA node {node}" for name, node in sorted(known.items()))
    if not cores:
        return Placement(note=f"threads run on any core: {where}, whose cores this process may not use")
    return Placement(cores, f"threads run on cores {core_list(cores)}: {where}")


def core_list(cores: frozenset[int]) -> str:
    """Cores as text, with ranges: ``0-3,8``."""
    parts: list[list[int]] = []
    for core in sorted(cores):
        if parts and parts[-1][-1] == core - 1:
            parts[-1][1:] = [core]
        else:
            parts.append([core])
    return ",".join("-".join(map(str, part)) for part in parts)


def _cores_of_nodes(sys: Path) -> dict[int, frozenset[int]]:
    folder = sys / "devices" / "system" / "node"
    nodes = {}
    for entry in sorted(folder.glob("node[0-9]*")):
        cores = _parse_cores(_text(entry / "cpulist"))
        if cores:  # a node may have memory alone
            nodes[int(entry.name[4:])] = cores
    return nodes


def _nodes_of_disk(sys: Path, number: str) -> dict[str, int]:
    """NUMA node by name of each disk under a block device; volumes and RAIDs have several, below `slaves`."""
    block = (sys / "dev" / "block" / number).resolve()
    slaves = sorted((block / "slaves").glob("*"))
    if slaves:
        found: dict[str, int] = {}
        for slave in slaves:
            found |= _nodes_of_disk(sys, _text(slave / "dev"))
        return found
    if not block.is_dir():
        return {}
    # The disk of a partition is the folder around it; the node is said by its controller, further out.
    name = block.parent.name if (block / "partition").exists() else block.name
    for folder in (block / "device", *block.parents):
        file = folder / "numa_node"
        if file.exists():
            return {name: _number(file)}
        if folder == sys:
            break
    return {name: -1}


def _parse_cores(text: str) -> frozenset[int]:
    cores: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        cores.update(range(int(first), int(last or first) + 1))
    return frozenset(cores)


def _number(file: Path) -> int:
    text = _text(file)
    return int(text) if text.lstrip("-").isdigit() else -1


def _text(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""
