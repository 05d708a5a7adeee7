"""Evaluations as pytest tests: cases that belong together, and cases of the same content."""

from __future__ import annotations

import pytest

import fepflow.jsonpath.queries  # noqa: F401  # an extension inside loads once a process, and pytester unloads modules
from fepflow.analysis.accumulation import suite_of
from fepflow.statistics.proportions import wilson_interval
from fepflow.store.store import Store
from fepflow.text import number
from tests.fepflow.pytest.pytest_project import Project, text_of

DOCUMENTS = """
MANY = [
    TestCase(id=str(n), input=f"question {{n}}", expected="yes", metadata={{"document": n % 20}}) for n in range(200)
]

@evaluate(MANY, CHECKS, success_threshold=0.9, {arguments})
def test_documents(test_case):
    return "no" if test_case.metadata["document"] == 0 else "yes"
"""


@pytest.mark.parametrize(
    ("cluster", "units", "words"),
    [
        ("'$.test_case.metadata.document'", 20, "n = 200 in 20 documents"),
        ("lambda case: case.metadata['document']", 20, "n = 200 in 20 clusters"),
        ("'$.test_case.id'", 200, "n = 200"),
    ],
)
def test_the_interval_for_all_such_cases_counts_clusters(
    project: Project, cluster: str, units: int, words: str
) -> None:
    result = project.run(DOCUMENTS.format(arguments=f"cluster={cluster}"))
    result.assert_outcomes(passed=1, warnings=0)
    these, such = ([number(bound) for bound in wilson_interval(0.95, n)] for n in (200, units))
    assert (
        f"190 of 200 results passed: 0.95 (95 % interval {these[0]} to {these[1]} for these cases, "
        f"{such[0]} to {such[1]} for all such cases: {words}), the threshold is 0.9." in text_of(result)
    )


def test_a_stored_run_keeps_the_clusters(project: Project) -> None:
    url = f"sqlite:///{project.folder / 'results.db'}"
    path = "$.test_case.metadata.document"
    project.run(DOCUMENTS.format(arguments=f"cluster='{path}'"), f"--fepflow-store={url}").assert_outcomes(passed=1)
    with Store.open(url) as store:
        (run,) = store.runs.newest()
        assert suite_of(run).cluster == path
        assert [metric["n_clusters"] for metric in run.metrics] == [20, 20]
        assert run.metrics[0]["low"] == pytest.approx(wilson_interval(0.95, 20)[0])


def test_a_function_is_not_stored_and_a_warning_says_so(project: Project) -> None:
    arguments = "cluster=lambda case: case.metadata['document']"
    url = f"sqlite:///{project.folder / 'results.db'}"
    result = project.run(DOCUMENTS.format(arguments=arguments), f"--fepflow-store={url}")
    result.assert_outcomes(passed=1, warnings=1)
    assert "cluster= is a function, which is not stored" in text_of(result)


def test_each_case_counts_clusters_and_a_rate_that_has_to_be_shown_has_no_interval_for_all(project: Project) -> None:
    cluster = "cluster='$.test_case.metadata.document'"
    result = project.run(DOCUMENTS.format(arguments=f"pass_rule='each_case', shown=False, {cluster}"))
    assert "for all such cases: n = 200 in 20 documents" in text_of(result)
    result = project.run(DOCUMENTS.format(arguments=f"shown=True, {cluster}"))
    assert "for these cases, at every look" in text_of(result)
    assert "all such cases" not in text_of(result)


NO_CLUSTERS = [
    ("cluster=7", "evaluate: cluster: 7 is neither a path nor a function"),
    ("cluster='document'", "evaluate: cluster: 'document' is not a path of a test case (give a path such as"),
    ("cluster='$.output.value'", "evaluate: cluster: '$.output.value' is not a path of a test case"),
    ("cluster='$.test_case.metadata['", "evaluate: cluster: "),
    ("cluster='$.test_case.metadata.page'", "evaluate: cluster: no test case has a $.test_case.metadata.page"),
    ("cluster=lambda case: None", "evaluate: cluster: no test case gets a value from the function"),
    ("cluster=lambda case: case.metadata['page']", "evaluate: cluster: the function raised KeyError for the case"),
    (
        "cluster=lambda case: object()",
        "the function returned object, which names no cluster",
    ),
    ("cluster='$.test_case.id', pass_rule='sample'", "evaluate: cluster: a sample is of all test cases"),
]


def test_a_cluster_that_tells_nothing_is_an_error_at_collection(project: Project, subtests: pytest.Subtests) -> None:
    _, errors = project.run_each(DOCUMENTS.format(arguments=arguments) for arguments, _ in NO_CLUSTERS)
    for (arguments, complaint), error in zip(NO_CLUSTERS, errors, strict=True):
        with subtests.test(arguments):
            assert complaint in error


def test_duplicates_and_cases_without_a_cluster_are_warned_of_at_collection(project: Project) -> None:
    code = """
    SAME = [TestCase(id=f"{{n}}", input=f"question {{n % 20}}", expected="yes") for n in range(200)]
    ONE = TestCase(id="one", input="another", expected="yes", metadata={{"document": 1}})

    @evaluate([*SAME, ONE], CHECKS, {arguments})
    def test_same(test_case):
        return "yes"
    """
    result = project.run(code.format(arguments=""), "--collect-only")
    assert "200 of 201 test cases are only 20 different ones: 0, 20, 40 and 7 more, for example" in text_of(result)
    assert "have no $.test_case" not in text_of(result)
    result = project.run(code.format(arguments="cluster=lambda case: (case.metadata or {}).get('document')"))
    result.assert_outcomes(passed=1, warnings=2)
    assert "200 of 201 test cases have no cluster: each counts as a cluster of its own" in text_of(result)
    assert "for all such cases: n = 201 in 21 clusters" in text_of(result)
