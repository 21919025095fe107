"""One request of a generating API, from its admission to the last byte of its reply."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from memoflow.errors import CallCancelled, MemoflowError
from memoflow.gateway.apis import GeneratingApi
from memoflow.gateway.calling import make_call
from memoflow.gateway.client import Client
from memoflow.gateway.forward import EVENTS, ForwardPort, Head, Whole, hides_usage, replayed
from memoflow.gateway.headers import Headers, figures
from memoflow.gateway.incoming import Incoming
from memoflow.gateway.refusals import refusal_of
from memoflow.gateway.request_activity import REPLAY_KEY, RequestActivity, claim_of
from memoflow.gateway.restoring import recorded_reply
from memoflow.identity import ActivityIdentity
from memoflow.ledger.activities import Claim, Fence
from memoflow.ledger.opening import IdentityTaken
from memoflow.ledger.virtual_keys import VirtualKey
from memoflow.turn import AsyncDriver, CancelSignal, turn

if TYPE_CHECKING:
    from memoflow.gateway.service import Service
    from memoflow.gateway.watching import Watch

__all__ = ["Exchange"]

log = logging.getLogger("memoflow.gateway")
_JSON: Final = (b"content-type", b"application/json")
_RESTORED: Final = (b"memoflow-restored", b"true")


@dataclass(frozen=True, slots=True, eq=False)
class Exchange:
    """A request that may be made.

    Args:
        service: what all requests of the process share.
        key: on whose behalf it is made.
        signal: ends it.
    """

    service: Service
    api: GeneratingApi
    key: VirtualKey
    incoming: Incoming
    client: Client
    signal: CancelSignal

    async def run(self) -> None:
        """Carry it out, or give what is recorded of it.

        Raises:
            MemoflowError: it is refused, and nothing was sent to the client.
        """
        runtime, named = self.service.runtime, self.incoming.idempotency_key is not None
        claim = claim_of(runtime, self.key, self.api, self.incoming)
        prices = self.service.prices[self.api.provider]
        stored = self._is_stored()
        make = partial(RequestActivity, runtime, self.key, claim, prices, stored=stored, named=named)
        try:
            await self._attempt(make)
            return
        except IdentityTaken:
            await self.service.keys.check(self.key)
        granted: Claim = await runtime.acommit(claim)
        if granted.completed:
            await self._restore(claim.identity, granted)
        else:
            identity = claim.identity
            fence = Fence(identity.namespace, granted.activity_id, granted.attempt, str(identity))
            await self._attempt(partial(make, fence=fence))

    def _is_stored(self) -> bool:
        return self.api.stores and self.incoming.body.get("store") is not False

    # One attempt

    async def _attempt(self, make: Callable[..., RequestActivity]) -> None:
        watch = await self._watch()
        activity = make(watch=watch)
        port = self._port(activity, watch)
        settings = self.service.settings
        call = make_call(self.key, settings, self.api, port.codec, self.incoming, activity)
        driver = AsyncDriver(turn(call), self.service.runtime.ledger, port, signal=self.signal)
        try:
            if self.incoming.streaming:
                await self._stream(driver, port, activity)
            else:
                await self._whole(driver, port, activity)
        except BaseException as error:
            await self._end(activity, error)
            raise
        if not activity.settled and driver.result is not None:
            # All was recorded before, as after a decision about an earlier attempt; nothing was sent.
            id = driver.result.invocations[-1].id
            for operation in (activity.completion(id), *activity.inspections(id)):
                await self.service.runtime.acommit(operation)
        if watch is not None and activity.stored_as is not None and self.service.watcher is not None:
            self.service.watcher.remember(watch, activity.stored_as)

    async def _watch(self) -> Watch | None:
        """What looks at this request, where inspection is on; looking takes processor time."""
        watcher = self.service.watcher
        if watcher is None:
            return None
        return await asyncio.to_thread(watcher.watch, self.api.name, self.incoming.body)

    def _port(self, activity: RequestActivity, watch: Watch | None) -> ForwardPort:
        return ForwardPort(
            self.api,
            self.service.codecs[self.api.name],
            self.service.upstreams[self.api.provider],
            self.incoming,
            max_bytes=self.service.settings.max_reply_bytes,
            sending=lambda: activity.watched(self.signal.cancel),
            watch=watch,
        )

    async def _end(self, activity: RequestActivity, error: BaseException) -> None:
        """Record the end of an attempt that nothing else has recorded."""
        ending = activity.leftover(error)
        if ending is None:
            return
        try:
            await self.service.runtime.acommit(ending)
        except MemoflowError as refused:
            log.warning("the end of an attempt could not be recorded (%s)", type(refused).__name__)

    # Its reply

    async def _stream(self, driver: AsyncDriver, port: ForwardPort, activity: RequestActivity) -> None:
        client = self.client
        try:
            async for part in driver.events():
                if isinstance(part, Head):
                    await client.begin(part, _added(activity))
                else:
                    await client.write(part)
        except MemoflowError as error:
            if not client.started or isinstance(error, CallCancelled):
                raise
            if port.complete:
                # The client has it all, and what it means for the ledger is not its concern.
                await client.finish()
            elif port.streams and client.between_events:
                await client.finish(refusal_of(error).event(self.api.name))
            # Else the connection ends in the middle, as the provider's did.
        else:
            await client.finish()

    async def _whole(self, driver: AsyncDriver, port: ForwardPort, activity: RequestActivity) -> None:
        try:
            await driver.run()
        except MemoflowError:
            if port.whole is None:
                raise
        if port.whole is not None:
            # Also where the turn has ended in an error: the provider's own answer says it best.
            await self.client.give(port.whole, _added(activity))
        elif driver.result is not None:
            reply = driver.result.reply.body
            body = json.dumps(reply, ensure_ascii=False, separators=(",", ":")).encode()
            refused = None if port.watch is None else port.refused(port.watch.whole(reply))
            await self.client.give(refused or Whole(200, [_JSON], body), _added(activity))

    async def _restore(self, identity: ActivityIdentity, claim: Claim) -> None:
        found = await asyncio.to_thread(recorded_reply, self.service.runtime, identity, claim, REPLAY_KEY)
        whole = Whole(200, [_JSON], found.raw)
        if found.refusal is not None:
            whole = Whole(502, found.refusal.headers(), found.refusal.body(self.api.provider))
        elif self.incoming.streaming:
            codec = self.service.codecs[self.api.name]
            hidden = hides_usage(self.api, self.incoming)
            events = replayed(self.api, codec, codec.read(found.raw), hidden=hidden)
            whole = Whole(200, [(b"content-type", EVENTS)], events)
        await self.client.give(whole, [_invocation(found.invocation_id), _RESTORED])


def _added(activity: RequestActivity) -> Headers:
    """The gateway's own headers: what was reserved for a reply, or that it was not sent for."""
    if activity.invocation_id is None:
        return [_RESTORED]
    opened = activity.opened_as
    return [_invocation(activity.invocation_id), *([] if opened is None else figures(opened))]


def _invocation(id: str) -> tuple[bytes, bytes]:
    return b"memoflow-invocation-id", id.encode()
