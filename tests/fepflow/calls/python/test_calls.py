"""What a function of the user's own is called with, and what becomes of what it returns or raises."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from fepflow.errors import TargetError
from fepflow.protocol.test_case import TestCase

from .conftest import CASE, Ask, Open, value_of

pytestmark = pytest.mark.may_stall(reason="runs open targets in a thread, which tests do not")

KINDS = {
    "function": "def answer(question):\n    return f'asked: {question}'\n",
    "async": "import asyncio\nasync def answer(q):\n    await asyncio.sleep(0)\n    return f'asked: {q}'\n",
    "generator": "def answer(question):\n    yield 'asked: '\n    yield question\n",
    "async generator": "async def answer(question):\n    yield 'asked: '\n    yield question\n",
    "class": "class answer:\n    def __call__(self, question):\n        return f'asked: {question}'\n",
    "async class": "class answer:\n    async def __call__(self, question):\n        return f'asked: {question}'\n",
    "decorated": (
        "import functools\n"
        "def traced(function):\n"
        "    @functools.wraps(function)\n"
        "    def wrapper(*args):\n        return function(*args)\n"
        "    return wrapper\n"
        "@traced\ndef answer(question):\n    return f'asked: {question}'\n"
    ),
    "lambda": "answer = lambda question: f'asked: {question}'\n",
    "returns a coroutine": "async def inner(q):\n    return f'asked: {q}'\ndef answer(q):\n    return inner(q)\n",
}


EVERYWHERE = ["thread", pytest.param("process", marks=pytest.mark.battery), "interpreter"]
"""Places in which a function is called. A process runs the same code with the run's interpreter or another one."""


@pytest.mark.parametrize(
    ("kind", "isolate"),
    [
        *((kind, "thread") for kind in KINDS),
        ("function", "interpreter"),
        ("async generator", "interpreter"),
        pytest.param("function", "process", marks=pytest.mark.battery),
        pytest.param("async generator", "process", marks=pytest.mark.battery),
    ],
)
async def test_each_kind_of_callable_answers(ask: Ask, kind: str, isolate: str) -> None:
    assert value_of(await ask(KINDS[kind], isolate=isolate)) == "asked: What is 6 * 7?"


@pytest.mark.parametrize("isolate", ["thread", "interpreter"])
async def test_returned_values_become_json(open_agent: Open, isolate: str) -> None:
    code = (
        "from dataclasses import dataclass\n"
        "from datetime import date\n"
        "@dataclass\nclass Point:\n    x: int\n"
        + (
            "class Model:\n    def __init__(self, when):\n        self.when = when\n"
            '    def model_dump_json(self):\n        return \'{"when": "%s"}\' % self.when\n'
            if isolate == "interpreter"
            else "from pydantic import BaseModel\nclass Model(BaseModel):\n    when: date\n"
        )
        + "def answer(kind):\n"
        "    return {'text': 'é\\x00\\ud800', 'dict': {1: (2, 3)}, 'none': None, 'number': 1.5, 'flag': True,\n"
        "            'dataclass': Point(1), 'model': Model(when=date(2026, 1, 2)), 'set': {1}, 'bytes': b'ab',\n"
        "            'nested': [Point(2)], 'nan': float('nan')}[kind]\n"
    )
    expected = {
        "text": "é\x00\ud800", "dict": {"1": [2, 3]}, "none": None, "number": 1.5, "flag": True,
        "dataclass": {"x": 1}, "model": {"when": "2026-01-02"}, "set": [1], "bytes": "ab", "nested": [{"x": 2}],
    }  # fmt: skip
    _, caller = open_agent(code, isolate=isolate, concurrency=1)
    for kind, value in expected.items():
        assert value_of(await caller.ask(TestCase(id=kind, input=kind))) == value
    assert str(value_of(await caller.ask(TestCase(id="nan", input="nan")))) == "nan"


async def test_an_output_carries_metadata_and_paths_pick_from_what_is_returned(ask: Ask) -> None:
    code = "from fepflow import Output\ndef answer(q):\n    return Output(value={'a': 4}, metadata={'tokens': 7})\n"
    asked = await ask(code)
    assert (asked.response.value, asked.response.metadata) == ({"a": 4}, {"tokens": 7})
    asked = await ask(code, output="$.a", metadata={"whole": "$"})
    assert (asked.response.value, asked.response.metadata) == (4, {"tokens": 7, "whole": {"a": 4}})
    asked = await ask(code, output="$.b")
    assert (asked.error.kind, asked.error.retryable) == ("missing_output", False)
    assert "nothing at $.b" in str(asked.error)
    assert "the keys a" in str(asked.error)
    asked = await ask(code.replace("tokens", "latency_ms"))
    assert "latency_ms in the metadata of an Output is set by fepflow" in str(asked.error)


