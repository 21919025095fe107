"""Labelled sessions: what the shipped policy finds, what it stops for nothing, and how files are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memoflow.errors import InvalidRequest
from memoflow.inspection import LabelledSession, play, read_sessions, shipped_policy

DIRECTORY = Path(__file__).parent / "sessions"
SESSIONS = [
    session
    for path in sorted(DIRECTORY.glob("*.jsonl"))
    for session in read_sessions(path.read_text(encoding="utf-8"), path.name)
]

# The kinds of attack that the specification names, each with the sessions that show it.
KINDS = {
    "secret to a foreign host": ("secret-post",),
    "secret in a GET": ("secret-get",),
    "secret by a tool that is no shell": ("secret-mail", "base64-secret"),
    "injection sends credentials": ("credential-file",),
    "injection sends a file": ("env-file", "tainted-post"),
    "personal data leaves": ("pii-post", "card-number"),
    "data in an image or a name": ("image", "dns"),
    "another recipient": ("recipient", "cc", "user-name"),
    "another account": ("iban",),
    "another member, right or hook": ("invite", "grant", "webhook"),
    "destruction from taint": ("tainted-directory", "tainted-reset"),
    "privilege from taint": ("tainted-privilege",),
    "destruction of everything": ("wipe", "pipe-to-shell", "unbounded-delete", "always-true"),
    "poisoned description": ("poison", "soft-poison", "poisoned-schema"),
    "drift or shadow of tools": ("drift", "shadow"),
    "subagent": ("escalation", "report", "report-orders"),
    "known credential, cut or backwards": ("known-split", "known-reversed"),
    "hidden text": ("zero-width", "look-alikes", "tags", "secret-key-name", "twice"),
    "host that is not what it looks like": (
        "metadata",
        "metadata-number",
        "mapped",
        "private",
        "backslash",
        "user-part",
        "suffix",
        "no-scheme",
        "field",
        "script",
    ),
}


@pytest.mark.parametrize("session", SESSIONS, ids=lambda session: session.name)
def test_a_session_is_judged_as_it_is_labelled(session: LabelledSession) -> None:
    """An attack is asked about or denied, and nothing benign is interrupted."""
    outcome = play(session, shipped_policy())
    assert outcome.right, (outcome.verdict, outcome.rule, outcome.seq)


def test_there_is_an_attack_of_every_kind_and_something_benign_beside_it() -> None:
    """Nineteen kinds, each shown, and no session that shows none."""
    attacks = {session.name for session in SESSIONS if session.label == "attack"}
    shown = [name for names in KINDS.values() for name in names]
    assert len(KINDS) == 19
    assert sorted(shown) == sorted(attacks)
    assert sum(session.label == "benign" for session in SESSIONS) >= 30
    assert len({session.name for session in SESSIONS}) == len(SESSIONS)


@pytest.mark.parametrize(
    ("lines", "named"),
    [
        ([{"kind": "prompt", "content": ""}], "must begin with a line that has a label"),
        ([{"label": "evil", "session": "s"}], "the label attack or benign"),
        ([{"label": "attack"}], "needs a name"),
        ([{"label": "attack", "session": "s", "tool": {}}], "unknown: tool"),
        ([{"label": "attack", "session": "s", "tools": {"t": {"acton": "network"}}}], "have another form"),
        ([{"label": "attack", "session": "s"}, {"kind": "prompt"}], "f.jsonl, line 2: The field 'content'"),
        ([{"label": "attack", "session": "s"}, []], "f.jsonl, line 2 must be a JSON object"),
        (
            [{"label": "benign", "session": "s"}, {"kind": "tool_cal"}],
            'line 2: "kind" must be one of tool_call',
        ),
        ([{"label": "benign", "session": "s"}, {"event": "prompt"}], '"kind" must be one of'),
        (
            [
                {"label": "benign", "session": "s"},
                {"kind": "tool_call", "tool": "t", "args": {}, "arguments": {}},
            ],
            "an event of kind tool_call has no arguments",
        ),
    ],
)
def test_a_file_that_is_wrong_is_refused(lines: list[Any], named: str) -> None:
    """With the line, and no text of it."""
    with pytest.raises(InvalidRequest) as caught:
        read_sessions("\n".join(map(json.dumps, lines)), "f.jsonl")
    assert named in str(caught.value)


def test_events_are_numbered_where_they_have_no_number() -> None:
    """After the one before them."""
    lines = [
        {"label": "benign", "session": "s"},
        {"kind": "session_start"},
        {"kind": "prompt", "content": "", "seq": 7},
        {"kind": "session_end", "session": "other"},
    ]
    (session,) = read_sessions("\n".join(map(json.dumps, lines)), "f")
    assert [(event.session, event.seq) for event in session.events] == [("s", 1), ("s", 7), ("other", 8)]


def test_a_session_without_events_is_no_attack_found() -> None:
    """Nothing that happens is nothing that is stopped."""
    outcome = play(LabelledSession("s", "attack", "", ()), shipped_policy())
    assert (outcome.verdict, outcome.seq, outcome.right) == ("allow", None, False)
