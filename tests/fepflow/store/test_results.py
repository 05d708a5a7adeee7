import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import event

from fepflow.errors import NotFoundError
from fepflow.protocol.results import CheckError, CheckResult, StatusText
from fepflow.protocol.test_case import Output, TestCase
from fepflow.store.records import CheckCounts, NewCheckResult, NewOutput, Progress, RunRecord
from fepflow.store.store import Store

HASH = "a" * 64
TIME = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
FAILED = Output(value=None, metadata={"error": {"type": "timeout_error", "message": "too slow"}})


def output(case_index: int = 0, repeat: int = 0, value: object = "yes", failed: bool = False) -> NewOutput:
    return NewOutput(case_index, repeat, HASH, FAILED if failed else Output(value=value))


def result(check_id: str = "contains", status: StatusText = "completed", **results: object) -> CheckResult:
    error: dict[str, Any] = {}
    if status == "error":
        error = {"error": CheckError(type="timeout_error", message="too slow")}
    return CheckResult(
        check_type="contains",
        status=status,
        results=results,
        evaluated_at=TIME,
        metadata={"check_id": check_id},
        **error,
    )


def check(
    case_index: int = 0,
    repeat: int = 0,
    check_id: str = "contains",
    passed: bool | None = True,
    status: StatusText = "completed",
) -> NewCheckResult:
    return NewCheckResult(case_index, repeat, check_id, HASH, result(check_id, status, passed=passed), passed)


def outcomes(store: Store, run_id: str, case_indices: Sequence[int] | None = None) -> set[tuple[int, int, str]]:
    rows = store.results.check_rows(run_id, case_indices, results=False)
    return {(row.case_index, row.repeat, row.check_id) for row in rows}


@pytest.mark.parametrize(
    "given",
    [
        Output(value=None),
        Output(value={"answer": ["日本", "a\0b", "\ud800", 1.5, {"$float": "NaN"}]}),
        Output(value="", id="o\0", metadata={"tokens": 3}),
        Output(value=-math.inf, metadata={}),
        FAILED,
    ],
)
def test_an_output_is_read_as_it_was_written(store: Store, make_run, given: Output):
    run = make_run()

    store.results.write(run, [NewOutput(1, 0, HASH, given)], [])

    stored = store.results.outputs(run)[1, 0]
    assert stored.output.model_dump() == given.model_dump()
    assert (stored.content_hash, stored.failed) == (HASH, given is FAILED)


def test_a_check_result_is_read_as_it_was_written(store: Store, make_run):
    run = make_run()
    given = result("c", passed=True, at=math.inf, text="\0\ud800").model_copy(
        update={"resolved_arguments": {"text": {"value": "x", "jsonpath": "$.output.value"}}}
    )

    store.results.write(run, [output()], [NewCheckResult(0, 0, "c", HASH, given, True)])

    assert next(store.results.by_case(run)).checks == [given]
    (row,) = store.results.check_rows(run)
    assert (row.case_index, row.repeat, row.check_id, row.status, row.passed) == (0, 0, "c", "completed", True)
    assert row.result == {**given.model_dump(), "evaluated_at": "2026-01-02T03:04:05Z"}


def test_any_check_result_is_read_as_it_was_written(store: Store, make_run):
    values = [
        "日本 😀",
        {"$float": "NaN"},
        -math.inf,
        "NaN",
        "[" * 1_000,
        [[[[[]]]]],
        10**30,
        0.1,
        {"": None},
        "\n\x7f",
    ]
    run = make_run(cases=len(values))
    given = [result("c", passed=True, value=value) for value in values]
    outputs = [output(index) for index in range(len(values))]

    store.results.write(
        run, outputs, [NewCheckResult(index, 0, "c", HASH, one, True) for index, one in enumerate(given)]
    )

    assert [case.checks for case in store.results.by_case(run)] == [[one] for one in given]


def test_rows_without_results_have_everything_but_the_result(store: Store, make_run):
    run = make_run()
    store.results.write(run, [output()], [NewCheckResult(0, 0, "c", HASH, result("c", passed=True), True)])

    (whole,), (light,) = store.results.check_rows(run), store.results.check_rows(run, results=False)

    assert whole.result is not None
    assert light == replace(whole, result=None)


def test_the_first_committed_row_wins_and_writing_again_is_harmless(store: Store, make_run):
    run = make_run()
    store.results.write(run, [output(value="first")], [check(passed=True)])

    store.results.write(run, [output(value="second"), output(1)], [check(passed=False), check(1)])
    store.results.write(run, [output(2, value="a"), output(2, value="b")], [check(2), check(2)])

    assert [stored.output.value for stored in store.results.outputs(run).values()] == ["first", "yes", "a"]
    assert [row.passed for row in store.results.check_rows(run)] == [True, True, True]


