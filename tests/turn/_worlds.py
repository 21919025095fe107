"""A runtime in a namespace of its own, a simulated provider, and one way to ask for both kinds of adapter."""

from __future__ import annotations

import asyncio
import inspect
import itertools
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from sqlalchemy import Connection, func, select

from memoflow import Budget, Digester, KeyRing, PriceBook, Runtime
from memoflow.budget import Amounts
from memoflow.ledger import schema as s
from memoflow.ledger.database import Database
from memoflow.ledger.queries import EffectInfo, Filter, InvocationInfo, list_effects, list_invocations
from memoflow.scope import RunScope
from memoflow.sdk.results import CallResult
from memoflow.testing import SimulatedProvider
from tests._apis import RESPONSES, Api
from tests.turn._asks import LEAVE, Ask
from tests.turn._snapshot import snapshot

__all__ = ["MODES", "Got", "MakeWorld", "World", "ledger", "make_world", "mode", "open_runtime", "world"]

MODES = ["sync", "async"]


class Unfinished(Exception):
    """Ends an attempt whose calls all went well, so that another one follows."""


ACCOUNT = "acme/support"
_OF_ADAPTERS = ("cap_field", "max_reply_bytes", "strict_tools")
KEYS = KeyRing([("k1", b"1" * 32)])
_numbers = itertools.count(1)


@dataclass
class Got:
    """What an attempt brought: results of the calls that ended, all events, and what was raised."""

    results: list[CallResult[Any]] = field(default_factory=list)
    events: list[Any] = field(default_factory=list)
    value: Any = None
    error: BaseException | None = None
    complete: bool = False

    def ended(self) -> int:
        """Called when all calls went well: what the activity returns, if it is to complete."""
        if not self.complete:
            raise Unfinished
        return len(self.results)

    @property
    def result(self) -> CallResult[Any]:
        """The only result; raises what was raised."""
        if self.error is not None:
            raise self.error
        (result,) = self.results
        return result

    def raised(self, kind: type[BaseException]) -> Any:
        """The exception, which is of this very type."""
        assert type(self.error) is kind, repr(self.error)
        return self.error


