"""What a field case needs: a runtime with one account, and one call against a scripted provider."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest

from memoflow import Budget, KeyRing, Runtime, Tool
from memoflow.identity import new_id
from memoflow.ledger.account_queries import AccountInfo
from memoflow.ledger.activities import Fence
from memoflow.ledger.holdings import Ask
from memoflow.ledger.invocations import StartInvocation
from memoflow.ledger.queries import EffectInfo, Filter, InvocationInfo, list_effects, list_invocations
from memoflow.ledger.verify import verify
from memoflow.sdk.results import CallResult
from memoflow.testing import ScriptEntry, SimulatedProvider
from memoflow.testing.runtime import ManualClock, temporary_runtime
from tests.field._faces import FACES, RESPONSES, Face

ROUND = Budget(total_tokens=4_000, tool_calls=8)


@dataclass
class Played:
    """How a call ended: its result or what it raised, and what the provider saw."""

    provider: SimulatedProvider
    face: Face = RESPONSES
    result: CallResult[Any] | None = None
    error: BaseException | None = None

    @property
    def wire(self) -> int:
        """Generations asked for."""
        return self.provider.wire_requests[f"POST {self.face.path}"]

    @property
    def sent(self) -> list[dict[str, Any]]:
        """The bodies of the generation requests."""
        return [record.json for record in self.provider.requests if record.path == self.face.path]

    @property
    def outputs(self) -> list[str]:
        """What the model was told about its calls."""
        assert self.result is not None
        return [result.output for result in self.result.tool_results]

    @property
    def text(self) -> str:
        """The text of the reply."""
        assert self.result is not None, self.error
        return self.face.said(self.result.response)


@dataclass
class Field:
    """One case: a runtime, and calls of one API in activities of it."""

    runtime: Runtime
    clock: ManualClock
    face: Face = RESPONSES
    numbers: Iterator[int] = field(default_factory=count)

    def play(
        self,
        script: Iterable[ScriptEntry] | SimulatedProvider,
        tools: list[Tool[..., Any]] | None = None,
        *,
        request: Any = None,
        run: str | None = None,
        rounds: int = 3,
        stream: bool = False,
        face: Face | None = None,
        **options: Any,
    ) -> Played:
        """Make one call in an activity; with the same ``run`` it is a further attempt at the same call."""
        face = face or self.face
        request = face.asking() if request is None else request
        provider = script if isinstance(script, SimulatedProvider) else SimulatedProvider(script)
        played = Played(provider, face)
        llm = face.over(provider)
        options = {"budget": ROUND, "replay_key": "turn", **options}

        @self.runtime.activity(version="v1", name="case", budget="acme")
        def work() -> None:
            if stream:
                with llm.stream(request, tools, **_continuing(tools, rounds, options), **options) as events:
                    for _ in events:
                        pass
                played.result = events.result
            elif tools is None:
                played.result = llm.run(request, **options)
            else:
                played.result = llm.run_with_tools(
                    request, tools, **_continuing(tools, rounds, options), **options
                )

        try:
            work.run(workflow_id="field", run_id=run or f"run-{next(self.numbers)}")
        except Exception as error:
            played.error = error
        return played

    @property
    def account(self) -> AccountInfo:
        """The account all calls are charged to."""
        return self.runtime.budgets.show("acme")

    @property
    def invocations(self) -> list[InvocationInfo]:
        """Every invocation, oldest first."""
        page = self.runtime.ledger.database.read(
            lambda connection: list_invocations(connection, self.runtime.namespace, Filter())
        )
        return list(reversed(page.items))

    @property
    def effects(self) -> list[EffectInfo]:
        """Every effect, in the order of rounds and calls."""
        page = self.runtime.ledger.database.read(
            lambda connection: list_effects(connection, self.runtime.namespace, Filter())
        )
        return sorted(page.items, key=lambda effect: (effect.invocation_id, effect.ordinal, effect.execution))


def _continuing(tools: object, rounds: int, options: dict[str, Any]) -> dict[str, Any]:
    return {} if tools is None else {"continuation_budgets": [options["budget"]] * (rounds - 1)}


def starting(fence: Fence, accounts: tuple[str, ...], tokens: int) -> StartInvocation:
    """A reservation of one call and so many tokens, as a turn would make it."""
    return StartInvocation(
        fence=fence,
        id=new_id(),
        accounts=accounts,
        ask=Ask((tokens, tokens, tokens, 1, 0, 0, 0), None, "m"),
        binding=None,
        round=0,
        provider="openai",
        api="responses",
        model="m",
        request_digest="sha256:0",
        input_basis="none",
        input_measured=None,
        output_cap=None,
        price_version=None,
        metadata=None,
    )


@pytest.fixture
def clock() -> ManualClock:
    """The database clock of the case."""
    return ManualClock()


@contextmanager
def playing(clock: ManualClock, face: Face = RESPONSES, **options: Any) -> Iterator[Field]:
    """A runtime with a budget that is ample; at its end everything in its ledger has to add up."""
    with temporary_runtime(clock=clock, **options) as runtime:
        runtime.budgets.put("acme", Budget(total_tokens=10_000_000))
        yield Field(runtime, clock, face)
        assert runtime.ledger.database.read(verify) == []


@pytest.fixture
def case(clock: ManualClock) -> Iterator[Field]:
    """A runtime on a temporary database; calls are of the Responses API unless a test says otherwise."""
    with playing(clock) as field:
        yield field


@pytest.fixture(params=FACES, ids=str)
def each(case: Field, request: pytest.FixtureRequest) -> Field:
    """The same for each API: what a case demands is demanded of all of them."""
    case.face = request.param
    return case


@pytest.fixture(params=[False, True], ids=["whole", "streamed"])
def stream(request: pytest.FixtureRequest) -> bool:
    """Both ways of asking for a reply."""
    return bool(request.param)


@pytest.fixture
def on_postgres(postgres_url: str, clock: ManualClock) -> Iterator[Field]:
    """Like `case` on PostgreSQL, which refuses what SQLite lets pass."""
    with playing(clock, url=postgres_url, keys=KeyRing.generate()) as field:
        yield field
