"""One caller: a full activity with one call, which is four commits, beside four bare commits."""

from __future__ import annotations

from collections.abc import Iterator

from certification.bench.bare import bare_commits
from certification.bench.load import PER_CALL, account, put_accounts
from certification.bench.provider import ready, request
from certification.bench.report import Figure, at_most
from certification.bench.site import DatabaseKind, Site
from certification.bench.timing import interleave, ratio, seconds_of
from memoflow import KeyRing, Runtime

__all__ = ["measure"]

COMMITS = 4


def measure(site: Site) -> Iterator[Figure]:
    """On each database."""
    for kind in site.kinds:
        yield _measure(site, kind)


def _measure(site: Site, kind: DatabaseKind) -> Figure:
    times, llm = 20, ready()
    with (
        bare_commits(site, kind) as bare,
        Runtime.open(site.ledger(kind), keys=KeyRing.generate()) as runtime,
    ):
        put_accounts(runtime, 1)

        @runtime.activity(version="v1", budget=account(0))
        def answer(number: int) -> str:
            return llm.run(request(number), budget=PER_CALL, replay_key="call").response.output_text

        def activities() -> None:
            for number in range(times):
                answer.run(number, workflow_id="bench")

        activities()
        bare(times)
        samples = interleave(
            site.pick(5, 25),
            {
                "activities": lambda: seconds_of(activities) / times * 1e3,
                "bare commits": lambda: seconds_of(lambda: bare(times * COMMITS)) / times * 1e3,
            },
        )
    return Figure(
        f"one_caller.{kind}",
        f"one caller: activity with one call / {COMMITS} bare commits, {kind}",
        ratio(samples, "activities", "bare commits"),
        "",
        at_most(1.25),
        samples,
        f"milliseconds of an activity and of {COMMITS} commits of one small row",
    )
