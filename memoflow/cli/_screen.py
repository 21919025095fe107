"""Output: tables and fields, with rich on a terminal, and as plain, aligned text anywhere else."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import typer

from memoflow.cli._text import clean, json_text

if TYPE_CHECKING:
    from rich.text import Text

__all__ = ["say", "show_fields", "show_json", "show_table", "warn"]


def say(text: str) -> None:
    """One line for people on standard output."""
    typer.echo(clean(text))


def warn(text: str) -> None:
    """One line on standard error, where it does not get into what is piped on."""
    typer.echo(clean(text), err=True)


def show_json(value: Any) -> None:
    """A value as JSON."""
    typer.echo(json_text(value))


def show_table(headers: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str) -> None:
    """Rows under their headers, or a sentence when there are none."""
    cells = [[clean("" if cell is None else str(cell)) for cell in row] for row in rows]
    if not cells:
        say(empty)
    elif sys.stdout.isatty():
        _rich_table(headers, cells)
    else:
        for line in _aligned([list(headers), *cells]):
            typer.echo(line)


def show_fields(pairs: Iterable[tuple[str, object]]) -> None:
    """Names and values below each other; those without a value are left out."""
    rows = [[f"{name}:", clean(str(value))] for name, value in pairs if value not in (None, "")]
    for line in _aligned(rows):
        typer.echo(line)


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    from rich.cells import cell_len

    widths = [max(cell_len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in rows
    ]


def _rich_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for header in headers:
        table.add_column(header, no_wrap=True)
    for row in rows:
        table.add_row(*[_styled(cell) for cell in row])
    # An id that is folded into a column cannot be copied. Too long a line is the terminal's to wrap.
    Console(width=_ANY_WIDTH, soft_wrap=True).print(table)


def _styled(cell: str) -> Text:
    from rich.text import Text

    # Text, not markup: what stands in square brackets may be somebody's name for something.
    text = Text(cell, style=_STYLES.get(cell, ""))
    if cell.startswith("[") and cell.endswith("%"):
        for mark, style in _BAR.items():
            text.highlight_words([mark], style)
    return text


_ANY_WIDTH: Final = 10_000
_BAR: Final = {"#": "green", "=": "cyan", "?": "bold yellow"}
_STYLES: Final = {
    "SUCCEEDED": "green",
    "DONE": "green",
    "COMPLETED": "green",
    "SETTLED": "green",
    "OUTCOME_UNKNOWN": "bold yellow",
    "RECONCILE": "bold yellow",
    "AWAITING_APPROVAL": "bold yellow",
    "PARKED": "bold yellow",
    "DENIED": "red",
    "FAILED": "red",
    "LOST": "red",
    "CLOSED": "red",
}
