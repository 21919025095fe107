"""The activity that a forwarded request is: one attempt, which begins and ends with its one call.

Its run is named by the client's idempotency key, among those of its virtual key; without one it has a name
that nobody asks for again. A new one is claimed in the transaction that reserves, and completed in the one
that settles, so that a request costs two commits.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from memoflow.context import Current, Run
from memoflow.gateway.apis import GeneratingApi
from memoflow.gateway.incoming import Incoming
from memoflow.identity import ActivityIdentity, new_id
from memoflow.ledger.activities import ClaimActivity, CompleteActivity, EndAttempt, Fence
from memoflow.ledger.inspections import RecordInspections
from memoflow.ledger.invocations import Started, StartInvocation
from memoflow.ledger.opening import OpenActivity, Opened
from memoflow.ledger.places import output_place
from memoflow.ledger.reply_owners import OwnReply
from memoflow.ledger.transaction import Operation
from memoflow.ledger.virtual_keys import VirtualKey
from memoflow.pricing import PriceBook
from memoflow.runtime import Runtime
from memoflow.turn import Attempt
from memoflow.turn.outcome import Verdict

if TYPE_CHECKING:
    from memoflow.gateway.watching import Watch

__all__ = ["RequestActivity", "claim_of"]

REPLAY_KEY: Final = "request"
_SEMANTIC: Final = (b"anthropic-beta", b"anthropic-version", b"openai-beta")
"""Headers that change what a request means."""


def claim_of(runtime: Runtime, key: VirtualKey, api: GeneratingApi, incoming: Incoming) -> ClaimActivity:
    """The claim of the activity that a request is."""
    name = incoming.idempotency_key
    identity = ActivityIdentity(
        runtime.namespace, f"gateway:{key.id}", new_id() if name is None else name, "request", "gateway", "1"
    )
    if name is None:
        # Nobody comes back to it, so it need not be recognised.
        digest = runtime.digester.bytes(incoming.raw)
    else:
        said = sorted([n.decode(), v.decode("latin-1")] for n, v in incoming.headers if n in _SEMANTIC)
        digest = runtime.digester.json([api.name, said, incoming.request])
    return ClaimActivity(identity, digest, runtime.lease_us, runtime.worker, id=new_id())


class RequestActivity:
    """`memoflow.turn.Bracket` of one request.

    Args:
        claim: of a new activity; made by the call's own first commit.
        fence: of an attempt that has been claimed before, as the second one of a request is.
        stored: whether the provider keeps the reply.
        named: whether the client may ask for it again.
        watch: what looks at the reply.

    Attributes:
        opened: what the request holds; None until it is reserved, or where it was claimed before.
        invocation_id: the invocation, once there is one.
        settled: whether the end of the attempt is part of what was settled.
        stored_as: the provider's id of the reply, where it keeps it.
    """

    def __init__(
        self,
        runtime: Runtime,
        key: VirtualKey,
        claim: ClaimActivity,
        prices: PriceBook,
        *,
        fence: Fence | None = None,
        stored: bool = False,
        named: bool = True,
        watch: Watch | None = None,
    ) -> None:
        self._runtime = runtime
        self._key = key
        self._claim = claim if fence is None else None
        self._stored = stored
        self._watch = watch
        self._named = named
        identity = claim.identity
        if fence is None:
            assert claim.id is not None, "a new activity is named by whoever claims it here"
            fence = Fence(identity.namespace, claim.id, 1, str(identity))
        self.attempt = Attempt(identity, fence, runtime.digester, runtime.vault, prices)
        self.opened_as: Opened | None = None
        self.invocation_id: str | None = None
        self.settled = False
        self.stored_as: str | None = None

    # While it is sent

    def watched(self, lost: Callable[[], None]) -> Callable[[], None]:
        """Keep the lease from now on; returns what ends that."""
        identity = self.attempt.identity
        run = Run(identity.workflow_id, identity.run_id, (self._key.account,))
        current = Current(self._runtime, self.attempt, run, on_lost=lost)
        self._runtime.watch(current)
        return lambda: self._runtime.forget(current)

    # What is recorded around the request

    def opening(self, start: StartInvocation) -> Operation[Any]:
        """The claim and the start of the request, both or neither."""
        return start if self._claim is None else OpenActivity(self._claim, start, self._key)

    def opened(self, started: Started) -> None:
        """Remember what it holds."""
        self.invocation_id = started.invocation_id
        self.opened_as = started if isinstance(started, Opened) else None

    def closing(self, verdict: Verdict, invocation_id: str) -> tuple[Operation[Any], ...]:
        """The end of the attempt: complete if there is a reply to give again, else free for the next one."""
        self.settled = True
        inspected = self.inspections(invocation_id)
        if verdict.state != "SUCCEEDED" or verdict.reply is None:
            return (self._ended(verdict), *inspected)
        owned: tuple[Operation[Any], ...] = ()
        if self._stored and verdict.reply.response_id is not None:
            self.stored_as = verdict.reply.response_id
            digest = self._runtime.digester.bytes(self.stored_as.encode())
            owned = (OwnReply(self.attempt.identity.namespace, invocation_id, self._key.account, digest),)
        return (self.completion(invocation_id), *owned, *inspected)

    def inspections(self, invocation_id: str) -> tuple[Operation[Any], ...]:
        """What inspection decided, if it did."""
        rows = () if self._watch is None else self._watch.rows()
        namespace = self.attempt.identity.namespace
        return (RecordInspections(namespace, invocation_id, rows),) if rows else ()

    def _ended(self, verdict: Verdict) -> EndAttempt:
        cancelled = verdict.state == "CANCELLED" or verdict.finish_reason == "cancelled"
        state = "CANCELLED" if cancelled else "FAILED"
        return EndAttempt(self.attempt.fence, state, (verdict.reason or verdict.state)[:128])

    def completion(self, invocation_id: str) -> CompleteActivity:
        """The activity is done; its output says by which invocation, and whether its reply was refused."""
        refusal = None if self._watch is None else self._watch.refusal
        refused = None if refusal is None else {"message": refusal.message, "figures": refusal.figures}
        attempt = self.attempt
        data = json.dumps({"invocation": invocation_id, "refused": refused}).encode()
        digest = attempt.digester.bytes(data)
        if not self._named:
            return CompleteActivity(attempt.fence, digest, None)
        place = output_place(digest)
        row = attempt.vault.seal(
            attempt.identity,
            attempt.fence.activity_id,
            "output",
            place=place.place,
            binding=place.binding,
            value=data,
        )
        return CompleteActivity(attempt.fence, digest, row)

    def leftover(self, error: BaseException) -> EndAttempt | None:
        """The end of an attempt that nothing else has recorded; None where there is none to end."""
        if self.settled or (self._claim is not None and self.invocation_id is None):
            return None
        state = "FAILED" if isinstance(error, Exception) else "CANCELLED"
        return EndAttempt(self.attempt.fence, state, type(error).__name__[:128], self.attempt.running)
