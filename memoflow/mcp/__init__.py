"""Tools of an MCP server as tools of memoflow: budgeted, recorded and never run twice by surprise.

::

    async with Client(server) as client:
        tools = await mcp_tools(
            client.session, version="v1", effects={"search": "read_only", "refund": "at_most_once"}
        )

Every call carries its idempotency key and attempt in ``_meta``, under `IDEMPOTENCY_KEY` and `ATTEMPT`.
A server that honours the key makes ``effect="idempotent"`` true; one that ignores it does not.

What the model reads of a result is written by this rule, and nothing of it is dropped silently:

- Nothing but one text block: its text. No block at all: the empty text.
- Structured content alone, or with text blocks that only repeat it: the structured content as JSON.
  Text repeats it when it is the same JSON value, or the text of a value under the single key ``result``,
  which servers put around what is no object; a list may be repeated by one block for each item. If the
  value under ``result`` is text, the model reads that text.
- Anything else: ``{"content": [blocks], "structuredContent": value}``, the latter where there is one.
- Blocks are written as the protocol names them, without ``annotations`` and ``_meta``, which are for
  clients. The bytes of images, audio and binary resources are not shown: they stand as their type, MIME
  type and number of bytes. Links to resources are shown and never followed.
- ``isError``: the call is DONE, since an error is no proof that nothing happened, and the model reads
  ``{"error": {"code": "TOOL_REPORTED_ERROR", …}}`` with the text as ``detail`` or the rest as ``content``.
- A result that breaks the tool's own output schema: DONE too, and the model reads ``RESULT_INVALID``.

An error of the protocol, a timeout, a closed session or an answer that is no result proves nothing, whatever
its code: `ToolNotAnswered`, recorded by the effect class. Only what fails before anything was sent is
`ToolNotStarted`.
"""

from __future__ import annotations

try:
    import mcp
except ModuleNotFoundError as missing:
    if missing.name != "mcp":
        raise
    raise ModuleNotFoundError(
        "memoflow.mcp needs the MCP SDK, which is not installed. Install memoflow-runtime[mcp].", name="mcp"
    ) from None

from memoflow.mcp._meta import ATTEMPT, IDEMPOTENCY_KEY
from memoflow.mcp._tool import mcp_tool, mcp_tools

del mcp

__all__ = ["ATTEMPT", "IDEMPOTENCY_KEY", "mcp_tool", "mcp_tools"]
