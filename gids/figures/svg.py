"""Few kinds of figures as inline SVG: stacked bars, lines, histograms. No library, no external resource.

Text never shares a place: labels have a column of their own, values stand right of the bars, ticks are as
many as their width allows, and legends are HTML above the figure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH = 760
LABEL_WIDTH = 150
VALUE_WIDTH = 110
ROW_HEIGHT = 30
BAR_HEIGHT = 18
PLOT_HEIGHT = 200
MARGIN_LEFT, MARGIN_RIGHT, MARGIN_TOP, MARGIN_BOTTOM = 80, 24, 12, 44
MAX_LABEL = 22
#: Distinct to colour-blind eyes, too (Okabe and Ito).
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c8c8c")


@dataclass(frozen=True)
class Bar:
    """A row of a bar figure.

    Attributes
    ----------
    label : str
    parts : sequence of float
        Lengths, in the order of the legend.
    value : str
        Stands right of the bar.
    """

    label: str
    parts: Sequence[float]
    value: str


@dataclass(frozen=True)
class Line:
    """A curve.

    Attributes
    ----------
    label : str
    x, y : sequence of float
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]


def legend(names: Sequence[str]) -> str:
    """What the colours mean, as HTML."""
    items = (
        f'<span class="key"><i style="background:{COLOURS[number % len(COLOURS)]}"></i>{escape(name)}</span>'
        for number, name in enumerate(names)
    )
    return f'<p class="legend">{"".join(items)}</p>'


def stacked_bars(bars: Sequence[Bar], title: str) -> str:
    """Horizontal bars of several parts on one linear scale."""
    longest = max((sum(bar.parts) for bar in bars), default=0.0) or 1.0
    room = WIDTH - LABEL_WIDTH - VALUE_WIDTH
    shapes = []
    for number, bar in enumerate(bars):
        top, left = number * ROW_HEIGHT, float(LABEL_WIDTH)
        middle = top + BAR_HEIGHT / 2 + 8
        shapes.append(_text(LABEL_WIDTH - 8, middle, _short(bar.label), "end", bar.label))
        for colour, part in zip(COLOURS, bar.parts, strict=False):
            width = room * part / longest
            if width > 0:
                shapes.append(_rect(left, top + 4, width, BAR_HEIGHT, colour))
            left += width
        shapes.append(_text(left + 6, middle, bar.value))
    return _svg(shapes, max(1, len(bars)) * ROW_HEIGHT, title)


