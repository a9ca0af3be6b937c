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
from bam.config import StoreConfig
from bam.storage.open import open_engine
from bam.storage.uring import DISABLE_VARIABLE

REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "docs" / "settings.md").read_text()


def documented(section: str) -> dict[str, str]:
    """Name and default of each row of the section's table, as text."""
    match = re.search(rf"^## {re.escape(section)}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert match is not None, f"no section {section!r}"
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \|[^|]*\| [^|]+ \|$", match[1], re.MULTILINE)
    return {name: default.strip("` ") for name, default in rows}


def as_text(default: object) -> str:
    """As the page writes it."""
    if isinstance(default, Enum):
        default = default.value
    return f'"{default}"' if isinstance(default, str) else repr(default)


def keyword_defaults(function: Callable[..., Any]) -> dict[str, str]:
    parameters = inspect.signature(function).parameters.values()
    return {
        parameter.name: as_text(parameter.default)
        for parameter in parameters
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }


def field_defaults(config: type[Any]) -> dict[str, str]:
    return {field.name: as_text(field.default) for field in dataclasses.fields(config)}


@pytest.mark.parametrize(
    ("section", "settings"),
    [
        ("bam.open_array", keyword_defaults(bam.open_array)),
        ("bam.config.StoreConfig", field_defaults(StoreConfig)),
        ("bam.storage.open_engine", keyword_defaults(open_engine)),
    ],
)
def test_the_page_lists_what_the_code_has(section: str, settings: dict[str, str]) -> None:
    assert documented(section) == settings


def test_environment_variables() -> None:
    names = set(documented("Environment variables"))
    read_by_code = {
        name
        for source in REPOSITORY.glob("bam/**/*.py")
        for name in re.findall(r'"(BAM_[A-Z_]+)"', source.read_text())
    }
    assert DISABLE_VARIABLE in read_by_code
    assert read_by_code <= names


def test_build_options() -> None:
    cmake = (REPOSITORY / "CMakeLists.txt").read_text()
    options = dict(re.findall(r'^option\((\w+) "[^"]*" (\w+)\)$', cmake, re.MULTILINE))
    assert documented("Build") == options


def test_every_policy_and_engine_is_named() -> None:
    page = documented_text("bam.open_array")
    for kind in (bam.config.EngineKind, bam.config.PolicyKind, bam.config.ReaderKind):
        for member in kind:
            assert f"`{member.value}`" in page


def documented_text(section: str) -> str:
    return PAGE.split(f"## {section}\n")[1].split("\n## ")[0]
