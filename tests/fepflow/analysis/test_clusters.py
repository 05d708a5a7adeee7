"""The clusters of a suite's test cases, from the store's rows to a verdict, and in `validate`."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pydantic import ValidationError

from fepflow.analysis.calibration import calibrate
from fepflow.analysis.dependence import ClusteredCases
from fepflow.analysis.judge_reliability import judges_of_run, labels_of, warnings_of
from fepflow.analysis.labels import LabelSet
from fepflow.analysis.metrics import compute_verdict
from fepflow.diagnose.validate_suite import validate_suite
from fepflow.protocol.model import utc_now
from fepflow.protocol.results import CheckResult
from fepflow.protocol.test_case import Output, TestCase
from fepflow.statistics.proportions import wilson_interval
from fepflow.store.records import NewCheckResult, NewOutput, RunRecord
from fepflow.store.store import Store
from fepflow.suite.models import Suite

from .test_calibration import stored

DOCUMENT = "$.test_case.metadata.document"


PLAIN: dict[str, Any] = {"gate": {"min": {"c": 0.9}}, "cluster": None}


def cases(documents: list[Any], inputs: list[Any] | None = None) -> list[TestCase]:
    """Test cases of these documents; None has none."""
    return [
        TestCase(
            id=str(index),
            input=inputs[index] if inputs else index,
            metadata={} if document is None else {"document": document},
        )
        for index, document in enumerate(documents)
    ]


def verdict(
    store: Store,
    documents: list[Any],
    passed: list[bool | None],
    repeats: int = 1,
    inputs: list[Any] | None = None,
    **sections: Any,
) -> Any:
    """The verdict on a check's results, of cases of these documents; None never came."""
    run_id = uuid4().hex
    store.runs.create(RunRecord(id=run_id, name="s", suite={}, repeats=repeats), cases(documents, inputs))
    rows = []
    for case, value in enumerate(passed):
        for repeat in range(0 if value is None else repeats):
            made = CheckResult(
                check_type="contains", status="completed", results={"passed": value}, evaluated_at=utc_now()
            )
            rows.append(NewCheckResult(case, repeat, "c", f"a{case}-{repeat}", made, value))
    outputs = [
        NewOutput(case, repeat, "o", Output(value="x")) for case in range(len(passed)) for repeat in range(repeats)
    ]
    store.results.write(run_id, outputs, rows)
    target, checks = {"http": {"url": "http://127.0.0.1:9/"}}, [{"type": "contains", "id": "c", "arguments": {}}]
    sections = {"cluster": DOCUMENT, **sections}
    suite = {"name": "s", "target": target, "test_cases": [], "checks": checks, **sections}
    return compute_verdict(store, store.runs.get(run_id), Suite.model_validate(suite))


TWENTY = [f"d{case // 10}" for case in range(200)]


def test_a_verdict_counts_clusters(store: Store) -> None:
    result = verdict(store, TWENTY, [True] * 200, gate={"min": {"c": 0.9}})
    (metric,) = result.metrics
    assert (metric.n_expected, metric.n_clusters, metric.method) == (200, 20, "wilson-clustered")
    assert metric.low == pytest.approx(wilson_interval(1.0, 20)[0])
    assert result.outcome == "inconclusive"
    assert "n = 200 in 20 documents" in result.reasons[0]
    assert "documents like these would settle it" in result.reasons[0]
    assert verdict(store, TWENTY, [True] * 200, gate={"min": {"c": 0.9}}, cluster=None).outcome == "pass"


def test_cases_that_are_said_to_be_independent_are_counted_alone(store: Store) -> None:
    result = verdict(store, TWENTY, [True] * 200, gate={"min": {"c": 0.9}}, cluster="$.test_case.id")
    assert (result.outcome, result.metrics[0].method, result.metrics[0].n_clusters) == ("pass", "wilson", None)


def test_cases_without_a_cluster_count_alone_and_are_warned_of(store: Store) -> None:
    result = verdict(store, [*TWENTY[:190], *[None] * 10], [True] * 200, gate={"min": {"c": 0.8}})
    assert result.metrics[0].n_clusters == 29
    assert result.warnings == [
        f"10 of 200 test cases have no {DOCUMENT}: each counts as a cluster of its own, as if it had nothing in common "
        "with any other case."
    ]


