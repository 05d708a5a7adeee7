"""All tables, as `fepflow.store.records` defines them.

Nothing is released yet, so there is one migration, and it follows the records. The first release writes it out as
operations, which later changes of the records leave as they are.
"""

from __future__ import annotations

from alembic import op

from fepflow.store.records import METADATA

revision = "0001"
down_revision = None

_PROTECTED = "rows of audit_entry do not change"


def upgrade() -> None:
    """Create the tables; a trigger keeps the rows of the audit log as they are."""
    METADATA.create_all(op.get_bind())
    if op.get_bind().dialect.name == "postgresql":
        op.execute(
            "CREATE FUNCTION audit_entry_unchanged() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN RAISE EXCEPTION '{_PROTECTED}'; END $$"
        )
        action = "FOR EACH ROW EXECUTE FUNCTION audit_entry_unchanged()"
    else:
        action = f"BEGIN SELECT RAISE(ABORT, '{_PROTECTED}'); END"
    op.execute(f"CREATE TRIGGER audit_entry_unchanged BEFORE UPDATE ON audit_entry {action}")
