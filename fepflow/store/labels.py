"""People's labels of outputs, draws of cases to label, calibrations of judges against labels, and preferences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, delete, exists, func, insert, select

from fepflow.protocol.content_hash import content_hash
from fepflow.store.database import KEYS_AT_ONCE, Repository, chunks, upsert
from fepflow.store.records import (
    CALIBRATION,
    CASE,
    LABEL,
    LABEL_DRAW,
    PREFERENCE,
    Calibration,
    LabelDraw,
    NewLabel,
    PreferenceRow,
    StoredLabel,
)
from fepflow.store.runs import CUT_CASE, whole_id


class Labels(Repository):
    """Labels by run. None is ever changed: a newer one of the same person counts instead."""

    def add(self, label: NewLabel) -> None:
        """Store a label beside those that there are. Raises InfrastructureError if the run has no such case."""
        self._execute(insert(LABEL).values(asdict(label)))

    def current(self, run_id: str, check_id: str | None = None) -> list[StoredLabel]:
        """Return the newest label of each person, by output, check and field; of one check, or all.

        Labels that were withdrawn are left out.
        """
        of_check = [] if check_id is None else [LABEL.c.check_id == check_id]
        newest: dict[tuple[Any, ...], StoredLabel] = {}
        for label in self._labels([LABEL.c.run_id == run_id, *of_check]):
            newest[label.case_index, label.repeat, label.check_id, label.field, label.labelled_by] = label
        current = [label for label in newest.values() if label.label is not None]
        return sorted(current, key=lambda label: (label.case_index, label.repeat, label.id))

    def of_case(self, run_id: str, case_index: int) -> list[StoredLabel]:
        """Return all labels of the outputs of a case, the oldest first, also those that were replaced or withdrawn."""
        return self._labels([LABEL.c.run_id == run_id, LABEL.c.case_index == case_index])

    def _labels(self, where: Sequence[ColumnElement[bool]]) -> list[StoredLabel]:
        of_case = (CASE.c.run_id == LABEL.c.run_id) & (CASE.c.case_index == LABEL.c.case_index)
        rows = select(LABEL, CASE.c.case_id, CUT_CASE).join(CASE, of_case).where(*where).order_by(LABEL.c.id)
        return [_stored(**row._mapping) for row in self._rows(rows)]

    def add_draw(self, draw: LabelDraw) -> None:
        """Remember which cases of a run were drawn to be labelled."""
        self._execute(insert(LABEL_DRAW).values(draw.values()))

    def draws(self, run_id: str, check_id: str) -> list[LabelDraw]:
        """Return the draws from the cases that a check of a run has judged, the newest first."""
        draws = select(LabelDraw).where(LABEL_DRAW.c.run_id == run_id, LABEL_DRAW.c.check_id == check_id)
        return self._records(draws.order_by(LABEL_DRAW.c.created_at.desc(), LABEL_DRAW.c.id))

    def add_calibration(self, calibration: Calibration) -> None:
        """Store a calibration beside those that there are."""
        self._execute(insert(CALIBRATION).values(calibration.values()))

    def has_calibrations(self, since: datetime) -> bool:
        """Return whether any judge was calibrated after a time."""
        return bool(self._scalar(select(exists().where(CALIBRATION.c.created_at > since))))

    def calibrations_of(self, judge: str, rubric: str) -> list[Calibration]:
        """Return all calibrations of this judge with this rubric, the newest first."""
        rows = select(Calibration).where(CALIBRATION.c.judge == judge, CALIBRATION.c.rubric == rubric)
        return self._records(rows.order_by(CALIBRATION.c.created_at.desc(), CALIBRATION.c.id))

    def calibration_of(self, judge: str, rubric: str) -> Calibration | None:
        """Return the newest calibration of this judge with this rubric."""
        return next(iter(self.calibrations_of(judge, rubric)), None)


def _stored(case_id: str, cut_case: dict[str, Any] | None, **row: Any) -> StoredLabel:
    return StoredLabel(**row, case_id=whole_id(case_id, cut_case))


class Preferences(Repository):
    """Preferences by the contents of a pair. They apply to all runs with the same outputs, and outlive them.

    Each person and each judge has one preference about a pair and a question, the newest.
    """

    def put(self, preferences: Sequence[PreferenceRow]) -> None:
        """Store preferences, in place of earlier ones of the same people or judges."""
        rows = [preference.values() for preference in preferences]
        self._database.write(lambda connection: upsert(connection, PREFERENCE, rows))

    def withdraw(self, pair: str, question: str, person: str) -> None:
        """Delete a person's preference about a pair."""
        table = PREFERENCE.c
        mine = table.pair == pair, table.question_hash == content_hash(question), table.given_by == person
        self._execute(delete(PREFERENCE).where(*mine, ~table.is_judge))

    def of_pairs(self, pairs: Sequence[str], question: str | None = None) -> list[PreferenceRow]:
        """Return all preferences about these pairs, for one question or all."""
        wanted = select(PreferenceRow)
        if question is not None:
            wanted = wanted.where(PREFERENCE.c.question_hash == content_hash(question))
        return [
            preference
            for chunk in chunks(pairs, KEYS_AT_ONCE)
            for preference in self._records(wanted.where(PREFERENCE.c.pair.in_(chunk)))
        ]

    def count(self) -> int:
        """Count all preferences."""
        return self._scalar(select(func.count()).select_from(PREFERENCE)) or 0
