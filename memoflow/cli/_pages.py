"""Pages of rows: filters from options, and where the next page begins."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from memoflow.cli._open import Ledger
from memoflow.cli._screen import warn
from memoflow.ledger.queries import Filter, Page

__all__ = ["ago", "page_json", "say_next", "wanted"]


def wanted(
    ledger: Ledger,
    older_than: timedelta | None,
    newer_than: timedelta | None,
    after: UUID | None = None,
    **only: Any,
) -> Filter:
    """A filter whose ages count from the ledger's clock."""
    until, since = ago(ledger, older_than), ago(ledger, newer_than)
    return Filter(since=since, until=until, after=None if after is None else str(after), **only)


def ago(ledger: Ledger, span: timedelta | None) -> int | None:
    """The time that long ago by the ledger's clock, in UTC microseconds."""
    return None if span is None else ledger.now() - span // timedelta(microseconds=1)


def page_json(page: Page[Any]) -> dict[str, object]:
    """A page as JSON has it."""
    return {"items": page.items, "next": page.next}


def say_next(page: Page[Any]) -> None:
    """Tell on standard error how to see more."""
    if page.next is not None:
        warn(f"There are more: add --after {page.next}")
