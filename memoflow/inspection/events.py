"""What happens in a session of an agent, one event at a time, as plain data.

The JSON of an event is an object with ``session``, ``agent``, ``parent``, ``seq``, ``at_ms`` and, beside
them, ``kind`` and the fields of that kind. A ``kind`` that is not known here is kept, bytes and all, and
does nothing. ``prompt`` is memoflow's own kind: what the user or the developer wrote, which others read as
unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal

from memoflow.canonical import StrictJSONError, parse_strict
from memoflow.declarations import Trust
from memoflow.errors import InvalidRequest

__all__ = [
    "KINDS",
    "Event",
    "Kind",
    "ManifestSeen",
    "ManifestTool",
    "Prompt",
    "SessionEnd",
    "SessionStart",
    "Source",
    "SubagentReport",
    "SubagentSpawn",
    "ToolCall",
    "ToolResult",
    "Unknown",
    "event_plain",
    "parse_event",
    "read_event",
]

Origin = Literal["user", "project", "system", "network", "mcp", "subagent"]

MAX_EVENT_BYTES: Final = 16 * 1024 * 1024
"""Largest event that is read, in bytes of JSON."""

_MAX_DEPTH: Final = 64
_NAMED: Final[dict[str, str]] = {"network": "host", "mcp": "name", "subagent": "name"}
_TRUST: Final[dict[str, Trust]] = {"user": "trusted", "project": "semi", "system": "semi"}


@dataclass(frozen=True, slots=True)
class Source:
    """Where a text came from; ``name`` is the host, server or subagent where there is one."""

    origin: Origin
    name: str = ""

    @property
    def trust(self) -> Trust:
        """What may be believed of it: only the user is trusted, and nothing from outside."""
        return _TRUST.get(self.origin, "untrusted")

    @property
    def label(self) -> str:
        """``user``, ``project``, ``system``, ``network:<host>``, ``mcp:<name>`` or ``subagent:<name>``."""
        return f"{self.origin}:{self.name}" if self.origin in _NAMED else self.origin


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that is about to run: the only moment at which anything can be stopped.

    ``raw`` is the text of the arguments as the model wrote it, where it is known; it may say what two
    parsers read differently.
    """

    name: ClassVar[str] = "tool_call"
    tool: str
    args: Any = field(repr=False)
    raw: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class ToolResult:
    """A result that is about to enter the context again."""

    name: ClassVar[str] = "tool_result"
    tool: str
    content: str = field(repr=False)
    source: Source


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the user or the developer wrote: what stands here was not smuggled in."""

    name: ClassVar[str] = "prompt"
    content: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class SubagentSpawn:
    """A subagent is started with instructions and tools."""

    name: ClassVar[str] = "subagent_spawn"
    subagent: str
    instructions: str = field(repr=False)
    granted_tools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SubagentReport:
    """What a subagent returns; it may have read anything, so it is never trusted."""

    name: ClassVar[str] = "subagent_report"
    subagent: str
    content: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ManifestTool:
    """A tool as an MCP server describes it."""

    name: str
    description: str = field(repr=False)
    schema: Any = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class ManifestSeen:
    """What an MCP server offers, at its handshake."""

    name: ClassVar[str] = "manifest_seen"
    server: str
    tools: tuple[ManifestTool, ...]


@dataclass(frozen=True, slots=True)
class SessionStart:
    """A session begins."""

    name: ClassVar[str] = "session_start"


@dataclass(frozen=True, slots=True)
class SessionEnd:
    """A session is over: all that was kept of it is dropped."""

    name: ClassVar[str] = "session_end"


@dataclass(frozen=True, slots=True)
class Unknown:
    """An event of a kind that is not known here, as it came: writing it anew would lose what it said."""

    name: ClassVar[str] = "unknown"
    raw: bytes = field(default=b"", repr=False)


Kind = (
    ToolCall
    | ToolResult
    | Prompt
    | SubagentSpawn
    | SubagentReport
    | ManifestSeen
    | SessionStart
    | SessionEnd
    | Unknown
)


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a session.

    Attributes:
        session: the session it belongs to.
        seq: number in the session, which only grows.
        kind: what happened.
        agent: ``main``, or the name of a subagent.
        parent: the agent that started this one.
        at_ms: when, in milliseconds since 1970, as the caller says.
    """

    session: str
    seq: int
    kind: Kind
    agent: str = "main"
    parent: str | None = None
    at_ms: int = 0


def parse_event(text: str | bytes) -> Event:
    """Read an event from its JSON.

    Raises:
        InvalidRequest: it is not one JSON object, or a field that its kind needs is missing or of another
        type.
    """
    try:
        value = parse_strict(text, max_bytes=MAX_EVENT_BYTES, max_depth=_MAX_DEPTH)
    except StrictJSONError as error:
        raise InvalidRequest(f"An event cannot be read. {error} Correct the line.") from None
    raw = text.encode() if isinstance(text, str) else text
    return read_event(value, raw=raw)


def read_event(value: Any, *, raw: bytes = b"") -> Event:
    """Read an event from plain JSON; ``raw`` are its bytes, kept where the kind is not known.

    Raises:
        InvalidRequest: as `parse_event`.
    """
    if not isinstance(value, Mapping):
        raise InvalidRequest(f"An event must be a JSON object, not {type(value).__name__}. Correct it.")
    fields = _Fields(value)
    return Event(
        session=fields.text("session"),
        seq=fields.count("seq"),
        kind=_read_kind(fields, raw),
        agent=fields.text("agent", "main"),
        parent=fields.text_or_none("parent"),
        at_ms=fields.count("at_ms", 0),
    )


