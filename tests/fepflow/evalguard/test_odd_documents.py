"""Whatever a document holds, it is read, validated, migrated and judged, or refused with reasons; nothing crashes."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fepflow.errors import InputError
from fepflow.evalguard.migration import plan_migration, write_migration
from fepflow.evalguard.models import Thresholds
from fepflow.evalguard.report_reader import read_report
from fepflow.evalguard.validation import validate_catalogue
from fepflow.verdict.report import judge_report
from tests.fepflow.evalguard.test_report_reader import HARNESS
from tests.fepflow.evalguard.test_schema_files import COMPLETE, VALUES, changed, places

POLICY = {
    "id": "p",
    "name": "P",
    "thresholds": {"qa": {"acc": [{"label": "Poor", "min": 1}, {"impact": "low", "max": 1}]}},
}
BY_NAME = {"tasks": {"qa": {"n_shot": 1}}, "results": [{"qa": {"acc": {"value": 1, "stderr": 0.1}}}]}
SEEDS = [
    *COMPLETE.values(),
    HARNESS,
    POLICY,
    BY_NAME,
    {"task": "qa", "thresholds": {"acc": [{"label": "low", "min": 1}]}},
]
THRESHOLDS = {"qa": Thresholds.model_validate(COMPLETE["threshold"])}


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.data())
def test_it_is_taken_or_refused_with_reasons(data: st.DataObject) -> None:
    document = data.draw(st.sampled_from(SEEDS))
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(list(places(document))))
        document = changed(document, path, data.draw(VALUES))
    folder = data.draw(st.sampled_from(["", "tasks", "metrics", "thresholds", "policies"]))
    ending = data.draw(st.sampled_from(["json", "yaml"]))
    with TemporaryDirectory() as home:
        path = Path(home, folder, f"document.{ending}")
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(document), encoding="utf-8")
        found = validate_catalogue([Path(home)])
        assert all(problem.rule and problem.file for problem in found.problems)
        with suppress(InputError):
            assert judge_report(read_report(path).report, THRESHOLDS).outcome in ("pass", "fail", "inconclusive")
        with suppress(InputError):
            write_migration(plan_migration(Path(home), {"poor": "severe"}))
            assert plan_migration(Path(home)).files == []