class World:
    """See the module. ``mode`` is ``sync`` or ``async``, the ``api`` is Responses unless another is given."""

    def __init__(self, database: Database, mode: str, *script: Any, **options: Any) -> None:
        self.mode = mode
        self.api: Api = options.pop("api", RESPONSES)
        self.provider = options.pop("provider", None) or SimulatedProvider(script)
        limits = options.pop("limits", Budget(total_tokens=1_000_000))
        self._adapter = {name: options.pop(name) for name in _OF_ADAPTERS if name in options}
        self._connect = options.pop("connect", None)
        self._others: list[World] = []
        self.loop: asyncio.AbstractEventLoop | None = None
        self.task: asyncio.Task[Any] | None = None
        self.rt = open_runtime(database, **options)
        self.rt.budgets.put("acme", limits)
        self.rt.budgets.put(ACCOUNT, Budget())

    @property
    def is_async(self) -> bool:
        return self.mode == "async"

    def again(self, **options: Any) -> World:
        """Another process, as it were: a runtime of its own on the same namespace and provider."""
        database = self.rt.ledger.database
        limits = self.rt.budgets.show("acme").hard
        given = {"namespace": self.rt.namespace, "provider": self.provider, "limits": limits, "api": self.api}
        self._others.append(World(database, self.mode, **{**given, **options}))
        return self._others[-1]

    # Asking

    def ask(
        self,
        *asks: Ask,
        run: str = "r",
        activity: str = "answer",
        complete: bool = False,
        within: RunScope | None = None,
        **options: Any,
    ) -> Got:
        """Make these calls in one attempt of an activity; whatever is raised is in ``error``.

        Unless it is to ``complete``, the attempt ends without completing the activity. ``within`` is the
        run it belongs to, instead of workflow ``w`` and run ``r``.
        """
        got = Got(complete=complete)
        options = {"version": "v1", "budget": ACCOUNT, "name": activity, **options}
        identity = {} if within is not None else {"workflow_id": "w", "run_id": run}
        try:
            if self.is_async:
                got.value = asyncio.run(self._ask_async(got, asks, options, identity, within))
            else:
                got.value = self._ask_sync(got, asks, options, identity, within)
        except Unfinished:
            pass
        except BaseException as error:
            got.error = error
        return got

    def within(self, body: Callable[[Any], Any], **identity: Any) -> Any:
        """Run a function of the adapter as an activity; its result is returned, and awaited if need be."""
        identity = {"workflow_id": "w", "run_id": "r", **identity}
        if not self.is_async:
            with self.client() as client:
                llm = self.llm(client)
                return self.rt.activity(version="v1", budget=ACCOUNT, name="body")(lambda: body(llm)).run(
                    **identity
                )

        return self.within_async(body, lambda work: work, **identity)

    def within_async(self, body: Callable[[Any], Any], drive: Callable[[Any], Any], **identity: Any) -> Any:
        """The same for the async adapter; ``drive`` is given the running of the activity, and is awaited."""
        identity = {"workflow_id": "w", "run_id": "r", **identity}

        async def work() -> Any:
            async with self.async_client() as client:
                llm = self.llm(client)

                async def made() -> Any:
                    value = body(llm)
                    return await value if inspect.isawaitable(value) else value

                activity = self.rt.activity(version="v1", budget=ACCOUNT, name="body")(made)
                return await drive(activity.run(**identity))

        return asyncio.run(work())

    def client(self) -> Any:
        """A client of the provider."""
        return self.api.client(self.provider) if self._connect is None else self._connect(self.api.clients[0])

    def async_client(self) -> Any:
        """An async client of the provider."""
        if self._connect is not None:
            return self._connect(self.api.clients[1])
        return self.api.async_client(self.provider)

    def llm(self, client: Any) -> Any:
        """The adapter, blocking or async, over a client."""
        return self.api.adapters[self.is_async](client, **self._adapter)

    def text(self, got: Got) -> str:
        """What the reply of the only result says."""
        return self.api.said(got.result.response)

    def _spoken(self, ask: Ask) -> Ask:
        return replace(ask, request=self.api.spoken(ask.request))

    def _ask_sync(self, got: Got, asks: Any, options: Any, identity: Any, within: RunScope | None) -> Any:
        with self.client() as client, within or nullcontext():
            llm = self.llm(client)

            @self.rt.activity(**options)
            def answer() -> Any:
                for ask in asks:
                    got.results.append(play(llm, self._spoken(ask), got.events))
                return got.ended()

            return answer.run(**identity)

    async def _ask_async(
        self, got: Got, asks: Any, options: Any, identity: Any, within: RunScope | None
    ) -> Any:
        async with self.async_client() as client, within or nullcontext():
            llm = self.llm(client)
            self.loop, self.task = asyncio.get_running_loop(), asyncio.current_task()

            @self.rt.activity(**options)
            async def answer() -> Any:
                for ask in asks:
                    got.results.append(await play_async(llm, self._spoken(ask), got.events))
                return got.ended()

            return await answer.run(**identity)

    # Looking

    def read(self, query: Callable[[Connection], Any]) -> Any:
        """Read from the ledger."""
        return self.rt.ledger.database.read(query)

    def balance(self, path: str = "acme") -> tuple[Amounts, Amounts, Amounts]:
        """Settled, held and unknown amounts of an account, without the time that passed."""
        found = self.rt.budgets.show(path)
        return found.settled._replace(wall_clock_ms=0), found.held, found.unknown

    def invocations(self) -> list[InvocationInfo]:
        """All invocations, oldest first."""
        page = self.read(lambda c: list_invocations(c, self.rt.namespace, Filter(limit=1000)))
        return list(reversed(page.items))

    @property
    def invocation(self) -> InvocationInfo:
        """The only invocation."""
        (found,) = self.invocations()
        return found

    def effects(self) -> list[EffectInfo]:
        """All effects, oldest first, and in the order of their calls."""
        page = self.read(lambda c: list_effects(c, self.rt.namespace, Filter(limit=1000)))
        return sorted(page.items, key=lambda effect: (effect.round, effect.ordinal, effect.execution))

    def states(self) -> list[tuple[str, str | None, int]]:
        """State, reason and number of execution of every effect."""
        return [(effect.state, effect.reason, effect.execution) for effect in self.effects()]

    def batches(self) -> int:
        """How many commits this runtime's writer has made, as the database has it."""
        writer = self.rt.ledger.writer._id
        query = select(s.writers.c.batches).where(s.writers.c.id == writer)
        return int(self.read(lambda c: c.execute(query).scalar() or 0))

    def count(self, table: Any) -> int:
        """Rows of this namespace in a table."""
        query = select(func.count()).where(table.c.namespace == self.rt.namespace)
        return int(self.read(lambda c: c.execute(query).scalar_one()))

    @property
    def sent(self) -> int:
        """Generation requests that reached the provider."""
        return int(self.provider.wire_requests[f"POST {self.api.path}"])

    def snapshot(self) -> dict[str, list[dict[str, Any]]]:
        """All rows of this namespace, comparable."""
        rows: dict[str, list[dict[str, Any]]] = self.read(lambda c: snapshot(c, self.rt.namespace))
        return rows

    def close(self) -> None:
        """Close the runtime; others go on using its database."""
        for other in self._others:
            other.close()
        self.rt._leases.close()
        self.rt.ledger.writer.close()


