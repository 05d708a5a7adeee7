"""The tables of what people say of outputs; see `fepflow.store.tables`."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

from sqlalchemy import BigInteger, Column, ForeignKeyConstraint, Index, String, Table
from sqlmodel import Field

from fepflow.store.column_types import EscapedText, JsonText
from fepflow.store.tables import METADATA, Row, UtcDateTime


class LabelDrawRow(Row, table=True):
    """Cases of a run that were drawn at random, so that people label what a judge has judged."""

    __tablename__: ClassVar[str] = "label_draw"
    __table_args__ = (ForeignKeyConstraint(["run_id"], ["run.id"], ondelete="CASCADE"),)

    id: str = Field(sa_column=Column(String(64), primary_key=True))
    created_at: datetime = Field(sa_column=Column(UtcDateTime, nullable=False))
    run_id: str = Field(sa_column=Column(String(64), nullable=False, index=True))
    check_id: str = Field(sa_column=Column(EscapedText, nullable=False))
    seed: int = Field(sa_column=Column(BigInteger, nullable=False))
    case_ids: list[str] = Field(sa_column=Column(JsonText, nullable=False))


class LabelRow(Row, table=True):
    """What a person said of one output. Rows are only added; JSON's null as a label withdraws the one before."""

    __tablename__: ClassVar[str] = "label"
    __table_args__ = (
        ForeignKeyConstraint(["run_id", "case_index"], ["run_case.run_id", "run_case.case_index"], ondelete="CASCADE"),
        ForeignKeyConstraint(["draw_id"], ["label_draw.id"], ondelete="SET NULL"),
        Index("ix_label_run_id", "run_id", "case_index"),
    )

    id: int | None = Field(default=None, primary_key=True)
    created_at: datetime = Field(sa_column=Column(UtcDateTime, nullable=False))
    run_id: str = Field(sa_column=Column(String(64), nullable=False))
    case_index: int
    repeat: int
    check_id: str = Field(sa_column=Column(EscapedText, nullable=False))
    field: str = Field(sa_column=Column(EscapedText, nullable=False))
    label: Any = Field(sa_column=Column(JsonText, nullable=False))
    note: str = Field(sa_column=Column(EscapedText, nullable=False))
    labelled_by: str = Field(sa_column=Column(EscapedText, nullable=False))
    draw_id: str | None = Field(sa_column=Column(String(64)))


LABEL_DRAW: Table = METADATA.tables["label_draw"]
LABEL: Table = METADATA.tables["label"]
