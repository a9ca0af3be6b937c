"""`docs/settings.md` lists every setting of the code, with its default, and nothing else."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

import bam
import gids
from bam import storage
from bam.cache.open import open_cache
from bam.config import EngineKind, PolicyKind, ReaderKind, StoreConfig
from bam.storage.controller import SoftwareController
from bam.storage.nvme import DriveSettings
from bam.storage.queue_server import ControllerSettings
from bam.storage.uring import DISABLE_VARIABLE
from gids.graph.convert_options import ConvertOptions
from gids.graph.relations import GraphOptions

REPOSITORY = Path(__file__).parents[2]
WRAPPER_SETTINGS = [
    "FaultRule",
    "LatencyEngine",
    "LognormalLatency",
    "NativeFaultEngine",
    "PercentileLatency",
    "SsdModel",
    "StripedEngine",
]
PAGE = (REPOSITORY / "docs" / "settings.md").read_text()


def documented(section: str) -> dict[str, str]:
    """Name and default of each row of the section's table, as text."""
    match = re.search(rf"^##+ {re.escape(section)}\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert match is not None, f"no section {section!r}"
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \|[^|]*\|[^|]*\|$", match[1], re.MULTILINE)
    return {name: default.strip("` ") for name, default in rows}


def as_text(default: object) -> str:
    """As the page writes it."""
    if default in (dataclasses.MISSING, inspect.Parameter.empty):
        return "required"
    if isinstance(default, Enum):
        default = default.value
    if isinstance(default, tuple):
        return str(default).replace("'", '"')
    if dataclasses.is_dataclass(default):
        kind = type(default)
        return f"{kind.__name__}()" if default == kind() else repr(default)
    return f'"{default}"' if isinstance(default, str) else repr(default)


def default_of(field: dataclasses.Field[Any]) -> object:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def settings_of(documented_object: Callable[..., Any]) -> dict[str, str]:
    """Fields of a dataclass, keyword-only parameters of anything else."""
    if dataclasses.is_dataclass(documented_object):
        return {field.name: as_text(default_of(field)) for field in dataclasses.fields(documented_object)}
    return {
        parameter.name: as_text(parameter.default)
        for parameter in inspect.signature(documented_object).parameters.values()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }


@pytest.mark.parametrize(
    ("section", "documented_object"),
    [
        ("bam.open_array", bam.open_array),
        ("bam.GpuSettings", bam.GpuSettings),
        ("bam.open_group", bam.open_group),
        ("bam.load_array", bam.load_array),
        ("bam.BulkSettings", bam.BulkSettings),
        ("bam.SharedCache", bam.SharedCache),
        ("bam.config.StoreConfig", StoreConfig),
        ("bam.storage.open_engine", storage.open_engine),
        ("bam.cache.open.open_cache", open_cache),
        ("bam.storage.SoftwareController", SoftwareController),
        ("bam.storage.queue_server.ControllerSettings", ControllerSettings),
        ("bam.storage.nvme.DriveSettings", DriveSettings),
        ("gids.DataLoader", gids.DataLoader),
        ("gids.NeighborSampler", gids.NeighborSampler),
        ("gids.LaborSampler", gids.LaborSampler),
        ("gids.DependentSampler", gids.DependentSampler),
        ("gids.CudaSampler", gids.CudaSampler),
        ("gids.graph.convert_options.ConvertOptions", ConvertOptions),
        ("gids.graph.relations.GraphOptions", GraphOptions),
        *[(f"bam.storage.{name}", getattr(storage, name)) for name in WRAPPER_SETTINGS],
    ],
)
def test_the_page_lists_what_the_code_has(section: str, documented_object: Callable[..., Any]) -> None:
    assert documented(section) == settings_of(documented_object)


def test_environment_variables() -> None:
    names = set(documented("Environment variables"))
    read_by_code = {
        name
        for folder in ("bam", "gids")
        for source in (REPOSITORY / folder).rglob("*.py")
        for name in re.findall(r'"((?:BAM|GIDS)_[A-Z_]+)"', source.read_text())
    }
    assert DISABLE_VARIABLE in read_by_code
    assert read_by_code <= names


def test_build_options() -> None:
    cmake = (REPOSITORY / "CMakeLists.txt").read_text()
    options = dict(re.findall(r'^option\((\w+) "[^"]*" (\w+)\)$', cmake, re.MULTILINE))
    assert documented("Build") == options


def test_every_policy_and_engine_is_named() -> None:
    page = documented_text("bam.open_array")
    for kind in (EngineKind, PolicyKind, ReaderKind):
        for member in kind:
            assert f"`{member.value}`" in page


def documented_text(section: str) -> str:
    return PAGE.split(f"## {section}\n")[1].split("\n## ")[0]
