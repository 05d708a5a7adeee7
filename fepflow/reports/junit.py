"""JUnit's XML, as CI systems read it: a suite for the verdict, one for the calls, one for each check.

The test cases of `verdict` are the gate's rules; those of the others are the run's cases, each repeat for itself. A
failed check that the gate allows is skipped there, unless `failures` is `checks`: a build is red if the verdict is.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from tempfile import TemporaryFile
from typing import Any, Literal, TextIO
from xml.etree import ElementTree
from xml.sax.saxutils import quoteattr

from fepflow.analysis.causes import causes_of
from fepflow.analysis.judge_reliability import reliability_of_judges
from fepflow.checks.explanation import explain, findings
from fepflow.protocol.results import CheckResult, score_of
from fepflow.protocol.test_case import Output
from fepflow.reports.tables import printable
from fepflow.store.records import CaseResult, RunRecord
from fepflow.store.result_rows import declared_check_ids, shared_check_ids
from fepflow.store.store import Store
from fepflow.text import as_json

JunitFailures = Literal["gate", "checks"]
"""The checks that fail in JUnit: those on which the verdict rests, or every failed check."""

Kind = Literal["passed", "failure", "error", "skipped"]

MAX_VALUE = 10_000
"""Characters of an input, an output, or another value."""


@dataclass(frozen=True, slots=True)
class _Case:
    """A test case of JUnit. `message` is one line, `text` everything."""

    name: str
    kind: Kind
    seconds: float = 0.0
    message: str = ""
    text: str = ""
    score: float | None = None


@dataclass(slots=True)
class _Suite:
    """A test suite that is being written, in its own file until its number of test cases is known."""

    name: str
    file: TextIO
    counts: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0


def write_junit(store: Store, run: RunRecord, file: TextIO, failures: JunitFailures = "gate") -> None:
    """Write a run; what is counted is read once, and is not held in memory."""
    gate = _Gate(run, failures)
    with ExitStack() as open_files:
        suites: dict[str, _Suite] = {}

        def suite(name: str) -> _Suite:
            if name not in suites:
                temporary = open_files.enter_context(TemporaryFile("w+", encoding="utf-8", newline=""))
                suites[name] = _Suite(name, temporary)
            return suites[name]

        for case in _rules(run):
            _add(run, suite("verdict"), case)
        shared = shared_check_ids(run.suite)
        for result in store.results.by_case(run.id):
            name = result.case.id if run.repeats == 1 else f"{result.case.id} #{result.repeat + 1}"
            _add(run, suite("calls"), gate.allow(None, _call(name, result)))
            for check_id, case in _checks(name, result, shared):
                _add(run, suite(f"check {check_id}"), gate.allow(check_id, case))
        _write_suites(store, run, list(suites.values()), file)


class _Gate:
    """The failures on which the verdict rests."""

    def __init__(self, run: RunRecord, failures: JunitFailures) -> None:
        verdict = run.verdict or {}
        open_rules = [rule for rule in verdict.get("rules", ()) if rule["outcome"] != "pass"]
        self._all = failures == "checks" or run.outcome is None or not verdict.get("rules")
        self._all = self._all or any(rule.get("check") is None for rule in open_rules)
        self._checks = {rule.get("check") for rule in open_rules}
        self._is_red = failures == "checks" or run.outcome is None or blocks(run)

    def allow(self, check_id: str | None, case: _Case) -> _Case:
        """Return the test case, skipped if it failed and the verdict does not rest on it."""
        if case.kind not in ("failure", "error"):
            return case
        if self._is_red and (self._all or check_id is None or check_id in self._checks):
            return case
        words = "failed" if case.kind == "failure" else "error"
        return _Case(case.name, "skipped", case.seconds, f"{words}, which the gate allows: {case.message}", case.text)


def blocks(run: RunRecord) -> bool:
    """Return whether a run stops a release; verdicts that do not say so block unless they are a pass."""
    verdict = run.verdict or {}
    return bool(verdict.get("blocks", run.outcome != "pass")) or run.outcome == "fail"


def _rules(run: RunRecord) -> Iterator[_Case]:
    """Yield the gate's rules; the gate as a whole if a verdict lists none; why there is no verdict."""
    if run.outcome is None:
        yield _Case("verdict", "error", message=f"no verdict: the run is {run.status}", text=run.error or "")
        return
    verdict = run.verdict
    rules = verdict.get("rules", ())
    if rules and (run.outcome == "pass" or any(rule["outcome"] == run.outcome for rule in rules)):
        for rule in rules:
            yield _Case(rule["rule"], _kind(run, rule["outcome"]), message=rule["reason"])
    else:
        reasons = "\n".join(verdict["reasons"])
        yield _Case(verdict["gate"], _kind(run, run.outcome), message=_decided(run), text=reasons)