def test_clusters_count_in_slices_and_in_aggregates_of_repeats(store: Store) -> None:
    sections: dict[str, Any] = {
        "metrics": [
            {"id": "all", "check": "c", "aggregate": "pass^3"},
            {"id": "most", "check": "c", "aggregate": "majority"},
        ],
        "slices": {"by": "document"},
    }
    result = verdict(store, [f"d{case // 5}" for case in range(100)], [True] * 90 + [False] * 10, repeats=3, **sections)
    assert [(metric.method, metric.n_clusters) for metric in result.metrics] == [
        ("bounded-clustered", 20),
        ("wilson-clustered", 20),
    ]
    assert result.metrics[0].low == pytest.approx(wilson_interval(0.9, 20)[0])
    assert {each.n_clusters for each in result.slices} == {1}


def test_a_slice_is_judged_by_its_number_of_clusters(store: Store) -> None:
    few = [f"d{case // 12}" for case in range(180)]  # 15 clusters, and a minimum of 0.8 takes 17
    slices = {"by": "topic", "min": 0.8}
    assert verdict(store, few, [True] * 180, slices=slices).outcome == "inconclusive"
    enough = [f"d{case // 10}" for case in range(180)]
    assert verdict(store, enough, [True] * 180, slices=slices).outcome == "pass"


@pytest.mark.parametrize(
    ("path", "noun"),
    [
        (DOCUMENT, "document"),
        ("$.test_case.metadata.user_id", "user"),
        ("$.test_case.metadata['conversationId']", "conversation"),
        ("$.test_case.metadata.docs", "cluster"),
        ("$.test_case.input[0].text2", "cluster"),
    ],
)
def test_clusters_are_named_by_their_field(path: str, noun: str) -> None:
    assert ClusteredCases(path).noun == noun


def test_any_json_value_names_a_cluster() -> None:
    documents = [1, "1", 1, {"a": 1, "b": 2}, {"b": 2, "a": 1}, None]
    clusters = ClusteredCases.of(DOCUMENT, cases(documents))
    assert list(clusters.numbers) == [0, 0, 0, 1, 1, 2]
    assert clusters.without == 1


def validated(folder: Path, cluster: str, lines: list[str], more: str = "") -> list[str]:
    (folder / "cases.jsonl").write_text("\n".join(lines))
    (folder / "suite.yaml").write_text(
        "name: s\ntarget: {http: {url: http://127.0.0.1:9/}}\ntest_cases: cases.jsonl\n"
        f"checks: [{{type: contains, arguments: {{text: $.output.value, phrases: [x]}}}}]\ncluster: {cluster}\n"
        f"gate: {{min: {{contains: 0.9}}}}\n{more}"
    )
    return [str(problem) for problem in validate_suite(folder / "suite.yaml", {}).problems]


def test_validate_counts_clusters(tmp_path: Path) -> None:
    lines = [f'{{"input": {n}, "metadata": {{"document": {n // 10}}}}}' for n in range(200)]
    (problem,) = validated(tmp_path, DOCUMENT, lines)
    assert "20 documents cannot show contains of at least 0.9, even if all pass (it takes 35 at 95%)" in problem


def test_validate_counts_the_clusters_of_slices(tmp_path: Path) -> None:
    lines = [
        f'{{"input": {n}, "metadata": {{"document": {n // 10}, "topic": "{"ab"[n // 450]}"}}}}' for n in range(600)
    ]
    (problem,) = validated(tmp_path, DOCUMENT, lines, "slices: {by: topic, min: 0.8}\n")
    assert "1 of 2 slices have fewer than 17 documents: b" in problem


def test_validate_knows_the_mistakes_of_a_cluster(tmp_path: Path) -> None:
    lines = [f'{{"input": {n}, "metadata": {{"document": {n}}}}}' for n in range(50)]
    (problem,) = validated(tmp_path, "$.test_case.metadata.documnt", lines)
    assert "suite.yaml:5: cluster: none of the 50 test cases has $.test_case.metadata.documnt" in problem
    assert "did you mean $.test_case.metadata.document?" in problem
    (problem,) = validated(tmp_path, DOCUMENT, [*lines, '{"input": 99}'])
    assert "1 of 51 test cases have no" in problem
    assert "each of them counts as a cluster of its own" in problem
    assert "a cluster is told by the test case" in validated(tmp_path, "$.output.value", lines)[0]