@pytest.mark.parametrize("isolate", EVERYWHERE)
async def test_a_value_without_a_json_form_is_an_error(ask: Ask, isolate: str) -> None:
    asked = await ask("class Reply: pass\ndef answer(q):\n    return [Reply()]\n", isolate=isolate)
    assert isinstance(asked.error, TargetError)
    assert (asked.error.kind, asked.error.retryable) == ("malformed", False)
    assert "no JSON form: Unable to serialize unknown type: <class 'agent.Reply'>" in str(asked.error)


@pytest.mark.parametrize("isolate", EVERYWHERE)
async def test_an_answer_that_is_too_large_or_endless_is_refused(open_agent: Open, isolate: str) -> None:
    code = (
        "def endless(chunk):\n    while True: yield chunk\n"
        "def answer(q):\n    return 'x' * 200_000 if q == 'large' else endless(q)\n"
    )
    _, caller = open_agent(code, isolate=isolate, max_bytes=100_000, timeout=20, concurrency=1)
    for question in ("large", "x" * 1000, None, ""):
        asked = await caller.ask(TestCase(id="c", input=question))
        assert (asked.error.kind, asked.error.retryable) == ("too_large", False)
        assert "100,000 bytes (target.python.max_bytes)" in str(asked.error)


@pytest.mark.parametrize(
    ("signature", "returned", "options", "expected"),
    [
        ("(test_case)", "test_case.id + test_case.expected", {}, "c142"),
        ("(question, test_case)", "[question, test_case.metadata['topic']]", {}, ["What is 6 * 7?", "sums"]),
        ("(test_case, question)", "[question, test_case.id]", {}, ["What is 6 * 7?", "c1"]),
        ("(question, *, test_case)", "[question, test_case.id]", {}, ["What is 6 * 7?", "c1"]),
        ("(question, temperature=0, test_case=None)", "[question, test_case.id]", {}, ["What is 6 * 7?", "c1"]),
        ("(*args)", "list(args)", {}, ["What is 6 * 7?"]),
        ("(question, /)", "question", {"input": {"q": "$.test_case.id"}}, {"q": "c1"}),
        ("(a, b)", "[a, b]", {"arguments": {"a": "$.test_case.input", "b": 1}}, ["What is 6 * 7?", 1]),
        ("(a, test_case)", "[a, test_case.id]", {"arguments": {"a": 1}}, [1, "c1"]),
        ("(**kw)", "kw", {"arguments": {"a": "$.test_case.id"}}, {"a": "c1"}),
        ("(*, test_case)", "test_case.id", {}, "c1"),
    ],
)
@pytest.mark.parametrize("isolate", ["thread", pytest.param("interpreter", marks=pytest.mark.battery)])
async def test_the_signature_decides_the_arguments(
    ask: Ask, signature: str, returned: str, options: dict[str, Any], expected: Any, isolate: str
) -> None:
    code = f"def answer{signature}:\n    return {returned}\n"
    assert value_of(await ask(code, **options, isolate=isolate)) == expected


async def test_a_function_cannot_change_the_test_case(ask: Ask) -> None:
    case = TestCase(id="c", input={"list": [1]}, metadata={"a": [1]})
    code = "def answer(q, test_case):\n    q['list'].append(2)\n    test_case.metadata['a'].append(2)\n    return q\n"
    assert value_of(await ask(code, case=case)) == {"list": [1, 2]}
    assert (case.input, case.metadata) == ({"list": [1]}, {"a": [1]})


async def test_a_class_has_one_instance_made_when_it_is_first_called(open_agent: Open) -> None:
    code = (
        "class Agent:\n"
        "    made = 0\n"
        "    def __init__(self, model='small'):\n        Agent.made += 1\n"
        "    def __call__(self, q):\n        return Agent.made\n"
        "    async def other(self, q):\n        return 'other'\n"
        "    @staticmethod\n    def plain(q):\n        return Agent.made\n"
        "agent = Agent()\nAgent.made = 0\n"
    )
    _, caller = open_agent(code, "agent.py:Agent")
    asked = await asyncio.gather(*(caller.ask(CASE) for _ in range(20)))
    assert [value_of(one) for one in asked] == [1] * 20
    for function, answer in {"Agent.other": "other", "Agent.plain": 0, "agent": 0, "agent.other": "other"}.items():
        assert value_of(await open_agent(f"{code}# {function}\n", f"agent.py:{function}")[1].ask(CASE)) == answer


async def test_sync_functions_run_concurrently_without_blocking_the_loop(open_agent: Open) -> None:
    code = (
        "import threading\nbarrier = threading.Barrier(8, timeout=20)\ndef answer(q):\n    return barrier.wait() >= 0\n"
    )
    _, caller = open_agent(code, concurrency=8)
    assert all(value_of(asked) for asked in await asyncio.gather(*(caller.ask(CASE) for _ in range(8))))


