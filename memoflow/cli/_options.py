"""Options that many commands share, and how their texts are read."""

from __future__ import annotations

import getpass
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar
from uuid import UUID

import typer

from memoflow.budget import MAX_AMOUNT, Money, check_amount
from memoflow.errors import InvalidBudget, MemoflowError
from memoflow.identity import check_name
from memoflow.ledger.accounts import check_path, check_reason

__all__ = [
    "Account",
    "Activity",
    "Actor",
    "After",
    "AsJson",
    "Cost",
    "Currency",
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
    "Workflow",
    "actor_name",
    "age",
    "amount",
    "checked",
    "choice_option",
    "money",
    "name_argument",
    "name_option",
    "path_argument",
    "path_option",
    "text_or_file",
    "usage",
    "whole",
]

T = TypeVar("T")


@contextmanager
def usage(option: str | None = None) -> Iterator[None]:
    """What is refused in here is wrong in any ledger: that is wrong usage, not a refusal."""
    try:
        yield
    except MemoflowError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def checked(check: Callable[[str], T]) -> Callable[[str], T]:
    """A parser of one option or argument, by a rule of the ledger."""

    def parse(text: str) -> T:
        with usage():
            return check(text)

    return parse


def name_option(what: str, help: str, *names: str, metavar: str = "ID") -> Any:
    """An option that can be the name of something."""
    return typer.Option(*names, metavar=metavar, help=help, parser=checked(partial(check_name, what)))


def name_argument(what: str, help: str, *, metavar: str) -> Any:
    """An argument that can be the name of something."""
    return typer.Argument(metavar=metavar, help=help, parser=checked(partial(check_name, what)))


def choice_option(help: str, *choices: str, metavar: str = "STATE") -> Any:
    """An option that is one of some words, in any case."""
    known = {choice.upper(): choice for choice in choices}

    def parse(text: str) -> str:
        if text.upper() not in known:
            raise typer.BadParameter(f"{text!r} is not one of {', '.join(choices)}.")
        return known[text.upper()]

    return typer.Option(metavar=metavar, help=f"{help} {', '.join(choices)}.", parser=parse)


def path_option(help: str) -> Any:
    """An option that can be the path of an account."""
    return typer.Option(metavar="PATH", help=help, parser=checked(check_path))


def path_argument(help: str) -> Any:
    """An argument that can be the path of an account."""
    return typer.Argument(metavar="PATH", help=help, parser=checked(check_path))


def amount(help: str) -> Any:
    """An option that is an amount of one dimension."""
    return typer.Option(metavar="AMOUNT", help=help, parser=checked(partial(whole, "An amount")))


def whole(what: str, text: str) -> int:
    """The amount that a text is.

    Raises:
        InvalidBudget: it is not a whole number, or too large.
    """
    # No number that is valid has more digits, and int() refuses very many with an error of its own.
    if not re.fullmatch("[0-9]{1,16}", text):
        raise InvalidBudget(f"{what} must be a whole number from 0 to {MAX_AMOUNT}, not {text[:40]!r}.")
    return check_amount(what, int(text))


DatabaseUrl = Annotated[
    str | None,
    typer.Option("--database", metavar="URL", help="The ledger; MEMOFLOW_DATABASE_URL if left out."),
]
Namespace = Annotated[
    str | None,
    name_option("namespace", "Tenant; MEMOFLOW_NAMESPACE if left out.", metavar="NAME"),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Actor = Annotated[
    str | None, name_option("actor", "Who does this; the user of this shell if left out.", metavar="NAME")
]
Reason = Annotated[str, typer.Option(metavar="TEXT", help="Why, in one line.", parser=checked(check_reason))]
RequiredReason = Annotated[
    str,
    typer.Option(
        "--reason",
        metavar="TEXT",
        help="Why, in one line.",
        parser=checked(partial(check_reason, required=True)),
    ),
]
Evidence = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT|@FILE", help="What it rests on; only its digest is kept. @- is standard input."
    ),
]
DecisionId = Annotated[
    UUID | None, typer.Option(metavar="UUID", help="Makes repeating the command harmless.")
]
Cost = Annotated[
    Money | None, typer.Option(metavar="DECIMAL", help="Money, for example 0.25.", parser=checked(Money.of))
]
Currency = Annotated[
    str,
    typer.Option(
        metavar="CODE", help="Currency of money.", parser=checked(lambda text: Money(0, text).currency)
    ),
]

Workflow = Annotated[str | None, name_option("workflow", "Only those of this workflow.")]
Run = Annotated[str | None, name_option("run", "Only those of this run.")]
Activity = Annotated[str | None, name_option("activity", "Only those of this activity.")]
Model = Annotated[str | None, name_option("model", "Only those of this model.", metavar="NAME")]
Account = Annotated[str | None, path_option("Only those charged to this account or one below it.")]
Limit = Annotated[int, typer.Option(min=1, max=1000, metavar="ROWS", help="Rows of a page.")]
After = Annotated[UUID | None, typer.Option(metavar="CURSOR", help="The next page: what the last one named.")]

_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_AGE: Final = re.compile(r"(\d{1,7})([smhdw])", re.ASCII)


def money(cost: Money | None, currency: str) -> Money | None:
    """A decimal amount in the currency named beside it."""
    return None if cost is None else Money(cost.nanos, currency)


def age(text: str) -> timedelta:
    """An age such as ``90s``, ``15m``, ``2h``, ``7d`` or ``4w``."""
    match = _AGE.fullmatch(text)
    if match is None:
        raise typer.BadParameter(
            f"An age is a whole number with s, m, h, d or w, for example 15m, not {text!r}."
        )
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


OlderThan = Annotated[
    timedelta | None,
    typer.Option(
        metavar="AGE", help="Only what started longer ago, for example 90s, 15m, 2h, 7d.", parser=age
    ),
]
NewerThan = Annotated[
    timedelta | None, typer.Option(metavar="AGE", help="Only what started more recently.", parser=age)
]


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
