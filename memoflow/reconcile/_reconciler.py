"""Looking at unknowns and deciding about them."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from enum import Enum
from functools import partial
from typing import Any

from memoflow.budget import Budget
from memoflow.canonical import Digester
from memoflow.errors import (
    ActivityBusy,
    ConfigurationError,
    InvalidRequest,
    NotFound,
    ReservationConflict,
    ResultNotRetained,
)
from memoflow.identity import new_id
from memoflow.ledger.database import Database
from memoflow.ledger.decisions import DecideEffect, DecideInvocation, Decision
from memoflow.ledger.outputs import Vault, sealing_key
from memoflow.ledger.queries import EffectInfo, InvocationInfo, find_effect, find_invocation
from memoflow.ledger.unknowns import (
    Subject,
    exposures,
    list_decisions,
    list_evidence,
    open_response_id,
    read_subject,
    unknown_effects,
    unknown_invocations,
)
from memoflow.ledger.writer import Writer
from memoflow.pricing import PriceBook
from memoflow.providers.base import Codec, Reply, UnreadableReply
from memoflow.reconcile._asking import on_thread
from memoflow.reconcile._figures import figures
from memoflow.reconcile._proof import Proof
from memoflow.reconcile._records import Attempted, Case, Queue

__all__ = ["Reconciler"]

log = logging.getLogger("memoflow.reconcile")


class _Unsaid(Enum):
    RESULT = "not known"


def _responses() -> Codec:
    from memoflow.providers.openai_responses import OpenAIResponsesCodec

    return OpenAIResponsesCodec()


class Reconciler:
    """The unknown outcomes of one namespace.

    Args:
        database: where to look.
        writer: what records decisions.
        namespace: tenant boundary.
        vault: opens response ids and seals results; without one those two are refused.
        digester: digests of evidence, replies and results.
        prices: prices of retrieved replies; without a price what was reserved is charged.
    """

    def __init__(
        self,
        database: Database,
        writer: Writer,
        namespace: str,
        vault: Vault | None = None,
        *,
        digester: Digester | None = None,
        prices: PriceBook | None = None,
    ) -> None:
        self._database = database
        self._writer = writer
        self._namespace = namespace
        self._proof = Proof(vault, digester or Digester())
        self._prices = prices or PriceBook()

    # Looking

    def list(self) -> Queue:
        """What waits for a decision: unknown invocations and effects, and what lost attempts left open."""

        def query(connection: Any) -> Queue:
            now = self._database.clock(connection)
            return Queue(
                tuple(unknown_invocations(connection, self._namespace, now)),
                tuple(unknown_effects(connection, self._namespace, now)),
                tuple(exposures(connection, self._namespace, now)),
            )

        return self._database.read(query)

    def show(self, id: str) -> Case:
        """All that is known about an invocation or effect.

        Raises:
            NotFound: there is none with this id.
        """

        def query(connection: Any) -> Case:
            return Case(
                find_invocation(connection, self._namespace, id),
                find_effect(connection, self._namespace, id),
                tuple(list_decisions(connection, self._namespace, id)),
                tuple(list_evidence(connection, self._namespace, id)),
            )

        case = self._database.read(query)
        if case.invocation is None and case.effect is None:
            raise NotFound(what="invocation or effect", id=id, namespace=self._namespace)
        return case

    # Deciding about invocations

    def settle(
        self,
        invocation_id: str,
        usage: Budget | None = None,
        *,
        actor: str,
        reason: str,
        evidence: bytes | str | None = None,
        decision_id: str | None = None,
    ) -> Decision:
        """Charge what an unknown invocation used.

        Args:
            invocation_id: the invocation.
            usage: what it used; what is left out is charged as it was reserved, but cost follows from the
                tokens where the model has a price. Tokens are given as input and output together, or as a
                total alone, of which each kind may then have been all.
            actor: who decides.
            reason: why, in one line.
            evidence: what the decision rests on. Only its digest is kept.
            decision_id: a UUID that makes repeating harmless; a new one if left out.

        Raises:
            NotFound: there is no such invocation.
            ActivityBusy: its attempt may still be running.
            ReservationConflict: it was resolved in another way.
            InvalidBudget: the figures contradict each other, or are in another currency than the account's.
        """
        subject = self._subject(invocation_id)
        usage = figures(usage, invocation_id, subject, self._prices.get(subject.model))
        return self._writer.record(
            DecideInvocation(
                decision_id or new_id(),
                self._namespace,
                invocation_id,
                "settle",
                actor,
                reason,
                self._proof.digest(evidence),
                usage,
                activity_id=subject.activity_key,
            )
        )

    def release(
        self,
        invocation_id: str,
        *,
        actor: str,
        reason: str,
        evidence: bytes | str,
        decision_id: str | None = None,
    ) -> Decision:
        """Return the hold of an unknown invocation: there is proof that the provider did not perform it.

        Raises:
            NotFound, ActivityBusy, ReservationConflict: as in `settle`.
            InvalidRequest: the evidence is blank.
        """
        return self._writer.record(
            DecideInvocation(
                decision_id or new_id(),
                self._namespace,
                invocation_id,
                "release",
                actor,
                reason,
                self._proof.digest(evidence),
                activity_id=self._subject(invocation_id).activity_key,
            )
        )

    def write_off(
        self, older_than: timedelta, *, actor: str = "policy", reason: str = "written off as spent"
    ) -> tuple[Decision, ...]:
        """Settle every unknown invocation that started longer ago than this, as spent in full; never as free.

        What is being decided by others at the same time is left to them.
        """
        if older_than < timedelta(0):
            raise InvalidRequest("The age of what is written off must not be negative.")
        age_us = older_than // timedelta(microseconds=1)

        def query(connection: Any) -> tuple[InvocationInfo, ...]:
            now = self._database.clock(connection)
            return tuple(unknown_invocations(connection, self._namespace, now, until=now - age_us))

        decisions = []
        for invocation in self._database.read(query):
            try:
                decisions.append(self.settle(invocation.id, actor=actor, reason=reason))
            except (ReservationConflict, ActivityBusy):
                continue
        return tuple(decisions)

    # Deciding about effects

    def happened(
        self,
        effect_id: str,
        *,
        result: object = _Unsaid.RESULT,
        actor: str,
        reason: str,
        evidence: bytes | str | None = None,
        decision_id: str | None = None,
    ) -> Decision:
        """Say that an unknown effect happened. It is not run again.

        Args:
            effect_id: the effect.
            result: what the tool would have returned; it is kept encrypted, and the model gets it. Without
                one the model is told that the tool ran and that its result is not known.
            actor, reason, evidence, decision_id: as in `settle`.

        Raises:
            NotFound, ActivityBusy, ReservationConflict: as in `settle`.
            KeyNotFound: the result cannot be sealed so that the workers can open it.
            ResultNotEncodable: the result cannot be written as exact JSON, or is too large.
        """
        effect, subject = self._effect(effect_id)
        data, row = b"", None
        if result is not _Unsaid.RESULT:
            key_of = partial(sealing_key, namespace=self._namespace, invocation_id=effect.invocation_id)
            key_id = self._database.read(key_of)
            row, data = self._proof.result(subject, effect, result, key_id)
        return self._writer.record(
            DecideEffect(
                decision_id or new_id(),
                self._namespace,
                effect_id,
                "happened",
                actor,
                reason,
                self._proof.digest(evidence),
                row,
                self._proof.result_digest(data),
                None if row is None else len(data),
                activity_id=subject.activity_key,
            )
        )

    def did_not_happen(
        self,
        effect_id: str,
        *,
        actor: str,
        reason: str,
        evidence: bytes | str,
        decision_id: str | None = None,
    ) -> Decision:
        """Say that an unknown effect did not happen: there is proof of it. The next attempt may run it.

        Raises:
            NotFound, ActivityBusy, ReservationConflict: as in `settle`.
            InvalidRequest: the evidence is blank.
        """
        _, subject = self._effect(effect_id)
        return self._writer.record(
            DecideEffect(
                decision_id or new_id(),
                self._namespace,
                effect_id,
                "did_not_happen",
                actor,
                reason,
                self._proof.digest(evidence),
                activity_id=subject.activity_key,
            )
        )

    # Deciding by the provider's own word

    def auto(
        self, retrieve: Callable[[str], bytes | None], codec: Codec | None = None
    ) -> tuple[Attempted, ...]:
        """Ask the provider for the replies whose ids are known, and settle by what they say.

        A reply that becomes the record of its round is kept, so that a retry restores it. What the
        provider does not have, has not finished, or gives no usage for, stays in the queue; so does what it
        answers with another reply than the one asked for.

        Args:
            retrieve: the raw JSON of a reply by the provider's id, or None if there is none; for example
                ``llm.retrieve``.
            codec: reads it; only invocations of its API are asked for. OpenAI's Responses if left out.
        """
        codec = codec or _responses()
        return tuple(
            self._attempt(invocation, retrieve, codec)
            for invocation in self.list().invocations
            if invocation.retrievable and (invocation.provider, invocation.api) == (codec.provider, codec.api)
        )

    async def aauto(
        self, retrieve: Callable[[str], Awaitable[bytes | None]], codec: Codec | None = None
    ) -> tuple[Attempted, ...]:
        """`auto` with an async client; nothing blocks the event loop. Cancelled, it asks for nothing more."""
        return await on_thread(lambda ask: self.auto(ask, codec), retrieve)

    def _attempt(
        self, invocation: InvocationInfo, retrieve: Callable[[str], bytes | None], codec: Codec
    ) -> Attempted:
        subject = self._subject(invocation.id)
        row = self._database.read(lambda connection: open_response_id(connection, invocation.id))
        try:
            response_id = self._proof.response_id(subject, invocation.id, row)
            raw = retrieve(response_id)
            reply = None if raw is None else codec.read(raw)
        except ResultNotRetained as gone:
            if gone.key_id is not None:
                log.warning("the reply of invocation %s is not asked for: %s", invocation.id, gone)
            return Attempted(invocation.id, left="RESPONSE_ID_NOT_RETAINED")
        except UnreadableReply as error:
            return Attempted(invocation.id, left=error.reason)
        except ConfigurationError:
            raise
        except Exception as error:
            # Whatever the client raises, the reply was not seen, and the next one may still be there. Its
            # text may hold what the provider said, so only its type is logged.
            name = type(error).__name__
            log.warning("the reply of invocation %s could not be retrieved (%s)", invocation.id, name)
            return Attempted(invocation.id, left="RETRIEVE_FAILED")
        if raw is None or reply is None:
            return Attempted(invocation.id, left="NOT_FOUND")
        if reply.response_id != response_id:
            return Attempted(invocation.id, left="WRONG_REPLY")
        return self._settle_by(reply, raw, invocation, subject, None if row is None else row.key_id)

    def _settle_by(
        self, reply: Reply, raw: bytes, invocation: InvocationInfo, subject: Subject, key_id: str | None
    ) -> Attempted:
        if reply.status == "pending":
            return Attempted(invocation.id, left="PENDING")
        if reply.usage is None:
            return Attempted(invocation.id, left="USAGE_MISSING")
        price = self._prices.get(invocation.model)
        found, charged = self._proof.retrieved(subject, invocation, reply, reply.usage, price, raw, key_id)
        operation = DecideInvocation(
            new_id(),
            self._namespace,
            invocation.id,
            "settle",
            "memoflow",
            "the provider's stored reply was retrieved",
            self._proof.digest(raw),
            charged,
            found,
            subject.activity_key,
        )
        try:
            return Attempted(invocation.id, self._writer.record(operation))
        except ActivityBusy:
            return Attempted(invocation.id, left="ACTIVITY_RUNNING")
        except ReservationConflict:
            return Attempted(invocation.id, left="DECIDED_MEANWHILE")

    # Helpers

    def _subject(self, invocation_id: str) -> Subject:
        subject = self._database.read(
            lambda connection: read_subject(connection, self._namespace, invocation_id)
        )
        if subject is None:
            raise NotFound(what="invocation", id=invocation_id, namespace=self._namespace)
        return subject

    def _effect(self, effect_id: str) -> tuple[EffectInfo, Subject]:
        effect = self._database.read(lambda connection: find_effect(connection, self._namespace, effect_id))
        if effect is None:
            raise NotFound(what="effect", id=effect_id, namespace=self._namespace)
        return effect, self._subject(effect.invocation_id)
