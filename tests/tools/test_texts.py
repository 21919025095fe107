"""Texts for the model: small JSON, bounded, always encodable, without content it must not see."""

from __future__ import annotations

import json

from memoflow.tools import known_failure_text, not_encodable_text, refusal_text, too_large_text


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
