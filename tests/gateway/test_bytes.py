"""Bytes pass through as they are, wherever they are cut."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoflow.gateway.apis import CHAT, EMBEDDINGS, MESSAGES, RESPONSES, GeneratingApi
from memoflow.gateway.frames import FrameCutter, UsageFilter, at_boundary
from memoflow.gateway.incoming import edited
from tests.gateway._inside import Inside, Scripted, inside

EVENTS = {"content-type": "text/event-stream; charset=utf-8"}
ASK: dict[str, dict[str, Any]] = {
    "responses": {"model": "m", "input": "x", "max_output_tokens": 20},
    "chat.completions": {"model": "m", "messages": [], "max_tokens": 20},
    "embeddings": {"model": "m", "input": "x"},
    "messages": {"model": "m", "messages": [], "max_tokens": 20},
}
APIS = (RESPONSES, CHAT, EMBEDDINGS, MESSAGES)


@pytest.fixture(scope="module")
def gateway() -> Iterator[Inside]:
    """One gateway for all examples; each is a request of its own."""
    with inside(Scripted()) as made:
        yield made


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """The data in pieces."""
    ends = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[a:b] for a, b in pairwise(ends)]


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
@given(
    body=st.binary(max_size=300),
    places=st.lists(st.integers(0, 300)),
    status=st.sampled_from([200, 400, 429, 500]),
)
def test_a_whole_reply_is_given_byte_for_byte(
    gateway: Inside, api: GeneratingApi, body: bytes, places: list[int], status: int
) -> None:
    """Whatever the provider says, with whatever status: the client gets these bytes and this status."""
    provider = gateway.provider
    provider.status, provider.pieces = status, cut(body, places)
    provider.headers = {"content-type": "application/json"}
    got = gateway.ask(api, ASK[api.name])
    assert (got.status, got.body, got.whole) == (status, body, True)
    assert got.headers[b"content-type"] == b"application/json"


def frames() -> st.SearchStrategy[bytes]:
    """Streams of events, comments and lines that are none, with all ends of lines."""
    ends = st.sampled_from(["\n", "\r\n", "\r"])
    field = st.sampled_from(
        ["data: {}", 'data: {"type":"x"}', "event: x", ": comment", "id: 1", "data", "x", "data: é"]
    )
    event = st.tuples(st.lists(field, max_size=3), ends).map(lambda e: e[1].join([*e[0], "", ""]))
    return st.lists(event, max_size=8).map("".join).map(str.encode)


@pytest.mark.parametrize("api", [RESPONSES, CHAT, MESSAGES], ids=lambda api: api.name)
@given(body=frames(), places=st.lists(st.integers(0, 300)))
def test_a_stream_is_given_byte_for_byte(
    gateway: Inside, api: GeneratingApi, body: bytes, places: list[int]
) -> None:
    """However it is cut, the client gets the provider's stream; only an error follows one without its end."""
    provider = gateway.provider
    provider.status, provider.pieces, provider.headers = 200, cut(body, places), EVENTS
    ask = {**ASK[api.name], "stream": True}
    if api is CHAT:
        ask["stream_options"] = {"include_usage": True}
    got = gateway.ask(api, ask)
    assert got.body.startswith(body)
    added = got.body.removeprefix(body)
    assert got.whole == (at_boundary(body[-4:]) or b"outcome_unknown" in added)
    assert added == b"" or b"outcome_unknown" in added


@given(
    body=frames(),
    usage=st.sampled_from(
        [b'data: {"choices":[],"usage":{"total_tokens":1}}\n\n', b'data:{"choices" : [ ],"usage":{}}\r\n\r\n']
    ),
    at=st.integers(0, 8),
    places=st.lists(st.integers(0, 300)),
)
def test_only_the_usage_that_nobody_asked_for_is_left_out(
    body: bytes, usage: bytes, at: int, places: list[int]
) -> None:
    """At any cut, what is given is the stream without that one event."""
    cutter = FrameCutter(10**6)
    events = cutter.feed(body)
    rest = cutter.rest()
    at = min(at, len(events))
    whole = b"".join([*events[:at], usage, *events[at:], rest])
    filtered = UsageFilter(10**6)
    shown = b"".join(filtered.feed(piece) for piece in cut(whole, places)) + filtered.rest()
    # The second half of a line end may have come after its event was dropped.
    assert shown.replace(b"\n", b"").replace(b"\r", b"") == body.replace(b"\n", b"").replace(b"\r", b"")


