"""What a run is given, and what is refused before anything is sent."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import httpx2

from certification.live.boundaries import HOSTS
from certification.live.endpoint import host_of
from certification.live.evidence import MODEL
from certification.live.provider import Provider
from certification.live.refused import Refused

__all__ = ["Inputs", "check_endpoint", "read_inputs"]

SIMULATED_KEY: Final = "sk-simulated"
"""What a simulated provider is given. A real key goes to nobody but the provider itself."""

_MODEL: Final = re.compile(MODEL)


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a run needs to know.

    Attributes:
        base_url: where requests go.
        simulated: whether that is said to be somebody else than the provider.
    """

    model: str
    key: str = field(repr=False)
    base_url: str
    simulated: bool


def read_inputs(provider: Provider, environment: Mapping[str, str], simulated_url: str | None) -> Inputs:
    """The inputs of a run from the environment; none has a default.

    A simulated run needs the model alone: nothing is paid, and no key is read.

    Raises:
        Refused: one is missing, or the environment would send the run elsewhere or add to its requests.
    """
    live, model, key = provider.setting("LIVE"), provider.setting("MODEL"), provider.variable("API_KEY")
    needed = (model,) if simulated_url is not None else (live, model, key)
    missing = [name for name in needed if not environment.get(name)]
    if missing:
        told = [f"{name}=1" if name == live else name for name in needed]
        raise Refused(
            f"This needs {_listed(told)} in the environment; {_listed(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} not set. Nothing is assumed, since the calls are "
            f"{'made elsewhere' if simulated_url else 'paid'}."
        )
    if live in needed and environment[live] != "1":
        raise Refused(f"{live} is set, but not to 1, which says that real calls are wanted and may be paid.")
    _check_model(environment[model], environment.get(key), model)
    _check_environment(provider, environment, simulated_url)
    if simulated_url is not None:
        return Inputs(environment[model], SIMULATED_KEY, simulated_url, simulated=True)
    return Inputs(environment[model], environment[key], provider.base_url, simulated=False)


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _check_model(model: str, key: str | None, name: str) -> None:
    # The name goes into the evidence, so that a key in its place would be published.
    if not _MODEL.fullmatch(model) or model.startswith("sk-") or (key is not None and key in model):
        raise Refused(
            f"{name} does not look like the name of a model: at most 128 of A-Z a-z 0-9 . _ : / @ -, and no "
            "key."
        )


def _check_environment(provider: Provider, environment: Mapping[str, str], simulated_url: str | None) -> None:
    headers, base = provider.variable("CUSTOM_HEADERS"), provider.variable("BASE_URL")
    if environment.get(headers):
        raise Refused(
            f"{headers} is set, which adds to every request what no evidence could tell of. Unset it."
        )
    elsewhere = environment.get(base)
    if simulated_url is None and elsewhere:
        _refuse_elsewhere(provider, elsewhere, f"{base} points")


def check_endpoint(provider: Provider, base_url: object, *, simulated: bool) -> None:
    """Compare where a client sends its requests with what the run is said to be.

    Args:
        provider: whose client it is.
        base_url: as the SDK's client itself has it.
        simulated: whether somebody else than the provider is meant.

    Raises:
        Refused: they do not agree.
    """
    if not simulated:
        _refuse_elsewhere(provider, str(base_url), "The SDK's client would send")
    elif _host(provider, str(base_url)) == HOSTS[provider.name]:
        raise Refused(
            f"--simulated names {HOSTS[provider.name]}, which is the provider itself. Leave the option out "
            "for a run that is paid."
        )


def _refuse_elsewhere(provider: Provider, url: str, what: str) -> None:
    if _host(provider, url) == HOSTS[provider.name]:
        return
    raise Refused(
        f"{what} to a host that is not https://{HOSTS[provider.name]}, so a run there would be no live "
        "evidence. Correct it, or say so with --simulated URL."
    )


def _host(provider: Provider, url: str) -> str:
    try:
        return host_of(provider.name, httpx2.URL(url))
    except httpx2.InvalidURL:
        raise Refused("The base URL is not a URL. Correct it.") from None
