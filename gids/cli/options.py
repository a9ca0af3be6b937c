"""Options that several commands have."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any


def add_config_arguments(parser: argparse.ArgumentParser) -> None:
    """`--config`, `--set` and `--data`."""
    parser.add_argument("--config", required=True, metavar="C", help="a TOML file, such as configs/demo.toml")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="SECTION.KEY=VALUE",
        help="go over a value of the file; may be repeated",
    )
    parser.add_argument(
        "--data", help="folder that all data sets are below (default: $GIDS_DATA, else ./data)"
    )


def write_json(path: str | None, result: dict[str, Any]) -> None:
    """Write a result file as a whole, where one is wanted."""
    if path is None:
        return
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(file.name + ".partial")
    partial.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    partial.replace(file)
