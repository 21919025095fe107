"""The demo as a person sees it, and the claims it has to hold."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

from rich.console import Console

from memoflow import Budget, ConfigurationError, KeyRing, Runtime
from memoflow.demo.claims import Claims
from memoflow.demo.worker import Job, Report
from memoflow.ledger.verify import verify
from memoflow.testing import ProviderProcess, ScriptEntry, call, calls, reset_mid_body, text

__all__ = ["main"]

QUESTION = "My parcel for order A-17 never came. Please refund the 4,200 cents."
LEASE_SECONDS = 1


def main(
    *,
    live: bool = False,
    model: str | None = None,
    keep: Path | None = None,
    console: Console | None = None,
) -> int:
    """Run the demo; returns 0 only if all of its claims held.

    Args:
        live: ask the real API, with ``OPENAI_API_KEY``; a handful of small, budgeted calls.
        model: the model to ask when live.
        keep: a new directory that is left with the ledger in it; otherwise nothing is left.
        console: where to print.

    Raises:
        ConfigurationError: live, and no model or no key; or the directory cannot be made.
    """
    console = console or Console(highlight=False)
    if live and (model is None or not os.environ.get("OPENAI_API_KEY")):
        raise ConfigurationError("A live demo needs --model NAME and OPENAI_API_KEY.")
    with _folder(keep) as path:
        job = Job(
            database=f"sqlite:///{path / 'demo.db'}",
            model=model or "simulated-model",
            tickets=("ticket-42",),
            question=QUESTION,
            refunds=str(path / "refunds.txt"),
        )
        code = _run(console, job, live=live)
    console.print(_LEFT if keep is None else _KEPT.format(job.database), soft_wrap=True)
    return code


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="memoflow-demo-") as folder:
            yield Path(folder)
        return
    try:
        keep.mkdir(parents=True)
    except OSError as error:
        raise ConfigurationError(
            f"The directory {str(keep)!r} cannot be made ({error.strerror}). Name one that is not there yet."
        ) from None
    yield keep


_LEFT = "\nThe demo's ledger is removed now. With --keep DIRECTORY, a new one, it stays there to look at."
_KEPT = """
The demo's ledger is kept in that directory. Look at it, and decide what is unknown:
  export MEMOFLOW_DATABASE_URL={}
  memoflow budget list
  memoflow invocations list
  memoflow reconcile list"""


def _run(console: Console, job: Job, *, live: bool) -> int:
    if live:
        return _Demo(console, job, None).run()
    with _provider() as provider:
        return _Demo(console, replace(job, base_url=provider.base_url, api_key="none"), provider).run()


@contextmanager
def _provider() -> Iterator[ProviderProcess]:
    """A provider in its own process: a tool call, an answer, and a reply that breaks off on its way."""
    script: list[ScriptEntry] = [
        calls(call("refund", {"order_id": "A-17", "cents": 4200})),
        text("I have refunded the 4,200 cents for order A-17."),
        reset_mid_body(text("This answer is generated and billed, and never arrives.")),
    ]
    with ProviderProcess(script) as provider:
        yield provider


class _Demo:
    def __init__(self, console: Console, job: Job, provider: ProviderProcess | None) -> None:
        self.console = console
        self.job = job
        self.provider = provider
        self.claims = Claims(console)
        KeyRing.create_file(job.database.removeprefix("sqlite:///") + ".key")
        self.runtime = Runtime.open(job.database, lease_seconds=LEASE_SECONDS)
        self.runtime.budgets.put("acme", Budget(total_tokens=100_000, model_calls=50), period="month")
        self.runtime.budgets.put("acme/support", Budget(total_tokens=20_000, tool_calls=10))

    def run(self) -> int:
        try:
            self._die()
            lost = self._retry()
            if lost is not None:
                self._lose_a_reply(lost)
            self._show()
        finally:
            self.runtime.close()
        if self.claims.broken:
            self.console.print(f"\n[red]{self.claims.broken} of the claims above did not hold.[/]")
        return 1 if self.claims.broken else 0

    def _die(self) -> None:
        self._head("1", "A worker answers a ticket with a tool, and is killed before it can finish")
        code, _ = _work(replace(self.job, die=True))
        self.claims.check(f"the worker is dead (exit status {code})", code == -9)
        self.claims.check(f"the tool had run {self._refunds()} time", self._refunds() == 1)
        self._check_wire(2, "the provider had served {} requests")

    def _retry(self) -> Report | None:
        self._head("2", "Another worker takes over when the lease of the dead one has run out")
        time.sleep(LEASE_SECONDS + 0.2)
        more = () if self.provider is None else ("ticket-43",)
        _, reports = _work(replace(self.job, tickets=(*self.job.tickets, *more)))
        report = reports[0]
        self.console.print(f"  answer: {report.answer or report.error}")
        self.claims.check(
            f"{report.restored} replies were restored, {report.sent} requests sent", report.sent == 0
        )
        self.claims.check(
            f"the tool has run {self._refunds()} time in all: nothing was done or paid twice",
            self._refunds() == 1,
        )
        return reports[1] if more else None

    def _lose_a_reply(self, report: Report) -> None:
        self._head("3", "On its next ticket the connection breaks while the reply is on its way")
        self.console.print(f"  {report.error}", soft_wrap=True)
        self._check_wire(3, "the provider has served {} requests: 2 for the first ticket, and this one")
        unknown = self.runtime.reconcile.list().invocations
        self.claims.check("it may have been billed, so it is kept as OUTCOME_UNKNOWN", len(unknown) == 1)
        held = self.runtime.budgets.show("acme/support").unknown.total_tokens
        self.claims.check(f"its whole reservation of {held} tokens stays held", held == 2_000)

    def _show(self) -> None:
        self._head("4", "The ledger")
        for account in self.runtime.budgets.list():
            settled, unknown = account.settled.total_tokens, account.unknown.total_tokens
            self.console.print(
                f"  {account.path:<14} {settled:>6} tokens settled, {unknown:>5} held as unknown, "
                f"of {account.hard.total_tokens}"
            )
        for entry in self.runtime.reconcile.list().invocations:
            self.console.print(f"  to reconcile: invocation {entry.id} ({entry.reason})", soft_wrap=True)
        if self.provider is not None:
            billed = self.provider.billed.total
            account = self.runtime.budgets.show("acme")
            accounted = account.settled.total_tokens + account.unknown.total_tokens
            self.claims.check(
                f"settled plus held ({accounted}) covers what the provider billed ({billed})",
                accounted >= billed,
            )
        findings = self.runtime.ledger.database.read(verify)
        self.claims.check("every balance and hash chain recomputes (memoflow verify)", not findings)

    def _check_wire(self, wanted: int, sentence: str) -> None:
        if self.provider is not None:
            served = self.provider.wire_requests["POST /v1/responses"]
            self.claims.check(sentence.format(served), served == wanted)

    def _refunds(self) -> int:
        """How often the tool ran, as the tool itself counted it."""
        file = Path(self.job.refunds)
        return len(file.read_text(encoding="utf-8").splitlines()) if file.exists() else 0

    def _head(self, number: str, title: str) -> None:
        self.console.print(f"\n[bold]{number}. {title}[/]")


def _work(job: Job) -> tuple[int, list[Report]]:
    """Run a worker process; its exit status, and its reports if it lived to give them."""
    command = [sys.executable, "-m", "memoflow.demo.worker", json.dumps(asdict(job))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode > 0:
        raise RuntimeError(f"The demo's worker failed:\n{done.stderr}")
    return done.returncode, [Report(**report) for report in json.loads(done.stdout or "[]")]
