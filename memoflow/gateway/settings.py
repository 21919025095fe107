"""Settings of the gateway: the command's options, else the environment (``MEMOFLOW_GATEWAY_…``).

The ledger itself is named as everywhere, by ``MEMOFLOW_DATABASE_URL`` and its like.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from memoflow.errors import ConfigurationError
from memoflow.pricing import Price, PriceBook
from memoflow.settings import check_variables, refusal

__all__ = ["GatewaySettings"]

_PREFIX: Final = "MEMOFLOW_GATEWAY_"
_LONGEST_KEY_FILE: Final = 4_096
_DAY: Final = 86_400.0


class GatewaySettings(BaseSettings):
    """How the gateway serves, and what it forwards to. Times are seconds, sizes bytes.

    Attributes:
        openai_key, anthropic_key: the upstream's own key; or the file it is in (``…_key_file``). A provider
            without one is not served.
        openai_base_url: as OpenAI's SDK takes it; anthropic_base_url: as Anthropic's does, without ``/v1``.
        output_tokens: the output that is reserved, and sent as the cap, for a request that names no cap.
        estimate_input: reserve an estimate of the input instead of a true upper bound.
        count_input: ask the provider to count an input that cannot be measured here, where its API counts.
        unmeasured_input: tokens to reserve for an input that nobody can measure; without it such a request
            needs accounts that do not limit tokens.
        on_disconnect: ``drain`` reads a reply to its end, for ``drain_seconds`` at most, when its client has
            gone, so that its usage is known; ``cancel`` closes it, and its outcome is unknown.
        on_unknown: for a repeated idempotency key whose earlier request is unresolved: ``retry`` sends a new
            one beside it, ``block`` refuses.
        provider_objects: ``refuse`` requests that name objects of the provider's account which nobody here
            can tell the owner of (files, conversations, stored prompts, vector stores); ``allow`` sends them.
        inspection: ``off``; ``shadow`` records what a policy would stop and stops nothing; ``enforce``
            refuses replies with calls that are denied. Needs the extra ``inspection``.
        inspection_policy: the policy file, or ``shipped``, as without one.
        on_ask: what becomes of a call about which the policy wants somebody to be asked: ``deny``, ``allow``.
        genai_prices: price with the tables of the ``genai-prices`` package.
        prices: prices per million tokens by model: input, output, cached input, cache write.
        timeout: a whole request; idle_timeout: the wait between two pieces of a reply; connect_timeout: for
            a connection to the provider; read_timeout: for the head of a request, and for its body;
            send_timeout: for a client to take a piece of its reply.
        max_requests: requests that a process serves at a time.
        shutdown_seconds: how long a stopping process waits for what is open, before it ends and records it.
    """

    model_config = SettingsConfigDict(
        env_prefix=_PREFIX, env_ignore_empty=True, extra="forbid", frozen=True, hide_input_in_errors=True
    )

    openai_key: SecretStr | None = None
    openai_key_file: Path | None = None
    openai_base_url: str = "https://api.openai.com/v1"
    anthropic_key: SecretStr | None = None
    anthropic_key_file: Path | None = None
    anthropic_base_url: str = "https://api.anthropic.com"
    host: str = "127.0.0.1"
    port: int = Field(default=8484, ge=0, le=65_535)
    workers: int = Field(default=1, ge=1, le=64)
    output_tokens: int = Field(default=4_096, ge=1, le=10_000_000)
    estimate_input: bool = False
    count_input: bool = True
    unmeasured_input: int | None = Field(default=None, ge=1, le=100_000_000)
    on_disconnect: Literal["drain", "cancel"] = "drain"
    on_unknown: Literal["retry", "block"] = "retry"
    provider_objects: Literal["refuse", "allow"] = "refuse"
    inspection: Literal["off", "shadow", "enforce"] = "off"
    inspection_policy: Path | None = None
    on_ask: Literal["deny", "allow"] = "deny"
    genai_prices: bool = False
    prices: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    timeout: float = Field(default=600.0, gt=0, le=_DAY)
    idle_timeout: float = Field(default=120.0, gt=0, le=_DAY)
    connect_timeout: float = Field(default=10.0, gt=0, le=600)
    read_timeout: float = Field(default=30.0, gt=0, le=600)
    send_timeout: float = Field(default=60.0, gt=0, le=600)
    drain_seconds: float = Field(default=120.0, ge=0, le=_DAY)
    shutdown_seconds: float = Field(default=30.0, ge=0, le=3_600)
    max_body_bytes: int = Field(default=32 * 1024 * 1024, ge=1_024, le=1024 * 1024 * 1024)
    max_head_bytes: int = Field(default=32 * 1024, ge=1_024, le=1024 * 1024)
    max_reply_bytes: int = Field(default=64 * 1024 * 1024, ge=1_024, le=1024 * 1024 * 1024)
    max_requests: int = Field(default=256, ge=1, le=100_000)

    def __init__(self, **values: Any) -> None:
        check_variables(_PREFIX, type(self).model_fields)
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise refusal(error, lambda name: _origin(name, values)) from None

    @field_validator("openai_base_url", "anthropic_base_url")
    @classmethod
    def _is_an_address(cls, value: str) -> str:
        parts = urlsplit(value)
        plain = not (parts.query or parts.fragment or parts.username or parts.password)
        if parts.scheme not in ("http", "https") or not parts.hostname or not plain:
            raise ValueError("it must be an address such as https://api.example.com/v1, and nothing more")
        return value.rstrip("/")

    @field_validator("prices")
    @classmethod
    def _are_prices(cls, value: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        try:
            _book(value)
        except Exception as error:
            raise ValueError(str(error)) from None
        return value

    @model_validator(mode="after")
    def _one_key_each(self) -> Self:
        for name in ("openai", "anthropic"):
            if getattr(self, f"{name}_key") is not None and getattr(self, f"{name}_key_file") is not None:
                raise ValueError(f"{name}_key and {name}_key_file are both given; give one of them")
        return self

    @model_validator(mode="after")
    def _inspects_by_its_policy(self) -> Self:
        if self.inspection_policy is not None and self.inspection == "off":
            raise ValueError(
                "inspection_policy is given, but inspection is off; set inspection to shadow or enforce"
            )
        return self

    def upstream_key(self, provider: str) -> str | None:
        """The key for a provider, or None where none is configured.

        Raises:
            ConfigurationError: its file cannot be read, or does not hold one key.
        """
        given: SecretStr | None = getattr(self, f"{provider}_key")
        file: Path | None = getattr(self, f"{provider}_key_file")
        if given is not None:
            return _checked(given.get_secret_value(), f"{_PREFIX}{provider.upper()}_KEY")
        return None if file is None else _checked(_read(file), f"the file {str(file)!r}")

    def price_book(self, provider: str) -> PriceBook:
        """The prices of a provider's models.

        Raises:
            ConfigurationError: ``genai_prices`` is asked for and the package is not installed.
        """
        book = PriceBook.from_genai_prices(provider) if self.genai_prices else PriceBook()
        for model, price in _prices(self.prices):
            book.put(model, price)
        return book

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments, then the environment: nothing else is read."""
        return init_settings, env_settings


