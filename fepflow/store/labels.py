"""What people say of a run's outputs, for the judges that are compared with them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, insert, select

from fepflow.protocol.model import utc_now
from fepflow.store.case_lookup import CUT_CASE, whole_id
from fepflow.store.database import Repository
from fepflow.store.label_tables import LABEL
from fepflow.store.tables import CASE


@dataclass(frozen=True, slots=True)
class NewLabel:
    """What a person (`labelled_by`) says of one output: what `field` of the check's response should be.

    `label` is a boolean, a number or a word; None withdraws what the person said before. `draw_id` is the draw by
    which the output was shown, None if it was shown otherwise.
    """

    run_id: str
    case_index: int
    repeat: int
    check_id: str
    field: str
    label: bool | float | str | None
    labelled_by: str
    note: str = ""
    draw_id: str | None = None
    created_at: datetime = dataclasses.field(default_factory=utc_now)


@dataclass(frozen=True, slots=True)
class StoredLabel(NewLabel):
    """A label that is in the store; of two, the one with the greater `id` is newer."""

    _: dataclasses.KW_ONLY
    id: int
    case_id: str


class Labels(Repository):
    """Labels by run. None is ever changed: a newer one of the same person counts instead."""

    def add_label(self, label: NewLabel) -> None:
        """Store a label beside those that there are. Raises InfrastructureError if the run has no such case."""
        self._database.write(lambda connection: connection.execute(insert(LABEL).values(asdict(label))))

    def labels(self, run_id: str, check_id: str | None = None) -> list[StoredLabel]:
        """The newest label of each person, by output, check and field; of one check, or all. None is withdrawn."""
        of_check = [] if check_id is None else [LABEL.c.check_id == check_id]
        newest: dict[tuple[Any, ...], StoredLabel] = {}
        for label in self._labels([LABEL.c.run_id == run_id, *of_check]):
            newest[label.case_index, label.repeat, label.check_id, label.field, label.labelled_by] = label
        counting = [label for label in newest.values() if label.label is not None]
        return sorted(counting, key=lambda label: (label.case_index, label.repeat, label.id))

    def labels_of_case(self, run_id: str, case_index: int) -> list[StoredLabel]:
        """All labels of the outputs of a case, the oldest first, also those that were replaced or withdrawn."""
        return self._labels([LABEL.c.run_id == run_id, LABEL.c.case_index == case_index])

    def _labels(self, where: Sequence[ColumnElement[bool]]) -> list[StoredLabel]:
        of_case = (CASE.c.run_id == LABEL.c.run_id) & (CASE.c.case_index == LABEL.c.case_index)
        found = select(LABEL, CASE.c.case_id, CUT_CASE).join(CASE, of_case).where(*where).order_by(LABEL.c.id)
        with self._database.reading() as connection:
            return [_stored(**row) for row in connection.execute(found).mappings()]


def _stored(case_id: str, cut_case: dict[str, Any] | None, **row: Any) -> StoredLabel:
    return StoredLabel(**row, case_id=whole_id(case_id, cut_case))