def open_runtime(database: Database, **options: Any) -> Runtime:
    """A runtime in a namespace of its own on a shared database with its compiled statements."""
    usual = {
        "namespace": f"test-{next(_numbers)}",
        "keys": KEYS,
        "digester": Digester(),
        "prices": PriceBook(),
        "lease_seconds": 60,
        "retention_days": 30,
        "worker": "tester",
    }
    return Runtime(database, **{**usual, **options})


def play(llm: Any, ask: Ask, events: list[Any]) -> CallResult[Any]:
    """Make one call."""
    if ask.how == "run":
        return llm.run(ask.request, **ask.options)
    further = {"continuation_budgets": ask.continuation, **ask.options}
    if ask.how == "run_with_tools":
        return llm.run_with_tools(ask.request, ask.tools or (), **further)
    with llm.stream(ask.request, ask.tools, **further) as streamed:
        for event in streamed:
            events.append(event)
            if ask.watch(event) is LEAVE:
                break
    return streamed.result


async def play_async(llm: Any, ask: Ask, events: list[Any]) -> CallResult[Any]:
    """Make one call; the twin of `play`."""
    if ask.how == "run":
        return await llm.run(ask.request, **ask.options)
    further = {"continuation_budgets": ask.continuation, **ask.options}
    if ask.how == "run_with_tools":
        return await llm.run_with_tools(ask.request, ask.tools or (), **further)
    async with llm.stream(ask.request, ask.tools, **further) as streamed:
        async for event in streamed:
            events.append(event)
            if ask.watch(event) is LEAVE:
                break
    return streamed.result


MakeWorld = Callable[..., World]


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def ledger(request: pytest.FixtureRequest) -> Database:
    """A migrated database that all tests share, each in namespaces of its own."""
    found: Database = request.getfixturevalue(f"{request.param}_ledger")
    return found


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    """Which adapter: the blocking or the async one."""
    kind: str = request.param
    return kind


@pytest.fixture
def make_world(request: pytest.FixtureRequest, ledger: Database) -> Iterator[MakeWorld]:
    """Makes worlds on the shared database, in namespaces named after the test."""
    made: list[World] = []

    def make(mode: str, *script: Any, **options: Any) -> World:
        namespace = f"{request.node.name[:200]} {len(made)} {next(_numbers)}"
        made.append(World(ledger, mode, *script, **{"namespace": namespace, **options}))
        return made[-1]

    try:
        yield make
        assert [one.provider.errors for one in made if one.provider.errors] == []
    finally:
        for one in made:
            one.close()


@pytest.fixture
def world(make_world: MakeWorld, mode: str) -> MakeWorld:
    """Makes worlds for either kind of adapter on either kind of database: the test runs four times."""
    return lambda *script, **options: make_world(mode, *script, **options)
