"""The causal record: one boundary that was crossed, by whom, and what permitted it.

A record says why something was permitted, never what came of it. The three causal fields answer
different questions and are never merged: ``action`` (which boundary), ``permitted_by`` (a reference to
the permission) and ``parent_cause`` (the one record that caused this one). ``joins`` names further
records whose results came together here, after parallel calls. The ids that a provider gives to calls
belong into ``object``: they correlate messages, not causes.

There are two forms. The *strict* one is memoflow's own: every field has its type, and an actor may be a
logical one (kind and name). The *compat* one takes what the Causal Memory Layer 0.4 takes, as far as it
can be told apart: any JSON as ``permitted_by``, empty text, any integer as time, and processes as actors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from memoflow.canonical import JSON
from memoflow.causal._frozen import EMPTY, freeze, thaw
from memoflow.errors import InvalidRequest, MemoflowError
from memoflow.identity import check_name

__all__ = ["Actor", "CausalRecord", "Form", "RecordRefused", "actor_from_dict", "record_from_dict"]

Form = Literal["strict", "compat"]

MAX_JOINS: Final = 256
"""Most records that one record joins."""

# The longest in a ledger: an account's path has up to 8 names of 200 characters.
_MAX_REFERENCE: Final = 2048
_MAX_TIME: Final = 2**63
_KIND: Final = re.compile(r"[a-z][a-z0-9_.-]{0,63}")
_REQUIRED: Final = ("id", "timestamp", "actor", "action", "object", "permitted_by")
_KNOWN: Final = frozenset((*_REQUIRED, "parent_cause", "joins", "ctag", "integrity"))
_FROZEN: Final = tuple(sorted({*_KNOWN, "extra"} - {"actor"}))
_ACTOR_NUMBERS: Final = ("pid", "uid", "ppid", "gid")
_ACTOR_TEXTS: Final = ("comm", "kind", "name")


class RecordRefused(MemoflowError, ValueError):
    """What was read is no causal record. Never holds any of its text.

    Attributes:
        problem: what is wrong, as a sentence.
        line: the line it stands in, counted from 1, where it comes from a file.
    """

    def __init__(self, problem: str, line: int | None = None) -> None:
        self.problem, self.line = problem, line
        super().__init__(problem if line is None else f"Line {line}: {problem}")


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acted: a process (``pid`` and ``uid``), or a logical actor (``kind`` and ``name``), or both.

    Attributes:
        kind: what it is: ``human``, ``agent``, ``model``, ``tool``, ``host``, ``provider`` or another word.
        name: which of them.
        comm: the name of the process.
        extra: members that are not known here, kept for the way back.
    """

    kind: str | None = None
    name: str | None = None
    pid: int | None = None
    uid: int | None = None
    ppid: int | None = None
    gid: int | None = None
    comm: str | None = None
    extra: Mapping[str, JSON] = EMPTY

    def __post_init__(self) -> None:
        for name in (*_ACTOR_TEXTS, "extra"):
            object.__setattr__(self, name, freeze(getattr(self, name)))

    @property
    def key(self) -> str:
        """Who this is, as text: ``kind:name``, else ``pid:<pid>/uid:<uid>``."""
        if self.kind is not None and self.name is not None:
            return f"{self.kind}:{self.name}"
        return f"pid:{self.pid}/uid:{self.uid}"

    def to_dict(self) -> dict[str, JSON]:
        """The actor as plain JSON; members without a value are left out."""
        known = {name: getattr(self, name) for name in (*_ACTOR_NUMBERS, *_ACTOR_TEXTS)}
        return {**{name: value for name, value in known.items() if value is not None}, **thaw(self.extra)}


@dataclass(frozen=True, slots=True)
class CausalRecord:
    """One boundary that was crossed. It cannot be changed, and neither can anything in it.

    Raises:
        InvalidRequest: something in it is no JSON, or has no exact JSON form.

    Attributes:
        id: unique in its log.
        timestamp: nanoseconds when the boundary was crossed.
        actor: who crossed it.
        action: which boundary: exec, open, read, write, connect, send, or any other word.
        object: the target or payload, any JSON. Arrays are tuples.
        permitted_by: a reference to the permission; text, except in the compat form.
        parent_cause: id of the record that caused this one; None for a root or a gap.
        joins: ids of further records whose results came together here.
        ctag: the 16-bit causal tag (see `memoflow.causal.ctag`).
        integrity: a placeholder for a hash or signature, kept as it is.
        extra: members that are not known here, kept for the way back.
    """

    id: str
    timestamp: int
    actor: Actor
    action: str
    object: JSON
    permitted_by: JSON
    parent_cause: str | None = None
    joins: tuple[str, ...] = ()
    ctag: int | None = None
    integrity: JSON = None
    extra: Mapping[str, JSON] = EMPTY

    def __post_init__(self) -> None:
        for name in _FROZEN:
            value = getattr(self, name)
            if (frozen := freeze(value)) is not value:
                object.__setattr__(self, name, frozen)

    def to_dict(self) -> dict[str, JSON]:
        """The record as plain JSON, in the order of the fields; optional ones only with a value."""
        result: dict[str, JSON] = {
            "id": self.id,
            "timestamp": self.timestamp,
            "actor": self.actor.to_dict(),
            "action": self.action,
            "object": thaw(self.object),
            "permitted_by": thaw(self.permitted_by),
            "parent_cause": self.parent_cause,
        }
        if self.joins:
            result["joins"] = list(self.joins)
        for name in ("ctag", "integrity"):
            if (value := getattr(self, name)) is not None:
                result[name] = thaw(value)
        return {**result, **thaw(self.extra)}


