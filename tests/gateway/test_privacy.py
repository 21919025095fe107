"""What is kept and told of requests: no prompt, no reply, no key."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from memoflow.ledger.verify import verify
from memoflow.testing import ManualClock, SimulatedProvider, hold, reset_before_reply, status, text
from tests.gateway._site import ANTHROPIC_KEY, MODEL, OPENAI_KEY
from tests.gateway.conftest import MakeSite

PROMPT = "a-prompt-that-nobody-may-read"
REPLY = "a-reply-that-nobody-may-read"
BODY: dict[str, Any] = {"model": MODEL, "input": PROMPT, "max_output_tokens": 50}
ONCE = {"idempotency-key": "once"}


def test_neither_the_ledger_nor_a_log_line_has_what_was_said(
    make_site: MakeSite, sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Whole and streamed, refused and broken, with and without a key of its own: not a word of it stays."""
    caplog.set_level(logging.DEBUG)
    site = make_site(
        SimulatedProvider(
            [text(REPLY), text(REPLY), text(REPLY), status(400, message=REPLY), reset_before_reply()]
        )
    )
    key = site.key()
    with site.http(key) as client:
        for more, headers in (({}, {}), ({"stream": True}, {}), ({}, ONCE), ({}, ONCE), ({}, {}), ({}, {})):
            client.post("/responses", json={**BODY, **more}, headers=headers)
        client.post("/responses", json={**BODY, "max_output_tokens": 10**9})
        client.post("/responses", content=f'{{"model":"m","model":"{PROMPT}"}}')
    site.ended()
    site.stop()
    path = Path(sqlite_url.removeprefix("sqlite:///"))
    kept = b"".join(file.read_bytes() for file in path.parent.glob(f"{path.name}*"))
    for secret in (PROMPT, REPLY, key, OPENAI_KEY, ANTHROPIC_KEY):
        assert secret.encode() not in kept
        # The transport's own lines of debugging are not ours to word; they have no bodies and hide keys.
        assert secret not in "\n".join(record.getMessage() for record in caplog.records)


def test_a_refusal_repeats_nothing_of_the_request(make_site: MakeSite) -> None:
    """Errors name what is wrong, never what was said."""
    site = make_site(SimulatedProvider())
    with site.http() as client:
        wrong = (
            {**BODY, "input": 5, "metadata": PROMPT},
            {**BODY, "stream": PROMPT},
            {**BODY, "max_output_tokens": PROMPT},
            {**BODY, "previous_response_id": PROMPT},
            {**BODY, "max_output_tokens": 10**9},
        )
        for body in wrong:
            refused = client.post("/responses", json=body)
            assert refused.status_code >= 400
            assert PROMPT not in refused.text


def test_a_request_that_was_taken_over_writes_nothing_more(make_site: MakeSite) -> None:
    """Fencing: a process that paused too long gives its client the reply, but the ledger is the other's."""
    held = hold(text("First."))
    site = make_site(SimulatedProvider([held, text("Second.")]))
    clock = ManualClock()
    site.stop()
    site.open_runtime.keywords["clock"] = clock
    site.start()
    key, got = site.key(), []
    with site.http(key) as one, site.http(key) as two:
        thread = threading.Thread(target=lambda: got.append(one.post("/responses", json=BODY, headers=ONCE)))
        thread.start()
        assert held.wait_entered()
        clock.advance(61)
        second = two.post("/responses", json=BODY, headers=ONCE)
        held.release()
        thread.join()
        again = two.post("/responses", json=BODY, headers=ONCE)
    assert "First." in got[0].text
    assert "Second." in second.text
    assert again.content == second.content
    assert [(found.state, found.reason) for found in site.ended()] == [
        ("OUTCOME_UNKNOWN", "ATTEMPT_LOST"),
        ("SUCCEEDED", None),
    ]
    assert site.runtime.ledger.database.read(verify) == []
