"""The README's examples run as they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from memoflow.causal import Code, parse_document, strict_rules
from memoflow.cli._app import app
from memoflow.settings import MemoflowSettings
from memoflow.testing import ProviderRequest, ScriptEntry, SimulatedProvider, call, calls, text

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def _reply(request: ProviderRequest) -> ScriptEntry:
    """A model that asks for a refund where it can, and talks otherwise."""
    if not request.body.get("tools"):
        return text("A short text.")
    return (
        text("Refunded.") if request.outputs else calls(call("refund", {"order_id": "A-17", "cents": 4200}))
    )


def test_the_examples_run(tmp_path: Path) -> None:
    """All Python blocks, in the order they are read, are a program that runs against a simulated provider."""
    program = tmp_path / "readme.py"
    program.write_text("\n".join(BLOCKS), encoding="utf-8")
    with SimulatedProvider(default=_reply).serve() as base_url:
        done = subprocess.run(
            [sys.executable, str(program)],
            cwd=tmp_path,
            env={
                **os.environ,
                "OPENAI_API_KEY": "any",
                "OPENAI_BASE_URL": base_url,
                "ANTHROPIC_API_KEY": "any",
                "ANTHROPIC_BASE_URL": base_url.removesuffix("/v1"),
            },
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert "Refunded." in done.stdout
    assert "A short text." in done.stdout
    assert "True []" in done.stdout
    assert '{"cents":4200,"order_id":"A-17"}' in done.stdout


def test_the_rules_of_the_audit_are_rules() -> None:
    """What is shown as a configuration is one."""
    (shown,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    rules = strict_rules(parse_document(shown.encode(), yaml=True))
    assert rules.severity(Code.MARKED_GAP) == "FAIL"
    assert [rule.action_class.name for rule in rules.classes] == ["DATA_EGRESS"]


def test_every_setting_is_named() -> None:
    """Nobody has to read the source to find one."""
    names = [f"MEMOFLOW_{name.upper()}" for name in MemoflowSettings.model_fields]
    assert [name for name in names if name not in README] == []


def test_the_main_use_is_shown_first() -> None:
    """A reader sees the main use within the first 25 lines."""
    assert "answer.run(" in "\n".join(README.splitlines()[:25])


@pytest.mark.parametrize("command", [[], ["gateway"]], ids=["memoflow", "gateway"])
def test_the_command_line_is_described_as_it_is(command: list[str]) -> None:
    """The help in the README is what the command line prints."""
    plain = {"COLUMNS": "80", "TERM": "dumb"}
    shown = CliRunner().invoke(app, [*command, "--help"], env=plain, prog_name="memoflow")
    assert shown.output.strip() in README
