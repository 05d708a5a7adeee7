"""Calibrations of judges against people's labels, draws of cases to label, and the results of judges in a run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from sqlalchemy import insert, select

from fepflow.store.database import Repository
from fepflow.store.label_tables import LABEL_DRAW
from fepflow.store.records import Calibration, LabelDraw
from fepflow.store.tables import CALIBRATION, CHECK_RESULT

_ROWS_AT_ONCE = 1_000


class Calibrations(Repository):
    """Calibrations, and the results that they are computed from."""

    def add_calibration(self, calibration: Calibration) -> None:
        """Store a calibration beside those that there are."""
        self._database.write(lambda connection: connection.execute(insert(CALIBRATION).values(**asdict(calibration))))

    def calibrations_of(self, judge: str, rubric: str) -> list[Calibration]:
        """All calibrations of this judge with this rubric, the newest first."""
        table = CALIBRATION.c
        found = select(CALIBRATION).where(table.judge == judge, table.rubric == rubric)
        with self._database.reading() as connection:
            rows = connection.execute(found.order_by(table.created_at.desc(), table.id)).mappings().all()
        return [Calibration(**row) for row in rows]

    def calibration_of(self, judge: str, rubric: str) -> Calibration | None:
        """The newest calibration of this judge with this rubric."""
        return next(iter(self.calibrations_of(judge, rubric)), None)

    def add_label_draw(self, draw: LabelDraw) -> None:
        """Remember which cases of a run were drawn to be labelled."""
        self._database.write(lambda connection: connection.execute(insert(LABEL_DRAW).values(**asdict(draw))))

    def label_draws(self, run_id: str, check_id: str) -> list[LabelDraw]:
        """The draws from the cases that a check of a run has judged, the newest first."""
        table = LABEL_DRAW.c
        found = select(LABEL_DRAW).where(table.run_id == run_id, table.check_id == check_id)
        with self._database.reading() as connection:
            rows = connection.execute(found.order_by(table.created_at.desc(), table.id)).mappings().all()
        return [LabelDraw(**row) for row in rows]

    def completed_results(self, run_id: str, check_id: str) -> Iterator[tuple[int, Any]]:
        """The index of each case that a check has completed, with its `results`, by case index and repeat."""
        checks = CHECK_RESULT.c
        completed = select(checks.case_index, checks.result).where(
            checks.run_id == run_id, checks.check_id == check_id, checks.status == "completed"
        )
        with self._database.reading() as connection:
            rows = connection.execute(
                completed.order_by(checks.case_index, checks.repeat), execution_options={"yield_per": _ROWS_AT_ONCE}
            )
            yield from ((row.case_index, row.result["results"]) for row in rows)

    def checks_of_type(self, run_id: str, check_type: str) -> set[str]:
        """The ids of the checks of a type that a run has results of."""
        checks = CHECK_RESULT.c
        ids = select(checks.check_id).where(checks.run_id == run_id, checks.check_type == check_type).distinct()
        with self._database.reading() as connection:
            return set(connection.scalars(ids))
