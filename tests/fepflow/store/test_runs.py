import math
from datetime import UTC
from typing import Any

import pytest
from sqlalchemy import update

from fepflow.errors import InputError, NotFoundError, UserError
from fepflow.protocol.check import Check
from fepflow.protocol.model import utc_now
from fepflow.protocol.test_case import TestCase
from fepflow.store.records import RUN, RunRecord
from fepflow.store.store import Store


def new_run(run_id: str = "run-1", **fields: Any) -> RunRecord:
    return RunRecord(**{"id": run_id, "name": "n", "suite": {}, "repeats": 1, **fields})


def test_a_new_run_is_pending_and_keeps_what_it_was_given(store: Store):
    suite = {"target": {"http": {"headers": {"Authorization": "Bearer ${TOKEN}"}}}}
    run = new_run(
        name="refunds \0", suite=suite, suite_path="suites/\udcff.yaml", repeats=3, tags=["ci"], flow_run_id="f"
    )

    store.runs.create(run, [TestCase(id="a", input="?")])

    record = store.runs.get("run-1")
    assert record.status == "pending"
    assert record.created_at.tzinfo is UTC
    assert (record.name, record.suite, record.suite_path) == ("refunds \0", suite, "suites/\udcff.yaml")
    assert (record.repeats, record.n_cases, record.tags, record.flow_run_id) == (3, 1, ["ci"], "f")
    assert [record.started_at, record.completed_at, record.lease_owner, record.outcome, record.error] == [None] * 5


def test_cases_come_back_as_they_were_in_their_order_and_by_range(store: Store):
    cases = [
        TestCase(id="z\0é", input="a\0b \ud800"),
        TestCase(id="b", input=[1, {"x": None}], expected=None, checks=[Check(type="contains", id="c")]),
        TestCase(id="a", input=1, metadata={"$float": "NaN"}),
    ]
    store.runs.create(new_run(), iter(cases))

    assert store.runs.cases("run-1") == cases
    assert store.runs.cases("run-1", 1) == cases[1:]
    assert store.runs.cases("run-1", 1, 2) == cases[1:2]
    assert [case.model_dump() for case in store.runs.cases("run-1")] == [case.model_dump() for case in cases]


def test_a_case_with_nan_comes_back_with_it(store: Store):
    store.runs.create(new_run(), [TestCase(id="a", input=math.nan)])

    assert math.isnan(store.runs.cases("run-1")[0].input)


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (TestCase(id="a", input=2), r"test_cases\[1\]: the id 'a' is that of test_cases\[0\] too"),
        (TestCase(id="b", input=object()), r"test_cases\[1\]: the case 'b' has no JSON form"),
    ],
)
def test_a_run_with_an_unusable_case_is_not_created_at_all(store: Store, second, message):
    with pytest.raises(InputError, match=message):
        store.runs.create(new_run(), [TestCase(id="a", input=1), second])

    assert store.runs.newest() == []


@pytest.mark.parametrize("again", [new_run("run-1"), new_run("run-2", flow_run_id="flow")])
def test_a_run_or_a_flow_run_is_created_once(store: Store, again: RunRecord):
    store.runs.create(new_run("run-1", flow_run_id="flow"), [])

    with pytest.raises(UserError, match="There is already a run"):
        store.runs.create(again, [])

    assert [run.id for run in store.runs.newest()] == ["run-1"]


def test_runs_are_listed_newest_first_and_by_name(store: Store, make_run):
    for number, name in enumerate(["a", "b", "a"]):
        make_run(f"run-{number}", name=name)

    assert [run.id for run in store.runs.newest()] == ["run-2", "run-1", "run-0"]
    assert [run.id for run in store.runs.newest(limit=2)] == ["run-2", "run-1"]
    assert [run.id for run in store.runs.newest(name="a")] == ["run-2", "run-0"]


def test_runs_of_the_same_moment_are_listed_in_the_same_order_on_every_database(store: Store, make_run):
    for run_id in ("run-b", "run-B", "run-a", "run-_"):
        make_run(run_id)
    store._database.write(lambda connection: connection.execute(update(RUN).values(created_at=utc_now())))

    assert [run.id for run in store.runs.newest()] == ["run-b", "run-a", "run-_", "run-B"]


def test_a_run_is_found_by_its_id_a_unique_beginning_and_as_the_latest(store: Store, make_run):
    for run_id in ("abcd1111", "abcd2222", "abc"):
        make_run(run_id)

    assert store.runs.get("abcd1111").id == "abcd1111"
    assert store.runs.get("abcd1").id == "abcd1111"
    assert store.runs.get("abc").id == "abc"
    assert store.runs.get("latest").id == "abc"

    make_run("d08dfbc2b0b44c34b07d443ef7c49ffc")
    for form in ("d08dfbc2-b0b4-4c34-b07d-443ef7c49ffc", "d08dfbc2-b0b4"):  # as the evaluations API writes it
        assert store.runs.get(form).id == "d08dfbc2b0b44c34b07d443ef7c49ffc"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("abcd", "could be any of abcd2222, abcd1111: write more characters"),
        ("abc", "too short to name a run"),
        ("", "too short to name a run"),
        ("nothing", "There is no run 'nothing': `fepflow list`"),
        ("%%%%", "There is no run '%%%%'"),
        ("____", "There is no run '____'"),
        ("ABCD1", "There is no run 'ABCD1'"),
        ("\0\ud800", "There is no run"),
    ],
)
def test_an_unknown_run_is_an_error_with_advice(store: Store, make_run, name, message):
    make_run("abcd1111")
    make_run("abcd2222")

    with pytest.raises(NotFoundError, match=message):
        store.runs.get(name)


def test_there_is_no_latest_run_in_an_empty_store(store: Store):
    with pytest.raises(NotFoundError, match="There are no runs yet"):
        store.runs.get("latest")


def test_a_run_is_found_by_its_flow_run(store: Store, make_run):
    make_run("run-1")
    make_run("run-2")
    store.runs.set_flow_run("run-1", "flow-1")

    assert store.runs.of_flow_run("flow-1") == store.runs.get("run-1")
    assert store.runs.of_flow_run("flow-2") is None
    with pytest.raises(UserError, match="flow-1 executes another run than run-2"):
        store.runs.set_flow_run("run-2", "flow-1")
    with pytest.raises(NotFoundError):
        store.runs.set_flow_run("run-3", "flow-3")


def test_ids_of_cases_may_be_of_any_length(store: Store):
    ids = ["日" * 400, "日" * 400 + "本", "🙂" * 300, "x" * 100_000, "\0" * 301]
    store.runs.create(
        RunRecord(id="run-1", name="s", suite={}, repeats=1), [TestCase(id=name, input=1) for name in ids]
    )
    assert [case.id for case in store.runs.cases("run-1")] == ids
