"""A small ledger written row by row, past the package's own code: what checks and guards are tried on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, Table, insert, select, update

from memoflow.budget import Amounts
from memoflow.ledger import schema as s
from memoflow.ledger.journal import GENESIS, Entry, entry_hash

__all__ = ["HOUR_US", "LATER", "NOW", "Rows", "whole_ledger"]

NOW = 1_790_000_000_000_000
LATER = 4_000_000_000_000_000
"""2096-10-02: what the database's own clock has to come before."""
HOUR_US = 3_600_000_000
ZERO = Amounts()
HOLD = Amounts(total_tokens=100, input_tokens=40, output_tokens=60, model_calls=1, tool_calls=2, cost=7)
USED = Amounts(total_tokens=50, input_tokens=30, output_tokens=20, model_calls=1, tool_calls=0, cost=5)


class Rows:
    """Inserts rows of one namespace that agree with each other."""

    def __init__(self, connection: Connection, namespace: str = "default") -> None:
        self._connection = connection
        self._namespace = namespace
        self._balances: dict[str, int] = {}

    def insert(self, table: Table, **values: Any) -> Any:
        """Insert one row; returns the first column of its primary key."""
        done = self._connection.execute(insert(table).values(**values))
        assert done.inserted_primary_key is not None
        return done.inserted_primary_key[0]

    def account(self, path: str, *, period_end: int | None = None, **hard: int) -> int:
        """An open account with one policy and one balance; returns the balance's id."""
        above = path.rpartition("/")[0]
        a = s.accounts.c
        parent = select(a.id).where(a.namespace == self._namespace, a.path == above).scalar_subquery()
        account = self.insert(
            s.accounts,
            namespace=self._namespace,
            path=path,
            parent_id=parent,
            period="none",
            time_zone="UTC",
            currency="USD",
            state="OPEN",
            policy_version=1,
            created_at=NOW,
        )
        limits = {f"hard_{name}": amount for name, amount in hard.items()}
        who = {"actor": "test", "reason": "", "at": NOW}
        self.insert(s.policies, account_id=account, version=1, state="OPEN", **who, **limits)
        self._balances[path] = self.insert(
            s.balances, account_id=account, period_start=0, period_end=period_end, seq=0, head=GENESIS
        )
        return self._balances[path]

    def activity(self, id: str, *, state: str = "RUNNING", attempts: Iterable[str] = ("RUNNING",)) -> str:
        """An activity with attempts in these states."""
        states = list(attempts)
        self.insert(
            s.activities,
            id=self._id(id),
            namespace=self._namespace,
            workflow_id="flow",
            run_id="run",
            activity_id=id,
            activity_type="answer",
            activity_version="v1",
            input_digest="sha256:in",
            state=state,
            attempt=len(states),
            lease_expires_at=NOW,
            output_digest="sha256:out" if state == "COMPLETED" else None,
            created_at=NOW,
        )
        for number, of_attempt in enumerate(states, 1):
            self.insert(
                s.attempts,
                id=f"{self._id(id)}/{number}",
                activity_id=self._id(id),
                number=number,
                worker="w",
                state=of_attempt,
                claimed_at=NOW,
            )
        return self._id(id)

    def call(self, id: str, activity: str, account: str, *, attempt: int = 1) -> str:
        """A started invocation and its hold."""
        self.insert(s.invocations, **self._invocation(id, activity, attempt))
        self.insert(s.reservations, **self._reservation(id, account))
        self.post(id, "reserve", account, held=HOLD)
        return self._id(id)

    def calls(self, ids: list[str], activity: str, account: str) -> None:
        """Many started invocations on an account without a parent, in few statements."""
        id = self._balances[account]
        balance = self._connection.execute(select(s.balances).where(s.balances.c.id == id)).one()
        head, seq, held = balance.head, balance.seq, s.read_amounts(balance, "held")
        entries = []
        for call in ids:
            seq, held = seq + 1, held.plus(HOLD)
            entry = Entry(id, seq, NOW, "reserve", self._id(call), 1, ZERO, HOLD, ZERO)
            head = entry_hash(head, entry)
            fixed = dict(zip(Entry._fields[:6], entry[:6], strict=True))
            entries.append({**fixed, **s.amount_values("held", HOLD), "hash": head})
        execute = self._connection.execute
        execute(insert(s.invocations), [self._invocation(call, activity, 1) for call in ids])
        execute(insert(s.reservations), [self._reservation(call, account) for call in ids])
        execute(insert(s.journal), entries)
        sums = {"head": head, "seq": seq, **s.amount_values("held", held)}
        execute(update(s.balances).where(s.balances.c.id == id).values(**sums))

    def _invocation(self, id: str, activity: str, attempt: int) -> dict[str, Any]:
        return {
            "id": self._id(id),
            "namespace": self._namespace,
            "activity_id": self._id(activity),
            "attempt": attempt,
            "round": 1,
            "provider": "openai",
            "api": "responses",
            "model": "m",
            "request_digest": "sha256:request",
            "input_basis": "bound",
            "state": "STARTED",
            "started_at": NOW,
        }

    def _reservation(self, id: str, account: str) -> dict[str, Any]:
        amounts = s.amount_values("reserved", HOLD)
        own = {"id": self._id(id), "namespace": self._namespace, "account": account}
        return {**own, "state": "HELD", "created_at": NOW, **amounts}

    def settle(self, id: str, account: str, *, unknown: bool = False, decision_id: str | None = None) -> None:
        """Settle by `USED`; from unknown by a decision."""
        gone = HOLD.negated()
        self.post(
            id,
            "settle",
            account,
            settled=USED,
            held=ZERO if unknown else gone,
            unknown=gone if unknown else ZERO,
        )
        state = {"state": "SUCCEEDED", "input_tokens": 30, "output_tokens": 20, "cost": 5}
        self._update(s.invocations, id, **state, finished_at=NOW)
        actual = s.amount_values("actual", USED)
        self._update(s.reservations, id, state="SETTLED", resolved_at=NOW, decision_id=decision_id, **actual)

    @staticmethod
    def _gone(unknown: bool) -> dict[str, Amounts]:
        return {"unknown" if unknown else "held": HOLD.negated()}

    def release(
        self, id: str, account: str, *, unknown: bool = False, decision_id: str | None = None
    ) -> None:
        """Release; from unknown by a decision."""
        self.post(id, "release", account, **self._gone(unknown))
        self._update(s.invocations, id, state="CANCELLED", finished_at=NOW)
        self._update(s.reservations, id, state="RELEASED", resolved_at=NOW, decision_id=decision_id)

    def lose(
        self, id: str, account: str, *, state: str = "OUTCOME_UNKNOWN", reason: str = "ATTEMPT_LOST"
    ) -> None:
        """Make unknown."""
        self.post(id, "unknown", account, held=HOLD.negated(), unknown=HOLD)
        self._update(s.invocations, id, state=state, reason=reason, finished_at=NOW)
        self._update(s.reservations, id, state="RECONCILE", reason=reason)

    def decide(self, id: str, target: str, verdict: str, *, kind: str = "invocation") -> str:
        """A decision about a target."""
        who = {"actor": "test", "reason": "seen", "at": NOW}
        target, id = self._id(target), self._id(id)
        row = {"id": id, "namespace": self._namespace, "kind": kind, "target_id": target, "verdict": verdict}
        row["evidence_digest"] = "sha256:evidence"
        # As `settle` charges.
        actual = s.amount_values("actual", USED) if verdict == "settle" else {}
        self.insert(s.decisions, **row, **who, **actual)
        return id

    def effect(self, id: str, call: str, activity: str, state: str, **values: Any) -> str:
        """An execution of a tool call."""
        defaults = {"ordinal": 0, "execution": 1, "result_digest": "sha256:r" if state == "DONE" else None}
        self.insert(
            s.effects,
            id=self._id(id),
            namespace=self._namespace,
            activity_id=self._id(activity),
            invocation_id=self._id(call),
            call_id="call",
            kind="function",
            tool_namespace="",
            tool_name="refund",
            tool_version="v1",
            effect_class="at_most_once",
            state=state,
            started_at=NOW,
            **{"attempt": 1, **defaults, **values},
        )
        return self._id(id)

    def waits(self, id: str, call: str, activity: str, **values: Any) -> str:
        """An execution that waits for a person, and what is asked."""
        bound = {"idempotency_key": f"mf1_{self._id(id)}", "arguments_digest": "sha256:a", **values}
        self.effect(id, call, activity, "AWAITING_APPROVAL", **bound)
        e = s.effects.c
        names = ("namespace", "activity_id", "invocation_id", "ordinal", "tool_namespace", "tool_name")
        names += ("tool_version", "arguments_digest", "idempotency_key")
        effect = self._connection.execute(select(s.effects).where(e.id == self._id(id))).one()
        asked = {name: getattr(effect, name) for name in names}
        who = {"requester": "agent:answer", "created_at": NOW, "expires_at": LATER}
        self.insert(s.approval_requests, id=self._id(id), **asked, **who)
        return self._id(id)

    def judge(self, id: str, verdict: str) -> str:
        """A decision on what is asked; returns its digest."""
        q = s.approval_requests.c
        asked = self._connection.execute(select(s.approval_requests).where(q.id == self._id(id))).one()
        a = s.activities.c
        activity = self._connection.execute(select(s.activities).where(a.id == asked.activity_id)).one()
        until = LATER if verdict == "approved" else None
        digested = [
            "memoflow-approval-1",
            *(asked.id, asked.namespace, activity.workflow_id, activity.run_id, activity.activity_id),
            *(asked.tool_namespace, asked.tool_name, asked.tool_version, asked.arguments_digest),
            *(asked.idempotency_key, asked.requester, verdict, "ann", "seen", False, NOW, until),
        ]
        text = json.dumps(digested, separators=(",", ":"))
        digest = f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
        decided = {"approver": "ann", "reason": "seen", "decided_at": NOW, "expires_at": until}
        own = {"namespace": asked.namespace, "requester": asked.requester, "binding_digest": digest}
        self.insert(s.approval_decisions, id=asked.id, verdict=verdict, **own, **decided)
        return digest

    def use(self, id: str, digest: str) -> None:
        """Begin what was allowed."""
        own = {"id": self._id(id), "namespace": self._namespace, "attempt": 1}
        self.insert(s.approval_uses, **own, binding_digest=digest, used_at=NOW)
        self._update(s.effects, id, state="STARTED", started_at=NOW)

    def extras(self, activity: str) -> None:
        """One row in each table that no balance depends on."""
        own = {"namespace": self._namespace, "activity_id": self._id(activity)}
        digests = {"request_digest": "sha256:q", "executors_digest": "sha256:x"}
        self.insert(
            s.turns, id=self._id("turn"), replay_key="k", api="responses", created_at=NOW, **own, **digests
        )
        self.insert(s.evidence, id=self._id("late"), attempt=1, subject_id="s", event="settle", at=NOW, **own)
        sealed = {"key_id": "k1", "nonce": b"n", "ciphertext": b"c"}
        row = {"namespace": self._namespace, "kind": "reply", "binding": "b", "created_at": NOW}
        self.insert(s.outputs, owner_id=self._id("kept"), **row, **sealed)
        self.insert(s.writers, id=self._id("writer"), batches=1, started_at=NOW)
        self._gateway()

    def _gateway(self) -> None:
        own = {"namespace": self._namespace, "account": "acme"}
        what = {"digest": "sha256:k", "name": "k", "hint": "abcd", "models": '["*"]', "endpoints": '["*"]'}
        key = self.insert(s.virtual_keys, id=self._id("key"), actor="test", created_at=NOW, **own, **what)
        who = {"namespace": self._namespace, "actor": "test", "reason": "lost", "at": NOW}
        self.insert(s.virtual_key_revocations, key_id=key, **who)
        made = {"response_digest": "sha256:r", "created_at": NOW}
        self.insert(s.reply_owners, invocation_id=self._id("held"), **own, **made)
        looked = {"mode": "shadow", "decision": "allow", "effect": "run", "record": "{}", "at": NOW}
        about = {"namespace": self._namespace, "invocation_id": self._id("held"), "ordinal": 1}
        self.insert(s.inspections, id=self._id("inspection"), **about, **looked)

    def post(
        self,
        id: str,
        event: str,
        account: str,
        *,
        settled: Amounts = ZERO,
        held: Amounts = ZERO,
        unknown: Amounts = ZERO,
    ) -> None:
        """Write a journal row on each balance of an account's branch, and move the balance."""
        for path in _branches(account):
            balance_id = self._balances[path]
            balance = self._connection.execute(select(s.balances).where(s.balances.c.id == balance_id)).one()
            version = 1 if event == "reserve" else 0
            entry = Entry(
                balance_id, balance.seq + 1, NOW, event, self._id(id), version, settled, held, unknown
            )
            digest = entry_hash(balance.head, entry)
            amounts = {"settled": settled, "held": held, "unknown": unknown}
            row: dict[str, Any] = {"hash": digest}
            sums: dict[str, Any] = {"seq": entry.seq, "head": digest}
            for kind, change in amounts.items():
                row |= s.amount_values(kind, change)
                sums |= s.amount_values(kind, s.read_amounts(balance, kind).plus(change))
            fixed = dict(zip(Entry._fields[:6], entry[:6], strict=True))
            self._connection.execute(insert(s.journal).values(**fixed, **row))
            self._connection.execute(update(s.balances).where(s.balances.c.id == balance_id).values(**sums))

    def _update(self, table: Table, id: str, **values: Any) -> None:
        self._connection.execute(update(table).where(table.c.id == self._id(id)).values(**values))

    def _id(self, id: str) -> str:
        # Ids are unique in a database, not in a namespace.
        return id if self._namespace == "default" else f"{self._namespace}:{id}"


