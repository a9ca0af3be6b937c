"""Bulk reads: long ranges of a store into the host's or a GPU's memory."""

from bam.storage.bulk.memory import BulkMemory, HostMemory
from bam.storage.bulk.open import open_bulk_reader
from bam.storage.bulk.path import BulkPath, BulkPathKind
from bam.storage.bulk.reader import BulkRange, BulkReader, BulkReport
from bam.storage.bulk.settings import BulkEngineKind, BulkSettings

__all__ = [
    "BulkEngineKind",
    "BulkMemory",
    "BulkPath",
    "BulkPathKind",
    "BulkRange",
    "BulkReader",
    "BulkReport",
    "BulkSettings",
    "HostMemory",
    "open_bulk_reader",
]
