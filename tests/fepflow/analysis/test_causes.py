"""Many failures have few causes: each is told once, with how many results it has."""

from __future__ import annotations

import tracemalloc
from typing import Any

from fepflow.analysis.causes import Causes
from fepflow.protocol.model import utc_now
from fepflow.protocol.results import CheckError, CheckResult
from fepflow.protocol.test_case import Output

ANSWER = Output(value="x")


def no_answer(message: str, status: int | None = None) -> Output:
    error = {"type": "unknown_error", "kind": "http_status", "message": message}
    return Output(value=None, metadata={"error": error if status is None else {**error, "status": status}})


def check(
    check_id: str, error: str | None = None, arguments: dict[str, Any] | None = None, **found: Any
) -> CheckResult:
    return CheckResult(
        check_type="any",
        status="error" if error else "completed",
        results={} if error else {"passed": False, **found},
        evaluated_at=utc_now(),
        resolved_arguments=arguments or {},
        metadata={"check_id": check_id},
        **({"error": CheckError(type="unknown_error", message=error)} if error else {}),
    )


def lines(*results: tuple[str, Output | None, list[CheckResult]], limit: int = 8) -> list[str]:
    causes = Causes()
    for result in results:
        causes.add(*result)
    return [*map(str, causes.summary(limit).causes), *causes.summary(limit).remarks]


def test_each_cause_is_listed_once_the_most_frequent_first() -> None:
    failed = [check("looked_up", missing=["search"], count=0)]
    found = [(f"case-{n}", ANSWER, failed) for n in range(22)]
    refused = [
        (f"call-{n}", no_answer("HTTP 401 Unauthorized", 401), [check("looked_up", error="no")]) for n in range(4)
    ]
    assert lines(*refused, *found) == ["22 × looked_up: missing: search, count: 0", "4 × HTTP 401 Unauthorized"]


def test_what_differs_in_numbers_and_ids_is_one_cause() -> None:
    def say(n: int, case_id: str) -> str:
        return f"HTTP 500 Internal Server Error: order {case_id} took {n}.5 s, trace {n:08x}a1b2c3d4 of 3 workers"

    results: list[Any] = [(f"order-x{n}", no_answer(say(n, f"order-x{n}"), 500), []) for n in range(10)]
    assert lines(*results) == [
        "10 × HTTP 500 Internal Server Error: order … took … s, trace … of 3 workers",
    ]
    assert lines(results[3]) == [f"1 × {say(3, 'order-x3')}"]


def test_different_causes_stay_apart() -> None:
    missing = [check("shape", validation_errors=["'id' is a required property"])]
    other = [check("shape", validation_errors=["'total' is a required property"])]
    errors = [check("shape", error="the path $.output.value.x found nothing")]
    results = [(f"c{n}", ANSWER, found) for n, found in enumerate([missing] * 3 + [other] * 2 + [errors] * 2)]
    assert lines(*results) == [
        "3 × shape: validation_errors: 'id' is a required property",
        "2 × shape: error: the path $.output.value.x found nothing",
        "2 × shape: validation_errors: 'total' is a required property",
    ]


def test_values_that_are_quoted_differ_in_one_cause() -> None:
    wrong = [f"'answer of {word}' is not of type 'integer'" for word in ("Ann", "Bob", "Eve")]
    results = [(f"c{n}", ANSWER, [check("shape", validation_errors=[text])]) for n, text in enumerate(wrong)]
    assert lines(*results) == ["3 × shape: validation_errors: … is not of type 'integer'"]


def test_reasons_of_a_judge_that_all_differ_are_one_line_with_an_example() -> None:
    reasons = ["It insults the customer.", "The tone is cold.", "No greeting at all."]
    results = [(f"c{n}", ANSWER, [check("polite", reason=reason)]) for n, reason in enumerate(reasons)]
    assert lines(*results) == ["3 × polite: different each time, such as: It insults the customer."]


def contains(text: str, phrases: str) -> list[CheckResult]:
    arguments = {"text": {"value": text}, "phrases": {"value": phrases}}
    return [check("says", arguments=arguments).model_copy(update={"check_type": "contains"})]


