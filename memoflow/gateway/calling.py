"""What a client's request is as a call: whether it may be made, what it reserves, and on which terms."""

from __future__ import annotations

import json
from typing import Any, Final

from memoflow.budget import Budget
from memoflow.errors import InvalidRequest, RequestNotAllowed
from memoflow.gateway.apis import GeneratingApi
from memoflow.gateway.incoming import NO_MODEL, Incoming
from memoflow.gateway.references import foreign_objects
from memoflow.gateway.refusals import HttpRefusal
from memoflow.gateway.request_activity import REPLAY_KEY, RequestActivity
from memoflow.gateway.settings import GatewaySettings
from memoflow.ledger.virtual_keys import VirtualKey
from memoflow.providers.base import Codec
from memoflow.turn import Call, Terms

__all__ = ["check_allowed", "make_call"]

_MOST_CHOICES: Final = 128
_SHOWN: Final = 100


def check_allowed(key: VirtualKey, settings: GatewaySettings, model: str, body: dict[str, Any]) -> None:
    """Refuse what a key is not for.

    Raises:
        RequestNotAllowed: the model is another one.
        HttpRefusal: the request names objects that may be somebody else's.
    """
    if not key.allows_model(model):
        if model == NO_MODEL:
            raise InvalidRequest("The request names no model, and its key is for some models only. Name one.")
        raise RequestNotAllowed(what="model", name=model[:_SHOWN], allowed=key.models)
    foreign = () if settings.provider_objects == "allow" else foreign_objects(body)
    if foreign:
        raise HttpRefusal(
            403,
            "provider_object_not_allowed",
            f"The request names something of the provider's account ({', '.join(foreign)}) that may be "
            "another client's. Put the content itself into the request; whoever runs the gateway may allow "
            "this with MEMOFLOW_GATEWAY_PROVIDER_OBJECTS=allow.",
        )


def make_call(
    key: VirtualKey,
    settings: GatewaySettings,
    api: GeneratingApi,
    codec: Codec,
    incoming: Incoming,
    activity: RequestActivity,
) -> Call:
    """The call that a request is."""
    return Call(
        attempt=activity.attempt,
        codec=codec,
        request=incoming.request,
        accounts=(key.account,),
        budgets=(_budget(key, settings, api, incoming.body),),
        replay_key=None if incoming.idempotency_key is None else REPLAY_KEY,
        terms=_terms(key, settings, api, incoming),
        bracket=activity,
    )


def _budget(
    key: VirtualKey, settings: GatewaySettings, api: GeneratingApi, body: dict[str, Any]
) -> Budget | None:
    """What follows from the request, to which an output is added where it names no cap."""
    if not api.cap_fields or any(body.get(name) is not None for name in api.cap_fields):
        return None
    asked = body.get("n")
    choices = asked if type(asked) is int and 1 <= asked <= _MOST_CHOICES else 1
    return Budget(output_tokens=choices * (key.output_tokens or settings.output_tokens))


def _terms(key: VirtualKey, settings: GatewaySettings, api: GeneratingApi, incoming: Incoming) -> Terms:
    declared = incoming.input_tokens
    counts = declared is None and settings.count_input and api.count_path is not None
    if declared is None and not counts:
        declared = settings.unmeasured_input
    return Terms(
        streaming=incoming.streaming,
        input_tokens=declared,
        count_input=counts,
        if_unmeasurable=True,
        strict_input=not settings.estimate_input,
        timeout=settings.timeout,
        idle_timeout=settings.idle_timeout,
        on_unknown=settings.on_unknown,
        metadata=json.dumps({"gateway_key": key.id}),
    )
