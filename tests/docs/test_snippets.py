"""The Python blocks of README and docs run, in order, file by file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PAGES = sorted([*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/*.md")])

_PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


@dataclass(frozen=True)
class Snippet:
    """A block of Python and the line of the page it starts at."""

    code: str
    first_line: int


def snippets(page: str) -> list[Snippet]:
    """The blocks fenced with ```` ```python ````."""
    return [
        Snippet(match[1], page.count("\n", 0, match.start(1)) + 1) for match in _PYTHON_BLOCK.finditer(page)
    ]


def pages_with_snippets() -> list[Path]:
    return [page for page in PAGES if snippets(page.read_text())]


@pytest.mark.parametrize("page", pages_with_snippets(), ids=lambda page: page.name)
def test_snippets_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    for snippet in snippets(page.read_text()):
        # Blank lines first, so that a traceback shows the line of the page.
        source = "\n" * (snippet.first_line - 1) + snippet.code
        exec(compile(source, str(page), "exec"), names)


def test_the_readme_has_a_snippet() -> None:
    assert REPOSITORY / "README.md" in pages_with_snippets()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    targets = [target for target in _LINK.findall(page.read_text()) if "://" not in target]
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert not missing
