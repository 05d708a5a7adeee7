"""Results of other tools become runs that are judged by our rules, and nothing that failed there passes here."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fepflow.imports.imported import Imported, ImportedOutput, ImportedRun, Notes, Score
from fepflow.imports.source import Source
from fepflow.services.imports import ImportedFile
from fepflow.services.run_service import open_store
from fepflow.store.records import RunRecord

pytestmark = pytest.mark.usefixtures("home")


def stored(tmp_path: Path, *outputs: ImportedOutput, cases: int = 2, **run: object) -> RunRecord:
    file = tmp_path / "results.json"
    file.write_text("{}")
    imported = Imported(
        format="other",
        version="3",
        name="capitals",
        notes=Notes("results.json"),
        cases=[{"input": f"question {number}", "expected": "yes"} for number in range(cases)],
        runs=[ImportedRun(list(outputs), **run)],  # type: ignore[arg-type]  # options of a run, by name
    )
    (record,) = ImportedFile(Source(file, "results.json"), imported).store_runs()
    return record


def metrics(run: RunRecord) -> dict[str, tuple[float | None, int]]:
    return {metric["id"]: (metric["value"], metric["n_error"]) for metric in run.metrics}


def test_scorers_of_another_tool_are_checks_under_their_names(tmp_path: Path) -> None:
    run = stored(
        tmp_path,
        ImportedOutput(0, "yes", scores={"accuracy": Score(passed=True), "tone": Score(passed=True, score=0.9)}),
        ImportedOutput(
            1,
            "no",
            scores={"accuracy": Score(passed=False, reason="it is yes"), "tone": Score(True, 0.7)},
            metadata={"usd": -1.0, "tokens": 3},
        ),
    )
    assert metrics(run) == {"accuracy": (0.5, 0), "tone": (1.0, 0)} | {
        name: value for name, value in metrics(run).items() if name not in ("accuracy", "tone")
    }
    assert run.outcome == "fail"
    assert run.cause == "import"
    assert (run.options["import"]["format"], run.options["import"]["version"]) == ("other", "3")
    assert len(run.options["import"]["sha256"]) == 64
    with open_store() as store:
        results = list(store.results.by_case(run.id))
    assert results[1].checks[0].results == {"passed": False, "reasoning": "it is yes"}
    assert (results[1].output.metadata or {}).keys() == {"tokens", "scores"}, "a negative cost is an unknown one"


@pytest.mark.parametrize(
    "score",
    [Score(error="timeout"), Score(score=math.nan), Score(), Score(passed=True, score=math.inf)],
    ids=["error", "nan", "nothing", "infinite"],
)
def test_a_score_that_cannot_be_known_is_an_error(tmp_path: Path, score: Score) -> None:
    run = stored(
        tmp_path,
        ImportedOutput(0, "yes", scores={"accuracy": score}),
        ImportedOutput(1, "yes", scores={"accuracy": Score(passed=True)}),
    )
    assert metrics(run)["accuracy"][1] == 1
    assert run.outcome == "inconclusive"


def test_a_call_that_failed_is_an_error_of_every_check(tmp_path: Path) -> None:
    run = stored(
        tmp_path,
        ImportedOutput(0, "yes", scores={"accuracy": Score(passed=True)}),
        ImportedOutput(1, "what was there", error="429 Too Many Requests", scores={"accuracy": Score(False, 0.0)}),
    )
    assert metrics(run)["accuracy"] == (1.0, 1)
    assert run.outcome == "inconclusive"


def test_a_failed_call_that_no_scorer_speaks_of_still_counts(tmp_path: Path) -> None:
    run = stored(
        tmp_path,
        ImportedOutput(0, "yes", scores={"a": Score(passed=True)}),
        ImportedOutput(1, "yes", scores={"b": Score(passed=True)}),
        ImportedOutput(2, None, error="down"),
        cases=3,
    )
    assert {name: value[1] for name, value in metrics(run).items()} == {"a": 1, "b": 1}
    assert run.outcome == "inconclusive"


def test_an_answer_that_no_scorer_speaks_of_counts_unless_nothing_was_asserted_of_it(tmp_path: Path) -> None:
    judged, silent = ImportedOutput(0, "yes", scores={"a": Score(passed=True)}), ImportedOutput(1, "yes")
    unasserted = replace(silent, asserts_nothing=True)
    assert stored(tmp_path, judged, silent).outcome == "inconclusive"
    assert stored(tmp_path, judged, unasserted).outcome == "pass"
    assert stored(tmp_path, replace(unasserted, case=0), cases=1).outcome == "inconclusive"


def test_an_output_that_is_missing_is_missing_in_the_run(tmp_path: Path) -> None:
    run = stored(tmp_path, ImportedOutput(0, "yes", scores={"a": Score(passed=True)}))
    assert run.outcome == "inconclusive"


def test_an_output_that_is_large_is_judged_like_any_other(tmp_path: Path) -> None:
    outputs = [ImportedOutput(n, "x" * 2_000_000, scores={"a": Score(passed=n == 0)}) for n in (0, 1)]
    assert metrics(stored(tmp_path, *outputs))["a"] == (0.5, 0)


def test_a_run_has_the_time_of_what_was_evaluated(tmp_path: Path) -> None:
    moment = datetime(2025, 3, 1, 12, tzinfo=UTC)
    output = ImportedOutput(0, "yes", scores={"a": Score(passed=True)})
    run = stored(tmp_path, output, cases=1, times=[moment])
    assert (run.created_at, run.completed_at) == (moment, moment)


def test_names_that_no_check_can_have_are_made_fit(tmp_path: Path) -> None:
    scores = {"Is it polite?": Score(passed=True), "is/it": Score(passed=True), "is it": Score(passed=True)}
    run = stored(tmp_path, ImportedOutput(0, "yes", scores=scores), cases=1)
    assert list(metrics(run)) == ["Is-it-polite", "is-it", "is-it-2"]
    assert run.outcome == "pass"
