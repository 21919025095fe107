"""``python -m certification estimate``: what is reserved for an input beside what a real model counted."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import httpx2
from anthropic import Anthropic
from openai import OpenAI

from certification.about import about
from certification.estimate.cases import CASES, Case
from certification.estimate.server import MODEL, Llama, NoModel, find
from memoflow import Budget, KeyRing, Runtime
from memoflow.anthropic import AnthropicMessages
from memoflow.ledger.queries import find_invocation
from memoflow.openai import OpenAIChat, OpenAIResponses

__all__ = ["Row", "main", "measure", "table"]

CAP: Final = 1
BUDGET: Final = Budget(total_tokens=100_000)
COLUMNS: Final = ("api", "input", "bytes", "bound", "estimate", "counted", "actual", "bound ÷", "estimate ÷")


@dataclass(frozen=True)
class Row:
    """One input through one API, in tokens. ``counted`` is None where the API does not count."""

    api: str
    case: str
    bytes: int
    bound: int
    estimate: int
    counted: int | None
    actual: int

    @property
    def holds(self) -> bool:
        """Whether the bound is one, and the server reported what it had counted."""
        return self.actual <= self.bound and self.counted in (None, self.actual)

    def cells(self) -> tuple[str, ...]:
        """The row as text."""
        figures = (self.bytes, self.bound, self.estimate, self.counted, self.actual)
        ratios = (self.bound / self.actual, self.estimate / self.actual)
        texts = ("-" if figure is None else f"{figure:,}" for figure in figures)
        return (self.api, self.case, *texts, *(f"{ratio:.2f}" for ratio in ratios))


def main(arguments: list[str]) -> int:
    """Print the table.

    Returns:
        1 if a bound was exceeded, or a count was not what was then reported; 2 without a model.
    """
    parser = argparse.ArgumentParser(prog="python -m certification estimate", description=__doc__)
    parser.add_argument("--out", type=Path, help="write the rows to this file, as JSON")
    given = parser.parse_args(arguments)
    try:
        with _server() as llama:
            rows = list(measure(llama, CASES))
    except NoModel as error:
        print(error, file=sys.stderr)
        return 2
    print(table(rows))
    over = [row for row in rows if row.estimate < row.actual]
    middle = median(row.estimate / row.actual for row in rows)
    print(f"\n{len(over)} of {len(rows)} are above their estimate; median estimate ÷ actual: {middle:.2f}")
    if given.out is not None:
        document = {"about": about(), "model": MODEL, "rows": [asdict(row) for row in rows]}
        given.out.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0 if all(row.holds for row in rows) else 1


@contextmanager
def _server() -> Iterator[Llama]:
    with tempfile.TemporaryFile() as log, Llama(find(), log, threads=2) as llama:
        yield llama


def measure(llama: Llama, cases: Sequence[Case]) -> Iterator[Row]:
    """Send every input through every API, by memoflow, and read the ledger's figures."""
    with (
        tempfile.TemporaryDirectory() as directory,
        httpx2.Client(verify=False) as http,
        Runtime.open(f"sqlite:///{directory}/ledger.db", keys=KeyRing.generate()) as runtime,
    ):
        runtime.budgets.put("all", Budget())
        for name, llm in _adapters(llama, http).items():
            for case in cases:
                yield _row(runtime, name, llm, case)


def _adapters(llama: Llama, http: httpx2.Client) -> dict[str, Any]:
    ours = OpenAI(api_key="none", base_url=f"{llama.url}/v1", http_client=http)
    theirs = Anthropic(api_key="none", base_url=llama.url, http_client=http)
    return {
        "responses": OpenAIResponses(ours),
        "chat": OpenAIChat(ours),
        "messages": AnthropicMessages(theirs),
    }


def _row(runtime: Runtime, api: str, llm: Any, case: Case) -> Row:
    request = case.request(api, MODEL, CAP)
    prepared = llm.codec.prepare(request)
    counts = api != "chat"

    @runtime.activity(version="v1", budget="all")
    def once() -> Any:
        return llm.run(request, budget=BUDGET, count_input=counts).invocations[0].id

    asked: str = once.run(workflow_id=f"{api} {case.name}")
    found = runtime.ledger.database.read(lambda c: find_invocation(c, runtime.namespace, asked))
    assert found is not None
    assert found.input_tokens is not None
    return Row(
        api,
        case.name,
        sum(len(text.encode()) for text in case.turns),
        llm.codec.measure(prepared, "bound").tokens,
        llm.codec.measure(prepared, "estimate").tokens,
        found.input_measured if counts else None,
        found.input_tokens,
    )


def table(rows: Sequence[Row]) -> str:
    """The rows in columns, figures to the right."""
    lines = [COLUMNS, *(row.cells() for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(_line(cells, widths) for cells in lines)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    placed = [
        text.ljust(width) if n < 2 else text.rjust(width)
        for n, (text, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join(placed).rstrip()
