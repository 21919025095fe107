"""The auditor of the crash campaign finds nothing in a good ledger, and everything that is tampered with."""

from __future__ import annotations

import ast
import asyncio
import json
import multiprocessing
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from certification.crash import auditor
from certification.crash.auditor import audit
from certification.crash.auditor.books import chain_hash
from certification.crash.lines import Lines
from certification.crash.operator import Operator
from certification.crash.plan import Job, Plan
from certification.crash.play import Player
from certification.crash.provider import Provider
from certification.crash.tools import ToolBroke
from certification.crash.weather import Weather
from certification.crash.worker import open_runtime
from memoflow import KeyRing, MemoflowError
from tests._databases import SqliteFiles

pytestmark = pytest.mark.slow

SOURCES = sorted(Path(auditor.__file__).parent.glob("*.py"))
TRIES = 12
PLAN = Plan(seed=20, jobs=24)


@dataclass(frozen=True)
class Scene:
    """A ledger and the evidence of the world outside."""

    path: Path

    @property
    def url(self) -> str:
        """The database."""
        return f"sqlite:///{self.path / 'memoflow.db'}"

    def rules(self) -> set[str]:
        """The rules that the auditor finds broken."""
        return {found.rule for found in audit(self.url, self.path, final=True)}

    def sql(self, *statements: str) -> int:
        """Change the tables, which their guards would forbid; how many rows the last statement changed."""
        with closing(sqlite3.connect(self.path / "memoflow.db")) as database, database:
            for (name,) in database.execute(
                "SELECT name FROM sqlite_master WHERE type = 'trigger'"
            ).fetchall():
                database.execute(f"DROP TRIGGER {name}")
            for statement in statements:
                changed = database.execute(statement).rowcount
        return changed

    def rewrite(self, file: str, change: Callable[[list[dict[str, Any]]], Any]) -> None:
        """Change a file of evidence."""
        (path,) = self.path.glob(file)
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        change(lines)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))


class Stage:
    """Plays jobs one after the other, deciding about what needs a decision."""

    def __init__(self, player: Player, reconcile: Callable[[], Any]) -> None:
        self._player, self._reconcile = player, reconcile

    def __enter__(self) -> Stage:
        self._runner = asyncio.Runner()
        return self

    def __exit__(self, *error: object) -> None:
        self._player.close()
        self._runner.run(self._player.aclose())
        self._runner.close()

    def play(self, job: Job) -> str:
        """Run a job until it has an output."""
        for _ in range(TRIES):
            try:
                if job.is_async:
                    return self._runner.run(self._player.run_async(job))
                return self._player.run(job)
            except (MemoflowError, ToolBroke, BaseExceptionGroup, asyncio.CancelledError):
                self._reconcile()
        raise AssertionError(f"{job.name} has no output after {TRIES} attempts.")


