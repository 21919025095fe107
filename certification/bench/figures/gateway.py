"""The gateway beside a bare reverse proxy: the same requests, the same server, the same client upstream."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from statistics import median

from certification.bench.bare import bare_commits
from certification.bench.counting import counter
from certification.bench.load import ENOUGH
from certification.bench.peers import ROOT
from certification.bench.provider import MODEL
from certification.bench.report import Figure, at_least, at_most, exactly
from certification.bench.site import DatabaseKind, Site
from certification.bench.timing import Samples, ratio, seconds_of
from certification.bench.wires import latencies, provider, rate
from memoflow import KeyRing, Runtime
from memoflow.gateway import new_virtual_key

__all__ = ["measure"]

CALLERS = 64
COMMITS = 2
PROXY = "certification.bench.reverse_proxy"
BODY = json.dumps({"model": MODEL, "input": "hello " * 20, "max_output_tokens": 200}).encode()
_RUNNING = re.compile(r"running on (http://[0-9.]+:[0-9]+)")


def measure(site: Site) -> Iterator[Figure]:
    """On each database."""
    for kind in site.kinds:
        yield from asyncio.run(_measure(site, kind))


async def _measure(site: Site, kind: DatabaseKind) -> list[Figure]:
    url, ring = site.ledger(kind), KeyRing.generate()
    key = _prepare(url, ring)
    total, runs = site.pick(200, 4_000), site.pick(1, 9)
    samples: Samples = {"commits ms": []}
    async with provider() as upstream:
        with ExitStack() as stack:
            bare = stack.enter_context(bare_commits(site, kind))
            addresses = {
                "gateway": stack.enter_context(_gateway(url, ring, upstream)),
                "proxy": stack.enter_context(_served(PROXY, upstream)),
                "proxy, kept": stack.enter_context(_served(PROXY, upstream, "--kept")),
            }
            samples |= {name: [] for server in addresses for name in (server, f"{server} ms")}
            for address in addresses.values():
                await rate(address, key, BODY, callers=CALLERS, total=CALLERS * 4)
            for run in range(runs):
                for name in list(addresses)[:: 1 if run % 2 == 0 else -1]:
                    address = addresses[name]
                    samples[name].append(await rate(address, key, BODY, callers=CALLERS, total=total))
                    one = await latencies(address, key, BODY, total=site.pick(20, 200))
                    samples[f"{name} ms"].append(median(one))
                samples["commits ms"].append(seconds_of(lambda: bare(COMMITS * 20)) / 20 * 1e3)
            commits = await _commits(url, addresses["gateway"], key)
    return _figures(kind, samples, commits)


def _prepare(url: str, ring: KeyRing) -> str:
    """An account that no load uses up, and a virtual key of it."""
    with Runtime.open(url, keys=ring) as runtime:
        runtime.budgets.put("team", ENOUGH)
        runtime.budgets.put("team/app", ENOUGH)
        key, add = new_virtual_key(
            runtime.namespace,
            runtime.digester,
            name="bench",
            account="team/app",
            models=("*",),
            endpoints=("*",),
            output_tokens=None,
            expires_in=None,
            actor="bench",
        )
        runtime.commit(add)
    return key


async def _commits(url: str, address: str, key: str) -> float:
    count, times = counter(url), 20
    count.mark()
    await latencies(address, key, BODY, total=times)
    found = count.count() / times
    count.close()
    return found


@contextmanager
def _gateway(url: str, ring: KeyRing, upstream: str) -> Iterator[str]:
    environment = {
        "MEMOFLOW_OUTPUT_KEYS": ring.export(),
        "MEMOFLOW_GATEWAY_OPENAI_KEY": "sk-upstream",
        "MEMOFLOW_GATEWAY_OPENAI_BASE_URL": upstream,
    }
    with _served("memoflow.cli", "gateway", "--database", url, "--port", "0", **environment) as address:
        yield address


@contextmanager
def _served(module: str, *arguments: str, **environment: str) -> Iterator[str]:
    """A server in a process of its own; gives its base URL."""
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield f"{_address(process)}/v1"
    finally:
        process.terminate()
        process.wait()


def _address(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    for line in process.stderr:
        if found := _RUNNING.search(line):
            threading.Thread(target=process.stderr.read, daemon=True).start()
            return found[1]
    raise RuntimeError(f"{process.args!r} ended with {process.wait()}.")


def _figures(kind: DatabaseKind, samples: Samples, commits: float) -> list[Figure]:
    added = [
        gateway - proxy for gateway, proxy in zip(samples["gateway ms"], samples["proxy ms"], strict=True)
    ]
    beyond = [more - both for more, both in zip(added, samples["commits ms"], strict=True)]
    return [
        Figure(
            f"gateway.rate.{kind}",
            f"gateway: requests / those of a bare reverse proxy, {CALLERS} callers, {kind}",
            ratio(samples, "gateway", "proxy"),
            "",
            at_least(0.5),
            {name: samples[name] for name in ("gateway", "proxy")},
            "a second; server, callers and provider share the machine; the proxy's client as it comes",
        ),
        Figure(
            f"gateway.rate_kept.{kind}",
            f"the same, the proxy with the gateway's way of keeping connections, {kind}",
            ratio(samples, "gateway", "proxy, kept"),
            "",
            None,
            {name: samples[name] for name in ("gateway", "proxy, kept")},
            "a second",
        ),
        Figure(
            f"gateway.latency.{kind}",
            f"gateway: latency added to that of the proxy, less {COMMITS} commits, {kind}",
            median(beyond),
            "ms",
            at_most(3),
            {**{name: samples[name] for name in ("gateway ms", "proxy ms", "commits ms")}, "added ms": added},
            "one caller; medians of each run",
        ),
        Figure(
            f"gateway.commits.{kind}",
            f"gateway: durable commits of a request, {kind}",
            commits,
            "",
            exactly(COMMITS),
            {"commits": [commits]},
            "counted in the log of the database",
        ),
    ]
