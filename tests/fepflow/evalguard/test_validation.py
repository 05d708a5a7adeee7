"""Every fault of a catalogue is found, with its place, the rule and what to do; also in EvalGuard's own files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from fepflow.errors import InputError, Problem
from fepflow.evalguard.validation import CatalogueValidation, validate_catalogue

TASK = "id: qa\nname: QA\nmetrics: [acc]\ncategory: question_answering\n"
METRIC = "id: acc\nname: Accuracy\ndirection: higher_is_better\n"
THRESHOLDS = "task: qa\nthresholds:\n  acc:\n    - {impact: severe, max: 0.5}\n    - {impact: low, min: 0.5}\n"

Texts = dict[str, str]
SOUND: Texts = {"tasks/qa.yaml": TASK, "metrics/acc.yaml": METRIC, "thresholds/qa.yaml": THRESHOLDS}


def put(folder: Path, texts: Texts) -> Path:
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


FAULTS = YAML(typ="safe").load((Path(__file__).parent / "faults.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("fault", FAULTS, ids=[fault["name"] for fault in FAULTS])
def test_a_fault_in_a_sound_catalogue_is_found(tmp_path: Path, fault: dict[str, Any]) -> None:
    put(tmp_path, {**SOUND, **fault["files"]})
    (problem,) = [each for each in validate_catalogue([tmp_path]).problems if each.severity == fault["severity"]]
    at = ":".join(str(part) for part in (problem.file, problem.line, problem.column) if part is not None)
    assert at == f"{tmp_path}/{fault['at']}"
    assert problem.message.startswith(fault["says"])
    assert (problem.path, problem.rule) == (fault.get("path"), fault["rule"])
    assert "advice" not in fault or problem.advice == fault["advice"]
    assert str(problem).endswith(f"[EvalGuard {fault['rule']}]")


def test_a_sound_catalogue_has_no_problem(tmp_path: Path) -> None:
    found = validate_catalogue([put(tmp_path, SOUND)])
    assert (found.files, found.problems, found.ignored) == (3, [], [])


def test_all_problems_of_all_files_come_at_once_by_file_and_line(tmp_path: Path) -> None:
    put(tmp_path, {
        "tasks/b.yaml": "name: 1\nmetrics: [none, 2]\ncategory: x\n",
        "metrics/acc.yaml": "id: acc\n",
        "thresholds/qa.yaml": "task: qa\nthresholds:\n  acc: [{impact: low}]\n  f1: [{impact: low, min: 1}]\n",
    })  # fmt: skip
    found = [(Path(each.file or "").name, each.line, each.path, each.severity) for each in problems_of(tmp_path)]
    assert found == [
        ("acc.yaml", 1, "name", "error"),
        ("acc.yaml", 1, "direction", "error"),
        ("b.yaml", 1, "id", "error"),
        ("b.yaml", 1, "name", "error"),
        ("b.yaml", 2, "metrics[0]", "error"),
        ("b.yaml", 2, "metrics[1]", "error"),
        ("b.yaml", 3, "category", "warning"),
        ("qa.yaml", 1, "task", "error"),
        ("qa.yaml", 3, "thresholds.acc[0]", "error"),
        ("qa.yaml", 4, "thresholds.f1", "error"),
        ("qa.yaml", 4, "thresholds.f1", "warning"),
    ]


def problems_of(*paths: Path, is_lenient: bool = False) -> list[Problem]:
    return validate_catalogue(paths, is_lenient=is_lenient).problems


class TestLenient:
    def test_unknown_fields_are_warnings_and_all_else_is_still_looked_at(self, tmp_path: Path) -> None:
        put(
            tmp_path,
            {**SOUND, "thresholds/qa.yaml": "task: qa\nowner: me\nthresholds:\n  acc: [{impact: low, min: 1, x: 1}]\n"},
        )
        found = [(each.path, each.severity, each.rule) for each in problems_of(tmp_path, is_lenient=True)]
        assert found == [
            ("owner", "warning", "5.1.1"),
            ("thresholds.acc", "warning", "4.3.3"),
            ("thresholds.acc[0].x", "warning", "5.1.1"),
        ]

    def test_what_is_wrong_otherwise_stays_an_error(self, tmp_path: Path) -> None:
        put(tmp_path, {**SOUND, "tasks/b.yaml": "id: b\nnote: x\nmetrics: [acc]\n"})
        found = [(each.path, each.severity) for each in problems_of(tmp_path, is_lenient=True)]
        assert found == [("name", "error"), ("note", "warning")]


class TestWhatIsRead:
    def test_a_file_of_a_catalogue_is_held_against_the_rest_of_it(self, tmp_path: Path) -> None:
        put(tmp_path, {**SOUND, "thresholds/z.yaml": THRESHOLDS.replace("acc", "ac"), "metrics/bad.yaml": "id: [\n"})
        found = validate_catalogue([tmp_path / "thresholds" / "z.yaml"])
        assert found.files == 1
        assert [(each.rule, each.severity) for each in found.problems] == [
            ("5.1.5", "error"), ("5.1.4", "error"), ("4.1.2", "warning"),
        ]  # fmt: skip

    def test_without_any_definitions_one_warning_says_that_references_are_not_checked(self, tmp_path: Path) -> None:
        put(
            tmp_path, {"a.yaml": THRESHOLDS, "b.yaml": THRESHOLDS.replace("qa", "b"), "c.yaml": TASK.replace("qa", "c")}
        )
        (problem,) = problems_of(tmp_path / "a.yaml")
        assert problem.message == "no tasks and no metrics are defined here, so references are not checked"
        assert problem.severity == "warning"

    def test_a_folder_of_one_kind_and_files_by_their_content(self, tmp_path: Path) -> None:
        put(tmp_path, {"t.yaml": TASK, "m.yml": METRIC, "th.yaml": THRESHOLDS, "notes.yaml": "a: 1\n", ".x.yaml": "["})
        found = validate_catalogue([tmp_path])
        assert (found.files, found.problems) == (3, [])
        assert [path.name for path in found.ignored] == ["notes.yaml"]

    def test_documents_of_newer_kinds_and_results_of_other_tools_are_passed_over(self, tmp_path: Path) -> None:
        lm_eval = '{"results": {"qa": {"acc,none": 1}}, "configs": {}}'
        put(tmp_path, {**SOUND, "guardrails/g.yaml": "id: g\n", "models/org/m.yaml": "id: m\n", "r.json": lm_eval})
        found = validate_catalogue([tmp_path])
        assert (found.files, found.problems, len(found.ignored)) == (3, [], 3)
        (problem,) = problems_of(tmp_path / "r.json")
        assert (problem.message, problem.advice) == (
            "is not a task, metric, threshold, policy or report, but results of lm-evaluation-harness",
            "fepflow evalguard import reads it",
        )
        assert "is not a task, metric" in problems_of(put(tmp_path, {"x.yaml": "a: 1\n"}) / "x.yaml")[0].message

    def test_what_is_named_twice_is_read_once(self, tmp_path: Path) -> None:
        put(tmp_path, SOUND)
        assert validate_catalogue([tmp_path, tmp_path / "tasks", tmp_path / "tasks" / "qa.yaml"]).files == 3

    def test_links_out_of_the_folder_are_not_followed(self, tmp_path: Path) -> None:
        put(
            tmp_path,
            {f"config/{name}": text for name, text in SOUND.items()} | {"secret/tasks/x.yaml": "password: 1\n"},
        )
        config = tmp_path / "config"
        (config / "tasks" / "x.yaml").symlink_to(tmp_path / "secret" / "tasks" / "x.yaml")
        (config / "more").symlink_to(tmp_path / "secret")
        (config / "tasks" / "y.yaml").symlink_to("qa.yaml")
        (config / "tasks" / "z.yaml").symlink_to("z.yaml")
        found = [
            (Path(each.file or "").name, each.rule, each.message.partition(":")[0]) for each in problems_of(config)
        ]
        assert found == [
            ("more", "9.1", "is a symbolic link that leads out of the folder"),
            ("x.yaml", "9.1", "is a symbolic link that leads out of the folder"),
            ("z.yaml", "9.1", "is a symbolic link that leads nowhere"),
        ]

    def test_a_pipe_in_a_folder_is_a_problem_and_not_waited_for(self, tmp_path: Path) -> None:
        put(tmp_path, SOUND)
        os.mkfifo(tmp_path / "tasks" / "pipe.yaml")
        (problem,) = problems_of(tmp_path)
        assert problem.message == "cannot be read: it is a pipe, not a regular file"

    @pytest.mark.parametrize("name", ["nowhere.yaml", "empty", "tasks/pipe.yaml"])
    def test_what_cannot_be_read_is_refused(self, tmp_path: Path, name: str) -> None:
        (tmp_path / "empty").mkdir()
        (tmp_path / "tasks").mkdir()
        os.mkfifo(tmp_path / "tasks" / "pipe.yaml")
        with pytest.raises(InputError) as caught:
            validate_catalogue([tmp_path / name])
        assert caught.value.problems[0].file == str(tmp_path / name)


POLICY = """\
id: default
name: Default
description: For all contexts.
thresholds:
  qa:
    acc: [{impact: severe, max: 0.5}, {impact: low, min: 0.5}]
