"""Small projects on which pytest itself is run: the tests of evaluations as pytest tests."""

from __future__ import annotations

import re

# Loaded here, this and those of ours are not loaded anew for each of the sessions that run in this process.
import statistics  # noqa: F401
import textwrap
from collections.abc import Iterable

import pytest
import ruamel.yaml  # noqa: F401

import fepflow.analysis.recorded_runs
import fepflow.checks.contains
import fepflow.checks.exact_match
import fepflow.checks.threshold
import fepflow.pytest.decorator  # noqa: F401

HEAD = """
import asyncio
import pytest
from fepflow import Check, ContainsCheck, ExactMatchCheck, Output, TestCase, ThresholdCheck
from fepflow.pytest import evaluate

CASES = [
    TestCase(id="france", input="What is the capital of France?", expected="Paris"),
    TestCase(id="japan", input="What is the capital of Japan?", expected="Tokyo"),
]
CHECKS = [ContainsCheck(text="$.output.value", phrases="$.test_case.expected")]
"""


# None is what is tested; the second one is loaded anew by every session, and the third one takes longer than all else.
WITHOUT = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-p", "no:schemathesis")


class Project:
    """A folder with tests, on which pytest is run."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        self.folder = pytester.path
        pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\nfilterwarnings = default\n")

    def write(self, code: str, name: str = "test_agent") -> None:
        self.pytester.makepyfile(**{name: HEAD + textwrap.dedent(code)})

    def run(self, code: str, *options: str) -> pytest.RunResult:
        """pytest in this process."""
        self.write(code)
        # What other tests in this process have imported is no business of this one.
        ours = ("-W", "ignore:Module already imported:pytest.PytestAssertRewriteWarning")
        return self.pytester.runpytest_inprocess(*WITHOUT, *ours, *options)

    def run_each(self, codes: Iterable[str]) -> tuple[list[str], list[str]]:
        """pytest once, on a file for each of these: the characters of its tests' outcomes, and the text of its error at
        collection."""
        written = list(codes)
        for number, code in enumerate(written):
            self.write(code, f"test_{number:02}")
        text = text_of(self.run(""))
        outcomes = dict(re.findall(r"^test_(\d\d)\.py (\S+)", text, re.MULTILINE))
        errors = dict(re.findall(r"ERROR collecting test_(\d\d)\.py _+\n(.*?)(?=\n_+ |\n=+ )", text, re.DOTALL))
        names = [f"{number:02}" for number in range(len(written))]
        return [outcomes.get(name, "") for name in names], [errors.get(name, "") for name in names]

    def run_alone(self, code: str, *options: str) -> pytest.RunResult:
        """pytest in a process of its own."""
        self.write(code)
        return self.pytester.runpytest_subprocess(*WITHOUT, *options)


def text_of(result: pytest.RunResult) -> str:
    return "\n".join(result.outlines)
