"""What a model reads of a result; the rule is in the package's documentation."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Any, Final

from mcp import types

from memoflow.canonical import StrictJSONError, canonical, parse_strict
from memoflow.errors import InvalidRequest
from memoflow.mcp._schema import CheckedSchema
from memoflow.tools import PROVIDER_MAX_BYTES, refusal_text

__all__ = ["written"]

_RESULT: Final = "result"

JSONObject = dict[str, Any]


def written(result: types.CallToolResult, output: CheckedSchema | None) -> Any:
    """The value of a finished call: text, or plain JSON that is still to be encoded.

    Args:
        result: as the server sent it.
        output: the tool's output schema, where it declares one.
    """
    if not result.is_error and output is not None and not _conforms(result, output):
        return refusal_text(
            "RESULT_INVALID",
            "The tool ran, but its result does not conform to its output schema and is not shown. "
            "Do not call it again.",
        )
    value = _content(result)
    if not result.is_error:
        return value
    said = {"detail": value} if isinstance(value, str) else {"content": value}
    return {"error": {"code": "TOOL_REPORTED_ERROR", **said}}


def _conforms(result: types.CallToolResult, output: CheckedSchema) -> bool:
    if "structured_content" not in result.model_fields_set:
        return False
    return not output.is_broken_by(result.structured_content)


def _content(result: types.CallToolResult) -> Any:
    structured = result.structured_content
    texts = [block.text for block in result.content if isinstance(block, types.TextContent)]
    only_text = len(texts) == len(result.content)
    if structured is not None:
        if only_text and (view := _repeated(texts, structured)) is not None:
            return view[0]
        blocks = [_block(block) for block in result.content]
        return {"content": blocks, "structuredContent": structured} if blocks else structured
    if only_text and len(texts) <= 1:
        return "".join(texts)
    return {"content": [_block(block) for block in result.content]}


def _repeated(texts: Sequence[str], structured: Any) -> tuple[Any] | None:
    """What to show where texts say nothing but the structured content, else None."""
    views = [structured]
    if isinstance(structured, dict) and structured.keys() == {_RESULT}:
        views.append(structured[_RESULT])
    for view in views:
        if len(texts) == 1 and _says(texts[0], view):
            return (texts[0] if isinstance(view, str) else structured,)
        items = view if isinstance(view, list) else None
        if items is not None and len(items) == len(texts) and all(map(_says, texts, items)):
            return (structured,)
    return None


def _says(text: str, value: Any) -> bool:
    if isinstance(value, str):
        return text == value
    try:
        return canonical(parse_strict(text, max_bytes=PROVIDER_MAX_BYTES)) == canonical(value)
    except (StrictJSONError, InvalidRequest):
        return False


def _block(block: types.ContentBlock) -> JSONObject:
    match block:
        case types.TextContent():
            return {"type": block.type, "text": block.text}
        case types.ImageContent() | types.AudioContent():
            return {"type": block.type, "mimeType": block.mime_type, **_bytes(block.data)}
        case types.EmbeddedResource():
            return {"type": block.type, "resource": _resource(block.resource)}
        case types.ResourceLink():
            shown = block.model_dump(
                mode="json", by_alias=True, exclude_none=True, exclude={"annotations", "meta", "icons"}
            )
            return {"type": block.type, **shown}


def _resource(resource: types.TextResourceContents | types.BlobResourceContents) -> JSONObject:
    mime = {} if resource.mime_type is None else {"mimeType": resource.mime_type}
    if isinstance(resource, types.TextResourceContents):
        return {"uri": resource.uri, **mime, "text": resource.text}
    return {"uri": resource.uri, **mime, **_bytes(resource.blob)}


def _bytes(data: str) -> JSONObject:
    """How many bytes stand behind a base64 text, if it is one."""
    try:
        return {"bytes": len(base64.b64decode(data, validate=True))}
    except (binascii.Error, ValueError):
        return {}
