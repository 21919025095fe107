"""A ledger with a clock that tests move, and the few operations that make calls in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

from sqlalchemy import Connection, Table, select

from memoflow.budget import DIMENSIONS, Amounts, Budget
from memoflow.identity import ActivityIdentity, new_id
from memoflow.ledger.accounts import AccountInfo, PutAccount, read_account
from memoflow.ledger.activities import ClaimActivity, EndAttempt, Fence
from memoflow.ledger.database import Database
from memoflow.ledger.effects import NewEffect
from memoflow.ledger.holdings import Ask
from memoflow.ledger.invocations import Binding, SettleInvocation, StartInvocation, TokenUse
from memoflow.ledger.outputs import OutputRow
from memoflow.ledger.transaction import Operation
from memoflow.ledger.writer import Writer

__all__ = [
    "NAMESPACE",
    "SECOND",
    "START",
    "Ledger",
    "ask",
    "bound",
    "effect",
    "identity",
    "open_ledger",
    "output",
    "put",
    "settle",
    "start",
]

T = TypeVar("T")

NAMESPACE = "tests"
SECOND = 1_000_000
START = 1_800_000_000 * SECOND
"""2027-01-15 08:00 UTC."""
LEASE = 60 * SECOND


def identity(
    activity_id: str = "answer", *, run_id: str = "run-1", namespace: str = NAMESPACE
) -> ActivityIdentity:
    """The identity of an activity."""
    return ActivityIdentity(namespace, "workflow-1", run_id, activity_id, "answer", "v1")


def ask(**amounts: int | None) -> Ask:
    """What a reservation wants: zero in every dimension not named, one model call; prices in USD."""
    wanted: dict[str, int | None] = {**dict.fromkeys(DIMENSIONS, 0), "model_calls": 1, **amounts}
    return Ask(tuple(wanted[name] for name in DIMENSIONS), "USD", "model-1")


class Ledger:
    """A database with its writer. ``now`` is what its clock shows, in UTC microseconds."""

    def __init__(self, url: str) -> None:
        self.now = START
        self.database = Database(url, clock=lambda connection: self.now)
        self.writer = Writer(self.database)

    def close(self) -> None:
        """Stop the writer and close the connections."""
        self.writer.close()
        self.database.close()

    # Writing

    def do(self, operation: Operation[T]) -> T:
        """Record one operation; raises its refusal."""
        futures = self.writer.submit(operation)
        result: T = futures[0].result(timeout=30)
        return result

    def do_all(self, *operations: Operation[Any]) -> list[Any]:
        """Record operations in one batch; what each returned, or the exception it was refused with."""
        futures = self.writer.submit(*operations)
        return [future.exception(timeout=30) or future.result() for future in futures]

    def put(self, path: str, hard: Budget | None = None, **options: Any) -> AccountInfo:
        """Create or change an account."""
        return self.do(put(path, hard, **options))

    def claim(self, who: ActivityIdentity | None = None) -> Fence:
        """Become the next attempt of an activity."""
        who = who or identity()
        claim = self.do(ClaimActivity(who, "sha256:input", LEASE, "worker-1"))
        return Fence(who.namespace, claim.activity_id, claim.attempt, str(who))

    def start(self, fence: Fence, wanted: Ask, *accounts: str, **changes: Any) -> str:
        """Reserve and start an invocation; returns its id."""
        operation = start(fence, wanted, *accounts, **changes)
        self.do(operation)
        return operation.id

    def settle(self, fence: Fence, id: str, tokens_in: int = 0, tokens_out: int = 0, **changes: Any) -> None:
        """Settle an invocation by what its reply said was used."""
        self.do(settle(fence, id, tokens_in, tokens_out, **changes))

    def lose_reply(self, fence: Fence, id: str, reason: str = "READ_TIMEOUT") -> None:
        """Record that the outcome of an invocation is not known."""
        self.do(SettleInvocation(fence, id, "OUTCOME_UNKNOWN", "unknown", reason))

    def unknown(
        self, wanted: Ask, *accounts: str, who: ActivityIdentity | None = None, **changes: Any
    ) -> str:
        """An invocation of a fresh activity whose outcome is unknown, and whose attempt has ended."""
        fence = self.claim(who)
        id = self.start(fence, wanted, *accounts, **changes)
        self.lose_reply(fence, id)
        self.end(fence)
        return id

    def end(self, fence: Fence, state: str = "FAILED") -> None:
        """End an attempt without completing its activity."""
        self.do(EndAttempt(fence, state, "OutcomeUnknown"))

    # Reading

    def read(self, query: Callable[[Connection], T]) -> T:
        """Run a query."""
        return self.database.read(query)

    def rows(self, table: Table, **where: Any) -> list[Any]:
        """Rows of a table with these values, in the order of its primary key."""
        query = select(table).order_by(*table.primary_key.columns)
        for name, value in where.items():
            query = query.where(table.c[name] == value)
        return self.read(lambda connection: list(connection.execute(query).all()))

    def row(self, table: Table, id: str) -> Any:
        """The one row with this id."""
        (row,) = self.rows(table, id=id)
        return row

    def account(self, path: str) -> AccountInfo:
        """An account with its current balance."""
        found = self.read(lambda connection: read_account(connection, NAMESPACE, path, self.now))
        assert found is not None
        return found


@contextmanager
def open_ledger(url: str) -> Iterator[Ledger]:
    """A ledger for as long as the context lasts."""
    ledger = Ledger(url)
    try:
        yield ledger
    finally:
        ledger.close()


def put(path: str, hard: Budget | None = None, **options: Any) -> PutAccount:
    """The operation that creates or changes an account."""
    values = {"soft": None, "period": None, "time_zone": None, "actor": "tester", "reason": ""} | options
    return PutAccount(values.pop("namespace", NAMESPACE), path, hard or Budget(), **values)


def start(fence: Fence, wanted: Ask, *accounts: str, **changes: Any) -> StartInvocation:
    """The operation that reserves and starts."""
    operation = StartInvocation(
        fence=fence,
        id=new_id(),
        accounts=accounts or ("acme",),
        ask=wanted,
        binding=None,
        round=0,
        provider="openai",
        api="responses",
        model=wanted.model,
        request_digest="sha256:request",
        input_basis="bound",
        input_measured=10,
        output_cap=None,
        price_version=None,
        metadata=None,
    )
    return replace(operation, **changes)


def bound(replay_key: str = "turn") -> Binding:
    """What a replay key is bound to."""
    return Binding(new_id(), replay_key, "openai/responses", "sha256:request", "sha256:executors")


def settle(
    fence: Fence, id: str, tokens_in: int = 0, tokens_out: int = 0, **changes: Any
) -> SettleInvocation:
    """The operation that settles by usage."""
    operation = SettleInvocation(
        fence,
        id,
        "SUCCEEDED",
        "settle",
        finish_reason="stop",
        response_digest="sha256:reply",
        usage=TokenUse(tokens_in, 0, 0, tokens_out, 0, None),
        actual=Amounts(tokens_in + tokens_out, tokens_in, tokens_out, 1),
    )
    return replace(operation, **changes)


def effect(invocation_id: str, ordinal: int = 0, **changes: Any) -> NewEffect:
    """An execution that begins."""
    new = NewEffect(
        id=new_id(),
        invocation_id=invocation_id,
        ordinal=ordinal,
        execution=1,
        call_id=f"call_{ordinal}",
        kind="function",
        tool_namespace="",
        tool_name="refund",
        tool_version="v1",
        effect_class="at_most_once",
        idempotency_key=f"mf1_{invocation_id}_{ordinal}",
        arguments_digest="sha256:arguments",
        state="STARTED",
    )
    return replace(new, **changes)


def output(owner_id: str, kind: str, binding: str = "sha256:binding") -> OutputRow:
    """A value of the protected store that nobody is going to open."""
    return OutputRow(owner_id, kind, binding, "k1", b"nonce", b"ciphertext")