async def test_clients_that_async_calls_share_stay_in_one_loop(open_agent: Open) -> None:
    code = "import asyncio\nloops = set()\n"
    code += "async def answer(q):\n    loops.add(asyncio.get_running_loop())\n    return len(loops)\n"
    _, caller = open_agent(code)
    assert {value_of(asked) for asked in await asyncio.gather(*(caller.ask(CASE) for _ in range(9)))} == {1}
    assert value_of(await caller.ask(CASE)) == 1


@pytest.mark.parametrize("isolate", EVERYWHERE)
async def test_an_exception_is_an_error_of_the_case(open_agent: Open, isolate: str) -> None:
    _, caller = open_agent("def answer(q):\n    raise eval(q)\n", isolate=isolate, concurrency=1)
    for raised, says, retryable in (
        ("ValueError('no such  order')", "ValueError: no such order (agent.py:2)", True),
        ("ConnectionError()", "ConnectionError (agent.py:2)", True),
        ("KeyError('a')", "KeyError: 'a' (agent.py:2)", False),
        ("SystemExit(3)", "SystemExit: 3 (agent.py:2)", False),
        ("KeyboardInterrupt()", "KeyboardInterrupt (agent.py:2)", False),
        ("ExceptionGroup('', [ExceptionGroup('', [KeyError('a')])])", "KeyError: 'a' (agent.py:2)", False),
        (
            "ExceptionGroup('', [OSError('a'), KeyError('b')])",
            "OSError: a (the first of 2 exceptions) (agent.py:2)",
            True,
        ),
    ):
        asked = await caller.ask(TestCase(id="c", input=raised))
        assert (str(asked.error), asked.error.kind, asked.error.retryable) == (says, "exception", retryable)


async def test_cancelled_inside_of_an_agent_does_not_cancel_the_run(ask: Ask) -> None:
    for code in ("async def answer(q):\n", "def answer(q):\n"):
        asked = await ask(f"import asyncio\n{code}    raise asyncio.CancelledError()\n")
        assert "CancelledError" in str(asked.error)


async def test_the_location_is_the_users_own_line_also_when_a_library_raises(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "helpers.py").write_text("import json\ndef parse(text):\n    return json.loads(text)\n")
    asked = await ask("from helpers import parse\ndef answer(q):\n    return parse('{')\n")
    assert str(asked.error).endswith("(helpers.py:3)")


@pytest.mark.parametrize("isolate", ["thread", "interpreter"])
async def test_the_reported_status_decides_whether_to_retry(open_agent: Open, isolate: str) -> None:
    code = (
        "class Refused(Exception):\n    def __init__(self, status):\n        self.status_code = status\n"
        "def answer(q):\n    raise Refused(q)\n"
    )
    _, caller = open_agent(code, isolate=isolate, concurrency=1)
    for status, retryable in {401: False, 400: False, 429: True, 503: True}.items():
        asked = await caller.ask(TestCase(id="c", input=status))
        assert (asked.error.status, asked.error.retryable) == (status, retryable)


async def test_a_flaky_function_is_tried_again_and_every_attempt_is_recorded(ask: Ask) -> None:
    code = "tries = []\ndef answer(q):\n    tries.append(q)\n"
    code += "    if len(tries) < 3:\n        raise OSError('busy')\n    return 'ok'\n"
    asked = await ask(code, attempts=3)
    assert value_of(asked) == "ok"
    assert [str(attempt.error) for attempt in asked.attempts] == ["OSError: busy (agent.py:5)"] * 2 + ["None"]


@pytest.mark.parametrize("isolate", EVERYWHERE)
async def test_secrets_of_the_environment_are_in_no_answer_and_no_error(
    open_agent: Open, isolate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_API_KEY", "sk-1234567890")
    code = (
        "import os\nkey = os.environ['AGENT_API_KEY']\ndef answer(q):\n"
        "    if q == 'raise':\n        raise ValueError(f'401 with {key}')\n"
        "    if q == 'exit':\n        print('x' * 260, key, flush=True)\n        os._exit(1)\n"
        "    return {'key': key}\n"
    )
    _, caller = open_agent(code, isolate=isolate, concurrency=1)
    assert value_of(await caller.ask(CASE)) == {"key": "***"}
    asked = await caller.ask(TestCase(id="c", input="raise"))
    assert "ValueError: 401 with ***" in str(asked.error)
    if isolate != "thread":
        asked = await caller.ask(TestCase(id="c", input="exit"))
        assert "exit code 1" in str(asked.error)
        assert "xxx ***" in str(asked.error)
        assert "67890" not in str(asked.error)
