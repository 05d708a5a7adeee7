"""`fepflow evalguard`: schemas, validation, verdicts, migration."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fepflow.cli.evalguard import IMPACTS
from fepflow.evalguard.documents import SCHEMAS, schema_text
from fepflow.suite.models import IMPACTS as SUITES_IMPACTS
from tests.fepflow.conftest import Cli, FillRun

LABELLED = "task: qa\nthresholds:\n  acc:\n    - {label: Fine, min: 0.5}\n"


class TestSchema:
    def test_each_is_printed_as_it_is_shipped(self, cli: Cli) -> None:
        for name in SCHEMAS:
            assert cli("evalguard", "schema", name).output == schema_text(name)

    def test_without_a_name_they_are_listed_with_their_files(self, cli: Cli) -> None:
        lines = [line.split() for line in cli("evalguard", "schema").output.splitlines()]
        assert [name for name, _ in lines] == list(SCHEMAS)
        assert all(Path(path).is_file() for _, path in lines)

    def test_another_name_is_a_mistake_of_usage(self, cli: Cli) -> None:
        done = cli("evalguard", "schema", "thresholds")
        assert done.exit_code == 2
        assert "there is no schema thresholds (did you mean threshold?)" in done.output


class TestMigrate:
    def test_it_prints_and_writes_only_when_asked(self, cli: Cli, home: Path) -> None:
        path = home / "qa.yaml"
        path.write_text(LABELLED)
        done = cli("evalguard", "migrate", path, "--impact", "Fine=low")
        assert done.exit_code == 0
        assert (
            done.stdout
            == f"# {path}\n{LABELLED.replace('label: Fine', 'impact: low').replace('0.5', '0.5, interpretation: Fine')}"
        )
        assert path.read_text() == LABELLED
        assert cli("evalguard", "migrate", path, "--impact=Fine=low", "--write").stdout == f"{path}: written\n"
        assert "impact: low" in path.read_text()
        again = cli("evalguard", "migrate", path)
        assert (again.stdout, again.stderr) == ("", "0 to migrate, 1 already v1.\n")

    def test_files_set_aside_are_named(self, cli: Cli, home: Path) -> None:
        policy = home / "policies" / "p.yaml"
        policy.parent.mkdir()
        policy.write_text("id: p\nname: p\nthresholds: {qa: {acc: [{impact: low, min: 0.5}]}}\n")
        done = cli("evalguard", "migrate", home / "policies", "--write")
        assert done.stdout == f"{home / 'thresholds' / 'qa.yaml'}: written\n{policy}: set aside as p.yaml.bak\n"

    def test_a_label_without_an_impact_ends_with_2(self, cli: Cli, home: Path) -> None:
        (home / "qa.yaml").write_text(LABELLED)
        done = cli("evalguard", "migrate", "qa.yaml")
        assert done.exit_code == 2
        assert "qa.yaml:4: thresholds.acc[0].label: the label Fine is not an impact" in done.stderr

    def test_an_impact_that_is_none_is_a_mistake_of_usage(self, cli: Cli) -> None:
        for given in ("Fine=good", "Fine"):
            assert cli("evalguard", "migrate", "qa.yaml", "--impact", given).exit_code == 2


class TestValidate:
    def test_problems_go_to_stderr_with_their_places_and_end_with_1(self, cli: Cli, home: Path) -> None:
        put(home)
        (home / "config" / "thresholds" / "qa.yaml").write_text(LABELLED)
        done = cli("evalguard", "validate", "config")
        assert done.exit_code == 1
        assert done.stderr.splitlines() == [
            "error: config/thresholds/qa.yaml:4:7: thresholds.acc[0]: has a label, but no impact: write "
            "impact, one of no_measurable, very_low, low, moderate, high, severe [EvalGuard 5.4]",
            "3 documents: 1 error, 0 warnings.",
        ]

    def test_valid_documents_and_warnings_end_with_0(self, cli: Cli, home: Path) -> None:
        put(home)
        (home / "config" / "notes.yaml").write_text("a: 1")
        done = cli("evalguard", "validate", "config/tasks/qa.yaml", "config")
        assert done.exit_code == 0
        assert done.stdout == "3 documents: 0 errors, 1 warning, 1 file of other kinds ignored.\n"
        assert done.stderr.startswith("warning: config/thresholds/qa.yaml:3:3: thresholds.acc: values below 0.5 are in")

    def test_json_has_all_of_it(self, cli: Cli, home: Path) -> None:
        put(home)
        done = cli("evalguard", "validate", "config", "--json")
        assert done.exit_code == 0
        found = json.loads(done.stdout)
        (problem,) = found.pop("problems")
        assert found == {"valid": True, "documents": 3, "errors": 0, "warnings": 1, "ignored": []}
        assert problem == {
            "severity": "warning", "rule": "4.3.3", "message": "values below 0.5 are in no range",
            "advice": "leave out the lowest min", "file": "config/thresholds/qa.yaml", "line": 3, "column": 3,
            "path": "thresholds.acc",
        }  # fmt: skip

    def test_lenient_makes_unknown_fields_warnings(self, cli: Cli, home: Path) -> None:
        put(home)
        (home / "config" / "tasks" / "qa.yaml").write_text("id: qa\nname: QA\nmetrics: [acc]\nowner: me\n")
        assert cli("evalguard", "validate", "config").exit_code == 1
        done = cli("evalguard", "validate", "config", "--lenient")
        assert done.exit_code == 0
        assert "warning: config/tasks/qa.yaml:4:1: owner: owner is not known here" in done.stderr

    def test_what_cannot_be_read_ends_with_2(self, cli: Cli, home: Path) -> None:
        for arguments in (["nowhere"], ["."], []):
            assert cli("evalguard", "validate", *arguments).exit_code == 2


def put(home: Path) -> None:
    """A catalogue with a gap."""
    texts = {
        "tasks": "id: qa\nname: QA\nmetrics: [acc]\n",
        "metrics": "id: acc\nname: Accuracy\ndirection: higher_is_better\n",
        "thresholds": "task: qa\nthresholds:\n  acc:\n    - {impact: low, min: 0.5}\n",
    }
    for folder, text in texts.items():
        path = home / "config" / folder / "qa.yaml"
        path.parent.mkdir(parents=True)
        path.write_text(text)


class TestVerdict:
    @pytest.fixture
    def report(self, home: Path) -> Callable[..., Path]:
        """Writes results of lm-evaluation-harness and thresholds, of which 0.5 is the bound."""
        put(home)
        ranges = "[{impact: severe, max: 0.5}, {impact: low, min: 0.5}]"
        (home / "config" / "thresholds" / "qa.yaml").write_text(f"task: qa\nthresholds:\n  acc: {ranges}\n")

        def write(value: Any, stderr: Any, task: str = "qa", n: int | None = None) -> Path:
            results = {task: {"acc,none": value, "acc_stderr,none": stderr}}
            document: dict[str, Any] = {"results": results, "config": {}, "model_name": "[bold]m[/]"}
            if n is not None:
                document["n-samples"] = {task: {"original": n, "effective": n}}
            (home / "results.json").write_text(json.dumps(document))
            return home / "results.json"

        return write

    CASES = (
        (0.9, 0.01, 900, 0, "PASS  qa/acc: 0.9 (95 % interval 0.8787 to 0.9179, n = 900) has the impact low"),
        (
            0.9,
            0.01,
            None,
            4,
            "INCONCLUSIVE  qa/acc: 0.9 (",
        ),
        (0.4, 0.01, 2400, 1, "FAIL  qa/acc: 0.4 (95 % interval 0.3806 to 0.4197, n = 2400) has the impact severe"),
        (0.6, 0.1, 24, 4, "INCONCLUSIVE  qa/acc: 0.6 (95 % interval 0.3852 to 0.7895, n = 24) has the impact low"),
        (0.9, "N/A", None, 4, "INCONCLUSIVE  qa/acc: 0.9 (no 95 % interval, n not known) has the impact low"),
        (
            float("nan"),
            0.1,
            None,
            4,
            "INCONCLUSIVE  qa/acc: no value (n = 0) cannot be computed: the report has no value",
        ),
        ("0.9", 0.1, None, 4, "INCONCLUSIVE  qa/acc: no value (n = 0) cannot be computed: the report has no value"),
    )

    @pytest.mark.parametrize(("value", "stderr", "n", "code", "says"), CASES)
    def test_results_are_judged(
        self, cli: Cli, report: Any, value: Any, stderr: Any, n: int | None, code: int, says: str
    ) -> None:
        done = cli("evalguard", "verdict", report(value, stderr, n=n), "--thresholds", "config")
        assert done.exit_code == code
        assert says in done.stdout
        assert done.stdout.startswith("[bold]m[/]\n")
        assert "thresholds: sha256 " in done.stdout

    def test_few_scores_that_are_almost_equal_do_not_pass(self, cli: Cli, report: Any, home: Path) -> None:
        """One bad score in fifty is seldom among ten, and would bring their mean below the minimum."""
        done = cli("evalguard", "verdict", report(0.51, 0.001, n=10), "--thresholds", "config")
        assert done.exit_code == 4
        assert "INCONCLUSIVE  qa/acc: 0.51 (95 % interval 0.3527 to 0.6612, n = 10) has the impact low" in done.stdout

    def test_by_values_alone(self, cli: Cli, report: Any) -> None:
        done = cli("evalguard", "verdict", report(0.9, None), "--thresholds", "config", "--verdict", "point")
        assert (done.exit_code, "PASS" in done.stdout) == (0, True)

    def test_the_confidence_and_the_worst_impact_can_be_chosen(self, cli: Cli, report: Any) -> None:
        judge = ("evalguard", "verdict", report(0.6, 0.02, n=600), "--thresholds", "config/thresholds/qa.yaml")
        assert cli(*judge).exit_code == 0
        assert cli(*judge, "--confidence", "0.9999999").exit_code == 4
        assert cli(*judge, "--max-impact", "very_low").exit_code == 1
        assert cli(*judge, "--max-impact", "medium").exit_code == 2

    def test_a_task_without_thresholds_is_inconclusive_unless_left_out(self, cli: Cli, report: Any) -> None:
        judge = ("evalguard", "verdict", report(0.9, 0.01, "other"), "--thresholds", "config")
        done = cli(*judge)
        assert done.exit_code == 4
        assert "other is not judged: there are no thresholds for it." in done.stdout
        assert "qa is not judged: it is not in the report." in cli(*judge, "--task", "qa").stdout

    def test_json_is_the_verdict(self, cli: Cli, report: Any) -> None:
        done = cli("evalguard", "verdict", report("x", 0.01), "--thresholds", "config", "--json")
        assert done.exit_code == 4
        verdict = json.loads(done.stdout)
        assert (verdict["outcome"], len(verdict["thresholds_digest"])) == ("inconclusive", 64)
        assert verdict["warnings"] == ["qa: acc has no value: 'x' is not a finite number"]

    def test_what_is_no_report_and_thresholds_that_are_none_end_with_2(self, cli: Cli, report: Any, home: Path) -> None:
        results = report(0.9, 0.01)
        for arguments in (
            [results],
            [results, "--thresholds", "nowhere"],
            ["config/tasks/qa.yaml", "--thresholds", "config"],
        ):
            assert cli("evalguard", "verdict", *arguments).exit_code == 2

    def test_the_impacts_are_those_of_suites(self) -> None:
        assert SUITES_IMPACTS == IMPACTS


def harness(model: str, value: Any = 0.9, task: str = "qa") -> str:
    """Results of lm-evaluation-harness."""
    results = {task: {"acc,none": value, "acc_stderr,none": 0.01}}
    samples = {task: {"original": 900, "effective": 900}}
    document = {"results": results, "n-samples": samples, "config": {"model": "hf"}}
    return json.dumps({**document, "model_name": model, "date": 1746085828.5})


class TestImport:
    @pytest.fixture
    def reports(self, home: Path) -> Path:
        """A folder with a report of two models, and other files."""
        folder = home / "reports"
        for name, text in {
            "a/results_1.json": harness("org/a"),
            "models/b/results_2.json": harness("org/b", "N/A"),
            "own.yaml": "id: own\ntasks: [{task_ref: qa}]\nresults: [{acc: {value: 0.4, stderr: 0.01}}]\n",
            "config.json": '{"a": 1}',
            "samples.jsonl": "{}",
        }.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        return folder

    def test_all_in_a_folder_are_stored_once(self, cli: Cli, reports: Path) -> None:
        done = cli("evalguard", "import", reports)
        assert (done.exit_code, done.stdout) == (0, "3 reports imported, 1 file without a report skipped.\n")
        assert done.stderr == (
            f"warning: {reports}/models/b/results_2.json: qa: acc has no value: 'N/A' is not a finite number\n"
        )
        again = cli("evalguard", "import", reports / "own.yaml", reports)
        assert again.stdout == "0 reports imported, 4 there already, 1 file without a report skipped.\n"

    def test_bad_files_are_named_and_the_others_imported(self, cli: Cli, reports: Path, home: Path) -> None:
        (reports / "bad.json").write_text('{"results": ')
        (reports / "worse.yaml").write_text("results: 1\ncontext: 2\n")
        (reports / "link.json").symlink_to(home / "elsewhere.json")
        done = cli("evalguard", "import", reports, reports / "config.json")
        assert done.exit_code == 1
        errors = [line for line in done.stderr.splitlines() if line.startswith("error")]
        assert {line.split(": ")[1].removeprefix(f"{reports}/") for line in errors} == {
            "link.json", "bad.json:1:13", "config.json:1", "worse.yaml:1", "worse.yaml:2",
        }  # fmt: skip
        assert done.stderr.splitlines()[-1] == "3 reports imported, 1 file without a report skipped, 4 bad files."

    def test_more_than_a_hundred_files(self, cli: Cli, reports: Path) -> None:
        for number in range(110):
            (reports / f"results_{number}.json").write_text(harness(f"org/{number}"))
        assert cli("evalguard", "import", reports).stdout.startswith("113 reports imported")
        assert len(cli("evalguard", "list", "--limit", "1000", "--json").stdout.splitlines()) == 113

    def test_a_path_that_is_not_there_ends_with_2_and_stores_nothing(self, cli: Cli, reports: Path) -> None:
        done = cli("evalguard", "import", reports, "nowhere")
        assert (done.exit_code, done.stderr) == (2, "error: nowhere: there is no such file or folder\n")
        assert "No reports yet" in cli("evalguard", "list").stdout

    def test_reports_are_listed_by_model(self, cli: Cli, reports: Path) -> None:
        cli("evalguard", "import", reports)
        (line,) = cli("evalguard", "list", "--model", "org/a", "--json").stdout.splitlines()
        found = json.loads(line)
        assert (found["model_source"], found["tasks"], found["warnings"]) == ("hf", ["qa"], [])
        assert (found["evaluated_at"], len(found["id"])) == ("2025-05-01T07:50:28.500000+00:00", 64)
        listed = cli("evalguard", "list", "--limit", "2").stdout
        assert "report" in listed
        assert len(listed.strip().splitlines()) == 4

    def test_an_imported_report_is_exported_and_judged_by_its_id(self, cli: Cli, reports: Path, home: Path) -> None:
        put(home)
        cli("evalguard", "import", reports)
        ids = {}
        for line in cli("evalguard", "list", "--json").stdout.splitlines():
            found = json.loads(line)
            ids[found["model_name"]] = found["id"]
        exported = cli("evalguard", "export", ids["org/a"][:8], "--json").stdout
        assert json.loads(exported)["results"] == [{"acc": {"value": 0.9, "stderr": 0.01}}]
        as_yaml = cli("evalguard", "export", "own").stdout
        assert as_yaml == (
            "id: own\ntasks:\n  - task_ref: qa\nresults:\n  - acc:\n      value: 0.4\n      stderr: 0.01\n"
        )
        codes = [
            cli("evalguard", "verdict", name, "--thresholds", "config").exit_code
            for name in (ids["org/a"][:8], ids["org/b"], "own")
        ]
        assert codes == [0, 4, 4]
        assert (
            "acc has no value: 'N/A' is not a finite number"
            in cli("evalguard", "verdict", ids["org/b"], "--thresholds", "config").stdout
        )

    def test_an_env_file_that_is_not_there_is_said_before_anything_is_exported(self, cli: Cli, reports: Path) -> None:
        done = cli("evalguard", "export", reports / "own.yaml", "--env-file", "nowhere.env")
        assert (done.exit_code, done.stdout) == (2, "")
        assert "nowhere.env: there is no such file (--env-file)" in done.stderr

    def test_neither_a_file_nor_an_id_ends_with_2(self, cli: Cli) -> None:
        for arguments in (["export", "feedbeef"], ["verdict", "r.json", "--thresholds", "config"]):
            done = cli("evalguard", *arguments)
            assert done.exit_code == 2
            assert "There is no file" in done.stderr
            assert "There is no imported report" in done.stderr


def test_what_evalguards_repository_has_is_imported_and_exported_without_loss(cli: Cli) -> None:
    folder = os.environ.get("FEPFLOW_TEST_DATA")
    if not folder:
        pytest.skip("FEPFLOW_TEST_DATA names no folder with EvalGuard's files")
    sources = [json.loads(path.read_text()) for path in (Path(folder) / "evalguard" / "reports").rglob("*.json")]
    done = cli("evalguard", "import", Path(folder) / "evalguard" / "reports")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "4 reports imported.\n", "")
    found = [json.loads(line) for line in cli("evalguard", "list", "--json").stdout.splitlines()]
    exported = {one["model_name"]: json.loads(cli("evalguard", "export", one["id"], "--json").stdout) for one in found}
    for source in sources:
        report = exported[source["model_name"]]
        results: dict[str, dict[str, Any]] = {}
        for task, metrics in zip(report["tasks"], report["results"], strict=True):
            for metric, result in metrics.items():
                keys = {"value": f"{metric},none", "stderr": f"{metric}_stderr,none"}
                results.setdefault(task["task_ref"], {}).update({keys[name]: number for name, number in result.items()})
        expected = {
            task: {key: value for key, value in metrics.items() if "," in key and value != "N/A"}
            for task, metrics in source["results"].items()
        }
        assert results == expected
        assert all(task["metadata"]["filter"] == "none" for task in report["tasks"])


def test_the_digest_of_the_thresholds_is_shown(cli: Cli, fill_run: FillRun) -> None:
    digest = "0123456789abcdef" * 4
    verdict = {"gate": "g", "reasons": ["because"], "warnings": [], "thresholds_digest": digest}
    fill_run([], verdict=verdict)
    assert "thresholds: sha256 0123456789ab\n" in cli("show").output
    assert f'"thresholds_digest": "{digest}"' in cli("show", "--json").output
