"""Fields of result files, as docs/results.md lists them."""

from __future__ import annotations

import re
from pathlib import Path

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "results.md"


def documented(heading: str) -> set[str]:
    """Fields that the tables of a section list, and those in every file."""
    sections = re.split(r"^## ", DOCUMENT.read_text(encoding="utf-8"), flags=re.MULTILINE)
    found: set[str] = set()
    for wanted in ("In every file", heading):
        (section,) = [each for each in sections if each.startswith(wanted)]
        tables = "\n".join(each for each in section.split("\n\n") if each.startswith("| field |"))
        for row in re.findall(r"^\| ((?:`[a-z_0-9.<>]+`(?:, )?)+) \|", tables, re.MULTILINE):
            found |= set(re.findall(r"`([^`]+)`", row))
    return found
