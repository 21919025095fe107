"""An MCP server in a process of its own; a file notes every call: name, idempotency key and attempt."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import Context, MCPServer

LOG = Path(sys.argv[1])
server = MCPServer("notes")


@server.tool()
def pay(cents: int, ctx: Context[Any, Any]) -> dict[str, int]:
    """Pay somebody.

    Only once.
    """
    meta: Any = ctx.request_context.meta or {}
    with LOG.open("a") as log:
        log.write(json.dumps(["pay", meta["memoflow/idempotencyKey"], meta["memoflow/attempt"]]) + "\n")
    if cents == 13:
        raise ValueError("unlucky")
    return {"paid": cents}


server.run("stdio")
