"""Agent frameworks through a gateway: nothing of them is changed but a base URL and a key."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from memoflow.testing import SimulatedProvider, agent, call, calls, text, usage
from tests.gateway._site import MODEL, Site
from tests.gateway.conftest import MakeSite

agents = pytest.importorskip("agents", reason="needs openai-agents, of the test extra")
pydantic_ai = pytest.importorskip("pydantic_ai", reason="needs pydantic-ai-slim, of the test extra")

from pydantic_ai.models.anthropic import AnthropicModel  # noqa: E402
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel  # noqa: E402
from pydantic_ai.providers.anthropic import AnthropicProvider  # noqa: E402
from pydantic_ai.providers.openai import OpenAIProvider  # noqa: E402

SCRIPT = agent(
    calls(call("look", {"city": "Oslo"}), usage=usage(20, 5)), final=text("It rains.", usage=usage(30, 5))
)


@pytest.fixture
def site(make_site: MakeSite) -> Site:
    """A gateway whose model looks something up and then answers."""
    agents.set_tracing_disabled(True)
    return make_site(SimulatedProvider(SCRIPT))


def openai_client(site: Site) -> AsyncOpenAI:
    """A client as a program makes it."""
    http = httpx2.AsyncClient(verify=False)
    return AsyncOpenAI(base_url=site.base_url, api_key=site.key(), max_retries=0, http_client=http)


def check(site: Site, api: str) -> None:
    """Both rounds were reserved and settled exactly."""
    assert [(one.api, one.state) for one in site.ended()] == [(api, "SUCCEEDED")] * 2
    account = site.account()
    assert (account.settled.total_tokens, account.settled.model_calls) == (60, 2)
    assert account.held.total_tokens == account.unknown.total_tokens == 0


async def agents_sdk(site: Site, api: str, stream: bool) -> str:
    client = openai_client(site)
    kinds = {"responses": agents.OpenAIResponsesModel, "chat.completions": agents.OpenAIChatCompletionsModel}

    @agents.function_tool
    def look(city: str) -> str:
        """The weather of a city."""
        return f"Rain in {city}."

    model = kinds[api](model=MODEL, openai_client=client)
    asked = agents.Agent(name="a", instructions="Help.", tools=[look], model=model)
    async with client:
        if not stream:
            return str((await agents.Runner.run(asked, "Weather?")).final_output)
        running = agents.Runner.run_streamed(asked, "Weather?")
        async for _ in running.stream_events():
            pass
        return str(running.final_output)


@pytest.mark.parametrize("api", ["responses", "chat.completions"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_the_openai_agents_sdk(site: Site, api: str, stream: bool) -> None:
    """Its loop of model and tools runs as it does without a gateway, streamed or not."""
    assert asyncio.run(agents_sdk(site, api, stream)) == "It rains."
    check(site, api)


def pydantic_model(site: Site, api: str) -> tuple[Any, Any]:
    """A model of pydantic-ai, and the client that it uses."""
    if api == "messages":
        base_url = site.base_url.removesuffix("/v1")
        http = httpx2.AsyncClient(verify=False)
        claude = AsyncAnthropic(base_url=base_url, api_key=site.key(), max_retries=0, http_client=http)
        return AnthropicModel("claude-sonnet-5", provider=AnthropicProvider(anthropic_client=claude)), claude
    client = openai_client(site)
    kinds = {"responses": OpenAIResponsesModel, "chat.completions": OpenAIChatModel}
    return kinds[api](MODEL, provider=OpenAIProvider(openai_client=client)), client


async def pydantic(site: Site, api: str, stream: bool) -> str:
    """What an agent of pydantic-ai answers."""
    model, client = pydantic_model(site, api)
    asked: Any = pydantic_ai.Agent(model)

    @asked.tool_plain
    def look(city: str) -> str:
        """The weather of a city."""
        return f"Rain in {city}."

    async with client:
        if not stream:
            return str((await asked.run("Weather?")).output)
        async with asked.run_stream("Weather?") as running:
            return str(await running.get_output())


@pytest.mark.parametrize("api", ["responses", "chat.completions", "messages"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_pydantic_ai(site: Site, api: str, stream: bool) -> None:
    """Its agents run as they do without a gateway, on every API, streamed or not."""
    assert asyncio.run(pydantic(site, api, stream)) == "It rains."
    check(site, api)
