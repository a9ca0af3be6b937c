"""NVMe drives that this process drives itself, by way of VFIO; see docs/nvme.md."""

from bam.storage.nvme.drive import NvmeDrive, open_drive
from bam.storage.nvme.engine import DriveFile, NvmeEngine
from bam.storage.nvme.host_controller import NvmeController
from bam.storage.nvme.settings import DataPointerKind, DriveSettings
from bam.storage.nvme.store import NvmeStore
from bam.storage.nvme.store_writer import write_store

__all__ = [
    "DataPointerKind",
    "DriveFile",
    "DriveSettings",
    "NvmeController",
    "NvmeDrive",
    "NvmeEngine",
    "NvmeStore",
    "open_drive",
    "write_store",
]
