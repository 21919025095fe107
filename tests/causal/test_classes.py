"""Classes of actions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from memoflow.causal.classes import Classified, ClassRule, action_class, class_named, classify, record_class
from memoflow.causal.ctag import ActionClass
from memoflow.errors import ConfigurationError
from tests.causal._records import rec

EGRESS = ActionClass.DATA_EGRESS


@pytest.mark.parametrize(
    ("action", "wanted"),
    [
        ("exec", "EXEC"),
        ("open", "READ"),
        ("Read", "READ"),
        ("write", "WRITE"),
        ("CONNECT", "NET_OUT"),
        ("send", "NET_OUT"),
        ("send_mail", "NONE"),
        ("", "NONE"),
    ],
)
def test_six_actions_have_a_class(action: str, wanted: str) -> None:
    """In any case; all others have none."""
    assert action_class(action).name == wanted


def test_a_tag_counts_before_the_action() -> None:
    """Also one that says that there is no class."""
    assert record_class(rec("a", action="send", ctag=0)) == ActionClass.NONE
    assert record_class(rec("a", action="send", ctag=0xDC00)) == EGRESS


@pytest.mark.parametrize(
    ("rule", "fits"),
    [
        ({"tool": "send_*"}, True),
        ({"tool": "SEND_*"}, False),
        ({"tool": "send"}, False),
        ({"action": "s?nd"}, True),
        ({"action": "read"}, False),
        ({"risk": ("medium", "high")}, True),
        ({"risk": ("low",)}, False),
        ({"arguments": (("to", "*@example.com"),)}, True),
        ({"arguments": (("to", "*@corp.example"),)}, False),
        ({"arguments": (("copies", "3"),)}, True),
        ({"arguments": (("urgent", "true"),)}, True),
        ({"arguments": (("list", "*@example.com"),)}, True),
        ({"arguments": (("list", "*@corp.example"),)}, False),
        ({"arguments": (("nested", "7"),)}, True),
        ({"arguments": (("object", "*"),)}, False),
        ({"arguments": (("none", "*"),)}, False),
        ({"tool": "send_*", "risk": ("low",)}, False),
    ],
)
def test_rules_classify_by_all_that_they_say(rule: dict[str, Any], fits: bool) -> None:
    """Tool, action, risk and arguments; every part that is given must fit."""
    request: dict[str, Any] = {
        "to": "bob@example.com",
        "copies": 3,
        "urgent": True,
        "list": ["x", "b@example.com"],
    }
    request |= {"nested": [[], [{"to": "b"}, 7]], "object": {"to": "b"}}
    record = rec("a", action="send", object={"tool": "send_mail", "risk_level": "high", "request": request})
    assert ClassRule(action_class=EGRESS, **rule).fits(record) is fits


def test_the_first_rule_that_fits_counts_before_a_tag() -> None:
    """So a tag cannot make a risky tool harmless; what no rule knows has its tag's class, or its action's."""
    rules = [
        ClassRule(action_class=EGRESS, tool="send_*"),
        ClassRule(action_class=ActionClass.READ, tool="*"),
    ]
    record = rec("a", action="send", ctag=0, object={"tool": "send_mail"})
    assert classify(record, rules) == Classified(EGRESS, "rule")
    assert classify(record, []) == Classified(ActionClass.NONE, "ctag")
    assert classify(replace(record, ctag=None), []) == Classified(ActionClass.NET_OUT, "action")
    assert classify(rec("a", object="/x"), rules) == Classified(ActionClass.NONE, "action")


def test_classes_are_named_in_any_case() -> None:
    """And a name that is none is refused with where it stands."""
    assert class_named("data_egress", "class") == EGRESS
    with pytest.raises(ConfigurationError, match="Unknown class: bogus"):
        class_named("bogus", "class")
