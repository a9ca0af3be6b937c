"""Numbers and tables as people read them."""

from __future__ import annotations

from collections.abc import Sequence


def size_text(n_bytes: float) -> str:
    """Bytes with a unit, in thousands."""
    for unit in ("B", "kB", "MB", "GB"):
        if n_bytes < 1000:
            return f"{n_bytes:.0f} B" if unit == "B" else f"{n_bytes:.2f} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.2f} TB"


def table_text(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Columns side by side; numbers to the right."""
    cells = [
        list(heads),
        *([f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in rows),
    ]
    widths = [max(len(line[column]) for line in cells) for column in range(len(heads))]
    to_right = [all(isinstance(row[column], int) for row in rows) for column in range(len(heads))]
    lines = []
    for line in cells:
        parts = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, to_right, strict=True)
        ]
        lines.append("  ".join(parts).rstrip())
    return "\n".join(lines)
