"""The tables of what programs give and do over the network; see `fepflow.store.tables`."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

from sqlalchemy import Column, ForeignKeyConstraint, Index, String, Table, UniqueConstraint
from sqlmodel import Field

from fepflow.store.column_types import EscapedText, JsonText
from fepflow.store.tables import METADATA, Row, UtcDateTime


class ApiKeyRow(Row, table=True):
    """A key of a program that calls the network's interfaces; of its secret there is only the SHA-256."""

    __tablename__: ClassVar[str] = "api_key"

    id: str = Field(sa_column=Column(String(16), primary_key=True))
    name: str = Field(sa_column=Column(EscapedText, nullable=False))
    secret_hash: str = Field(sa_column=Column(String(64), nullable=False))
    scopes: list[str] = Field(sa_column=Column(JsonText, nullable=False))
    created_at: datetime = Field(sa_column=Column(UtcDateTime, nullable=False))
    expires_at: datetime | None = Field(sa_column=Column(UtcDateTime))
    revoked_at: datetime | None = Field(sa_column=Column(UtcDateTime))


class AuditEntryRow(Row, table=True):
    """A request over the network: who did what, when, from where, and what came of it. A trigger refuses changes."""

    __tablename__: ClassVar[str] = "audit_entry"

    id: int | None = Field(default=None, primary_key=True)
    at: datetime = Field(sa_column=Column(UtcDateTime, nullable=False, index=True))
    caller: str | None = Field(sa_column=Column(EscapedText))
    source: str | None = Field(sa_column=Column(EscapedText))
    action: str = Field(sa_column=Column(EscapedText, nullable=False))
    resource: str | None = Field(sa_column=Column(EscapedText))
    outcome: str = Field(sa_column=Column(String(32), nullable=False))


class PageSessionRow(Row, table=True):
    """A browser that has signed in to the pages with a key; of the session's id there is only the SHA-256."""

    __tablename__: ClassVar[str] = "page_session"
    __table_args__ = (
        ForeignKeyConstraint(["key_id"], ["api_key.id"], ondelete="CASCADE"),
        Index("ix_page_session_key_id", "key_id", "created_at"),
    )

    id_hash: str = Field(sa_column=Column(String(64), primary_key=True))
    key_id: str = Field(sa_column=Column(String(16), nullable=False))
    created_at: datetime = Field(sa_column=Column(UtcDateTime, nullable=False))
    expires_at: datetime = Field(sa_column=Column(UtcDateTime, nullable=False))


class TestCaseRow(Row, table=True):
    """A test case that was given over the network and is used by its id."""

    __tablename__: ClassVar[str] = "test_case"

    id: str = Field(sa_column=Column(String(200), primary_key=True))
    data: Any = Field(sa_column=Column(JsonText, nullable=False))
    created_at: datetime = Field(sa_column=Column(UtcDateTime, nullable=False, index=True))


class GraderRow(Row, table=True):
    """A named list of checks that was given over the network."""

    __tablename__: ClassVar[str] = "grader"

    id: str = Field(sa_column=Column(String(100), primary_key=True))
    name: str = Field(sa_column=Column(EscapedText, nullable=False))
    checks: Any = Field(sa_column=Column(JsonText, nullable=False))
    created_at: datetime = Field(sa_column=Column(UtcDateTime, nullable=False))


class RunRequestRow(Row, table=True):
    """That a run was requested over the network, by whom and with what, and whether Prefect has been told of it."""

    __tablename__: ClassVar[str] = "run_request"
    __table_args__ = (
        UniqueConstraint("idempotency_key"),
        ForeignKeyConstraint(["run_id"], ["run.id"], ondelete="CASCADE"),
    )

    run_id: str = Field(sa_column=Column(String(64), primary_key=True))
    kind: str = Field(sa_column=Column(String(16), nullable=False))
    caller: str | None = Field(sa_column=Column(EscapedText))
    idempotency_key: str | None = Field(sa_column=Column(String(200)))
    request_hash: str = Field(sa_column=Column(String(64), nullable=False))
    request: Any = Field(sa_column=Column(JsonText, nullable=False))
    created_at: datetime = Field(sa_column=Column(UtcDateTime, nullable=False, index=True))
    dispatched_at: datetime | None = Field(sa_column=Column(UtcDateTime))


API_KEY: Table = METADATA.tables["api_key"]
AUDIT_ENTRY: Table = METADATA.tables["audit_entry"]
PAGE_SESSION: Table = METADATA.tables["page_session"]
TEST_CASE: Table = METADATA.tables["test_case"]
GRADER: Table = METADATA.tables["grader"]
RUN_REQUEST: Table = METADATA.tables["run_request"]
