"""What a run is refused for before anything is sent, and in which words."""

from __future__ import annotations

import httpx2
import pytest

from certification.live.endpoint import host_of
from certification.live.inputs import SIMULATED_KEY, check_endpoint, read_inputs
from certification.live.provider import Provider
from certification.live.refused import Refused

KEY = "sk-key-5f3a9c"


def environment(provider: Provider, **more: str | None) -> dict[str, str]:
    """All that a live run needs, with changes: LIVE, MODEL, API_KEY, BASE_URL, CUSTOM_HEADERS."""
    given: dict[str, str | None] = {"LIVE": "1", "MODEL": "some-model", "API_KEY": KEY, **more}
    own = ("LIVE", "MODEL")
    named = {provider.setting(n) if n in own else provider.variable(n): v for n, v in given.items()}
    return {name: value for name, value in named.items() if value is not None}


def refusal(provider: Provider, given: dict[str, str], simulated_url: str | None = None) -> str:
    """The sentence with which these inputs are refused."""
    with pytest.raises(Refused) as refused:
        read_inputs(provider, given, simulated_url)
    return str(refused.value)


def test_all_three_inputs_make_a_run(provider: Provider) -> None:
    """The key goes to the provider's own API, and is shown nowhere."""
    inputs = read_inputs(provider, environment(provider), None)
    assert (inputs.model, inputs.key, inputs.base_url, inputs.simulated) == (
        "some-model",
        KEY,
        provider.base_url,
        False,
    )
    assert KEY not in repr(inputs)


@pytest.mark.parametrize("name", ["LIVE", "MODEL", "API_KEY"])
@pytest.mark.parametrize("value", [None, ""], ids=["unset", "empty"])
def test_each_input_is_needed(provider: Provider, name: str, value: str | None) -> None:
    """None has a default, and the one that is missing is named beside all that are needed."""
    variable = provider.setting(name) if name != "API_KEY" else provider.variable(name)
    upper = provider.name.upper()
    assert refusal(provider, environment(provider, **{name: value})) == (
        f"This needs MEMOFLOW_{upper}_LIVE=1, MEMOFLOW_{upper}_MODEL and {upper}_API_KEY in the environment; "
        f"{variable} is not set. Nothing is assumed, since the calls are paid."
    )


def test_all_that_is_missing_is_named(provider: Provider) -> None:
    """Not one after the other."""
    upper = provider.name.upper()
    assert f"; MEMOFLOW_{upper}_LIVE, MEMOFLOW_{upper}_MODEL and {upper}_API_KEY are not set." in refusal(
        provider, {}
    )


@pytest.mark.parametrize("value", ["0", "true", "yes", "01", " 1"])
def test_only_one_says_that_real_calls_are_wanted(provider: Provider, value: str) -> None:
    """Anything but 1 is refused, and not read as yes or no."""
    variable = provider.setting("LIVE")
    assert refusal(provider, environment(provider, LIVE=value)) == (
        f"{variable} is set, but not to 1, which says that real calls are wanted and may be paid."
    )


@pytest.mark.parametrize("model", [KEY, f"x{KEY}", "sk-other", "two words", "näme", "a\n", "x" * 129, "-x"])
def test_a_model_looks_like_one(provider: Provider, model: str) -> None:
    """Its name is published, so a key in its place is refused; the sentence repeats neither."""
    said = refusal(provider, environment(provider, MODEL=model))
    assert said.startswith(f"{provider.setting('MODEL')} does not look like the name of a model:")
    assert KEY not in said


def test_headers_from_the_environment_are_refused(provider: Provider) -> None:
    """The SDK would add them to every request, and no evidence could tell of it."""
    said = refusal(provider, environment(provider, CUSTOM_HEADERS="X-Route: elsewhere"))
    assert said.startswith(f"{provider.variable('CUSTOM_HEADERS')} is set, ")


