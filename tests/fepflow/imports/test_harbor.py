"""Jobs of Harbor and trajectories: an exception is an error, and a trial without a result is missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fepflow.errors import InputError
from fepflow.imports.imported import Imported, Score
from fepflow.services.imports import read_import
from tests.fepflow.conftest import Cli

TRAJECTORY = {
    "schema_version": "ATIF-v1.6",
    "session_id": "s",
    "agent": {"name": "terminus", "model_name": "gpt"},
    "steps": [
        {"step_id": 1, "source": "user", "message": "list the files"},
        {"step_id": 2, "source": "agent", "message": "done", "metrics": {"prompt_tokens": 3, "completion_tokens": 4}},
    ],
}
TIMEOUT = {"exception_type": "AgentTimeoutError", "exception_message": "too long", "exception_traceback": "..."}


def trial(task: str, number: int, reward: Any, **fields: Any) -> dict[str, Any]:
    rewards = None if reward is None else {"rewards": reward if isinstance(reward, dict) else {"reward": reward}}
    return {
        "task_name": task,
        "trial_name": f"{task}__{number}",
        "task_checksum": "c",
        "verifier_result": rewards,
        "agent_info": {"name": "terminus", "version": "1", "model_info": {"name": "gpt"}},
        "exception_info": None,
        "agent_result": {"n_input_tokens": 10, "n_output_tokens": 5, "cost_usd": 0.1},
        **fields,
    }


def job(tmp_path: Path, *trials: dict[str, Any], expected: int | None = None) -> Path:
    folder = tmp_path / "job"
    for each in trials:
        (folder / each["trial_name"]).mkdir(parents=True)
        (folder / each["trial_name"] / "result.json").write_text(json.dumps(each))
    if expected is not None:
        (folder / "result.json").write_text(json.dumps({"id": "x", "n_total_trials": expected, "stats": {}}))
    return folder


def imported(path: Path) -> Imported:
    return read_import(path).imported


def hands(result: Imported) -> str:
    return "\n".join(map(str, result.notes.problems()))


def test_trials_are_outputs_of_their_tasks_with_trajectory_and_reward(tmp_path: Path) -> None:
    folder = job(tmp_path, trial("t1", 1, 1.0), trial("t1", 2, 0.0), trial("t2", 1, 0), trial("t2", 2, 1), expected=4)
    (folder / "t1__1" / "agent").mkdir()
    (folder / "t1__1" / "agent" / "trajectory.json").write_text(json.dumps(TRAJECTORY))
    result = imported(folder)
    assert [case["id"] for case in result.cases] == ["t1", "t2"]
    assert result.cases[0]["input"] == "list the files"
    outputs = result.runs[0].outputs
    assert [output.scores["reward"].passed for output in outputs] == [True, False, False, True]
    assert (outputs[0].value, outputs[0].metadata["trace"]["tokens"], outputs[0].metadata["tokens"]) == ("done", 7, 15)
    assert result.runs[0].repeats == 2
    assert result.notes.is_complete


def test_an_exception_is_an_error_whatever_the_reward(tmp_path: Path) -> None:
    step = {"step_name": "one", "exception_info": {**TIMEOUT, "exception_type": "NonZeroAgentExitCodeError"}}
    trials = [trial("t1", 1, 1.0, exception_info=TIMEOUT), trial("t2", 1, 1, step_results=[step]), trial("t3", 1, None)]
    result = imported(job(tmp_path, *trials))
    assert [output.error for output in result.runs[0].outputs] == [
        "AgentTimeoutError: too long",
        "NonZeroAgentExitCodeError: too long",
        "the trial ended without a reward",
    ]
    assert "a trial that ended in an exception has a reward" in hands(result)


def test_several_rewards_or_parts_of_one_are_scores_and_no_passes(tmp_path: Path) -> None:
    several = imported(job(tmp_path / "a", trial("t1", 1, {"tests": 1, "style": 0})))
    assert several.runs[0].outputs[0].scores == {"tests": Score(None, 1.0), "style": Score(None, 0.0)}
    partly = imported(job(tmp_path / "b", trial("t1", 1, 0.5), trial("t2", 1, 1.0)))
    assert [output.scores["reward"].passed for output in partly.runs[0].outputs] == [None, None]


def test_trials_without_a_result_keep_the_run_from_passing(tmp_path: Path, cli: Cli) -> None:
    result = cli("import", job(tmp_path, trial("t1", 1, 1.0), expected=3))
    assert "1 of the job's 3 trials have a result: the others are missing" in result.stderr
    assert "INCONCLUSIVE" in result.stdout


def test_another_version_of_the_result_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a result of Harbor in version 2; 1 can be read"):
        imported(job(tmp_path, trial("t1", 1, 1.0, schema_version=2)))


def test_models_are_runs_of_their_own(tmp_path: Path) -> None:
    other = {"agent_info": {"name": "terminus", "model_info": {"name": "claude"}}}
    result = imported(job(tmp_path, trial("t1", 1, 1.0), trial("t1", 2, 1.0, **other)))
    assert [run.variant for run in result.runs] == [
        {"agent": "terminus", "model": "gpt"},
        {"agent": "terminus", "model": "claude"},
    ]


def test_trajectories_are_outputs_that_nothing_has_judged(tmp_path: Path, cli: Cli) -> None:
    path = tmp_path / "trajectories.jsonl"
    path.write_text(f"{json.dumps(TRAJECTORY)}\n")
    result = imported(path)
    assert (result.format, result.cases) == ("atif", [{"id": "s", "input": "list the files"}])
    assert (result.runs[0].outputs[0].value, result.runs[0].outputs[0].metadata["tokens"]) == ("done", 7)
    assert "INCONCLUSIVE  Nothing was judged" in cli("import", path).stdout