def test_rows_of_a_range_of_cases_are_found(store: Store, make_run):
    run = make_run(cases=4, repeats=2)
    store.results.write(run, [output(p, r) for p in range(4) for r in range(2)], [check(3, 1, "a"), check(1, 0, "b")])

    assert set(store.results.outputs(run, 1, 3)) == {(1, 0), (1, 1), (2, 0), (2, 1)}
    assert store.results.outputs(run, 3).keys() == {(3, 0), (3, 1)}
    assert outcomes(store, run) == {(1, 0, "b"), (3, 1, "a")}
    assert outcomes(store, run, [2, 1, 0]) == {(1, 0, "b")}


def test_rows_of_other_runs_are_not_read(store: Store, make_run):
    one, two = make_run("run-1"), make_run("run-2")
    store.results.write(one, [output(failed=True)], [check(status="error", passed=None)])
    store.results.write(two, [output(failed=True)], [check(status="error", passed=None)])

    assert store.results.delete_errors(one) == 2

    assert (set(store.results.outputs(one)), set(store.results.outputs(two))) == (set(), {(0, 0)})
    assert (store.results.progress(one).error, store.results.progress(two).error) == (0, 1)


def test_an_output_without_a_json_form_is_stored_as_failed_and_its_neighbours_as_they_are(store: Store, make_run):
    run = make_run()

    store.results.write(run, [output(0), output(1, value=10**5000), output(2)], [])

    bad = store.results.outputs(run)[1, 0]
    assert bad.failed
    assert bad.output.value is None
    assert bad.output.metadata["error"]["type"] == "validation_error"
    assert "The output has no JSON form" in bad.output.metadata["error"]["message"]
    assert [stored.failed for stored in store.results.outputs(run).values()] == [False, True, False]


def test_a_check_result_without_a_json_form_is_stored_as_an_error(store: Store, make_run):
    run = make_run()
    bad = NewCheckResult(0, 0, "bad", HASH, result("bad", passed=True, found=object()), True)

    store.results.write(run, [output()], [check(0, 0, "a"), bad, check(0, 0, "z")])

    stored = next(store.results.by_case(run)).checks
    assert [(answer.check_id, answer.status) for answer in stored] == [
        ("a", "completed"),
        ("bad", "error"),
        ("z", "completed"),
    ]
    assert "The check's result has no JSON form" in stored[1].error.message
    assert [row.passed for row in store.results.check_rows(run)] == [True, None, True]


def test_results_are_written_by_one_statement_whatever_their_number(store: Store, make_run):
    run = make_run(cases=60)
    statements: set[str] = set()
    event.listen(store._database.engine, "before_cursor_execute", lambda _c, _cursor, words, *_: statements.add(words))
    for number in range(1, 11):  # SQLite's driver keeps prepared statements: a thousand rows in one take a megabyte
        first = number * (number - 1) // 2
        rows = range(first, first + number)
        store.results.write(run, [output(row) for row in rows], [check(row) for row in rows])

    assert len([words for words in statements if words.startswith(("INSERT INTO output", "INSERT INTO check"))]) == 2
    assert store.results.progress(run).checks == 55


def test_progress_counts_every_row_once(store: Store, make_run):
    run = make_run(cases=5, repeats=2)
    store.results.write(
        run,
        [output(0), output(1), output(2, failed=True)],
        [
            check(0, 0, "a", passed=True),
            check(0, 0, "b", passed=False),
            check(1, 0, "a", passed=None),
            check(1, 0, "b", passed=None, status="skip"),
            check(2, 0, "a", passed=None, status="error"),
            check(2, 0, "b", passed=None, status="error"),
        ],
    )

    assert store.results.progress(run) == Progress(
        outputs=3, failed_outputs=1, checks=6, passed=1, failed=1, error=2, skipped=1
    )


def test_the_results_of_each_check_are_counted(store: Store, make_run):
    run = make_run(cases=6)
    store.results.write(
        run,
        [],
        [
            check(0, 0, "b"),
            check(1, 0, "b", passed=False),
            check(2, 0, "b", passed=None),
            check(3, 0, "b", passed=None, status="error"),
            check(4, 0, "b", passed=None, status="skip"),
            check(5, 0, "b"),
            check(0, 0, "a"),
        ],
    )

    assert store.results.check_totals(run) == [
        CheckCounts("a", passed=1, failed=0, error=0, skipped=0, unjudged=0),
        CheckCounts("b", passed=2, failed=1, error=1, skipped=1, unjudged=1),
    ]
    assert store.results.check_totals("nothing") == []


def test_progress_of_an_unknown_run_is_not_found(store: Store):
    with pytest.raises(NotFoundError):
        store.results.progress("nothing")


