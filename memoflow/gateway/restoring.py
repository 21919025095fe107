"""Giving a recorded reply once more: its own bytes, or the events of a stream that ends in it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from memoflow.errors import ResultNotRetained
from memoflow.gateway.refusals import Refusal
from memoflow.identity import ActivityIdentity
from memoflow.ledger.activities import Claim
from memoflow.ledger.outputs import read_output
from memoflow.ledger.places import output_place, reply_place
from memoflow.ledger.replay import read_turn
from memoflow.runtime import Runtime

__all__ = ["RecordedReply", "recorded_reply"]


@dataclass(frozen=True, slots=True, eq=False)
class RecordedReply:
    """A reply as it was recorded, and the invocation that it is of; ``refusal`` is what was given instead."""

    invocation_id: str
    raw: bytes = field(repr=False)
    refusal: Refusal | None = None


def recorded_reply(
    runtime: Runtime, identity: ActivityIdentity, claim: Claim, replay_key: str
) -> RecordedReply:
    """The reply of a completed request. Reserves nothing, calls nobody, judges nothing and charges nothing.

    Raises:
        ResultNotRetained: it was purged, or its key is not on the ring.
    """
    refusal = _refusal(_output(runtime, identity, claim))
    query = partial(read_turn, activity_id=claim.activity_id, replay_key=replay_key)
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
    return RecordedReply(round.id, raw, refusal)


def _output(runtime: Runtime, identity: ActivityIdentity, claim: Claim) -> dict[str, Any]:
    """What the request was recorded to have come to."""
    read = partial(read_output, owner_id=claim.activity_id, kind="output")
    row, place = runtime.ledger.database.read(read), output_place(claim.output_digest or "")
    what = "outcome of this request"
    data = runtime.vault.open(identity, row, place=place.place, binding=place.binding, what=what)
    found: dict[str, Any] = json.loads(data)
    return found


def _refusal(output: dict[str, Any]) -> Refusal | None:
    refused = output["refused"]
    if refused is None:
        return None
    return Refusal(502, "inspection_refused", refused["message"], False, figures=refused["figures"])
