"""Reading the arguments of a waiting call out of its recorded reply: there is no second copy of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from memoflow.canonical import Digester, key_of
from memoflow.errors import ResultNotRetained
from memoflow.ledger.approval_queries import RecordedCall
from memoflow.ledger.outputs import Vault
from memoflow.ledger.places import reply_place
from memoflow.providers.base import Codec, UnreadableReply
from memoflow.tools import MAX_ARGUMENTS_BYTES, digest_source, without_claim

__all__ = ["Withheld", "arguments_of"]


class Withheld(Exception):
    """The arguments cannot be shown; the text says why, without any part of them."""


def arguments_of(recorded: RecordedCall, vault: Vault, digester: Digester) -> str:
    """The arguments that an approval is bound to, as the tool would be given them.

    Raises:
        Withheld: a missing key, another digest key, purged, or not what the digest says.
    """
    if key_of(recorded.arguments_digest) != digester.key_id:
        raise Withheld(
            "The arguments were digested under another key than the one configured, so nobody could tell "
            "whether what is shown is what would run: set MEMOFLOW_DIGEST_KEY as the workers have it."
        )
    raw = _raw(recorded, vault)
    custom = recorded.kind == "custom"
    # A tool that asks for claims is given its arguments without them.
    forms = (raw,) if custom else (raw, without_claim(raw, MAX_ARGUMENTS_BYTES)[0])
    sources = (digest_source(form, custom=custom) for form in forms)
    data = next((one for one in sources if one and digester.bytes(one) == recorded.arguments_digest), None)
    if data is None:
        raise Withheld(
            "The recorded call does not have the arguments that the request names: one was altered. Do "
            "not approve it, and check the ledger with `memoflow verify`."
        )
    return data.decode()


def _raw(recorded: RecordedCall, vault: Vault) -> str:
    """The provider's text of the arguments."""
    place = reply_place(recorded.replay_key or "", recorded.round, recorded.request_digest or "")
    what = f"reply of invocation {recorded.invocation_id}"
    try:
        data = vault.open(
            recorded.identity, recorded.reply, place=place.place, binding=place.binding, what=what
        )
        reply = _CODECS[f"{recorded.provider}/{recorded.api}"]().read(data)
    except ResultNotRetained as gone:
        raise Withheld(f"The arguments cannot be read: {gone.reason}.") from None
    except (KeyError, UnreadableReply):
        raise Withheld("The recorded reply is of an API that this version cannot read.") from None
    for call in reply.calls:
        if call.ordinal == recorded.ordinal:
            return call.arguments
    raise Withheld("The recorded reply has no such call: it was altered. Do not approve it.")


def _responses() -> Codec:
    from memoflow.providers.openai_responses import OpenAIResponsesCodec

    return OpenAIResponsesCodec(max_reply_bytes=_ANY_SIZE)


def _chat() -> Codec:
    from memoflow.providers.openai_chat import OpenAIChatCodec

    return OpenAIChatCodec(max_reply_bytes=_ANY_SIZE)


def _messages() -> Codec:
    from memoflow.providers.anthropic_messages import AnthropicMessagesCodec

    return AnthropicMessagesCodec(max_reply_bytes=_ANY_SIZE)


# What was recorded has been read once, under whatever bound its adapter had.
_ANY_SIZE: Final = 2**62
_CODECS: Final[dict[str, Callable[[], Codec]]] = {
    "openai/responses": _responses,
    "openai/chat.completions": _chat,
    "anthropic/messages": _messages,
}
