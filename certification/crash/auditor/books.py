"""Journal, balances, limits and reservations: money alone, without the world outside."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby, pairwise

from certification.crash.auditor.tables import DIMENSIONS, Row, Tables, amounts, with_ancestors
from certification.crash.auditor.violation import Violation

__all__ = ["audit_books", "chain_hash"]

KINDS = ("settled", "held", "unknown")
NOTHING = (0,) * len(DIMENSIONS)
Figures = tuple[int, ...]
Leg = tuple[tuple[str, Figures, Figures, Figures], ...]
"""What one reservation did to one balance: its events in order, with what they changed."""

STATES = {
    "STARTED": {"HELD"},
    "SUCCEEDED": {"SETTLED", "RECONCILE"},
    "FAILED": {"SETTLED", "RELEASED", "RECONCILE"},
    "CANCELLED": {"SETTLED", "RELEASED", "RECONCILE"},
    "OUTCOME_UNKNOWN": {"RECONCILE"},
}
"""The states a reservation may have, by that of its invocation."""

ENDS = {"HELD": (), "RECONCILE": ("unknown",), "SETTLED": ("settle",), "RELEASED": ("release",)}


def chain_hash(before: str, row: Row) -> str:
    """The hash of a journal row: every field that has a meaning, in order, apart by unit separators."""
    fields = [before, row["balance_id"], row["seq"], row["at"], row["event"], row["reservation_id"]]
    fields.append(row["policy_version"])
    for kind in KINDS:
        fields.extend(row[f"{kind}_{name}"] for name in DIMENSIONS)
    return hashlib.sha256("\x1f".join(str(field) for field in fields).encode()).hexdigest()


def audit_books(tables: Tables) -> Iterator[Violation]:
    """Recompute every balance from its journal, and hold every reservation against it."""
    policies = {(row["account_id"], row["version"]): row for row in tables.rows("SELECT * FROM policies")}
    query = "SELECT b.*, a.path FROM balances b JOIN accounts a ON a.id = b.account_id"
    balances = {row["id"]: row for row in tables.rows(query)}
    legs: dict[str, dict[str, Leg]] = defaultdict(dict)
    journal = tables.rows("SELECT * FROM journal ORDER BY balance_id, seq")
    for balance_id, entries in groupby(journal, lambda row: row["balance_id"]):
        balance = balances.pop(balance_id)
        yield from _audit_balance(balance, list(entries), policies, legs)
    for untouched in balances.values():
        yield from _audit_balance(untouched, [], policies, legs)
    yield from _audit_reservations(tables, legs)


def _audit_balance(
    balance: Row,
    entries: list[Row],
    policies: dict[tuple[int, int], Row],
    legs: dict[str, dict[str, Leg]],
) -> Iterator[Violation]:
    name = f"{balance['path']}@{balance['period_start']}"
    head = "0" * 64
    sums = dict.fromkeys(KINDS, NOTHING)
    for number, row in enumerate(entries, 1):
        subject = f"{name}#{row['seq']}"
        if row["seq"] != number:
            yield Violation("JOURNAL_GAP", subject, f"row {number} of the journal has seq {row['seq']}")
        if row["hash"] != chain_hash(head, row):
            yield Violation("CHAIN_BROKEN", subject, "the hash does not follow from the row before it")
        head = row["hash"]
        for kind in KINDS:
            sums[kind] = _plus(sums[kind], amounts(row, kind))
            if min(sums[kind]) < 0:
                yield Violation("NEGATIVE", subject, f"{kind} falls to {sums[kind]}")
        if row["event"] == "reserve":
            policy = policies.get((balance["account_id"], row["policy_version"]))
            yield from _audit_limit(subject, policy, sums)
        leg = legs[row["reservation_id"]]
        changed = (row["event"], *[amounts(row, kind) for kind in KINDS])
        leg[balance["path"]] = (*leg.get(balance["path"], ()), changed)
    recorded = {kind: amounts(balance, kind) for kind in KINDS}
    if recorded != sums:
        yield Violation("BALANCE_DIFFERS", name, f"it says {recorded}, its journal adds up to {sums}")
    if (balance["seq"], balance["head"]) != (len(entries), head):
        yield Violation("HEAD_DIFFERS", name, f"its seq is {balance['seq']}, its journal has {len(entries)}")


def _audit_limit(subject: str, policy: Row | None, sums: dict[str, Figures]) -> Iterator[Violation]:
    if policy is None:
        yield Violation("POLICY_MISSING", subject, "reserved under limits that do not exist")
        return
    used = _plus(_plus(sums["settled"], sums["held"]), sums["unknown"])
    for name, amount in zip(DIMENSIONS, used, strict=True):
        hard = policy[f"hard_{name}"]
        if hard is not None and amount > hard:
            yield Violation("LIMIT_EXCEEDED", subject, f"{name} comes to {amount}, the limit is {hard}")


def _audit_reservations(tables: Tables, legs: dict[str, dict[str, Leg]]) -> Iterator[Violation]:
    query = """
        SELECT r.*, i.state AS invocation_state FROM reservations r
        LEFT JOIN invocations i ON i.id = r.id
    """
    for row in tables.rows(query):
        yield from _audit_reservation(row, legs.pop(row["id"], {}))
    for id in legs:
        yield Violation("RESERVATION_MISSING", id, "it is in the journal and has no row")
    orphans = "SELECT id FROM invocations WHERE id NOT IN (SELECT id FROM reservations)"
    for row in tables.rows(orphans):
        yield Violation("RESERVATION_MISSING", row["id"], "this invocation holds nothing")


def _audit_reservation(row: Row, legs: dict[str, Leg]) -> Iterator[Violation]:
    state, id = row["state"], row["id"]
    if state not in STATES.get(row["invocation_state"], ()):
        yield Violation("STATES_DIFFER", id, f"invocation {row['invocation_state']}, reservation {state}")
    charged = {path for leaf in row["account"].split("\n") for path in with_ancestors(leaf)}
    if legs.keys() != charged:
        yield Violation("LEGS_DIFFER", id, f"charged {sorted(charged)}, the journal has {sorted(legs)}")
    for path, leg in legs.items():
        wanted = _leg(row, via_unknown=any(event == "unknown" for event, *_ in leg))
        if leg != wanted:
            yield Violation("LEG_WRONG", f"{id} on {path}", f"it is {state}, so {wanted}, but has {leg}")
    for (one, leg), (other, next_leg) in pairwise(legs.items()):
        if leg != next_leg:
            yield Violation("LEG_WRONG", id, f"{one} and {other} were not changed alike")


def _leg(row: Row, *, via_unknown: bool) -> Leg:
    """What a reservation must have done to each of its balances."""
    reserved, actual = amounts(row, "reserved"), amounts(row, "actual")
    back = tuple(-amount for amount in reserved)
    leg: Leg = (("reserve", NOTHING, reserved, NOTHING),)
    if via_unknown:
        leg = (*leg, ("unknown", NOTHING, back, reserved))
    gone = (NOTHING, back) if via_unknown else (back, NOTHING)
    for event in ENDS[row["state"]]:
        if event != "unknown":
            leg = (*leg, (event, actual if event == "settle" else NOTHING, *gone))
        elif not via_unknown:
            leg = (*leg, ("unknown", NOTHING, back, reserved))
    return leg


def _plus(one: Figures, other: Figures) -> Figures:
    return tuple(a + b for a, b in zip(one, other, strict=True))