def record_from_dict(raw: object, form: Form = "strict") -> CausalRecord:
    """The record that a JSON object says.

    Args:
        raw: what was parsed.
        form: ``strict``, or ``compat`` for logs of the Causal Memory Layer.

    Raises:
        RecordRefused: fields are missing or are of another type.
    """
    if not isinstance(raw, Mapping):
        raise RecordRefused(f"A causal record is a JSON object, not {_kind(raw)}.")
    if missing := [name for name in _REQUIRED if name not in raw]:
        raise RecordRefused(f"The causal record is missing required field(s): {', '.join(missing)}.")
    strict = form == "strict"
    try:
        return CausalRecord(
            id=_text(raw, "id", strict),
            timestamp=_whole(raw, "timestamp", strict),
            actor=actor_from_dict(raw["actor"], form),
            action=_text(raw, "action", strict),
            object=raw["object"],
            permitted_by=_text(raw, "permitted_by", True, _MAX_REFERENCE) if strict else raw["permitted_by"],
            parent_cause=None if raw.get("parent_cause") is None else _text(raw, "parent_cause", strict),
            joins=_joins(raw.get("joins"), strict),
            ctag=None if raw.get("ctag") is None else _whole(raw, "ctag", strict),
            integrity=raw.get("integrity"),
            extra={name: value for name, value in raw.items() if name not in _KNOWN},
        )
    except InvalidRequest as error:
        raise RecordRefused(str(error)) from None


def actor_from_dict(raw: object, form: Form = "strict") -> Actor:
    """The actor that a JSON object says.

    Raises:
        RecordRefused: it has neither pid and uid nor kind and name, or a member is of another type.
    """
    if not isinstance(raw, Mapping):
        raise RecordRefused(f"'actor' must be a JSON object, not {_kind(raw)}.")
    strict = form == "strict"
    if not (strict and {"kind", "name"} <= raw.keys()):
        for name in ("pid", "uid"):
            if name not in raw:
                other = ", and it has no kind and name" if strict else ""
                raise RecordRefused(f"'actor' is missing a required field: {name}{other}.")
    known = (*_ACTOR_NUMBERS, *_ACTOR_TEXTS)
    given = {name: raw[name] for name in known if raw.get(name) is not None}
    for name, value in given.items():
        _check_member(name, value, raw, strict)
    return Actor(**given, extra={name: value for name, value in raw.items() if name not in known})


def _check_member(name: str, value: object, raw: Mapping[str, JSON], strict: bool) -> None:
    if name in _ACTOR_NUMBERS:
        _whole(raw, name, strict)
        return
    _text(raw, name, strict)
    if strict and name == "kind" and (value == "pid" or not _KIND.fullmatch(str(value))):
        raise RecordRefused(
            "The kind of an actor is 1 to 64 of the characters a-z 0-9 _ . - and begins with a letter; "
            "'pid' stands for processes and is not one."
        )


def _text(raw: Mapping[str, JSON], name: str, strict: bool, limit: int = 256) -> str:
    value = raw[name]
    if not isinstance(value, str):
        raise RecordRefused(f"'{name}' must be text, not {_kind(value)}.")
    if strict:
        try:
            check_name(f"'{name}'", value, limit=limit)
        except InvalidRequest as error:
            raise RecordRefused(str(error)) from None
    return value


def _whole(raw: Mapping[str, JSON], name: str, strict: bool) -> int:
    value = raw[name]
    if isinstance(value, bool) or not isinstance(value, int):
        raise RecordRefused(f"'{name}' must be an integer, not {_kind(value)}.")
    limit = 2**16 if name == "ctag" else _MAX_TIME
    if not 0 <= value < limit and (strict or name == "ctag"):
        raise RecordRefused(f"'{name}' must be from 0 to {limit - 1}.")
    return value


def _joins(value: object, strict: bool) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, (list, tuple)) or len(value) > MAX_JOINS:
        raise RecordRefused(f"'joins' must be an array of at most {MAX_JOINS} record ids.")
    return tuple(_text({"joins": item}, "joins", strict) for item in value)


def _kind(value: object) -> str:
    """What JSON calls a value; never the value."""
    if value is None:
        return "null"
    names = {
        bool: "a boolean",
        int: "a number",
        float: "a number",
        str: "text",
        list: "an array",
        tuple: "an array",
    }
    return names.get(type(value), "an object" if isinstance(value, Mapping) else type(value).__name__)
