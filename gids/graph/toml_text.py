"""Reads TOML, and writes the few kinds of it that manifests need (the standard library only reads)."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gids.errors import DatasetError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def read_toml(path: Path) -> dict[str, Any]:
    """Contents of a TOML file.

    Raises
    ------
    DatasetError
        It is not TOML.
    """
    try:
        table: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        return table
    except ValueError as error:
        raise DatasetError(str(path), "TOML", f"something else ({error})") from error


def toml_text(table: Mapping[str, Any]) -> str:
    """TOML of a table of strings, numbers, booleans, lists of those, and tables, nested or in lists."""
    lines: list[str] = []
    _table(table, "", lines)
    return "\n".join(lines).strip() + "\n"


def _table(table: Mapping[str, Any], prefix: str, lines: list[str]) -> None:
    for key, value in table.items():
        if not isinstance(value, Mapping) and not _is_table_list(value):
            lines.append(f"{_key(key)} = {_value(value)}")
    for key, value in table.items():
        name = prefix + _key(key)
        if isinstance(value, Mapping):
            lines += ["", f"[{name}]"]
            _table(value, name + ".", lines)
        elif _is_table_list(value):
            for item in value:
                lines += ["", f"[[{name}]]"]
                _table(item, name + ".", lines)


def _is_table_list(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, Mapping) for item in value)


def _key(key: str) -> str:
    bare = key and all(letter.isascii() and (letter.isalnum() or letter in "_-") for letter in key)
    return key if bare else json.dumps(key)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        # JSON's escapes are TOML's, but for the one control character JSON leaves alone.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Sequence):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    raise TypeError(f"{value!r} has no TOML form here")
