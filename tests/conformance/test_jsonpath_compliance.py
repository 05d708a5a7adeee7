"""Paths against our own cases, and against the compliance test suite of the JSONPath standard (RFC 9535)."""

import json
import os
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from fepflow.errors import JSONPathError
from fepflow.jsonpath.path import compile_path

OURS = YAML(typ="safe").load(Path(__file__).with_name("jsonpath_cases.yaml").read_text(encoding="utf-8"))
TEST_DATA = os.environ.get("FEPFLOW_TEST_DATA")
SUITE_SIZE = 703


def standard_cases():
    if not TEST_DATA:
        return []
    path = Path(TEST_DATA) / "data" / "jsonpath-compliance" / "cts.json"
    return json.loads(path.read_text(encoding="utf-8"))["tests"]


STANDARD = standard_cases()


def test_a_path_finds_what_our_cases_say(subtests):
    for case in OURS["cases"]:
        with subtests.test(case["path"]):
            if case.get("invalid"):
                with pytest.raises(JSONPathError):
                    compile_path(case["path"])
            else:
                found = compile_path(case["path"]).find(OURS["document"])
                assert json.dumps(found) == json.dumps(case["finds"])


@pytest.mark.skipif(not TEST_DATA, reason="FEPFLOW_TEST_DATA does not name the folder of the compliance suite")
def test_the_compliance_suite_is_there_whole():
    assert len(STANDARD) == SUITE_SIZE


@pytest.mark.skipif(not TEST_DATA, reason="FEPFLOW_TEST_DATA does not name the folder of the compliance suite")
def test_a_path_finds_what_the_standard_says():
    wrong = [case["name"] for case in STANDARD if not is_as_the_standard_says(case)]
    assert wrong == []


def is_as_the_standard_says(case):
    try:
        path = compile_path(case["selector"])
    except JSONPathError:
        return case.get("invalid_selector", False)
    if case.get("invalid_selector"):
        return False
    allowed = case["results"] if "results" in case else [case["result"]]
    return json.dumps(path.find(case["document"])) in [json.dumps(result) for result in allowed]
