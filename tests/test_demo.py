"""The demo holds its own claims."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from memoflow import ConfigurationError
from memoflow.demo import main


def test_every_claim_of_the_demo_holds() -> None:
    """A worker is killed, its turn restored, an outcome kept as unknown; the exit code says that all held."""
    shown = io.StringIO()
    code = main(console=Console(file=shown, width=200))
    assert code == 0, shown.getvalue()
    assert "exit status -9" in shown.getvalue()
    assert "2 replies were restored, 0 requests sent" in shown.getvalue()
    assert "OUTCOME_UNKNOWN" in shown.getvalue()


def test_a_live_demo_needs_a_model_and_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is sent to the real API by accident."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ConfigurationError):
        main(live=True, model="m")
