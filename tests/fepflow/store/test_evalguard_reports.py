from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text

from fepflow.errors import NotFoundError
from fepflow.store.database import Database
from fepflow.store.records import ReportFilter, StoredReport
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
    return REPORT.replaced(id=f"{number:064x}", report_id=None, imported_at=NOW + timedelta(seconds=number), **fields)


def test_a_report_comes_back_as_it_was(store: Store):
    assert store.reports.add([REPORT]) == 1
    assert store.reports.imported(REPORT.id) == REPORT
    assert store.reports.newest_imported() == [REPORT]


def test_it_is_found_by_the_beginning_of_its_id_and_by_the_id_that_it_has_itself(store: Store):
    store.reports.add([REPORT, another(1)])
    assert store.reports.imported("abcd") == REPORT
    assert store.reports.imported("llama-eval") == REPORT


def test_the_same_file_again_adds_nothing_and_changes_nothing(store: Store):
    store.reports.add([REPORT])
    again = REPORT.replaced(source="elsewhere.json", imported_at=NOW + timedelta(days=1))
    assert store.reports.add([again, another(1)]) == 1
    assert store.reports.add([again, again]) == 0
    assert store.reports.imported(REPORT.id) == REPORT


def test_hundreds_at_once_are_stored_and_the_newest_come_first(store: Store):
    assert store.reports.add([another(number, model_name=f"m{number % 2}") for number in range(1, 301)]) == 300
    assert store.reports.add([]) == 0
    assert [int(report.id, 16) for report in store.reports.newest_imported(3)] == [300, 299, 298]
    assert [int(report.id, 16) for report in store.reports.newest_imported(2, "m1")] == [299, 297]


@pytest.mark.parametrize("name", ["abc", "", "ffff", "llama", "abcd" + "0" * 59 + "1", "ABCD"])
def test_what_is_not_there_is_not_found(store: Store, name):
    store.reports.add([REPORT])
    with pytest.raises(NotFoundError, match="There is no imported report"):
        store.reports.imported(name)


def test_what_could_be_several_is_not_found_either(store: Store):
    store.reports.add([REPORT, REPORT.replaced(id="abcd" + "1" * 60)])
    for name in ("abcd", "llama-eval"):
        with pytest.raises(NotFoundError, match="could be any of the reports abcd0"):
            store.reports.imported(name)
    assert store.reports.imported(REPORT.id) == REPORT


def test_reports_are_there_after_opening_again(store: Store, url):
    store.reports.add([REPORT])
    with Store.open(url) as again:
        assert again.reports.imported(REPORT.id) == REPORT


def with_metrics(number: int, *metrics: tuple[str, list[str]], **fields) -> StoredReport:
    tasks = [{"task_ref": task} for task, _ in metrics]
    results = [{name: {"value": 0.5} for name in names} for _, names in metrics]
    return another(number, report={"tasks": tasks, "results": results}, **fields)


def found(store: Store, limit: int = 20, offset: int = 0, **wanted: str) -> list[int]:
    reports, total = store.reports.find(ReportFilter(**wanted), limit, offset)
    assert offset or limit < 20 or total == len(reports)
    return [int(report.id, 16) for report in reports]


def test_reports_are_found_by_what_they_have(store: Store):
    store.reports.add([
        with_metrics(1, ("qa", ["acc"]), ("qb", ["f1"])),
        with_metrics(2, ("qa", []), model_name="other"),
        with_metrics(3, ("q\0é", ["acc"]), model_source=None),
    ])  # fmt: skip
    assert found(store) == [3, 2, 1]
    assert found(store, task_ref="qa") == [2, 1]
    assert found(store, metric="acc") == [3, 1]
    assert found(store, task_ref="qa", metric="f1") == []
    assert found(store, task_ref="q\0é", metric="acc", model_name="org/model") == [3]
    assert found(store, model_source="hf") == [2, 1]
    assert found(store, limit=1, offset=1, model_source="hf") == [1]
    assert store.reports.find(ReportFilter(model_source="hf"), 1, 1)[1] == 2