def test_forgetting_errors_keeps_every_answer(store: Store, make_run):
    run = make_run(repeats=2)
    store.results.write(
        run,
        [output(0, 0, failed=True), output(0, 1), output(1)],
        [
            check(0, 0, "a", status="error", passed=None),
            check(0, 0, "b"),
            check(0, 1, "a"),
            check(0, 1, "b", status="error", passed=None),
            check(1, 0, "a", passed=False),
            check(1, 0, "b", status="skip", passed=None),
        ],
    )

    assert store.results.delete_errors(run) == 4

    assert store.results.outputs(run).keys() == {(0, 1), (1, 0)}
    assert outcomes(store, run) == {(0, 1, "a"), (1, 0, "a"), (1, 0, "b")}
    assert store.results.delete_errors(run) == 0


def test_results_come_by_case_and_repeat_with_what_is_missing(store: Store, make_run):
    run = make_run(cases=2, repeats=2)
    store.results.write(run, [output(1, 1, "b"), output(0, 0, "a")], [check(1, 1, "z"), check(1, 1, "a")])

    results = list(store.results.by_case(run))

    assert [(each.case_index, each.repeat, each.case.id) for each in results] == [
        (0, 0, "case-0"),
        (0, 1, "case-0"),
        (1, 0, "case-1"),
        (1, 1, "case-1"),
    ]
    assert [each.output.value if each.output else None for each in results] == ["a", None, None, "b"]
    assert [[answer.check_id for answer in each.checks] for each in results] == [[], [], [], ["a", "z"]]


def test_checks_come_in_the_same_order_on_every_database(store: Store, make_run):
    run = make_run(cases=2)
    names = ["b", "B", "a", "_", "a-b", "ab", "Z", "é", "a\0", "\ud800", "日"]
    in_order = ["B", "Z", "_", "a", "a\0", "a-b", "ab", "b", "é", "日", "\ud800"]
    store.results.write(run, [output(0), output(1)], [check(p, 0, name) for p in (1, 0) for name in names])

    assert [(row.case_index, row.check_id) for row in store.results.check_rows(run)] == [
        (case_index, name) for case_index in (0, 1) for name in in_order
    ]
    assert [answer.check_id for answer in next(store.results.by_case(run)).checks] == in_order
    assert [totals.check_id for totals in store.results.check_totals(run)] == in_order


def test_checks_of_a_result_come_as_they_were_declared_a_case_s_own_first(store: Store, make_run):
    names = ["contains", *(f"contains-{number}" for number in range(2, 12)), "z", "a"]
    shared = [{"type": "contains"}] * 11 + [{"type": "regex", "id": name} for name in ("z", "a")]
    own = [{"type": "contains"}, {"type": "regex", "id": "b"}, {"type": "regex"}]
    run = RunRecord(id="run-1", name="refunds", suite={"checks": shared}, repeats=1)
    store.runs.create(
        run, [TestCase(id="plain", input=1), TestCase.model_validate({"id": "o", "input": 1, "checks": own})]
    )
    of_cases = names, ["contains-12", "b", "regex", *names]
    for case_index, ids in enumerate(of_cases):
        store.results.write("run-1", [output(case_index)], [check(case_index, 0, name) for name in sorted(ids)])

    assert [[answer.check_id for answer in each.checks] for each in store.results.by_case("run-1")] == list(of_cases)
    assert [totals.check_id for totals in store.results.check_totals("run-1")] == of_cases[1]
    marks = [[check_id for _, check_id in row.marks] for row in store.results.grid_rows("run-1", [0, 1])]
    assert marks == list(of_cases)


def test_failed_results_are_those_with_a_failed_output_or_a_check_that_failed_or_erred(store: Store, make_run):
    run = make_run(cases=350, repeats=2)
    store.results.write(
        run,
        [output(case_index, repeat, failed=case_index == 7) for case_index in range(350) for repeat in range(2)],
        [
            check(3, 1, passed=False),
            check(120, 0, passed=None, status="error"),
            check(121, 0, passed=None),
            check(122, 0, passed=None, status="skip"),
            check(340, 0, passed=True),
            check(341, 0, "other", passed=False),
        ],
    )

    failed = [(each.case_index, each.repeat) for each in store.results.by_case(run, failed_only=True)]

    assert failed == [(3, 1), (7, 0), (7, 1), (120, 0), (341, 0)]


def test_everything_is_read_once_however_many_cases_there_are(store: Store, make_run):
    run = make_run(cases=1_234)
    store.results.write(
        run, [output(case_index) for case_index in range(1_234)], [check(case_index) for case_index in range(1_234)]
    )

    assert [each.case_index for each in store.results.by_case(run)] == list(range(1_234))
    assert [row.case_index for row in store.results.check_rows(run)] == list(range(1_234))


def test_reading_an_unknown_run_gives_nothing(store: Store):
    assert list(store.results.by_case("nothing")) == []
    assert list(store.results.check_rows("nothing")) == []
    assert store.results.outputs("nothing") == {}
