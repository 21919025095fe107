"""Texts for the model: small JSON, bounded, always encodable, without content it must not see."""

from __future__ import annotations

import json

import pytest

from memoflow.tools import (
    approval_text,
    known_failure_text,
    not_encodable_text,
    refusal_text,
    review_required_text,
    too_large_text,
)


def test_refusal_text_is_small_json() -> None:
    """What the model reads is one small JSON object, whatever the detail holds."""
    assert refusal_text("UNKNOWN_TOOL", "No such tool.") == (
        '{"error":{"code":"UNKNOWN_TOOL","detail":"No such tool."}}'
    )
    text = refusal_text("X", "\ud800" + "y" * 5_000)
    text.encode()
    assert len(json.loads(text)["error"]["detail"]) == 2_000


def test_known_failure_is_given_to_the_model() -> None:
    """The message of a known failure reaches the model, bounded and encodable."""
    assert known_failure_text("No such order.") == (
        '{"error":{"code":"TOOL_FAILED","detail":"No such order."}}'
    )
    assert json.loads(known_failure_text(""))["error"]["detail"] == "The tool failed, and nothing happened."
    assert len(json.loads(known_failure_text("x" * 9_999))["error"]["detail"]) == 2_000
    known_failure_text("\ud800").encode()


def test_too_large_text_has_figures_and_no_content() -> None:
    """The model is told size, limit and digest of a result that is too large."""
    error = json.loads(too_large_text("sha256:ab", 11, 10))["error"]
    assert error["code"] == "RESULT_TOO_LARGE"
    assert (error["digest"], error["bytes"]) == ("sha256:ab", 11)
    assert "over the limit of 10" in error["detail"]


def test_not_encodable_text_says_that_it_ran() -> None:
    """The model learns that the tool ran, so that it does not ask for it again."""
    error = json.loads(not_encodable_text())["error"]
    assert error["code"] == "RESULT_NOT_ENCODABLE"
    assert error["detail"].startswith("The tool ran")


@pytest.mark.parametrize("told", [None, "too much"])
def test_a_denial_says_who_did_not_allow_it_and_no_more_than_is_shared(told: str | None) -> None:
    """A status of its own; the reason only where there is one to be shared."""
    said = json.loads(approval_text("APPROVAL_DENIED", told))
    assert (said["status"], said.get("reason")) == ("approval_denied", told)
    assert "not run" in said["detail"]


def test_an_expiry_is_not_told_as_a_denial() -> None:
    """Nobody has decided anything."""
    assert json.loads(approval_text("APPROVAL_EXPIRED", "x")) == {
        "status": "approval_expired",
        "detail": "Nobody allowed this call in time, so it was not run.",
    }


def test_a_review_names_every_finding() -> None:
    """Judge and code, in order; a judge without codes is named alone."""
    said = json.loads(review_required_text([("audit", "R1"), ("audit", "R2"), ("taint", "")]))
    assert said["status"] == "causal_review_required"
    assert said["findings"] == [
        {"judge": "audit", "code": "R1"},
        {"judge": "audit", "code": "R2"},
        {"judge": "taint"},
    ]