def _decided(run: RunRecord) -> str:
    """Return the reason that decided."""
    return str((run.verdict["reasons"] or [run.verdict["gate"]])[0])


def _kind(run: RunRecord, outcome: str) -> Kind:
    if outcome == "pass":
        return "passed"
    if outcome == "fail":
        return "failure"
    return "error" if blocks(run) else "skipped"


def _call(name: str, result: CaseResult) -> _Case:
    if result.output is None:
        return _Case(name, "skipped", message="the run did not get to it")
    seconds = seconds_of(result.output)
    if result.output.failure is None:
        return _Case(name, "passed", seconds)
    message = str(result.output.failure["message"])
    return _Case(name, "error", seconds, message, "\n".join([*_given(result), *_attempts(result.output)]))


def _checks(name: str, result: CaseResult, shared: Sequence[str]) -> Iterator[tuple[str, _Case]]:
    checks = {check.check_id: check for check in result.checks}
    for check_id in dict.fromkeys([*declared_check_ids(result.case, shared), *checks]):
        check = checks.get(check_id)
        if result.output is None or check is None:
            what = "the run did not get to it" if result.output is None else "the check was not run"
            yield check_id, _Case(name, "skipped", message=what)
        elif result.output.failure is not None and check.error is not None:
            yield check_id, _Case(name, "skipped", message=f"no output to check: {result.output.failure['message']}")
        else:
            yield check_id, _check(name, result, check)


def _check(name: str, result: CaseResult, check: CheckResult) -> _Case:
    seconds = float((check.metadata or {}).get("execution_time_ms") or 0) / 1000
    if check.status == "skip":
        return _Case(name, "skipped", seconds, "the check was skipped")
    if check.error is None and check.passed is not False:
        score = score_of(check) if check.passed is None else None
        return _Case(name, "passed", seconds, score=score)
    why = explain(check)
    context = [*_given(result), f"output: {as_json(result.output.value if result.output else None, MAX_VALUE)}"]
    return _Case(
        name,
        "failure" if check.error is None else "error",
        seconds,
        why,
        "\n".join([why, *findings(check, MAX_VALUE), *context]),
    )


def _given(result: CaseResult) -> list[str]:
    properties = [f"input: {as_json(result.case.input, MAX_VALUE)}"]
    if "expected" in result.case.model_fields_set:
        properties.append(f"expected: {as_json(result.case.expected, MAX_VALUE)}")
    return properties


def _attempts(output: Output) -> Iterator[str]:
    for number, attempt in enumerate((output.metadata or {}).get("attempt_log") or (), 1):
        cause = (attempt.get("error") or {}).get("message", "answered")
        yield f"attempt {number}, {attempt.get('latency_ms', '?')} ms: {cause}"


def seconds_of(output: Output | None) -> float:
    """Return how long the target was asked, all attempts together."""
    metadata = (output.metadata if output else None) or {}
    attempts = metadata.get("attempt_log") or [metadata]
    return float(sum(attempt.get("latency_ms") or 0 for attempt in attempts)) / 1000


