"""``memoflow audit``: causal logs, and why something in them was permitted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Final

import typer

from memoflow import __version__
from memoflow.cli._options import AsJson, usage
from memoflow.cli._screen import say, show_table
from memoflow.cli._text import shown_json

if TYPE_CHECKING:
    from memoflow.causal.findings import AuditResult
    from memoflow.causal.reports import Subject

__all__ = ["PRINTERS", "Format", "Profile", "Rules", "WithFormat", "app", "chain", "check"]

app = typer.Typer(help="Causal logs: why something was permitted.", no_args_is_help=True)


class Profile(StrEnum):
    """Which rules a log is audited by."""

    STRICT = "strict"
    COMPAT = "compat"


class Format(StrEnum):
    """How findings are printed."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"
    SARIF = "sarif"


Log = Annotated[
    Path, typer.Argument(metavar="FILE", help="Causal records as JSON Lines.", exists=True, dir_okay=False)
]
Rules = Annotated[
    Path | None,
    typer.Option(
        metavar="RULES", help="Rules, as .json or YAML (extra causal).", exists=True, dir_okay=False
    ),
]
WithProfile = Annotated[
    Profile, typer.Option(metavar="PROFILE", help="strict, or compat: the Causal Memory Layer's rules.")
]

WithFormat = Annotated[
    Format, typer.Option("--format", metavar="FORMAT", help="How: text, json, markdown or sarif.")
]


@app.command()
def check(
    file: Log,
    config: Rules = None,
    profile: WithProfile = Profile.STRICT,
    format: WithFormat = Format.TEXT,
) -> None:
    """Audit a causal log. Exit code 1 if anything in it fails; warnings do not."""
    from memoflow.causal.reports import Subject

    subject = Subject(file.name)
    result = _audited(file, config, profile, subject)
    PRINTERS[format](result, subject, profile)
    raise typer.Exit(0 if result.passed else 1)


def _audited(file: Path, config: Path | None, profile: Profile, subject: Subject) -> AuditResult:
    from memoflow.causal.compat import audit_compat
    from memoflow.causal.config import load_compat, load_strict
    from memoflow.causal.jsonl import read_numbered
    from memoflow.causal.strict import audit_strict

    with usage("'--config'"):
        rules = load_strict(config) if config and profile == Profile.STRICT else None
        compat = load_compat(config) if config and profile == Profile.COMPAT else None
    with _opened(file) as lines:
        records = subject.passing(read_numbered(lines, profile.value))
        return audit_strict(records, rules) if profile == Profile.STRICT else audit_compat(records, compat)


@contextmanager
def _opened(file: Path) -> Iterator[IO[bytes]]:
    try:
        opened = file.open("rb")
    except OSError as error:
        raise typer.BadParameter(f"The file {str(file)!r} cannot be read ({error.strerror}).") from None
    with closing(opened):
        yield opened


def _text(result: AuditResult, subject: Subject, profile: Profile) -> None:
    rows = [
        (
            finding.severity,
            finding.code,
            finding.record_id,
            subject.lines.get(finding.record_id),
            finding.message,
        )
        for finding in result.findings
    ]
    show_table(("SEVERITY", "CODE", "RECORD", "LINE", "WHAT"), rows, empty="Nothing was found.")
    counts = f"{result.failures} failures, {result.warnings} warnings"
    say(f"{result.total} records: {counts}; the audit {'passed' if result.passed else 'failed'}.")


def _json(result: AuditResult, subject: Subject, profile: Profile) -> None:
    _dump({"file": subject.name, "profile": profile.value, **result.to_dict()})


def _markdown(result: AuditResult, subject: Subject, profile: Profile) -> None:
    from memoflow.causal.reports import to_markdown

    typer.echo(to_markdown(result, subject, profile.value), nl=False)


def _sarif(result: AuditResult, subject: Subject, profile: Profile) -> None:
    from memoflow.causal.reports import to_sarif

    _dump(to_sarif(result, subject, profile.value, __version__))


def _dump(value: object) -> None:
    # Not the JSON of the other commands, which writes what is named like a time or money as such.
    typer.echo(shown_json(value))


PRINTERS: Final = {
    Format.TEXT: _text,
    Format.JSON: _json,
    Format.MARKDOWN: _markdown,
    Format.SARIF: _sarif,
}


@app.command()
def chain(
    file: Log,
    record: Annotated[str, typer.Argument(metavar="ID", help="The id of a record.")],
    profile: WithProfile = Profile.STRICT,
    json: AsJson = False,
) -> None:
    """Show what led to a record, from the top. Exit code 1 if that does not begin with a root."""
    from memoflow.causal.jsonl import read_jsonl
    from memoflow.causal.lineage import REFERENCE_CAP, Lineage, view_chain

    with _opened(file) as lines:
        cap = REFERENCE_CAP if profile == Profile.COMPAT else None
        shown = view_chain(Lineage(read_jsonl(lines, profile.value), cap=cap), record)
    if json:
        _dump(shown.to_dict())
    else:
        rows = [
            (one.id, one.actor.key, one.action, one.permitted_by, " ".join(one.joins))
            for one in shown.records
        ]
        show_table(("RECORD", "ACTOR", "ACTION", "PERMITTED BY", "JOINS"), rows, empty="No records.")
        for note in filter(None, (shown.gap, shown.secret_note)):
            say(note)
    raise typer.Exit(1 if shown.gap else 0)
