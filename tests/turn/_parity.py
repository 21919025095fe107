"""Plays a scenario with the blocking and with the async adapter, and compares all that came of it."""

from __future__ import annotations

from typing import Any

from tests.turn._scenarios import SCENARIOS
from tests.turn._worlds import MODES, Got, MakeWorld, World

__all__ = ["check_parity"]

# Ids differ from run to run.
_NOT_COMPARED = {"invocation_id", "id", "effect_id", "lease_expires_at"}


def check_parity(make_world: MakeWorld, name: str, **options: Any) -> None:
    """Rows, requests on the wire, results, events and exceptions of a scenario are equal, sync and async."""
    blocking, other = (_played(make_world, mode, name, options) for mode in MODES)
    for part, value in blocking.items():
        assert other[part] == value, part


def _played(make_world: MakeWorld, mode: str, name: str, options: dict[str, Any]) -> dict[str, Any]:
    play = SCENARIOS[name]()
    world = make_world(mode, *play.script, **play.options, **options)
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
