"""`docs/configuration.md` lists every key with the default the code has."""

from __future__ import annotations

import json
import re
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from gids.config import RunConfig
from gids.config.read import _plain

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "configuration.md"
SECTIONS = [name for name in get_type_hints(RunConfig) if name != "name"]


def _documented() -> dict[str, dict[str, str]]:
    sections = re.split(r"^## (.+)$", DOCUMENT.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    row = re.compile(r"^\| `(\w+)` \| ?(.*?) ?\|", re.MULTILINE)
    return {title: dict(row.findall(text)) for title, text in zip(sections[::2], sections[1::2], strict=True)}


def _default_text(value: Any) -> str:
    return f"`{json.dumps(value)}`"


@pytest.mark.parametrize("section", SECTIONS)
def test_keys_and_defaults(section: str) -> None:
    documented = _documented()[section]
    kind = get_type_hints(RunConfig)[section]
    expected = {}
    for each in fields(kind):
        needed = each.default is MISSING
        expected[each.name] = "" if needed else _default_text(_plain(each.default))
    if section == "bench":
        expected["loaders"] = "all but `pyg-mmap` and `on-device`"
    assert documented == expected


def test_no_other_sections() -> None:
    assert sorted(_documented()) == sorted(SECTIONS)
