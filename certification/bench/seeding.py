"""A large ledger in little time: the rows of one real activity, written again under other ids.

Nothing is known here of what the rows mean but their ids and the journal's chain, so whatever an
activity writes is what a large ledger is full of. `memoflow verify` finds nothing wrong with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, Row, Table, or_, select, update
from sqlalchemy.engine import Engine

from memoflow.identity import new_id
from memoflow.ledger import schema as s
from memoflow.ledger.dialect import make_engine, normalise_url
from memoflow.ledger.journal import Entry, entry_hash

__all__ = ["seed"]

_BATCH: Final = 20_000
_KINDS: Final = ("settled", "held", "unknown")
_SEQ, _RESERVATION, _HASH = (
    [column.name for column in s.journal.columns].index(name) for name in ("seq", "reservation_id", "hash")
)


def seed(url: str, count: int) -> None:
    """Write the last activity of a ledger, which must be completed, ``count`` times more.

    Nobody else may write meanwhile.
    """
    engine = make_engine(normalise_url(url))
    try:
        with engine.connect().execution_options(memoflow_write=True) as connection:
            for start in range(0, count, _BATCH):
                with connection.begin():
                    _write_again(connection, min(_BATCH, count - start))
        _settle_down(engine)
    finally:
        engine.dispose()


def _write_again(connection: Connection, count: int) -> None:
    template = _Template(connection)
    for table, rows in template.copies(count).items():
        _write(connection, table, rows)
    template.post(connection, count)


class _Template:
    """The rows of one activity, the ids in them, and where its journal goes on."""

    def __init__(self, connection: Connection) -> None:
        activity = connection.execute(
            select(s.activities).where(s.activities.c.state == "COMPLETED").order_by(s.activities.c.id.desc())
        ).first()
        assert activity is not None, "there is no activity to write again"
        self.rows: dict[Table, list[Row[Any]]] = {s.activities: [activity]}
        for table in (s.attempts, s.turns, s.invocations):
            self.rows[table] = _where(connection, table, "activity_id", [activity.id])
        calls = [call.id for call in self.rows[s.invocations]]
        self.rows[s.reservations] = _where(connection, s.reservations, "id", calls)
        self.rows[s.outputs] = _where(connection, s.outputs, "owner_id", [activity.id, *calls])
        self.journal = _where(connection, s.journal, "reservation_id", calls)
        turns = [turn.id for turn in self.rows[s.turns]]
        self.ids = (activity.id, activity.run_id, *turns, *calls)
        self._heads = {
            row.id: (row.seq, row.head)
            for row in _where(connection, s.balances, "id", {entry.balance_id for entry in self.journal})
        }

    def copies(self, count: int) -> dict[Table, list[list[Any]]]:
        """As many copies, parents before children."""
        made: dict[Table, list[list[Any]]] = {table: [] for table in (*self.rows, s.journal)}
        forms = [(made[table], _Form(row, self.ids)) for table, rows in self.rows.items() for row in rows]
        entries = [(_Form(row, self.ids), _entry(row)) for row in self.journal]
        for _ in range(count):
            ids = [new_id() for _ in self.ids]
            for rows, form in forms:
                rows.append(form.filled(ids))
            for form, entry in entries:
                made[s.journal].append(self._chained(form.filled(ids), entry))
        return made

    def _chained(self, row: list[Any], entry: Entry) -> list[Any]:
        seq, head = self._heads[entry.balance_id]
        row[_SEQ] = seq = seq + 1
        row[_HASH] = head = entry_hash(head, entry._replace(seq=seq, reservation_id=row[_RESERVATION]))
        self._heads[entry.balance_id] = seq, head
        return row

    def post(self, connection: Connection, count: int) -> None:
        """Bring the balances to where their journals are."""
        for id, (seq, head) in self._heads.items():
            sums = {
                column.name: column + count * sum(getattr(entry, column.name) for entry in entries)
                for entries in [[entry for entry in self.journal if entry.balance_id == id]]
                for column in s.balances.c
                if column.name.startswith(tuple(f"{kind}_" for kind in _KINDS))
            }
            connection.execute(
                update(s.balances).where(s.balances.c.id == id).values(seq=seq, head=head, **sums)
            )


class _Form:
    """A row with places for ids: a value that is one, or begins with one, as an attempt's does."""

    def __init__(self, row: Row[Any], ids: Sequence[str]) -> None:
        self._values = list(row)
        self._places = [
            (place, number, value.removeprefix(id))
            for place, value in enumerate(row)
            for number, id in enumerate(ids)
            if isinstance(value, str) and value.startswith(id)
        ]

    def filled(self, ids: Sequence[str]) -> list[Any]:
        """The row with these ids."""
        row = self._values.copy()
        for place, number, rest in self._places:
            row[place] = ids[number] + rest
        return row


def _entry(row: Row[Any]) -> Entry:
    amounts = [s.read_amounts(row, kind) for kind in _KINDS]
    return Entry(row.balance_id, row.seq, row.at, row.event, row.reservation_id, row.policy_version, *amounts)


def _where(connection: Connection, table: Table, column: str, values: Any) -> list[Row[Any]]:
    key = list(table.primary_key.columns)
    found = select(table).where(or_(*[table.c[column] == value for value in values])).order_by(*key)
    return list(connection.execute(found))


def _write(connection: Connection, table: Table, rows: Sequence[Sequence[Any]]) -> None:
    driver: Any = connection.connection.driver_connection
    columns = ", ".join(column.name for column in table.columns)
    if connection.dialect.name == "sqlite":
        marks = ", ".join("?" * len(table.columns))
        driver.executemany(f"INSERT INTO {table.name} ({columns}) VALUES ({marks})", rows)
        return
    with driver.cursor().copy(f"COPY {table.name} ({columns}) FROM STDIN") as copy:
        for row in rows:
            copy.write_row(row)


def _settle_down(engine: Engine) -> None:
    """What a database does by itself in the time it takes to grow."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        if engine.dialect.name == "sqlite":
            connection.rollback()
            connection.connection.driver_connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # type: ignore[union-attr]
        else:
            connection.exec_driver_sql("VACUUM ANALYZE")
            connection.exec_driver_sql("CHECKPOINT")
