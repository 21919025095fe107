"""Line charts as SVG, by hand: throughput against concurrency, cost against the size of the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from statistics import median
from typing import Final

from certification.bench.report import Figure, number

__all__ = ["chart", "plots"]

Points = Sequence[tuple[float, float]]
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 760, 420, 70, 250, 50, 50
_COLOURS: Final = ("#0969da", "#bc4c00", "#1a7f37", "#8250df", "#9a6700", "#cf222e")


def plots(figures: Iterable[Figure]) -> dict[str, str]:
    """The charts that these rows have samples for, by file name."""
    rows = list(figures)
    made = {}
    if series := _throughput(rows):
        title = "Throughput on one hot budget, same disk"
        made["throughput.svg"] = chart(title, "concurrent callers", "per second", series)
    if series := _cost(rows):
        title = "Cost of an activity with one call, 64 callers"
        made["growth.svg"] = chart(title, "invocations in the ledger", "milliseconds", series)
    return made


def _throughput(figures: Iterable[Figure]) -> dict[str, Points]:
    series: dict[str, dict[float, float]] = {}
    for figure in figures:
        group, _, setup = figure.name.partition(".")
        if group != "dbos":
            continue
        for name, values in figure.samples.items():
            who, callers = name.split()
            # memoflow has one setup a database.
            label = f"{who} {setup.partition('_')[0] if who == 'memoflow' else setup}"
            series.setdefault(label, {})[int(callers)] = median(values)
    return {label: sorted(points.items()) for label, points in sorted(series.items(), reverse=True)}


def _cost(figures: Iterable[Figure]) -> dict[str, Points]:
    series: dict[str, dict[float, float]] = {}
    for figure in figures:
        group, _, kind = figure.name.partition(".")
        if group != "growth":
            continue
        for name, values in figure.samples.items():
            which, _, size = name.partition(" at ")
            if which.endswith("cpu"):
                continue
            # The empty ledger is measured beside each size; its last turn stands for it.
            series.setdefault(kind, {})[0 if which == "empty" else int(size)] = 1e3 / median(values)
    return {label: sorted(points.items()) for label, points in series.items()}


def chart(title: str, x_label: str, y_label: str, series: Mapping[str, Points]) -> str:
    """An SVG document with one line a series; both axes begin at 0."""
    right = max(x for points in series.values() for x, _ in points) or 1
    top = max(y for points in series.values() for _, y in points) * 1.1 or 1
    width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def place(x: float, y: float) -> tuple[float, float]:
        return _LEFT + x / right * width, _TOP + height - y / top * height

    parts = [_text(_LEFT, 25, title, "start", 16)]
    for step in range(6):
        (x, _), (_, y) = place(right * step / 5, 0), place(0, top * step / 5)
        parts += [
            f'<path d="M{_LEFT} {y:.1f}h{width}" stroke="#d0d7de"/>',
            _text(_LEFT - 8, y + 4, number(top * step / 5), "end"),
            _text(x, _TOP + height + 18, number(right * step / 5), "middle"),
        ]
    parts += [
        _text(_LEFT + width / 2, _HEIGHT - 12, x_label, "middle"),
        _text(_LEFT, _TOP - 8, y_label, "end"),
    ]
    for row, (name, points) in enumerate(series.items()):
        parts += _line(name, [place(*point) for point in points], _COLOURS[row % len(_COLOURS)], row)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'font-family="sans-serif" font-size="12">\n<rect width="100%" height="100%" fill="white"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _line(name: str, places: Points, colour: str, row: int) -> list[str]:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    legend = _WIDTH - _RIGHT + 20, _TOP + 20 * row
    return [
        f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>',
        *[f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places],
        f'<path d="M{legend[0]} {legend[1]}h16" stroke="{colour}" stroke-width="2"/>',
        _text(legend[0] + 22, legend[1] + 4, name, "start"),
    ]


def _text(x: float, y: float, text: str, anchor: str, size: int = 12) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{escape(text)}</text>'
