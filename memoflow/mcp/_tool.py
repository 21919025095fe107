"""`mcp_tool` and `mcp_tools`: tools of a server, under the same rules as functions."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from typing import Any, Final

from mcp import ClientSession, types

from memoflow.canonical import canonical
from memoflow.declarations import Inspection
from memoflow.errors import ConfigurationError, InvalidTool
from memoflow.mcp._meta import check_key_name, make_meta
from memoflow.mcp._result import written
from memoflow.mcp._schema import CheckedSchema
from memoflow.mcp._session import Link
from memoflow.tools import ApprovalMode, EffectClass, Tool, ToolCall, schema_tool

__all__ = ["mcp_tool", "mcp_tools"]

MAX_PAGES: Final = 1_000
MAX_VERSION: Final = 41
"""Most characters of the caller's version: with a plus and 22 of the digest they are 64, the limit."""

_DIGEST_BYTES: Final = 16


def mcp_tool(
    session: ClientSession,
    tool: types.Tool,
    *,
    version: str,
    effect: EffectClass,
    name: str | None = None,
    namespace: str | None = None,
    timeout: float | None = None,
    key_name: str | None = None,
    approval: ApprovalMode | None = None,
    inspect: Inspection | None = None,
) -> Tool[..., Any]:
    """A tool of an MCP server as one a model may call.

    Call it in the event loop of the session. The tool then works in async activities of that loop, and in
    blocking activities that run in another thread while the loop goes on.

    The input schema is offered as it is, and arguments are checked against it before anything is
    recorded as begun. ``version`` becomes ``version+digest``: 128 bits of SHA-256 in 22 characters of
    base64url, over the server's name of the tool and its input schema, so that an unfinished recorded call
    is never finished by a tool that takes something else. What is not in it is who serves the tool: tools
    of the same name from two servers are told apart by ``namespace``, ``name`` or ``version``.

    A tool whose output schema is refused can be given without one:
    ``tool.model_copy(update={"output_schema": None})``.

    Args:
        session: an initialised session; for a `mcp.Client` its ``.session``.
        tool: as the session listed it.
        version: 1 to 41 characters.
        effect: ``read_only``, ``idempotent`` or ``at_most_once``. The server's own ``annotations`` are
            claims, and never read.
        name: what the model calls it, where the server's name is refused by providers or taken.
        namespace: the provider's tool namespace.
        timeout: seconds one call may take.
        key_name: a further ``_meta`` key under which the server expects the idempotency key.
        approval: ``human`` if a person has to allow each call before the server is asked.
        inspect: what a call does and which arguments decide it; what the server says of that is never read.

    Raises:
        InvalidTool: something about the tool cannot work; the message says what to change.
        ConfigurationError: this is no session, or not its event loop.
    """
    link = Link.here(session)
    if not isinstance(tool, types.Tool):
        raise InvalidTool(f"A {type(tool).__name__} is no tool of an MCP session. Take one of list_tools().")
    served = tool.name
    if tool.execution is not None and tool.execution.task_support == "required":
        raise InvalidTool(f"MCP tool {served!r} only runs as a task, which memoflow does not start.")
    schema = CheckedSchema(tool.input_schema, f"The input schema of MCP tool {served!r}")
    if tool.input_schema.get("type") != "object":
        raise InvalidTool(f'The input schema of MCP tool {served!r} must have "type": "object" at its root.')
    output = (
        None
        if tool.output_schema is None
        else CheckedSchema(tool.output_schema, f"The output schema of MCP tool {served!r}")
    )
    chosen = served if name is None else name
    extra_key = None if key_name is None else check_key_name(key_name, served)

    async def run(arguments: dict[str, Any], *, call: ToolCall) -> Any:
        meta = make_meta(call, extra_key)
        result = await link.call(chosen, served, arguments, meta, timeout)
        return written(result, output)

    return schema_tool(
        run,
        name=chosen,
        version=_pinned(version, served, schema.canonical),
        effect=effect,
        schema=tool.input_schema,
        check=schema.problems,
        names=schema.names,
        namespace=namespace,
        description=tool.description or tool.title or "",
        timeout=timeout,
        approval=approval,
        inspect=inspect,
    )


