"""Whatever a model or a server writes, it is judged, recorded, and the same each time."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from memoflow.inspection import Event, Inspector, ToolCall, audit_record
from memoflow.inspection.policy import VERDICTS
from tests.inspection._events import KEY, Told, bash, result
from tests.inspection.test_events import events

# Lone surrogates too, which JSON can carry.
anything = st.text(st.characters(), max_size=40) | st.sampled_from(
    [
        "\ud800",
        "\0",
        "rm -rf /",
        "https://",
        "//",
        "@",
        "%",
        "eyJ",
        "-----BEGIN ",
        "\u202e",
        "data:;base64,AAAA",
    ]
)
arguments = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | anything,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(anything, inner, max_size=4),
    max_leaves=12,
)


@given(st.lists(events, max_size=6))
def test_every_event_can_be_judged_and_recorded(told: list[Event]) -> None:
    """Nothing is left not inspected, and the record is JSON."""
    inspector = Inspector(key=KEY)
    session = inspector.session()
    for event in told:
        decision = session.judge(event)
        assert decision.inspected, decision.reason
        assert json.loads(json.dumps(audit_record(decision, inspector.digester)))["decision"] in VERDICTS


@given(anything, arguments, anything)
def test_every_call_can_be_judged(tool: str, args: object, read: str) -> None:
    """Also with numbers that JSON does not have, after any result, and twice alike."""
    seen = [Told()(result(read), ToolCall(tool, args)) for _ in range(2)]
    assert all(decision.inspected for decision in seen)
    assert seen[0].signals == seen[1].signals


@given(anything, anything)
def test_more_taint_never_weakens_a_verdict(read: str, said: str) -> None:
    """What was read can only make a call more suspicious."""
    plain, after = Told()(bash(said)), Told()(result(f"{read} {said}"), bash(said))
    assert VERDICTS.index(after.verdict) >= VERDICTS.index(plain.verdict)
