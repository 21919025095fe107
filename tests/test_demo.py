"""The demo holds its own claims."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from memoflow import ConfigurationError
from memoflow.demo import main
from tests.cli._run import Cli


def test_every_claim_of_the_demo_holds(tmp_path: Path) -> None:
    """A worker is killed, its turn restored, an outcome kept as unknown; the exit code says that all held.

    The ledger that is kept can be looked at with the commands that are printed.
    """
    shown = io.StringIO()
    code = main(console=Console(file=shown, width=200), keep=tmp_path / "kept")
    assert code == 0, shown.getvalue()
    (url,) = re.findall(r"export MEMOFLOW_DATABASE_URL=(\S+)", shown.getvalue())
    for command in re.findall(r"^  memoflow (.+)$", shown.getvalue(), re.MULTILINE):
        assert "acme" in Cli(url, "default").ok(*command.split(), "--json").out
    assert "exit status -9" in shown.getvalue()
    assert "2 replies were restored, 0 requests sent" in shown.getvalue()
    assert "OUTCOME_UNKNOWN" in shown.getvalue()


def test_the_ledger_is_kept_in_a_new_directory_only(tmp_path: Path) -> None:
    """Nothing that is there already is touched."""
    with pytest.raises(ConfigurationError, match="not there yet"):
        main(keep=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_live_demo_needs_a_model_and_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is sent to the real API by accident."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ConfigurationError):
        main(live=True, model="m")
