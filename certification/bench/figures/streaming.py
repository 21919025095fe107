"""What a stream costs beside the SDK's own over the same transport: time per event, and memory."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from statistics import median
from typing import Any, Final

from certification.bench.load import account, put_accounts
from certification.bench.peers import ROOT
from certification.bench.report import Figure, at_most
from certification.bench.site import Site
from certification.bench.streams import RESPONSES, STREAMED, Streamed
from certification.bench.timing import Samples
from memoflow import Budget, KeyRing, Runtime

__all__ = ["measure"]

BUDGET: Final = Budget(total_tokens=100_000)
WHO: Final = ("memoflow", "SDK")
EVENTS: Final = (
    200  # of one sample: of few, only some would hold the moments in which memoflow reads what came
)


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
        for name, api in STREAMED.items():
            yield from _added(name, api, _times(site, runtime, api))
    yield _memory(site)


def _added(name: str, api: Streamed, samples: Samples) -> Iterator[Figure]:
    of_api = "" if api is RESPONSES else f".{name}"
    for way in ("blocking", "async"):
        own, alone = samples[f"{way} memoflow"], samples[f"{way} SDK"]
        yield Figure(
            f"stream.time{of_api}.{way}",
            f"time added to each event of a stream of {api.name}, {way}",
            median(a - b for a, b in zip(own, alone, strict=True)),
            "µs",
            at_most(30),
            {"memoflow": own, "SDK alone": alone},
            "processor time of an event; two streams over the same transport, read in turn",
        )


def _times(site: Site, runtime: Runtime, api: Streamed) -> Samples:
    """Samples of a few events each, taken in turn from two streams that are open side by side.

    What else a machine does changes the time of an event by more than what is to be seen here, and for
    longer than a few events take, so that only neighbours can be compared.
    """
    blocks = site.pick(8, 30)
    deltas = (blocks + 1) * EVENTS
    samples: Samples = {f"{kind} {who}": [] for kind in ("blocking", "async") for who in WHO}
    blocking = _blocking(runtime, api, api.client(deltas), blocks, samples)
    asynchronous = _asynchronous(runtime, api, api.async_client(deltas), blocks, samples)
    with asyncio.Runner() as runner:
        for _ in range(site.pick(5, 10)):
            blocking.run(workflow_id="bench")
            runner.run(_awaited(asynchronous))
    return samples


def _blocking(runtime: Runtime, api: Streamed, sdk: Any, blocks: int, samples: Samples) -> Any:
    llm = api.adapters[0](sdk)

    @runtime.activity(version="v1", budget=account(0))
    def blocking() -> None:
        with llm.stream(api.request, budget=BUDGET) as ours, api.alone(sdk) as alone:
            streams = dict(zip(WHO, (ours, alone), strict=True))
            for stream in streams.values():
                _time(stream)  # the first events wait for the request and what is recorded of it
            for who in _turns(blocks):
                samples[f"blocking {who}"].append(_time(streams[who]))
            for _ in ours:
                pass

    return blocking


def _asynchronous(runtime: Runtime, api: Streamed, sdk: Any, blocks: int, samples: Samples) -> Any:
    llm = api.adapters[1](sdk)

    @runtime.activity(version="v1", budget=account(0))
    async def asynchronous() -> None:
        async with llm.stream(api.request, budget=BUDGET) as ours, await api.alone(sdk) as alone:
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
    api = RESPONSES
    small, large = api.client(10, 1_000), api.client(int(megabytes) * 1_000_000 // 1_300, 1_100)
    with Runtime.open(url, keys=KeyRing.generate()) as runtime:
        put_accounts(runtime, 1)

        @runtime.activity(version="v1", budget=account(0))
        def read(big: bool) -> None:
            with api.adapters[0](large if big else small).stream(api.request, budget=BUDGET) as stream:
                for _ in stream:
                    pass

        def alone(big: bool) -> None:
            with api.alone(large if big else small) as stream:
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
