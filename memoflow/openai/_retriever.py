"""Asking for stored replies from outside any activity, as the command line does."""

from __future__ import annotations

from collections.abc import Callable

import openai

from memoflow.errors import ConfigurationError
from memoflow.openai._responses import OpenAIResponses

__all__ = ["retriever"]


def retriever() -> Callable[[str], bytes | None]:
    """`OpenAIResponses.retrieve` over a client that the environment configures, as the SDK reads it.

    Raises:
        ConfigurationError: no key is configured.
    """
    try:
        client = openai.OpenAI()
    except openai.OpenAIError:
        raise ConfigurationError(
            "The provider cannot be asked without a key. Set OPENAI_API_KEY (and OPENAI_BASE_URL, if it is "
            "reached elsewhere)."
        ) from None
    return OpenAIResponses(client).retrieve
