"""Time to digest a request of 1 MB."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

from certification.bench.provider import MODEL
from certification.bench.report import Figure, at_most
from certification.bench.site import Site
from certification.bench.timing import cpu_of, interleave
from memoflow import Digester

__all__ = ["measure"]

SIZE = 1_000_000
SENTENCE = 'The quick brown fox jumps over the lazy dog, says "ok" and goes home.\n'
FOREIGN = "Größe, naïve 計算 — „so“ 🙂 и так далее.\n"


def requests() -> dict[str, dict[str, Any]]:
    """Requests of about 1 MB: a long conversation, one long text, and one in other scripts."""
    turns = [{"role": "user", "content": SENTENCE * 8, "n": n} for n in range(1_600)]
    return {
        "conversation": {"model": MODEL, "input": turns},
        "one text": {"model": MODEL, "input": SENTENCE * (SIZE // len(SENTENCE))},
        "other scripts": {"model": MODEL, "input": FOREIGN * (SIZE // len(FOREIGN.encode()))},
    }


def measure(site: Site) -> Iterator[Figure]:
    """Of each request."""
    digester = Digester()

    def digest_ms(request: dict[str, Any]) -> Callable[[], float]:
        megabytes = len(json.dumps(request, ensure_ascii=False).encode()) / SIZE
        return lambda: cpu_of(lambda: digester.json(request), 1) / megabytes * 1e3

    samples = interleave(site.pick(7, 25), {name: digest_ms(request) for name, request in requests().items()})
    for name, values in samples.items():
        yield Figure(
            f"digest.{name.replace(' ', '_')}",
            f"digest of a 1 MB request, {name}",
            median(values),
            "ms",
            at_most(15),
            {"ms": values},
            "processor time, scaled to 10^6 bytes",
        )
