"""A simulated certification against llmock, a provider nobody here wrote."""

from __future__ import annotations

import pytest
from llmock.scenarios import Match, Reply, StreamFault, ToolCall
from llmock.testing import LLMockServer

from certification.live.inputs import Inputs
from certification.live.live_anthropic import ANTHROPIC
from certification.live.live_openai import OPENAI
from certification.live.provider import Provider
from certification.live.runner import certify
from certification.live.verifier import evidence_findings, live_findings
from tests.certification.live._runs import SOURCE


@pytest.mark.parametrize("provider", [OPENAI, ANTHROPIC], ids=lambda provider: provider.name)
def test_a_simulated_certification(provider: Provider, llmock_server: LLMockServer) -> None:
    """Five requests in its journal, none repeated; evidence that holds, and that is not live."""
    llmock_server.state.scenarios.clear()
    llmock_server.state.journal.clear()
    llmock_server.state.scenarios.add(
        Reply(text="ready"),
        Reply(text="one two three"),
        Reply(tool_calls=(ToolCall("double", {"n": 3}),)),
        Reply(text="6"),
        StreamFault("stall", after_chunks=3, stall_seconds=2.0, match=Match(stream=True)),
    )
    base_url = llmock_server.base_url(provider.name)
    evidence = certify(provider, Inputs("some-model", "sk-test", base_url, simulated=True), SOURCE)
    records = llmock_server.state.journal.records(wait=10)
    assert [record.sdk_retry_count for record in records] == [0] * 5
    assert evidence_findings(evidence) == []
    assert len(live_findings(evidence)) == 1
