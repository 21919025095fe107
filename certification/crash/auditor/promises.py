"""What was acknowledged must be there: outputs, replies, decisions; and attempts follow one another."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator

from certification.crash.auditor.outside import Line, Outside
from certification.crash.auditor.tables import Row, Tables
from certification.crash.auditor.violation import Violation

__all__ = ["audit_promises"]


def audit_promises(tables: Tables, outside: Outside) -> Iterator[Violation]:
    """Compare what workers and the operator were told with what is recorded."""
    activities = {row["run_id"]: row for row in tables.rows("SELECT * FROM activities")}
    yield from _audit_attempts(tables, activities)
    nonces = {line["nonce"]: line["item"] for lines in outside.executions.values() for line in lines}
    for line in outside.heard:
        if line["event"] == "completed":
            yield from _audit_output(line, activities.get(line["job"]), nonces)
    yield from _audit_replies(tables, outside)
    decisions = {row["id"] for row in tables.rows("SELECT id FROM decisions")}
    for line in outside.decided:
        if line["id"] not in decisions:
            yield Violation("DECISION_LOST", line["id"], f"{line['verdict']} of {line['target']}")


def _audit_attempts(tables: Tables, activities: dict[str, Row]) -> Iterator[Violation]:
    attempts: dict[str, list[Row]] = defaultdict(list)
    for row in tables.rows("SELECT * FROM attempts ORDER BY activity_id, number"):
        attempts[row["activity_id"]].append(row)
    for job, activity in activities.items():
        made = attempts[activity["id"]]
        if [row["number"] for row in made] != list(range(1, activity["attempt"] + 1)):
            yield Violation("ATTEMPTS_DIFFER", job, f"it is at attempt {activity['attempt']} of {len(made)}")
        for state in ("RUNNING", "COMPLETED"):
            having = [row["number"] for row in made if row["state"] == state]
            wanted = [activity["attempt"]] if activity["state"] == state else []
            if having != wanted:
                yield Violation("ATTEMPT_STATE", job, f"{state} should be {wanted} and is {having}")


def _audit_output(line: Line, activity: Row | None, nonces: dict[str, str]) -> Iterator[Violation]:
    job, output = line["job"], line["output"]
    if activity is None or activity["state"] != "COMPLETED":
        state = "missing" if activity is None else activity["state"]
        yield Violation("OUTPUT_LOST", job, f"a worker was told that it is complete; it is {state}")
        return
    data = json.dumps(output, ensure_ascii=False).encode()
    if activity["output_digest"] != f"sha256:{hashlib.sha256(data).hexdigest()}":
        yield Violation("OUTPUT_DIFFERS", job, "a worker was given another output than is recorded")
    for said in (json.loads(text) for text in _results(output)):
        if nonces.get(said["nonce"]) != said["item"]:
            yield Violation("RESULT_INVENTED", job, f"no execution of {said['item']} gave this result")


def _results(output: str) -> Iterator[str]:
    """The results of tools that the model was given and repeated."""
    for text in json.loads(output):
        yield from (part for part in text.split("; ") if part.startswith('{"item"'))


def _audit_replies(tables: Tables, outside: Outside) -> Iterator[Violation]:
    query = "SELECT id, state, input_tokens, output_tokens FROM invocations"
    recorded = {
        row["id"]: (row["state"], row["input_tokens"], row["output_tokens"]) for row in tables.rows(query)
    }
    for line in outside.heard:
        if line["event"] != "replied":
            continue
        for id, *told in line["invocations"]:
            if recorded.get(id) != tuple(told):
                yield Violation(
                    "REPLY_LOST", f"{line['job']} {id}", f"told {told}, recorded {recorded.get(id)}"
                )
