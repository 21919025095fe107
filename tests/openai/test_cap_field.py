"""The field in which Chat Completions are told to stop: a cap that a server ignores bounds nothing."""

from __future__ import annotations

from typing import Final

import openai
import pytest

from memoflow.openai import AsyncOpenAIChat, OpenAIChat

NEW: Final = "max_completion_tokens"
OLD: Final = "max_tokens"


@pytest.mark.parametrize(
    ("url", "field"),
    [
        ("https://api.openai.com/v1", NEW),
        ("https://eu.api.openai.com/v1", NEW),
        ("https://mine.openai.azure.com/openai/v1", NEW),
        ("https://openai.com.example/v1", OLD),
        ("https://notopenai.com/v1", OLD),
        ("http://127.0.0.1:8000/v1", OLD),
    ],
)
def test_the_host_says_which_field_is_known(url: str, field: str) -> None:
    """OpenAI's newer models refuse one name of the cap, and other servers may ignore the other."""
    for chat in (
        OpenAIChat(openai.OpenAI(api_key="k", base_url=url)),
        AsyncOpenAIChat(openai.AsyncOpenAI(api_key="k", base_url=url)),
    ):
        assert chat.codec.with_cap({}, 5) == {field: 5}


@pytest.mark.parametrize("host", ["mine.openai.azure.com", "mine.openai.azure.us", "gateway.example"])
def test_a_client_of_azure_speaks_to_azure(host: str) -> None:
    """Whatever the host is called."""
    url, version = f"https://{host}", "2025-01-01"
    for chat in (
        OpenAIChat(openai.AzureOpenAI(azure_endpoint=url, api_key="k", api_version=version)),
        AsyncOpenAIChat(openai.AsyncAzureOpenAI(azure_endpoint=url, api_key="k", api_version=version)),
    ):
        assert chat.codec.with_cap({}, 5) == {NEW: 5}


def test_the_caller_has_the_last_word() -> None:
    """The argument goes before the host, and the request's own field before both."""
    chat = OpenAIChat(openai.OpenAI(api_key="k", base_url="http://127.0.0.1:1/v1"), cap_field=NEW)
    assert chat.codec.with_cap({}, 5) == {NEW: 5}
    assert chat.codec.with_cap({OLD: 9}, 5) == {OLD: 5}
