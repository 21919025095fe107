"""What is checked when a tool of a server is made into one of memoflow."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("mcp", reason="the MCP SDK is not installed: memoflow-runtime[mcp]")

from mcp import Client, ClientSession, types

from memoflow import ConfigurationError, Inspection, InvalidTool, Tool
from memoflow.mcp import mcp_tool, mcp_tools
from tests.mcp._desk import NUMBER, Desk

SENDS = Inspection(action="network", sensitive={"to": "recipient"})


def within(desk: Desk, body: Any) -> Any:
    """Run a coroutine with a session. What it raises is raised outside, where no group is put around it."""

    async def run() -> Any:
        async with Client(desk.server) as client:
            try:
                return await body(client.session)
            except Exception as error:
                return error

    result = asyncio.run(run())
    if isinstance(result, Exception):
        raise result
    return result


def made(*, tool: dict[str, Any] | None = None, **options: Any) -> Tool[..., Any]:
    """One tool, made with these options."""
    desk = Desk()

    async def body(session: ClientSession) -> Any:
        fields: dict[str, Any] = {"name": "pay", "input_schema": NUMBER, **(tool or {})}
        given = {"version": "v1", "effect": "read_only", **options}
        return mcp_tool(session, types.Tool(**fields), **given)

    result: Tool[..., Any] = within(desk, body)
    return result


def test_what_the_model_is_offered() -> None:
    """The server's name, description and schema, as they are."""
    schema = {"type": "object", "properties": {"z": {}, "a": {"pattern": r"\p{L}"}}, "title": "Pay"}
    tool = made(tool={"input_schema": schema, "description": "Pay.\n\nNow."}, namespace="shop", timeout=3)
    assert (tool.name, tool.namespace, tool.description) == ("pay", "shop", "Pay.\n\nNow.")
    assert list(tool.schema["properties"]) == ["z", "a"]
    assert tool.schema == schema
    assert (tool.strict, tool.custom, tool.is_async, tool.timeout) == (False, False, True, 3.0)


@pytest.mark.parametrize("name", ["files.read", "a b", "x" * 65, "", "é"])
def test_a_name_is_never_changed_silently(name: str) -> None:
    """What providers refuse is refused here, until somebody chooses another name."""
    with pytest.raises(InvalidTool, match="Tool name"):
        made(tool={"name": name})
    assert made(tool={"name": name}, name="files_read").name == "files_read"


def test_the_version_holds_the_schema() -> None:
    """Order in a schema is no change; anything else is, and so is another tool under the same name."""
    turned = {key: NUMBER[key] for key in reversed(NUMBER)}
    base = made().version
    assert base.startswith("v1+")
    assert made(version="v" * 41).version[:42] == "v" * 41 + "+"
    assert len(made(version="v" * 41).version) == 64
    assert made(tool={"input_schema": turned, "description": "Other."}).version == base
    others = [
        made(version="v2"),
        made(tool={"input_schema": {**NUMBER, "title": "x"}}),
        made(tool={"name": "other"}, name="pay"),
    ]
    assert len({base, *(tool.version for tool in others)}) == 4


@pytest.mark.parametrize("version", [None, 1, "", "v" * 42])
def test_a_version_leaves_room_for_the_digest(version: Any) -> None:
    """Both together have at most the 64 characters of any version."""
    with pytest.raises(InvalidTool, match="1 to 41 characters"):
        made(version=version)


def test_the_servers_word_is_no_effect_class() -> None:
    """Annotations are claims: they neither give a class nor change one."""
    claims = {"annotations": types.ToolAnnotations(read_only_hint=True, idempotent_hint=True)}
    assert made(tool=claims, effect="at_most_once").effect == "at_most_once"
    with pytest.raises(InvalidTool, match="has no effect class"):
        made(tool=claims, effect=None)


@pytest.mark.parametrize(
    ("tool", "problem"),
    [
        ({"input_schema": {}}, '"type": "object"'),
        ({"input_schema": {"type": "array"}}, '"type": "object"'),
        ({"input_schema": {"type": "object", "properties": 3}}, "no valid JSON Schema"),
        ({"execution": types.ToolExecution(task_support="required")}, "only runs as a task"),
        ({"output_schema": {"type": 3}}, "The output schema of MCP tool 'pay' is no valid"),
        ({"description": "\ud800"}, "lone surrogate"),
    ],
)
def test_what_cannot_be_offered_is_refused(tool: dict[str, Any], problem: str) -> None:
    """When it is made, not when a model calls it."""
    with pytest.raises(InvalidTool, match=problem):
        made(tool=tool)


