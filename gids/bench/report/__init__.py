"""Reports of result files."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from gids.bench.report.page import html_page, markdown_page
from gids.bench.report.tables import Result
from gids.errors import DatasetError

SCHEMA = 1


def read_results(paths: Iterable[str]) -> list[Result]:
    """Result files.

    Raises
    ------
    DatasetError
        One is no result file, or of a later schema.
    """
    results: list[Result] = []
    for path in paths:
        try:
            result = json.loads(Path(path).read_text())
        except (OSError, ValueError) as error:
            raise DatasetError(path, "a result file", str(error)) from error
        if not isinstance(result, dict) or not {"schema", "name"} <= result.keys():
            raise DatasetError(path, "a result file with 'schema' and 'name'", "something else")
        if result["schema"] != SCHEMA:
            raise DatasetError(path, f"schema {SCHEMA}", str(result["schema"]))
        results.append(result)
    return results


__all__ = ["html_page", "markdown_page", "read_results"]
