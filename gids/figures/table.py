"""A table as HTML and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes
    ----------
    heads : tuple of str
    rows : tuple of tuples of str
        The first column is text, the others are numbers.
    note : str
        Stands below.
    """

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""

    def html(self) -> str:
        """As HTML."""
        head = "".join(f"<th>{escape(cell)}</th>" for cell in self.heads)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in self.rows
        )
        note = f'<p class="note">{escape(self.note)}</p>' if self.note else ""
        return f'<div class="wide"><table><tr>{head}</tr>{body}</table></div>{note}'

    def markdown(self) -> str:
        """As Markdown."""
        lines = [_line(self.heads), _line(["---", *["---:"] * (len(self.heads) - 1)])]
        lines += [_line(row) for row in self.rows]
        note = f"\n\n{self.note}" if self.note else ""
        return "\n".join(lines) + note


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
