"""Which arguments of a call decide something, as its tool declared or else by their names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from memoflow.declarations import Inspection, Sensitive
from memoflow.inspection.actions import SHELLS, words_of
from memoflow.inspection.facets import Piece

__all__ = ["Argument", "arguments_of", "commands_of"]

_NAMES: Final[tuple[tuple[Sensitive, str], ...]] = (
    (
        "recipient",
        "to cc bcc recipient recipients email emails emailaddress invitee invitees participant "
        "participants attendee attendees member members sharewith",
    ),
    (
        "account",
        "account accountnumber accountid iban wallet card cardnumber payee beneficiary routingnumber",
    ),
    ("url", "url urls uri link href webhook webhookurl callback callbackurl endpoint target remote"),
    ("host", "host hostname domain server address ip"),
    ("path", "path paths file filename filepath dir directory folder destination dest output"),
    ("command", "command cmd script code sql query argv shell statement"),
    ("amount", "amount cents price total quantity value"),
)
_BY_NAME: Final = {name: kind for kind, names in _NAMES for name in names.split()}
_RUNNERS: Final = SHELLS | {"run", "execute", "eval", "python", "node", "sql", "script", "subprocess"}
# A value that begins with one of these is a command, whatever it is called.
_PROGRAMS: Final = (
    "apt aws bash cat chmod chown cp crontab curl dd docker find gcloud gh git kubectl mkfs mv nc ncat node "
    "npm perl pip powershell python python3 rclone rm rsync scp sh shutdown ssh sudo tee terraform wget zsh"
)
_COMMANDS: Final = frozenset(_PROGRAMS.split())


@dataclass(frozen=True, slots=True)
class Argument:
    """A text that decides something.

    Attributes:
        kind: what it decides.
        piece: where it stands, and what it says.
        declared: whether its tool declared it.
    """

    kind: Sensitive
    piece: Piece
    declared: bool


def arguments_of(tool: str, pieces: tuple[Piece, ...], declared: Inspection | None) -> tuple[Argument, ...]:
    """The texts in the arguments of a call that decide something."""
    found = _declared(pieces, declared) if declared is not None else _guessed(tool, pieces)
    return tuple(found)


def commands_of(arguments: tuple[Argument, ...]) -> str:
    """Those that are commands, as one line."""
    return " ".join(argument.piece.text for argument in arguments if argument.kind == "command")


def _declared(pieces: tuple[Piece, ...], declared: Inspection) -> Iterator[Argument]:
    kinds = dict(declared.sensitive)
    for piece in _spoken(pieces):
        name = ".".join(step for step in piece.path if isinstance(step, str))
        # What stands below a declared name belongs to it.
        kind = next((kinds[known] for known in kinds if f"{name}.".startswith(f"{known}.")), None)
        if kind is not None:
            yield Argument(kind, piece, declared=True)


def _guessed(tool: str, pieces: tuple[Piece, ...]) -> Iterator[Argument]:
    runs = not _RUNNERS.isdisjoint(words_of(tool))
    for piece in _spoken(pieces):
        kind = _by_name(piece)
        if runs or _is_command(piece.text):
            yield Argument("command", piece, declared=False)
        elif kind is not None:
            yield Argument(kind, piece, declared=False)


def _spoken(pieces: tuple[Piece, ...]) -> Iterator[Piece]:
    return (piece for piece in pieces if piece.part in ("value", "number"))


def _by_name(piece: Piece) -> Sensitive | None:
    names = [step for step in piece.path if isinstance(step, str)]
    plain = names[-1].replace("_", "").replace("-", "").lower() if names else ""
    return _BY_NAME.get(plain)


def _is_command(text: str) -> bool:
    first, blank, _ = text.lstrip().partition(" ")
    return bool(blank) and first.rpartition("/")[2] in _COMMANDS
