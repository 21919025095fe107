"""Options that many commands share, and how their texts are read."""

from __future__ import annotations

import getpass
import re
import sys
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final

import typer

__all__ = [
    "Account",
    "Activity",
    "Actor",
    "After",
    "AsJson",
    "DatabaseUrl",
    "DecisionId",
    "Evidence",
    "Limit",
    "Model",
    "Namespace",
    "NewerThan",
    "OlderThan",
    "Reason",
    "RequiredReason",
    "Run",
    "State",
    "Workflow",
    "actor_name",
    "age",
    "text_or_file",
]

DatabaseUrl = Annotated[
    str | None,
    typer.Option("--database", metavar="URL", help="The ledger; MEMOFLOW_DATABASE_URL if left out."),
]
Namespace = Annotated[
    str | None,
    typer.Option("--namespace", metavar="NAME", help="Tenant; MEMOFLOW_NAMESPACE if left out."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Actor = Annotated[str | None, typer.Option(metavar="NAME", help="Who does this; $USER if left out.")]
Reason = Annotated[str, typer.Option(metavar="TEXT", help="Why, in one line.")]
RequiredReason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, in one line.")]
Evidence = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT|@FILE", help="What it rests on; only its digest is kept. @- is standard input."
    ),
]
DecisionId = Annotated[str | None, typer.Option(metavar="UUID", help="Makes repeating the command harmless.")]

State = Annotated[str | None, typer.Option(metavar="STATE", help="Only those in this state.")]
Workflow = Annotated[str | None, typer.Option(metavar="ID", help="Only those of this workflow.")]
Run = Annotated[str | None, typer.Option(metavar="ID", help="Only those of this run.")]
Activity = Annotated[str | None, typer.Option(metavar="ID", help="Only those of this activity.")]
Model = Annotated[str | None, typer.Option(metavar="NAME", help="Only those of this model.")]
Account = Annotated[
    str | None, typer.Option(metavar="PATH", help="Only those charged to this account or one below it.")
]
OlderThan = Annotated[
    str | None,
    typer.Option(metavar="AGE", help="Only what started longer ago, for example 90s, 15m, 2h, 7d."),
]
NewerThan = Annotated[str | None, typer.Option(metavar="AGE", help="Only what started more recently.")]
Limit = Annotated[int, typer.Option(min=1, max=1000, help="Rows of a page.")]
After = Annotated[str | None, typer.Option(metavar="CURSOR", help="The next page: what the last one named.")]

_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_AGE: Final = re.compile(r"(\d{1,7})([smhdw])", re.ASCII)


def age(text: str) -> timedelta:
    """An age such as ``90s``, ``15m``, ``2h``, ``7d`` or ``4w``."""
    match = _AGE.fullmatch(text)
    if match is None:
        raise typer.BadParameter("An age is a number with s, m, h, d or w, for example 15m.")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


def actor_name(given: str | None) -> str:
    """Who acts: the name given, or the user of this shell."""
    if given is not None:
        return given
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        raise typer.BadParameter("This user has no name, so say who acts: --actor NAME.") from None


def text_or_file(text: str) -> bytes:
    """What was given: itself, or what is in the file named after ``@``; ``@@`` stands for a plain ``@``."""
    if not text.startswith("@") or text.startswith("@@"):
        # The shell's bytes, whatever they are.
        return text.removeprefix("@").encode("utf-8", "surrogateescape")
    if text == "@-":
        return sys.stdin.buffer.read()
    try:
        return Path(text[1:]).read_bytes()
    except OSError as error:
        raise typer.BadParameter(f"The file {text[1:]!r} cannot be read ({error.strerror}).") from None
