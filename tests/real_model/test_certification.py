"""A simulated certification against a real model: its own counts, its own call of the tool."""

from __future__ import annotations

import pytest

from certification.estimate.server import MODEL, Llama
from certification.live.inputs import Inputs
from certification.live.live_anthropic import ANTHROPIC
from certification.live.live_openai import OPENAI
from certification.live.provider import Provider
from certification.live.runner import certify
from certification.live.verifier import evidence_findings
from tests.certification.live._runs import SOURCE, root_of

TOKENS = 1_600


@pytest.mark.parametrize("provider", [OPENAI, ANTHROPIC], ids=lambda provider: provider.name)
def test_a_simulated_certification(provider: Provider, llama: Llama) -> None:
    """It keeps its cap, calls the tool once, and is left in the middle of a story."""
    base_url = root_of(provider, f"{llama.url}/v1")
    inputs = Inputs(MODEL, "none", base_url, simulated=True)
    evidence = certify(provider, inputs, SOURCE, tokens=TOKENS)
    assert evidence_findings(evidence) == []
    assert evidence.simulated
    assert evidence.balances[0].unknown.total_tokens == TOKENS