def _branches(account: str) -> list[str]:
    links = set()
    for leaf in account.split("\n"):
        steps = leaf.split("/")
        links |= {"/".join(steps[: depth + 1]) for depth in range(len(steps))}
    return sorted(links)


def whole_ledger(connection: Connection, namespace: str = "default") -> Rows:
    """Every kind of row in every state, on two accounts one of which is in the other."""
    rows = Rows(connection, namespace)
    rows.account("acme", total_tokens=1000)
    rows.account("acme/support", total_tokens=500, cost=1_000_000)
    rows.activity("open")
    rows.activity("done", state="COMPLETED", attempts=("LOST", "FAILED", "COMPLETED"))
    rows.activity("free", state="FREE", attempts=("CANCELLED",))
    rows.call("held", "open", "acme/support")
    rows.call("settled", "done", "acme/support", attempt=3)
    rows.settle("settled", "acme/support")
    rows.call("released", "done", "acme", attempt=3)
    rows.release("released", "acme")
    rows.call("unknown", "done", "acme/support")
    rows.lose("unknown", "acme/support")
    rows.call("proven", "free", "acme/support")
    rows.lose("proven", "acme/support")
    rows.settle("proven", "acme/support", unknown=True, decision_id=rows.decide("d1", "proven", "settle"))
    rows.call("undone", "free", "acme")
    rows.lose("undone", "acme")
    rows.release("undone", "acme", unknown=True, decision_id=rows.decide("d2", "undone", "release"))
    rows.effect("e1", "settled", "done", "SUPERSEDED")
    rows.effect("e2", "settled", "done", "FAILED", execution=2, attempt=2)
    rows.effect("e3", "settled", "done", "DONE", execution=3, attempt=3)
    rows.effect("e4", "settled", "done", "OUTCOME_UNKNOWN", ordinal=1)
    happened = rows.decide("d3", "e5", "happened", kind="effect")
    rows.effect("e5", "settled", "done", "DONE", ordinal=2, decision_id=happened)
    rows.effect("e6", "held", "open", "STARTED")
    rows.activity("parked", state="FREE", attempts=("PARKED",))
    rows.call("waiting", "parked", "acme/support")
    rows.lose("waiting", "acme/support", state="SUCCEEDED", reason="USAGE_MISSING")
    rows.waits("a1", "waiting", "parked")
    rows.waits("a2", "waiting", "parked", ordinal=1)
    rows.use("a2", rows.judge("a2", "approved"))
    rows.waits("a3", "waiting", "parked", ordinal=2)
    rows.judge("a3", "denied")
    rows._update(s.effects, "a3", state="DENIED", reason="APPROVAL_DENIED", finished_at=NOW)
    rows.effect("a4", "waiting", "parked", "DENIED", ordinal=3, reason="JUDGED", judgement="[]")
    rows.waits("a5", "waiting", "parked", ordinal=4)
    rows.judge("a5", "approved")
    rows.account("acme/ops")
    rows.call("wide", "open", "acme/support\nacme/ops")
    rows.call("vague", "done", "acme/ops", attempt=3)
    rows.lose("vague", "acme/ops", state="SUCCEEDED", reason="USAGE_MISSING")
    rows.extras("open")
    return rows
