"""Reports of EvalGuard and of lm-evaluation-harness, also odd ones: what is taken, and what is said of the rest."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from fepflow.errors import InputError
from fepflow.evalguard.models import Report
from fepflow.evalguard.report_reader import ReadReport, read_report

HARNESS: dict[str, Any] = {
    "results": {
        "gsm8k": {
            "alias": "gsm8k",
            "exact_match,strict-match": 0.5,
            "exact_match_stderr,strict-match": 0.02,
            "exact_match,flexible-extract": 0.625,
            "exact_match_stderr,flexible-extract": "N/A",
        },
        "truthful": {"alias": " - truthful", "acc,none": 1, "acc_stderr,none": 0.0},
    },
    "configs": {
        "gsm8k": {
            "dataset_path": "gsm8k", "dataset_name": None, "output_type": "generate_until", "repeats": 1,
            "should_decontaminate": False, "unsafe_code": True, "num_fewshot": 8,
        },
    },
    "versions": {"gsm8k": 3.0, "truthful": "Yaml"},
    "n-shot": {"truthful": 0},
    "n-samples": {"gsm8k": {"original": 1319, "effective": 20}},
    "config": {
        "model": "hf", "model_args": "pretrained=a/b,token=hf_abcdef,tokenizer=a/c,add_bos_token=True", "limit": 20.0,
        "model_sha": "ef382358",
    },
    "git_hash": None, "date": 1746085828.6, "model_name": "a/b", "model_source": "hf", "lm_eval_version": "0.4.8",
    "transformers_version": "4.51.3",
}  # fmt: skip


def put(folder: Path, document: Any, name: str = "results.json") -> Path:
    path = folder / name
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def as_harness(report: Report) -> dict[str, dict[str, Any]]:
    """The results of a report by the harness's keys: every value, and every standard error that there is."""
    found: dict[str, dict[str, Any]] = {}
    for task, results in report.pairs():
        metadata = task.metadata or {}
        entry = found.setdefault(task.task_ref or "", {})
        for metric, result in results.items():
            name = metadata.get(f"name.{metric}", metric)
            entry[f"{name},{metadata['filter']}"] = result.value
            if result.stderr is not None:
                entry[f"{name}_stderr,{metadata['filter']}"] = result.stderr
    return found


