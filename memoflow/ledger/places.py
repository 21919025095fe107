"""Where a protected value stands in its activity: what `Vault` binds a ciphertext to.

Writer and reader must agree on these to the letter, or nothing opens again; so they are here, once.
"""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["Place", "output_place", "reply_place", "response_id_place", "result_place"]

_OUTPUT: Final = "output"
_RESPONSE_ID: Final = "response-id"


class Place(NamedTuple):
    """The place of a value in its activity, and the digest or id of what it answers."""

    place: str
    binding: str


def reply_place(replay_key: str, round: int, request_digest: str) -> Place:
    """A provider's reply: its turn's key and round, bound to the digest of the turn's initial request."""
    return Place(f"{replay_key}/{round}", request_digest)


def result_place(idempotency_key: str, arguments_digest: str) -> Place:
    """A tool's result: the effect's idempotency key, bound to the digest of the arguments."""
    return Place(idempotency_key, arguments_digest)


def response_id_place(invocation_id: str) -> Place:
    """The provider's id of a reply, bound to the invocation that asked for it."""
    return Place(_RESPONSE_ID, invocation_id)


def output_place(output_digest: str) -> Place:
    """What an activity returned, bound to its own digest: nothing was asked for it."""
    return Place(_OUTPUT, output_digest)
