"""Labels of several people: which of them count, and when they are a random sample of a run."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fepflow.analysis.calibration import calibrate, stored_labels
from fepflow.analysis.judge_reliability import judges_of_run, warnings_of
from fepflow.analysis.labels import draw_for_labels
from fepflow.errors import UserError
from fepflow.store.records import RunRecord
from fepflow.store.store import Store

from .test_labelling import judged, queue, say


def counting(store: Store, run: RunRecord, field: str = "passed") -> dict[str, Any]:
    return stored_labels(store, run, judges_of_run(run), field=field).labels


class TestWhoCounts:
    def test_more_than_half_decide_and_ties_are_left_out_and_told(self, store: Store):
        run, _ = judged(store, True, True, False)
        for case, labels in enumerate([[True, True, False], [True, False], [False]]):
            for who, label in zip(("ann", "bob", "cid"), labels, strict=False):
                say(store, run, case, label, who)
        labelled = stored_labels(store, run, judges_of_run(run))
        assert labelled.labels == {"c0": True, "c2": False}
        assert labelled.people == {
            "count": 3, "undecided": 1, "pairs": [], "alpha": {"value": None, "n": 2, "weights": "none"},
        }  # fmt: skip
        made = calibrate(store, run, labelled)
        assert (made.n, made.missing) == (2, 0)
        assert any("1 output has no label that more than half of its people gave" in each for each in warnings_of(made))

    def test_a_withdrawn_label_decides_nothing(self, store: Store):
        run, _ = judged(store, True)
        say(store, run, 0, True, "ann")
        say(store, run, 0, False, "bob")
        with pytest.raises(UserError, match="more than half of its people have to say the same"):
            counting(store, run)
        say(store, run, 0, None, "bob")
        assert counting(store, run) == {"c0": True}

    def test_without_labels_it_says_what_to_do(self, store: Store):
        run, _ = judged(store, True)
        with pytest.raises(UserError, match=r"has no labels of llm_judge, passed, in the store: label its outputs"):
            counting(store, run)
        say(store, run, 0, 4, field="score")
        with pytest.raises(UserError, match=r"there are labels of score \(--field\)"):
            counting(store, run)
        assert stored_labels(store, run, judges_of_run(run)).field == "score", "the only one that was labelled"

    def test_two_people_who_have_labelled_much_are_compared(self, store: Store):
        run, _ = judged(store, *[True] * 10)
        for case in range(10):
            say(store, run, case, case < 6, "bob")
            say(store, run, case, case < 5, "ann")
        say(store, run, 0, 1, "ann", field="score")
        for case in range(9):
            say(store, run, case, True, "cid")
        people = stored_labels(store, run, judges_of_run(run), field="passed").people
        assert people is not None
        (pair,) = people["pairs"]
        assert (pair["people"], pair["n"], pair["agreed"]) == (["ann", "bob"], 10, 9)
        assert pair["kappa"]["value"] == pytest.approx(4 / 5)

    def test_more_than_two_people_are_compared_all_together(self, store: Store):
        run, _ = judged(store, *[True] * 12)
        for who, most in (("ann", 6), ("bob", 6), ("cid", 5)):
            for case in range(12):
                say(store, run, case, case < most, who)
        people = stored_labels(store, run, judges_of_run(run), field="passed").people
        assert people is not None
        assert people["alpha"] == {"value": pytest.approx(1 - 35 * 2 / 646), "n": 12, "weights": "none"}

    @given(
        rows=st.lists(
            st.tuples(
                st.integers(0, 2), st.sampled_from(["passed", "score", "tone"]), st.sampled_from(["ann", "bob", "cid"]),
                st.booleans(),
            ),
            max_size=12,
        )
    )  # fmt: skip
    @settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_labels_of_one_field_and_run_count_for_no_other(self, store: Store, rows):
        run, _ = judged(store, *[True] * 3)
        other, _ = judged(store, *[True] * 3)
        meant: dict[str, dict[bool, Any]] = {
            "passed": {True: True, False: False},
            "score": {True: 5.0, False: 1.0},
            "tone": {True: "kind", False: "rude"},
        }
        newest: dict[str, dict[str, dict[str, Any]]] = {field: {} for field in meant}
        for case, field, who, good in rows:
            say(store, run, case, meant[field][good], who, field=field)
            newest[field].setdefault(f"c{case}", {})[who] = meant[field][good]
        for field, by_case in newest.items():
            votes = {case_id: list(said.values()) for case_id, said in by_case.items()}
            expected = {
                case_id: label for case_id in votes for label in votes[case_id]
                if 2 * votes[case_id].count(label) > len(votes[case_id])
            }  # fmt: skip
            if expected:
                assert counting(store, run, field) == expected
            else:
                with pytest.raises(UserError):
                    counting(store, run, field)
        assert store.labels.current(other.id) == []


class TestRandomness:
    def test_a_whole_draw_that_was_labelled_as_drawn_is_a_random_sample(self, store: Store):
        run, judge = judged(store, *[True] * 6, *[False] * 6)
        drawn = draw_for_labels(store, run, judge, 5, seed=1)
        for case_id in drawn.case_ids[:4]:
            say(store, run, int(case_id[1:]), draw_id=drawn.id)
            assert "draw" not in statistics(store, run)
        say(store, run, int(drawn.case_ids[4][1:]), draw_id=drawn.id)
        assert statistics(store, run)["draw"]["n"] == 5

    def test_labels_that_were_chosen_otherwise_are_none_even_if_they_hold_a_whole_draw(self, store: Store):
        run, judge = judged(store, *[True] * 7)
        drawn = draw_for_labels(store, run, judge, 3, seed=1)
        for case in range(6):
            say(store, run, case)
        found = statistics(store, run)
        assert "draw" not in found
        shown = queue(store, run, "random").next()
        assert shown is not None
        assert shown.number == 1, "it is asked for where the draw shows it"
        for case_id in drawn.case_ids[:2]:
            say(store, run, int(case_id[1:]), draw_id=drawn.id)
        assert (
            "1 of the 3 cases that were drawn at random have no label that counts and was given where the draw"
            in (statistics(store, run)["no_draw"])
        )
        say(store, run, int(drawn.case_ids[2][1:]), draw_id=drawn.id)
        assert statistics(store, run)["draw"]["n"] == 3

    def test_a_correction_keeps_its_draw_and_a_withdrawal_breaks_it(self, store: Store):
        run, judge = judged(store, True, True)
        drawn = draw_for_labels(store, run, judge, 2, seed=1)
        for case in range(2):
            say(store, run, case, draw_id=drawn.id)
        say(store, run, 0, False)
        assert statistics(store, run)["draw"]["n"] == 2
        say(store, run, 0, None)
        assert "draw" not in statistics(store, run)

    def test_a_tie_in_a_draw_leaves_it_unfinished(self, store: Store):
        run, judge = judged(store, True, True)
        drawn = draw_for_labels(store, run, judge, 2, seed=1)
        for case in range(2):
            say(store, run, case, draw_id=drawn.id)
        say(store, run, 0, False, "bob", draw_id=drawn.id)
        assert "draw" not in statistics(store, run)
        say(store, run, 0, True, "cid")
        assert statistics(store, run)["draw"]["matrix"] == [[2, 0], [0, 0]]


def statistics(store: Store, run: RunRecord) -> dict[str, Any]:
    return calibrate(store, run, stored_labels(store, run, judges_of_run(run))).statistics
