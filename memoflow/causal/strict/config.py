"""The strict audit's rules: a configuration of the Causal Memory Layer, and a section ``strict``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from memoflow.canonical import JSON
from memoflow.causal._reading import flag, items, mapping, only, text, texts
from memoflow.causal.classes import ClassRule, class_named
from memoflow.causal.codes import PREFIX, Code
from memoflow.causal.compat.config import custom_rules_from, secrets_from
from memoflow.causal.ctag import ActionClass
from memoflow.causal.findings import Severity, severity_of
from memoflow.causal.strict.rules import StrictRules
from memoflow.errors import ConfigurationError

__all__ = ["strict_rules"]

_TOP: Final = (
    "version",
    "root_event_prefix",
    "include_context",
    "secret",
    "net_out",
    "rules",
    "custom_rules",
    "experimental",
    "strict",
)
_CUSTOM: Final = (
    "id",
    "description",
    "trigger_class",
    "severity",
    "code",
    "require_ancestor_class",
    "require_ancestor_permitted_by_prefix",
)
_REFERENCE_RULES: Final = frozenset({"R1", "R2", "R3", "R4"})


def strict_rules(raw: object) -> StrictRules:
    """Rules from what was parsed. Keys that are not known are refused: a misspelt rule would not be there.

    Args:
        raw: a mapping; None stands for an empty document.

    Raises:
        ConfigurationError: something in it has another shape, is not known, or contradicts itself.
    """
    config = mapping({} if raw is None else raw, "The audit configuration's root")
    only(config, _TOP, "The audit configuration")
    secret = mapping(config.get("secret", {}), "'secret'")
    net_out = mapping(config.get("net_out", {}), "'net_out'")
    only(secret, ("classifications", "path_prefixes", "extensions"), "'secret'")
    only(net_out, ("actions", "external_only"), "'net_out'")
    for rule in items(config, "custom_rules"):
        only(mapping(rule, "Every item of 'custom_rules'"), _CUSTOM, "A custom rule")
    strict = mapping(config.get("strict", {}), "'strict'")
    only(strict, _SECTION, "'strict'")
    given: dict[str, Any] = {key: read(strict, key) for key, read in _SECTION.items() if key in strict}
    custom = custom_rules_from(config)
    severities = _severities(config, {rule.id for rule in custom})
    return StrictRules(
        root_prefix=text(config.get("root_event_prefix", "root_event:"), "'root_event_prefix'"),
        secrets=secrets_from(config),
        net_out_actions=texts(net_out, "actions", ("connect", "send")),
        custom_rules=tuple(rule for rule in custom if severities.pop(rule.id, None) != "OFF"),
        severities=severities,
        **given,
    )


def _severities(config: Mapping[str, JSON], custom: set[str]) -> dict[str, Severity | Literal["OFF"]]:
    """What ``rules`` says, by code; codes may be given with or without their prefix."""
    result: dict[str, Severity | Literal["OFF"]] = {}
    for item in items(config, "rules"):
        rule = mapping(item, "Every item of 'rules'")
        only(rule, ("id", "enabled", "severity"), "An item of 'rules'")
        name = text(rule.get("id"), "The 'id' of an item of 'rules'")
        enabled = flag(rule.get("enabled", True), "'enabled'")
        if name in _REFERENCE_RULES:
            continue
        code = name if name in custom else _code(name)
        if not enabled:
            result[code] = "OFF"
        elif "severity" in rule:
            result[code] = severity_of(rule["severity"])
    return result


def _code(name: str) -> str:
    try:
        return Code(name if name.startswith(PREFIX) else PREFIX + name)
    except ValueError:
        known = ", ".join(code.removeprefix(PREFIX) for code in Code)
        raise ConfigurationError(
            f"There is no rule {name[:80]!r}. The rules of the strict profile: {known}."
        ) from None


def _classes(section: Mapping[str, JSON], key: str) -> frozenset[ActionClass]:
    return frozenset(class_named(item, f"class in {key!r}") for item in items(section, key))


def _approvers(section: Mapping[str, JSON], key: str) -> dict[str, tuple[str, ...]]:
    prefixes = mapping(section[key], f"{key!r}")
    if "" in prefixes:
        raise ConfigurationError("A prefix of approvals must not be empty: every permission would be one.")
    return {prefix: texts(prefixes, prefix, ()) for prefix in prefixes}


def _class_rules(section: Mapping[str, JSON], key: str) -> tuple[ClassRule, ...]:
    return tuple(map(_class_rule, items(section, key)))


def _class_rule(raw: object) -> ClassRule:
    rule = mapping(raw, "Every item of 'classes'")
    only(rule, ("class", "tool", "action", "risk", "arguments"), "An item of 'classes'")
    if "class" not in rule or len(rule) == 1:
        raise ConfigurationError(
            "An item of 'classes' needs its 'class', and at least one thing to know it by."
        )
    arguments = mapping(rule.get("arguments", {}), "'arguments'")
    return ClassRule(
        action_class=class_named(rule["class"], "class"),
        tool=_pattern(rule, "tool"),
        action=_pattern(rule, "action"),
        risk=texts(rule, "risk", ()),
        arguments=tuple(
            (name, text(pattern, "A pattern in 'arguments'")) for name, pattern in arguments.items()
        ),
    )


def _pattern(rule: Mapping[str, JSON], key: str) -> str | None:
    return text(rule[key], f"{key!r}") if key in rule else None


def _texts(section: Mapping[str, JSON], key: str) -> tuple[str, ...]:
    return texts(section, key, ())


_SECTION: Final[dict[str, Callable[[Mapping[str, JSON], str], object]]] = {
    "roots": _texts,
    "root_actors": _texts,
    "permissions": _texts,
    "approvers": _approvers,
    "approval_classes": _classes,
    "approval_risks": _texts,
    "classes": _class_rules,
    "outgoing": _classes,
}
