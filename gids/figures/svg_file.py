"""Figures as one SVG file that stands alone: titles, legends and colours are in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from gids.figures.svg import COLOURS, WIDTH

TITLE_HEIGHT = 44
_VIEW_BOX = f'<svg viewBox="0 0 {WIDTH} '
_STYLE = (
    "text { font: 12px sans-serif; fill: #222; } .title { font-size: 15px; font-weight: bold; }"
    " .grid { stroke: #ddd; } .axis { stroke: #222; }"
)


@dataclass(frozen=True)
class Panel:
    """One figure of a file.

    Attributes
    ----------
    title : str
    names : sequence of str
        What the colours mean, in the order of the curves or parts.
    figure : str
        From a function of `gids.figures.svg`.
    """

    title: str
    names: Sequence[str]
    figure: str


def svg_file(panels: Sequence[Panel]) -> str:
    """The text of an SVG file with one panel below the other."""
    shapes, top = [], 0.0
    for panel in panels:
        height = _height(panel.figure)
        shapes.append(f'<text x="8" y="{top + 18:.0f}" class="title">{escape(panel.title)}</text>')
        shapes += _legend(panel.names, top + 36)
        place = f'<svg x="0" y="{top + TITLE_HEIGHT:.0f}" width="{WIDTH}" height="{height:.0f}" '
        shapes.append(panel.figure.replace("<svg ", place, 1))
        top += TITLE_HEIGHT + height
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{top:.0f}">'
    ground = '<rect width="100%" height="100%" fill="white"/>'
    return f"{head}<style>{_STYLE}</style>{ground}{''.join(shapes)}</svg>\n"


def _height(figure: str) -> float:
    if not figure.startswith(_VIEW_BOX):
        raise ValueError("not a figure of gids.figures.svg")
    return float(figure[len(_VIEW_BOX) :].split('"', 1)[0])


def _legend(names: Sequence[str], baseline: float) -> list[str]:
    room = WIDTH / max(1, len(names))
    return [
        f'<rect x="{8 + number * room:.0f}" y="{baseline - 9:.0f}" width="10" height="10" fill="{colour}"/>'
        f'<text x="{22 + number * room:.0f}" y="{baseline:.0f}">{escape(name)}</text>'
        for number, (name, colour) in enumerate(zip(names, COLOURS, strict=False))
    ]