def _origin(name: str, arguments: dict[str, Any]) -> str:
    if name in arguments:
        return f"the argument {name}"
    variable = f"{_PREFIX}{name.upper()}"
    return f"the environment variable {variable}" if os.environ.get(variable) else name or "the gateway"


def _prices(given: dict[str, tuple[str, ...]]) -> list[tuple[str, Price]]:
    return [(model, Price(*amounts)) for model, amounts in given.items()]


def _book(given: dict[str, tuple[str, ...]]) -> PriceBook:
    for model, amounts in given.items():
        if not 2 <= len(amounts) <= 4:
            raise ConfigurationError(
                f"The price of {model!r} has {len(amounts)} amounts. Give input, output and, if you like, "
                "cached input and cache write, for a million tokens each."
            )
    return PriceBook(dict(_prices(given)))


def _read(file: Path) -> str:
    try:
        with open(file, encoding="ascii") as opened:
            return opened.read(_LONGEST_KEY_FILE)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"The key file {str(file)!r} cannot be read ({type(error).__name__}). Correct its path or rights."
        ) from None


def _checked(text: str, where: str) -> str:
    key = text.strip()
    if not key or not key.isascii() or not key.isprintable() or any(c.isspace() for c in key):
        raise ConfigurationError(f"{where} does not hold one key: it must be one word of plain characters.")
    return key
