"""Configuration of the compatibility profile: the shape and defaults of the Causal Memory Layer."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from memoflow.canonical import JSON
from memoflow.causal._reading import items, mapping, text, texts
from memoflow.causal.classes import class_named
from memoflow.causal.compat.cause_band import CauseBand, evaluate_cause_band
from memoflow.causal.ctag import ActionClass
from memoflow.causal.findings import Severity, severity_of
from memoflow.causal.secrets import SecretPatterns
from memoflow.errors import ConfigurationError

__all__ = ["CompatConfig", "CustomRule", "compat_config", "custom_rules_from", "secrets_from"]

_FIXTURE: Final = re.compile(r"[A-Za-z0-9._-]+\.json")


@dataclass(frozen=True, slots=True)
class CustomRule:
    """A rule of a configuration: an action of one class needs an ancestor of another.

    Attributes:
        trigger_class: the class of the actions that it is about.
        require_class: the class that one ancestor must have.
        require_prefix: how that same ancestor's ``permitted_by`` must begin.
    """

    id: str
    trigger_class: ActionClass
    description: str = ""
    severity: Severity = "FAIL"
    code: str = ""
    require_class: ActionClass | None = None
    require_prefix: str | None = None


@dataclass(frozen=True, slots=True)
class CompatConfig:
    """What the compatibility profile is told; the defaults are those of the Causal Memory Layer."""

    root_event_prefix: str = "root_event:"
    include_context: bool = False
    secrets: SecretPatterns = field(default_factory=SecretPatterns)
    net_out_actions: tuple[str, ...] = ("connect", "send")
    switches: Mapping[str, bool] = field(default_factory=dict)
    custom_rules: tuple[CustomRule, ...] = ()
    cause_band: CauseBand | None = None

    def enabled(self, rule: str) -> bool:
        """Whether a rule counts: every rule does that is not switched off."""
        return self.switches.get(rule, True)


def compat_config(raw: object, fixture: Callable[[str], object] | None = None) -> CompatConfig:
    """A configuration from what was parsed. Unknown keys are ignored, as the Causal Memory Layer does.

    Args:
        raw: a mapping; None stands for an empty document.
        fixture: how a Cause Band fixture is read by its bare file name; without it, none can be named.

    Raises:
        ConfigurationError: something in it has another shape, or names a class or severity that is none.
    """
    config = mapping({} if raw is None else raw, "The audit configuration's root")
    net_out = mapping(config.get("net_out", {}), "'net_out'")
    defaults = CompatConfig()
    return CompatConfig(
        root_event_prefix=text(
            config.get("root_event_prefix", defaults.root_event_prefix), "'root_event_prefix'"
        ),
        include_context=bool(config.get("include_context", False)),
        secrets=secrets_from(config),
        net_out_actions=texts(net_out, "actions", defaults.net_out_actions),
        switches=dict(map(_switch, items(config, "rules"))),
        custom_rules=custom_rules_from(config),
        cause_band=_cause_band(config, fixture),
    )


def secrets_from(config: Mapping[str, JSON]) -> SecretPatterns:
    """The patterns under ``secret``.

    Raises:
        ConfigurationError: as `compat_config`.
    """
    section = mapping(config.get("secret", {}), "'secret'")
    default = SecretPatterns()
    return SecretPatterns(
        texts(section, "classifications", default.classifications),
        texts(section, "path_prefixes", default.path_prefixes),
        texts(section, "extensions", default.extensions),
    )


def custom_rules_from(config: Mapping[str, JSON]) -> tuple[CustomRule, ...]:
    """The rules under ``custom_rules``.

    Raises:
        ConfigurationError: as `compat_config`.
    """
    return tuple(map(_custom_rule, items(config, "custom_rules")))


def _custom_rule(raw: object) -> CustomRule:
    rule = mapping(raw, "Every item of 'custom_rules'")
    for key in ("id", "trigger_class"):
        if key not in rule:
            raise ConfigurationError(f"A custom rule has no {key!r}. Give it one.")
    name = str(rule["id"])
    required = rule.get("require_ancestor_class")
    prefix = rule.get("require_ancestor_permitted_by_prefix")
    return CustomRule(
        id=name,
        trigger_class=class_named(rule["trigger_class"], "trigger_class"),
        description=str(rule.get("description", "")),
        severity=severity_of(rule.get("severity", "FAIL")),
        code=str(rule.get("code") or f"CML-AUDIT-{name}"),
        require_class=None if required is None else class_named(required, "require_ancestor_class"),
        require_prefix=None if prefix is None else text(prefix, "'require_ancestor_permitted_by_prefix'"),
    )


def _switch(raw: object) -> tuple[str, bool]:
    rule = mapping(raw, "Every item of 'rules'")
    if "id" not in rule:
        raise ConfigurationError("An item of 'rules' has no 'id'. Give it that of the rule it is about.")
    return str(rule["id"]), bool(rule.get("enabled", True))


def _cause_band(config: Mapping[str, JSON], fixture: Callable[[str], object] | None) -> CauseBand | None:
    experimental = mapping(config.get("experimental", {}), "'experimental'")
    name = experimental.get("cause_band_fixture")
    if not experimental.get("enable_cause_band") or name is None:
        return None
    if not isinstance(name, str) or not _FIXTURE.fullmatch(name):
        raise ConfigurationError("'cause_band_fixture' must be the bare name of a .json file.")
    if fixture is None:
        raise ConfigurationError("A Cause Band fixture can only be named in a configuration that is a file.")
    return evaluate_cause_band(fixture(name))
