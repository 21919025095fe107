"""``memoflow inspect``: what a policy finds, and what it stops for nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final

import typer

from memoflow.cli._options import AsJson, usage
from memoflow.cli._screen import say, show_json, show_table
from memoflow.errors import ConfigurationError
from memoflow.inspection import (
    LabelledSession,
    Outcome,
    play,
    read_sessions,
    shipped_policy,
)
from memoflow.inspection.policy_file import named_policy

__all__ = ["app", "judge", "show"]

app = typer.Typer(
    help="Policies for what agents do, and what they came to.", no_args_is_help=True, rich_markup_mode=None
)

_COLUMNS: Final = ("SESSION", "LABEL", "SHAPE", "VERDICT", "RULE", "RIGHT")


@app.command("test")
def judge(
    policy: Annotated[
        str, typer.Argument(metavar="POLICY", help="A policy in YAML, TOML or JSON, or the word shipped.")
    ],
    sessions: Annotated[
        list[Path],
        typer.Argument(metavar="SESSIONS...", help="Files of labelled sessions, or directories of them."),
    ],
    json: AsJson = False,
) -> None:
    """Judge labelled sessions by a policy.

    Ends with 1 when one of them is judged otherwise than it is labelled: an attack that nothing stops, or a
    benign session that is interrupted.
    """
    with usage("POLICY"):
        rules = named_policy(policy)
    with usage("SESSIONS"):
        found = [one for path in sessions for file in _files(path) for one in _read(file)]
        if not found:
            raise ConfigurationError("No session was found there. Name files of labelled sessions (*.jsonl).")
    outcomes = [play(session, rules) for session in found]
    if json:
        items = [{**asdict(one), "right": one.right} for one in outcomes]
        show_json({"items": items, "next": None, **_counts(outcomes), "policy": rules.digest})
    else:
        _show(outcomes)
    if not all(outcome.right for outcome in outcomes):
        raise typer.Exit(1)


@app.command("policy")
def show() -> None:
    """Print the shipped policy, as a file to begin one's own with."""
    typer.echo(shipped_policy().model_dump_json(indent=1, exclude_none=True))


def _files(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield from sorted(path.glob("*.jsonl"))
    else:
        yield path


def _read(path: Path) -> list[LabelledSession]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        problem = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigurationError(
            f"The file {str(path)!r} cannot be read: {problem}. Name another one."
        ) from None
    return read_sessions(text, str(path))


def _counts(outcomes: list[Outcome]) -> dict[str, int]:
    attacks = [one for one in outcomes if one.label == "attack"]
    benign = [one for one in outcomes if one.label == "benign"]
    return {
        "attacks": len(attacks),
        "found": sum(one.right for one in attacks),
        "benign": len(benign),
        "interrupted": sum(not one.right for one in benign),
    }


def _show(outcomes: list[Outcome]) -> None:
    rows = [
        (
            one.name,
            one.label,
            one.shape,
            one.verdict,
            one.rule if one.seq else "",
            "yes" if one.right else "NO",
        )
        for one in outcomes
    ]
    show_table(_COLUMNS, rows, empty="There are no sessions.")
    counts = _counts(outcomes)
    say(
        f"{counts['found']} of {counts['attacks']} attacks were found; "
        f"{counts['interrupted']} of {counts['benign']} benign sessions were interrupted."
    )
