"""The policy that is used where no other is given.

What destroys, changes rights or sends something away because a text said so is denied; so is sending away a
credential. What is only unusual asks.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from memoflow.inspection.policy import Policy

__all__ = ["shipped_policy"]

_ANY: Final = ["network", "mcp", "subagent"]
_RULES: Final[tuple[tuple[str, str, dict[str, Any], str], ...]] = (
    (
        "deny-known-secret",
        "deny",
        {"detector": "secret.known", "facet": "tool_args", "min_action_class": "side_effecting"},
        "a credential of this process stands in the arguments",
    ),
    (
        "deny-known-secret-egress",
        "deny",
        {"detector": "secret.known", "facet": "tool_args", "egress_not_allowlisted": True},
        "a credential of this process would leave in a request to a host that is not listed",
    ),
    (
        "deny-secret-egress",
        "deny",
        {"detector": "secret", "facet": "tool_args", "min_severity": "high", "min_action_class": "network"},
        "a credential would leave",
    ),
    (
        "deny-secret-in-url",
        "deny",
        {"detector": "egress.secret_in_url"},
        "a credential would leave in a request to a host that is not listed",
    ),
    (
        "deny-tainted-destructive",
        "deny",
        {"taint": _ANY, "action_class": "destructive"},
        "something would be destroyed because an untrusted text names it",
    ),
    (
        "deny-tainted-privilege",
        "deny",
        {"taint": _ANY, "action_class": "privilege_changing"},
        "rights or credentials would be touched because an untrusted text names them",
    ),
    (
        "deny-subagent-escalation",
        "deny",
        {"subagent_escalation": True},
        "a subagent was given a tool that its parent does not hold",
    ),
    (
        "deny-metadata-host",
        "deny",
        {"detector": "egress.metadata"},
        "the host gives out the credentials of the machine",
    ),
    ("deny-private-host", "deny", {"detector": "egress.private"}, "the address is in a private network"),
    (
        "ask-secret-egress",
        "ask",
        {"detector": "secret", "facet": "tool_args", "min_severity": "medium", "min_action_class": "network"},
        "what looks like a credential would leave",
    ),
    (
        "ask-tainted-argument",
        "ask",
        {"detector": "provenance", "min_severity": "high", "min_action_class": "side_effecting"},
        "who gets it, or where it goes, comes from an untrusted text and not from the user",
    ),
    (
        "ask-tainted-credential-read",
        "ask",
        {"taint": _ANY, "touches_sensitive_path": True},
        "an untrusted text names a place where credentials are kept",
    ),
    (
        "ask-sensitive-path-egress",
        "ask",
        {"touches_sensitive_path": True, "min_action_class": "network"},
        "a place where credentials are kept is named in a call that sends, or changes rights",
    ),
    (
        "ask-pii-egress",
        "ask",
        {"detector": "pii", "facet": "tool_args", "min_severity": "high", "min_action_class": "network"},
        "personal data would leave",
    ),
    (
        "ask-dangerous-command",
        "ask",
        {
            "detector": "output",
            "facet": "tool_args",
            "min_severity": "critical",
            "min_action_class": "network",
        },
        "the command can destroy the system, or runs what it downloads",
    ),
    (
        "ask-unbounded-change",
        "ask",
        {"detector": "output.sql_unbounded", "action_class": "destructive"},
        "the statement changes every row",
    ),
    (
        "ask-dropped-table",
        "ask",
        {"detector": "output.sql_drop", "action_class": "destructive"},
        "the statement removes more than rows",
    ),
    (
        "ask-image-egress",
        "ask",
        {"detector": "output.markdown_image", "min_action_class": "network"},
        "an image that is loaded when it is shown carries data in its address",
    ),
    (
        "ask-injection-in-result",
        "ask",
        {"detector": "injection", "facet": "tool_result", "min_severity": "high"},
        "a result speaks to the model",
    ),
    (
        "ask-injection-in-report",
        "ask",
        {"detector": "injection", "facet": "subagent_report", "min_severity": "high"},
        "the report of a subagent speaks to the model",
    ),
    (
        "ask-injection-in-tool-description",
        "ask",
        {"detector": "injection", "facet": "tool_description", "min_severity": "medium"},
        "the description of a tool speaks to the model",
    ),
    (
        "ask-manifest-drift",
        "ask",
        {"mcp_manifest_changed": True},
        "a server describes its tools otherwise now",
    ),
    ("ask-tool-shadow", "ask", {"mcp_tool_shadow": True}, "two servers offer a tool of one name"),
    (
        "ask-without-history",
        "ask",
        {"detector": "unseen.history", "min_action_class": "side_effecting"},
        "what was read in this session before is not known",
    ),
    (
        "ask-not-seen-whole",
        "ask",
        {"detector": "unseen.cut", "min_action_class": "network"},
        "a text is too long to be looked at whole",
    ),
    (
        "ask-ambiguous-arguments",
        "ask",
        {"detector": "arguments", "min_action_class": "side_effecting"},
        "two parsers may read the arguments differently",
    ),
    (
        "ask-ambiguous-url",
        "ask",
        {"detector": "egress.ambiguous"},
        "two clients may read the URL differently",
    ),
    ("ask-unknown-host", "ask", {"egress_not_allowlisted": True}, "the host is not listed"),
    (
        "escalate-tainted-side-effect",
        "escalate",
        {"taint": _ANY, "min_action_class": "side_effecting"},
        "the call was made of an untrusted text",
    ),
)
_ALLOWLIST: Final = (
    "api.anthropic.com",
    "api.openai.com",
    "github.com",
    "raw.githubusercontent.com",
    "localhost",
    "127.0.0.1",
    "::1",
)


@cache
def shipped_policy() -> Policy:
    """The shipped policy; ``plain()`` of it is a file to begin with."""
    rules = [
        {
            "name": name,
            "when": when,
            "action": action,
            "message": message,
            **({"fallback": "allow"} if action == "escalate" else {}),
        }
        for name, action, when, message in _RULES
    ]
    return Policy.model_validate({"agent_policies": rules, "egress_allowlist": list(_ALLOWLIST)})
