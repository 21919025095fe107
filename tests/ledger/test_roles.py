"""Least-privilege roles, created for real: what each can do with the package's own code, and what not."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg
import pytest
from sqlalchemy import make_url, text
from sqlalchemy.exc import ProgrammingError

from memoflow.budget import Budget
from memoflow.errors import ConfigurationError
from memoflow.ledger import migrate, roles
from memoflow.ledger.accounts import SetAccountState
from memoflow.ledger.activities import CompleteActivity, ExtendLease
from memoflow.ledger.approval_queries import list_approvals
from memoflow.ledger.effects import EffectResult, FinishEffects
from memoflow.ledger.outputs import purge_expired
from memoflow.ledger.schema import metadata, reservations
from memoflow.ledger.unpriced import AllowUnpriced
from memoflow.ledger.verify import verify
from tests._databases import PostgresServer
from tests.ledger._approvals import allow, deny, go_on, parked, to_the_present
from tests.ledger._calls import NAMESPACE, Ledger, ask, bound, effect, identity, open_ledger, output
from tests.ledger._decisions import decide, decide_effect
from tests.ledger._rows import whole_ledger
from tests.ledger._support import connect

pytestmark = pytest.mark.postgres
WANTED = ask(total_tokens=100, input_tokens=30, output_tokens=70)


@dataclass(frozen=True)
class Roles:
    """A database and the three roles on it."""

    url: str
    worker: str
    operator: str
    reader: str

    def url_as(self, role: str) -> str:
        """The database's URL for a connection that has the rights of a role and no more."""
        url = make_url(self.url).update_query_dict({"options": f"-c role={role}"})
        return url.render_as_string(hide_password=False)

    def sql(self) -> str:
        """The SQL that makes the roles."""
        return roles.roles_sql(worker=self.worker, operator=self.operator, reader=self.reader)

    def apply(self) -> None:
        """Run that SQL as a person would, as one script."""
        execute(self.url, self.sql())


def execute(url: str, script: str) -> None:
    """Run a script of several statements."""
    plain = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(plain, autocommit=True) as connection:
        connection.execute(script.encode())


@contextmanager
def made_roles(server: PostgresServer) -> Iterator[Roles]:
    """Roles of their own names, because roles belong to the whole server."""
    names = [f"memoflow_{kind}_{uuid.uuid4().hex[:12]}" for kind in ("worker", "operator", "reader")]
    url = server.create()
    made = Roles(url, *names)
    made.apply()
    yield made
    server.drop(url)
    for name in names:
        server.execute(f"DROP ROLE {name}")


@pytest.fixture
def made(postgres: PostgresServer) -> Iterator[Roles]:
    """A migrated database of its own with the three roles."""
    with made_roles(postgres) as made:
        yield made


@pytest.fixture(scope="module")
def shared(postgres: PostgresServer) -> Iterator[Roles]:
    """A database with rows in every table and the three roles, for tests that change nothing."""
    with made_roles(postgres) as made:
        with connect(made.url) as connection:
            whole_ledger(connection)
        yield made


def refused(made: Roles, role: str, statement: str) -> bool:
    """Whether a role may not run a statement; what it may run is taken back."""
    with connect(made.url_as(role)) as connection:
        try:
            connection.execute(text(statement))
        except ProgrammingError as error:
            return getattr(error.orig, "sqlstate", None) == "42501"
        finally:
            connection.rollback()
    return False


def run_calls(worker: Ledger) -> tuple[str, str]:
    """Everything an activity does; returns an unknown invocation and an unknown effect."""
    worker.put("acme/run:1:1", Budget(total_tokens=900))
    fence = worker.claim()
    id = worker.start(fence, WANTED, "acme/run:1:1", binding=bound())
    done, lost = effect(id), effect(id, 1)
    outputs = (output(id, "reply"),)
    worker.settle(fence, id, 20, 30, outputs=outputs, effects=(done, lost))
    results = (
        EffectResult(done.id, "DONE", result_digest="sha256:r", output=output(done.id, "result")),
        EffectResult(lost.id, "OUTCOME_UNKNOWN", "TOOL_ERROR"),
    )
    worker.do(FinishEffects(fence, results))
    worker.do(ExtendLease(fence, 1))
    worker.do(CompleteActivity(fence, "sha256:out", output(fence.activity_id, "output")))
    return worker.unknown(WANTED, who=identity("second")), lost.id


