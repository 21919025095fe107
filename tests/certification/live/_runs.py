"""Simulated runs, for tests of what is made of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from certification.live.evidence import Evidence, Source, seal
from certification.live.inputs import SIMULATED_KEY, Inputs
from certification.live.live_anthropic import ANTHROPIC
from certification.live.live_openai import OPENAI
from certification.live.provider import Provider
from certification.live.runner import certify
from memoflow.testing import ScriptEntry, SimulatedProvider, call, calls, hold, text, usage

__all__ = ["MODEL", "PROVIDERS", "SOURCE", "as_live", "edited", "root_of", "script", "simulate", "simulated"]

PROVIDERS = (OPENAI, ANTHROPIC)
MODEL = "some-model-2026-01-01"
SOURCE = Source(commit="a" * 40, tree="b" * 40)


def script(**replaced: ScriptEntry) -> list[ScriptEntry]:
    """What a provider that does its part says at each boundary, but for those that are replaced."""
    entries: dict[str, ScriptEntry] = {
        "response": text("ready", usage=usage(cached=3)),
        "stream": text("one two three"),
        "tools": calls(call("double", {"n": 3})),
        "continuation": text("6"),
        # Held after its beginning: what is cancelled then has not ended.
        "cancellation": hold(text("Once upon a time there was a story."), after=2),
    }
    return list((entries | replaced).values())


def root_of(provider: Provider, base_url: str) -> str:
    """The base URL that a provider's SDK takes, of a server that speaks for all of them."""
    return base_url if provider is OPENAI else base_url.removesuffix("/v1")


@contextmanager
def simulated(entries: Sequence[ScriptEntry]) -> Iterator[tuple[SimulatedProvider, str]]:
    """A provider on loopback, and its base URL."""
    provider = SimulatedProvider(entries)
    with provider.serve() as base_url:
        yield provider, base_url


def simulate(
    provider: Provider, base_url: str, *, model: str = MODEL, source: Source = SOURCE, **options: Any
) -> Evidence:
    """A run against a server on loopback."""
    inputs = Inputs(model, SIMULATED_KEY, root_of(provider, base_url), simulated=True)
    return certify(provider, inputs, source, **options)


def edited(evidence: Evidence, change: Any) -> Evidence:
    """Evidence with something changed in its document, under a digest made anew."""
    document = evidence.model_dump(mode="json")
    change(document)
    return seal(Evidence.model_validate_json(json.dumps(document)))


def as_live(evidence: Evidence) -> Evidence:
    """What a run of the real API would have left: the hosts and certificates that tests cannot meet."""

    def change(document: dict[str, Any]) -> None:
        document["simulated"] = False
        for case in document["cases"]:
            for made in case["calls"]:
                made["wire"]["host"] = f"api.{document['provider']}.com"
                made["wire"]["certificate"] = f"sha256:{'c' * 64}"

    return edited(evidence, change)
