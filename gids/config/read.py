"""Tables, as TOML gives them, into dataclasses."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from bam.errors import ConfigError
from gids.config.sections import RunConfig
from gids.errors import ConfigFileError, DatasetError, did_you_mean
from gids.graph.toml_text import read_toml

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Section = TypeVar("Section")

_TYPE_TEXTS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text in quotes",
    tuple: "a list",
}


def load_config(path: str | os.PathLike[str], overrides: Sequence[str] = ()) -> RunConfig:
    """Read a configuration file.

    Parameters
    ----------
    path : path
    overrides : sequence of str
        ``"section.key=value"``, which go over the file; as in TOML, but quotes may be left out.

    Raises
    ------
    ConfigFileError
        Names the file, the key, and what was expected.
    """
    file = Path(path)
    try:
        table = read_toml(file)
    except (OSError, DatasetError) as error:
        raise ConfigFileError(str(path), "", "a TOML file", str(error)) from error
    for override in overrides:
        _apply(table, override)
    return run_config({"name": file.stem, **table}, str(path))


def run_config(table: Mapping[str, Any], file: str = "configuration") -> RunConfig:
    """A configuration from its table.

    Parameters
    ----------
    table : mapping
    file : str
        What errors call it.

    Raises
    ------
    ConfigFileError
    """
    return _section(RunConfig, table, "", file)


def as_table(section: Any) -> dict[str, Any]:
    """A dataclass as a table of plain values; :func:`run_config` reads it back."""
    return {each.name: _plain(getattr(section, each.name)) for each in fields(section)}


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return as_table(value)
    if isinstance(value, Enum):
        return value.value
    return list(value) if isinstance(value, tuple) else value


def _section(cls: type[Section], table: Mapping[str, Any], where: str, file: str) -> Section:
    known = {each.name: each for each in fields(cls)}  # type: ignore[arg-type]
    hints = get_type_hints(cls)
    for key, value in table.items():
        if key not in known:
            expected = f"a known key ({did_you_mean(key, known)})"
            raise ConfigFileError(file, _joined(where, key), expected, value)
    values = {key: _value(hints[key], value, _joined(where, key), file) for key, value in table.items()}
    for key, each in known.items():
        if key not in values and _is_required(each):
            raise ConfigFileError(file, _joined(where, key), _type_text(hints[key]), None)
    try:
        return cls(**values)
    except ConfigError as error:
        key = error.setting if "." in error.setting else _joined(where, error.setting)
        raise ConfigFileError(file, key, error.expected, error.value) from error


def _is_required(each: Field[Any]) -> bool:
    return each.default is MISSING and each.default_factory is MISSING


def _value(wanted: Any, value: Any, key: str, file: str) -> Any:
    if is_dataclass(wanted) and isinstance(wanted, type):
        if not isinstance(value, Mapping):
            raise ConfigFileError(file, key, f"a section [{key}]", value)
        return _section(wanted, value, key, file)
    if isinstance(wanted, type) and issubclass(wanted, Enum):
        names = [str(member.value) for member in wanted]
        if value not in names:
            expected = f"one of {', '.join(map(repr, names))}; {did_you_mean(str(value), names)}"
            raise ConfigFileError(file, key, expected, value)
        return wanted(value)
    if get_origin(wanted) is tuple:
        if not isinstance(value, list | tuple):
            raise ConfigFileError(file, key, _type_text(wanted), value)
        return tuple(_value(get_args(wanted)[0], each, key, file) for each in value)
    choices = get_args(wanted) if get_origin(wanted) in (Union, UnionType) else (wanted,)
    # bool is an int for isinstance, and a whole number will do where a number is wanted.
    if type(value) in choices:
        return value
    if type(value) is int and float in choices:
        return float(value)
    raise ConfigFileError(file, key, _type_text(wanted), value)


def _type_text(wanted: Any) -> str:
    if get_origin(wanted) is tuple:
        return f"a list, each {_type_text(get_args(wanted)[0])}"
    if get_origin(wanted) in (Union, UnionType):
        return " or ".join(_type_text(each) for each in get_args(wanted))
    if is_dataclass(wanted):
        return "a section"
    return _TYPE_TEXTS.get(wanted, str(getattr(wanted, "__name__", wanted)))


def _joined(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key


def _apply(table: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    if not equals or not key.strip():
        raise ConfigFileError("--set", override, "section.key=value", override)
    *sections, last = key.strip().split(".")
    inner = table
    for section in sections:
        inner = inner.setdefault(section, {})
        if not isinstance(inner, dict):
            raise ConfigFileError("--set", key.strip(), f"a section [{section}]", inner)
    inner[last] = _toml_value(text.strip())


def _toml_value(text: str) -> Any:
    """What `text` stands for in TOML; text itself where it is no TOML."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
