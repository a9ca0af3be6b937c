"""Writes what a comparison has so far: result files, figures, and one page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from gids.bench.paper.folder import RunsFolder
from gids.bench.paper.results import result_files
from gids.bench.report import html_page, markdown_page
from gids.bench.report.paper import figures
from gids.config.sections import RunConfig

PAGE_NAME = "paper.html"
TABLES_NAME = "paper.md"


def write_results(
    config: RunConfig,
    folder: RunsFolder,
    repetitions: int,
    out: str | None,
    write_json: Callable[[str, dict[str, Any]], None],
) -> list[str]:
    """Write them to `out`; paths of what was written, nothing where there is none."""
    if out is None:
        return []
    written = []
    results = result_files(config, folder, repetitions)
    place = Path(out)
    for name, result in results.items():
        write_json(str(place / f"{name}.json"), result)
        written.append(str(place / f"{name}.json"))
        for figure, svg in figures(result).items():
            file = place / f"{name}_{figure}.svg"
            file.write_text(svg + "\n", encoding="utf-8")
            written.append(str(file))
    if results:
        for name, text in ((PAGE_NAME, html_page), (TABLES_NAME, markdown_page)):
            (place / name).write_text(text(list(results.values())), encoding="utf-8")
            written.append(str(place / name))
    return written
