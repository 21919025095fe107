"""Alembic environment: runs on the connection that memoflow.ledger.migrate hands over, in its transaction."""

from __future__ import annotations

from alembic import context

from memoflow.ledger import guards
from memoflow.ledger.migrate import VERSION_TABLE
from memoflow.ledger.schema import metadata

connection = context.config.attributes.get("connection")
if connection is None:
    raise RuntimeError("Migrations take a lock first. Run `memoflow db upgrade`, not alembic itself.")

context.configure(connection=connection, target_metadata=metadata, version_table=VERSION_TABLE)
with context.begin_transaction():
    # A revision may move or fill what the guards protect; nobody else sees the transaction without them.
    guards.uninstall(connection)
    context.run_migrations()
    guards.install(connection)
