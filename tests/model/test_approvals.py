"""Approvals against an independent model of their rules, driven at random."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from memoflow.errors import (
    AlreadyDecided,
    ApprovalExpired,
    ApprovalInvalid,
    ApproverIsRequester,
    MemoflowError,
)
from memoflow.ledger import schema as s
from memoflow.ledger.approval_queries import find_approval
from memoflow.ledger.approvals import ContinueEffects, DecideApproval
from memoflow.ledger.effects import EffectResult, FinishEffects, NewEffect
from tests.ledger import _approvals
from tests.ledger._approvals import HOUR, LAPSES, asked, resumption
from tests.ledger._calls import NAMESPACE, Ledger, identity

USUAL_PROFILE = 100
RUNS, STEPS = 10, 30
REQUESTER = "agent:answer"
_runs = itertools.count()


@dataclass
class Asked:
    """One request, as the rules have it."""

    run: str
    effect: NewEffect
    lapses_at: int
    decision: tuple[Any, ...] | None = None
    good_until: int | None = None
    state: str = "AWAITING_APPROVAL"
    ran: int = 0

    def decide(
        self, verdict: str, approver: str, valid_us: int | None, now: int
    ) -> type[MemoflowError] | None:
        """Decide; the refusal, if it is one."""
        said = (verdict, approver, valid_us)
        if self.decision is not None:
            return None if said == self.decision else AlreadyDecided
        if approver == REQUESTER:
            return ApproverIsRequester
        if now >= self.lapses_at:
            return ApprovalExpired
        if self.state != "AWAITING_APPROVAL":
            return AlreadyDecided
        self.decision = said
        self.good_until = None if valid_us is None else now + valid_us
        return None

    def come_back(self, now: int) -> str:
        """What becomes of it when its activity is run again."""
        if self.state != "AWAITING_APPROVAL":
            return self.state
        if self.decision is None:
            self.state = "DENIED" if now >= self.lapses_at else self.state
        elif self.good_until is not None and now < self.good_until:
            self.state, self.ran = "STARTED", self.ran + 1
        else:
            self.state = "DENIED"
        return self.state


def machine_on(ledger: Ledger, seen: Counter[str]) -> type[RuleBasedStateMachine]:
    """A machine whose every step is tried on a ledger and on the model."""

    class Machine(RuleBasedStateMachine):
        requests = Bundle("requests")

        def __init__(self) -> None:
            super().__init__()
            self.known: list[Asked] = []

        @rule(target=requests, effect_class=st.sampled_from(["read_only", "idempotent", "at_most_once"]))
        def ask(self, effect_class: str) -> Asked:
            """A model wants something of which a person has to know."""
            run = f"run-{next(_runs)}"
            fence = ledger.claim(identity(run_id=run))
            (new,) = asked(ledger, fence, effect_class)
            ledger.end(fence, "PARKED")
            self.known.append(Asked(run, new, ledger.now + LAPSES))
            return self.known[-1]

        @rule(
            one=requests,
            verdict=st.sampled_from(["approved", "denied"]),
            approver=st.sampled_from(["ann", "bob", REQUESTER]),
            valid_us=st.sampled_from([1, HOUR, 30 * HOUR]),
        )
        def decide(self, one: Asked, verdict: str, approver: str, valid_us: int) -> None:
            """Somebody decides, or somebody who may not tries to."""
            valid = valid_us if verdict == "approved" else None
            wanted = one.decide(verdict, approver, valid, ledger.now)
            operation = DecideApproval(NAMESPACE, one.effect.id, verdict, approver, "seen", valid)
            (told,) = ledger.do_all(operation)
            seen[f"decide {'done' if wanted is None else wanted.__name__}"] += 1
            assert (type(told) if isinstance(told, Exception) else None) is wanted

        @rule(one=requests, dies=st.booleans())
        def come_back(self, one: Asked, dies: bool) -> None:
            """The activity is run again: what is allowed begins, and is finished or cut short."""
            was = one.state
            fence = ledger.claim(identity(run_id=one.run))
            if was == "AWAITING_APPROVAL":
                wanted = one.come_back(ledger.now)
                ((resumed,), _) = ledger.do(ContinueEffects(fence, (resumption(one.effect),)))
                seen[f"came back {wanted}"] += 1
                assert resumed.state == wanted
                if wanted == "STARTED" and dies:
                    one.state = "FAILED" if one.effect.effect_class == "read_only" else "OUTCOME_UNKNOWN"
                    ledger.now += HOUR
                    fence = ledger.claim(identity(run_id=one.run))
                elif wanted == "STARTED":
                    one.state = "DONE"
                    done = EffectResult(one.effect.id, "DONE", result_digest="sha256:r", result_bytes=1)
                    ledger.do(FinishEffects(fence, (done,)))
            ledger.end(fence, "PARKED")

        @rule(
            effect_class=st.sampled_from(["read_only", "idempotent", "at_most_once"]),
            valid_us=st.sampled_from([1, HOUR, 30 * HOUR]),
            by=st.sampled_from([0, 1, HOUR]),
            dies=st.booleans(),
        )
        def go_all_the_way(self, effect_class: str, valid_us: int, by: int, dies: bool) -> None:
            """Asked, allowed and run again: chance alone does the three to one request too seldom."""
            one = self.ask(effect_class)
            self.decide(one, "approved", "ann", valid_us)
            self.wait(by)
            self.come_back(one, dies)

        @rule(one=requests, name=st.sampled_from(["arguments_digest", "idempotency_key"]))
        def come_back_with_another_call(self, one: Asked, name: str) -> None:
            """What is allowed is that very call: another one in its place never begins."""
            if one.state != "AWAITING_APPROVAL" or one.decision is None:
                return
            fence = ledger.claim(identity(run_id=one.run))
            other = resumption(one.effect, **{name: "sha256:820"})
            (told,) = ledger.do_all(ContinueEffects(fence, (other,)))
            seen["another call"] += 1
            assert type(told) is ApprovalInvalid
            ledger.end(fence, "PARKED")

        @rule(by=st.sampled_from([1, HOUR, 25 * HOUR]))
        def wait(self, by: int) -> None:
            """Time passes."""
            ledger.now += by

        @invariant()
        def all_is_as_the_model_says(self) -> None:
            """Every effect is in its state, and has begun once at most, under an approval that was used."""
            for one in self.known:
                assert ledger.row(s.effects, one.effect.id).state == one.state
                assert len(ledger.rows(s.approval_uses, id=one.effect.id)) == one.ran <= 1
                info = ledger.read(lambda c, id=one.effect.id: find_approval(c, NAMESPACE, ledger.now, id))
                assert info is not None
                assert (info.state == "used") == (one.ran == 1)
                assert (info.verdict is None) == (one.decision is None)

    return Machine


ledger = _approvals.ledger


def test_every_step_of_the_machine_by_hand(ledger: Ledger) -> None:
    """Each outcome there is, once: chance may leave any of them out, so they are not left to it."""
    seen: Counter[str] = Counter()
    steps: Any = machine_on(ledger, seen)()
    allowed = steps.ask("at_most_once")
    steps.come_back(allowed, dies=False)
    steps.decide(allowed, "approved", REQUESTER, HOUR)
    steps.decide(allowed, "approved", "ann", HOUR)
    steps.decide(allowed, "denied", "bob", HOUR)
    steps.come_back_with_another_call(allowed, "arguments_digest")
    steps.come_back(allowed, dies=False)
    late = steps.ask("read_only")
    steps.wait(LAPSES)
    steps.decide(late, "approved", "ann", HOUR)
    steps.come_back(late, dies=False)
    steps.all_is_as_the_model_says()
    assert sorted(seen) == [
        "another call",
        "came back AWAITING_APPROVAL",
        "came back DENIED",
        "came back STARTED",
        "decide AlreadyDecided",
        "decide ApprovalExpired",
        "decide ApproverIsRequester",
        "decide done",
    ]


@pytest.mark.timeout(600)
def test_approvals_are_as_the_model_says(ledger: Ledger) -> None:
    """Whoever asks, decides, waits, comes back and dies, in whatever order: nothing begins that is not
    allowed, and nothing that is allowed begins twice."""
    # The database asks its own clock, too; that must not run ahead of the one that stands still here.
    ledger.now += HOUR
    seen: Counter[str] = Counter()
    scale = max(1, settings().max_examples // USUAL_PROFILE)
    options = settings(
        max_examples=RUNS * scale,
        stateful_step_count=STEPS,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(machine_on(ledger, seen), settings=options)