def lines(
    curves: Sequence[Line],
    x_name: str,
    y_name: str,
    title: str,
    *,
    y_from_zero: bool = True,
    whole_x: bool = False,
) -> str:
    """Curves over one pair of axes; with `whole_x` there are no fractions between 1 and 2."""
    xs = [value for curve in curves for value in curve.x] or [0.0]
    ys = [value for curve in curves for value in curve.y] or [0.0]
    x_axis = Axis.of(min(xs), max(xs), 1.0 if whole_x else 0.0)
    y_axis = Axis.of(0.0 if y_from_zero else min(ys), max(ys))
    shapes = _frame(x_axis, y_axis, x_name, y_name)
    for colour, curve in zip(COLOURS, curves, strict=False):
        points = [(_x(x_axis.place(x)), _y(y_axis.place(y))) for x, y in zip(curve.x, curve.y, strict=True)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        shapes.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.8"/>')
        if len(points) <= 30:
            shapes += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.6" fill="{colour}"/>' for x, y in points]
    return _svg(shapes, PLOT_HEIGHT + MARGIN_TOP + MARGIN_BOTTOM, title)


def log_histogram(
    upper: Sequence[float], counts: Sequence[float], x_name: str, y_name: str, title: str
) -> str:
    """Bars over a logarithmic axis; `upper` are the rising upper ends of the steps."""
    if not upper:
        return ""
    first = upper[0] * (upper[0] / upper[1] if len(upper) > 1 else 0.5)
    x_axis = LogAxis.of(first, upper[-1])
    y_axis = Axis.of(0.0, max(counts))
    shapes = _frame(x_axis, y_axis, x_name, y_name)
    for lower, end, count in zip([first, *upper], upper, counts, strict=False):
        left, right, top = _x(x_axis.place(lower)), _x(x_axis.place(end)), _y(y_axis.place(count))
        if count:
            shapes.append(_rect(left, top, max(0.5, right - left - 0.5), _y(0.0) - top, COLOURS[0]))
    return _svg(shapes, PLOT_HEIGHT + MARGIN_TOP + MARGIN_BOTTOM, title)


@dataclass(frozen=True)
class Axis:
    """A linear axis from the first tick to the last."""

    ticks: tuple[float, ...]

    @classmethod
    def of(cls, low: float, high: float, least_step: float = 0.0) -> Axis:
        """With round ticks around a range."""
        if not high > low:
            high = low + (abs(low) or 1.0)
        step = max(least_step, _round_step((high - low) / 4))
        first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
        return cls(tuple(number * step for number in range(first, last + 1)))

    def place(self, value: float) -> float:
        """0 at the first tick, 1 at the last."""
        return (value - self.ticks[0]) / (self.ticks[-1] - self.ticks[0])


@dataclass(frozen=True)
class LogAxis(Axis):
    """A logarithmic axis between two values."""

    low: float = 1.0
    high: float = 10.0

    @classmethod
    def of(cls, low: float, high: float, least_step: float = 0.0) -> LogAxis:
        decades = range(math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9) + 1)
        return cls(tuple(10.0**power for power in decades), low, high)

    def place(self, value: float) -> float:
        return math.log(value / self.low) / math.log(self.high / self.low)


def number_text(value: float) -> str:
    """A number with three digits that count, and a letter for thousands."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{unit}"
    return f"{value:.3g}"


def _round_step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)


def _frame(x_axis: Axis, y_axis: Axis, x_name: str, y_name: str) -> list[str]:
    shapes = []
    for tick in y_axis.ticks:
        y = _y(y_axis.place(tick))
        shapes.append(f'<line x1="{_x(0):.1f}" x2="{_x(1):.1f}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>')
        shapes.append(_text(MARGIN_LEFT - 6, y + 4, number_text(tick), "end"))
    for tick in x_axis.ticks:
        x = _x(x_axis.place(tick))
        shapes.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_y(0):.1f}" y2="{_y(0) + 4:.1f}" class="axis"/>')
        shapes.append(_text(x, _y(0) + 17, number_text(tick), "middle"))
    shapes.append(f'<line x1="{_x(0):.1f}" x2="{_x(1):.1f}" y1="{_y(0):.1f}" y2="{_y(0):.1f}" class="axis"/>')
    shapes.append(_text((_x(0) + _x(1)) / 2, _y(0) + 36, x_name, "middle"))
    middle = (_y(0) + _y(1)) / 2
    turned = f'transform="translate(14 {middle:.1f}) rotate(-90)" text-anchor="middle"'
    shapes.append(f"<text {turned}>{escape(y_name)}</text>")
    return shapes


def _x(share: float) -> float:
    return MARGIN_LEFT + share * (WIDTH - MARGIN_LEFT - MARGIN_RIGHT)


def _y(share: float) -> float:
    return MARGIN_TOP + (1 - share) * PLOT_HEIGHT


def _rect(x: float, y: float, width: float, height: float, colour: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}"/>'


def _text(x: float, y: float, text: str, anchor: str = "start", whole: str = "") -> str:
    hint = f"<title>{escape(whole)}</title>" if whole and whole != text else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{hint}{escape(text)}</text>'


def _short(label: str) -> str:
    return label if len(label) <= MAX_LABEL else label[: MAX_LABEL - 1] + "…"


def _svg(shapes: Sequence[str], height: float, title: str) -> str:
    head = f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(title)}">'
    return f"{head}{''.join(shapes)}</svg>"
