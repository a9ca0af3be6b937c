"""What a drive sits on: registers, memory it may use, a sign when it goes away."""

from __future__ import annotations

from typing import Protocol

from bam.storage.nvme.dma import DmaSpace


class Device(Protocol):
    """What a drive needs of the thing it sits on; :class:`VfioDevice`, or a model of one."""

    space: DmaSpace
    interface: str

    def map_registers(self, n_bytes: int) -> int: ...
    def unmap_registers(self) -> None: ...
    def enable_bus_master(self) -> None: ...
    def removal_events(self) -> list[int]: ...
    def close(self) -> None: ...
