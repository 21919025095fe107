"""``python -m memoflow.cli`` is ``memoflow``."""

from __future__ import annotations

from memoflow.cli import main

main()
