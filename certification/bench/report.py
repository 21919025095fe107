"""What a run found: its rows, the table a reader sees and the JSON that keeps every sample."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final, Literal

__all__ = ["Figure", "Target", "at_least", "at_most", "exactly", "read_json", "table", "write_json"]

Relation = Literal["<=", ">=", "="]
_HOLDS: Final[dict[Relation, Callable[[float, float], bool]]] = {
    "<=": lambda value, bound: value <= bound,
    ">=": lambda value, bound: value >= bound,
    "=": lambda value, bound: value == bound,
}


@dataclass(frozen=True, slots=True)
class Target:
    """What a figure has to keep to."""

    relation: Relation
    bound: float

    def holds(self, value: float) -> bool:
        """Whether a measured value keeps to it."""
        return _HOLDS[self.relation](value, self.bound)


def at_most(bound: float) -> Target:
    """A figure that may not be larger."""
    return Target("<=", bound)


def at_least(bound: float) -> Target:
    """A figure that may not be smaller."""
    return Target(">=", bound)


def exactly(bound: float) -> Target:
    """A count."""
    return Target("=", bound)


@dataclass(frozen=True, slots=True)
class Figure:
    """One row.

    Attributes:
        name: dotted; what it is and on which database, for example ``cpu.sqlite``.
        text: the same for a reader.
        value: what was measured, a median where there are samples.
        unit: of the value; empty for a ratio or a count.
        target: what it has to keep to, or None where the row is there to read others by.
        samples: everything measured on the way, by what it is.
        note: what has to be known to read it.
    """

    name: str
    text: str
    value: float
    unit: str = ""
    target: Target | None = None
    samples: Mapping[str, Sequence[float]] = field(default_factory=dict)
    note: str = ""

    @property
    def holds(self) -> bool | None:
        """Whether the target holds; None where there is none."""
        return None if self.target is None else self.target.holds(self.value)


def table(figures: Iterable[Figure]) -> str:
    """The rows as text: figure, measured, target, holds."""
    rows = [("figure", "measured", "target", "holds"), *[_cells(figure) for figure in figures]]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = [
        f"{row[0]:<{widths[0]}}  {row[1]:>{widths[1]}}  {row[2]:>{widths[2]}}  {row[3]}".rstrip()
        for row in rows
    ]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def _cells(figure: Figure) -> tuple[str, str, str, str]:
    holds = {True: "yes", False: "NO", None: ""}[figure.holds]
    target = "" if figure.target is None else f"{figure.target.relation} {number(figure.target.bound)}"
    return figure.text, f"{number(figure.value)} {figure.unit}".rstrip(), target, holds


def number(value: float) -> str:
    """Three digits that count, and no exponent."""
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def write_json(path: Path, figures: Iterable[Figure], about: Mapping[str, Any]) -> None:
    """Write the run with all its samples."""
    rows = [{**asdict(figure), "holds": figure.holds, "medians": _medians(figure)} for figure in figures]
    path.write_text(json.dumps({"about": about, "figures": rows}, indent=1) + "\n", encoding="utf-8")


def _medians(figure: Figure) -> dict[str, float]:
    return {name: median(values) for name, values in figure.samples.items() if values}


def read_json(path: Path) -> list[Figure]:
    """The rows of a run that was written before."""
    rows = json.loads(path.read_text(encoding="utf-8"))["figures"]
    return [_figure(row) for row in rows]


def _figure(row: dict[str, Any]) -> Figure:
    target = None if row["target"] is None else Target(**row["target"])
    names = ("name", "text", "value", "unit", "samples", "note")
    return Figure(**{name: row[name] for name in names}, target=target)
