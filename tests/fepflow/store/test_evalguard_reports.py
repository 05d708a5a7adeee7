from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from fepflow.errors import NotFoundError
from fepflow.store.evalguard_reports import StoredReport
from fepflow.store.store import Store

NOW = datetime(2026, 1, 2, 3, 4, 5, 678900, UTC)
REPORT = StoredReport(
    id="abcd" + "0" * 60,
    source="reports/é\0.json",
    report_id="llama-eval",
    model_name="org/model",
    model_source="hf",
    evaluated_at=NOW,
    tasks=["qa", "qb"],
    report={"id": "llama-eval", "results": [{"acc": {"value": 0.1 + 0.2}}], "metadata": {"x": "\0\ud800"}},
    warnings=["é"],
    imported_at=NOW,
)


def another(number: int, **fields) -> StoredReport:
    return replace(REPORT, id=f"{number:064x}", report_id=None, imported_at=NOW + timedelta(seconds=number), **fields)


def test_a_report_comes_back_as_it_was(store: Store):
    assert store.add_evalguard_reports([REPORT]) == 1
    assert store.evalguard_report(REPORT.id) == REPORT
    assert store.evalguard_reports() == [REPORT]


def test_it_is_found_by_the_beginning_of_its_id_and_by_the_id_that_it_has_itself(store: Store):
    store.add_evalguard_reports([REPORT, another(1)])
    assert store.evalguard_report("abcd") == REPORT
    assert store.evalguard_report("llama-eval") == REPORT


def test_the_same_file_again_adds_nothing_and_changes_nothing(store: Store):
    store.add_evalguard_reports([REPORT])
    again = replace(REPORT, source="elsewhere.json", imported_at=NOW + timedelta(days=1))
    assert store.add_evalguard_reports([again, another(1)]) == 1
    assert store.add_evalguard_reports([again, again]) == 0
    assert store.evalguard_report(REPORT.id) == REPORT


def test_hundreds_at_once_are_stored_and_the_newest_come_first(store: Store):
    assert (
        store.add_evalguard_reports([another(number, model_name=f"m{number % 2}") for number in range(1, 301)]) == 300
    )
    assert store.add_evalguard_reports([]) == 0
    assert [int(report.id, 16) for report in store.evalguard_reports(3)] == [300, 299, 298]
    assert [int(report.id, 16) for report in store.evalguard_reports(2, "m1")] == [299, 297]


@pytest.mark.parametrize("name", ["abc", "", "ffff", "llama", "abcd" + "0" * 59 + "1", "ABCD"])
def test_what_is_not_there_is_not_found(store: Store, name):
    store.add_evalguard_reports([REPORT])
    with pytest.raises(NotFoundError, match="There is no imported report"):
        store.evalguard_report(name)


def test_what_could_be_several_is_not_found_either(store: Store):
    store.add_evalguard_reports([REPORT, replace(REPORT, id="abcd" + "1" * 60)])
    for name in ("abcd", "llama-eval"):
        with pytest.raises(NotFoundError, match="could be any of the reports abcd0"):
            store.evalguard_report(name)
    assert store.evalguard_report(REPORT.id) == REPORT


def test_reports_are_there_after_opening_again(store: Store, url):
    store.add_evalguard_reports([REPORT])
    with Store.open(url) as again:
        assert again.evalguard_report(REPORT.id) == REPORT
