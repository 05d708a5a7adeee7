"""Alembic's script for every command: runs the migrations, on the connection that it was given."""

from __future__ import annotations

from alembic import context

from fepflow.store.records import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    render_as_batch=True,  # SQLite alters a table by copying it
    transactional_ddl=True,
)
context.run_migrations()
