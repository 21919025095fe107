"""Settings of the gateway: where they come from, and what is refused."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from memoflow.errors import ConfigurationError
from memoflow.gateway import GatewaySettings, serve
from memoflow.gateway.service import check_settings


def test_settings_come_from_arguments_then_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """An argument wins over its variable, and a variable over the default."""
    monkeypatch.setenv("MEMOFLOW_GATEWAY_PORT", "9000")
    monkeypatch.setenv("MEMOFLOW_GATEWAY_ON_DISCONNECT", "cancel")
    assert GatewaySettings().port == 9000
    made = GatewaySettings(port=9001)
    assert (made.port, made.on_disconnect) == (9001, "cancel")


def test_a_misspelt_variable_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that is nearly a setting is most likely meant as one."""
    monkeypatch.setenv("MEMOFLOW_GATEWAY_OPENAI_KEYS", "sk-1")
    with pytest.raises(ConfigurationError, match="Did you mean MEMOFLOW_GATEWAY_OPENAI_KEY"):
        GatewaySettings()


@pytest.mark.parametrize(
    "wrong",
    [
        {"openai_base_url": "ftp://example.com"},
        {"openai_base_url": "https://user:secret@example.com"},
        {"anthropic_base_url": "https://example.com/?x=1"},
        {"port": 70_000},
        {"on_disconnect": "wait"},
        {"timeout": 0},
        {"prices": {"gpt": ("1",)}},
        {"prices": {"g*t": ("1", "2")}},
        {"prices": {"gpt": ("one", "2")}},
        {"nothing": 1},
        {"openai_key": "sk-secret", "openai_key_file": "/nowhere"},
        {"inspection_policy": "shipped"},
    ],
    ids=lambda wrong: "-".join(wrong),
)
def test_a_value_that_cannot_be_is_refused_without_repeating_it(wrong: dict[str, Any]) -> None:
    """The sentence names the setting; no key or address is in it."""
    with pytest.raises(ConfigurationError) as raised:
        GatewaySettings(**wrong)
    assert "configuration is not valid" in str(raised.value)
    assert "secret" not in str(raised.value)


def test_a_key_may_be_in_a_file(tmp_path: Path) -> None:
    """The file holds nothing but the key; white space around it does not count."""
    file = tmp_path / "key"
    file.write_text("sk-from-file\n")
    made = GatewaySettings(openai_key_file=file)
    assert made.upstream_key("openai") == "sk-from-file"
    assert made.upstream_key("anthropic") is None
    for text in ("", "two words", "schlüssel"):
        file.write_text(text)
        with pytest.raises(ConfigurationError):
            made.upstream_key("openai")
    file.unlink()
    with pytest.raises(ConfigurationError, match="cannot be read"):
        made.upstream_key("openai")


def test_keys_are_in_no_text_of_the_settings() -> None:
    """Neither the settings nor what is made of them show an upstream's key."""
    made = GatewaySettings(openai_key="sk-very-secret")
    assert "very-secret" not in f"{made!r} {made} {made.model_dump_json()}"


def test_prices_are_exact() -> None:
    """Amounts per million tokens, as decimals."""
    book = GatewaySettings(prices={"gpt-5*": ("0.25", "2.00", "0.025")}).price_book("openai")
    assert book.cost("gpt-5-mini", input_tokens=1_000_000, output_tokens=0) == 250_000_000
    assert book.get("claude") is None


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, "no key of any provider"),
        ({"openai_key": "sk", "inspection": "shadow", "inspection_policy": "nowhere.yaml"}, "nowhere.yaml"),
    ],
)
def test_what_cannot_be_used_is_refused_before_serving(given: dict[str, Any], named: str) -> None:
    """As one sentence, where a server would end in the middle of starting."""
    with pytest.raises(ConfigurationError, match=named):
        check_settings(GatewaySettings(**given))


def test_the_shipped_policy_can_be_named() -> None:
    """By the word by which it is named elsewhere."""
    check_settings(GatewaySettings(openai_key="sk", inspection="enforce", inspection_policy="shipped"))


def test_an_address_that_is_taken_is_refused(sqlite_url: str) -> None:
    """With what to change."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"cannot listen on 127.0.0.1, port {port}"):
            serve(sqlite_url, None, GatewaySettings(openai_key="sk", port=port))
