"""The command line: ``memoflow``.

Exit codes: 0 fine, 1 refused or something was found, 2 wrong usage.
"""

from __future__ import annotations

from memoflow.cli._app import app

__all__ = ["main"]


def main() -> None:
    """Run the command line; does not return."""
    app(prog_name="memoflow")
