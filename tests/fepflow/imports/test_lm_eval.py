"""Samples of lm-evaluation-harness: a metric is a pass or a score only where its values say so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fepflow.errors import InputError
from fepflow.imports.imported import Imported, Score
from fepflow.services.imports import read_import

DATE = "2026-01-02T03-04-05.678901"


def row(doc_id: int, metrics: dict[str, Any], filtered: str = "none", **fields: Any) -> dict[str, Any]:
    return {
        "doc_id": doc_id,
        "doc": {"question": f"q{doc_id}"},
        "target": "Paris",
        "filter": filtered,
        "arguments": {"gen_args_0": {"arg_0": f"Q: q{doc_id}\nA:", "arg_1": {"until": ["\n"]}}},
        "resps": [["It is Paris."]],
        "filtered_resps": ["Paris"],
        "metrics": list(metrics),
        **metrics,
        **fields,
    }


def written(folder: Path, *rows: dict[str, Any], **results: Any) -> Path:
    path = folder / f"samples_capitals_{DATE}.jsonl"
    path.write_text("".join(f"{json.dumps(each)}\n" for each in rows))
    about = {"results": {}, "configs": {"capitals": {}}, "n-shot": {}, "model_name": "gpt2", "lm_eval_version": "0.4.9"}
    (folder / f"results_{DATE}.json").write_text(json.dumps({**about, "date": 1767322800.0, **results}))
    return path


def imported(path: Path) -> Imported:
    return read_import(path).imported


def hands(result: Imported) -> str:
    return "\n".join(map(str, result.notes.problems()))


def test_samples_are_cases_with_what_the_model_said_and_their_metrics(tmp_path: Path) -> None:
    path = written(tmp_path, row(0, {"acc": 1.0, "f1": 0.5}), row(1, {"acc": 0.0, "f1": 1.0}))
    result = imported(path)
    assert result.cases[0] == {
        "id": "0",
        "input": "Q: q0\nA:",
        "expected": "Paris",
        "metadata": {"doc": {"question": "q0"}},
    }
    assert [output.value for output in result.runs[0].outputs] == ["It is Paris."] * 2
    assert [output.scores for output in result.runs[0].outputs] == [
        {"acc": Score(True, 1.0), "f1": Score(None, 0.5)},
        {"acc": Score(False, 0.0), "f1": Score(None, 1.0)},
    ]
    assert (result.version, result.name, result.runs[0].outputs[0].metadata["model"]) == ("0.4.9", "capitals", "gpt2")
    assert result.notes.is_complete


def test_each_filter_has_checks_of_its_own(tmp_path: Path) -> None:
    rows = [row(0, {"exact_match": score}, filtered) for filtered, score in (("strict", 0.0), ("flexible", 1.0))]
    result = imported(written(tmp_path, *rows))
    (output,) = result.runs[0].outputs
    assert {name: score.passed for name, score in output.scores.items()} == {
        "exact_match,strict": False,
        "exact_match,flexible": True,
    }
    assert output.metadata["filtered"] == {"strict": ["Paris"], "flexible": ["Paris"]}


def test_nan_is_no_score_and_a_list_needs_a_hand(tmp_path: Path) -> None:
    result = imported(written(tmp_path, row(0, {"acc": float("nan"), "word_perplexity": [-1.5, 3]})))
    assert result.runs[0].outputs[0].scores == {"acc": Score(error="the scorer gave no score")}
    assert "the scores of 'word_perplexity' are left out: they are lists" in hands(result)


def test_choices_come_with_their_likelihoods(tmp_path: Path) -> None:
    choices = {f"gen_args_{n}": {"arg_0": "Q", "arg_1": f" {n}"} for n in range(2)}
    responses = [[["-0.5", "True"]], [["-1.5", "False"]]]
    result = imported(written(tmp_path, row(0, {"acc": 1.0}, arguments=choices, resps=responses)))
    assert result.runs[0].outputs[0].value == [
        {"choice": " 0", "loglikelihood": "-0.5", "greedy": "True"},
        {"choice": " 1", "loglikelihood": "-1.5", "greedy": "False"},
    ]


def test_lower_is_better_is_no_pass_and_is_told(tmp_path: Path) -> None:
    result = imported(written(tmp_path, row(0, {"acc": 1.0}), higher_is_better={"capitals": {"acc": False}}))
    assert result.runs[0].outputs[0].scores["acc"] == Score(None, 1.0)
    assert "of 'acc' lower values are better" in hands(result)


def test_samples_that_are_not_in_the_file_are_missing(tmp_path: Path) -> None:
    counts = {"capitals": {"original": 9, "effective": 3}}
    result = imported(written(tmp_path, row(0, {"acc": 1.0}), **{"n-samples": counts}))
    assert (len(result.cases), len(result.runs[0].outputs)) == (3, 1)
    assert "the file has 1 of 3 samples: the others are missing in the run" in hands(result)


def test_a_value_of_the_task_that_its_cases_do_not_give_is_told(tmp_path: Path) -> None:
    result = imported(written(tmp_path, row(0, {"acc": 1.0}), results={"capitals": {"acc,none": 0.25}}))
    assert "the value of 'acc' is 0.25 in the file, but 1 by its cases" in hands(result)


def test_without_results_beside_them_samples_come_over_with_a_note(tmp_path: Path) -> None:
    path = written(tmp_path, row(0, {"acc": 1.0}))
    (tmp_path / f"results_{DATE}.json").unlink()
    result = imported(path)
    assert result.name == "capitals"
    assert "results_….json is missing" in hands(result)


def test_results_of_whole_tasks_are_refused_with_advice(tmp_path: Path) -> None:
    written(tmp_path, row(0, {"acc": 1.0}))
    with pytest.raises(InputError, match="holds results of whole tasks, but no cases"):
        imported(tmp_path / f"results_{DATE}.json")
