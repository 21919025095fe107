"""Settings from the environment (``MEMOFLOW_…``) and the ``[tool.memoflow]`` table of ``pyproject.toml``.

Import this module only where settings are read: it loads pydantic-settings.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from memoflow.canonical import Digester
from memoflow.errors import ConfigurationError, InvalidRequest
from memoflow.identity import check_name
from memoflow.keyring import KeyRing, parse_keys

__all__ = ["MemoflowSettings"]

_PREFIX: Final = "MEMOFLOW_"


class MemoflowSettings(BaseSettings):
    """What a runtime is opened with when its arguments do not say otherwise.

    Arguments win over the environment, and the environment over the nearest ``pyproject.toml`` in
    or above the working directory that has a ``[tool.memoflow]`` table. Empty variables count as unset.

    Attributes:
        database_url: SQLAlchemy URL of the ledger; may hold a password, so it is not in the repr.
        namespace: tenant boundary of everything written and read.
        output_keys: key ring of the protected output store, as `KeyRing.parse` reads it.
        digest_key: ``id:base64`` of a key for digests, at least 16 bytes.
        lease_seconds: how long an attempt may be silent before another may take over, 1 to 86400.
        output_retention: for how many days outputs are kept, 1 to 36500 (or ``30d``); ``none`` keeps them.

    Raises:
        ConfigurationError: a value is not valid or a key of the table is not known. No value is repeated.
    """

    model_config = SettingsConfigDict(
        env_prefix=_PREFIX, env_ignore_empty=True, extra="forbid", frozen=True, hide_input_in_errors=True
    )

    database_url: str | None = Field(default=None, repr=False, min_length=1)
    namespace: str = "default"
    output_keys: SecretStr | None = None
    digest_key: SecretStr | None = None
    lease_seconds: int = Field(default=60, ge=1, le=86_400)
    output_retention: int | None = Field(default=30, ge=1, le=36_500)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ConfigurationError(_sentence(error)) from None

    @field_validator("namespace")
    @classmethod
    def _namespace_is_a_name(cls, value: str) -> str:
        try:
            return check_name("namespace", value)
        except InvalidRequest as error:
            raise ConfigurationError(f"{_PREFIX}NAMESPACE is not valid: {error}") from None

    @field_validator("output_retention", mode="before")
    @classmethod
    def _days_in_words(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        word = value.strip().lower()
        # Neither the environment nor TOML has a null.
        return None if word == "none" else word.removesuffix("d")

    @field_validator("lease_seconds", "output_retention", mode="before")
    @classmethod
    def _whole_number(cls, value: object) -> object:
        if isinstance(value, (bool, float)):
            raise ValueError("Input should be a whole number")
        return value

    @field_validator("output_keys")
    @classmethod
    def _is_a_key_ring(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            _as_setting("OUTPUT_KEYS", lambda: KeyRing.parse(value.get_secret_value()))
        return value

    @field_validator("digest_key")
    @classmethod
    def _is_a_digest_key(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            _as_setting("DIGEST_KEY", lambda: _digester(value))
        return value

    def key_ring(self) -> KeyRing | None:
        """The key ring of the output store, or None if no key is configured."""
        return None if self.output_keys is None else KeyRing.parse(self.output_keys.get_secret_value())

    def digester(self) -> Digester:
        """Keyed digests if a digest key is configured, else plain ones."""
        return Digester() if self.digest_key is None else _digester(self.digest_key)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments, environment, table: nothing else is read."""
        return init_settings, env_settings, InitSettingsSource(settings_cls, _table())


def _as_setting(name: str, check: Callable[[], object]) -> None:
    try:
        check()
    except ConfigurationError as error:
        raise ConfigurationError(f"{_PREFIX}{name} is not valid: {error}") from None


def _digester(secret: SecretStr) -> Digester:
    keys = parse_keys(secret.get_secret_value())
    if len(keys) != 1:
        raise ConfigurationError(f"A digest key is one id:base64, not {len(keys)} of them.")
    key_id, key = keys[0]
    return Digester(key, key_id)


def _sentence(error: ValidationError) -> str:
    problems = [
        f"{_PREFIX}{'.'.join(map(str, problem['loc'])).upper()}: {problem['msg']}"
        for problem in error.errors(include_input=False, include_url=False, include_context=False)
    ]
    return (
        f"The configuration is not valid. {'; '.join(problems)}. "
        "Correct the environment variable or its key in [tool.memoflow]."
    )


def _table() -> dict[str, Any]:
    try:
        here = Path.cwd()
    except OSError:
        return {}
    for directory in (here, *here.parents):
        table = _read_table(directory / "pyproject.toml")
        if table is not None:
            return table
    return {}


def _read_table(path: Path) -> dict[str, Any] | None:
    try:
        tool = tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {})
    except OSError:
        return None
    except ValueError:
        raise ConfigurationError(
            f"{str(path)!r} is not valid TOML, so it cannot be told whether it holds settings. Correct it."
        ) from None
    table = tool.get("memoflow") if isinstance(tool, dict) else None
    if table is not None and not isinstance(table, dict):
        raise ConfigurationError(f"tool.memoflow in {str(path)!r} must be a table: write [tool.memoflow].")
    return table
