"""Texts and scenarios that others collected, as labelled sessions.

Both corpora hold what is put before a model; what a model then does they only name. So a text is judged as
the result of a tool, and where a scenario says which call is the damage, that call is judged after it too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import resources
from typing import Any

from memoflow.inspection import Event, LabelledSession, Prompt, Source, ToolCall, ToolResult
from memoflow.inspection.events import Kind

__all__ = ["NoCorpus", "bastion", "bench"]

_PAGE = Source("mcp", "page")


class NoCorpus(Exception):
    """A corpus is not installed; says which."""


def bastion() -> Iterator[LabelledSession]:
    """The texts of ``bastioncorpus``, each as the result of a tool."""
    for row in _rows("bastioncorpus", "corpus/injections.jsonl", "bastioncorpus"):
        label = "attack" if row["label"] == "malicious" else "benign"
        event = Event(row["id"], 1, ToolResult("get_page", row["text"], _PAGE))
        yield LabelledSession(row["id"], label, row["category"], (event,))  # type: ignore[arg-type]


def bench(*, with_calls: bool) -> Iterator[LabelledSession]:
    """The scenarios of ``agent-injection-bench``: task and text, and the call that is the damage if asked.

    Scenarios whose damage is a word in the reply make no call, so nothing of them but the text can be judged.
    """
    for row in _rows("aib", "data/attacks.jsonl", "agent-injection-bench"):
        kinds: list[Kind] = [Prompt(row["task"]), ToolResult("get_page", row["injected"], _PAGE)]
        call = _damage(row)
        if with_calls and call is None and row["success"]["kind"] != "refusal":
            continue
        events = [*kinds, call] if with_calls and call is not None else kinds
        label = "benign" if row["success"]["kind"] == "refusal" else "attack"
        numbered = tuple(Event(row["id"], seq, kind) for seq, kind in enumerate(events, 1))
        yield LabelledSession(row["id"], label, row["family"], numbered)  # type: ignore[arg-type]


def _damage(row: dict[str, Any]) -> ToolCall | None:
    success = row["success"]
    if success["kind"] == "tool_call":
        found = [word.rstrip(".'") for word in row["injected"].split() if "/" in word and len(word) > 4]
        name = "url" if success["tool"] == "fetch_url" else "path"
        return ToolCall(success["tool"], {name: found[-1] if found else ""})
    if success["kind"] == "exfiltration":
        where = next(word for word in row["injected"].split() if "attacker.example" in word)
        where = where.rpartition("url=")[2].rstrip(".")
        name = "to" if success["sink"] == "send_email" else "url"
        return ToolCall(success["sink"], {name: where, "body": success["secret"]})
    return None


def _rows(module: str, path: str, package: str) -> Iterator[dict[str, Any]]:
    try:
        text = resources.files(module).joinpath(path).read_text(encoding="utf-8")
    except ModuleNotFoundError:
        raise NoCorpus(f"{package} is not installed: pip install {package}") from None
    return (json.loads(line) for line in text.splitlines() if line.strip())