@pytest.fixture(scope="module")
def good(sqlite_files: SqliteFiles, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """A reconciled ledger in which much went wrong outside."""
    scene = Scene(tmp_path_factory.mktemp("good"))
    sqlite_files.create(scene.path)
    key, weather = KeyRing.generate().export(), Weather(multiprocessing.get_context("spawn"))
    heard = Lines(scene.path / "worker-0.jsonl")
    with Provider(PLAN) as provider, open_runtime(scene.url, key, weather, "worker") as runtime:
        operator = Operator(scene.url, key, scene.path, provider.base_url, weather)

        def reconcile() -> None:
            provider.write_record(scene.path / "provider.jsonl", when_alone=False)
            operator.decide("everything")

        round = PLAN.round(0)
        operator.prepare(round)
        operator.lift()
        player = Player(PLAN, runtime, provider.base_url, Lines(scene.path / "tools.jsonl"), heard)
        with Stage(player, reconcile) as stage:
            for job in round.jobs:
                heard.append(event="completed", job=job.name, output=stage.play(job))
        reconcile()
    return scene


@pytest.fixture
def scene(good: Scene, tmp_path: Path) -> Scene:
    """A copy to tamper with."""
    shutil.copytree(good.path, tmp_path / "scene")
    return Scene(tmp_path / "scene")


def test_nothing_is_wrong_with_a_good_ledger(scene: Scene) -> None:
    """A ledger of calls that were answered, refused, lost and decided about passes every rule."""
    assert audit(scene.url, scene.path, final=True) == []


SETTLED = "(SELECT min(id) FROM reservations WHERE state = 'SETTLED')"
ANSWERED = "(SELECT min(id) FROM invocations WHERE state = 'SUCCEEDED' AND reason IS NULL)"
ASKED = (
    "INSERT INTO approval_requests SELECT id, namespace, activity_id, invocation_id, ordinal, "
    "tool_namespace, tool_name, tool_version, arguments_digest, idempotency_key, 'x', 1, 2 "
    "FROM effects WHERE state = 'DONE'"
)
"""Makes effects that were done such as somebody had to allow, and nobody has."""

TABLES = {
    "CHAIN_BROKEN": "UPDATE journal SET at = at + 1 WHERE seq = 2 AND balance_id = 1",
    "JOURNAL_GAP": "DELETE FROM journal WHERE seq = 2 AND balance_id = 1",
    "NEGATIVE": "UPDATE journal SET held_total_tokens = -1 WHERE seq = 1 AND balance_id = 1",
    "BALANCE_DIFFERS": "UPDATE balances SET settled_cost = settled_cost + 1 WHERE id = 1",
    "HEAD_DIFFERS": "UPDATE balances SET seq = seq + 1 WHERE id = 1",
    "LIMIT_EXCEEDED": "UPDATE policies SET hard_model_calls = 1",
    "POLICY_MISSING": "DELETE FROM policies",
    "LEG_WRONG": f"UPDATE reservations SET actual_cost = actual_cost + 1 WHERE id = {SETTLED}",
    "LEGS_DIFFER": f"UPDATE reservations SET account = 'acme' WHERE id = {SETTLED}",
    "RESERVATION_MISSING": f"DELETE FROM reservations WHERE id = {SETTLED}",
    "STATES_DIFFER": f"UPDATE invocations SET state = 'STARTED' WHERE id = {ANSWERED}",
    "SENT_WITHOUT_ROW": f"DELETE FROM invocations WHERE id = {ANSWERED}",
    "REQUEST_DIFFERS": f"UPDATE invocations SET request_digest = 'sha256:0' WHERE id = {ANSWERED}",
    "USAGE_DIFFERS": f"UPDATE invocations SET input_tokens = input_tokens + 1 WHERE id = {ANSWERED}",
    "CHARGE_DIFFERS": f"UPDATE reservations SET actual_input_tokens = 1 WHERE id = {ANSWERED}",
    "REJECTION_DIFFERS": f"UPDATE invocations SET reason = 'PROVIDER_REJECTED' WHERE id = {ANSWERED}",
    "RELEASED_BUT_SENT": f"UPDATE reservations SET state = 'RELEASED' WHERE id = {ANSWERED}",
    "REPLY_LOST": f"UPDATE invocations SET state = 'FAILED' WHERE id = {ANSWERED}",
    "EXECUTED_WITHOUT_ROW": "DELETE FROM effects WHERE state = 'DONE'",
    "EXECUTIONS_DIFFER": "UPDATE effects SET execution = 7 WHERE state = 'DONE'",
    "OUTPUT_LOST": "UPDATE activities SET state = 'FREE' WHERE rowid = 1",
    "OUTPUT_DIFFERS": "UPDATE activities SET output_digest = 'sha256:0' WHERE rowid = 1",
    "ATTEMPTS_DIFFER": "DELETE FROM attempts WHERE rowid = 1",
    "ATTEMPT_STATE": "UPDATE attempts SET state = 'LOST' WHERE state = 'COMPLETED'",
    "DECISION_LOST": "DELETE FROM decisions",
    "APPROVAL_USE": ASKED,
    "NOT_APPROVED": ASKED,
    "APPROVAL_DIFFERS": ASKED.replace(
        "arguments_digest, idempotency_key, 'x'", "'other', idempotency_key, 'x'"
    ),
    "LEFT_OPEN": f"UPDATE reservations SET state = 'HELD' WHERE id = {SETTLED}",
    "LEFT_HELD": "UPDATE balances SET held_tool_calls = 1 WHERE id = 1",
    "NOT_EXACT": "UPDATE balances SET settled_input_tokens = settled_input_tokens - 1 WHERE id = 1",
}
"""What is done to the tables, by the rule that it breaks, beside others perhaps."""


@pytest.mark.parametrize("rule", TABLES)
def test_tables_that_were_tampered_with_are_found(scene: Scene, rule: str) -> None:
    """Every change of a row that breaks a rule is found under the name of that rule."""
    assert scene.sql(TABLES[rule]) > 0
    assert rule in scene.rules()


def _first(lines: list[dict[str, Any]], **wanted: Any) -> dict[str, Any]:
    return next(line for line in lines if wanted.items() <= line.items())


def _again(lines: list[dict[str, Any]], **wanted: Any) -> None:
    lines.append(_first(lines, **wanted))


OUTSIDE: dict[str, tuple[str, Callable[[list[dict[str, Any]]], Any]]] = {
    "SENT_TWICE": ("provider.jsonl", lambda lines: _again(lines)),
    "SUCCEEDED_UNSENT": ("provider.jsonl", lambda lines: [line.update(performed=False) for line in lines]),
    "SETTLED_UNSENT": ("provider.jsonl", lambda lines: lines.remove(_first(lines, performed=True))),
    "EXECUTED_TWICE": ("tools.jsonl", lambda lines: _again(lines, effect="at_most_once")),
    "DONE_UNDONE": ("tools.jsonl", lambda lines: lines.clear()),
    "KEY_SHARED": ("tools.jsonl", lambda lines: [line.update(key="k") for line in lines]),
    "KEY_CHANGED": ("tools.jsonl", lambda lines: lines.append({**lines[0], "key": "another"})),
    "RESULT_INVENTED": ("tools.jsonl", lambda lines: [line.update(nonce="other") for line in lines]),
}
"""What is done to the record of the world outside, as if the ledger had missed it."""


@pytest.mark.parametrize("rule", OUTSIDE)
def test_a_world_that_saw_something_else_is_found(scene: Scene, rule: str) -> None:
    """Requests, executions and results that the ledger does not account for are found."""
    scene.rewrite(*OUTSIDE[rule])
    assert rule in scene.rules()


def test_a_second_invocation_for_one_request_is_found(scene: Scene) -> None:
    """Two rows cannot both stand for the same round of the same attempt."""
    columns = "id, " + ", ".join(name for name in scene_columns(scene, "invocations") if name != "id")
    values = columns.replace("id,", "'copy',", 1)
    held = ", ".join(scene_columns(scene, "reservations")).replace("id,", "'copy',", 1)
    scene.sql(
        f"INSERT INTO invocations ({columns}) SELECT {values} FROM invocations WHERE id = {ANSWERED}",
        f"INSERT INTO reservations SELECT {held} FROM reservations WHERE id = {ANSWERED}",
    )
    assert "ROW_TWICE" in scene.rules()


def scene_columns(scene: Scene, table: str) -> list[str]:
    """The names of a table's columns, in order."""
    with closing(sqlite3.connect(scene.path / "memoflow.db")) as database:
        return [row[1] for row in database.execute(f"PRAGMA table_info({table})")]


def test_an_execution_after_one_that_was_done_is_found(scene: Scene) -> None:
    """What is DONE is not run again, whatever its class."""
    names = scene_columns(scene, "effects")
    made = {"id": "'copy'", "execution": "execution + 1"}
    values = ", ".join(made.get(name, name) for name in names)
    scene.sql(f"INSERT INTO effects SELECT {values} FROM effects WHERE state = 'DONE' LIMIT 1")
    assert "RUN_AFTER_DONE" in scene.rules()


def test_a_journal_that_was_forged_with_its_chain_is_found(scene: Scene) -> None:
    """Whoever hashes everything anew still contradicts the reservations and the provider."""
    with closing(sqlite3.connect(scene.path / "memoflow.db")) as database:
        database.row_factory = sqlite3.Row
        rows = [dict(row) for row in database.execute("SELECT * FROM journal ORDER BY balance_id, seq")]
    changes, head = [], "0" * 64
    for row in (row for row in rows if row["balance_id"] == 1):
        if row["event"] == "settle":
            row["settled_input_tokens"] += 1
        head = chain_hash(head, row)
        changes.append(
            f"UPDATE journal SET hash = '{head}', settled_input_tokens = {row['settled_input_tokens']} "
            f"WHERE balance_id = 1 AND seq = {row['seq']}"
        )
    settled = "(SELECT sum(settled_input_tokens) FROM journal WHERE balance_id = 1)"
    changes.append(f"UPDATE balances SET head = '{head}', settled_input_tokens = {settled} WHERE id = 1")
    scene.sql(*changes)
    assert scene.rules() == {"LEG_WRONG", "NOT_EXACT"}


# The auditor itself


def test_every_rule_is_seen_to_be_broken() -> None:
    """A rule that no test breaks may be one that cannot be broken."""
    named = {
        rule
        for path in SOURCES
        for rule in re.findall(r'(?:Violation\(\s*|yield )"([A-Z_]+)"', path.read_text())
    }
    assert named == {*TABLES, *OUTSIDE, "ROW_TWICE", "RUN_AFTER_DONE"}


def imports(path: Path) -> Iterator[str]:
    """What a module imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_the_auditor_shares_no_code_with_the_ledger(path: Path) -> None:
    """It imports the standard library, a database driver and itself, and nothing of what it audits."""
    foreign = {
        name for name in imports(path) if name.partition(".")[0] in ("memoflow", "sqlalchemy", "tests")
    }
    own = {name for name in imports(path) if name.startswith("certification")}
    assert foreign == set()
    assert all(name.startswith("certification.crash.auditor") for name in own)
