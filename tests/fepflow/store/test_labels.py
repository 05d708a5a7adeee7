from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fepflow.errors import InfrastructureError
from fepflow.protocol.test_case import TestCase
from fepflow.store.records import LabelDraw, NewLabel, RunRecord
from fepflow.store.store import Store

from .conftest import MakeRun


def new(label: Any = True, who: str = "ann", case_index: int = 0, repeat: int = 0, **more: Any) -> NewLabel:
    return NewLabel(
        more.pop("run_id", "run-1"), case_index, repeat, more.pop("check_id", "judge"), more.pop("field", "passed"),
        label, who, **more,
    )  # fmt: skip


def said(store: Store, check_id: str | None = "judge", run_id: str = "run-1") -> list[tuple[Any, ...]]:
    return [
        (each.case_index, each.repeat, each.labelled_by, each.label) for each in store.labels.current(run_id, check_id)
    ]


@pytest.mark.parametrize("label", [True, False, 4.0, -0.5, "kind\0é\ud800"])
def test_a_label_comes_back_as_it_was_after_opening_again(store: Store, url: str, make_run: MakeRun, label):
    make_run()
    drawn = LabelDraw(run_id="run-1", check_id="judge\0", seed=7, case_ids=["case-2"])
    store.labels.add_draw(drawn)
    given = new(label, "ann\0", 2, check_id="judge\0", field="pässed", note="because\0\n", draw_id=drawn.id)
    store.labels.add(given)
    with Store.open(url) as again:
        (found,) = again.labels.current("run-1", "judge\0")
    assert {name: getattr(found, name) for name in NewLabel.__slots__} == {
        name: getattr(given, name) for name in NewLabel.__slots__
    }
    assert (found.case_id, type(found.label)) == ("case-2", type(label))


def test_the_newest_label_of_each_person_counts_and_the_others_stay(store: Store, make_run: MakeRun):
    make_run()
    for label, who in ((True, "ann"), (True, "bob"), (False, "ann")):
        store.labels.add(new(label, who))
    assert said(store) == [(0, 0, "bob", True), (0, 0, "ann", False)]
    history = store.labels.of_case("run-1", 0)
    assert [(each.labelled_by, each.label) for each in history] == [("ann", True), ("bob", True), ("ann", False)]


def test_a_label_that_was_withdrawn_counts_no_more_until_there_is_another(store: Store, make_run: MakeRun):
    make_run()
    for label, who in ((True, "ann"), (True, "bob"), (None, "ann")):
        store.labels.add(new(label, who))
    assert said(store) == [(0, 0, "bob", True)], "and not the one before, and not another's"
    assert [each.label for each in store.labels.of_case("run-1", 0)] == [True, True, None]
    store.labels.add(new(False, "ann"))
    assert said(store) == [(0, 0, "bob", True), (0, 0, "ann", False)]


_numbers = count()
KEYS = st.tuples(
    st.sampled_from(["run-1", "run-2"]), st.integers(0, 1), st.integers(0, 1), st.sampled_from(["a", "b"]),
    st.sampled_from(["passed", "tone"]), st.sampled_from(["ann", "bob"]),
)  # fmt: skip


@given(rows=st.lists(st.tuples(KEYS, st.sampled_from([True, False, None])), max_size=30))
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_label_counts_for_another_output_check_field_or_person(store: Store, make_run: MakeRun, rows):
    runs = [f"{name}-{next(_numbers)}" for name in ("run-1", "run-2")]
    for run_id in runs:
        make_run(run_id, cases=2, repeats=2)
    newest = {}
    for (run, case_index, repeat, check_id, field, who), label in rows:
        run_id = runs[run == "run-2"]
        store.labels.add(new(label, who, case_index, repeat, run_id=run_id, check_id=check_id, field=field))
        newest[run_id, case_index, repeat, check_id, field, who] = label
    found = {
        (each.run_id, each.case_index, each.repeat, each.check_id, each.field, each.labelled_by): each.label
        for run_id in runs
        for check_id in ("a", "b")
        for each in store.labels.current(run_id, check_id)
    }
    assert found == {key: label for key, label in newest.items() if label is not None}
    assert sum(len(store.labels.current(run_id)) for run_id in runs) == len(found)


def test_ids_that_an_index_does_not_take_whole_come_back_whole(store: Store):
    ids = ["x" * 3_000, "x" * 2_001, "x" * 1_999, "é\0" * 1_000, "plain"]
    store.runs.create(
        RunRecord(id="run-1", name="n", suite={}, repeats=1), [TestCase(id=case_id, input=0) for case_id in ids]
    )
    for case_index in range(len(ids)):
        store.labels.add(new(case_index=case_index))
    assert list(store.runs.ids_of_cases("run-1")) == ids
    assert [label.case_id for label in store.labels.current("run-1")] == ids


def test_a_label_belongs_to_a_case_of_a_run(store: Store, make_run: MakeRun):
    make_run()
    with pytest.raises(InfrastructureError, match="belong to is not there"):
        store.labels.add(new(case_index=3))
    assert store.labels.current("run-1") == store.labels.of_case("run-1", 3) == store.labels.current("no-run") == []
