"""What people are given to label, and what they may say; no model is asked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fepflow.analysis.judge_reliability import judges_of_run
from fepflow.analysis.labels import (
    LabelQueue,
    Order,
    ShownOutput,
    ToLabel,
    add_label,
    draw_for_labels,
    label_queue,
    output_to_label,
)
from fepflow.checks.models.judge_spec import JudgeSpec
from fepflow.errors import NotFoundError, UserError
from fepflow.protocol.model import utc_now
from fepflow.protocol.results import CheckResult
from fepflow.protocol.test_case import Output, TestCase
from fepflow.store.records import NewCheckResult, NewOutput, RunRecord
from fepflow.store.store import Store

from .test_calibration import CHECK, stored

CHECK_ID = "llm_judge"


def judged(store: Store, *passed: bool, **more: Any) -> tuple[RunRecord, JudgeSpec]:
    run = stored(store, [{"passed": each, "score": 1, "tone": "kind"} for each in passed], **more)
    (judge,) = judges_of_run(run)
    return run, judge


def say(store: Store, run: RunRecord, case: int, label: Any = True, who: str = "ann", **more: Any) -> None:
    add_label(
        store, run.id, f"c{case}", more.pop("repeat", 0), more.pop("check_id", CHECK_ID), more.pop("field", "passed"),
        label, more.pop("note", ""), who, **more,
    )  # fmt: skip


def queue(store: Store, run: RunRecord, order: Order = "disagreement", who: str = "ann", **more: Any) -> LabelQueue:
    (judge,) = judges_of_run(run)
    return label_queue(store, run, judge, order, who=who, **more)


class TestAdding:
    @pytest.mark.parametrize(
        ("field", "label", "read"),
        [("passed", True, True), ("passed", " No ", False), ("passed", "fail", False), ("score", "4", 4.0),
         ("score", 3, 3.0), ("tone", "kind", "kind")],
    )  # fmt: skip
    def test_a_label_is_read_as_the_judge_would_say_it(self, store: Store, field: str, label: Any, read: Any):
        run, _ = judged(store, True)
        say(store, run, 0, label, field=field, note="why")
        (found,) = store.labels.current(run.id, CHECK_ID)
        assert (found.label, type(found.label), found.note, found.case_id) == (read, type(read), "why", "c0")

    def test_what_is_no_label_is_refused_and_nothing_is_stored(self, store: Store, subtests: pytest.Subtests):
        run = run_with_failed_output(store)
        changes: Any
        for changes, error, says in [
            ({"case": 7}, NotFoundError, "has no case with the id 'c7'"),
            ({"repeat": 1}, NotFoundError, "has no output 2 of the case 'c0'"),
            ({"repeat": -1}, NotFoundError, "has no output 0"),
            ({"case": 1}, NotFoundError, "has no output 1 of the case 'c1'"),
            ({"check_id": "polite"}, NotFoundError, "has no judge 'polite'"),
            ({"field": "reason"}, UserError, "gives no reason to label: it gives passed, score, tone"),
            ({"label": "maybe"}, UserError, "'maybe' is not one of yes, true, .* as llm_judge gives passed"),
            ({"label": ""}, UserError, "'' is not one of"),
            ({"label": [True]}, UserError, "is not one of"),
            ({"field": "score", "label": True}, UserError, "'True' is not a number"),
            ({"field": "score", "label": float("nan")}, UserError, "'nan' is not a number"),
            ({"field": "tone", "label": "angry"}, UserError, "is not one of rude, plain, kind"),
            ({"note": "x" * 10_001}, UserError, "10,001 characters, and 10,000 at most"),
            ({"who": " "}, UserError, "needs its author's name"),
            ({"who": "x" * 201}, UserError, "needs its author's name"),
            ({"label": None}, UserError, "ann has no label .* to withdraw"),
            ({"draw_id": "d"}, NotFoundError, "No draw 'd' of run"),
        ]:
            with subtests.test(changes=changes, error=error, says=says):
                with pytest.raises(error, match=says) as caught:
                    say(store, run, **{"case": 0, **changes})
                assert type(caught.value) is error
                assert store.labels.current(run.id) == []

    def test_of_an_unknown_run(self, store: Store):
        with pytest.raises(NotFoundError, match="nowhere"):
            add_label(store, "nowhere", "c0", 0, CHECK_ID, "passed", True, "", "ann")

    def test_a_draw_that_has_not_shown_the_case_is_refused(self, store: Store):
        run, judge = judged(store, True, True)
        drawn = draw_for_labels(store, run, judge, 1, seed=1)
        shown = int(drawn.case_ids[0][1:])
        with pytest.raises(NotFoundError, match="has shown the case"):
            say(store, run, 1 - shown, draw_id=drawn.id)
        say(store, run, shown, draw_id=drawn.id)

    def test_a_label_can_be_withdrawn_once(self, store: Store):
        run, _ = judged(store, True)
        say(store, run, 0)
        say(store, run, 0, None)
        assert store.labels.current(run.id) == []
        with pytest.raises(UserError, match="to withdraw"):
            say(store, run, 0, None)

    def test_an_output_that_broke_off_was_judged_and_can_be_labelled(self, store: Store):
        error = {"type": "unknown_error", "message": "step 2 of 2: the agent exited with code 1", "partial": True}
        begun = Output(value={"steps": [{"public_output": "one"}]}, metadata={"error": error})
        run, judge = judged(store, True, output=begun)
        drawn = draw_for_labels(store, run, judge, 1, seed=1)
        shown = queue(store, run, "random").next()
        assert shown is not None
        assert output_to_label(store, run, judge, shown).output == begun.value
        say(store, run, 0, draw_id=drawn.id)
        assert queue(store, run, "random").next() is None

    @pytest.mark.parametrize(("case_id", "repeat"), [("c0", 1), ("c0", -1), ("c1", 0)])
    def test_where_there_is_no_output_none_is_shown(self, store: Store, case_id: str, repeat: int):
        run = run_with_failed_output(store)
        (judge,) = judges_of_run(run)
        with pytest.raises(NotFoundError, match=f"no output {repeat + 1} of the case '{case_id}' to label"):
            output_to_label(store, run, judge, ToLabel(case_id, repeat, 1, 1, None))


def run_with_failed_output(store: Store) -> RunRecord:
    """A run with an output of c0, and none of c1, whose call failed."""
    run = RunRecord(
        id=f"failed{len(store.runs.newest())}", name="judged", suite={"name": "judged", "checks": [CHECK]}, repeats=1
    )
    store.runs.create(run, [TestCase(id="c0", input=0), TestCase(id="c1", input=1)])
    failed = Output(value=None, metadata={"error": {"message": "it is down"}})
    outputs = [Output(value=None), failed]
    store.results.write(run.id, [NewOutput(number, 0, "b" * 64, output) for number, output in enumerate(outputs)], [])
    return store.runs.get(run.id)


class TestRandomQueue:
    def test_it_is_empty_without_a_draw(self, store: Store):
        run, _ = judged(store, True)
        assert queue(store, run, "random") == LabelQueue("random", [], frozenset())
        assert queue(store, run, "random").next() is None

    def test_each_goes_on_where_they_left_off(self, store: Store):
        run, judge = judged(store, *[True] * 9)
        drawn = draw_for_labels(store, run, judge, 4, seed=1)
        for number, case_id in enumerate(drawn.case_ids, 1):
            shown = queue(store, run, "random").next()
            assert shown is not None
            assert (shown.case_id, shown.number, shown.count, shown.draw_id) == (case_id, number, 4, drawn.id)
            say(store, run, int(case_id[1:]), draw_id=shown.draw_id)
        assert queue(store, run, "random").next() is None
        other = queue(store, run, "random", who="bob").next()
        assert other is not None
        assert other.number == 1
        of_score = queue(store, run, "random", field="score").next()
        assert of_score is not None
        assert of_score.number == 1

    def test_what_is_passed_over_comes_in_the_end(self, store: Store):
        run, judge = judged(store, *[True] * 3)
        drawn = draw_for_labels(store, run, judge, 3, seed=1)
        for after, number in ((0, 1), (1, 2), (2, 3), (3, 1), (99, 1)):
            shown = queue(store, run, "random").next(after)
            assert shown is not None
            assert shown.number == number
        say(store, run, int(drawn.case_ids[0][1:]), draw_id=drawn.id)
        last = queue(store, run, "random").next(3)
        assert last is not None
        assert last.number == 2

    def test_a_larger_draw_of_the_same_seed_asks_for_the_others_only(self, store: Store):
        run, judge = judged(store, *[True] * 9)
        for case_id in (first := draw_for_labels(store, run, judge, 2, seed=1)).case_ids:
            say(store, run, int(case_id[1:]), draw_id=first.id)
        larger = draw_for_labels(store, run, judge, 4, seed=1)
        assert set(first.case_ids) < set(larger.case_ids)
        asked = queue(store, run, "random")
        assert {case_id for case_id, _ in asked.labelled} == set(first.case_ids)

    def test_a_person_sees_the_output_and_not_what_the_judge_said(self, store: Store):
        run, judge = judged(store, True)
        draw_for_labels(store, run, judge, 1, seed=1)
        shown = queue(store, run, "random").next()
        assert shown is not None
        assert output_to_label(store, run, judge, shown) == ShownOutput(
            0, None, "x", judge.prompt.replace("{{$.output.value}}", "x")
        )
        without = replace(judge, prompt="{{$.output.value.answer}}?")
        assert output_to_label(store, run, without, shown).asked == "{{$.output.value.answer}}?"


class TestQueueByDisagreement:
    def test_first_where_samples_and_then_where_checks_disagree(self, store: Store):
        agreements = [1.0, 0.6, 1.0, 0.8, 1.0]
        samples = [{"agreement": {"passed": share}, "spread": {}} for share in agreements]
        run, _ = judged(store, *[True] * 5, samples=samples)
        other = CheckResult(
            check_type="contains", status="completed", results={"passed": False}, evaluated_at=utc_now(),
            metadata={"check_id": "has"},
        )  # fmt: skip
        rows = [NewCheckResult(index, 0, "has", "a" * 64, other, index not in (2, 3)) for index in range(5)]
        store.results.write(run.id, [], rows)
        found = queue(store, run)
        assert [case_id for case_id, _ in found.outputs][:3] == ["c1", "c3", "c2"]
        assert {case_id for case_id, _ in found.outputs[3:]} == {"c0", "c4"}
        assert (found.disputed, found.draw) == (3, None)
        assert queue(store, run).outputs == found.outputs, "the same at each look"

    def test_numbers_disagree_by_how_far_they_are_apart(self, store: Store):
        spreads = [[1, 1], [1, 5], [2, 4]]
        run, _ = judged(store, *[True] * 3, samples=[{"agreement": {}, "spread": {"score": each}} for each in spreads])
        assert [case_id for case_id, _ in queue(store, run, field="score").outputs] == ["c1", "c2", "c0"]

    def test_what_was_not_judged_is_not_in_it(self, store: Store):
        run = stored(store, [{"passed": True}, None, {"passed": None}, {"passed": False}])
        assert sorted(queue(store, run).outputs) == [("c0", 0), ("c3", 0)]

    def test_repeats_are_outputs_of_their_own(self, store: Store):
        run, _ = judged(store, True, repeats=2)
        store.results.write(run.id, [NewOutput(0, 1, "b" * 64, Output(value="second"))], [])
        say(store, run, 0, repeat=1)
        found = queue(store, run)
        assert found.outputs == [("c0", 0)], "the second one was not judged"
        assert found.labelled == frozenset()
