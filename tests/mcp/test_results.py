"""What a model reads of a result: the rule in the package's documentation, case by case."""

from __future__ import annotations

import base64
from typing import Any

import pytest

pytest.importorskip("mcp", reason="the MCP SDK is not installed: memoflow-runtime[mcp]")

from mcp import ClientSession, types

from memoflow.mcp import mcp_tools
from memoflow.mcp._result import written
from memoflow.mcp._schema import CheckedSchema
from memoflow.tools import encode_result
from tests.mcp._desk import Site, said

PNG = types.ImageContent(data=base64.b64encode(b"x" * 10).decode(), mime_type="image/png")


def shown(result: types.CallToolResult, output: Any = None) -> str:
    """The text the model gets."""
    checked = None if output is None else CheckedSchema(output, "The schema")
    return encode_result(written(result, checked)).text


def blocks(*content: Any, **fields: Any) -> types.CallToolResult:
    """A result of these blocks."""
    return types.CallToolResult(content=list(content), **fields)


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (said("Hello. "), "Hello. "),
        (said(), ""),
        (said(""), ""),
        (said("a", "b"), '{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}'),
        (said(structured_content={"a": 1}), '{"a":1}'),
        (said('{\n  "a": 1.0\n}', structured_content={"a": 1}), '{"a":1}'),
        (said("5", structured_content={"result": 5}), '{"result":5}'),
        (said("text", structured_content={"result": "text"}), "text"),
        (said("text", structured_content="text"), "text"),
        (said("1", "b", structured_content={"result": [1, "b"]}), '{"result":[1,"b"]}'),
        (said(structured_content={"result": []}), '{"result":[]}'),
        (said("null", structured_content=None), "null"),
    ],
)
def test_text_and_structure(result: types.CallToolResult, text: str) -> None:
    """What says the same twice is shown once."""
    assert shown(result) == text


@pytest.mark.parametrize(
    ("said_text", "structured"),
    [
        ("There is one.", {"a": 1}),
        ("true", {"result": 1}),
        ('{"a":1,"a":1}', {"a": 1}),
        ("5", {"result": 5, "more": 1}),
        ("5", {"result": "5 "}),
        ("NaN", {"result": 1}),
    ],
)
def test_text_that_says_something_else_is_kept(said_text: str, structured: Any) -> None:
    """Both are shown, and neither is taken for the other."""
    value = written(said(said_text, structured_content=structured), None)
    assert value == {"content": [{"type": "text", "text": said_text}], "structuredContent": structured}


@pytest.mark.parametrize(
    ("block", "written_as"),
    [
        (PNG, {"type": "image", "mimeType": "image/png", "bytes": 10}),
        (
            types.AudioContent(data="no base64", mime_type="audio/wav"),
            {"type": "audio", "mimeType": "audio/wav"},
        ),
        (
            types.EmbeddedResource(resource=types.TextResourceContents(uri="file:///a", text="A")),
            {"type": "resource", "resource": {"uri": "file:///a", "text": "A"}},
        ),
        (
            types.EmbeddedResource(
                resource=types.BlobResourceContents(uri="file:///b", blob="AAAA", mime_type="x/y")
            ),
            {"type": "resource", "resource": {"uri": "file:///b", "mimeType": "x/y", "bytes": 3}},
        ),
        (
            types.ResourceLink(uri="file:///c", name="c", size=3, _meta={"x": 1}),
            {"type": "resource_link", "name": "c", "uri": "file:///c", "size": 3},
        ),
        (
            types.TextContent(text="t", annotations=types.Annotations(priority=1.0), _meta={"x": 1}),
            {"type": "text", "text": "t"},
        ),
    ],
)
def test_blocks(block: Any, written_as: dict[str, Any]) -> None:
    """Bytes stand as their kind and number; what is for clients is left out."""
    assert written(blocks(block, PNG), None)["content"][0] == written_as


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (said("No.", is_error=True), '{"error":{"code":"TOOL_REPORTED_ERROR","detail":"No."}}'),
        (
            said(structured_content={"a": 1}, is_error=True),
            '{"error":{"code":"TOOL_REPORTED_ERROR","content":{"a":1}}}',
        ),
        (said(is_error=True), '{"error":{"code":"TOOL_REPORTED_ERROR","detail":""}}'),
    ],
)
def test_errors_that_a_tool_reports(result: types.CallToolResult, text: str) -> None:
    """As an error, in full; its structure need not be that of a result."""
    assert shown(result, {"required": ["b"]}) == text


@pytest.mark.parametrize(
    "result", [said("x"), said("x", structured_content={"a": "secret"}), said(structured_content={"b": 1})]
)
def test_a_result_that_breaks_its_schema_is_not_shown(result: types.CallToolResult) -> None:
    """The model is told that the tool ran, and none of what it said."""
    output = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    assert '"code":"RESULT_INVALID"' in shown(result, output)
    assert "secret" not in shown(result, output)
    assert shown(said(structured_content={"a": 1}), output) == '{"a":1}'


def test_a_result_that_is_too_complex_to_check_is_shown() -> None:
    """A long result is no wrong one."""
    rows = {"rows": [{"n": n, "text": str(n)} for n in range(30_000)]}
    row = {"type": "object", "properties": {"n": {"type": "integer"}, "text": {"type": "string"}}}
    output = {"properties": {"rows": {"items": row}}}
    assert written(said(structured_content=rows), CheckedSchema(output, "The schema")) == rows


@pytest.mark.parametrize(
    ("result", "output"),
    [
        (said("x" * 2_000_000), "RESULT_TOO_LARGE"),
        (said(structured_content={"a": "x" * 100}), "RESULT_INVALID"),
    ],
)
def test_a_result_that_cannot_be_shown_is_done(site: Site, result: Any, output: str) -> None:
    """It ran: it is never a reason to run it again, whatever the session thinks of its result."""
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    fields: Any = {} if output == "RESULT_TOO_LARGE" else {"output_schema": schema}
    site.desk.add("get", lambda given: result, **fields)

    async def body(session: ClientSession) -> Any:
        tools = await mcp_tools(session, version="v1", effects={"get": "at_most_once"})
        return await site.play(site.asking(("get", {"n": 1})), tools)

    (text,) = site.within(body).outputs
    assert output in text
    assert "xxx" not in text
    assert site.effects[0].state == "DONE"
