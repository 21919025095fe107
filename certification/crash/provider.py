"""The provider of the campaign, in a process of its own: ``python -m certification.crash.provider``.

It reads one JSON line with its part of the plan, prints its address, and from then on writes its record of
all requests to the file named by each further line. It ends when its input does.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from certification.crash.plan import Fate, Plan
from memoflow.testing import (
    ProviderRequest,
    RecordedRequest,
    SimulatedProvider,
    call,
    calls,
    delay,
    failed,
    incomplete,
    missing_usage,
    read_timeout,
    reset_before_reply,
    reset_mid_body,
    status,
    text,
    truncated_body,
    usage,
)

__all__ = ["Provider"]

PATIENCE_S = 60.0
TOLD = "x-crash"
"""The header in which a worker says whose request this is: activity, call and attempt."""


class Provider:
    """The process, as the campaign sees it."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", __name__]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        plan = {"seed": self._plan.seed, "database": self._plan.database, "jobs": self._plan.jobs}
        self.base_url = self._ask(json.dumps(plan))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def write_record(self, path: Path, *, when_alone: bool = True) -> None:
        """Let it write down every request so far, when it is done with all of them.

        ``when_alone`` waits until nobody is connected: what a worker had sent when it was killed may still be
        on its way.
        """
        self._ask(json.dumps({"path": str(path), "when_alone": when_alone}))

    def _ask(self, line: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(line, file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline().strip()
        if not answer:
            raise RuntimeError("The provider process has ended; its error is above.")
        return answer


class _Model:
    """What the model answers, by the plan."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def __call__(self, request: ProviderRequest) -> Any:
        job, key, attempt = request.headers[TOLD].split()
        rounds = next(one.rounds for one in self._plan.job(job).calls if one.key == key)
        number = request.answered_rounds
        fate = self._plan.fate(job, key, number, int(attempt))
        billed = usage(fate.input_tokens, fate.output_tokens)
        spent: dict[str, Any] = {"usage": billed, "honour_cap": False}
        if number < len(rounds):
            wanted = [
                call(name, {"item": f"{job}/{key}/{number}.{ordinal}"})
                for ordinal, name in enumerate(rounds[number])
            ]
            return _suffer(fate, calls(*wanted, **spent), spent)
        return _suffer(fate, text(_said(request), **spent), spent)


def _said(request: ProviderRequest) -> str:
    return "; ".join(str(item["output"]) for item in request.outputs) or "Nothing was asked."


def _suffer(fate: Fate, reply: Any, spent: dict[str, Any]) -> Any:
    """The reply, or what becomes of it."""
    match fate.kind:
        case "slow":
            return delay(fate.delay_s, reply)
        case "rejected":
            return status(429)
        case "error":
            return status(500, performed=fate.performed, then=reply)
        case "reset":
            return reset_before_reply(reply, performed=fate.performed)
        case "cut":
            cut = reset_mid_body if fate.delay_s < 0.1 else truncated_body
            return cut(reply, performed=fate.performed)
        case "silent":
            return read_timeout(reply, performed=fate.performed)
        case "usage_missing":
            return missing_usage(reply)
        case "incomplete":
            return incomplete("This was cut", **spent)
        case "failed":
            return failed(**spent)
        case _:
            return delay(0.005, reply)


def _line(plan: Plan, record: RecordedRequest) -> dict[str, Any]:
    """One request in the record, with nothing in it but what the provider knows."""
    job, key, attempt = record.headers[TOLD].split()
    items = record.json["input"]
    request = ProviderRequest(
        record.json, record.headers, tuple(items) if isinstance(items, list) else (), (), 0
    )
    number = request.answered_rounds
    rounds = next(one.rounds for one in plan.job(job).calls if one.key == key)
    asks = record.performed and plan.fate(job, key, number, int(attempt)).kind not in ("incomplete", "failed")
    billed = record.billed
    return {
        "job": job,
        "attempt": int(attempt),
        "call": key,
        "round": number,
        "accounts": plan.job(job).charged,
        "status": record.status,
        "performed": record.performed,
        "input_tokens": 0 if billed is None else billed.input_tokens,
        "output_tokens": 0 if billed is None else billed.output_tokens,
        "asked": len(rounds[number]) if asks and number < len(rounds) else 0,
        "digest": _digest(record.json),
    }


def _digest(body: dict[str, Any]) -> str:
    """As the ledger has it: of the canonical form, which this is for text without exotic characters.

    Whether the reply is streamed is left out: a record made one way may be restored the other way.
    """
    asked = {name: value for name, value in body.items() if name != "stream"}
    data = json.dumps(asked, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _is_whole(record: RecordedRequest) -> bool:
    """Whether it arrived; what was cut off while it was sent is no request."""
    return record.arrived and len(record.body) == int(record.headers["content-length"])


def _write(path: Path, plan: Plan, provider: SimulatedProvider) -> None:
    lines = []
    for record in [one for one in provider.requests if one.operation == "create" and _is_whole(one)]:
        # Whoever asked is dead or done, so nobody is waited for that could not be.
        record.wait_ended(30)
        lines.append(json.dumps(_line(plan, record)) + "\n")
    draft = path.with_suffix(".draft")
    draft.write_text("".join(lines), encoding="utf-8")
    os.replace(draft, path)


def _wait_until_alone(base_url: str, alone: int) -> None:
    # Connections are taken up in their order, so when this is answered all others have a thread.
    with urllib.request.urlopen(base_url.removesuffix("/v1") + "/_control/health") as answer:
        answer.read()
    deadline = time.monotonic() + PATIENCE_S
    while threading.active_count() > alone:
        if time.monotonic() > deadline:
            raise TimeoutError("Somebody is still connected to the provider.")
        time.sleep(0.02)


def _serve() -> None:
    plan = Plan(**json.loads(sys.stdin.readline()))
    provider = SimulatedProvider(_Model(plan), store_interrupted=True)
    with provider.serve() as base_url:
        alone = threading.active_count()
        print(base_url, flush=True)
        for line in sys.stdin:
            given = json.loads(line)
            if given["when_alone"]:
                _wait_until_alone(base_url, alone)
            _write(Path(given["path"]), plan, provider)
            for error in provider.errors:
                raise error
            print("written", flush=True)


if __name__ == "__main__":
    _serve()
