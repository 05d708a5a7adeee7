"""Reports in JUnit's XML, as their readers take them."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

JUNIT_COUNTS = {"failures": "failure", "errors": "error", "skipped": "skipped"}
JUNIT_SECONDS = r"[0-9]+\.[0-9]{3}"


class JunitSuite:
    """One suite of a report in JUnit's XML."""

    def __init__(self, element: ElementTree.Element) -> None:
        self.element = element
        self.counts = {name: int(element.attrib[name]) for name in ("tests", "failures", "errors", "skipped")}

    @property
    def outcomes(self) -> dict[str, str]:
        """Each test case's outcome: passed, failure, error or skipped."""
        cases = self.element.findall("testcase")
        return {case.attrib["name"]: next((child.tag for child in case), "passed") for case in cases}

    def said(self, name: str) -> str:
        """Message and text of a test case that did not pass."""
        case = next(case for case in self.element.findall("testcase") if case.attrib["name"] == name)
        return f"{case[0].attrib['message']}\n{case[0].text or ''}"


def suites_of(path: Path) -> dict[str, JunitSuite]:
    """The suites by name, after everything that readers rely on was looked at."""
    root = ElementTree.parse(path).getroot()
    assert root.tag == "testsuites"
    assert set(root.attrib) == {"name", "tests", "failures", "errors", "time"}
    suites = list(root)
    assert {suite.tag for suite in suites} == {"testsuite"}
    for total in ("tests", "failures", "errors"):
        assert int(root.attrib[total]) == sum(int(suite.attrib[total]) for suite in suites)
    for suite in suites:
        _look_at_suite(suite)
    names = [suite.attrib["name"] for suite in suites]
    assert len(set(names)) == len(names)
    return {name: JunitSuite(suite) for name, suite in zip(names, suites, strict=True)}


def _look_at_suite(suite: ElementTree.Element) -> None:
    assert set(suite.attrib) == {"name", "tests", "failures", "errors", "skipped", "time", "timestamp"}
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", suite.attrib["timestamp"])
    assert re.fullmatch(JUNIT_SECONDS, suite.attrib["time"])
    order = [child.tag for child in suite]
    assert order == sorted(order, key=["properties", "testcase", "system-out"].index)
    cases = suite.findall("testcase")
    assert int(suite.attrib["tests"]) == len(cases)
    for attribute, tag in JUNIT_COUNTS.items():
        assert int(suite.attrib[attribute]) == len(suite.findall(f"testcase/{tag}")), attribute
    assert len({case.attrib["name"] for case in cases}) == len(cases)
    for case in cases:
        assert set(case.attrib) == {"name", "classname", "time"}
        assert case.attrib["name"]
        assert re.fullmatch(JUNIT_SECONDS, case.attrib["time"])
        assert len(case) <= 1
        for outcome in case:
            assert outcome.tag in JUNIT_COUNTS.values()
            assert outcome.attrib["message"]
            assert "\n" not in outcome.attrib["message"]
            assert set(outcome.attrib) == ({"message"} if outcome.tag == "skipped" else {"message", "type"})
