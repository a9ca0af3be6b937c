"""Rows of arrays that do not fit in memory, read from files at the disk's own speed."""

from bam.array.device import DeviceArray, DeviceGather
from bam.array.device_group import DeviceGroup
from bam.array.engine_sources import EngineSource, NvmeSource
from bam.array.load import LoadedArray, load_array
from bam.array.open import open_array
from bam.array.open_group import open_group
from bam.array.sources import (
    ConcatenatedSource,
    FileSource,
    MemorySource,
    NpySource,
    RawSource,
    Source,
    StripedSource,
)
from bam.array.virtual import VirtualArray
from bam.cache.device.settings import GpuSettings
from bam.cache.shared import SharedCache
from bam.errors import (
    BamError,
    ClosedError,
    ConfigError,
    DriveUnavailable,
    EngineUnavailable,
    FileChangedError,
    ForkedError,
    NativeLibraryMissing,
    NvmeStatusError,
    RowIndexTypeError,
    RowOutOfRange,
    SourceError,
    StorageError,
    TruncatedFileError,
    WaitTimeout,
)
from bam.stats import ArrayInfo, ReaderStats
from bam.storage.bulk.path import BulkPath, BulkPathKind
from bam.storage.bulk.reader import BulkReport
from bam.storage.bulk.settings import BulkEngineKind, BulkSettings

__version__ = "0.1.0"

__all__ = [
    "ArrayInfo",
    "BamError",
    "BulkEngineKind",
    "BulkPath",
    "BulkPathKind",
    "BulkReport",
    "BulkSettings",
    "ClosedError",
    "ConcatenatedSource",
    "ConfigError",
    "DeviceArray",
    "DeviceGather",
    "DeviceGroup",
    "DriveUnavailable",
    "EngineSource",
    "EngineUnavailable",
    "FileChangedError",
    "FileSource",
    "ForkedError",
    "GpuSettings",
    "LoadedArray",
    "MemorySource",
    "NativeLibraryMissing",
    "NpySource",
    "NvmeSource",
    "NvmeStatusError",
    "RawSource",
    "ReaderStats",
    "RowIndexTypeError",
    "RowOutOfRange",
    "SharedCache",
    "Source",
    "SourceError",
    "StorageError",
    "StripedSource",
    "TruncatedFileError",
    "VirtualArray",
    "WaitTimeout",
    "__version__",
    "load_array",
    "open_array",
    "open_group",
]