def of_harness(results: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {
        task: {key: value for key, value in metrics.items() if "," in key and value != "N/A"}
        for task, metrics in results.items()
    }


ODD: dict[str, tuple[Any, str]] = {
    "NaN": (float("nan"), "nan is not a finite number"),
    "infinity": (float("-inf"), "-inf is not a finite number"),
    "a text": ("0.5", "'0.5' is not a finite number"),
    "N/A": ("N/A", "'N/A' is not a finite number"),
    "null": (None, "there is none"),
    "true": (True, "True is not a finite number"),
    "a list": ([0.5], "[0.5] is not a finite number"),
    "huge": (10**400, f"1{'0' * 39}… (401 characters) is not a finite number"),
}

REPORT: dict[str, Any] = {
    "context": {"model_name": "m"},
    "tasks": [{"task_ref": "qa"}, {"task_ref": "qb", "metadata": {"x": "y"}}],
    "results": [{"acc": {"value": 0.5, "stderr": 0.1}}, {"f1": {"value": 2}}],
}

REFUSED: dict[str, tuple[str, str, str]] = {
    "not there": ("nowhere.json", "", "there is no such file"),
    "bad JSON": ("r.json", "{", "is not valid JSON"),
    "a key twice": ("r.json", '{"results": [], "results": []}', "the key 'results' appears twice"),
    "bad YAML": ("r.yaml", "results: [", "is not valid YAML"),
    "NaN in YAML": ("r.yaml", "results: [{acc: {value: .nan}}]\ntasks: [{}]\n", "nan is not a JSON value"),
    "deep": ("r.json", '{"results": ' + "[" * 200 + "]" * 200 + "}", "is nested deeper than"),
    "no mapping": ("r.json", "[]", "is not a report, neither of EvalGuard nor of lm-evaluation-harness"),
    "something else": ("r.json", '{"a": 1}', "is not a report, neither of EvalGuard nor of lm-evaluation-harness"),
    "an unknown field": ("r.json", '{"results": [], "contxt": {}}', "contxt: contxt is not known here"),
    "a context that is none": ("r.json", '{"context": 1}', "context: must be a mapping"),
    "results that are none": ("r.json", '{"results": 1}', "results: must be a list"),
    "a result that is none": ("r.json", '{"results": [{"acc": 1}]}', "results[0].acc: must be a mapping"),
    "a task that is none": ("r.json", '{"tasks": [1, {"task_ref": [2]}], "results": {"qa": {"acc": {"value": 1}}}}',
                            "tasks[1].task_ref: must be a text"),
    "of which task": (
        "r.json",
        '{"results": [{"acc": {"value": 1}}]}',
        "it is unclear to which of 0 tasks the 1 results belong",
    ),
    "a metric with a blank": ("r.json", '{"tasks": [{}], "results": [{"a b": {"value": 1}}]}', "may hold letters"),
}  # fmt: skip


class TestHarness:
    @pytest.fixture
    def read(self, tmp_path: Path) -> ReadReport:
        return read_report(put(tmp_path, HARNESS))

    def test_every_metric_filter_and_standard_error_is_there(self, read: ReadReport) -> None:
        assert as_harness(read.report) == of_harness(HARNESS["results"])
        assert read.warnings == []

    def test_a_task_has_an_entry_for_each_of_its_filters(self, read: ReadReport) -> None:
        tasks = [(task.task_ref, task.metadata) for task in read.report.tasks or ()]
        assert tasks == [
            ("gsm8k", {"filter": "strict-match"}),
            ("gsm8k", {"filter": "flexible-extract"}),
            ("truthful", {"filter": "none", "version": "Yaml"}),
        ]

    def test_what_is_known_of_a_task(self, read: ReadReport) -> None:
        tasks = read.report.tasks or []
        assert tasks[0].model_dump(exclude_none=True) == {
            "task_ref": "gsm8k", "dataset_path": "gsm8k", "output_type": "generate_until", "repeats": 1, "n_shot": 8,
            "should_decontaminate": False, "unsafe_code": True, "n_samples": {"original": 1319, "effective": 20},
            "version": 3.0, "metadata": {"filter": "strict-match"},
        }  # fmt: skip
        assert tasks[2].n_shot == 0

    def test_the_context_has_the_models_revision_and_no_secret(self, read: ReadReport) -> None:
        assert read.report.context is not None
        assert read.report.context.model_dump(exclude_none=True) == {
            "model_name": "a/b", "model_source": "hf", "git_hash": "ef382358", "date": 1746085828.6,
            "execution": {"model_args_plain": "pretrained=a/b,token=***,tokenizer=a/c,add_bos_token=True"},
            "tools": {"lm_eval": {"version": "0.4.8"}, "transformers": {"version": "4.51.3"}},
        }  # fmt: skip
        assert read.report.metadata == {"evaluator": "lm-evaluation-harness", "limit": "20.0"}

    def test_arguments_by_name_lose_the_password_of_an_address(self, tmp_path: Path) -> None:
        arguments = {"base_url": "https://me:swordfish@api.example.org/v1", "api_key": "k3y-k3y-k3y", "n": 2}
        read = read_report(put(tmp_path, {**HARNESS, "config": {"model_args": arguments}}))
        assert read.report.context is not None
        assert read.report.context.execution is not None
        kept = read.report.context.execution.model_args_dict
        assert kept == {"base_url": "https://***@api.example.org/v1", "api_key": "***", "n": "2"}

    @pytest.mark.parametrize(("value", "says"), ODD.values(), ids=list(ODD))
    def test_a_value_that_is_no_number_is_none_and_said(self, tmp_path: Path, value: Any, says: str) -> None:
        results = {"qa": {"acc,none": value, "acc_stderr,none": 0.1, "f1,none": 0.5}}
        read = read_report(put(tmp_path, {**HARNESS, "results": results}))
        assert read.warnings == [f"qa: acc has no value: {says}"]
        ((task, found),) = read.report.pairs()
        assert list(found) == ["f1"]
        assert task.metadata == {"filter": "none", "no_value.acc": says}

    @pytest.mark.parametrize(("stderr", "says"), [(-0.1, "it is negative"), ("0.1", "'0.1' is not a finite number"),
                                                  (float("nan"), "nan is not a finite number")])  # fmt: skip
    def test_a_standard_error_that_is_none_is_not_used_and_said(self, tmp_path: Path, stderr: Any, says: str) -> None:
        results = {"qa": {"acc,none": 0.5, "acc_stderr,none": stderr}}
        read = read_report(put(tmp_path, {**HARNESS, "results": results}))
        assert read.warnings == [f"qa: the standard error of acc is not used: {says}"]
        ((_, found),) = read.report.pairs()
        assert (found["acc"].value, found["acc"].stderr) == (0.5, None)

    def test_names_that_are_no_identifiers_are_changed_kept_and_said(self, tmp_path: Path) -> None:
        results = {"code": {"pass@1,create": 0.5, "pass_1,create": 0.25, "pass@1_stderr,create": 0.1, ",create": 1}}
        read = read_report(put(tmp_path, {**HARNESS, "results": results}))
        assert as_harness(read.report) == results
        assert read.warnings == [
            "code: pass@1 is not an identifier, and is called pass_1_2",
            "code:  is not an identifier, and is called _",
        ]

    def test_a_task_without_metrics_is_said(self, tmp_path: Path) -> None:
        read = read_report(put(tmp_path, {**HARNESS, "results": {"qa": {"alias": "qa"}, "qb": None}}))
        assert read.warnings == ["qa: there is no metric in its results", "qb: there is no metric in its results"]
        assert [results for _, results in read.report.pairs()] == [{}, {}]

    def test_a_metric_may_end_in_stderr(self, tmp_path: Path) -> None:
        read = read_report(put(tmp_path, {**HARNESS, "results": {"qa": {"own_stderr,none": 0.5}}}))
        assert as_harness(read.report) == {"qa": {"own_stderr,none": 0.5}}

    @pytest.mark.parametrize("part", ["configs", "versions", "n-shot", "n-samples", "config", "date", "model_name"])
    @pytest.mark.parametrize("value", [None, 1, "x", [], {"gsm8k": "x"}, {"gsm8k": {"repeats": "x", "original": "x"}}])
    def test_whatever_else_stands_in_it_is_no_matter(self, tmp_path: Path, part: str, value: Any) -> None:
        read = read_report(put(tmp_path, {**HARNESS, part: value}))
        assert as_harness(read.report) == of_harness(HARNESS["results"])


class TestEvalGuard:
    @pytest.mark.parametrize("name", ["r.json", "r.yaml", "r.yml"])
    def test_a_report_is_read_as_it_is(self, tmp_path: Path, name: str) -> None:
        read = read_report(put(tmp_path, REPORT, name))
        assert read.report.model_dump(mode="json", exclude_none=True) == REPORT
        assert (read.warnings, len(read.content_hash)) == ([], 64)

    def test_tasks_and_results_by_name_are_taken(self, tmp_path: Path) -> None:
        by_name = {"tasks": {"qa": {}}, "results": {"qa": {"acc": {"value": 0.5}}}}
        ((task, results),) = read_report(put(tmp_path, by_name)).report.pairs()
        assert (task.task_ref, results["acc"].value) == ("qa", 0.5)

    def test_a_single_task_owns_all_results(self, tmp_path: Path) -> None:
        report = {"tasks": [{"task_ref": "qa"}], "results": [{"a": {"value": 1}}, {"b": {"value": None}}]}
        read = read_report(put(tmp_path, report))
        assert [(task.task_ref, list(results)) for task, results in read.report.pairs()] == [("qa", ["a"]), ("qa", [])]
        assert (read.report.tasks or [])[0].metadata == {"no_value.b": "there is none"}

    def test_values_and_errors_that_are_no_numbers_are_none_and_said(self, tmp_path: Path) -> None:
        results = [
            {"acc": {"value": "0.5"}, "f1": {"value": 1, "stderr": "N/A"}},
            {"f1": {"stderr": 1}, "x": {"value": 1, "stderr": -1}},
        ]
        read = read_report(put(tmp_path, {**REPORT, "results": results}))
        assert read.warnings == [
            "results[0]: acc has no value: '0.5' is not a finite number",
            "results[1]: f1 has no value: there is none",
            "results[1]: the standard error of x is not used: it is negative",
        ]
        assert [task.metadata for task in read.report.tasks or ()] == [
            {"no_value.acc": "'0.5' is not a finite number"},
            {"x": "y", "no_value.f1": "there is none"},
        ]

    @pytest.mark.parametrize(("name", "text", "says"), REFUSED.values(), ids=list(REFUSED))
    def test_what_is_no_report_is_refused_with_the_reason(
        self, tmp_path: Path, name: str, text: str, says: str
    ) -> None:
        path = tmp_path / name
        if text:
            path.write_text(text)
        with pytest.raises(InputError) as caught:
            read_report(path)
        assert says in str(caught.value)
        assert str(path) in str(caught.value)


def test_the_reports_of_evalguards_repository_come_through_without_loss(tmp_path: Path) -> None:
    folder = os.environ.get("FEPFLOW_TEST_DATA")
    if not folder:
        pytest.skip("FEPFLOW_TEST_DATA names no folder with EvalGuard's files")
    paths = sorted((Path(folder) / "evalguard" / "reports").rglob("*.json"))
    assert len(paths) == 4
    for path in paths:
        source = json.loads(path.read_text())
        read = read_report(path)
        assert read.warnings == []
        # written as EvalGuard's, and read again
        written = put(tmp_path, read.report.model_dump(mode="json", exclude_none=True), "written.json")
        again = read_report(written)
        assert (again.report, again.warnings) == (read.report, [])
        assert as_harness(again.report) == of_harness(source["results"])
        context = again.report.context
        assert context is not None
        assert (context.model_name, context.model_source, context.date) == (
            source["model_name"], source["model_source"], source["date"],
        )  # fmt: skip
        assert context.git_hash == source["config"].get("model_sha")
        for task in again.report.tasks or ():
            assert task.n_samples == source["n-samples"][task.task_ref]
            assert (task.n_shot, task.version) == (source["n-shot"][task.task_ref], source["versions"][task.task_ref])
