"""Where the arguments that decide something came from: the user, the developer, or a text that was read.

This is the main signal. Whoever plants an instruction can word it in any way, but it has to name who gets the
money or where the data goes; that name then stands in a call, and in no text of the user's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from memoflow.declarations import Action, Sensitive, at_least
from memoflow.inspection.arguments import Argument
from memoflow.inspection.atoms import Atom, atoms_in, chain, words_in
from memoflow.inspection.findings import Finding, Severity
from memoflow.inspection.hosts import bare_host
from memoflow.inspection.matching import encoded
from memoflow.inspection.taint import Mark, Taint

__all__ = ["Origin", "origins"]

_WANTED: Final[dict[Sensitive, tuple[Atom, ...]]] = {
    "recipient": ("email", "account", "host", "url"),
    "account": ("account", "email"),
    "url": ("url", "host"),
    "host": ("host",),
    "path": ("path",),
    "command": ("url", "host", "email", "account", "path"),
    "amount": (),
}
_IN_A_COMMAND: Final[dict[Atom, Sensitive]] = {
    "url": "url",
    "host": "host",
    "email": "recipient",
    "account": "account",
    "path": "path",
}
# Who gets it and where it goes. Files are found by listing them, so a path is only telling where its tool
# says so, or where something is destroyed.
_TELLING: Final[frozenset[Sensitive]] = frozenset({"recipient", "account", "url", "host"})
_NAMED: Final[frozenset[Sensitive]] = frozenset({"recipient", "account"})
_MOST_WORDS: Final = 4


@dataclass(frozen=True, slots=True)
class Origin:
    """An argument that came from an untrusted text, and the text."""

    finding: Finding
    mark: Mark


def origins(
    arguments: tuple[Argument, ...], taint: Taint, action: Action, is_allowed: Callable[[str], bool]
) -> tuple[Origin, ...]:
    """The arguments that came from untrusted texts.

    Args:
        arguments: those that decide something.
        taint: what was read in this session, and what the user and the developer wrote.
        action: what the call does.
        is_allowed: whether a host may be reached in any case.
    """
    found = (origin for one in arguments for origin in _of_one(one, taint, action, is_allowed))
    return tuple(dict.fromkeys(found))


def _of_one(
    argument: Argument, taint: Taint, action: Action, is_allowed: Callable[[str], bool]
) -> Iterator[Origin]:
    text = argument.piece.text
    atoms = [(kind, value) for kind, value in _atoms(argument) if kind in _WANTED[argument.kind]]
    hosts = {value for kind, value in atoms if kind == "host"}
    known = all(is_allowed(host) or taint.reader.atom("host", host) in taint.trusted.atoms for host in hosts)
    for kind, value in atoms:
        if kind in ("host", "url") and hosts and known:
            continue
        values = chain(value) if kind == "path" else [(kind, value)]
        mark = taint.origin(*(taint.reader.atom(*one) for one in values))
        if mark is not None:
            sensitive = _IN_A_COMMAND[kind] if argument.kind == "command" else argument.kind
            yield Origin(_finding(argument, sensitive, taint, action, value), mark)
    if argument.kind in _NAMED and not atoms and (mark := _by_words(text, taint)) is not None:
        yield Origin(_finding(argument, argument.kind, taint, action, text), mark)


def _atoms(argument: Argument) -> Iterator[tuple[Atom, str]]:
    yield from atoms_in(argument.piece.text)
    if argument.kind in ("host", "url"):
        yield from (("host", host.name) for host in bare_host(argument.piece.text))


def _by_words(text: str, taint: Taint) -> Mark | None:
    words = words_in(text)
    if not words or len(words) > _MOST_WORDS:
        return None
    return taint.origin_of_words(taint.reader.read(text).words)


def _finding(argument: Argument, kind: Sensitive, taint: Taint, action: Action, value: str) -> Finding:
    return Finding(
        detector=f"provenance.{kind}",
        severity=_severity(argument, kind, taint, action),
        confidence=90 if argument.declared else 70,
        facet="tool_args",
        length=len(encoded(value)),
    )


def _severity(argument: Argument, kind: Sensitive, taint: Taint, action: Action) -> Severity:
    # Where no word of the user's was seen, it is not known what they asked for.
    if not taint.prompts:
        return "medium"
    telling = (
        kind in _TELLING or argument.declared or (kind == "path" and at_least(action, "privilege_changing"))
    )
    return "high" if telling else "medium"