def _add(run: RunRecord, suite: _Suite, case: _Case) -> None:
    """Write a test case; all of it is text of others."""
    suite.counts[case.kind] += 1
    suite.seconds += case.seconds
    element = ElementTree.Element(
        "testcase",
        classname=printable(f"{run.name}.{suite.name.removeprefix('check ')}"),
        name=printable(case.name),
        time=f"{case.seconds:.3f}",
    )
    if case.kind != "passed":
        attributes = {"message": printable(" ".join(case.message.split()))}
        if case.kind != "skipped":
            attributes["type"] = case.kind
        detail = ElementTree.SubElement(element, case.kind, attributes)
        detail.text = printable(case.text) or None
    elif case.score is not None:
        ElementTree.SubElement(element, "system-out").text = f"score {case.score:g}: neither pass nor fail"
    suite.file.write(ElementTree.tostring(element, encoding="unicode") + "\n")


def _write_suites(store: Store, run: RunRecord, suites: Sequence[_Suite], file: TextIO) -> None:
    totals = sum((suite.counts for suite in suites), Counter[str]())
    seconds = sum(suite.seconds for suite in suites)
    whole = {"name": run.name, **_counts(totals), "time": f"{seconds:.3f}"}
    del whole["skipped"]  # schemas know it of a suite only
    file.write(f"<?xml version='1.0' encoding='utf-8'?>\n<testsuites {_attributes(whole)}>\n")
    stamp = (run.started_at or run.created_at).strftime("%Y-%m-%dT%H:%M:%S")
    for suite in suites:
        attributes = {"name": suite.name, **_counts(suite.counts), "time": f"{suite.seconds:.3f}", "timestamp": stamp}
        file.write(f"<testsuite {_attributes(attributes)}>\n")
        if suite.name == "verdict":
            file.write(ElementTree.tostring(_properties(store, run), encoding="unicode") + "\n")
        suite.file.seek(0)
        shutil.copyfileobj(suite.file, file)
        if suite.name == "verdict":
            summary = ElementTree.Element("system-out")
            summary.text = printable("\n".join(_summary(store, run)))
            file.write(ElementTree.tostring(summary, encoding="unicode") + "\n")
        file.write("</testsuite>\n")
    file.write("</testsuites>\n")


def _counts(counts: Counter[str]) -> dict[str, str]:
    """Return the counts of a suite as attributes; each of its tests has one kind."""
    kinds = {"failures": "failure", "errors": "error", "skipped": "skipped"}
    return {"tests": str(counts.total()), **{name: str(counts[kind]) for name, kind in kinds.items()}}


def _attributes(attributes: dict[str, str]) -> str:
    return " ".join(f"{name}={quoteattr(printable(value))}" for name, value in attributes.items())


def _properties(store: Store, run: RunRecord) -> ElementTree.Element:
    properties: dict[str, Any] = {"run": run.id, "outcome": run.outcome or "", "status": run.status}
    if looks := (run.verdict or {}).get("looks"):
        properties["looks"] = looks["summary"]
    properties |= {f"judge.{judge.check_id}": judge.sentence() for judge in reliability_of_judges(store, run)}
    element = ElementTree.Element("properties")
    for name, value in properties.items():
        ElementTree.SubElement(element, "property", name=printable(f"fepflow.{name}"), value=printable(value))
    return element


def _summary(store: Store, run: RunRecord) -> Iterator[str]:
    verdict = run.verdict or {}
    yield f"{(run.outcome or run.status).upper()}: {_decided(run) if verdict else run.error or 'no verdict'}"
    if verdict:
        yield f"gate: {verdict['gate']}"
    yield from verdict.get("reasons", ())[1:]
    yield from (f"warning: {warning}" for warning in verdict.get("warnings", ()))
    if not_judged := verdict.get("not_judged"):
        yield f"not judged: {', '.join(not_judged)}"
    yield from causes_of(store, run).lines()
    yield f"All of it: fepflow show {run.id[:8]} --failed"
