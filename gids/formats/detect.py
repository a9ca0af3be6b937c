"""Every layout there is, and which one a folder has."""

from __future__ import annotations

from pathlib import Path

from bam.errors import ConfigError
from gids.errors import DatasetError, did_you_mean
from gids.formats.dgl_bin import DglFormat
from gids.formats.edge_lists import EdgeListFormat
from gids.formats.format import Format
from gids.formats.graphbolt import GraphBoltFormat
from gids.formats.mag240m import Mag240mFormat
from gids.formats.ogb import OgbFormat
from gids.formats.pyg_hetero import PygFormat

FORMATS: tuple[type[Format], ...] = (
    Mag240mFormat,
    OgbFormat,
    GraphBoltFormat,
    EdgeListFormat,
    PygFormat,
    DglFormat,
)
NAMES = tuple(each.name for each in FORMATS)


def format_named(name: str) -> Format:
    """A layout by its name.

    Raises
    ------
    ConfigError
    """
    for each in FORMATS:
        if each.name == name:
            return each()
    raise ConfigError("format", name, f"a layout; {did_you_mean(name, NAMES)}")


def detect_format(path: Path) -> Format:
    """The layout of a file or folder.

    Raises
    ------
    DatasetError
        It has none that is known; the message says what was looked for.
    """
    for each in FORMATS:
        found = each()
        if found.recognises(path):
            return found
    looked_for = "; ".join(f"{each.name}: {each.layout}" for each in FORMATS)
    found_text = "none of these" if path.exists() else "no such file or folder"
    raise DatasetError(str(path), f"a data set ({looked_for})", found_text)
