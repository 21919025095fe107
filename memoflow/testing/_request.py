"""A generation request as a script sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from memoflow.testing._items import Item

__all__ = ["ProviderRequest"]


@dataclass(frozen=True, slots=True)
class ProviderRequest:
    """A request for a generation, after the provider accepted it.

    Attributes:
        body: the decoded request body.
        headers: its headers, names in lower case.
        items: the whole context as the model sees it, as items of the Responses API whatever API the
            request came by: stored turns, then the request's own input.
        input_items: the request's own input only.
        input_tokens: what the provider counts for the context.
        api: ``responses``, ``chat.completions``, ``embeddings`` or ``messages``.
    """

    body: Mapping[str, Any] = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    items: tuple[Item, ...] = field(repr=False)
    input_items: tuple[Item, ...] = field(repr=False)
    input_tokens: int
    api: str = "responses"

    @property
    def streaming(self) -> bool:
        """Whether the reply is a stream of events."""
        return self.body.get("stream") is True

    @property
    def background(self) -> bool:
        """Whether the reply is generated in the background."""
        return self.body.get("background") is True

    @property
    def stored(self) -> bool:
        """Whether the reply can be retrieved later."""
        return self.body.get("store") is not False

    @property
    def last_text(self) -> str:
        """The text of the last user message, or an empty string."""
        for item in reversed(self.items):
            if item.get("type", "message") == "message" and item.get("role") == "user":
                return _text_of(item.get("content"))
        return ""

    @property
    def outputs(self) -> tuple[Item, ...]:
        """The tool outputs since the last user message, in order."""
        return tuple(item for item in self._since_user() if _is_output(item))

    @property
    def answered_rounds(self) -> int:
        """How many batches of tool calls were answered since the last user message."""
        answered, inside = 0, False
        for item in self._since_user():
            if _is_output(item) and not inside:
                answered += 1
            inside = _is_output(item)
        return answered

    def _since_user(self) -> list[Item]:
        since: list[Item] = []
        for item in self.items:
            if item.get("type", "message") == "message" and item.get("role") == "user":
                since = []
            else:
                since.append(item)
        return since


def _is_output(item: Mapping[str, Any]) -> bool:
    return str(item.get("type")).endswith("_call_output")


def _text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(str(part.get("text", "")) for part in parts if isinstance(part, dict))
