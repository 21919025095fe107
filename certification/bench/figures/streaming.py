"""What a stream costs beside the SDK's own over the same transport: time per event, and memory."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from statistics import median
from typing import Any, Final

import httpx2
from openai import AsyncOpenAI, OpenAI

from certification.bench.load import account, put_accounts
from certification.bench.peers import ROOT
from certification.bench.provider import MODEL, RAW_REPLY
from certification.bench.report import Figure, at_most
from certification.bench.site import Site
from certification.bench.timing import Samples
from memoflow import Budget, KeyRing, Runtime
from memoflow.openai import AsyncOpenAIResponses, OpenAIResponses

__all__ = ["events", "measure"]

REQUEST: Final = {"model": MODEL, "input": "Go on."}
BUDGET: Final = Budget(total_tokens=100_000)
WHO: Final = ("memoflow", "SDK")
EVENTS: Final = 50  # of one sample


def _event(kind: str, **data: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n".encode()


def events(count: int, size: int = 0) -> Iterator[bytes]:
    """A stream of so many deltas, padded as OpenAI pads them, which ends as it should."""
    started = {**json.loads(RAW_REPLY), "status": "in_progress", "output": [], "usage": None}
    yield _event("response.created", response=started, sequence_number=0)
    place = {"item_id": "msg_bench", "output_index": 0, "content_index": 0}
    for number in range(1, count + 1):
        yield _event(
            "response.output_text.delta",
            **place,
            delta="x",
            logprobs=[],
            obfuscation="p" * size,
            sequence_number=number,
        )
    yield _event("response.completed", response=json.loads(RAW_REPLY), sequence_number=count + 1)


class _Body(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    def __init__(self, count: int, size: int) -> None:
        self._count, self._size = count, size

    def __iter__(self) -> Iterator[bytes]:
        return events(self._count, self._size)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for event in self:
            yield event


class _Transport(httpx2.BaseTransport, httpx2.AsyncBaseTransport):
    def __init__(self, count: int, size: int = 0) -> None:
        self._count, self._size = count, size

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        headers = {"content-type": "text/event-stream"}
        body = _Body(self._count, self._size)
        return httpx2.Response(200, headers=headers, stream=body, request=request)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return self.handle_request(request)


def client(count: int, size: int = 0) -> OpenAI:
    """The official client, whose every reply is such a stream."""
    return OpenAI(api_key="none", http_client=httpx2.Client(transport=_Transport(count, size)))


def async_client(count: int) -> AsyncOpenAI:
    """Its twin."""
    return AsyncOpenAI(api_key="none", http_client=httpx2.AsyncClient(transport=_Transport(count)))


def _time(stream: Any) -> float:
    """Microseconds of processor time of an event, over the next few."""
    start = time.process_time()
    for _ in range(EVENTS):
        next(stream)
    return (time.process_time() - start) / EVENTS * 1e6


async def _async_time(stream: Any) -> float:
    start = time.process_time()
    for _ in range(EVENTS):
        await anext(stream)
    return (time.process_time() - start) / EVENTS * 1e6


def measure(site: Site) -> Iterator[Figure]:
    """Time (of the processor: nothing here waits for anything else), then memory."""
    with Runtime.open(site.ledger("sqlite"), keys=KeyRing.generate()) as runtime:
        put_accounts(runtime, 1)
        samples = _times(site, runtime)
    for name in ("blocking", "async"):
        own, alone = samples[f"{name} memoflow"], samples[f"{name} SDK"]
        yield Figure(
            f"stream.time.{name}",
            f"time added to each event of a stream, {name}",
            median(a - b for a, b in zip(own, alone, strict=True)),
            "µs",
            at_most(30),
            {"memoflow": own, "SDK alone": alone},
            "processor time of an event; two streams over the same transport, read in turn",
        )
    yield _memory(site)


def _times(site: Site, runtime: Runtime) -> Samples:
    """Samples of a few events each, taken in turn from two streams that are open side by side.

    What else a machine does changes the time of an event by more than what is to be seen here, and for
    longer than a few events take, so that only neighbours can be compared.
    """
    blocks = site.pick(20, 100)
    deltas = (blocks + 1) * EVENTS
    samples: Samples = {f"{kind} {who}": [] for kind in ("blocking", "async") for who in WHO}
    blocking = _blocking(runtime, client(deltas), blocks, samples)
    asynchronous = _asynchronous(runtime, async_client(deltas), blocks, samples)
    with asyncio.Runner() as runner:
        for _ in range(site.pick(5, 10)):
            blocking.run(workflow_id="bench")
            runner.run(_awaited(asynchronous))
    return samples


def _blocking(runtime: Runtime, sdk: OpenAI, blocks: int, samples: Samples) -> Any:
    llm = OpenAIResponses(sdk)

    @runtime.activity(version="v1", budget=account(0))
    def blocking() -> None:
        with (
            llm.stream(REQUEST, budget=BUDGET) as ours,
            sdk.responses.create(**REQUEST, stream=True) as alone,  # type: ignore[call-overload]
        ):
            streams = dict(zip(WHO, (ours, alone), strict=True))
            for stream in streams.values():
                _time(stream)  # the first events wait for the request and what is recorded of it
            for who in _turns(blocks):
                samples[f"blocking {who}"].append(_time(streams[who]))
            for _ in ours:
                pass

    return blocking


def _asynchronous(runtime: Runtime, sdk: AsyncOpenAI, blocks: int, samples: Samples) -> Any:
    llm = AsyncOpenAIResponses(sdk)

    @runtime.activity(version="v1", budget=account(0))
    async def asynchronous() -> None:
        async with (
            llm.stream(REQUEST, budget=BUDGET) as ours,
            await sdk.responses.create(**REQUEST, stream=True) as alone,  # type: ignore[call-overload]
        ):
            streams = dict(zip(WHO, (ours, alone), strict=True))
            for stream in streams.values():
                await _async_time(stream)
            for who in _turns(blocks):
                samples[f"async {who}"].append(await _async_time(streams[who]))
            async for _ in ours:
                pass

    return asynchronous


def _turns(blocks: int) -> Iterator[str]:
    for block in range(blocks):
        yield from WHO[:: 1 if block % 2 == 0 else -1]


async def _awaited(activity: Any) -> None:
    await activity.run(workflow_id="bench")


def _memory(site: Site) -> Figure:
    megabytes = site.pick(10, 100)
    samples: Samples = {"memoflow": [], "SDK alone": []}
    for _ in range(site.pick(1, 3)):
        for name, values in samples.items():
            values.append(_growth(site, megabytes, name))
    return Figure(
        "stream.memory",
        f"memory held for a stream of {megabytes} MB",
        median(samples["memoflow"]),
        "MB",
        at_most(8),
        samples,
        "peak resident size of a process above what it was after a stream of ten events",
    )


def _growth(site: Site, megabytes: int, who: str) -> float:
    command = [sys.executable, "-m", "certification.bench.figures.streaming", site.ledger("sqlite")]
    done = subprocess.run(
        [*command, str(megabytes), who], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return float(done.stdout)


def _resident(field: str) -> float:
    with open("/proc/self/status", encoding="ascii") as status:
        line = next(line for line in status if line.startswith(field))
    return int(line.split()[1]) / 1024


def _main(url: str, megabytes: str, who: str) -> None:
    """Print by how many MB this process grew over a stream."""
    small, large = client(10, 1_000), client(int(megabytes) * 1_000_000 // 1_300, 1_100)
    with Runtime.open(url, keys=KeyRing.generate()) as runtime:
        put_accounts(runtime, 1)

        @runtime.activity(version="v1", budget=account(0))
        def read(big: bool) -> None:
            with OpenAIResponses(large if big else small).stream(REQUEST, budget=BUDGET) as stream:
                for _ in stream:
                    pass

        def alone(big: bool) -> None:
            with (large if big else small).responses.create(**REQUEST, stream=True) as stream:  # type: ignore[call-overload]
                for _ in stream:
                    pass

        work = alone if who.startswith("SDK") else lambda big: read.run(big, workflow_id="bench")
        work(False)
        with open("/proc/self/clear_refs", "w", encoding="ascii") as peak:
            # The peak starts over from here.
            peak.write("5")
        before = _resident("VmRSS")
        work(True)
        print(_resident("VmHWM") - before)


if __name__ == "__main__":
    _main(*sys.argv[1:])
