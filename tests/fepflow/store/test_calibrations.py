from datetime import timedelta
from typing import Any

from fepflow.protocol.model import utc_now
from fepflow.protocol.results import CheckError, CheckResult
from fepflow.store.records import Calibration, LabelDraw, NewCheckResult
from fepflow.store.store import Store

A, B = "a" * 64, "b" * 64
FIGURES = {"kappa": {"value": 0.71, "low": None}}


def calibration(judge=A, rubric=B, **fields) -> Calibration:
    return Calibration(
        judge=judge,
        rubric=rubric,
        model="openai/é\0",
        parameters={"temperature": 0.0},
        check_id="judge",
        field="passed",
        run_id="r",
        n=40,
        missing=2,
        statistics=FIGURES,
        **fields,
    )


def test_the_newest_calibration_of_a_judge_and_rubric_comes_back_as_it_was(store: Store):
    now = utc_now()
    first = calibration(created_at=now - timedelta(days=1))
    newest = calibration(created_at=now, id="newest")
    for one in (newest, first, calibration(judge=B, rubric=A), calibration(rubric=A)):
        store.labels.add_calibration(one)
    assert store.labels.calibration_of(A, B) == newest


def test_another_rubric_or_judge_was_never_calibrated(store: Store):
    store.labels.add_calibration(calibration())
    assert store.labels.calibration_of(A, A) is None
    assert store.labels.calibration_of(B, B) is None


def test_a_calibration_is_there_after_opening_again(store: Store, url):
    store.labels.add_calibration(calibration(id="kept"))
    with Store.open(url) as again:
        kept = again.labels.calibration_of(A, B)
    assert kept is not None
    assert (kept.id, kept.model, kept.statistics) == ("kept", "openai/é\0", FIGURES)


def test_completed_results_of_a_check_are_read(store: Store, make_run):
    run = make_run(cases=3, repeats=2)

    def answer(check_id, passed, error=None):
        results = {} if error else {"response": {"passed": passed}}
        more: dict[str, Any] = {"error": CheckError(type="unknown_error", message=error)} if error else {}
        return CheckResult(check_type="llm_judge", status="error" if error else "completed", results=results,
                           evaluated_at=utc_now(), metadata={"check_id": check_id}, **more)  # fmt: skip

    rows = [
        NewCheckResult(2, 0, "judge", A, answer("judge", False), False),
        NewCheckResult(0, 1, "judge", A, answer("judge", True), True),
        NewCheckResult(0, 0, "judge", A, answer("judge", False), False),
        NewCheckResult(1, 0, "judge", A, answer("judge", None, "no model"), None),
        NewCheckResult(1, 0, "other", A, answer("other", True), True),
    ]
    store.results.write(run, [], rows)
    found = [
        (case_index, results["response"]["passed"])
        for case_index, results in store.results.completed_results(run, "judge")
    ]
    assert found == [(0, False), (0, True), (2, False)]
    assert store.results.checks_of_types(run, ["llm_judge"]) == {"judge", "other"}
    assert store.results.checks_of_types(run, ["contains"]) == set()


def test_draws_come_back_the_newest_first(store: Store, make_run):
    make_run("r", cases=3)
    now = utc_now()
    first = LabelDraw(
        run_id="r", check_id="judge", seed=2**62, case_ids=["c1", "é\0"], created_at=now - timedelta(days=1)
    )
    newest = LabelDraw(run_id="r", check_id="judge", seed=0, case_ids=[], created_at=now)
    for draw in (newest, first, LabelDraw(run_id="r", check_id="other", seed=0, case_ids=[])):
        store.labels.add_draw(draw)
    assert store.labels.draws("r", "judge") == [newest, first]
    assert store.labels.draws("s", "judge") == []
