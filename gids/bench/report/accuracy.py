"""What a report says of results over several seeds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gids.bench.report.tables import Result
from gids.figures.svg import Line, legend, lines
from gids.figures.table import Table

#: How the classifier that does not see the graph is called.
FEATURES_ONLY = "features only"


def accuracy_table(result: Result) -> Table:
    """Means and standard deviations over seeds, and what others reached."""
    heads = ("model, loader", "seeds", "validation accuracy", "test accuracy", "test macro-F1")
    model = result["config"]["model"]["name"]
    rows = [
        (
            name if name == FEATURES_ONLY else f"{model}, {name}",
            f"{each['seeds']}",
            f"{each['validation_accuracy_mean']:.4f}",
            *(_with_deviation(each, key) for key in ("test_accuracy", "test_macro_f1")),
        )
        for name, each in _all(result).items()
    ]
    rows += [
        (each["model"], "", "", *(_or_dash(each[key]) for key in ("accuracy", "macro_f1")))
        for each in result["published"]
    ]
    equal = result["equal_losses"]
    notes = [] if equal is None else [f"Losses: {'equal, bit for bit' if equal else 'NOT equal'}."]
    notes += [f"{each['model']}: {each['source']}." for each in result["published"]]
    return Table(heads, tuple(rows), " ".join(notes))


def accuracy_figure(result: Result) -> str:
    """Validation accuracy by epoch of each loader's first seed."""
    curves = []
    for name, each in _all(result).items():
        epochs = each["runs"][0]["epochs"]
        accuracies = [100 * epoch["validation_accuracy"] for epoch in epochs]
        curves.append(Line(name, [epoch["epoch"] + 1.0 for epoch in epochs], accuracies))
    title = "Validation accuracy, first seed"
    figure = lines(curves, "epoch", "accuracy, %", title, y_from_zero=False, whole_x=True)
    return f"<h3>{title}</h3>{legend([curve.label for curve in curves])}{figure}"


def _all(result: Result) -> dict[str, Mapping[str, Any]]:
    without = result["features_only"]
    return {**result["loaders"], **({FEATURES_ONLY: without} if without else {})}


def _with_deviation(each: Mapping[str, Any], key: str) -> str:
    return f"{each[f'{key}_mean']:.4f} ± {each[f'{key}_std']:.4f}"


def _or_dash(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
