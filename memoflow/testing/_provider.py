"""The simulated provider: a script, the APIs it speaks, and the record of what it was asked."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Unpack

from memoflow.errors import ConfigurationError
from memoflow.providers.base import Usage
from memoflow.testing._api import GENERATING, Api
from memoflow.testing._chat import ChatApi
from memoflow.testing._embeddings import EmbeddingsApi
from memoflow.testing._encoding import Ids
from memoflow.testing._messages import MessagesApi
from memoflow.testing._options import OptionArguments, ProviderOptions
from memoflow.testing._play import Player, Rendering
from memoflow.testing._rejections import Rejection
from memoflow.testing._replies import as_entries, as_entry
from memoflow.testing._request import ProviderRequest
from memoflow.testing._responses import ResponsesApi
from memoflow.testing._script import BEFORE_ARRIVAL, Agent, Cut, Delayed, Entry, Forever, Held, ScriptEntry
from memoflow.testing._signals import Gate
from memoflow.testing._wire import (
    Exchange,
    Fail,
    RecordedRequest,
    Step,
    WireRequest,
    add_usage,
)

if TYPE_CHECKING:
    from anthropic import Anthropic, AsyncAnthropic
    from openai import AsyncOpenAI, OpenAI

__all__ = ["SimulatedProvider"]

_Queued = Entry | Callable[[ProviderRequest], Any]
_NOTHING = Usage(input_tokens=0, output_tokens=0)


class SimulatedProvider:
    """A provider that follows a script, for tests that make no real requests.

    It speaks OpenAI's Responses, Chat Completions and Embeddings APIs and Anthropic's Messages API to the
    official SDKs, in process or over loopback, keeps the state a real provider keeps and refuses what a
    real one refuses. The path of a request decides which API answers it. It is thread safe.

    Args:
        script: what happens to the generation requests, one entry each, in their order of arrival;
            one entry alone; or one function that decides about all of them.
        default: what happens when the script is used up; by default the last user text comes back.
        options: see `ProviderOptions`.

    Attributes:
        requests: every request, in order of arrival.
        errors: exceptions that functions of the script raised; the client sees a 500 instead.
    """

    def __init__(
        self,
        script: Iterable[ScriptEntry] | ScriptEntry | Callable[[ProviderRequest], Any] = (),
        *,
        default: ScriptEntry | None = None,
        **options: Unpack[OptionArguments],
    ) -> None:
        self.options = ProviderOptions(**options)
        self._lock = threading.RLock()
        self._gates: dict[str, Gate] = {}
        self.reset(script, default=default)

    def reset(
        self,
        script: Iterable[ScriptEntry] | ScriptEntry | Callable[[ProviderRequest], Any] = (),
        *,
        default: ScriptEntry | None = None,
    ) -> None:
        """Forget every request, all state and the script, and start again with this one."""
        with self._lock:
            self.requests: list[RecordedRequest] = []
            self.errors: list[BaseException] = []
            self._ids = Ids(self.options.seed)
            self._responses = ResponsesApi(self.options, self._ids, self._bill)
            self._apis: tuple[Api, ...] = (
                self._responses,
                ChatApi(self._ids, self._bill),
                EmbeddingsApi(self._ids, self._bill),
                MessagesApi(self._ids, self._bill),
            )
            self._queues: dict[str, deque[_Queued]] = {}
            self._gates.clear()
            self._default = self._queued(script if callable(script) else default)
            self.push(*(() if callable(script) else as_entries(script)))

    def push(self, *entries: ScriptEntry, to: str = "create") -> None:
        """Add entries to the end of the script.

        Args:
            entries: what to add.
            to: the operation they are for: ``create`` (whatever generates, in all APIs), ``retrieve``,
                ``cancel``, ``delete``, ``input_items`` or ``count``. For other operations than ``create``
                a reply of the model stands for the ordinary answer. Or one route, as `wire_requests` has
                it, for example ``POST /v1/embeddings``: its entries come before those of its operation.
        """
        with self._lock:
            queue = self._queues.setdefault(to, deque())
            queue.extend(self._queued(entry) for entry in entries)

    def _queued(self, entry: ScriptEntry | None) -> _Queued:
        if callable(entry):
            return entry
        made = as_entry(entry)
        for gate in _gates_of(made):
            self._gates[gate.name] = gate
        return made

    def gate(self, name: str) -> Gate:
        """The gate of the `hold` with this name."""
        with self._lock:
            if name not in self._gates:
                raise ConfigurationError(
                    f"The script has no hold named {name!r}. Give it one with hold(name={name!r})."
                )
            return self._gates[name]

    @property
    def wire_requests(self) -> Counter[str]:
        """How many requests arrived, by method and path without ids: ``POST /v1/responses``."""
        with self._lock:
            return Counter(record.route for record in self.requests if record.arrived)

    @property
    def billed(self) -> Usage:
        """All tokens billed so far."""
        with self._lock:
            total = _NOTHING
            for record in self.requests:
                total = total if record.billed is None else add_usage(total, record.billed)
            return total

    @property
    def performed(self) -> int:
        """How many generations were completed and billed."""
        with self._lock:
            return sum(record.performed for record in self.requests)

    @property
    def remaining(self) -> int:
        """How many entries of the script no request has reached yet."""
        with self._lock:
            return sum(len(queue) for queue in self._queues.values())

    def advance(self, response_id: str | None = None) -> None:
        """Take a background response, or all of them, one step further: queued, in progress, terminal."""
        with self._lock:
            self._responses.advance(response_id)

    def _bill(self, record: RecordedRequest, usage: Usage) -> None:
        if not record.performed:
            record.performed, record.billed = True, usage

    def open(self, wire: WireRequest) -> Exchange:
        """Decide about a request. For drivers: the transports, and servers of your own."""
        with self._lock:
            api, record = self._record(wire)
            player = Player(api.dialect, api.headers())
            refused = self._before_reading(record, player)
        steps = refused if refused is not None else self._decide(api, record, player)
        # A function of the script may choose that nothing arrives, so this is known only now.
        record.arrived = not (isinstance(steps[0], Fail) and steps[0].kind in BEFORE_ARRIVAL)
        return Exchange(
            record,
            steps,
            lock=self._lock,
            finish_abandoned=self.options.finish_abandoned,
            split=self.options.split,
        )

    def _record(self, wire: WireRequest) -> tuple[Api, RecordedRequest]:
        api, operation, route = self._routed(wire)
        record = RecordedRequest(
            index=len(self.requests),
            api=api.name,
            operation=operation,
            route=route,
            method=wire.method,
            path=wire.path,
            query=wire.query,
            headers=wire.headers,
            body=wire.body,
        )
        self.requests.append(record)
        return api, record

    def _routed(self, wire: WireRequest) -> tuple[Api, str, str]:
        for api in self._apis:
            found = api.route(wire.method, wire.path)
            if found is not None:
                return api, *found
        # Nobody has such a path, and whom it was meant for says that in its own words.
        api = self._apis[-1] if "anthropic-version" in wire.headers else self._apis[0]
        return api, "unknown", f"{wire.method} {wire.path}"

    def _queue(self, record: RecordedRequest) -> deque[_Queued] | None:
        return self._queues.get(record.route) or self._queues.get(record.operation)

    def _before_reading(self, record: RecordedRequest, player: Player) -> list[Step] | None:
        queue = self._queue(record)
        entry = queue[0] if queue else None
        if queue and isinstance(entry, Cut) and entry.kind in BEFORE_ARRIVAL:
            queue.popleft()
            return player.play(entry, lambda reply: Rendering(None))
        return None

    def _decide(self, api: Api, record: RecordedRequest, player: Player) -> list[Step]:
        try:
            return self._reply_to(api, record, player)
        except Exception as error:
            self.errors.append(error)
            message = "A function of the script raised an exception; see SimulatedProvider.errors."
            return player.reject(
                Rejection(status=500, message=message, type="script_error", code="script_error")
            )

    def _reply_to(self, api: Api, record: RecordedRequest, player: Player) -> list[Step]:
        if record.operation == "unknown":
            message = f"Invalid URL ({record.method} {record.path})"
            return player.reject(Rejection(status=404, message=message))
        refused = api.refuse(record, self.options.api_key)
        if refused is not None:
            return player.reject(refused)
        if record.operation != GENERATING:
            with self._lock:
                entry = as_entry(self._take(record))
                return player.play(entry, lambda reply: api.answer(record.operation, record))
        with self._lock:
            request = api.read(record)
            if isinstance(request, Rejection):
                return player.reject(request)
            queued = self._take(record)
        entry = self._resolve(queued, request)
        with self._lock:
            return player.play(entry, lambda reply: api.render(request, record, reply))

    def _take(self, record: RecordedRequest) -> _Queued:
        queue = self._queue(record)
        if not queue:
            return self._default if record.operation == GENERATING else as_entry(None)
        if isinstance(queue[0], (Agent, Forever)):
            return queue[0]
        return queue.popleft()

    def _resolve(self, queued: Any, request: ProviderRequest) -> Entry:
        """Choose until there is nothing left to choose. Runs without the lock: functions may block."""
        while True:
            if callable(queued):
                queued = self._queued(queued(request))
            elif isinstance(queued, Agent):
                done = request.answered_rounds
                queued = queued.rounds[done] if done < len(queued.rounds) else queued.final
            elif isinstance(queued, Forever):
                queued = queued.then
            else:
                made: Entry = queued
                return made

    def client(self, **options: Any) -> OpenAI:
        """An official client whose requests come here, in process. ``options`` go to ``OpenAI``."""
        from memoflow.testing._clients import sync_client

        return sync_client(self, **options)

    def async_client(self, **options: Any) -> AsyncOpenAI:
        """An official asynchronous client whose requests come here, in process."""
        from memoflow.testing._clients import async_client

        return async_client(self, **options)

    def anthropic_client(self, **options: Any) -> Anthropic:
        """An official client of Anthropic whose requests come here. ``options`` go to ``Anthropic``."""
        from memoflow.testing._anthropic_clients import sync_client

        return sync_client(self, **options)

    def async_anthropic_client(self, **options: Any) -> AsyncAnthropic:
        """An official asynchronous client of Anthropic whose requests come here, in process."""
        from memoflow.testing._anthropic_clients import async_client

        return async_client(self, **options)

    @contextmanager
    def serve(self, host: str = "127.0.0.1", port: int = 0) -> Iterator[str]:
        """Serve on loopback from threads of this process; gives the base URL for a client of OpenAI.

        A client of Anthropic takes it as its base URL without the ``/v1`` at the end.
        """
        from memoflow.testing._server import ProviderServer

        with ProviderServer(self, host, port) as server:
            yield server.base_url


def _gates_of(entry: Entry) -> Iterator[Gate]:
    if isinstance(entry, Held):
        yield entry.gate
    if isinstance(entry, (Held, Delayed, Forever)):
        yield from _gates_of(entry.then)
    if isinstance(entry, Agent):
        for inner in (*entry.rounds, entry.final):
            yield from _gates_of(inner)
