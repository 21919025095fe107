"""Rules the database itself keeps, whoever writes to it."""

from __future__ import annotations

__all__ = ["create_statements"]


def create_statements(dialect: str) -> list[str]:
    """The DDL that installs every guard."""
    return []
