"""What the ledger's rules say, in the plainest words: dictionaries, loops and integers.

Written from the rules alone. It shares nothing with the ledger but the values that are public
(`Amounts`, and the names of dimensions); it even has calendars of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from memoflow.budget import DIMENSIONS, Amounts
from tests.model._records import (
    NOTHING,
    Account,
    Activity,
    Allowed,
    Call,
    Decided,
    Figures,
    Outcome,
    Refused,
    Sums,
    Want,
)
from tests.model._windows import window_of

__all__ = ["Account", "Activity", "Allowed", "Call", "Model", "Outcome", "Refused", "Sums", "Want"]


class Model:
    """A whole ledger of one namespace."""

    def __init__(self, now: int) -> None:
        self.now = now
        self.accounts: dict[str, Account] = {}
        self.sums: dict[tuple[str, int], Sums] = {}
        self.activities: dict[str, Activity] = {}
        self.calls: dict[str, Call] = {}
        self.decisions: dict[str, Decided] = {}
        self.unpriced: set[str] = set()
        self.evidence = 0

    # Accounts

    def put(
        self,
        path: str,
        hard: dict[str, int],
        soft: dict[str, int],
        currency: str | None,
        period: str | None,
        zone: str | None,
    ) -> Outcome:
        """Create an account or replace its limits."""
        account = self.accounts.get(path)
        if account is None:
            for above in list(branch(path))[:-1]:
                if above not in self.accounts:
                    return Refused.because("BudgetNotConfigured", above)
        elif (period or account.period, zone or account.zone) != (account.period, account.zone):
            return Refused.because("InvalidBudget")
        tree = path.split("/")[0]
        counted = {a.currency for p, a in self.accounts.items() if p.split("/")[0] == tree} - {None}
        if currency is not None and counted - {currency}:
            return Refused.because("InvalidBudget")
        if account is None:
            account = Account(period or "none", zone or "UTC", currency, hard, soft)
            self.accounts[path] = account
        elif (account.hard, account.soft) != (hard, soft):
            account.hard, account.soft = hard, soft
            account.currency = account.currency or currency
            account.version += 1
        return Allowed((account.version, account.open))

    def set_open(self, path: str, open: bool) -> Outcome:
        """Close an account, or open it again."""
        account = self.accounts.get(path)
        if account is None:
            return Refused.because("BudgetNotConfigured", path)
        if account.open != open:
            account.open = open
            account.version += 1
        return Allowed((account.version, account.open))

    def balance(self, path: str) -> tuple[tuple[str, int], int | None, Sums]:
        """The account's key in the current period, that period's end, and the sums."""
        account = self.accounts[path]
        start, end = window_of(account.period, account.zone, self.now)
        return (path, start), end, self.sums.setdefault((path, start), Sums())

    def end_of(self, path: str, start: int) -> int | None:
        """When a period of an account ends."""
        return window_of(self.accounts[path].period, self.accounts[path].zone, start)[1]

    # Activities

    def claim(self, name: str, digest: str, lease: int) -> Outcome:
        """Become the next attempt."""
        activity = self.activities.get(name)
        if activity is None:
            self.activities[name] = Activity(digest, self.now + lease)
            return Allowed((1, False, self.now + lease))
        if activity.digest != digest:
            return Refused.because("ActivityMismatch", "input", activity.digest, digest)
        if activity.state == "COMPLETED":
            return Allowed((activity.attempt, True, activity.lease_ends))
        if activity.state == "RUNNING" and self.now < activity.lease_ends:
            return Refused.because("ActivityBusy", activity.attempt, activity.lease_ends)
        self._lose(name)
        activity.state, activity.lease_ends = "RUNNING", self.now + lease
        activity.attempts.append("RUNNING")
        return Allowed((activity.attempt, False, activity.lease_ends))

    def _lose(self, name: str) -> None:
        """Nobody may write for this activity any more: what is open becomes unknown."""
        activity = self.activities[name]
        if activity.state == "RUNNING":
            activity.attempts[-1] = "LOST"
            activity.state = "FREE"
        self._abandon(name)

    def _abandon(self, name: str) -> None:
        for id, call in self.calls.items():
            if call.activity == name and call.hold == "HELD":
                self._resolve(id, "unknown", NOTHING)
                call.state, call.reason = "OUTCOME_UNKNOWN", "ATTEMPT_LOST"

    def _stale(self, name: str, attempt: int) -> Refused | None:
        activity = self.activities[name]
        if activity.state == "RUNNING" and attempt == activity.attempt:
            return None
        self.evidence += 1
        current = None if attempt == activity.attempt else activity.attempt
        return Refused.because("LeaseLost", attempt, current)

    def extend(self, name: str, attempt: int, lease: int) -> Outcome:
        """Push the end of a lease out."""
        activity = self.activities[name]
        if attempt == activity.attempt and activity.state != "RUNNING":
            return Refused.because("LeaseLost", attempt, None)
        if refused := self._stale(name, attempt):
            return refused
        activity.lease_ends = max(activity.lease_ends, self.now + lease)
        return Allowed(activity.lease_ends)

    def end(self, name: str, attempt: int, state: str, *, abandons: bool) -> Outcome:
        """End an attempt: COMPLETED for good, otherwise the activity is free."""
        if refused := self._stale(name, attempt):
            return refused
        if abandons:
            self._abandon(name)
        activity = self.activities[name]
        activity.attempts[-1] = state
        activity.state = "COMPLETED" if state == "COMPLETED" else "FREE"
        return Allowed()

    # Calls

    def start(
        self, id: str, name: str, attempt: int, paths: Iterable[str], want: Want, key: str | None, digest: str
    ) -> Outcome:
        """Reserve and start. The value is the set of soft limits gone over."""
        if refused := self._stale(name, attempt):
            return refused
        if id in self.calls:
            return Allowed(frozenset())
        keys = self.activities[name].keys
        if key is not None and keys.get(key, digest) != digest:
            return Refused.because("ReplayMismatch", key, "request", keys[key], digest)
        links = sorted({link for path in paths for link in branch(path)})
        if refusals := list(self._refusals(links, want)):
            return Refused(frozenset(self._with_cap(refusal, links, want) for refusal in refusals))
        alerts = frozenset(self._alerts(links, want))
        if key is not None:
            keys[key] = digest
        reserved = Amounts(*[amount or 0 for amount in want.amounts])
        legs = []
        for link in links:
            leg, _, sums = self.balance(link)
            sums.held = sums.held.plus(reserved)
            sums.entries += 1
            legs.append(leg)
        self.calls[id] = Call(name, attempt, key, legs, reserved)
        return Allowed(alerts)

    def _refusals(self, links: list[str], want: Want) -> Iterator[Figures]:
        for link in links:
            account = self.accounts.get(link)
            if account is None:
                yield "BudgetNotConfigured", link
                continue
            if None not in (account.currency, want.currency) and account.currency != want.currency:
                yield ("InvalidBudget",)
            if not account.open:
                yield "BudgetDenied", link, "closed"
            for dimension, amount in zip(DIMENSIONS, want.amounts, strict=True):
                if dimension in account.hard:
                    yield from self._refusals_in(links, link, dimension, amount, want)

    def _refusals_in(
        self, links: list[str], link: str, dimension: str, amount: int | None, want: Want
    ) -> Iterator[Figures]:
        if amount is None:
            if dimension != "cost" or want.currency is not None:
                yield "BudgetUnbounded", link, dimension
                return
            if want.model not in self.unpriced:
                yield "PriceUnknown", link, want.model
                return
        _, ends, sums = self.balance(link)
        limit = self.accounts[link].hard[dimension]
        parts = [getattr(kind, dimension) for kind in (sums.settled, sums.held, sums.unknown)]
        if sum(parts) + (amount or 0) > limit:
            reason = "over_limit" if sum(parts) > limit else "limit"
            yield "BudgetDenied", link, reason, dimension, limit, *parts, amount or 0, ends

    def _with_cap(self, refusal: Figures, links: list[str], want: Want) -> Figures:
        if refusal[0] != "BudgetDenied" or refusal[2] == "closed":
            return refusal
        of_output = refusal[3] in ("total_tokens", "output_tokens")
        return *refusal, self._output_that_fits(links, want) if of_output else None

    def _output_that_fits(self, links: list[str], want: Want) -> int | None:
        """The largest output beside this input that no account refuses; what else is wanted stays."""
        total, tokens_in, tokens_out, *others = want.amounts
        if tokens_in is None:
            return None
        for cap in range(1, max(total or 0, tokens_out or 0) + 1):
            amounts = (tokens_in + cap, tokens_in, cap, *others)
            if any(self._refusals(links, Want(amounts, want.currency, want.model))):
                return cap - 1
        return max(total or 0, tokens_out or 0)

    def _used(self, link: str) -> Amounts:
        sums = self.balance(link)[2]
        return sums.settled.plus(sums.held).plus(sums.unknown)

    def _alerts(self, links: list[str], want: Want) -> Iterator[Figures]:
        for link in links:
            for dimension, amount in zip(DIMENSIONS, want.amounts, strict=True):
                limit = self.accounts[link].soft.get(dimension)
                used = getattr(self._used(link), dimension) + (amount or 0)
                if limit is not None and used > limit:
                    yield link, dimension, limit, used

    def settle(
        self, id: str, name: str, attempt: int, state: str, how: str, reason: str | None, actual: Amounts
    ) -> Outcome:
        """End a call: ``settle`` by usage, ``release``, or keep as ``unknown``."""
        if refused := self._stale(name, attempt):
            return refused
        wanted = {"settle": "SETTLED", "release": "RELEASED", "unknown": "RECONCILE"}[how]
        call = self.calls.get(id)
        if call is None or call.activity != name:
            return Refused.because("ReservationConflict", id, "missing")
        if call.hold != "HELD":
            if call.hold == wanted and (how != "settle" or call.actual == actual):
                return Allowed()
            return Refused.because("ReservationConflict", id, call.hold)
        self._resolve(id, how, actual)
        call.state, call.reason = state, reason
        return Allowed()

    def _resolve(self, id: str, how: str, actual: Amounts) -> None:
        """Replace a hold, in the periods that reserved it, by usage, by nothing, or by an unknown."""
        call = self.calls[id]
        for leg in call.legs:
            sums = self.sums[leg]
            if call.hold == "HELD":
                sums.held = sums.held.minus(call.reserved)
            else:
                sums.unknown = sums.unknown.minus(call.reserved)
            if how == "settle":
                sums.settled = sums.settled.plus(actual)
            elif how == "unknown":
                sums.unknown = sums.unknown.plus(call.reserved)
            sums.entries += 1
        call.hold = {"settle": "SETTLED", "release": "RELEASED", "unknown": "RECONCILE"}[how]
        call.actual = actual if how == "settle" else None

    # Decisions

    def decide(self, decision: str, id: str, verdict: str, usage: tuple[int, int] | None) -> Outcome:
        """Settle or release an unknown. The value is the id of the decision that stands."""
        call = self.calls.get(id)
        if call is None:
            return Refused.because("NotFound", id)
        actual = charged(call, usage) if verdict == "settle" else None
        made = Decided(id, verdict, actual)
        if decision in self.decisions:
            if self.decisions[decision] == made:
                return Allowed(decision)
            return Refused.because("ReservationConflict", decision, None)
        if call.hold in ("SETTLED", "RELEASED"):
            if call.decision is not None and self.decisions[call.decision] == made:
                return Allowed(call.decision)
            return Refused.because("ReservationConflict", id, call.hold)
        activity = self.activities[call.activity]
        if call.hold == "HELD":
            if activity.state == "RUNNING" and self.now < activity.lease_ends:
                return Refused.because("ActivityBusy", activity.attempt, activity.lease_ends)
            self._lose(call.activity)
        if call.state != "OUTCOME_UNKNOWN" and verdict == "release":
            return Refused.because("ReservationConflict", id, None)
        self._resolve(id, verdict, actual or NOTHING)
        self.decisions[decision] = made
        call.decision = decision
        if call.state == "OUTCOME_UNKNOWN":
            call.state = "FAILED" if verdict == "settle" else "CANCELLED"
            call.reason = "DECIDED_SPENT" if verdict == "settle" else "NOT_PERFORMED"
        return Allowed(decision)

    def allow(self, model: str) -> Outcome:
        """Let a model without a price be called."""
        self.unpriced.add(model)
        return Allowed()


def charged(call: Call, usage: tuple[int, int] | None) -> Amounts:
    """What a decision charges: as reserved where nothing is said. An invocation is one model call."""
    amounts = call.reserved._replace(model_calls=1)
    if usage is None:
        return amounts
    tokens_in, tokens_out = usage
    return amounts._replace(
        total_tokens=tokens_in + tokens_out, input_tokens=tokens_in, output_tokens=tokens_out
    )


def branch(path: str) -> Iterator[str]:
    """A path and all above it, root first."""
    parts = path.split("/")
    for depth in range(len(parts)):
        yield "/".join(parts[: depth + 1])
