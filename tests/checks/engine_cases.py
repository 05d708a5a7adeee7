"""Cases, checks and results, as the tests of the engine need them."""

from fepflow.protocol.check import Check
from fepflow.protocol.test_case import TestCase

SAME = Check(type="exact_match", arguments={"actual": "$.output.value", "expected": "$.test_case.expected"})
BROKEN = Check(type="regex", arguments={"pattern": "("})


def says(text, **more):
    return Check(type="contains", arguments={"text": "$.output.value", "phrases": text}, **more)


def capital(id="case", **more):
    return TestCase(id=id, input="What is the capital of France?", expected="Paris", **more)


def results_of(result, index=0):
    return [(item.check_id, item.status, item.results.get("passed")) for item in result.results[index].check_results]
