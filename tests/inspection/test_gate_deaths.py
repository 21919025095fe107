"""A worker that dies between a verdict and its effect, and another one under another policy."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

from memoflow import Budget, OutcomeUnknown, Runtime
from memoflow.inspection import Inspector
from memoflow.inspection.policy_file import read_policy
from memoflow.ledger.queries import EffectInfo, Filter, list_effects
from memoflow.openai import OpenAIResponses
from memoflow.testing import ManualClock, SimulatedProvider, agent, crash_points, text
from tests.inspection._desk import ASKED, GOOD, Desk, script
from tests.turn._worlds import KEYS


def test_a_verdict_that_was_recorded_before_a_death_holds_after_it(tmp_path: Path) -> None:
    """Between any two things a worker does: what was judged stays so, and what was not is judged anew."""
    ledger, judged_at = tmp_path / "ledger.db", set()
    with Runtime.open(f"sqlite:///{ledger}", keys=KEYS) as rt:
        rt.budgets.put("acme", Budget(total_tokens=10**6))
    alive = Site(ledger, "alive")
    points = crash_points(lambda: attempt(alive, Inspector(mode="enforce")))
    first = next(one.index for one in points if one.name == "after:Compute")
    for point in points[first:]:
        if not point.name.startswith(("commit:", "after:Compute")):
            continue
        site = Site(ledger, str(point.index))
        with point.crash():
            attempt(site, Inspector(mode="enforce"))
        site.clock.advance(120)
        kept, ran = site.judgements(), list(site.desk.sent)
        with suppress(OutcomeUnknown):
            attempt(site, Inspector(read_policy({"default": "deny"}), mode="enforce"))
        now = site.judgements()
        assert {id: now[id] for id in kept} == kept
        was_judged = any(name == "send_email" for name, _ in kept.values())
        assert site.desk.sent == (ran if not was_judged else [GOOD] if ran or site.permitted() else [])
        judged_at.add(was_judged)
    assert judged_at == {True, False}


class Site:
    """A copy of a ledger in a file of its own, whose clock is set by hand."""

    def __init__(self, ledger: Path, name: str) -> None:
        file = shutil.copy(ledger, ledger.with_stem(name))
        self.url = f"sqlite:///{file}"
        self.clock, self.desk = ManualClock(), Desk()
        self.provider = SimulatedProvider(default=agent(*script(GOOD)[:2], final=text("done")))

    def open(self, inspector: Inspector | None) -> Runtime:
        """Another process, as it were."""
        return Runtime.open(self.url, keys=KEYS, clock=self.clock, inspection=inspector)

    def effects(self) -> tuple[EffectInfo, ...]:
        """All effects."""
        with self.open(None) as rt:
            return rt.ledger.database.read(lambda c: list_effects(c, rt.namespace, Filter(limit=100))).items

    def judgements(self) -> dict[str, tuple[str, str | None]]:
        """Tool and judgement of each effect."""
        return {effect.id: (effect.tool_name, effect.judgement) for effect in self.effects()}

    def permitted(self) -> bool:
        """Whether the send was begun."""
        return any(one.tool_name == "send_email" and one.state == "DONE" for one in self.effects())


def attempt(site: Site, inspector: Inspector) -> None:
    """One life of a worker."""
    with site.open(inspector) as rt, site.provider.client() as client:
        llm = OpenAIResponses(client)

        @rt.activity(version="v1", budget="acme", name="answer")
        def answer() -> str:
            asked = site.desk.ask()
            options = {"continuation_budgets": asked.continuation, **asked.options}
            llm.run_with_tools({"model": "m", "input": ASKED}, site.desk.tools, **options)
            return "done"

        answer.run(workflow_id="w", run_id="r")
