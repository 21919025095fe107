"""Replies that are fetched afterwards, and results that are brought later, as decisions need them."""

from __future__ import annotations

from memoflow.budget import Budget, Money
from memoflow.canonical import Digester
from memoflow.errors import ConfigurationError, InvalidRequest, ResultNotEncodable
from memoflow.keyring import KeyNotFound
from memoflow.ledger.decisions import Retrieved
from memoflow.ledger.outputs import OutputRow, Vault
from memoflow.ledger.places import reply_place, response_id_place, result_place
from memoflow.ledger.queries import EffectInfo, InvocationInfo
from memoflow.ledger.unknowns import Subject
from memoflow.pricing import Price
from memoflow.providers.base import Reply, Usage
from memoflow.tools import encode_result
from memoflow.turn.calls import hosted_effects
from memoflow.turn.outcome import STATES, token_use
from memoflow.turn.records import storable

__all__ = ["Proof"]


class Proof:
    """Opens, seals and digests what stands behind decisions."""

    def __init__(self, vault: Vault | None, digester: Digester) -> None:
        self._vault = vault
        self._digester = digester

    def digest(self, evidence: bytes | str | None) -> str | None:
        """The digest of evidence, which is all that is kept of it.

        Raises:
            InvalidRequest: it is blank, or neither text nor bytes.
        """
        if evidence is None:
            return None
        if not isinstance(evidence, (str, bytes)):
            raise InvalidRequest(
                f"Evidence is text or bytes, not {type(evidence).__name__}. Give the document itself, for "
                "example the JSON of a request log."
            )
        if not evidence.strip():
            raise InvalidRequest("The evidence is blank and proves nothing. Give what the decision rests on.")
        # Evidence pasted from anywhere may hold lone surrogates, and need not be sent on.
        data = evidence.encode("utf-8", "surrogatepass") if isinstance(evidence, str) else evidence
        return self._digester.bytes(data)

    def response_id(self, subject: Subject, invocation_id: str, row: OutputRow | None) -> str:
        """The provider's id of a reply.

        Raises:
            ResultNotRetained: it cannot be opened.
        """
        place = response_id_place(invocation_id)
        what = f"response id of invocation {invocation_id}"
        data = self._open_vault(None if row is None else row.key_id).open(
            subject.identity, row, place=place.place, binding=place.binding, what=what
        )
        return data.decode()

    def retrieved(
        self,
        subject: Subject,
        invocation: InvocationInfo,
        reply: Reply,
        usage: Usage,
        price: Price | None,
        raw: bytes,
        key_id: str | None,
    ) -> tuple[Retrieved, Budget]:
        """A terminal reply as the end of its invocation, sealed with a key, and what to charge for it."""
        if price is not None and subject.currencies - {price.currency}:
            price = None  # What was reserved is charged then, as without a price.
        use, state = token_use(usage, price), STATES[reply.status]
        found = Retrieved(
            state=state,
            finish_reason=reply.finish_reason,
            error_code=reply.error_code,
            response_digest=self._digester.bytes(raw),
            reply_model=storable(reply.model),
            service_tier=storable(reply.service_tier),
            use=use,
            reply=self._sealed_reply(subject, invocation.id, raw, key_id) if state == "SUCCEEDED" else None,
            effects=tuple(hosted_effects(reply, invocation.id)),
        )
        asked = len(reply.calls)
        charged = Budget(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            # A batch with more calls than the round reserved is refused as a whole.
            tool_calls=asked if asked <= invocation.reserved.tool_calls else 0,
            cost=None if price is None or use.cost is None else Money(use.cost, price.currency),
        )
        return found, charged

    def _sealed_reply(
        self, subject: Subject, invocation_id: str, raw: bytes, key_id: str | None
    ) -> OutputRow | None:
        if subject.replay_key is None or subject.request_digest is None:
            return None
        place = reply_place(subject.replay_key, subject.round, subject.request_digest)
        return self._open_vault(key_id).seal(
            subject.identity,
            invocation_id,
            "reply",
            place=place.place,
            binding=place.binding,
            value=raw,
            key_id=key_id,
        )

    def result(
        self, subject: Subject, effect: EffectInfo, value: object, key_id: str | None
    ) -> tuple[OutputRow, bytes]:
        """The result of an effect, sealed as the turn seals it, and its bytes.

        Raises:
            KeyNotFound: the key to seal it with is not on the ring.
            ResultNotEncodable: it has no exact JSON form, or is too large.
        """
        encoded = encode_result(value)
        if encoded.too_large:
            raise ResultNotEncodable(
                f"The result has {encoded.size} bytes, which is more than a model may be given. Shorten it."
            )
        data = encoded.text.encode()
        place = result_place(effect.idempotency_key or "", effect.arguments_digest or "")
        row = self._open_vault(key_id).seal(
            subject.identity,
            effect.id,
            "result",
            place=place.place,
            binding=place.binding,
            value=data,
            key_id=key_id,
        )
        return row, data

    def result_digest(self, data: bytes) -> str:
        """The digest of a result; of no bytes where none is known."""
        return self._digester.bytes(data)

    def _open_vault(self, key_id: str | None) -> Vault:
        if self._vault is None and key_id is not None:
            raise KeyNotFound(key_id=key_id, known=())
        if self._vault is None:
            raise ConfigurationError(
                "This needs the keys of the protected output store. Set MEMOFLOW_OUTPUT_KEYS to the key ring "
                "the workers use."
            )
        return self._vault
