"""``memoflow reconcile auto``: asking the provider about what is unknown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

import typer

from memoflow.cli._invocations import amounts_text
from memoflow.cli._open import open_ledger
from memoflow.cli._options import AsJson, DatabaseUrl, Namespace
from memoflow.cli._screen import say, show_json, show_table
from memoflow.pricing import PriceBook
from memoflow.reconcile import Attempted, Queue, Reconciler

__all__ = ["auto"]

_LIST: Final = "memoflow reconcile list"


def auto(
    genai_prices: Annotated[
        bool,
        typer.Option(
            "--genai-prices",
            help="Price replies with the genai-prices table. Without a price, cost is charged as reserved.",
        ),
    ] = False,
    database: DatabaseUrl = None,
    namespace: Namespace = None,
    json: AsJson = False,
) -> None:
    """Ask the provider for replies whose ids are known, and settle by what they say.

    Exit code 1 if anything is unknown afterwards.
    """
    from memoflow.openai._retriever import retriever

    prices = PriceBook.from_genai_prices() if genai_prices else None
    with open_ledger(database, namespace) as ledger:
        reconciler = ledger.reconciler(prices)
        attempted = reconciler.auto(retriever())
        unpriced = [item.invocation_id for item in attempted if _unpriced(item, reconciler)]
        queue = reconciler.list()
    if json:
        show_json({"items": attempted, "next": None})
    else:
        _show_attempted(attempted, unpriced)
        _show_left(attempted, queue)
    raise typer.Exit(1 if queue.invocations or queue.effects else 0)


def _unpriced(item: Attempted, reconciler: Reconciler) -> bool:
    """Whether a settlement charged the cost that was reserved, because none could be computed."""
    if item.decision is None or item.decision.actual is None or not item.decision.actual.cost:
        return False
    found = reconciler.show(item.invocation_id).invocation
    return found is not None and found.cost is None


def _show_attempted(attempted: Sequence[Attempted], unpriced: Sequence[str]) -> None:
    rows = [
        (
            item.invocation_id,
            "settled" if item.decision else "left",
            item.left or amounts_text(item.decision.actual if item.decision else None, None),
        )
        for item in attempted
    ]
    show_table(
        ("INVOCATION", "OUTCOME", "WHY"), rows, empty="There is nothing the provider could be asked for."
    )
    for id in unpriced:
        say(f"No price is known for invocation {id}: its cost was charged as it was reserved.")


def _show_left(attempted: Sequence[Attempted], queue: Queue) -> None:
    asked = {item.invocation_id for item in attempted}
    others = sum(item.id not in asked for item in queue.invocations)
    if others:
        say(f"{_count(others, 'invocation has', 'invocations have')} no known reply id: `{_LIST}`.")
    if queue.effects:
        say(f"{_count(len(queue.effects), 'tool effect waits', 'tool effects wait')} for you: `{_LIST}`.")


def _count(number: int, one: str, more: str) -> str:
    return f"{number} {one if number == 1 else more}"
