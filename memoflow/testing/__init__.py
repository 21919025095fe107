"""Helpers for tests of activities, without network and without paying anyone.

`SimulatedProvider` follows a script of replies and faults and speaks OpenAI's Responses, Chat Completions and
Embeddings APIs and Anthropic's Messages API, all at once, to the official SDKs: in process (`client`,
`async_client`, `anthropic_client`, `async_anthropic_client`), from threads (`serve`), or as a process of its
own (`ProviderProcess`, or ``python -m memoflow.testing.server``). It keeps server-side state, enforces each
API's rules and counts what it was asked and what it billed, so that a ledger can be compared with it::

    provider = SimulatedProvider([status(500), calls(call("refund", {"id": 7})), text("Done.")])
    client = provider.client()
    ...
    assert provider.wire_requests["POST /v1/responses"] == 3
    assert provider.billed.total == ...

A script says what the model does and not in whose words: the same entries serve every API, and one queue
serves all requests that generate. What an API does not have, it leaves out (`reasoning` and hosted items in
Chat Completions) or says in its own way (a custom call is a ``tool_use`` with ``{"input": …}`` in Messages).
"""

from __future__ import annotations

from memoflow.testing._faults import (
    closed_before_reply,
    connect_refused,
    connect_timeout,
    corrupt_chunk,
    delay,
    dns_failure,
    duplicate_terminal,
    error_event,
    hold,
    huge,
    no_events,
    pool_timeout,
    read_timeout,
    reset_before_reply,
    reset_mid_body,
    snapshot_differs,
    status,
    stream_ends_early,
    truncated_body,
    write_error,
)
from memoflow.testing._items import (
    call,
    code_interpreter,
    computer_call,
    custom_call,
    embedding,
    mcp_call,
    message,
    reasoning,
    redacted_thinking,
    refusal_message,
    thinking,
    unknown_item,
    web_search,
)
from memoflow.testing._options import ProviderOptions
from memoflow.testing._process import ProviderProcess, refused_url
from memoflow.testing._provider import SimulatedProvider
from memoflow.testing._replies import (
    agent,
    calls,
    choices,
    echo,
    failed,
    forever,
    html_200,
    incomplete,
    items,
    malformed_usage,
    missing_usage,
    not_json,
    raw,
    refusal,
    stops,
    text,
    usage,
)
from memoflow.testing._request import ProviderRequest
from memoflow.testing._script import Held, ScriptEntry
from memoflow.testing._signals import Gate
from memoflow.testing._wire import RecordedRequest
from memoflow.testing.crash import CrashPoint, crash_points
from memoflow.testing.runtime import ManualClock, temporary_runtime

__all__ = [
    "CrashPoint",
    "Gate",
    "Held",
    "ManualClock",
    "ProviderOptions",
    "ProviderProcess",
    "ProviderRequest",
    "RecordedRequest",
    "ScriptEntry",
    "SimulatedProvider",
    "agent",
    "call",
    "calls",
    "choices",
    "closed_before_reply",
    "code_interpreter",
    "computer_call",
    "connect_refused",
    "connect_timeout",
    "corrupt_chunk",
    "crash_points",
    "custom_call",
    "delay",
    "dns_failure",
    "duplicate_terminal",
    "echo",
    "embedding",
    "error_event",
    "failed",
    "forever",
    "hold",
    "html_200",
    "huge",
    "incomplete",
    "items",
    "malformed_usage",
    "mcp_call",
    "message",
    "missing_usage",
    "no_events",
    "not_json",
    "pool_timeout",
    "raw",
    "read_timeout",
    "reasoning",
    "redacted_thinking",
    "refusal",
    "refusal_message",
    "refused_url",
    "reset_before_reply",
    "reset_mid_body",
    "snapshot_differs",
    "status",
    "stops",
    "stream_ends_early",
    "temporary_runtime",
    "text",
    "thinking",
    "truncated_body",
    "unknown_item",
    "usage",
    "web_search",
    "write_error",
]
