"""The sections of a configuration file."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from bam.config import EngineKind, PolicyKind, parse_bytes
from bam.errors import ConfigError
from gids.errors import did_you_mean
from gids.fetch.accumulator import accumulate_bytes
from gids.fetch.constant_buffer import parse_share
from gids.fetch.device_model import PEAK_SHARE, USUAL_SSD, SsdFacts
from gids.fetch.foresight import parse_foresight
from gids.fetch.window_size import parse_window
from gids.graph.convert_options import ConvertOptions, Reorder
from gids.graph.feature_types import FeatureDtype
from gids.graph.relations import GraphOptions
from gids.models.config import ModelConfig, SamplingConfig, TrainConfig

#: The loaders `gids bench e2e` compares; see :mod:`gids.bench.loaders`.
LOADER_NAMES = ("gids", "dgl-mmap", "dgl-mmap-128k", "dgl-mmap-tuned", "pyg-mmap", "in-memory", "on-device")
#: Those it compares where nobody says which.
USUAL_LOADERS = ("gids", "dgl-mmap", "dgl-mmap-128k", "dgl-mmap-tuned", "in-memory")
#: Where mini-batches are handed out and models train: `cpu`, `cuda`, or one GPU of several.
_DEVICE = re.compile(r"cpu|cuda(:\d+)?")


@dataclass(frozen=True)
class DataConfig:
    """Which data set; folders are below the data folder (``--data``).

    Attributes
    ----------
    name : str
        ``igbh`` (a folder with `processed`, or a store), or a reader in :mod:`gids.graph.real`.
    folder, task : str
        IGBH's tasks are ``19`` and ``2983``.
    split : str
        ``igb``, ``mlperf`` or ``files``; empty: the one that came with the data, else ``igb``.
    split_seed : int
        Of published sets that are split at random.
    store : str
        Store of an IGBH folder that `gids prepare` makes; the gids loader reads it, the others read the
        folder. Empty: every loader reads the folder.
    dtype, reorder : FeatureDtype, Reorder
        Of that store.
    symmetric_cites : bool
        See :class:`gids.graph.relations.GraphOptions`.
    synth_scale : str
        `gids prepare` makes a synthetic folder of this scale where there is none; empty: it does not.
    synth_seed, synth_dim : int
    """

    folder: str
    task: str
    name: str = "igbh"
    split: str = ""
    split_seed: int = 0
    store: str = ""
    dtype: FeatureDtype = FeatureDtype.FLOAT32
    reorder: Reorder = Reorder.HOT
    symmetric_cites: bool = False
    synth_scale: str = ""
    synth_seed: int = 0
    synth_dim: int = 1024

    def __post_init__(self) -> None:
        if self.split not in ("", "igb", "mlperf", "files"):
            raise ConfigError("split", self.split, "'igb', 'mlperf', 'files', or '' for the default")
        _require("synth_dim", self.synth_dim, 1)
        for name in ("split_seed", "synth_seed"):
            _require(name, getattr(self, name), 0)

    @property
    def convert_options(self) -> ConvertOptions:
        """How `gids prepare` makes the store."""
        return ConvertOptions(self.dtype, self.reorder, self.graph_options)

    @property
    def graph_options(self) -> GraphOptions:
        """How edges become a graph."""
        return GraphOptions(symmetric_cites=self.symmetric_cites)


@dataclass(frozen=True)
class LoaderConfig:
    """Settings of :class:`gids.loader.loader.DataLoader`; see there.

    Attributes
    ----------
    device : str
        ``cpu``, ``cuda`` or ``cuda:N``: where features are handed out, by every loader, and the model trains.
    cache, cpu_buffer : int, float or str
        Bytes, a size (``"8GiB"``) or a share of the features (``"20%"``); cache also ``"auto"``.
    window, foresight, prefetch, page_bytes, queue_depth : int
    gpu_staging : str
    gpu_host_threads, gpu_read_depth : int
        Of a GPU's read path, see :class:`bam.GpuSettings`; empty and 0: its defaults.
    engine : EngineKind
    policy : str
        Empty: ``look_ahead_global``, or ``clock`` without a window.
    accumulate : int or str
        Bytes that may be read together; 0: each mini-batch alone.
    contiguous : bool
    ssd_iops, ssd_latency_us : float
        Of one SSD, in place of what was measured; 0: as measured.
    n_ssd : int
    peak_share : float
    calibration : str
        Folder of what `gids calibrate` measured; empty: the data set's.
    sampler_threads : int
    """

    device: str = "cpu"
    cache: int | float | str = "auto"
    cpu_buffer: int | float | str = 0
    window: int | str = 8
    foresight: int | str = "auto"
    prefetch: int = 1
    page_bytes: int = 4096
    queue_depth: int = 256
    gpu_staging: str = ""
    gpu_host_threads: int = 0
    gpu_read_depth: int = 0
    engine: EngineKind = EngineKind.AUTO
    policy: str = ""
    accumulate: int | str = "auto"
    contiguous: bool = True
    ssd_iops: float = 0.0
    ssd_latency_us: float = 0.0
    n_ssd: int = 1
    peak_share: float = PEAK_SHARE
    calibration: str = ""
    sampler_threads: int = 1

    def __post_init__(self) -> None:
        if not _DEVICE.fullmatch(self.device):
            raise ConfigError("device", self.device, "'cpu', 'cuda', or 'cuda:0' and so on")
        accumulate_bytes(self.accumulate)
        if (self.ssd_iops > 0) != (self.ssd_latency_us > 0):
            raise ConfigError("ssd_iops", self.ssd_iops, "a number together with ssd_latency_us, or neither")
        (self.ssd or USUAL_SSD).reads_needed(self.peak_share)
        if self.cache != "auto":
            parse_share(self.cache, 0, "cache")
        if self.cpu_buffer != "auto":
            parse_share(self.cpu_buffer, 0, "cpu_buffer")
        parse_window(self.window, 0)
        parse_foresight(self.foresight, 0)
        if self.gpu_staging:
            parse_bytes(self.gpu_staging, "gpu_staging")
        for name in ("gpu_host_threads", "gpu_read_depth"):
            _require(name, getattr(self, name), 0)
        for name in ("prefetch", "queue_depth", "sampler_threads"):
            _require(name, getattr(self, name), 1)
        if self.page_bytes not in [2**power for power in range(9, 17)]:
            raise ConfigError("page_bytes", self.page_bytes, "a power of two from 512 to 65536")
        if self.policy not in ("", *(kind.value for kind in PolicyKind)):
            raise ConfigError(
                "policy", self.policy, ", ".join(repr(kind.value) for kind in PolicyKind) + ", or ''"
            )

    @property
    def ssd(self) -> SsdFacts | None:
        """The SSD that was described, if one was."""
        return SsdFacts(self.ssd_iops, self.ssd_latency_us, self.n_ssd) if self.ssd_iops else None


@dataclass(frozen=True)
class BenchConfig:
    """What `gids bench e2e` does; its options on the command line go first.

    Attributes
    ----------
    loaders : tuple of str
    steps : int
        Mini-batches each loader delivers.
    max_seconds : int
        A loader that takes longer stops early, and its result says after how many steps; 0: none does.
    verify_steps : int
        Mini-batches whose every byte is compared between loaders; -1: all.
    memory_limit : str
        Of each loader's process, its page cache included, such as ``"1GiB"``; empty: none.
    memory_balloon : bool
        Where no control group can be made, let a process take the rest of the machine's memory.
    cold, warm : bool
        Begin with nothing in the page cache; deliver all mini-batches once before the clock starts.
    train, same_batches : bool
        Run the training step on every mini-batch; give every loader the same recorded mini-batches.
    threads : int
        Of torch, DGL and OpenMP, for every loader; 0: one per core.
    dgl_workers : int
        Sampling processes of DGL's loader.
    tuned_threads : int
        Threads that touch pages in ``dgl-mmap-tuned``.
    """

    loaders: tuple[str, ...] = USUAL_LOADERS
    steps: int = 100
    max_seconds: int = 900
    verify_steps: int = -1
    memory_limit: str = ""
    memory_balloon: bool = False
    cold: bool = False
    warm: bool = False
    train: bool = True
    same_batches: bool = False
    threads: int = 0
    dgl_workers: int = 0
    tuned_threads: int = 16

    def __post_init__(self) -> None:
        for name in self.loaders:
            if name not in LOADER_NAMES:
                raise ConfigError("loaders", name, f"names of loaders; {did_you_mean(name, LOADER_NAMES)}")
        if not self.loaders or len(set(self.loaders)) != len(self.loaders):
            raise ConfigError("loaders", list(self.loaders), "at least one loader, none twice")
        for name, low in (("steps", 1), ("tuned_threads", 1), ("threads", 0), ("dgl_workers", 0)):
            _require(name, getattr(self, name), low)
        _require("max_seconds", self.max_seconds, 0)
        _require("verify_steps", self.verify_steps, -1)
        if self.cold and self.warm:
            raise ConfigError("warm", True, "false where cold is true")
        if self.memory_limit:
            parse_bytes(self.memory_limit, "memory_limit")

    @property
    def memory_limit_bytes(self) -> int:
        """The limit in bytes; 0 for none."""
        return parse_bytes(self.memory_limit, "memory_limit") if self.memory_limit else 0


@dataclass(frozen=True)
class RunConfig:
    """One configuration file.

    Attributes
    ----------
    name : str
        By default the file's name without suffix.
    """

    data: DataConfig
    name: str = ""
    model: ModelConfig = field(default_factory=ModelConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    training: TrainConfig = field(default_factory=TrainConfig)
    loader: LoaderConfig = field(default_factory=LoaderConfig)
    bench: BenchConfig = field(default_factory=BenchConfig)

    def __post_init__(self) -> None:
        if len(self.sampling.fanouts) != self.model.layers:
            expected = f"{self.model.layers} numbers, one for each layer of the model"
            raise ConfigError("sampling.fanouts", list(self.sampling.fanouts), expected)


def _require(setting: str, value: int, low: int) -> None:
    if value < low:
        raise ConfigError(setting, value, f"a whole number from {low} on")
