"""Holding back: nothing of a call is passed on before it is judged, and what is allowed comes as it was."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoflow.inspection.calls import API, Holder, calls_in_reply
from tests.inspection.calls._streams import (
    APIS,
    BAD,
    DENIED,
    Call,
    Said,
    Watched,
    encoded,
    events,
    first_call_at,
    played,
    said,
    splits,
    whole,
)

ends = st.sampled_from(["\n", "\r\n", "\r"])
comments = st.sampled_from(["", ": keep alive\n\n", ": x\r\n"])
PLAIN = Said("Hello.", (Call("lookup", {"a": 1}), Call("save_note", {"b": "x"})))
EVIL = Said("Hello.", (Call("lookup", {"a": 1}), Call("send_mail", BAD)))


def is_denied(reply: Said) -> bool:
    """Whether a call of a reply is one that the policy denies."""
    return any(call.args == BAD for call in reply.calls)


@pytest.mark.parametrize("api", APIS)
@given(said, ends, comments, st.data())
def test_splits_line_ends_and_comments_change_nothing(
    api: API, reply: Said, end: str, comment: str, data: st.DataObject
) -> None:
    """Any cut of the bytes gives the same calls, the same verdicts and the same bytes to pass on."""
    stream = encoded(api, events(api, reply), end, comment)
    one, other = Watched(), Watched()
    at_once, in_parts = played(api, [stream], one), played(api, data.draw(splits(stream)), other)
    assert one.calls == other.calls
    assert at_once.release == in_parts.release
    assert [d.verdict for d in at_once.decisions] == [d.verdict for d in in_parts.decisions]
    assert (at_once.refusal is None) == (in_parts.refusal is None) == (not is_denied(reply))


@pytest.mark.parametrize("api", APIS)
@given(said)
def test_a_stream_and_a_whole_reply_have_the_same_calls(api: API, reply: Said) -> None:
    """Put together from fragments or read at once."""
    watched = Watched("shadow")
    played(api, [encoded(api, events(api, reply))], watched)
    read = [call.event() for call in calls_in_reply(api, whole(api, reply))]
    assert watched.calls == [(call.tool, call.args) for call in read]
    assert watched.calls == [(call.name, call.args) for call in reply.calls]


@pytest.mark.parametrize("api", APIS)
@given(said.filter(is_denied), ends, comments, st.data())
def test_nothing_of_a_denied_call_is_passed_on(
    api: API, reply: Said, end: str, comment: str, data: st.DataObject
) -> None:
    """At no split, at no time: what is passed on ends before the frame that the call begins in."""
    stream = encoded(api, events(api, reply), end, comment)
    holder = Holder(api, Watched())  # type: ignore[arg-type]
    passed = b""
    for chunk in data.draw(splits(stream)):
        passed += holder.feed(chunk).release
        assert stream.startswith(passed)
        assert DENIED.encode() not in passed
    passed += holder.finish().release
    assert holder.refused is not None
    assert holder.refused.code == "DENIED"
    allowed_before = next(n for n, call in enumerate(reply.calls) if call.args == BAD)
    if allowed_before == 0 or api == "chat":
        # A choice of a chat completion is judged whole, since its calls may come interleaved.
        assert len(passed) <= first_call_at(api, reply, end, comment)


@pytest.mark.parametrize("api", APIS)
@given(said, st.data())
def test_shadow_passes_every_byte_on_at_once(api: API, reply: Said, data: st.DataObject) -> None:
    """And decides all the same."""
    stream = encoded(api, events(api, reply))
    watched = Watched("shadow")
    holder = Holder(api, watched)  # type: ignore[arg-type]
    verdicts = []
    for chunk in data.draw(splits(stream)):
        out = holder.feed(chunk)
        assert out.release == chunk
        verdicts += [one.verdict for one in out.decisions]
    assert holder.finish().release == b""
    assert holder.refused is None
    assert ("deny" in verdicts) is is_denied(reply)


@pytest.mark.parametrize("api", APIS)
@given(st.binary(max_size=400), st.data())
def test_shadow_passes_on_whatever_comes(api: API, noise: bytes, data: st.DataObject) -> None:
    """Also what is no stream of events."""
    chunks = data.draw(splits(noise))
    assert played(api, chunks, Watched("shadow")).release == noise


@pytest.mark.parametrize("api", APIS)
def test_text_flows_while_nothing_is_called(api: API) -> None:
    """Every frame is passed on as soon as it is whole; the bytes are those that came."""
    stream = encoded(api, events(api, Said("Hello.", ())))
    holder = Holder(api, Watched())  # type: ignore[arg-type]
    passed = b""
    for at in range(len(stream)):
        passed += holder.feed(stream[at : at + 1]).release
        assert not holder.holds
        assert stream[: at + 1].rpartition(b"\n\n")[0] in passed
    assert passed + holder.finish().release == stream


@pytest.mark.parametrize("api", APIS)
def test_a_call_is_held_and_then_passed_on_as_it_came(api: API) -> None:
    """While it is held the holder says so."""
    shown = events(api, PLAIN)
    holder = Holder(api, Watched())  # type: ignore[arg-type]
    held, passed = [], b""
    for event in shown:
        passed += holder.feed(encoded(api, [event]).removesuffix(b"data: [DONE]\n\n")).release
        held.append(holder.holds)
    assert any(held)
    assert not held[-1]
    assert passed == encoded(api, shown).removesuffix(b"data: [DONE]\n\n")


@pytest.mark.parametrize("api", APIS)
@given(said.filter(lambda reply: bool(reply.calls)), st.data())
def test_a_call_that_was_cut_off_is_never_passed_on(api: API, reply: Said, data: st.DataObject) -> None:
    """Wherever the stream breaks, what was not whole and judged is dropped, and that is told."""
    stream = encoded(api, events(api, reply))
    start = first_call_at(api, reply)
    broken = stream[: data.draw(st.integers(start, len(stream) - 1))]
    out = played(api, [broken], Watched())
    assert broken.startswith(out.release)
    if len(out.release) < len(broken):
        assert out.refusal is not None
        assert out.refusal.code in ("INCOMPLETE", "DENIED")
    if DENIED.encode() in broken:
        assert DENIED.encode() not in out.release


@pytest.mark.parametrize("api", APIS)
def test_after_a_refusal_nothing_is_passed_on(api: API) -> None:
    """Not even what would have been harmless, and the refusal is told once."""
    holder = Holder(api, Watched())  # type: ignore[arg-type]
    first = holder.feed(encoded(api, events(api, EVIL)))
    assert first.refusal is not None
    assert first.refusal.decision is not None
    assert first.refusal.decision.rule == "no-mail"
    again = holder.feed(encoded(api, events(api, Said("Hello.", ()))))
    assert (again.release, again.decisions, again.refusal) == (b"", (), None)
    assert holder.finish().refusal is None


@pytest.mark.parametrize("api", APIS)
def test_what_waits_for_an_approval_is_not_passed_on(api: API) -> None:
    """``ask`` is its own refusal, so that whoever forwards can park the request."""
    from memoflow.inspection import Inspector
    from memoflow.inspection.policy_file import read_policy

    asking = read_policy(
        {"agent_policies": [{"name": "r", "when": {"action_class": "network"}, "action": "ask"}]}
    )
    for on_ask, code in (("ask", "ASK"), ("deny", "DENIED"), ("allow", None)):
        session = Inspector(asking, mode="enforce", on_ask=on_ask).session()  # type: ignore[arg-type]
        holder = Holder(api, session)
        holder.feed(encoded(api, events(api, EVIL)))
        assert (holder.refused and holder.refused.code) == code


@pytest.mark.parametrize("api", APIS)
def test_too_much_is_not_held(api: API) -> None:
    """A call that does not end is refused before memory is."""
    long = Said("", (Call("save_note", {"a": "x" * 5_000}, 40),))
    out = played(api, [encoded(api, events(api, long))], Watched(), max_held=2_000)
    assert out.refusal is not None
    assert out.refusal.code == "TOO_LARGE"


@pytest.mark.parametrize("api", APIS)
def test_an_error_in_the_middle_of_a_call_leaves_it_open(api: API) -> None:
    """It is told that the call never became whole."""
    at = next(n for n, event in enumerate(events(api, PLAIN)) if "lookup" in json.dumps(event))
    error: dict[str, Any] = {"type": "error", "error": {"type": "overloaded_error", "message": "x"}}
    stream = encoded(api, [*events(api, PLAIN)[: at + 1], error])
    out = played(api, [stream], Watched())
    assert out.refusal is not None
    assert out.refusal.code == "INCOMPLETE"
    assert b"lookup" not in out.release


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(
    "noise", [b"data: {\n\n", b"data: \xff\n\n", b' data: {"a": 1}\n\n', b"data: [1]\n\n"]
)
def test_what_cannot_be_read_is_refused(api: API, noise: bytes) -> None:
    """In shadow mode it is only told, and the rest is looked at."""
    stream = encoded(api, events(api, EVIL))
    refused = played(api, [noise + stream], Watched())
    assert refused.release == b""
    assert refused.refusal is not None
    told = played(api, [noise + stream], Watched("shadow"))
    assert told.problem == refused.refusal.code
    assert told.decisions[-1].verdict == "deny"


def test_events_of_a_stream_are_numbered_on() -> None:
    """After those that the session has had before."""
    watched = Watched()
    holder = Holder("chat", watched, name="s-1", seq=7)  # type: ignore[arg-type]
    holder.feed(encoded("chat", events("chat", PLAIN)))
    assert [(event.session, event.seq) for event in watched.asked] == [("s-1", 7), ("s-1", 8)]
    assert holder.seq == 9


@pytest.mark.parametrize("api", APIS)
def test_what_is_held_takes_time_in_proportion(api: API) -> None:
    """However many frames it is made of: whoever holds them serves others, too."""
    stream = encoded(api, events(api, PLAIN))
    begun = stream[: stream.index(b"\n\n", stream.index(b"lookup")) + 2]

    def seconds(frames: int) -> float:
        holder = Holder(api, Watched())  # type: ignore[arg-type]
        began = time.process_time()
        holder.feed(begun + b":\n\n" * frames)
        assert holder.holds
        return time.process_time() - began

    seconds(100)
    assert seconds(24_000) < 20 * seconds(3_000)