def _read_kind(fields: _Fields, raw: bytes) -> Kind:
    kind = fields.value.get("kind")
    reader = _READERS.get(kind) if isinstance(kind, str) else None
    return Unknown(raw) if reader is None else reader(fields)


class _Fields:
    """The fields of an object, read with errors that name the field and never its value."""

    __slots__ = ("value",)

    def __init__(self, value: Mapping[str, Any]) -> None:
        self.value = value

    def text(self, name: str, default: str | None = None) -> str:
        value = self.value.get(name, default)
        if not isinstance(value, str):
            raise self._wrong(name, "text", value)
        return value

    def text_or_none(self, name: str) -> str | None:
        return None if self.value.get(name) is None else self.text(name)

    def count(self, name: str, default: int | None = None) -> int:
        value = self.value.get(name, default)
        if type(value) is not int or not 0 <= value < 2**64:
            raise self._wrong(name, "a whole number from 0 to 2^64 - 1", value)
        return value

    def list(self, name: str) -> list[Any]:
        value = self.value.get(name, [])
        if not isinstance(value, list):
            raise self._wrong(name, "a list", value)
        return value

    def part(self, name: str) -> _Fields:
        value = self.value.get(name)
        if not isinstance(value, Mapping):
            raise self._wrong(name, "an object", value)
        return _Fields(value)

    def _wrong(self, name: str, wanted: str, value: object) -> InvalidRequest:
        kind = self.value.get("kind")
        of = f" of a {kind}" if isinstance(kind, str) and kind in _READERS else ""
        found = "missing" if value is None else f"of type {type(value).__name__}"
        return InvalidRequest(f"The field {name!r}{of} must be {wanted}; it is {found}. Correct the event.")


def _call(fields: _Fields) -> ToolCall:
    return ToolCall(fields.text("tool"), fields.value.get("args"), fields.text_or_none("raw"))


def _result(fields: _Fields) -> ToolResult:
    return ToolResult(fields.text("tool"), fields.text("content"), _source(fields.part("source")))


def _source(fields: _Fields) -> Source:
    origin = fields.text("origin")
    if origin not in ("user", "project", "system", *_NAMED):
        raise InvalidRequest(
            "The origin of a source must be user, project, system, network, mcp or subagent. "
            "Correct the event."
        )
    named = _NAMED.get(origin)
    return Source(origin, "" if named is None else fields.text(named))  # type: ignore[arg-type]


def _spawn(fields: _Fields) -> SubagentSpawn:
    tools = fields.list("granted_tools")
    if not all(isinstance(tool, str) for tool in tools):
        raise InvalidRequest("granted_tools must be a list of names of tools. Correct the event.")
    return SubagentSpawn(fields.text("name"), fields.text("instructions"), tuple(tools))


def _manifest(fields: _Fields) -> ManifestSeen:
    tools = [_Fields(tool if isinstance(tool, Mapping) else {}) for tool in fields.list("tools")]
    read = (
        ManifestTool(tool.text("name"), tool.text("description", ""), tool.value.get("schema"))
        for tool in tools
    )
    return ManifestSeen(fields.text("server"), tuple(read))


_READERS: Final[dict[str, Any]] = {
    "tool_call": _call,
    "tool_result": _result,
    "prompt": lambda fields: Prompt(fields.text("content")),
    "subagent_spawn": _spawn,
    "subagent_report": lambda fields: SubagentReport(fields.text("name"), fields.text("content")),
    "manifest_seen": _manifest,
    "session_start": lambda fields: SessionStart(),
    "session_end": lambda fields: SessionEnd(),
}


KINDS: Final = tuple(_READERS)
"""The kinds of events that are known, by name."""


def event_plain(event: Event) -> dict[str, Any]:
    """An event as plain JSON, which `read_event` reads back; of an unknown kind only that it was one."""
    about: dict[str, Any] = {"session": event.session, "agent": event.agent, "seq": event.seq}
    if event.parent is not None:
        about["parent"] = event.parent
    return {**about, "at_ms": event.at_ms, "kind": event.kind.name, **_plain(event.kind)}


def _plain(kind: Kind) -> dict[str, Any]:
    match kind:
        case ToolCall():
            raw = {} if kind.raw is None else {"raw": kind.raw}
            return {"tool": kind.tool, "args": kind.args, **raw}
        case ToolResult():
            named = _NAMED.get(kind.source.origin)
            source = {"origin": kind.source.origin, **({} if named is None else {named: kind.source.name})}
            return {"tool": kind.tool, "content": kind.content, "source": source}
        case Prompt():
            return {"content": kind.content}
        case SubagentSpawn():
            granted = list(kind.granted_tools)
            return {"name": kind.subagent, "instructions": kind.instructions, "granted_tools": granted}
        case SubagentReport():
            return {"name": kind.subagent, "content": kind.content}
        case ManifestSeen():
            tools = [{"name": t.name, "description": t.description, "schema": t.schema} for t in kind.tools]
            return {"server": kind.server, "tools": tools}
        case _:
            return {}
