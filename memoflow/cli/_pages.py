"""Pages of rows: filters from options, and where the next page begins."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from memoflow.cli._open import Ledger
from memoflow.cli._options import age
from memoflow.cli._screen import warn
from memoflow.ledger.queries import Filter, Page

__all__ = ["page_json", "say_next", "wanted"]


def wanted(ledger: Ledger, older_than: str | None, newer_than: str | None, **only: Any) -> Filter:
    """A filter whose ages count from the ledger's clock."""
    now = ledger.now() if older_than or newer_than else 0
    until, since = (None if text is None else now - _us(age(text)) for text in (older_than, newer_than))
    return Filter(since=since, until=until, **only)


def _us(span: timedelta) -> int:
    return span // timedelta(microseconds=1)


def page_json(page: Page[Any]) -> dict[str, object]:
    """A page as JSON has it."""
    return {"items": page.items, "next": page.next}


def say_next(page: Page[Any]) -> None:
    """Tell on standard error how to see more."""
    if page.next is not None:
        warn(f"There are more: add --after {page.next}")
