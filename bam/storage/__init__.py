"""Engines and their wrappers: what moves bytes from files into memory."""

from bam.storage.engine import Engine, EngineInfo, EngineKind, FileInfo, ReadSpan
from bam.storage.fault import FaultCount, FaultEngine, FaultKind, FaultRule, NativeFaultEngine
from bam.storage.file import FileEngine, NativeFileEngine
from bam.storage.latency import LatencyEngine, LognormalLatency, PercentileLatency, SsdModel
from bam.storage.memory import MemoryEngine, NativeMemoryEngine
from bam.storage.monitored import MonitoredEngine, MonitorSnapshot
from bam.storage.native import NativeEngine
from bam.storage.open import open_engine
from bam.storage.span_reader import RangeReads, read_ranges
from bam.storage.striped import StripedEngine
from bam.storage.uring import UringEngine, UringFeature

__all__ = [
    "Engine",
    "EngineInfo",
    "EngineKind",
    "FaultCount",
    "FaultEngine",
    "FaultKind",
    "FaultRule",
    "FileEngine",
    "FileInfo",
    "LatencyEngine",
    "LognormalLatency",
    "MemoryEngine",
    "MonitorSnapshot",
    "MonitoredEngine",
    "NativeEngine",
    "NativeFaultEngine",
    "NativeFileEngine",
    "NativeMemoryEngine",
    "PercentileLatency",
    "RangeReads",
    "ReadSpan",
    "SsdModel",
    "StripedEngine",
    "UringEngine",
    "UringFeature",
    "open_engine",
    "read_ranges",
]