@pytest.mark.parametrize(
    "key", ["", 3, "a b", "com.example/", "/x", "io.modelcontextprotocol/x", "com.mcp.x/y", "progressToken"]
)
def test_a_key_name_is_one_of_the_protocol(key: Any) -> None:
    """It has the form the protocol asks for, and takes none of its own names."""
    with pytest.raises(InvalidTool, match="key_name"):
        made(key_name=key)
    assert made(key_name="com.example/idempotencyKey").name == "pay"


def test_what_is_no_session_is_refused() -> None:
    """A client is told where its session is; without an event loop there is none."""
    tool = types.Tool(name="pay", input_schema=NUMBER)

    async def give(session: Any) -> None:
        mcp_tool(session, tool, version="v1", effect="read_only")

    with pytest.raises(ConfigurationError, match=r"not Client\. Pass its \.session"):
        asyncio.run(give(Client(Desk().server)))
    with pytest.raises(ConfigurationError, match=r"not int\.$"):
        asyncio.run(give(3))

    async def session_of(session: ClientSession) -> ClientSession:
        return session

    session = within(Desk(), session_of)
    with pytest.raises(ConfigurationError, match="event loop of their session"):
        mcp_tool(session, tool, version="v1", effect="read_only")
    with pytest.raises(InvalidTool, match="A dict is no tool"):
        within(Desk(), lambda session: give_tool(session, {}))


async def give_tool(session: ClientSession, tool: Any) -> None:
    """Make something into a tool."""
    mcp_tool(session, tool, version="v1", effect="read_only")


# All tools of a server


def test_all_pages_are_read_and_the_order_is_the_callers() -> None:
    """A request is the same however a server orders its list; what is not named is not offered."""
    desk = Desk(page=2)
    for name in ("a", "b", "c", "d.d", "e"):
        desk.add(name)
    effects: Any = {"e": "read_only", "d.d": "idempotent", "a": "at_most_once"}

    async def body(session: ClientSession) -> Any:
        declared = {"d.d": SENDS}
        names = {"d.d": "d_d"}
        return await mcp_tools(session, version="v1", effects=effects, names=names, inspections=declared)

    tools = within(desk, body)
    assert [tool.inspect for tool in tools] == [None, SENDS, None]
    assert [(tool.name, tool.effect) for tool in tools] == [
        ("e", "read_only"),
        ("d_d", "idempotent"),
        ("a", "at_most_once"),
    ]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"effects": {"nothing": "read_only"}}, r"lists no tool 'nothing'. It lists a, b\."),
        ({"effects": {"a": None}}, "has no effect class"),
        ({"effects": {"a": "read_only"}, "names": {"b": "c"}}, "'b' has a name for the model but no effect"),
        ({"effects": {"a": "read_only"}, "approvals": {"b": "human"}}, "'b' has an approval but no effect"),
        ({"effects": {"a": "read_only"}, "inspections": {"b": SENDS}}, "'b' has an inspection but no effect"),
    ],
)
def test_what_is_named_has_to_be_there(options: Any, problem: str) -> None:
    """A misspelt name is no smaller offer."""
    desk = Desk()
    desk.add("a")
    desk.add("b")

    async def body(session: ClientSession) -> Any:
        return await mcp_tools(session, version="v1", **options)

    with pytest.raises(InvalidTool, match=problem):
        within(desk, body)


def test_two_tools_of_one_name_are_refused() -> None:
    """Nobody could say which of them would run."""
    desk = Desk(page=1)
    desk.add("a")
    desk.tools["other"] = desk.tools["a"]

    async def body(session: ClientSession) -> Any:
        return await mcp_tools(session, version="v1", effects={"a": "read_only"})

    with pytest.raises(InvalidTool, match="two tools called 'a'"):
        within(desk, body)


def test_a_list_that_does_not_end_is_left() -> None:
    """A page that names itself as the next one is a defect of the server."""
    desk = Desk()
    tool = desk.add("a")

    async def turning(ctx: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[] if params and params.cursor else [tool], next_cursor="again")

    desk.server.add_request_handler("tools/list", types.PaginatedRequestParams, turning)

    async def body(session: ClientSession) -> Any:
        return await mcp_tools(session, version="v1", effects={"a": "read_only"})

    with pytest.raises(ConfigurationError, match="does not end"):
        within(desk, body)