@pytest.mark.parametrize("url", ["http://127.0.0.1:8080/v1", "https://gateway.invalid/v1"])
def test_a_base_url_elsewhere_is_refused(provider: Provider, url: str) -> None:
    """Also where the SDK would not even be asked for it: whoever set it expects that it is used."""
    said = refusal(provider, environment(provider, BASE_URL=url))
    assert said == (
        f"{provider.variable('BASE_URL')} points to a host that is not https://api.{provider.name}.com, so a "
        "run there would be no live evidence. Correct it, or say so with --simulated URL."
    )


def test_the_own_base_url_is_no_other(provider: Provider) -> None:
    """Named in the environment it changes nothing."""
    assert not read_inputs(provider, environment(provider, BASE_URL=provider.base_url), None).simulated


def test_what_is_no_url_is_refused(provider: Provider) -> None:
    """In words."""
    said = refusal(provider, environment(provider, BASE_URL="http://[::1"))
    assert said == "The base URL is not a URL. Correct it."


def test_a_simulated_run_needs_a_model_alone(provider: Provider) -> None:
    """A real key is not read, so that it can go nowhere."""
    given = environment(provider, LIVE=None)
    inputs = read_inputs(provider, given, "http://127.0.0.1:1/v1")
    assert (inputs.key, inputs.base_url, inputs.simulated) == (SIMULATED_KEY, "http://127.0.0.1:1/v1", True)


def test_a_simulated_run_without_a_model_is_refused(provider: Provider) -> None:
    """What was asked for is part of the evidence."""
    variable = provider.setting("MODEL")
    assert refusal(provider, environment(provider, MODEL=None), "http://127.0.0.1:1/v1") == (
        f"This needs {variable} in the environment; {variable} is not set. Nothing is assumed, since the "
        "calls are made elsewhere."
    )


OWN = ["https://{host}/v1", "https://{host}", "https://{host}:443/v1", "https://{HOST}/v1"]
ELSEWHERE = [
    "http://{host}/v1",
    "https://{host}:8443/v1",
    "https://{host}./v1",
    "https://{host}.evil.invalid/v1",
    "https://evil.invalid/{host}",
    "https://evil.invalid#@{host}/",
    "https://{host}@evil.invalid/v1",
    "https://me:secret@{host}/v1",
    "https://eu.{host}/v1",
    "https://x{host}/v1",
    "https://\N{CYRILLIC SMALL LETTER A}{tail}/v1",
    "https://127.0.0.1/v1",
    "wss://{host}/v1",
    "",
]


def url_of(provider: Provider, form: str) -> str:
    """A URL with the provider's host in some place."""
    host = f"api.{provider.name}.com"
    return form.format(host=host, HOST=host.upper(), tail=host[1:])


@pytest.mark.parametrize("form", OWN)
def test_the_providers_own_host(provider: Provider, form: str) -> None:
    """HTTPS to exactly its name on the usual port, in any case."""
    url = url_of(provider, form)
    assert host_of(provider.name, httpx2.URL(url)) == f"api.{provider.name}.com"
    check_endpoint(provider, url, simulated=False)


@pytest.mark.parametrize("form", ELSEWHERE)
def test_everything_else_is_elsewhere(provider: Provider, form: str) -> None:
    """Look-alikes, ports, users, regions, plain HTTP: none of them is the provider."""
    url = url_of(provider, form)
    assert host_of(provider.name, httpx2.URL(url)) == "elsewhere"
    with pytest.raises(Refused, match=r"^The SDK's client would send to a host that is not https://api\."):
        check_endpoint(provider, url, simulated=False)
    check_endpoint(provider, url, simulated=True)


@pytest.mark.parametrize("form", OWN)
def test_the_provider_is_not_simulated(provider: Provider, form: str) -> None:
    """Whoever says that a run is simulated does not get one that is paid."""
    with pytest.raises(Refused, match=r"^--simulated names api\.\w+\.com, which is the provider itself\."):
        check_endpoint(provider, url_of(provider, form), simulated=True)
