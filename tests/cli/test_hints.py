"""Every command that a message, a docstring or the README names is there, with the options it names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer

from memoflow.cli._app import app

ROOT = Path(__file__).parents[2]
SOURCES = [ROOT / "README.md", *sorted((ROOT / "memoflow").rglob("*.py"))]
# In a sentence a command stands in backticks; in the README's console blocks at the start of a line.
NAMED = re.compile(r"`memoflow ([^`]+)`|^memoflow ([^#\n]+)", re.MULTILINE)


def named_in(path: Path) -> list[str]:
    """The commands that a file names, as they are typed; texts that were cut over two lines are joined."""
    text = re.sub(r'"\s*\n\s*f?"', "", path.read_text(encoding="utf-8"))
    return [(match[1] or match[2]).strip() for match in NAMED.finditer(text)]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_command_that_is_named_exists(path: Path) -> None:
    """A hint that cannot be followed is worse than none."""
    for typed in named_in(path):
        command: Any = typer.main.get_command(app)
        for word in typed.split():
            if word.startswith("{"):
                break
            if word.startswith("--"):
                assert word in [name for option in command.params for name in option.opts], typed
                if hasattr(command, "commands"):
                    break  # Of a group that does something by itself; what follows is the option's.
            if hasattr(command, "commands"):
                assert word in command.commands, typed
                command = command.commands[word]


def test_commands_are_found_where_they_are_named() -> None:
    """The test above reads what it should: texts that go over two lines, and console blocks."""
    named = [typed for path in SOURCES for typed in named_in(path)]
    assert "reconcile happened {id}" in named
    assert "db upgrade" in named_in(ROOT / "README.md")
    assert len(named) > 20
