"""Cases: each boundary is there once, and ended as it must, in the ledger and on the wire."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from certification.live.boundaries import BOUNDARIES, HOSTS, Boundary, Ending
from certification.live.evidence import Call, Case, Evidence, Usage

__all__ = ["case_findings", "host_findings", "run_findings"]

_APIS = {"openai": "responses", "anthropic": "messages"}


def host_findings(evidence: Evidence) -> list[str]:
    """What does not go together about where the requests went."""
    found = []
    own = HOSTS[evidence.provider]
    if evidence.api != _APIS[evidence.provider]:
        found.append(f"The API {evidence.api} is not one of {evidence.provider}.")
    wires = [call.wire for case in evidence.cases for call in case.calls]
    hosts = {wire.host for wire in wires}
    if not hosts <= {own, "elsewhere"}:
        found.append(f"A run of {evidence.provider} has requests to the host of another provider.")
    if evidence.simulated != ("elsewhere" in hosts):
        found.append(
            f"simulated is {str(evidence.simulated).lower()}, and {'some' if 'elsewhere' in hosts else 'no'} "
            "requests went elsewhere than to the provider."
        )
    if any(wire.host == own and wire.certificate is None for wire in wires):
        found.append(f"A request to {own} has no certificate of the server, which HTTPS always shows.")
    return found


def run_findings(evidence: Evidence) -> list[str]:
    """What does not hold for the cases."""
    names = [case.boundary for case in evidence.cases]
    wanted = [boundary.name for boundary in BOUNDARIES]
    if names != wanted:
        return [f"The cases are {', '.join(names) or 'none'}; a run has {', '.join(wanted)}."]
    found = []
    for boundary, case in zip(BOUNDARIES, evidence.cases, strict=True):
        found += case_findings(boundary, case)
    calls = [call for case in evidence.cases for call in case.calls]
    found += _repeated("invocation", (call.id for call in calls))
    found += _repeated("response id", (call.wire.response_id for call in calls))
    return found


def _repeated(what: str, values: Iterator[str]) -> list[str]:
    return [f"The {what} {one} stands for {n} calls." for one, n in Counter(values).items() if n > 1]


def case_findings(boundary: Boundary, case: Case) -> list[str]:
    """What does not hold for one case, as far as it can be told without the books."""
    name = boundary.name
    if len(case.calls) != len(boundary.endings):
        return [
            f"{name}: the calls made are {len(case.calls)}, those of the boundary {len(boundary.endings)}."
        ]
    found = []
    for number, (call, ending) in enumerate(zip(case.calls, boundary.endings, strict=True), 1):
        place = f"{name}, call {number}"
        found += [f"{place}: {text}" for text in _call_findings(call, ending, streamed=boundary.streamed)]
    executions = [effect.execution for effect in case.effects]
    if executions != [1] * sum(ending.effects for ending in boundary.endings):
        found.append(f"{name}: the executions of tools are {executions}; each call of one runs once.")
    return found


def _call_findings(call: Call, ending: Ending, *, streamed: bool) -> Iterator[str]:
    state = (call.state, call.reservation, call.reason)
    wanted = (ending.state, ending.reservation, ending.reason)
    if state != wanted:
        yield f"it is {_state(*state)}, and must be {_state(*wanted)}."
    if call.finish not in ending.finishes:
        yield f"it finished with {call.finish}, and must with {' or '.join(ending.finishes)}."
    yield from _wire_findings(call, streamed=streamed, settled=ending.event == "settle")
    yield from _reserved_findings(call)
    if call.usage is not None:
        yield from _usage_findings(call, call.usage)


def _reserved_findings(call: Call) -> Iterator[str]:
    reserved = call.reserved
    if reserved.model_calls != 1:
        yield f"it reserved {reserved.model_calls} model calls; it is one."
    if reserved.input_tokens + reserved.output_tokens != reserved.total_tokens:
        yield f"it reserved {reserved.total_tokens} tokens, which is not what its input and output may be."
    if call.wire.output_cap != reserved.output_tokens:
        yield f"its request had the output cap {call.wire.output_cap}, not {reserved.output_tokens}."


def _state(state: str, reservation: str, reason: str | None) -> str:
    return f"{state} / {reservation}" + (f" ({reason})" if reason else "")


def _wire_findings(call: Call, *, streamed: bool, settled: bool) -> Iterator[str]:
    wire = call.wire
    if wire.status != 200:
        yield f"the provider answered with status {wire.status}."
    if wire.retry_count != 0:
        yield f"the SDK reported {wire.retry_count} repetitions of its own; memoflow lets it make none."
    if wire.streamed != streamed:
        yield f"the request was {'streamed' if wire.streamed else 'not streamed'}."
    if wire.ended != settled:
        yield "its reply did not end, and had to." if settled else "its reply ended, and had not to."
    if call.usage != wire.usage:
        yield "the ledger has another usage than the wire."
    if (call.usage is not None) != settled:
        yield f"it has {'a' if call.usage else 'no'} usage."
    if wire.output_cap < 1:
        yield "its request had no output cap."


def _usage_findings(call: Call, usage: Usage) -> Iterator[str]:
    if usage.cached_input_tokens + usage.cache_write_tokens > usage.input_tokens:
        yield "more of its input was cached than there was."
    if usage.reasoning_tokens > usage.output_tokens:
        yield "more of its output was reasoning than there was."
    if not (usage.input_tokens and usage.output_tokens):
        yield "its usage says that something was made of nothing, or as nothing."
    if usage.output_tokens > call.wire.output_cap:
        yield f"it made {usage.output_tokens} tokens; its output cap was {call.wire.output_cap}."
    total = usage.input_tokens + usage.output_tokens
    if total > call.reserved.total_tokens:
        yield f"it used {total} tokens; {call.reserved.total_tokens} were reserved."