@pytest.mark.parametrize(
    ("cluster", "path"),
    [("$.output.value", "document"), ("user", "user"), ("metadata.user", "user"), ("$.metadata.user", "user")],
)
def test_a_suite_says_which_path_of_a_cluster_was_meant(cluster: str, path: str) -> None:
    suite = {"name": "s", "target": {"http": {"url": "http://a/"}}, "test_cases": [], "cluster": cluster}
    with pytest.raises(ValidationError, match=rf"a path such as \$\.test_case\.metadata\.{path}"):
        Suite.model_validate(suite)


def test_labels_of_one_cluster_tell_as_much_as_one_label(store: Store) -> None:
    """People find eight of ten documents right as a whole, and the judge passes nine of ten."""
    documents = [str(number // 10) for number in range(100)]
    responses = [{"passed": number < 90} for number in range(100)]
    of_clusters, independent = (
        calibrate(
            store,
            run := stored(store, responses, topics=documents, **sections),
            LabelSet(judges_of_run(run)[0], "passed", {f"c{number}": number < 80 for number in range(100)}),
        )
        for sections in ({"cluster": "$.test_case.metadata.topic"}, {})
    )
    assert "clusters" not in independent.statistics
    assert labels_of(independent, of_run=True).passed == 90
    labels = labels_of(of_clusters, of_run=True)
    assert labels.passed == pytest.approx(9)
    assert labels.failed == pytest.approx(1)
    assert labels.right_passed / labels.passed == pytest.approx(80 / 90)
    elsewhere = labels_of(of_clusters)
    assert elsewhere.right_passed / elsewhere.right == 1
    assert elsewhere.n == pytest.approx(10)
    assert any("100 labels tell as much as about 10 independent ones" in text for text in warnings_of(of_clusters))


def test_clusters_count_where_missing_results_are_stated_as_random(store: Store) -> None:
    passed = [None if case % 20 == 3 else True for case in range(300)]
    metrics = [{"id": "all", "check": "c", "aggregate": "pass^2"}, {"id": "acc", "check": "c"}]
    gate = {"min": {"acc": 0.8}, "missing": "random"}
    result = verdict(store, [f"d{case // 10}" for case in range(300)], passed, repeats=2, metrics=metrics, gate=gate)
    assert [metric.n_clusters for metric in result.metrics] == [30, 30]
    assert {metric.value for metric in result.metrics} == {1.0}
    worth = 285**2 / (15 * 9**2 + 15 * 10**2)
    for metric in result.metrics:
        assert metric.low == pytest.approx(wilson_interval(1.0, worth)[0])


def test_cases_of_one_content_count_as_one(store: Store) -> None:
    result = verdict(store, [None] * 200, [True] * 200, inputs=[n % 20 for n in range(200)], **PLAIN)
    (metric,) = result.metrics
    assert (metric.n_expected, metric.n_clusters, metric.method) == (200, 20, "wilson-clustered")
    assert metric.low == pytest.approx(wilson_interval(1.0, 20)[0])
    assert result.outcome == "inconclusive"
    assert "n = 200 in 20 different cases" in result.reasons[0]
    assert "different cases like these would settle it" in result.reasons[0]
    assert result.warnings == [
        "200 of 200 test cases are only 20 different ones: 0, 20, 40 and 7 more, for example, have the same content; "
        "they count as repeats of one case."
    ]
    assert verdict(store, [None] * 200, [True] * 200, **PLAIN).outcome == "pass"


def test_duplicates_in_two_clusters_make_them_one(store: Store) -> None:
    inputs: list[Any] = list(range(200))
    inputs[15] = inputs[7]  # of d0 and d1
    inputs[195] = inputs[18]  # of d1 and d19
    assert verdict(store, TWENTY, [True] * 200, inputs=inputs).metrics[0].n_clusters == 18


def test_a_field_of_documents_without_a_cluster_is_warned_of_where_the_gate_speaks_of_other_cases(store: Store) -> None:
    (warning,) = verdict(store, TWENTY, [True] * 200, **PLAIN).warnings
    assert warning.startswith("200 test cases share 20 values of metadata.document: cases of one document are rarely")
    assert verdict(store, TWENTY, [True] * 200, cluster=None).warnings == []
    assert verdict(store, TWENTY, [True] * 200, **{**PLAIN, "cluster": "$.test_case.id"}).warnings == []


def test_a_number_and_its_text_are_one_cluster() -> None:
    values: list[Any] = [7, "7", 7.0, "8", None, "without 1"]
    cases = [TestCase(id=str(n), input="x", metadata={"document": value}) for n, value in enumerate(values)]
    assert list(ClusteredCases.of("$.test_case.metadata.document", cases).numbers) == [0, 0, 0, 1, 2, 3]
