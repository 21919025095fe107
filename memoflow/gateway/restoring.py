"""Giving a recorded reply once more: its own bytes, or the events of a stream that ends in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from memoflow.errors import ResultNotRetained
from memoflow.identity import ActivityIdentity
from memoflow.ledger.places import reply_place
from memoflow.ledger.replay import read_turn
from memoflow.runtime import Runtime

__all__ = ["RecordedReply", "recorded_reply"]


@dataclass(frozen=True, slots=True, eq=False)
class RecordedReply:
    """A reply as it was recorded, and the invocation that it is of."""

    invocation_id: str
    raw: bytes = field(repr=False)


def recorded_reply(
    runtime: Runtime, identity: ActivityIdentity, activity_id: str, replay_key: str
) -> RecordedReply:
    """The reply of a completed request. Reserves nothing, calls nobody and charges nothing.

    Raises:
        ResultNotRetained: it was purged, or its key is not on the ring.
    """
    query = partial(read_turn, activity_id=activity_id, replay_key=replay_key)
    turn = runtime.ledger.database.read(query)
    round = None if turn is None else turn.finished(0)
    if turn is None or round is None:
        raise ResultNotRetained(what="reply of this request", digest=None, reason="it was never kept")
    place = reply_place(replay_key, 0, turn.request_digest)
    what = f"reply of invocation {round.id}"
    try:
        raw = runtime.vault.open(identity, round.reply, place=place.place, binding=place.binding, what=what)
    except ResultNotRetained as gone:
        raise gone.with_digest(round.response_digest) from None
    return RecordedReply(round.id, raw)