@pytest.mark.parametrize(
    "frame",
    [
        b'data: {"choices":[{"delta":{}}],"usage":null}\n\n',
        b'data: {"choices":[],"usage":null}\n\n',
        b'data: {"choices":[],"prompt_filter_results":[]}\n\n',
        b'data: {"choices":[{"delta":{"content":"\\"choices\\":[]"}}],"usage":{}}\n\n',
        b'data: "choices":[]\n\n',
        b"data: [DONE]\n\n",
    ],
    ids=range(6),
)
def test_what_is_not_the_usage_stays(frame: bytes) -> None:
    """Only an event without choices that tells a usage is left out."""
    assert UsageFilter(10**6).feed(frame) == frame


@given(body=frames(), places=st.lists(st.integers(0, 300)))
def test_pieces_of_a_stream_are_the_stream(body: bytes, places: list[int]) -> None:
    """Cut into events at any place, nothing is lost or added, and no event is longer than one."""
    cutter = FrameCutter(10**6)
    pieces = [event for piece in cut(body, places) for event in cutter.feed(piece)]
    assert b"".join(pieces) + cutter.rest() == body


def test_an_event_without_end_is_not_kept() -> None:
    """What is kept back is bounded: a longer event is given as it comes."""
    cutter = FrameCutter(10)
    assert cutter.feed(b"data: " + b"x" * 20) == [b"data: " + b"x" * 20]
    assert cutter.rest() == b""


JSON_OBJECTS = st.dictionaries(
    st.text(max_size=5),
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    min_size=1,
    max_size=4,
)


@given(
    body=JSON_OBJECTS,
    changes=JSON_OBJECTS,
    indent=st.none() | st.integers(0, 2),
    front=st.sampled_from(["", " \n"]),
)
def test_a_change_of_a_request_changes_nothing_else(
    body: dict[str, Any], changes: dict[str, Any], indent: int | None, front: str
) -> None:
    """The edited text means the object with those fields set, no key twice; or it is the very same text."""
    raw = (front + json.dumps(body, indent=indent)).encode()
    made = edited(raw, body, changes)
    pairs: list[tuple[str, Any]] = json.loads(made, object_pairs_hook=lambda found: found)
    assert len(dict(pairs)) == len(pairs)
    assert dict(pairs) == {**body, **changes}
    assert edited(raw, body, {}) == raw
    if not body.keys() & changes.keys():
        assert made.endswith(raw[raw.index(b"{") + 1 :])


def test_a_reply_that_is_compressed_all_the_same_is_unpacked(gateway: Inside) -> None:
    """A provider that compresses what it was asked not to is unpacked, and the client gets plain bytes."""
    provider = gateway.provider
    provider.status, provider.pieces = 200, [gzip.compress(b'{"a":1}')]
    provider.headers = {"content-type": "application/json", "content-encoding": "gzip"}
    got = gateway.ask(RESPONSES, ASK["responses"])
    assert got.body == b'{"a":1}'
    assert b"content-encoding" not in got.headers


def test_headers_come_back_that_clients_live_by(gateway: Inside) -> None:
    """Request ids and rate limits pass; what tells whose account it is, and cookies, do not."""
    provider = gateway.provider
    provider.status, provider.pieces = 429, [b"{}"]
    kept = {
        "content-type": "application/json",
        "x-request-id": "req_1",
        "retry-after": "7",
        "x-ratelimit-remaining-tokens": "5",
        "anthropic-ratelimit-requests-limit": "50",
        "x-should-retry": "false",
    }
    dropped = {
        "openai-organization": "org-1",
        "anthropic-organization-id": "o",
        "set-cookie": "a=b",
        "server": "x",
    }
    provider.headers = {**kept, **dropped}
    got = gateway.ask(RESPONSES, ASK["responses"])
    assert {name.encode(): value.encode() for name, value in kept.items()}.items() <= got.headers.items()
    assert not {name.encode() for name in dropped} & got.headers.keys()
