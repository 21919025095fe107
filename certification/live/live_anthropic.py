"""``python -m certification live-anthropic``: Anthropic's Messages API. See `certification.live.program`."""

from __future__ import annotations

from typing import Any, Final

import httpx2
from anthropic import Anthropic

from certification.live.program import run
from certification.live.provider import TEXTS, Provider
from memoflow.anthropic import AnthropicMessages

__all__ = ["ANTHROPIC", "main"]

_ALONE: Final = {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}


def _connect(key: str, base_url: str, http: httpx2.Client) -> Anthropic:
    return Anthropic(api_key=key, base_url=base_url, http_client=http)


def _request(boundary: str, model: str) -> dict[str, Any]:
    messages = [{"role": "user", "content": TEXTS[boundary]}]
    return {"model": model, "messages": messages, **(_ALONE if boundary == "tools" else {})}


ANTHROPIC: Final = Provider(
    name="anthropic",
    api="messages",
    base_url="https://api.anthropic.com",
    connect=_connect,
    adapt=AnthropicMessages,
    request=_request,
)


def main(arguments: list[str]) -> int:
    """Certify Anthropic and write the evidence; returns an exit code."""
    return run(ANTHROPIC, arguments)