def test_what_a_role_may_not_do_is_refused_in_a_sentence(shared: Roles) -> None:
    """Neither a worker nor a reader that decides about a model sees a database's error."""
    for role in (shared.worker, shared.reader):
        with open_ledger(shared.url_as(role)) as ledger, pytest.raises(ConfigurationError, match="db roles"):
            ledger.do(AllowUnpriced(NAMESPACE, "model", "ann", "cheap"))


def test_the_package_works_under_its_roles(made: Roles) -> None:
    """Limits and decisions as operator, activities as worker and `verify` as reader all go through."""
    with open_ledger(made.url_as(made.operator)) as operator, open_ledger(made.url_as(made.worker)) as worker:
        operator.put("acme", Budget(total_tokens=1000))
        operator.put("acme", Budget(total_tokens=2000))
        call, lost = run_calls(worker)
        operator.do(decide(call, "settle"))
        operator.do(decide_effect(lost, result=output(lost, "result")))
        operator.do(AllowUnpriced(NAMESPACE, "m", "ann", "a trial"))
        operator.do(SetAccountState(NAMESPACE, "acme", "CLOSED", "ann", "done"))
        with connect(made.url_as(made.operator)) as connection:
            connection.execute(text("UPDATE outputs SET expires_at = 1"))
            assert purge_expired(connection, NAMESPACE, 2) == 4
        assert worker.row(reservations, call).state == "SETTLED"
    with connect(made.url_as(made.reader)) as connection:
        assert verify(connection) == []


def test_a_worker_asks_and_an_operator_allows(made: Roles) -> None:
    """Each does its own with the package's code; a worker that would decide is refused by the database."""
    with open_ledger(made.url_as(made.operator)) as operator, open_ledger(made.url_as(made.worker)) as worker:
        to_the_present(worker)
        operator.now = worker.now
        operator.put("acme")
        fence, new = parked(worker)
        for decide in (allow, deny):
            with pytest.raises(ConfigurationError, match="db roles"):
                worker.do(decide(new.id))
        operator.do(allow(new.id))
        assert [one.state for one in go_on(worker, fence, new)] == ["STARTED"]
        with pytest.raises(ConfigurationError, match="db roles"):
            operator.claim(identity("second"))
    with connect(made.url_as(made.reader)) as connection:
        assert verify(connection) == []
        assert list_approvals(connection, NAMESPACE, 1, state="used").items != ()


def test_a_role_without_rights_cannot_migrate(made: Roles) -> None:
    """The worker cannot bring the schema forward, and is told who can."""
    with connect(made.url) as connection:
        connection.execute(text(f"UPDATE {migrate.VERSION_TABLE} SET version_num = '{migrate.HEAD}x'"))
        connection.execute(text(f"DELETE FROM {migrate.VERSION_TABLE}"))
    assert not migrate.check(made.url_as(made.worker)).current
    with pytest.raises(ConfigurationError, match="the role that owns it"):
        migrate.upgrade(made.url_as(made.worker))


def test_a_role_without_any_grant_is_told_which(made: Roles, postgres: PostgresServer) -> None:
    """The schema is current, so that upgrading is not all that is proposed."""
    name = f"memoflow_none_{uuid.uuid4().hex[:12]}"
    postgres.execute(f"CREATE ROLE {name}")
    try:
        with pytest.raises(ConfigurationError, match=r"GRANT memoflow_worker.*`memoflow db roles`"):
            migrate.check(made.url_as(name))
    finally:
        postgres.execute(f"DROP ROLE {name}")


def test_roles_that_are_there_need_no_right_to_create_roles(made: Roles) -> None:
    """Only where one is missing does the SQL create it."""
    lookups = [line for line in made.sql().splitlines() if "CREATE ROLE" in line]
    assert len(lookups) == 3
    execute(made.url, "\n".join([f"SET ROLE {made.reader};", *lookups]))


@pytest.mark.parametrize("role", ["worker", "operator", "reader"])
@pytest.mark.parametrize("table", [*sorted(metadata.tables), migrate.VERSION_TABLE])
def test_nobody_deletes_empties_or_alters(shared: Roles, role: str, table: str) -> None:
    """No role may delete or truncate rows, switch off a guard, or drop a table."""
    name = getattr(shared, role)
    for statement in (
        f"DELETE FROM {table}",
        f"TRUNCATE {table} CASCADE",
        f"ALTER TABLE {table} DISABLE TRIGGER ALL",
        f"DROP TABLE {table} CASCADE",
    ):
        assert refused(shared, name, statement), statement