def test_sentences_of_different_answers_are_one_cause() -> None:
    answers = ["The order 4711 is shipped.", "Sorry.", "I do not know."]
    results = [(f"c{n}", ANSWER, contains(text, "processing")) for n, text in enumerate(answers)]
    assert lines(*results) == ['3 × says: "processing" is not in: …']
    results = [(f"c{n}", ANSWER, contains(f"The order 471{n} is shipped.", "processing")) for n in range(3)]
    assert lines(*results) == ['3 × says: "processing" is not in: "The order … is shipped."']
    cities = [("Lyon", "Paris"), ("Kyoto", "Tokyo"), ("Cusco", "Lima")]
    results = [(f"c{n}", ANSWER, contains(text, phrase)) for n, (text, phrase) in enumerate(cities)]
    assert lines(*results) == ['3 × says: different each time, such as: "Paris" is not in: "Lyon"']


def test_a_few_answers_that_are_alike_do_not_make_a_cause_each() -> None:
    words = [chr(ord("a") + n // 2) * 3 for n in range(50)]
    results = [(f"c{n}", ANSWER, contains(word, "processing")) for n, word in enumerate(words)]
    assert lines(*results) == ['50 × says: "processing" is not in: …']


def test_numbers_that_differ_leave_the_bound() -> None:
    def under(n: int) -> list[CheckResult]:
        value = {"value": n / 10, "jsonpath": "$.output.value.score"}
        found = check("sure", arguments={"value": value, "min_value": {"value": 0.7}})
        return [found.model_copy(update={"check_type": "threshold"})]

    assert lines(*((f"c{n}", ANSWER, under(n)) for n in range(1, 6))) == ["5 × sure: score … is under 0.7"]


def test_a_cause_names_its_first_cases() -> None:
    causes = Causes()
    for n in range(6):
        for _ in range(2):  # two repeats of a case
            causes.add(f"case-{n}", ANSWER, contains("Lyon" if n < 4 else "Nice", "Paris"))
    first, second = causes.summary().causes
    assert (first.count, first.case_ids, first.has_more_cases) == (8, ["case-0", "case-1", "case-2"], True)
    assert (second.count, second.case_ids, second.has_more_cases) == (4, ["case-4", "case-5"], False)
    assert causes.summary().lines()[0] == '8 × says: "Paris" is not in: "Lyon" (case-0, case-1, case-2, …)'


def test_what_did_not_fail_has_no_cause() -> None:
    passed = CheckResult(check_type="any", status="completed", results={"passed": True}, evaluated_at=utc_now())
    score = CheckResult(check_type="any", status="completed", results={"score": 1}, evaluated_at=utc_now())
    assert lines(("a", ANSWER, [passed, score]), ("b", None, [])) == []


def test_the_list_is_short_and_counts_the_rest() -> None:
    results = [(f"c{n}", ANSWER, [check(f"check-{n % 12}")]) for n in range(30)]
    told = lines(*results, limit=3)
    assert told == [
        *(f"3 × check-{n}: any did not pass and gives no reason" for n in range(3)),
        "9 other causes, 21 times",
    ]


def test_every_result_is_counted_in_bounded_memory() -> None:
    causes = Causes()
    tracemalloc.start()
    for n in range(1_000):
        word = "".join(chr(ord("g") + int(digit)) for digit in str(n))
        causes.add(f"case-{n}", ANSWER, [check("polite", reason=f"{word} {'x' * 5000}")])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sum(cause.count for cause in causes.most_frequent()) == 1_000
    assert len(causes.summary().causes) == 1
    assert peak < 4_000_000


def test_of_a_call_that_broke_off_checks_that_failed_before_are_causes_too() -> None:
    error = {"type": "unknown_error", "kind": "crashed", "message": "step 2 of 2: it crashed", "partial": True}
    broke_off = Output(value={"steps": [{}]}, metadata={"error": error})
    checks = [check("first", missing=["search"]), check("second", error="only a part: step 2 of 2: it crashed")]
    assert lines(("a", broke_off, checks)) == ["1 × first: missing: search", "1 × step 2 of 2: it crashed"]
