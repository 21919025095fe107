"""Settings from the environment (``MEMOFLOW_…``) and the ``[tool.memoflow]`` table of ``pyproject.toml``.

Import this module only where settings are read: it loads pydantic-settings.
"""

from __future__ import annotations

import logging
import os
import tomllib
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

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

__all__ = ["MemoflowSettings", "check_variables", "refusal"]

log = logging.getLogger(__name__)

_PREFIX: Final = "MEMOFLOW_"
_NEAR: Final = 0.85
"""A letter or two too many, too few or in the wrong place; less alike may be anybody's own variable."""
_OTHERS: Final = (
    *("MEMOFLOW_ANTHROPIC_", "MEMOFLOW_OPENAI_"),
    *("MEMOFLOW_BENCH_", "MEMOFLOW_GATEWAY_", "MEMOFLOW_TEST_"),
)
"""Variables of the gateway, and of memoflow's own tests, benchmarks and live certification."""


class MemoflowSettings(BaseSettings):
    """What a runtime is opened with when its arguments do not say otherwise.

    Arguments win over the environment, and the environment over the nearest ``pyproject.toml`` in
    or above the working directory that has a ``[tool.memoflow]`` table. Empty variables count as unset,
    others that are no setting are warned of.

    Attributes:
        database_url: SQLAlchemy URL of the ledger; may hold a password, so it is not in the repr.
        namespace: tenant boundary of everything written and read.
        output_keys: key ring of the protected output store, as `KeyRing.parse` reads it.
        digest_key: ``id:base64`` of a key for digests, at least 16 bytes.
        lease_seconds: how long an attempt may be silent before another may take over, 1 to 86400.
        output_retention: for how many days outputs are kept, 1 to 36500 (or ``30d``); ``none`` keeps them.
        audit_rules: a file with rules of the causal audit, by which tool calls of models are judged.
        inspection: a policy file, or ``shipped``, by which tool calls of models are inspected.
        inspection_mode: ``shadow`` records what would be decided, ``enforce`` acts.
        inspection_on_ask: what ``ask`` becomes in ``enforce``: it waits for an approval (``ask``), or where
            nobody gives any, ``deny`` or ``allow``.

    Raises:
        ConfigurationError: a value is not valid, a key of the table is not known, or a variable has nearly
            the name of a setting. No value is repeated.
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
    audit_rules: Path | None = None
    inspection: str | None = Field(default=None, min_length=1)
    inspection_mode: Literal["shadow", "enforce"] = "shadow"
    inspection_on_ask: Literal["ask", "deny", "allow"] = "deny"

    def __init__(self, **values: Any) -> None:
        check_variables(_PREFIX, type(self).model_fields, others=_OTHERS)
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise refusal(error, lambda name: _origin(name, values)) from None

    @field_validator("namespace")
    @classmethod
    def _namespace_is_a_name(cls, value: str) -> str:
        try:
            return check_name("namespace", value)
        except InvalidRequest as error:
            raise ValueError(str(error)) from None

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
            _checked(lambda: KeyRing.parse(value.get_secret_value()))
        return value

    @field_validator("digest_key")
    @classmethod
    def _is_a_digest_key(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            _checked(lambda: _digester(value))
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
        return init_settings, env_settings, InitSettingsSource(settings_cls, _table()[1])


def _checked(check: Callable[[], object]) -> None:
    try:
        check()
    except ConfigurationError as error:
        raise ValueError(str(error)) from None


def check_variables(prefix: str, fields: Iterable[str], *, others: tuple[str, ...] = ()) -> None:
    """Refuse a variable whose name is nearly that of a setting; warn of others that are none.

    Args:
        prefix: what the names of all settings begin with.
        fields: the settings, without it.
        others: beginnings of names that are somebody else's.

    Raises:
        ConfigurationError: one is most likely misspelt.
    """
    known = [f"{prefix}{name.upper()}" for name in fields]
    for name, value in os.environ.items():
        given = name.upper()
        if not value or not given.startswith(prefix) or given in known or given.startswith(others):
            continue
        meant = get_close_matches(
            given.removeprefix(prefix), [one.removeprefix(prefix) for one in known], 1, _NEAR
        )
        if meant:
            raise ConfigurationError(
                f"The environment variable {name} is not a setting. Did you mean {prefix}{meant[0]}? "
                "Correct or unset it."
            )
        _warn_once(name, ", ".join(known))


@cache
def _warn_once(name: str, known: str) -> None:
    log.warning("the environment variable %s is not a setting and is not read; settings are %s", name, known)


def _digester(secret: SecretStr) -> Digester:
    keys = parse_keys(secret.get_secret_value())
    if len(keys) != 1:
        raise ConfigurationError(f"A digest key is one key of the form id:base64, not {len(keys)} of them.")
    key_id, key = keys[0]
    return Digester(key, key_id)


def refusal(error: ValidationError, origin: Callable[[str], str]) -> ConfigurationError:
    """What is wrong with settings, each with where it came from; no value is repeated."""
    problems = [
        f"{origin('.'.join(map(str, problem['loc'])))}: "
        f"{problem['msg'].removeprefix('Value error, ').removesuffix('.')}"
        for problem in error.errors(include_input=False, include_url=False, include_context=False)
    ]
    return ConfigurationError(f"The configuration is not valid. {'; '.join(problems)}. Correct it there.")


def _origin(name: str, arguments: Mapping[str, Any]) -> str:
    """Where the value of a setting came from."""
    if name in arguments:
        return f"the argument {name}"
    variable = f"{_PREFIX}{name.upper()}"
    if any(key.upper() == variable and value for key, value in os.environ.items()):
        return f"the environment variable {variable}"
    path, _ = _table()
    return f"{name} in [tool.memoflow] of {str(path)!r}"


def _table() -> tuple[Path | None, dict[str, Any]]:
    """The nearest table, and the file it is in."""
    try:
        here = Path.cwd()
    except OSError:
        return None, {}
    for directory in (here, *here.parents):
        path = directory / "pyproject.toml"
        table = _read_table(path)
        if table is not None:
            return path, table
    return None, {}


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
