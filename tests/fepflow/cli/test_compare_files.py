"""`fepflow compare` of files: the same output, intervals and exit codes as with the store, and what is not known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import fepflow
from fepflow import Check, ContainsCheck
from fepflow.errors import UserError
from fepflow.reports.fep import write_lines, write_run
from fepflow.store.records import FILTERS, RunRecord
from fepflow.store.store import Store
from tests.conftest import ModelServer
from tests.fepflow.cli.conftest import Ran
from tests.fepflow.cli.test_compare_command import compared
from tests.fepflow.conftest import Cli


def report(store: Store, run: RunRecord, path: Path) -> Path:
    """The run as a report."""
    write = write_lines if path.suffix == ".jsonl" else write_run
    with path.open("w", encoding="utf-8") as file:
        write(store, run, file)
    return path


def figures(found: dict[str, Any]) -> Any:
    """What a comparison says, but for when and under which number."""
    first = found["compared"][0]
    return found["outcome"], found["exit_code"], first["metrics"], first["rules"], first["worsened"], first["matched"]


@pytest.mark.parametrize(
    ("metric", "sections"),
    [
        ("says_so", {}),
        ("score", {"metrics": [{"id": "score", "check": "says_so", "value": "$.response.score", "range": [0, 1]}]}),
    ],
)
def test_reports_of_two_runs_compare_as_the_runs_do(
    cli: Cli, ran: Ran, store: Store, home: Path, metric: str, sections: dict[str, Any]
) -> None:
    base = ran([n >= 3 for n in range(40)], score=lambda n: n / 40, **sections)
    new = ran([None if n == 9 else n < 33 for n in range(40)], score=lambda n: n / 50, **sections)
    files = [report(store, run, home / f"{name}.json") for run, name in ((base, "a"), (new, "b"))]
    for options in ((), ("--margin", "0.05", "--margin", f"{metric}=0.1")):
        assert figures(compared(cli, *files, *options)) == figures(compared(cli, base.id, new.id, *options))


def test_repeats_and_clusters_count_in_files_as_in_the_store(cli: Cli, ran: Ran, store: Store, home: Path) -> None:
    inputs = ["the same question" if n < 20 else f"another {n}" for n in range(30)]
    base = ran([[n >= 3, True] for n in range(30)], inputs=inputs)
    new = ran([[n < 20, True] for n in range(30)], inputs=inputs)
    files = [report(store, run, home / f"{name}.json") for run, name in ((base, "a"), (new, "b"))]
    found = compared(cli, *files)
    assert figures(found) == figures(compared(cli, base.id, new.id))
    assert found["compared"][0]["metrics"][0]["method"] == "paired-bounded-clustered"


def test_a_file_says_that_its_run_had_chosen_cases_only(cli: Cli, ran: Ran, store: Store, home: Path) -> None:
    run = ran([True] * 5)
    chosen = run.replaced(options={FILTERS: ["--first 5"], "suite_cases": 9})
    files = [report(store, run, home / "a.json"), report(store, chosen, home / "b.json")]
    said = cli("compare", *map(str, files))
    assert "5 of 9 test cases (--first 5)" in " ".join(said.output.split())


def test_lines_of_results_say_what_they_cannot_know(cli: Cli, ran: Ran, store: Store, home: Path) -> None:
    said = {"outputs": [f"answer {n}" for n in range(30)]}
    base, new = ran([True] * 30, **said), ran([n >= 12 for n in range(30)], **said)
    files = [report(store, run, home / f"{name}.jsonl") for run, name in ((base, "a"), (new, "b"))]
    done = cli("compare", *files)
    assert (done.exit_code, "REGRESSION" in done.stdout) == (1, True)
    assert "a.jsonl does not have its suite" in done.stderr
    assert "cases are taken to be independent" in done.stderr
    stored = compared(cli, base.id, new.id)["compared"][0]["metrics"][0]
    metric = compared(cli, *files)["compared"][0]["metrics"][0]
    assert (metric["low"], metric["high"], metric["p"]) == (stored["low"], stored["high"], stored["p"])


def test_a_file_is_compared_with_a_run_of_the_store(cli: Cli, ran: Ran, store: Store, home: Path) -> None:
    base, new = ran([True] * 30), ran([n >= 12 for n in range(30)])
    file = report(store, new, home / "b.json")
    assert figures(compared(cli, base.id, file)) == figures(compared(cli, base.id, new.id))


def test_a_case_that_a_file_lacks_counts_as_missing(cli: Cli, ran: Ran, store: Store, home: Path) -> None:
    base, new = ran([False] * 30), ran([True] * 30)
    files = [report(store, run, home / f"{name}.json") for run, name in ((base, "a"), (new, "b"))]
    document = json.loads(files[1].read_text())
    document["results"] = document["results"][:10]
    files[1].write_text(json.dumps(document))
    metric = compared(cli, *files, "--margin", "0.1")["compared"][0]["metrics"][0]
    assert (metric["n_expected"], metric["n_completed"]) == (30, 10)
    assert metric["low"] < 0


def evaluated(answers: list[str], phrase: str = "yes") -> fepflow.EvaluationRunResult:
    cases = [{"id": f"c{n}", "input": f"q{n}"} for n in range(len(answers))]
    return fepflow.evaluate(cases, answers, [ContainsCheck(id="says_so", text="$.output.value", phrases=[phrase])])


def test_results_of_another_tool_are_compared_by_their_checks(cli: Cli, home: Path) -> None:
    for name, count in (("a", 19), ("b", 9)):
        document = json.loads(evaluated(["yes"] * count + ["no"] * (20 - count)).model_dump_json())
        for result in document["results"]:
            for check in result["check_results"]:
                del check["metadata"]  # ids and versions are additions of ours
        document.pop("metadata", None)
        (home / f"{name}.json").write_text(json.dumps(document))
    found = compared(cli, home / "a.json", home / "b.json")
    assert (found["outcome"], found["compared"][0]["metrics"][0]["id"]) == ("fail", "contains")


def of_another_tool(path: Path, check_types: list[list[str]], passed: bool) -> Path:
    """A file of results of checks of these types for each case."""
    document = json.loads(evaluated(["yes" if passed else "no"] * len(check_types)).model_dump_json())
    document.pop("metadata", None)
    for result, types in zip(document["results"], check_types, strict=True):
        check = {**result["check_results"][0], "metadata": None}
        result["check_results"] = [{**check, "check_type": name} for name in types]
        counts = {"total_checks": len(types), "completed_checks": len(types)}
        result["summary"] = {**counts, "error_checks": 0, "skipped_checks": 0}
    path.write_text(json.dumps(document))
    return path


def test_types_of_other_tools_may_have_any_characters(cli: Cli, home: Path) -> None:
    types = [["ragas.faithfulness", "my check", "my/check"]] * 10
    files = [of_another_tool(home / f"{name}.json", types, name == "a") for name in "ab"]
    metrics = compared(cli, *files)["compared"][0]["metrics"]
    assert [metric["id"] for metric in metrics] == ["ragas_faithfulness", "my_check", "my_check-2"]


def test_a_result_that_a_file_lacks_is_missing_and_its_case_stays(cli: Cli, home: Path) -> None:
    base = of_another_tool(home / "a.json", [["x", "y"]] * 20, passed=True)
    new = of_another_tool(home / "b.json", [["x", "y"]] * 18 + [["x"], []], passed=True)
    x, y = compared(cli, base, new)["compared"][0]["metrics"]
    assert (x["n_expected"], x["n_completed"], y["n_completed"]) == (20, 19, 18)


@pytest.mark.parametrize("section", [{"checks": [5]}, {"metrics": "x"}, {"gate": {"min": 5}}, {"cluster": 5}])
def test_a_suite_in_a_file_that_is_not_valid_is_refused_by_its_place(
    cli: Cli, home: Path, section: dict[str, Any]
) -> None:
    document = json.loads(evaluated(["yes"]).model_dump_json())
    document["metadata"] = {"suite": {"name": "x", "target": {"evaluate": "x"}, **section}}
    (home / "x.json").write_text(json.dumps(document))
    done = cli("compare", "x.json", "x.json")
    assert (done.exit_code, f"x.json: metadata.suite.{next(iter(section))}" in done.stderr) == (2, True)


def test_a_check_that_asks_something_else_is_not_compared(cli: Cli, home: Path) -> None:
    for name, phrase in (("a", "yes"), ("b", "no")):
        (home / f"{name}.json").write_text(evaluated(["yes"] * 20, phrase).model_dump_json())
    done = cli("compare", home / "a.json", home / "b.json")
    assert (done.exit_code, "its check has changed" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("x.json", '{"a": 1}', "x.json:1: is not a file of results: it has no list `results`"),
        ("x.json", '{"results":\n[1,', "x.json:2: is not JSON"),
        ("x.json", '{"results": []}', "x.json: has no results"),
        ("x.json", '{"results": [{"status": "completed"}]}', "results[0]"),
        ("x.jsonl", '\n{"status": "completed"}\n', "x.jsonl:2: "),
        ("x.jsonl", "\n\nnot json\n", "x.jsonl:3: is not JSON"),
        ("gone.json", None, "gone.json: there is no such file"),
    ],
)
def test_a_file_that_is_none_of_results_is_refused_by_name_and_line(
    cli: Cli, home: Path, name: str, text: str | None, message: str
) -> None:
    (home / "a.json").write_text(evaluated(["yes"]).model_dump_json())
    if text is not None:
        (home / name).write_text(text)
    done = cli("compare", "a.json", name)
    assert done.exit_code == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_scores_at_the_end_of_what_a_float_holds_are_not_compared(cli: Cli, home: Path) -> None:
    text = evaluated(["yes"] * 3).model_dump_json()
    for name, scores in (("a", [1.7e308, 1.7e308, 1.0]), ("b", [-1.7e308, 1.7e308, 2.0])):
        document = json.loads(text)
        for result, score in zip(document["results"], scores, strict=True):
            result["check_results"][0]["results"] = {"score": score}
        (home / f"{name}.json").write_text(json.dumps(document))
    done = cli("compare", "a.json", "b.json")
    assert (done.exit_code, "its values are too large to be compared" in done.stderr) == (2, True)


def test_a_file_never_says_which_model_judges_it_nor_where(
    cli: Cli, ran: Ran, store: Store, home: Path, model_server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-the-user")
    section = {
        "model_config": {"model": "openai/theirs"},
        "provider_config": {"api_base": f"{model_server.address}/v1", "api_key": "${OPENAI_API_KEY}"},
    }
    base, new = ran([True], outputs=["a"], judge=section), ran([True], outputs=["b"], judge=section)
    files = [report(store, run, home / f"{name}.json") for run, name in ((base, "a"), (new, "b"))]
    done = cli("compare", *files, "--judge", "Which is better?")
    assert (done.exit_code, "There is no model to judge" in done.stderr) == (2, True)
    assert not model_server.seen


def test_results_compare_with_each_other_in_python(home: Path) -> None:
    before, after = evaluated(["yes"] * 19 + ["no"]), evaluated(["yes"] * 9 + ["no"] * 11)
    found = after.compare(before)
    assert (found.outcome, found.metrics["says_so"]["difference"]) == ("fail", pytest.approx(-0.5))
    assert len(found.worsened) == 10
    assert "| says\\_so | 0.95 | 0.45 |" in str(found)
    assert before.compare(after).outcome is None
    assert fepflow.compare(before, before).metrics["says_so"]["difference"] == 0
    with pytest.raises(UserError, match="-1 is not a margin"):
        after.compare(before, margin=-1)
    with pytest.raises(TypeError, match="int cannot be compared"):
        after.compare(7)


def test_runs_of_the_store_compare_with_each_other_and_with_evaluations(home: Path, ran: Ran, store: Store) -> None:
    base, new = ran([True] * 30), ran([n >= 12 for n in range(30)])
    before, after = fepflow.load_run(base.id), fepflow.load_run(new.id)
    assert after.compare(before).outcome == after.results.compare(base.id).outcome == "fail"
    frame = after.results.to_dataframe()
    assert (len(frame), len(after.to_dataframe())) == (30, 30)
    same = fepflow.evaluate(
        [{"id": f"c{n}", "input": n} for n in range(30)],
        ["yes"] * 30,
        [Check(id="says_so", type="contains", arguments={"text": "$.output.value", "phrases": "yes"})],
    )
    assert same.compare(after).metrics["says_so"]["improved"] == 12
