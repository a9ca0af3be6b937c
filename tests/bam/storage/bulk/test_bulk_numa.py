"""Cores next to a disk and a GPU, on machines made of files."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from bam.storage.bulk.numa import Placement, core_list, find_placement

GPU = "0000:3B:00.0"
ALL = frozenset(range(16))


@pytest.fixture
def sys(tmp_path: Path) -> Path:
    """Two nodes of 8 cores in the usual order (each has two ranges); no disk yet."""
    for node, cores in enumerate(("0-3,8-11", "4-7,12-15")):
        folder = tmp_path / "sys" / "devices" / "system" / "node" / f"node{node}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(cores + "\n")
    return tmp_path / "sys"


@pytest.fixture
def data(tmp_path: Path) -> str:
    (tmp_path / "data.bin").write_bytes(b"x")
    return str(tmp_path / "data.bin")


def number_of(file: str) -> str:
    device = os.stat(file).st_dev
    return f"{os.major(device)}:{os.minor(device)}"


def nvme_disk(sys: Path, name: str, node: int, number: str, partition: bool = False) -> None:
    """As the kernel lays it out: the controller says the node, the partition lies in the disk's folder."""
    controller = sys / "devices" / "pci0000:00" / f"0000:0{node + 1}:00.0" / "nvme" / f"{name[:-2]}"
    disk = controller / name
    disk.mkdir(parents=True)
    (controller / "numa_node").write_text(f"{node}\n")
    (disk / "device").symlink_to(controller)
    block = disk
    if partition:
        block = disk / f"{name}p1"
        block.mkdir()
        (block / "partition").write_text("1\n")
    (block / "dev").write_text(number + "\n")
    by_number = sys / "dev" / "block"
    by_number.mkdir(parents=True, exist_ok=True)
    (by_number / number).symlink_to(block)


def gpu_on(sys: Path, node: int) -> None:
    folder = sys / "bus" / "pci" / "devices" / GPU.lower()
    folder.mkdir(parents=True)
    (folder / "numa_node").write_text(f"{node}\n")


@pytest.mark.parametrize("partition", [False, True])
def test_threads_run_next_to_the_disk(sys: Path, data: str, partition: bool) -> None:
    nvme_disk(sys, "nvme0n1", 1, number_of(data), partition)
    found = find_placement([data], allowed=ALL, sys=sys)
    assert found.cores == {4, 5, 6, 7, 12, 13, 14, 15}
    assert found.note == "threads run on cores 4-7,12-15: nvme0n1 on NUMA node 1"


def test_of_a_disk_that_is_no_nvme_the_controller_further_out_says_it(sys: Path, data: str) -> None:
    controller = sys / "devices" / "pci0000:00" / "0000:00:02.0"
    disk = controller / "virtio1" / "block" / "vda"
    disk.mkdir(parents=True)
    (controller / "numa_node").write_text("0\n")
    (sys / "dev" / "block").mkdir(parents=True)
    (sys / "dev" / "block" / number_of(data)).symlink_to(disk)
    assert find_placement([data], allowed=ALL, sys=sys).cores == {0, 1, 2, 3, 8, 9, 10, 11}


def test_of_a_volume_all_disks_count(sys: Path, data: str) -> None:
    nvme_disk(sys, "nvme0n1", 0, "259:0")
    nvme_disk(sys, "nvme1n1", 1, "259:1")
    volume = sys / "devices" / "virtual" / "block" / "md0"
    (volume / "slaves").mkdir(parents=True)
    for number in ("259:0", "259:1"):
        block = (sys / "dev" / "block" / number).resolve()
        (volume / "slaves" / block.name).symlink_to(block)
    (sys / "dev" / "block" / number_of(data)).symlink_to(volume)
    found = find_placement([data], allowed=ALL, sys=sys)
    assert found.cores == ALL
    assert "nvme0n1 on NUMA node 0, nvme1n1 on NUMA node 1" in found.note


def test_the_gpu_takes_part(sys: Path, data: str) -> None:
    nvme_disk(sys, "nvme0n1", 0, number_of(data))
    gpu_on(sys, 0)
    found = find_placement([data], GPU, allowed=frozenset({1, 2, 5}), sys=sys)
    assert found.cores == {1, 2}
    assert f"GPU {GPU} on NUMA node 0" in found.note


def test_why_not(sys: Path, data: str) -> None:
    assert "names no NUMA node" in find_placement([data], allowed=ALL, sys=sys).note
    gpu_on(sys, -1)  # as the kernel says where it does not know
    assert find_placement([data], GPU, allowed=ALL, sys=sys).cores == frozenset()
    nvme_disk(sys, "nvme0n1", 1, number_of(data))
    found = find_placement([data], allowed=frozenset({0, 1}), sys=sys)
    assert found.cores == frozenset()
    assert "may not use" in found.note
    (sys / "devices" / "system" / "node" / "node1" / "cpulist").write_text("\n")  # memory alone
    assert "one NUMA node only" in find_placement([data], allowed=ALL, sys=sys).note


def test_only_the_thread_that_asks_is_pinned() -> None:
    mine = os.sched_getaffinity(0)
    last = max(mine)
    seen: list[set[int]] = []

    def run() -> None:
        Placement(frozenset({last})).pin_this_thread()
        seen.append(os.sched_getaffinity(0))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [{last}]
    assert os.sched_getaffinity(0) == mine
    Placement().pin_this_thread()
    assert os.sched_getaffinity(0) == mine


def test_cores_as_text() -> None:
    assert core_list(frozenset({0, 1, 2, 8, 10, 11})) == "0-2,8,10-11"
    assert core_list(frozenset()) == ""
