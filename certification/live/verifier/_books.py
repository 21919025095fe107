"""Books: every balance is the sum of its journal, its hash chain, and the calls that it paid for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from certification.live.boundaries import ACCOUNT, BOUNDARIES, Ending
from certification.live.evidence import Balance, Call, Entry, Evidence
from memoflow import budget
from memoflow.budget import DIMENSIONS
from memoflow.ledger import journal

__all__ = ["book_findings"]

_NONE: Final = budget.Amounts()
_KINDS: Final = ("settled", "held", "unknown")


class Posting(NamedTuple):
    """A call, how it must end, and how long its case took in all (milliseconds)."""

    call: Call
    ending: Ending
    duration_ms: int


def book_findings(evidence: Evidence) -> list[str]:
    """What does not hold for the balances, given cases that are in order."""
    names = [balance.account for balance in evidence.balances]
    wanted = [ACCOUNT, *(boundary.account for boundary in BOUNDARIES)]
    if names != wanted:
        return [f"The accounts are {', '.join(names) or 'none'}; a run has {', '.join(wanted)}."]
    found = []
    for balance in evidence.balances:
        found += [f"Account {balance.account}: {text}" for text in _balance(evidence, balance)]
    if len({balance.id for balance in evidence.balances}) < len(wanted):
        found.append("Two accounts have one balance.")
    found += _tree(evidence.balances)
    return found


def _balance(evidence: Evidence, balance: Balance) -> Iterator[str]:
    yield from _chain(balance)
    yield from _equation(balance)
    postings = list(_postings(evidence, balance.account))
    yield from _limits(balance, postings)
    rows = [(row.event, row.reservation) for row in balance.journal]
    wanted = [(event, p.call.id) for p in postings for event in ("reserve", p.ending.event)]
    if rows != wanted:
        yield f"its journal does not say {', '.join(event for event, _ in wanted)}, of its calls in order."
        return
    for number, posting in enumerate(postings):
        yield from _posted(posting, *balance.journal[2 * number : 2 * number + 2])


def _postings(evidence: Evidence, account: str) -> Iterator[Posting]:
    """The calls that an account paid for, in order."""
    for boundary, case in zip(BOUNDARIES, evidence.cases, strict=True):
        if account in (ACCOUNT, boundary.account):
            for call, ending in zip(case.calls, boundary.endings, strict=True):
                yield Posting(call, ending, case.duration_ms)


def _chain(balance: Balance) -> Iterator[str]:
    """The hash chain from its beginning to the head; each row is hashed with all that it says."""
    head = journal.GENESIS
    for number, row in enumerate(balance.journal, 1):
        if row.seq != number:
            yield f"journal row {number} has the number {row.seq}."
        head = journal.entry_hash(head, _hashed(balance.id, row))
    if head != balance.head:
        yield f"the head is {balance.head}; the chain of its journal leads to {head}."


def _hashed(balance_id: int, row: Entry) -> journal.Entry:
    return journal.Entry(
        balance_id,
        row.seq,
        row.at,
        row.event,
        row.reservation,
        row.policy_version,
        row.settled.plain(),
        row.held.plain(),
        row.unknown.plain(),
    )


def _equation(balance: Balance) -> Iterator[str]:
    """settled + held + unknown <= limit at every reservation, and the sums are those of the journal."""
    sums = dict.fromkeys(_KINDS, _NONE)
    limits = balance.limits.model_dump()
    for row in balance.journal:
        sums = {kind: sums[kind].plus(getattr(row, kind).plain()) for kind in _KINDS}
        used = sums["settled"].plus(sums["held"]).plus(sums["unknown"])
        for name, limit in limits.items():
            if getattr(used, name) > limit:
                yield f"journal row {row.seq} brought it to {getattr(used, name)} {name} of {limit}."
    for kind in _KINDS:
        recorded = getattr(balance, kind).plain()
        yield from _differences(kind, recorded, sums[kind], "its journal says")
    if any(balance.held.plain()):
        yield "something is still held; a run that is over holds nothing."


def _differences(what: str, found: budget.Amounts, wanted: budget.Amounts, why: str) -> Iterator[str]:
    for name, one, other in zip(DIMENSIONS, found, wanted, strict=True):
        if one != other:
            yield f"{what} {name} is {one}; {why} {other}."


def _limits(balance: Balance, postings: Sequence[Posting]) -> Iterator[str]:
    """The limits are what the calls of the account reserve together: not one call more was admitted."""
    if balance.limits.model_calls != len(postings):
        yield f"it allows {balance.limits.model_calls} model calls; the boundaries have {len(postings)}."
    reserved = sum(posting.call.reserved.total_tokens for posting in postings)
    if balance.limits.total_tokens != reserved:
        yield f"it allows {balance.limits.total_tokens} tokens; its calls reserved {reserved}."


def _posted(posting: Posting, reserve: Entry, end: Entry) -> Iterator[str]:
    """What two rows of a journal say about one call."""
    reserved, call = posting.call.reserved.plain(), posting.call
    settles = posting.ending.event == "settle"
    wanted = (
        ("settled", _NONE, _spent(posting, end) if settles else _NONE),
        ("held", reserved, reserved.negated()),
        ("unknown", _NONE, _NONE if settles else reserved),
    )
    for kind, at_first, in_the_end in wanted:
        for row, amounts in ((reserve, at_first), (end, in_the_end)):
            what = f"journal row {row.seq} ({row.event} of {call.id}): {kind}"
            yield from _differences(what, getattr(row, kind).plain(), amounts, "by the call it is")
    if (reserve.policy_version, end.policy_version) != (1, 0):
        yield f"{call.id} was not admitted under the limits that were set first."
    if not 0 <= end.settled.wall_clock_ms <= posting.duration_ms:
        yield f"{call.id} took {end.settled.wall_clock_ms} ms; its case took {posting.duration_ms}."


def _spent(posting: Posting, end: Entry) -> budget.Amounts:
    """What a settled call must have been charged. How long it took is known from the journal alone."""
    usage = posting.call.usage
    if usage is None:
        return _NONE
    return budget.Amounts(
        total_tokens=usage.input_tokens + usage.output_tokens,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        model_calls=1,
        tool_calls=posting.ending.effects,
        wall_clock_ms=end.settled.wall_clock_ms,
    )


def _tree(balances: Sequence[Balance]) -> Iterator[str]:
    """The account of the run has what those below it have together."""
    root, *below = balances
    for kind in _KINDS:
        total = _NONE
        for balance in below:
            total = total.plus(getattr(balance, kind).plain())
        recorded = getattr(root, kind).plain()
        yield from _differences(f"Account {root.account}: {kind}", recorded, total, "those below it have")
