"""``python -m certification live-openai``: OpenAI's Responses API. See `certification.live.program`."""

from __future__ import annotations

from typing import Any, Final

import httpx2
from openai import OpenAI

from certification.live.program import run
from certification.live.provider import TEXTS, Provider
from memoflow.openai import OpenAIResponses

__all__ = ["OPENAI", "main"]


def _connect(key: str, base_url: str, http: httpx2.Client) -> OpenAI:
    return OpenAI(api_key=key, base_url=base_url, http_client=http)


def _request(boundary: str, model: str) -> dict[str, Any]:
    alone = {"parallel_tool_calls": False} if boundary == "tools" else {}
    return {"model": model, "input": TEXTS[boundary], **alone}


OPENAI: Final = Provider(
    name="openai",
    api="responses",
    base_url="https://api.openai.com/v1",
    connect=_connect,
    adapt=OpenAIResponses,
    request=_request,
)


def main(arguments: list[str]) -> int:
    """Certify OpenAI and write the evidence; returns an exit code."""
    return run(OPENAI, arguments)
