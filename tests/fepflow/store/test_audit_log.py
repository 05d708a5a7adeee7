from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.exc import DBAPIError

from fepflow.protocol.model import utc_now
from fepflow.store.records import AuditEntry
from fepflow.store.store import Store

NOW = utc_now().replace(microsecond=0)
ENTRIES = [
    AuditEntry("key:a", "127.0.0.1", "GET /v1/runs", None, "200", NOW - timedelta(days=2)),
    AuditEntry(None, "::1", "POST /api/evaluations", None, "401", NOW - timedelta(hours=1)),
    AuditEntry("jwt:é\x00\ud83d", None, "DELETE /v1/runs/{id}", "x\n\x00\ud83d", "204", NOW),
    AuditEntry("key:a", "127.0.0.1", "GET /v1/runs/{id}", "cafe", "404", NOW),
]


@pytest.fixture
def filled(store: Store) -> Store:
    store.access.add_audit_entries([])
    store.access.add_audit_entries(ENTRIES[:2])
    store.access.add_audit_entries(ENTRIES[2:])
    return store


def test_entries_come_back_newest_first(filled: Store):
    assert filled.access.audit_entries(10) == ENTRIES[::-1]
    assert filled.access.audit_entries(1) == ENTRIES[:2:-1]


def test_entries_are_filtered(filled: Store):
    assert filled.access.audit_entries(10, since=NOW - timedelta(hours=1)) == ENTRIES[:0:-1]
    assert filled.access.audit_entries(10, caller="key:a") == [ENTRIES[3], ENTRIES[0]]
    assert filled.access.audit_entries(10, caller=ENTRIES[2].caller) == [ENTRIES[2]]
    assert filled.access.audit_entries(10, outcome="401") == [ENTRIES[1]]
    assert filled.access.audit_entries(10, caller="key:a", outcome="200", since=NOW) == []


def test_old_entries_are_deleted_and_no_others(filled: Store):
    assert filled.access.delete_audit_entries(NOW - timedelta(hours=1)) == 1
    assert filled.access.audit_entries(10) == ENTRIES[:0:-1]
    assert filled.access.delete_audit_entries(NOW - timedelta(hours=1)) == 0


def test_no_entry_can_be_changed(filled: Store, url: str):
    parsed = make_url(url)
    driver = "postgresql+psycopg" if parsed.get_backend_name() == "postgresql" else "sqlite"
    engine = create_engine(parsed.set(drivername=driver))
    with pytest.raises(DBAPIError, match="rows of audit_entry do not change"), engine.begin() as connection:
        connection.execute(text("UPDATE audit_entry SET outcome = '200'"))
    engine.dispose()
    assert filled.access.audit_entries(10) == ENTRIES[::-1]


def test_a_group_with_an_entry_that_cannot_be_stored_is_not_stored_at_all(filled: Store):
    with pytest.raises(Exception, match=r"refused rows|NOT NULL"):
        filled.access.add_audit_entries([ENTRIES[0], replace(ENTRIES[0], action=None)])
    assert filled.access.audit_entries(10) == ENTRIES[::-1]