FORBIDDEN = {
    "worker": [
        "UPDATE accounts SET state = 'CLOSED'",
        "UPDATE accounts SET policy_version = policy_version + 1",
        "UPDATE reservations SET decision_id = 'x'",
        "UPDATE effects SET decision_id = 'x'",
        "UPDATE outputs SET ciphertext = NULL",
        "UPDATE reservations SET reserved_cost = 0",
        "UPDATE reservations SET account = 'other'",
        "UPDATE invocations SET model = 'other'",
        "UPDATE balances SET account_id = 1",
        "INSERT INTO decisions SELECT * FROM decisions",
        "INSERT INTO approval_decisions SELECT * FROM approval_decisions",
        "UPDATE effects SET arguments_digest = 'sha256:other'",
        "INSERT INTO virtual_keys SELECT * FROM virtual_keys",
        "INSERT INTO virtual_key_revocations SELECT * FROM virtual_key_revocations",
    ],
    "operator": [
        "INSERT INTO activities SELECT * FROM activities",
        "INSERT INTO attempts SELECT * FROM attempts",
        "INSERT INTO turns SELECT * FROM turns",
        "INSERT INTO invocations SELECT * FROM invocations",
        "INSERT INTO reservations SELECT * FROM reservations",
        "INSERT INTO approval_requests SELECT * FROM approval_requests",
        "INSERT INTO approval_uses SELECT * FROM approval_uses",
        "INSERT INTO reply_owners SELECT * FROM reply_owners",
        "INSERT INTO inspections SELECT * FROM inspections",
        "UPDATE reservations SET reserved_cost = 0",
        "UPDATE effects SET started_at = 1",
        "UPDATE accounts SET path = 'other'",
    ],
    "reader": [
        "SELECT ciphertext FROM outputs",
        "SELECT nonce FROM outputs",
        "SELECT * FROM outputs",
        *(
            f"INSERT INTO {table} SELECT * FROM {table}"
            for table in sorted(metadata.tables)
            if table != "outputs"
        ),
    ],
}
BOTH_NEVER = [
    "UPDATE journal SET at = at",
    "UPDATE policies SET hard_cost = NULL",
    "UPDATE decisions SET actor = 'x'",
    "UPDATE evidence SET at = at",
    "UPDATE turns SET replay_key = 'x'",
    "UPDATE approval_requests SET arguments_digest = 'sha256:other'",
    "UPDATE approval_decisions SET expires_at = expires_at + 1",
    "UPDATE approval_uses SET attempt = 2",
    f"UPDATE {migrate.VERSION_TABLE} SET version_num = 'x'",
    "CREATE TABLE mine (id int)",
]


@pytest.mark.parametrize(
    ("role", "statement"),
    [
        *[(role, statement) for role, statements in FORBIDDEN.items() for statement in statements],
        *[(role, statement) for role in FORBIDDEN for statement in BOTH_NEVER],
    ],
)
def test_what_a_role_does_not_need_it_may_not(shared: Roles, role: str, statement: str) -> None:
    """Each statement that is another role's business, or nobody's, is refused for want of a right."""
    assert refused(shared, getattr(shared, role), statement)


def test_the_reader_sees_everything_but_ciphertext(shared: Roles) -> None:
    """Every table can be read, of the protected outputs all but what is sealed."""
    for table in metadata.tables.values():
        shown = [column.name for column in table.columns if column.name not in ("nonce", "ciphertext")]
        assert not refused(shared, shared.reader, f"SELECT {', '.join(shown)} FROM {table.name}")


def test_running_it_again_takes_away_what_was_added(made: Roles) -> None:
    """The SQL can be run again after an upgrade, and a right that somebody added by hand is gone then."""
    execute(made.url, f"GRANT DELETE, UPDATE (actor) ON decisions TO {made.worker}")
    assert not refused(made, made.worker, "UPDATE decisions SET actor = 'x'")
    made.apply()
    assert refused(made, made.worker, "UPDATE decisions SET actor = 'x'")
    assert refused(made, made.worker, "DELETE FROM decisions")


@pytest.mark.parametrize("name", ["", "Worker", "a b", 'x"; DROP TABLE journal; --', "1st", "x" * 64])
@pytest.mark.parametrize("what", ["schema", "worker", "operator", "reader"])
def test_a_name_that_is_no_plain_identifier_is_refused(name: str, what: str) -> None:
    """Names go into SQL, so only plain ones are taken."""
    with pytest.raises(ConfigurationError, match="lower-case letters"):
        roles.roles_sql(**{what: name})


def test_three_roles_have_three_names() -> None:
    """One role cannot be worker and operator at once."""
    with pytest.raises(ConfigurationError, match="three names"):
        roles.roles_sql(worker="memoflow", operator="memoflow")