def test_results_of_one_task_are_all_its_own_and_results_without_a_task_of_none(store: Store):
    values = [{"acc": {"value": 0.5}}, {"f1": {"value": 0.5}}]
    store.reports.add([
        another(1, report={"tasks": [{"task_ref": "qa"}], "results": values}),
        another(2, report={"tasks": [{"task_ref": "qa"}, {"task_ref": "qb"}]}),
        another(3, report={"results": values}),
        another(4, report={}),
    ])  # fmt: skip
    assert found(store, task_ref="qa", metric="f1") == [1]
    assert found(store, task_ref="qb") == [2]
    assert found(store, metric="f1") == [3, 1]


def test_names_of_any_length_are_indexed_and_told_apart(store: Store):
    tasks = ["é" * 10_000, "é" * 9_999, "\U0001f999" * 1_000]
    store.reports.add([with_metrics(i, (task, [task])) for i, task in enumerate(tasks, 1)])
    assert [found(store, task_ref=task, metric=task) for task in tasks] == [[1], [2], [3]]


def test_a_report_that_is_there_already_stays_found_by_what_it_has(store: Store):
    one = with_metrics(1, ("qa", ["acc"]))
    assert store.reports.add([one, one]) == 1
    assert store.reports.add([one.replaced(report={})]) == 0
    assert found(store, task_ref="qa") == [1]


def test_models_are_there_once_in_the_order_of_their_names(store: Store):
    names = ["b", "a", "B", "C", "a"]
    some = [another(i, model_name=name, model_source="hf" if i % 2 else None) for i, name in enumerate(names, 1)]
    store.reports.add([*some, another(6, model_name=None)])
    models = [("B", "hf"), ("C", None), ("a", None), ("a", "hf"), ("b", "hf")]
    assert store.reports.models(None, 20, 0) == (models, 5)
    assert store.reports.models(None, 2, 1) == (models[1:3], 5)
    assert store.reports.models("hf", 20, 0) == ([("B", "hf"), ("a", "hf"), ("b", "hf")], 3)


def end(store: Store, run: str) -> None:
    store.leases.acquire(run, "me", 60)
    store.leases.finish(run, "me", "completed", outcome="pass", metrics=[], verdict={})


def test_a_run_is_to_be_reported_after_each_of_its_verdicts(store: Store, make_run):
    runs = [make_run(f"run-{number}") for number in range(3)]
    assert store.reports.runs_to_report(10) == []
    for run in runs[:2]:
        end(store, run)
    assert [run.id for run in store.reports.runs_to_report(1)] == ["run-0"]
    report = another(1).replaced(id="run-0")
    store.reports.set_run_reports([(store.runs.get("run-0"), report), (store.runs.get("run-1"), None)])
    assert store.reports.runs_to_report(10) == []
    assert store.reports.find(ReportFilter(), 20, 0) == ([report], 1)

    store.leases.acquire("run-0", "me", 60)
    (running,) = store.reports.runs_to_report(10)
    store.reports.set_run_reports([(running, None)])
    assert store.reports.find(ReportFilter(), 20, 0) == ([], 0)
    assert store.reports.runs_to_report(10) == []
    end(store, "run-0")
    assert [run.id for run in store.reports.runs_to_report(10)] == ["run-0"]


def test_a_report_of_a_former_verdict_that_is_written_late_does_not_stay(store: Store, make_run):
    end(store, make_run())
    former = store.runs.get("run-1")
    end(store, "run-1")
    store.reports.set_run_reports([(former, another(1).replaced(id="run-1"))])
    assert [run.id for run in store.reports.runs_to_report(10)] == ["run-1"]


def test_reports_of_runs_are_not_among_the_imported_ones(store: Store, make_run):
    end(store, make_run("abcdef"))
    store.reports.set_run_reports([(store.runs.get("abcdef"), another(1).replaced(id="abcdef"))])
    store.reports.add([REPORT])
    assert store.reports.newest_imported() == [REPORT]
    assert store.reports.imported("abcd") == REPORT
    assert store.reports.get("abcdef").id == "abcdef"


def rows_of(database: Database) -> list[tuple[object, ...]]:
    rows = text("SELECT report_id, metric_index, task_ref, metric FROM evalguard_report_metric ORDER BY 1, 2")
    with database.reading() as connection:
        return [tuple(row) for row in connection.execute(rows)]
