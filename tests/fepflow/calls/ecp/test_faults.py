"""Agents that do what none should: each is a truthful error of its step, and the other scenarios go on."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from fepflow.calls.ecp.protocol import step_result
from fepflow.errors import TargetError

from .bad_steps import at_bad
from .conftest import Open, metadata_of, run, said

FAULTS: dict[str, tuple[str, str, str, bool]] = {
    "crash in mid-run": (
        at_bad('print("out of luck", file=sys.stderr); sys.exit(3)'),
        r"the agent exited with code 3; the end of its stderr: out of luck",
        "crashed",
        True,
    ),
    "killed": (
        at_bad("os.kill(os.getpid(), 9)"),
        r"the agent was killed by SIGKILL, perhaps for want of memory",
        "crashed",
        True,
    ),
    "clean end": (at_bad("sys.exit()"), r"the agent exited with code 0", "crashed", True),
    "half an answer": (
        at_bad("""os.write(1, b'{"jsonrpc": "2.0", "id": 3, "resu'); sys.exit(1)"""),
        r"the agent exited with code 1",
        "crashed",
        True,
    ),
    "closed stdout": (
        at_bad("os.close(1); time.sleep(1000)"),
        r"the agent closed its stdout",
        "crashed",
        True,
    ),
    "a line of more than the limit": (
        at_bad("print('x' * 1_100_000, flush=True); time.sleep(1000)"),
        r"the agent wrote more than 1,000,000 bytes without an answer \(target\.ecp\.max_bytes\)",
        "too_large",
        False,
    ),
    "an answer of more than the limit": (
        at_bad("answer(request, done('x' * 1_100_000))"),
        r"the agent wrote more than 1,000,000 bytes without an answer \(target\.ecp\.max_bytes\)",
        "too_large",
        False,
    ),
    "noise without end": (
        at_bad("while True: print('noise ' * 100)"),
        r"the agent wrote more than 1,000,000 bytes without an answer \(target\.ecp\.max_bytes\)",
        "too_large",
        False,
    ),
    "too many values": (
        at_bad("answer(request, done('', tool_calls=[0] * 240_000))"),
        r"the answer holds more than 200,000 JSON values",
        "too_large",
        False,
    ),
    "an error": (
        at_bad("refuse(request, -32000, 'ValueError: no such order')"),
        r"the agent answered with the error -32000: ValueError: no such order",
        "agent_error",
        False,
    ),
    "an error of overload": (
        at_bad("refuse(request, 429, 'slow down')"),
        r"the agent answered with the error 429: slow down",
        "agent_error",
        True,
    ),
    "an error without an id": (
        at_bad("say({'jsonrpc': '2.0', 'id': None, 'error': {'code': -32700, 'message': 'Parse error'}})"),
        r"the agent answered with the error -32700: Parse error",
        "agent_error",
        False,
    ),
    "an error that is none": (
        at_bad("say({'jsonrpc': '2.0', 'id': request['id'], 'error': 'oops'})"),
        r'the answer is an error without code and message: "oops"',
        "malformed",
        False,
    ),
    "neither result nor error": (
        at_bad("say({'jsonrpc': '2.0', 'id': request['id'], 'error': None})"),
        r"the answer has neither a result nor an error",
        "malformed",
        False,
    ),
    "nothing but an id": (
        at_bad("say({'jsonrpc': '2.0', 'id': request['id']}); time.sleep(1000)"),
        r"the answer has neither a result nor an error",
        "malformed",
        False,
    ),
    "a number that is no JSON": (
        at_bad("answer(request, done('', usage={'input_tokens': float('nan')})); time.sleep(1000)"),
        r"the answer is not valid JSON: .*NaN.*",
        "malformed",
        False,
    ),
    "both result and error": (
        at_bad("say({'jsonrpc': '2.0', 'id': request['id'], 'result': 1, 'error': {'code': 1, 'message': ''}})"),
        r"the answer has both a result and an error",
        "malformed",
        False,
    ),
    "a result that is no object": (
        at_bad("answer(request, 'fine')"),
        r"the result is a text, and not an object with status and public_output",
        "malformed",
        False,
    ),
}


@pytest.mark.parametrize(("code", "message", "kind", "retryable"), FAULTS.values(), ids=FAULTS)
async def test_a_fault_is_the_error_of_its_step_and_the_rest_goes_on(
    open_agent: Open, code: str, message: str, kind: str, retryable: bool
) -> None:
    _, client = open_agent(code, max_bytes=1_000_000)
    bad, good = await asyncio.gather(run(client, "good", "bad", "good"), run(client, "good", "good"))
    error = metadata_of(bad)["error"]
    assert re.fullmatch(f"step 2 of 3: .*{message}.*", error["message"]), error["message"]
    assert (error["kind"], error["recoverable"], error["partial"]) == (kind, retryable, True)
    assert said(bad) == ["fine"], "the step before stays"
    assert "completed" not in metadata_of(bad)
    assert (said(good), metadata_of(good)["completed"]) == (["fine", "fine"], 2)


RESULTS: dict[str, Any] = {
    "the result is a text, and not an object with status and public_output": "fine",
    "the result's status is 'failed', and not done or paused": {"status": "failed"},
    "the result's public_output is an object with the keys text, and not a text or null": {
        "status": "done",
        "public_output": {"text": "fine"},
    },
    "the result's tool_calls[1] is not an object with a name": {
        "status": "done",
        "tool_calls": [{"name": "a"}, {"arguments": {}}],
    },
    **{
        f"the result's usage.{name} is {value!r}, and not {wanted} from 0 on": {
            "status": "done",
            "usage": {name: value},
        }
        for name, value, wanted in (
            ("input_tokens", -5, "a whole number"),
            ("output_tokens", 1.5, "a whole number"),
            ("total_tokens", "12", "a whole number"),
            ("input_tokens", True, "a whole number"),
            ("cached_tokens", [], "a whole number"),
            ("cost_usd", -0.5, "a number"),
            ("usd", "1", "a number"),
            ("seconds", -1, "a number"),
        )
    },
}


def test_a_result_that_does_not_fit_is_malformed(subtests: pytest.Subtests) -> None:
    for message, result in RESULTS.items():
        with subtests.test(message), pytest.raises(TargetError) as refused:
            step_result(result)
        assert (str(refused.value), refused.value.kind, refused.value.retryable) == (message, "malformed", False)
    with pytest.raises(TargetError, match=r"usage\.total_tokens is 10{20,}.*, and not a whole number from 0 on"):
        step_result({"status": "done", "usage": {"total_tokens": 10**400}})


STARTS = {
    "crash": (
        "sys.exit('no key')",
        r"agent/initialize: the agent exited with code 1; the end of its stderr: no key",
        True,
    ),
    "hang": (
        "def initialize(request):\n    time.sleep(1000)",
        r"no complete answer within 1 s \(target\.timeout\)",
        True,
    ),
    "refusal": (
        "def initialize(request):\n    refuse(request, -32000, 'no key')",
        r"agent/initialize: the agent answered with the error -32000: no key",
        False,
    ),
    "no object": (
        "def initialize(request):\n    answer(request, ['echo'])",
        r"agent/initialize: the result is a list of 1, and not an object with name and capabilities",
        False,
    ),
}


@pytest.mark.parametrize(("code", "message", "retryable"), STARTS.values(), ids=STARTS)
async def test_a_fault_at_the_start_is_an_error_before_the_first_step(
    open_agent: Open, code: str, message: str, retryable: bool
) -> None:
    _, client = open_agent(f"print('starting', flush=True)\n{code}", timeout=1 if "1 s" in message else 60)
    output = await run(client, "good", "good")
    error = metadata_of(output)["error"]
    assert re.fullmatch(f"before step 1 of 2: {message}", error["message"]), error["message"]
    assert (output.value, error["recoverable"], "partial" in error) == (None, retryable, False)
    assert metadata_of(output)["steps"] == 2
    assert metadata_of(output)["log_tail"]["stdout"] == "starting\n"


async def test_a_retry_begins_the_scenario_anew_in_another_process(open_agent: Open) -> None:
    code = at_bad("""
    if os.path.exists("crashed"):
        return answer(request, done(str(os.getpid())))
    open("crashed", "w").close()
    sys.exit(1)""")
    _, client = open_agent(code, attempts=2)
    asked = await run(client, "good", "bad")
    assert said(asked)[0] == "fine"
    assert metadata_of(asked)["attempts"] == 2
    assert metadata_of(asked)["attempt_log"][0]["error"]["message"] == "step 2 of 2: the agent exited with code 1"


async def test_what_a_bad_usage_says_is_in_no_metadata(open_agent: Open) -> None:
    code = at_bad("answer(request, done('', usage={'input_tokens': -1_000, 'output_tokens': 7}))")
    code = code.replace('done("fine")', 'done("fine", usage={"input_tokens": 2.0, "output_tokens": 3})')
    _, client = open_agent(code)
    metadata = metadata_of(await run(client, "good", "bad"))
    assert metadata["usage"] == {"input_tokens": 2, "output_tokens": 3}
    assert metadata["tokens"] == 5


async def test_a_fault_that_no_retry_mends_is_not_tried_again(open_agent: Open) -> None:
    _, client = open_agent(at_bad("open('calls', 'a').write('.'); refuse(request, -32000, 'no')"), attempts=3)
    output = await run(client, "bad")
    assert metadata_of(output)["attempts"] == 1


async def test_a_crash_after_the_last_answer_is_no_fault_of_a_step(open_agent: Open) -> None:
    _, client = open_agent(at_bad("answer(request, done('last')); sys.exit(3)"), reuse=True, concurrency=1)
    assert said(await run(client, "bad")) == ["last"]
    assert said(await run(client, "good", "bad")) == ["fine", "last"], "the process that is gone is not used again"


async def test_a_crash_after_an_answer_is_the_fault_of_the_next_step(open_agent: Open) -> None:
    _, client = open_agent(at_bad("answer(request, done('here')); sys.exit(3)"))
    output = await run(client, "bad", "good")
    assert said(output) == ["here"]
    assert metadata_of(output)["error"]["message"] == "step 2 of 2: the agent exited with code 3"
