"""What the world outside wrote down: the provider, the tools, the workers, the operator."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Outside", "Wire", "WireKey"]

Line = dict[str, Any]
WireKey = tuple[str, int, str, int]
"""Activity, attempt, call and round: what one request can be told by on both sides."""


@dataclass(frozen=True, slots=True)
class Wire:
    """A request as the provider saw it.

    Attributes:
        accounts: what it is charged to.
        status: of its reply; None if there was none.
        performed: it was generated and billed.
        asked: tool calls in its reply.
        digest: of the request's canonical form.
    """

    key: WireKey
    accounts: tuple[str, ...]
    status: int | None
    performed: bool
    input_tokens: int
    output_tokens: int
    asked: int
    digest: str

    @property
    def cost(self) -> int:
        """Nano-units at the campaign's price: 1 USD a million tokens of input, 2 of output."""
        return 1_000 * self.input_tokens + 2_000 * self.output_tokens


@dataclass(frozen=True, slots=True)
class Outside:
    """All of it.

    Attributes:
        wires: requests that arrived, by key; more than one under a key is a violation.
        executions: what tools did, by idempotency key.
        heard: what was acknowledged to workers.
        decided: what was acknowledged to the operator.
    """

    wires: dict[WireKey, list[Wire]]
    executions: dict[str, list[Line]]
    heard: list[Line]
    decided: list[Line]

    @classmethod
    def read(cls, evidence: Path) -> Outside:
        """Read the files of a directory."""
        wires: dict[WireKey, list[Wire]] = defaultdict(list)
        for line in _lines(evidence / "provider.jsonl"):
            wire = _wire(line)
            wires[wire.key].append(wire)
        executions: dict[str, list[Line]] = defaultdict(list)
        for line in _lines(evidence / "tools.jsonl"):
            executions[line["key"]].append(line)
        heard = [line for path in sorted(evidence.glob("worker-*.jsonl")) for line in _lines(path)]
        return cls(dict(wires), dict(executions), heard, _lines(evidence / "operator.jsonl"))


def _wire(line: Line) -> Wire:
    key = (line["job"], line["attempt"], line["call"], line["round"])
    return Wire(
        key,
        tuple(line["accounts"]),
        line["status"],
        line["performed"],
        line["input_tokens"],
        line["output_tokens"],
        line["asked"],
        line["digest"],
    )


def _lines(path: Path) -> list[Line]:
    if not path.exists():
        return []
    # What a killed process was writing when it died was acknowledged to nobody.
    whole = path.read_text(encoding="utf-8").split("\n")[:-1]
    return [json.loads(line) for line in whole if line]
