"""Nothing that a call carries is in the evidence, on the screen or in a log: markers would show it."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import pytest

from certification.live import asking, inputs, program
from certification.live import provider as asked
from certification.live.provider import Provider
from memoflow import tool
from memoflow.testing import (
    ScriptEntry,
    SimulatedProvider,
    call,
    calls,
    error_event,
    hold,
    html_200,
    status,
    text,
)
from tests.certification.live._runs import MODEL, SOURCE, root_of, script

PROMPT, REPLY, ARGUMENT, RESULT, ERROR, THOUGHT, KEY = (
    f"marker-{name}-5f3a9c" for name in ("prompt", "reply", "argument", "result", "error", "thought", "key")
)
MARKERS = (PROMPT, REPLY, ARGUMENT, RESULT, ERROR, THOUGHT, KEY)
OF_THE_PROVIDER = re.compile(r"\b(?:resp|msg|req|call|toolu|fc|rs|item)_\w+")
"""What ids of replies, requests, calls and items begin with."""


@tool(version="v1", effect="read_only")
def double(word: str) -> str:
    """Doubles."""
    return RESULT + word


MARKED: dict[str, ScriptEntry] = {
    "response": text(REPLY, thought=THOUGHT),
    "stream": text(REPLY, thought=THOUGHT),
    "tools": calls(call("double", {"word": ARGUMENT}), say=REPLY),
    "continuation": text(REPLY),
    "cancellation": hold(text(REPLY * 9), after=2),
}
BROKEN: list[dict[str, ScriptEntry]] = [
    {"response": status(400, message=ERROR)},
    {"response": status(500, message=ERROR)},
    {"response": html_200()},
    {"stream": error_event(message=ERROR)},
    {"tools": calls(call(ARGUMENT, {"word": ARGUMENT}))},
    {"tools": calls(call("double", {ARGUMENT: ARGUMENT}))},
    {"tools": text(REPLY)},
    {"continuation": calls(call("double", {"word": ARGUMENT}))},
    {"cancellation": status(429, message=ERROR)},
]


@pytest.fixture
def out(provider: Provider, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where evidence goes, in a world in which everything that is sent and known is marked."""
    monkeypatch.setattr(program, "clean_source", lambda root: SOURCE)
    monkeypatch.setattr(asking, "double", double)
    monkeypatch.setattr(inputs, "SIMULATED_KEY", KEY)
    for name in asked.TEXTS:
        monkeypatch.setitem(asked.TEXTS, name, PROMPT)  # type: ignore[arg-type]
    monkeypatch.setenv(provider.setting("MODEL"), MODEL)
    monkeypatch.setenv(provider.variable("API_KEY"), KEY)
    return tmp_path / "evidence.json"


def run(provider: Provider, out: Path, entries: list[ScriptEntry]) -> tuple[int, SimulatedProvider]:
    """The program's exit code, and the provider that it asked."""
    server = SimulatedProvider(entries)
    with server.serve() as base_url:
        url = root_of(provider, base_url)
        code = program.run(provider, ["--simulated", url, "--out", str(out)])
    return code, server


def check(told: str) -> None:
    """No marker and no id of the provider's is in what was told."""
    assert [marker for marker in MARKERS if marker in told] == []
    assert OF_THE_PROVIDER.findall(told) == []


def test_evidence_and_screen_hold_no_payload(
    provider: Provider, out: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """All of it passed, both ways, and none of it is told."""
    caplog.set_level(logging.DEBUG)
    code, server = run(provider, out, script(**MARKED))
    assert code == 0
    passed = b"".join(request.body for request in server.requests).decode()
    assert all(marker in passed for marker in (PROMPT, REPLY, ARGUMENT, RESULT))
    assert any(KEY in value for value in server.requests[0].headers.values())
    captured = capsys.readouterr()
    check(out.read_text() + captured.out + captured.err + caplog.text)
    for request in server.requests:
        assert request.response_id is not None
        assert request.response_id not in out.read_text()


@pytest.mark.parametrize("replaced", BROKEN, ids=[f"{n}-{next(iter(one))}" for n, one in enumerate(BROKEN)])
def test_a_run_that_fails_tells_no_payload(
    provider: Provider,
    out: Path,
    replaced: dict[str, ScriptEntry],
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What was wrong is said without any of it, and there is no evidence."""
    caplog.set_level(logging.DEBUG)
    code, _ = run(provider, out, script(**MARKED | replaced))
    captured = capsys.readouterr()
    assert (code, out.exists()) == (1, False)
    assert "Not certified: " in captured.err
    check(captured.out + captured.err + caplog.text)


def test_a_run_that_breaks_down_tells_no_payload(
    provider: Provider, out: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exception that nobody foresaw is told by its type alone."""

    def breaks(self: Any, boundary: str) -> None:
        raise RuntimeError(ERROR)

    monkeypatch.setattr(asking.Asker, "ask", breaks)
    code, _ = run(provider, out, script(**MARKED))
    err = capsys.readouterr().err
    assert (code, err) == (1, "Not certified: response: the run broke down (RuntimeError).\n")
