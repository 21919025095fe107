"""The blocking and the async adapter record, send and return the same, whatever happens."""

from __future__ import annotations

from typing import Any

import pytest

from tests.turn._scenarios import SCENARIOS
from tests.turn._worlds import Got, MakeWorld, World

# Ids differ from run to run.
_NOT_COMPARED = {"invocation_id", "id", "effect_id", "lease_expires_at"}


@pytest.mark.parametrize("name", SCENARIOS)
def test_both_kinds_of_adapter_do_the_same(make_world: MakeWorld, name: str) -> None:
    """Rows, requests on the wire, results, events and exceptions of a scenario are equal, sync and async."""
    seen = [_played(make_world, mode, name) for mode in ("sync", "async")]
    for part, blocking in seen[0].items():
        assert seen[1][part] == blocking, part


def _played(make_world: MakeWorld, mode: str, name: str) -> dict[str, Any]:
    play = SCENARIOS[name]()
    world = make_world(mode, *play.script, **play.options)
    got = [world.ask(*asks) for asks in play.attempts]
    return {
        **world.snapshot(),
        "wire": [(record.route, record.body) for record in world.provider.requests],
        "billed": world.provider.billed,
        "got": [_shown(one) for one in got],
        "ran": sorted(map(repr, play.bench.ran)),
        "scenario": len(play.attempts) and _meant(world, got),
    }


def _meant(world: World, got: list[Got]) -> bool:
    """Something was done or refused: a scenario in which nothing happens compares nothing."""
    return bool(world.provider.requests) or all(one.error is not None for one in got)


def _shown(got: Got) -> dict[str, Any]:
    error = got.error
    return {
        "error": None if error is None else type(error).__name__,
        "told": {name: value for name, value in vars(error or object).items() if name not in _NOT_COMPARED}
        if error is not None
        else {},
        "events": [event.model_dump(warnings=False) for event in got.events],
        "results": [
            (
                result.response.model_dump(warnings=False),
                result.finish_reason,
                result.restored,
                [
                    (t.name, t.call_id, t.round, t.ordinal, t.state, t.output, t.restored)
                    for t in result.tool_results
                ],
                [(i.round, i.restored, i.state, i.input_tokens, i.output_tokens) for i in result.invocations],
            )
            for result in got.results
        ],
    }
