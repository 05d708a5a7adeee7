"""Columns and the table of cached responses get the names that the code has for them; no row is copied."""

from __future__ import annotations

from alembic import op

revision = "0007"
down_revision = "0006"

_COLUMNS = {
    "run_case": {"position": "case_index", "payload": "data"},
    "output": {"position": "case_index", "address": "content_hash"},
    "check_result": {"position": "case_index", "address": "content_hash"},
    "calibration": {"member": "field", "figures": "statistics"},
    "model_answer": {
        "model_answered": "response_model",
        "cost": "cost_picousd",
        "not_honoured": "dropped_params",
        "answered_at": "responded_at",
    },
}
_OLD_CACHE, _CACHE = "model_answer", "cached_response"
_OLD_INDEXED, _INDEXED = ("model", "answered_at"), ("model", "responded_at")


def upgrade() -> None:
    """Rename the columns; keys, indexes and references follow by themselves."""
    for table, columns in _COLUMNS.items():
        for old, new in columns.items():
            op.alter_column(table, old, new_column_name=new)
    _rename_cache(_OLD_CACHE, _CACHE, _OLD_INDEXED, _INDEXED)


def downgrade() -> None:
    """Give the old names back."""
    for table, columns in _COLUMNS.items():
        for old, new in columns.items():
            op.alter_column(_CACHE if table == _OLD_CACHE else table, new, new_column_name=old)
    _rename_cache(_CACHE, _OLD_CACHE, _INDEXED, _OLD_INDEXED)


def _rename_cache(before: str, after: str, columns_before: tuple[str, ...], columns: tuple[str, ...]) -> None:
    """Rename the table, its key and its indexes. SQLite cannot rename a key, and has to make the indexes anew."""
    op.rename_table(before, after)
    indexes = [
        (f"ix_{before}_{old}", f"ix_{after}_{new}", new) for old, new in zip(columns_before, columns, strict=True)
    ]
    if op.get_bind().dialect.name == "postgresql":
        op.execute(f"ALTER TABLE {after} RENAME CONSTRAINT pk_{before} TO pk_{after}")
        for old, new, _ in indexes:
            op.execute(f"ALTER INDEX {old} RENAME TO {new}")
    else:
        for old, new, column in indexes:
            op.drop_index(old, after)
            op.create_index(new, after, [column])