async def mcp_tools(
    session: ClientSession,
    *,
    version: str,
    effects: Mapping[str, EffectClass],
    names: Mapping[str, str] | None = None,
    namespace: str | None = None,
    timeout: float | None = None,
    key_name: str | None = None,
    approvals: Mapping[str, ApprovalMode] | None = None,
    inspections: Mapping[str, Inspection] | None = None,
) -> list[Tool[..., Any]]:
    """The tools of an MCP server that ``effects`` names, in its order; the server's others are not offered.

    Args:
        session: an initialised session; for a `mcp.Client` its ``.session``.
        version: as for `mcp_tool`.
        effects: the server's names and an effect class for each. What the server adds later is offered when
            it is named here, and so somebody has said what may be done after a crash.
        names: other names for the model, by the server's.
        namespace: as for `mcp_tool`.
        timeout: as for `mcp_tool`.
        key_name: as for `mcp_tool`.
        approvals: ``human`` for each tool whose calls a person has to allow, by the server's names.
        inspections: what calls do and which arguments decide it, by the server's names.

    Raises:
        InvalidTool: the server does not list a named tool, or lists one twice; or as for `mcp_tool`.
        ConfigurationError: this is no session, or not its event loop.
    """
    Link.here(session)
    given, allowed, declared = names or {}, approvals or {}, inspections or {}
    for what, named in (
        ("a name for the model", given),
        ("an approval", allowed),
        ("an inspection", declared),
    ):
        if strangers := sorted(named.keys() - effects.keys()):
            raise InvalidTool(f"MCP tool {strangers[0]!r} has {what} but no effect class.")
    listed = await _listed(session)
    if missing := [served for served in effects if served not in listed]:
        raise InvalidTool(
            f"The MCP server lists no tool {missing[0]!r}. "
            f"It lists {', '.join(sorted(listed))[:500] or 'none'}."
        )
    return [
        mcp_tool(
            session,
            listed[served],
            version=version,
            effect=effect,
            name=given.get(served),
            namespace=namespace,
            timeout=timeout,
            key_name=key_name,
            approval=allowed.get(served),
            inspect=declared.get(served),
        )
        for served, effect in effects.items()
    ]


async def _listed(session: ClientSession) -> dict[str, types.Tool]:
    """All tools of a session by name, through all pages."""
    listed: dict[str, types.Tool] = {}
    cursor: str | None = None
    seen: set[str] = set()
    for _ in range(MAX_PAGES):
        params = None if cursor is None else types.PaginatedRequestParams(cursor=cursor)
        page = await session.list_tools(params=params)
        for tool in page.tools:
            if listed.setdefault(tool.name, tool) is not tool:
                raise InvalidTool(f"The MCP server lists two tools called {tool.name!r}; which is meant?")
        cursor = page.next_cursor
        if cursor is None:
            return listed
        if cursor in seen:
            break
        seen.add(cursor)
    raise ConfigurationError(
        f"The MCP server's list of tools does not end: a page comes again, or there are over {MAX_PAGES}."
    )


def _pinned(version: object, served: str, schema: bytes) -> str:
    """The caller's version and what the tool takes, in one."""
    if not isinstance(version, str) or not 1 <= len(version) <= MAX_VERSION:
        raise InvalidTool(
            f"The version of MCP tool {served!r} must be text of 1 to {MAX_VERSION} characters; a digest of "
            "its input schema is added to it."
        )
    digest = hashlib.sha256(canonical(served) + b"\n" + schema).digest()[:_DIGEST_BYTES]
    return f"{version}+{base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"
