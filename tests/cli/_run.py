"""Running the command line in this process."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from typer.testing import CliRunner

from memoflow.cli._app import app

__all__ = ["Cli", "Result"]


@dataclass(frozen=True, slots=True)
class Result:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Its standard output as JSON."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[list[str]]:
        """Its standard output as rows of words."""
        return [line.split() for line in self.out.splitlines()]


class Cli:
    """``memoflow`` on one database."""

    def __init__(self, url: str, namespace: str = "tests") -> None:
        self.url = url
        self.namespace = namespace

    def __call__(self, *args: str, database: bool = True, input: bytes | None = None) -> Result:
        """Run a command; exceptions that are no exit are the test's."""
        where = ["--database", self.url, "--namespace", self.namespace] if database else []
        done = CliRunner().invoke(app, [*args, *where], input=input, prog_name="memoflow")
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return Result(done.exit_code, done.stdout, done.stderr)

    def ok(self, *args: str, **options: Any) -> Result:
        """Run a command that must succeed."""
        result = self(*args, **options)
        assert result.code == 0, result.err
        return result
