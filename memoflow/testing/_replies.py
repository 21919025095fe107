"""Constructors of replies: what a script says the model answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypedDict, Unpack

from memoflow.errors import ConfigurationError
from memoflow.testing._items import Item, message, reasoning, refusal_message
from memoflow.testing._script import (
    Agent,
    Entry,
    Forever,
    ModelReply,
    RawReply,
    ScriptEntry,
    Tokens,
    UsageVariant,
)

__all__ = [
    "ReplyOptions",
    "agent",
    "as_entries",
    "as_entry",
    "as_reply",
    "calls",
    "choices",
    "echo",
    "failed",
    "forever",
    "html_200",
    "incomplete",
    "items",
    "malformed_usage",
    "missing_usage",
    "not_json",
    "raw",
    "refusal",
    "stops",
    "text",
    "usage",
]


class ReplyOptions(TypedDict, total=False):
    """Options every reply takes; see `ModelReply`."""

    usage: Tokens | None
    service_tier: str | None
    model: str | None
    honour_cap: bool
    fields: dict[str, Any]


def usage(
    input: int | None = None,
    output: int | None = None,
    *,
    cached: int = 0,
    cache_write: int = 0,
    reasoning: int = 0,
) -> Tokens:
    """Tokens a reply reports and bills. What is not given is counted; reasoning is part of the output."""
    return Tokens(
        input_tokens=input,
        output_tokens=output,
        cached_input_tokens=cached,
        cache_write_tokens=cache_write,
        reasoning_tokens=reasoning,
    )


def echo(**options: Unpack[ReplyOptions]) -> ModelReply:
    """``echo: `` and the last user text: the reply when a script is used up."""
    return ModelReply(**options)


def items(content: Sequence[Mapping[str, Any]], **options: Unpack[ReplyOptions]) -> ModelReply:
    """A completed reply with exactly these output items."""
    return ModelReply(items=tuple(dict(item) for item in content), **options)


def text(content: str, *, thought: str | None = None, **options: Unpack[ReplyOptions]) -> ModelReply:
    """A completed reply with one message, after a reasoning item if a ``thought`` is given."""
    return items([*_thinking(thought), message(content)], **options)


def calls(
    *wanted: Mapping[str, Any],
    say: str | None = None,
    thought: str | None = None,
    **options: Unpack[ReplyOptions],
) -> ModelReply:
    """A completed reply that asks for tool calls, made by `call` and `custom_call`, in parallel."""
    said = [] if say is None else [message(say)]
    return items([*_thinking(thought), *said, *wanted], **options)


def _thinking(thought: str | None) -> list[Item]:
    return [] if thought is None else [reasoning(thought)]


def refusal(content: str, **options: Unpack[ReplyOptions]) -> ModelReply:
    """A completed reply whose message is a refusal."""
    return items([refusal_message(content)], **options)


def incomplete(
    *content: Mapping[str, Any] | str,
    reason: str = "max_output_tokens",
    **options: Unpack[ReplyOptions],
) -> ModelReply:
    """A reply that was cut off. Items keep the status they are given; the last one is else incomplete.

    The reasons ``max_output_tokens`` and ``content_filter`` are ``length`` and ``content_filter`` of Chat
    Completions, ``max_tokens`` and ``refusal`` of Messages. Any other one is reported as it is.
    """
    made = [message(item) if isinstance(item, str) else dict(item) for item in content]
    if made:
        made[-1].setdefault("status", "incomplete")
    return replace(items(made, **options), status="incomplete", reason=reason)


def stops(reason: str, *content: Mapping[str, Any] | str, **options: Unpack[ReplyOptions]) -> ModelReply:
    """A reply that ended with this stop reason, known or not: ``pause_turn``, ``stop_sequence``, …

    It is the ``stop_reason`` of Messages and the ``finish_reason`` of Chat Completions as it is. A response
    has no such word: there it is the reason for which the response is incomplete.
    """
    made = [message(item) if isinstance(item, str) else dict(item) for item in content]
    return replace(items(made, **options), stop=reason)


def choices(first: ScriptEntry, *more: ScriptEntry) -> ModelReply:
    """What each choice of a chat completion says, where its request asks for several (``n``).

    Otherwise, and in other APIs, only the first one counts. Without this every choice says the same.
    """
    return replace(as_reply(first), more=tuple(as_reply(entry) for entry in more))


def failed(
    code: str = "server_error",
    message: str = "The model failed to generate a response.",
    *,
    output: Sequence[Mapping[str, Any]] = (),
    **options: Unpack[ReplyOptions],
) -> ModelReply:
    """A terminal reply with status ``failed``. ``usage=None``: it failed before generation.

    The other APIs have no such reply. There it is a 500, or an error that ends the stream after its output;
    its usage is billed and nowhere reported.
    """
    return replace(items(output, **options), status="failed", error={"code": code, "message": message})


def missing_usage(then: ScriptEntry | None = None) -> ModelReply:
    """A reply without a usage field; the true usage is billed."""
    return malformed_usage("absent", then)


def malformed_usage(variant: UsageVariant, then: ScriptEntry | None = None) -> ModelReply:
    """A reply whose usage cannot be used, in the given way; the true usage is billed."""
    return replace(as_reply(then), usage_variant=variant)


def raw(
    body: bytes,
    *,
    status: int = 200,
    content_type: str = "application/json",
    headers: Mapping[str, str] | None = None,
    performed: bool = True,
    then: ScriptEntry | None = None,
) -> RawReply:
    """These bytes as the answer. ``performed``: the provider generated and billed ``then`` behind it."""
    return RawReply(
        body=body,
        status=status,
        content_type=content_type,
        headers=dict(headers or {}),
        performed=performed,
        then=as_reply(then),
    )


def not_json(*, performed: bool = True) -> RawReply:
    """A 200 that says it is JSON and is not."""
    return raw(b'{"id": "resp_', performed=performed)


def html_200(*, performed: bool = False) -> RawReply:
    """A 200 with a web page, as a captive portal or a gateway sends it."""
    page = b"<!doctype html><html><head><title>Sign in</title></head><body>Sign in</body></html>"
    return raw(page, content_type="text/html; charset=utf-8", performed=performed)


def agent(*rounds: ScriptEntry, final: ScriptEntry | None = None) -> Agent:
    """A model that asks for ``rounds[0]``, after its outputs for ``rounds[1]`` …, and then says ``final``.

    How far a conversation is, is read from its request, so it never loses its place.
    """
    return Agent(rounds=tuple(as_entry(entry) for entry in rounds), final=as_entry(final))


def forever(entry: ScriptEntry) -> Forever:
    """An entry that is used for every further request."""
    return Forever(then=as_entry(entry))


def as_entry(entry: ScriptEntry | None) -> Entry:
    """The entry that is meant: text is a message, an item a reply, None an echo."""
    if entry is None:
        return echo()
    if isinstance(entry, str):
        return text(entry)
    if isinstance(entry, Mapping):
        return items([entry])
    if callable(entry):
        raise ConfigurationError(
            "A function was given where a script entry must be plain data. Functions may stand in the "
            "script of an in-process provider only, directly in its list."
        )
    return entry


def as_entries(script: Iterable[ScriptEntry] | ScriptEntry) -> list[ScriptEntry]:
    """The entries of a script; one entry that stands alone is a script of one."""
    if isinstance(script, str | Mapping) or not isinstance(script, Iterable):
        return [script]
    return list(script)


def as_reply(entry: ScriptEntry | None) -> ModelReply:
    """Like `as_entry` where only a reply of the model will do."""
    made = as_entry(entry)
    if not isinstance(made, ModelReply):
        raise ConfigurationError(
            f"A {type(made).__name__} was given where a reply of the model is needed. "
            "Wrap faults the other way round: the fault outside, the reply in its `then`."
        )
    return made
