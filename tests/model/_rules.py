"""The steps of the random caller."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from memoflow.budget import DIMENSIONS, Amounts, Budget, Money
from memoflow.identity import ActivityIdentity, new_id
from memoflow.ledger.accounts import PutAccount, SetAccountState
from memoflow.ledger.activities import ClaimActivity, CompleteActivity, EndAttempt, ExtendLease, Fence
from memoflow.ledger.decisions import DecideInvocation
from memoflow.ledger.holdings import Ask
from memoflow.ledger.invocations import Binding, SettleInvocation, StartInvocation, TokenUse
from memoflow.ledger.outputs import OutputRow
from memoflow.ledger.transaction import Operation
from memoflow.ledger.unpriced import AllowUnpriced
from tests.model._machine import DAY, SECOND, Bench, Machine
from tests.model._model import Want

__all__ = ["rules_on"]

LEASE = 60 * SECOND
PATHS = ["a", "a/b", "a/b/c", "a/d", "e", "e/f"]
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe"]
PERIODS = ["none", "hour", "day", "week", "month"]
NAMES = ["one", "two", "three"]
OUTCOMES = {
    "settle": ("SUCCEEDED", "settle", None),
    "release": ("FAILED", "release", "PROVIDER_CALL_NOT_STARTED"),
    "unknown": ("OUTCOME_UNKNOWN", "unknown", "READ_TIMEOUT"),
    "no usage": ("SUCCEEDED", "unknown", "USAGE_MISSING"),
}

pick = st.integers(0, 10**6)
small = st.integers(0, 40)
limits = st.dictionaries(st.sampled_from(DIMENSIONS), st.integers(0, 60) | st.integers(60, 300), max_size=3)
currencies = st.sampled_from(["USD", "USD", "USD", "EUR"])
models = st.sampled_from(["m1", "m2"])
steps = st.sampled_from([1, SECOND, 30 * SECOND, LEASE, 3_600 * SECOND, DAY, 7 * DAY, 31 * DAY])


def money(values: dict[str, int], currency: str) -> Budget:
    """Limits as a caller gives them."""
    given: dict[str, Any] = dict(values)
    if "cost" in given:
        given["cost"] = Money(given["cost"], currency)
    return Budget(**given)


def rules_on(bench: Bench) -> type[Machine]:
    """The random caller of one database."""
    return type("LedgerRules", (_Rules,), {"bench": bench})


class _Rules(Machine):
    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.starts: list[StartInvocation] = []
        self.resolutions: list[tuple[str, str, int, str, tuple[int, ...]]] = []
        self.decisions: list[str] = []

    @initialize(
        seed=st.integers(0, 10**6),
        periods=st.tuples(*[st.sampled_from(PERIODS) for _ in PATHS]),
        zones=st.tuples(*[st.sampled_from(ZONES) for _ in PATHS]),
        hard=st.tuples(*[limits for _ in PATHS]),
        known=st.sets(st.sampled_from(PATHS)),
    )
    def there_are_accounts_and_activities(
        self,
        seed: int,
        periods: tuple[str, ...],
        zones: tuple[str, ...],
        hard: tuple[dict[str, int], ...],
        known: set[str],
    ) -> None:
        """Something to start with, and how the steps are going to be batched; seed 0: each alone."""
        for path, period, zone, limit in zip(PATHS, periods, zones, hard, strict=True):
            if path in known or path in ("a", "e"):
                self._put(path, limit, {}, "USD", period, zone)
        for name in NAMES[:2]:
            self._claim(name, "x")
        self.chance = random.Random(seed) if seed else None

    # The clock

    @rule(step=steps)
    def the_clock_goes_on(self, step: int) -> None:
        self.set_clock(self.model.now + step)

    @rule(step=steps)
    def the_clock_is_put_back(self, step: int) -> None:
        self.set_clock(self.model.now - step)

    @precondition(lambda self: self.model.accounts)
    @rule(which=pick, ahead=st.integers(-1, 1), end=st.booleans())
    def the_clock_comes_to_the_edge_of_a_period(self, which: int, ahead: int, end: bool) -> None:
        paths = sorted(self.model.accounts)
        (_, start), stop, _ = self.model.balance(paths[which % len(paths)])
        edge = stop if end and stop is not None else start
        if edge:
            self.set_clock(edge + ahead)

    # Accounts

    @rule(
        path=st.sampled_from(PATHS),
        hard=limits,
        soft=limits,
        currency=currencies,
        period=st.none() | st.sampled_from(PERIODS),
        zone=st.none() | st.sampled_from(ZONES),
    )
    def limits_are_set(
        self,
        path: str,
        hard: dict[str, int],
        soft: dict[str, int],
        currency: str,
        period: str | None,
        zone: str | None,
    ) -> None:
        self._put(path, hard, soft, currency, period, zone)

    def _put(
        self,
        path: str,
        hard: dict[str, int],
        soft: dict[str, int],
        currency: str,
        period: str | None,
        zone: str | None,
    ) -> None:
        soft = {name: min(limit, hard.get(name, limit)) for name, limit in soft.items()}
        operation = PutAccount(
            self.namespace, path, money(hard, currency), money(soft, currency), period, zone, "ann", "why"
        )
        counted = currency if "cost" in hard | soft else None
        self.do(operation, lambda model: model.put(path, hard, soft, counted, period, zone))

    @rule(path=st.sampled_from(PATHS), what=st.sampled_from(["CLOSED", "OPEN", "allow"]), model=models)
    def an_account_is_closed_or_opened_or_a_model_allowed(self, path: str, what: str, model: str) -> None:
        if what == "allow":
            self.do(AllowUnpriced(self.namespace, model, "ann", "why"), lambda own: own.allow(model))
        else:
            operation = SetAccountState(self.namespace, path, what, "ann", "why")
            self.do(operation, lambda own: own.set_open(path, what == "OPEN"))

    # Activities

    @rule(name=st.sampled_from(NAMES), digest=st.sampled_from(["x", "x", "x", "x", "y"]))
    def an_activity_is_claimed(self, name: str, digest: str) -> None:
        self._claim(name, digest)

    def _claim(self, name: str, digest: str) -> None:
        identity = ActivityIdentity(self.namespace, "workflow", "run", name, "type", "v1")
        operation = ClaimActivity(identity, digest, LEASE, "worker")
        self.do(operation, lambda model: model.claim(name, digest, LEASE))
        if name not in self.rows:
            # What follows needs the id of its row.
            self.flush()

    def _fence(self, which: int, back: int = 0) -> tuple[str, Fence]:
        """An activity and the fence of its last attempt, or of the one before."""
        names = sorted(self.rows)
        name = names[which % len(names)]
        attempt = max(1, self.model.activities[name].attempt - max(0, back - 7))
        return name, Fence(self.namespace, self.rows[name], attempt, name)

    @precondition(lambda self: self.rows)
    @rule(which=pick, back=st.integers(0, 8), lease=st.sampled_from([1, LEASE, 10 * LEASE]))
    def a_lease_is_extended(self, which: int, back: int, lease: int) -> None:
        name, fence = self._fence(which, back)
        self.do(ExtendLease(fence, lease), lambda model: model.extend(name, fence.attempt, lease))

    @precondition(lambda self: self.rows)
    @rule(
        which=pick,
        back=st.integers(0, 8),
        how=st.sampled_from(["FAILED", "CANCELLED", "COMPLETED"]),
        abandons=st.booleans(),
    )
    def an_attempt_ends(self, which: int, back: int, how: str, abandons: bool) -> None:
        name, fence = self._fence(which, back)
        operation: Operation[Any] = EndAttempt(fence, how, "Error", running=["a call"] * abandons)
        if how == "COMPLETED":
            # Whoever completes knows whether calls are still being made.
            abandons = any(c.activity == name and c.hold == "HELD" for c in self.model.calls.values())
            output = OutputRow(fence.activity_id, "output", "b", "k", b"n", b"c")
            operation = CompleteActivity(fence, "sha256:output", output, running=["a call"] * abandons)
        self.do(operation, lambda model: model.end(name, fence.attempt, how, abandons=abandons))

    @precondition(lambda self: self.rows and self.model.accounts)
    @rule(which=pick)
    def a_lease_runs_out_under_a_worker(self, which: int) -> None:
        """Two workers of one activity: the first comes too late; the second's call is not to be decided, and
        ends only once."""
        names = sorted(self.rows)
        name = names[which % len(names)]
        for _ in range(2):
            self._claim(name, "x")
        self.set_clock(self.model.now + LEASE + 1)
        self._claim(name, "x")
        for back in (8, 0):
            self._start_new(which, back, ["a"], Ask((0,) * len(DIMENSIONS), "USD", "m1"), None, "r1")
        self._decide(new_id(), self.ids[-1], "release", None)
        for how in ("settle", "release"):
            self._resolve(name, self.ids[-1], self.model.activities[name].attempt, how, (1,) * 5)

    # Calls

    @precondition(lambda self: self.rows)
    @rule(
        which=pick,
        back=st.integers(0, 8),
        paths=st.sets(st.integers(0, 12), min_size=1, max_size=3),
        amounts=st.tuples(*[small for _ in DIMENSIONS]),
        open_ended=st.sets(st.sampled_from(range(len(DIMENSIONS))), max_size=2),
        price=st.sampled_from(["USD", "USD", "USD", "EUR", None]),
        model=models,
        key=st.sampled_from([None, None, "k1", "k2"]),
        digest=st.sampled_from(["r1", "r1", "r1", "r2"]),
    )
    def a_call_is_started(
        self,
        which: int,
        back: int,
        paths: set[int],
        amounts: tuple[int, ...],
        open_ended: set[int],
        price: str | None,
        model: str,
        key: str | None,
        digest: str,
    ) -> None:
        if price is None:
            open_ended = open_ended | {DIMENSIONS.index("cost")}
        wanted = tuple(None if i in open_ended else amount for i, amount in enumerate(amounts))
        # Mostly accounts that there are; now and then one that may be missing.
        there = sorted(self.model.accounts) * 2 + [*PATHS, "nowhere"]
        chosen = sorted({there[path % len(there)] for path in paths})
        self._start_new(which, back, chosen, Ask(wanted, price, model), key, digest)

    @precondition(lambda self: self.rows and self.model.accounts)
    @rule(
        which=pick,
        paths=st.sets(pick, min_size=1, max_size=2),
        amounts=st.tuples(*[st.integers(0, 15) for _ in DIMENSIONS]),
    )
    def a_small_call_is_started(self, which: int, paths: set[int], amounts: tuple[int, ...]) -> None:
        there = sorted(self.model.accounts)
        chosen = sorted({there[path % len(there)] for path in paths})
        self._start_new(which, 0, chosen, Ask(amounts, "USD", "m1"), None, "r1")

    def _start_new(
        self, which: int, back: int, paths: list[str], ask: Ask, key: str | None, digest: str
    ) -> None:
        operation = StartInvocation(
            fence=self._fence(which, back)[1],
            id=new_id(),
            accounts=tuple(paths),
            ask=ask,
            binding=None if key is None else Binding(new_id(), key, "api", digest, "executors"),
            round=0,
            provider="provider",
            api="api",
            model=ask.model,
            request_digest=digest,
            input_basis="bound",
            input_measured=1,
            output_cap=None,
            price_version=None,
            metadata=None,
        )
        self.ids.append(operation.id)
        self.starts.append(operation)
        self._start(operation)

    def _start(self, operation: StartInvocation) -> None:
        fence, ask, binding = operation.fence, operation.ask, operation.binding
        want = Want(ask.amounts, ask.currency, ask.model)
        key = None if binding is None else binding.replay_key
        self.do(
            operation,
            lambda model: model.start(
                operation.id,
                fence.label,
                fence.attempt,
                operation.accounts,
                want,
                key,
                operation.request_digest,
            ),
        )

    @precondition(lambda self: self.starts)
    @rule(which=pick)
    def a_start_is_submitted_again(self, which: int) -> None:
        self._start(self.starts[-1 - which % min(4, len(self.starts))])

    @precondition(lambda self: self.model.calls)
    @rule(
        which=pick,
        how=st.sampled_from(["settle", "settle", "settle", "release", "unknown", "no usage"]),
        used=st.tuples(*[small for _ in range(5)]),
        stranger=st.integers(0, 12),
    )
    def a_call_is_resolved(self, which: int, how: str, used: tuple[int, ...], stranger: int) -> None:
        held = [id for id, call in self.model.calls.items() if call.hold == "HELD"]
        ids = held if held and stranger > 2 else self.ids
        id = ids[which % len(ids)]
        call = self.model.calls.get(id)
        name, fence = self._fence(which)
        attempt = fence.attempt
        if call is not None and stranger:
            name, attempt = call.activity, call.attempt
        self.resolutions.append((name, id, attempt, how, used))
        self._resolve(*self.resolutions[-1])

    @precondition(lambda self: any(call.hold == "HELD" for call in self.model.calls.values()))
    @rule(which=pick, used=st.tuples(*[small for _ in range(5)]), how=st.sampled_from(["settle", "unknown"]))
    def a_call_ends(self, which: int, used: tuple[int, ...], how: str) -> None:
        held = [(id, call) for id, call in self.model.calls.items() if call.hold == "HELD"]
        id, call = held[which % len(held)]
        self.resolutions.append((call.activity, id, call.attempt, how, used))
        self._resolve(*self.resolutions[-1])

    @precondition(lambda self: self.resolutions)
    @rule(which=pick)
    def a_call_is_resolved_again(self, which: int) -> None:
        self._resolve(*self.resolutions[-1 - which % min(4, len(self.resolutions))])

    def _resolve(self, name: str, id: str, attempt: int, how: str, used: tuple[int, ...]) -> None:
        tokens_in, tokens_out, tools, cost, wall = used
        state, resolution, reason = OUTCOMES[how]
        settled = how == "settle"
        operation = SettleInvocation(
            Fence(self.namespace, self.rows[name], attempt, name),
            id,
            state,
            resolution,
            reason,
            usage=TokenUse(tokens_in, 0, 0, tokens_out, 0, cost) if settled else None,
            actual=Amounts(tokens_in + tokens_out, tokens_in, tokens_out, 1, tools, cost, wall)
            if settled
            else Amounts(),
        )
        self.do(
            operation,
            lambda model: model.settle(id, name, attempt, state, resolution, reason, operation.actual),
        )

    # Decisions

    @precondition(lambda self: self.ids)
    @rule(
        which=pick,
        verdict=st.sampled_from(["settle", "release"]),
        usage=st.none() | st.tuples(small, small),
        again=st.integers(0, 4),
    )
    def an_unknown_is_decided(
        self, which: int, verdict: str, usage: tuple[int, int] | None, again: int
    ) -> None:
        kinds = ("RECONCILE",) if again > 1 else ("HELD", "RECONCILE")
        undecided = [id for id, call in self.model.calls.items() if call.hold in kinds]
        ids = undecided if undecided and again else self.ids
        id = ids[which % len(ids)]
        decision = new_id()
        if self.decisions and again == 1:
            decision = self.decisions[which % len(self.decisions)]
        self.decisions.append(decision)
        self._decide(decision, id, verdict, usage)

    def _decide(self, decision: str, id: str, verdict: str, usage: tuple[int, int] | None) -> None:
        said = None if usage is None else Budget(input_tokens=usage[0], output_tokens=usage[1])
        operation = DecideInvocation(
            decision,
            self.namespace,
            id,
            verdict,  # type: ignore[arg-type]
            "ann",
            "why",
            usage=said if verdict == "settle" else None,
            evidence_digest="sha256:proof",
        )
        self.do(operation, lambda model: model.decide(decision, id, verdict, usage))