"""
NEWER: Texts = {
    "tasks/qa.yaml": TASK.replace("metrics: [acc]\n", ""),
    "tasks/qb.yaml": "id: qb\nname: QB\n",
    "metrics/acc.yaml": METRIC,
    "policies/default.yaml": POLICY,
}


class TestNewerLayout:
    def test_tasks_without_metrics_have_those_of_the_policies_and_one_warning_says_so(self, tmp_path: Path) -> None:
        put(tmp_path, NEWER)
        for paths in ([tmp_path], [tmp_path / "tasks", tmp_path / "metrics"], sorted((tmp_path / "tasks").iterdir())):
            (problem,) = problems_of(*paths)
            assert (problem.severity, problem.rule) == ("warning", "5.2")
            assert problem.message.startswith("this task and 1 more list no metrics")

    def test_without_policies_the_list_is_required(self, tmp_path: Path) -> None:
        put(tmp_path, {**NEWER, "tasks/qb.yaml": TASK.replace("qa", "qb")})
        (tmp_path / "policies" / "default.yaml").unlink()
        (tmp_path / "policies").rmdir()
        assert [(each.path, each.message) for each in problems_of(tmp_path)] == [("metrics", "is missing")]

    def test_a_metric_of_a_policy_that_is_not_defined_is_an_error_of_the_policy(self, tmp_path: Path) -> None:
        put(tmp_path, {**NEWER, "policies/default.yaml": POLICY.replace("acc:", "f1:")})
        (problem,) = validate_catalogue([tmp_path]).errors
        assert (Path(problem.file or "").name, problem.path) == ("default.yaml", "thresholds.qa.f1")

    def test_a_policy_that_cannot_be_read_is_its_own_error_only(self, tmp_path: Path) -> None:
        put(tmp_path, {**NEWER, "policies/default.yaml": "id: [", "policies/list.yaml": "thresholds: [a]\n"})
        assert {Path(each.file or "").name for each in validate_catalogue([tmp_path]).errors} == {
            "default.yaml",
            "list.yaml",
        }


class TestReportsFolder:
    def test_a_document_with_metadata_only_is_a_report(self, tmp_path: Path) -> None:
        bare = "metadata: {run: 5}\n"
        put(tmp_path, {**SOUND, "reports/a.yaml": bare, "reports/org/model/b.yaml": f"id: b\n{bare}", "c.yaml": bare})
        found = validate_catalogue([tmp_path])
        assert (found.files, found.problems) == (5, [])
        assert [path.name for path in found.ignored] == ["c.yaml"]

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("metadata: 5\n", "metadata: must be a mapping"),
            ("metadata: {}\nowner: me\n", "owner: owner is not known here"),
            ("id: 5\n", "id: must be a text"),
            ("[]\n", "must be a mapping"),
            ("metrics: [acc]\nid: x\nname: x\n", "metrics: metrics is not known here"),
        ],
    )
    def test_it_is_validated_as_one(self, tmp_path: Path, text: str, says: str) -> None:
        put(tmp_path, {"reports/a.yaml": text})
        assert any(says in str(problem) for problem in validate_catalogue([tmp_path]).errors)

    def test_results_of_lm_eval_are_still_passed_over(self, tmp_path: Path) -> None:
        lm_eval = '{"results": {"qa": {"acc,none": 1}}, "configs": {}}'
        put(tmp_path, {**SOUND, "reports/a.json": lm_eval, "reports/b.json": lm_eval.replace("1}", "NaN}")})
        found = validate_catalogue([tmp_path])
        assert ([path.name for path in found.ignored], found.problems) == (["a.json", "b.json"], [])
        (problem,) = problems_of(tmp_path / "reports" / "b.json")
        assert problem.advice == "fepflow evalguard import reads it"


def test_a_message_shows_no_value(tmp_path: Path) -> None:
    secret = "context: {execution: {model_args_dict: {api_key: 12345, device: 67890}}}\n"
    long = {"reports/b.yaml": f"id: {[1] * 90}\n", "tasks/t.yaml": f"id: '{'a ' * 900}'\n"}
    put(tmp_path, {"reports/a.yaml": secret, **long})
    told = [str(problem) for problem in validate_catalogue([tmp_path]).errors]
    assert any("device: must be a text" in line for line in told)
    assert not any("12345" in line or "67890" in line for line in told)
    assert all(len(line) < 400 for line in told)


def test_evalguards_own_catalogue_is_valid_with_the_warning_that_is_due() -> None:
    folder = os.environ.get("FEPFLOW_TEST_DATA")
    if not folder:
        pytest.skip("FEPFLOW_TEST_DATA names no folder with EvalGuard's files")
    found: CatalogueValidation = validate_catalogue([Path(folder) / "evalguard" / "config"])
    assert (found.files, found.errors, found.ignored) == (65, [], [])
    assert [(Path(each.file or "").name, each.line, each.message) for each in found.warnings] == [
        ("truthfulqa_mc1.yaml", 22, "the task truthfulqa_mc1 does not list the metric acc_norm")
    ]
