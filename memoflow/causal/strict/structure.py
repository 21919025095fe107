"""Rules about the log itself: ids, causes, times, roots and permissions."""

from __future__ import annotations

from typing import Final

from memoflow.causal.codes import Code
from memoflow.causal.strict.case import Case
from memoflow.causal.strict.index import NOWHERE
from memoflow.causal.strict.rules import fits_any

__all__ = ["check_structure"]

GAP: Final = "unobserved_parent"


def check_structure(case: Case) -> None:
    """Everything that is wrong with where a record stands."""
    _id(case)
    _causes(case)
    _times(case)
    if case.record.parent_cause is None:
        _beginning(case)
    else:
        _permission(case)
    _ancestors(case)


def _id(case: Case) -> None:
    if case.record.id in case.index.positions:
        case.found(Code.DUPLICATE_ID, f"A record with the id {case.record.id!r} is in the log already.")


def _causes(case: Case) -> None:
    record = case.record
    if record.id in (record.parent_cause, *record.joins):
        case.found(Code.CYCLE, f"The record {record.id!r} names itself as its cause.")
    for cause in case.node.missing:
        if cause != record.id:
            case.found(Code.CAUSE_NOT_BEFORE, f"The cause {cause!r} is not in the log before it.")


def _times(case: Case) -> None:
    for cause in case.causes:
        if case.node.timestamp < case.index.timestamps[cause]:
            name = case.index.ids[cause]
            case.found(Code.TIME_INVERSION, f"It is earlier than its cause {name!r}.", name)


def _beginning(case: Case) -> None:
    """What has no parent is a trusted root or a marked gap."""
    record, rules = case.record, case.rules
    permitted = record.permitted_by
    if permitted == GAP:
        case.found(Code.MARKED_GAP, "It was not observed what caused it.")
    elif not isinstance(permitted, str) or not permitted.startswith(rules.root_prefix):
        case.found(
            Code.NO_CAUSE,
            f"It has no parent, and is neither a root ({rules.root_prefix}…) nor a gap ({GAP}).",
        )
    elif not fits_any(permitted, rules.roots):
        case.found(Code.UNTRUSTED_ROOT, f"The root {permitted!r} is not one of those that are trusted.")
    elif not fits_any(record.actor.key, rules.root_actors):
        case.found(Code.UNTRUSTED_ROOT, f"The actor {record.actor.key!r} may not begin a root.")


def _permission(case: Case) -> None:
    """What permits a record is a record before it, an approval, or known from outside."""
    permitted, rules = case.record.permitted_by, case.rules
    if rules.approval_prefix(permitted) is not None:
        return
    if not isinstance(permitted, str):
        case.found(Code.UNRESOLVED_PERMISSION, "Its permission is no text.")
        return
    position = case.index.find(permitted)
    if position != NOWHERE:
        if case.index.failed[position] != NOWHERE:
            case.found(Code.INVALID_ANCESTOR, f"It is permitted by {permitted!r}, which failed.", permitted)
    elif not fits_any(permitted, rules.permissions):
        case.found(
            Code.UNRESOLVED_PERMISSION,
            f"Its permission {permitted!r} is neither in the log before it nor known.",
        )


def _ancestors(case: Case) -> None:
    failed = case.index.first(case.index.failed, case.causes)
    if failed != NOWHERE:
        name = case.index.ids[failed]
        case.found(Code.INVALID_ANCESTOR, f"It descends from the record {name!r}, which failed.", name)
    case.node.failed = failed
