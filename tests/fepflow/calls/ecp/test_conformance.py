"""Agents that keep to the protocol, and for each fault one that has it: it is found, and no other."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from fepflow.calls.ecp.conformance import CHECKS, ConformanceReport, check_conformance
from fepflow.calls.ecp.target import target_of
from fepflow.errors import InputError

from .conftest import PYTHON, failed, processes_in, status_of

SUPPORT = Path(__file__).parents[4] / "deployments" / "suites" / "support"

AGENT = """\
import json, os, random, sys, time

VERSION, turns = "1.0", 0

def say(message):
    print(json.dumps(message), flush=True)

def initialize(params):
    if params.get("protocol_version", VERSION)[0] != VERSION[0]:
        raise LookupError(-32001)
    return {"name": "good", "protocol_version": VERSION, "capabilities": {"reset": {}}}

def step(params):
    global turns
    turns += 1
    calls = [{"name": "count", "arguments": {"by": 1}}]
    said = f"{turns}: {params['input'][:1000]}"
    return {"status": "done", "public_output": said, "tool_calls": calls, "usage": {"total_tokens": 3}}

def reset(params):
    global turns
    turns = 0
    return True

def parse(line):
    try:
        return json.loads(line)
    except ValueError:
        say({"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "parse"}})

def answer(request):
    methods = {"agent/initialize": initialize, "agent/step": step, "agent/reset": reset}
    head = {"jsonrpc": "2.0", "id": request.get("id")}
    try:
        if request["method"] not in methods:
            raise LookupError(-32601)
        say_to(request, {**head, "result": methods[request["method"]](request.get("params", {}))})
    except LookupError as error:
        say_to(request, {**head, "error": {"code": error.args[0], "message": "refused"}})

def say_to(request, message):
    if "id" in request:
        say(message)

%s

for line in sys.stdin:
    if (request := parse(line)) is not None:
        answer(request)
"""

STEP = "inner = step\ndef step(params):\n    result = inner(params)\n    %s\n    return result\n"
INITIALIZE = "inner = initialize\ndef initialize(params):\n    result = inner(params)\n    %s\n    return result\n"
SAID = "result['public_output']"

BAD = {
    "no name": (INITIALIZE % "del result['name']", {"initialize": "the result has no name"}),
    "no capabilities": (INITIALIZE % "del result['capabilities']", {"initialize": "the result has no capabilities"}),
    "a name that is no text": (INITIALIZE % "result['name'] = 5", {"initialize": "name is 5, and not a text"}),
    "an empty name": (INITIALIZE % "result['name'] = ''", {"initialize": 'name is "", and not a text'}),
    "capabilities that are null": (
        INITIALIZE % "result['capabilities'] = None",
        {"initialize": "capabilities is null, and not an object"},
    ),
    "a capability that is no object": (
        INITIALIZE % "result['capabilities'] = {'reset': True}",
        {"initialize": "the capability reset is true, and not an object"},
    ),
    "capabilities in a list": (
        INITIALIZE % "result['capabilities'] = ['reset']",
        {"initialize": "capabilities is a list of 1, and not an object"},
    ),
    "another major version": (
        INITIALIZE % "result['protocol_version'] = '2.0'",
        {"version": "the agent speaks protocol version 2.0, fepflow 1.0"},
    ),
    "a version that is a number": (INITIALIZE % "result['protocol_version'] = 1.0", {"version": "protocol_version is"}),
    "agrees to any version": (
        "def initialize(params):\n"
        "    return {'name': 'a', 'capabilities': {}, 'protocol_version': params['protocol_version']}\n",
        {"version": "it agrees to the version 99.0, which does not exist"},
    ),
    "unknown status": (STEP % "result['status'] = 'finished'", {"step": "the result's status is 'finished'"}),
    "output that is no text": (STEP % f"{SAID} = 5", {"step": "the result's public_output is a number"}),
    "calls in an object": (STEP % "result['tool_calls'] = {}", {"tool_calls": "tool_calls is not a list"}),
    "call without name": (
        STEP % "result['tool_calls'].append({'arguments': {}})",
        {"tool_calls": "tool_calls[1] is not an object with a name (and 7 more)"},
    ),
    "arguments in a text": (
        STEP % "result['tool_calls'][0]['arguments'] = '{}'",
        {"tool_calls": "the arguments of tool_calls[0] are not an object"},
    ),
    "negative usage": (STEP % "result['usage']['total_tokens'] = -1", {"usage": "usage.total_tokens is not a count"}),
    "usage in a list": (STEP % "result['usage'] = [1]", {"usage": "usage is not an object"}),
    "does not get further than one step": (
        STEP % "turns == 2 and not os.path.exists('ended') and (open('ended', 'w').close(), sys.exit('enough'))",
        {"two_steps": "no result: the agent exited with code 1; the end of its stderr: enough"},
    ),
    "refuses unknown params": (
        "inner = step\ndef step(params):\n    if len(params) > 1:\n        raise LookupError(-32602)\n"
        "    return inner(params)\n",
        {"unknown_params": 'no result: {"code": -32602, "message": "refused"}'},
    ),
    "another encoding": (
        STEP % f"{SAID} = {SAID}.encode().decode('latin-1')",
        {"unicode": "it came back damaged: "},
    ),
    "cannot take much": (
        STEP % "len(params['input']) < 100_000 or sys.exit('too long')",
        {"long_input": "no result: the agent exited with code 1; the end of its stderr: too long"},
    ),
    "reset gives nothing": (
        "inner = reset\ndef reset(params):\n    inner(params)\n",
        {"reset": "the answer is null"},
    ),
    "no reset": (
        "inner = reset\ndef reset(params):\n    raise LookupError(-32601)\n",
        {"reset": 'the answer is {"code": -32601, "message": "refused"}'},
    ),
    "reset does nothing": (
        "def reset(params):\n    return True\n",
        {"reset_effect": 'after a reset the step gives {"status": "done", "public_output": "3: hello"'},
    ),
    "another code": (
        "inner = say\ndef say(message):\n"
        "    inner(json.loads(json.dumps(message).replace('-32601', '-32000')))\n",
        {"unknown_method": 'the answer is {"code": -32000, "message": "refused"}'},
    ),
    "ends at what is no JSON": (
        "def parse(line):\n    return json.loads(line)\n",
        {"malformed_json": "after a line that is not JSON: the agent exited with code 1"},
    ),
    "answers notifications": (
        "def say_to(request, message):\n    say(message)\n",
        {"notification": 'it was answered with {"jsonrpc": "2.0", "id": null, "result": true}'},
    ),
    "ends at notifications": (
        "def say_to(request, message):\n    say({**message, 'id': request['id']})\n",
        {"notification": "after a request without id: the agent exited with code 1"},
    ),
    "ids in texts": (
        "inner = say\ndef say(message):\n    inner({**message, 'id': message['id'] and str(message['id'])})\n",
        {"ids": '1 was asked, and "1" answered (and '},
    ),
    "ids of its own": (
        "inner = say\ndef say(message):\n    inner({**message, 'id': message['id'] and 1})\n",
        {"ids": "2 was asked, and 1 answered"},
    ),
    "no version of JSON-RPC": (
        "inner = say\ndef say(message):\n    del message['jsonrpc']\n    inner(message)\n",
        {"json_rpc": "jsonrpc is null (and "},
    ),
    "an error of null beside the result": (
        "inner = say\ndef say(message):\n    inner({'error': None, **message})\n",
        {"json_rpc": "an answer has both result and error (and "},
    ),
    "prints": (STEP % "print('thinking about', params['input'][:5])", {"only_answers": "this came, too: thinking"}),
    "logs in JSON": (STEP % "say({'level': 'info'})", {"only_answers": 'this came, too: {"level": "info"}'}),
    "answers twice": (
        "inner = say\ndef say(message):\n    inner(message)\n    inner(message)\n",
        {"only_answers": ""},
    ),
    "starts once": (
        "os.path.exists('lock') and sys.exit('it runs already')\nopen('lock', 'w').close()\n",
        {"fresh_process": "the agent exited with code 1; the end of its stderr: it runs already"},
    ),
    "does not end": ("import atexit\natexit.register(time.sleep, 1000)\n", {"end_of_input": "it has to be ended by"}),
}  # fmt: skip


async def check(folder: Path, code: str, seconds: float = 60) -> ConformanceReport:
    (folder / "agent.py").write_text(AGENT % code, encoding="utf-8")
    report = await check_conformance(target_of(shlex.join([*PYTHON, "agent.py"])), folder, "hello", seconds)
    assert [check.name for check in report.checks] == list(CHECKS)
    assert processes_in(folder) == []
    return report


async def test_an_agent_that_keeps_to_the_protocol_passes_all(tmp_path: Path) -> None:
    report = await check(tmp_path, "sys.stderr.write('a log\\n' * 100_000)\n")
    assert status_of(report) == dict.fromkeys(CHECKS, "pass")
    assert (report.is_conformant, report.agent, report.protocol_version) == (True, "good", "1.0")
    assert report.capabilities == ["reset"]


async def test_the_example_keeps_to_the_protocol() -> None:
    report = await check_conformance(target_of(shlex.join([*PYTHON, "agent.py"])), SUPPORT, "hello", 60)
    assert status_of(report) == dict.fromkeys(CHECKS, "pass")


OFTEN = (
    "no name",
    "call without name",
    "negative usage",
    "cannot take much",
    "reset does nothing",
    "ids in texts",
    "prints",
)
"""Faults of all kinds; the others are for the battery, as each starts five processes."""


@pytest.mark.parametrize(
    "name", [name if name in OFTEN else pytest.param(name, marks=pytest.mark.battery) for name in BAD]
)
async def test_a_fault_is_found_and_no_other(tmp_path: Path, name: str) -> None:
    code, faults = BAD[name]
    report = await check(tmp_path, code)
    found = failed(report)
    assert found.keys() == faults.keys(), found
    for check_name, message in faults.items():
        assert found[check_name].startswith(message), found
    assert not report.is_conformant


async def test_an_agent_that_does_not_answer_a_method_is_given_up(tmp_path: Path) -> None:
    code = "inner = answer\ndef answer(request):\n    'unknown' in request['method'] or inner(request)\n"
    report = await check(tmp_path, code, seconds=2)
    assert failed(report) == {"unknown_method": "no answer within 2 s"}


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("sys.exit('no key')\n", "the agent exited with code 1; the end of its stderr: no key"),
        ("def initialize(params):\n    time.sleep(1000)\n", "no answer within 1 s"),
        ("def initialize(params):\n    raise LookupError(-32000)\n", '{"code": -32000, "message": "refused"}'),
        ("def initialize(params):\n    return 'hello'\n", '"hello"'),
    ],
)
async def test_without_a_start_nothing_else_is_tried(tmp_path: Path, code: str, why: str) -> None:
    report = await check(tmp_path, code, seconds=1 if "sleep" in code else 60)
    assert failed(report) == {"initialize": why}
    assert {status for name, status in status_of(report).items() if name != "initialize"} == {"skip"}


async def test_an_agent_that_takes_its_time_to_end_is_told_so(tmp_path: Path) -> None:
    report = await check(tmp_path, "import atexit\natexit.register(time.sleep, 2.5)\n")
    (end,) = [check for check in report.checks if check.name == "end_of_input"]
    assert (end.status, end.message.startswith("after "), report.is_conformant) == ("pass", True, True)


async def test_an_agent_that_writes_without_end_does_not_get_round_the_deadline(tmp_path: Path) -> None:
    report = await check_conformance(target_of("yes"), tmp_path, "hello", 0.3)
    assert failed(report)["initialize"] == "no answer within 0.3 s"
    assert failed(report)["only_answers"].startswith("this came, too: y (and ")


async def test_of_an_agent_that_is_not_deterministic_nothing_can_be_told_of_its_reset(tmp_path: Path) -> None:
    report = await check(tmp_path, STEP % f"{SAID} = str(random.random())")
    (effect,) = [check for check in report.checks if check.name == "reset_effect"]
    assert (effect.status, effect.message) == (
        "skip",
        "cannot be told: the agent answers differently from start to start",
    )
    assert report.is_conformant


async def test_an_older_agent_is_asked_without_a_version(tmp_path: Path) -> None:
    code = (
        "def initialize(params):\n    if 'protocol_version' in params:\n        raise LookupError(-32602)\n"
        "    return {'name': 'old', 'capabilities': {}}\n"
    )
    report = await check(tmp_path, code)
    assert status_of(report) == dict.fromkeys(CHECKS, "pass")
    assert report.protocol_version is None


@pytest.mark.parametrize(("target", "why"), [("no-such-agent", "not found in PATH"), ("python3 'a", "cannot be split")])
async def test_a_command_that_cannot_be_is_refused(tmp_path: Path, target: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        await check_conformance(target_of(target), tmp_path, "hello", 5)
