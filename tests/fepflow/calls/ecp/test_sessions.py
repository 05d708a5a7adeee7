"""Which process a scenario gets, what the agent is given, and what is left of it."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import psutil
import pytest

from fepflow.errors import TargetTimeoutError
from fepflow.security.redaction import redact_json

from .conftest import AGENT, Open, metadata_of, processes_in, run, said, scenario, until

SAYS_ITS_PROCESS = """
def step(request):
    if request["params"]["input"] == "bad":
        return refuse(request, -32000, "no")
    answer(request, done(str(os.getpid())))
def reset(request):
    open("resets", "a").write(".")
    answer(request, True)
"""
DECLARES_RESET = """
def initialize(request):
    answer(request, {"name": "n", "capabilities": {"reset": {}}})
"""


def resets(folder: Path) -> int:
    return len((folder / "resets").read_text()) if (folder / "resets").exists() else 0


@pytest.mark.parametrize(
    ("declares", "reuse", "reused"),
    [(False, None, False), (True, None, True), (False, True, True), (True, False, False)],
)
async def test_a_process_is_reused_if_the_agent_declares_reset_or_the_suite_says_so(
    open_agent: Open, tmp_path: Path, declares: bool, reuse: bool | None, reused: bool
) -> None:
    code = SAYS_ITS_PROCESS + (DECLARES_RESET if declares else "")
    _, client = open_agent(code, concurrency=1, **({} if reuse is None else {"reuse": reuse}))
    pids = {said(await run(client, "a"))[0] for _ in range(3)}
    assert len(pids) == (1 if reused else 3)
    assert resets(tmp_path) == (2 if reused else 0), "one before each scenario that is not the first"


@pytest.mark.parametrize("given", ["False", "None"])
async def test_a_capability_of_false_or_null_is_not_declared(open_agent: Open, tmp_path: Path, given: str) -> None:
    _, client = open_agent(SAYS_ITS_PROCESS + DECLARES_RESET.replace("{}", given), concurrency=1)
    pids = {said(await run(client, "a"))[0] for _ in range(2)}
    assert (len(pids), resets(tmp_path)) == (2, 0)


async def test_a_process_is_not_used_again_after_a_fault(open_agent: Open) -> None:
    _, client = open_agent(SAYS_ITS_PROCESS, reuse=True, concurrency=1)
    first = said(await run(client, "a"))
    assert said(await run(client, "a", "bad")) == first
    assert said(await run(client, "a")) != first


@pytest.mark.parametrize("body", ["answer(request, False)", "refuse(request, -32000, 'no')", "sys.exit(1)"])
async def test_a_process_that_cannot_be_reset_is_replaced(open_agent: Open, body: str) -> None:
    code = f"{SAYS_ITS_PROCESS}\ndef reset(request):\n    {body}\n"
    _, client = open_agent(code, reuse=True, concurrency=1)
    outputs = [said(await run(client, "a")) for _ in range(3)]
    assert len({output[0] for output in outputs}) == 3


async def test_scenarios_run_beside_each_other_up_to_the_concurrency(open_agent: Open, tmp_path: Path) -> None:
    code = """
def step(request):
    open(str(os.getpid()), "w").close()
    while len([name for name in os.listdir() if name.isdigit()]) < 4:
        time.sleep(0.01)
    answer(request, done("met"))
"""
    _, client = open_agent(code, concurrency=4)
    outputs = await asyncio.gather(*(run(client, "a") for _ in range(4)))
    assert [said(output) for output in outputs] == [["met"]] * 4


async def test_an_agent_gets_the_variables_that_the_suite_names_and_no_others(
    open_agent: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-0123456789")
    monkeypatch.setenv("AGENT_MODE", "fast")
    monkeypatch.setenv("OTHER_SECRET", "other-0123456789")
    code = """
def step(request):
    answer(request, done(json.dumps(dict(os.environ)), logs=os.environ["OPENAI_API_KEY"]))
"""
    target, client = open_agent(code, env=["AGENT_MODE", "OPENAI_API_KEY", "NOT_SET"])
    output = await run(client, "hi")
    (text,) = said(output)
    assert '"AGENT_MODE": "fast"' in text
    assert '"OPENAI_API_KEY": "***"' in text, "a secret is taken out of what the agent says"
    assert metadata_of(output)["logs"] == ["***"]
    assert "OTHER_SECRET" not in text
    assert "FEPFLOW_TEST_DATA" not in text
    assert '"PATH"' in text
    before = target.fingerprint
    monkeypatch.setenv("AGENT_MODE", "slow")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-9876543210")
    again, _ = open_agent(code, env=["AGENT_MODE", "OPENAI_API_KEY", "NOT_SET"])
    assert again.fingerprint == before, "values of variables are no part of it"


async def test_what_is_asked_is_what_outputs_are_known_by(open_agent: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_TOKEN", "tok-0123456789")
    first, _ = open_agent(config={"model": "a", "key": "tok-0123456789"})
    second, _ = open_agent(config={"model": "b", "key": "tok-0123456789"})
    third, _ = open_agent(config={"model": "a", "key": "tok-0123456789"}, max_bytes=1000, step_timeout=9, timeout=9)
    assert first.fingerprint != second.fingerprint
    assert first.fingerprint == third.fingerprint
    asked = first.render(scenario("a", {"input": "b", "note": 1}, "tok-0123456789"))
    assert redact_json(asked, first.secrets) == ["a", "b", "***"]


@pytest.mark.parametrize(
    ("case_input", "message"),
    [
        ([], "the input of an ecp test case is a text, or a list of steps"),
        (3, "the input of an ecp test case is a text, or a list of steps"),
        ({"input": "a"}, "the input of an ecp test case is a text, or a list of steps"),
        (["a", 3], "step 2 is neither a text nor an object with a text as input"),
        ([{"inputs": "a"}], "step 1 is neither a text nor an object with a text as input"),
    ],
)
async def test_an_input_that_is_no_scenario_is_an_error_of_its_case(
    open_agent: Open, case_input: object, message: str
) -> None:
    _, client = open_agent()
    case = scenario("x").model_copy(update={"input": case_input})
    output = (await client.ask(case)).output()
    assert metadata_of(output)["error"]["message"] == message


async def test_a_text_is_a_scenario_of_one_step(open_agent: Open) -> None:
    _, client = open_agent()
    output = (await client.ask(scenario("x").model_copy(update={"input": "hello"}))).output()
    assert said(output) == ["echo: hello"]


SPAWNING = """
import subprocess
def step(request):
    subprocess.Popen(["sleep", "1000"])
    subprocess.Popen(["setsid", "sleep", "1000"])
    open("spawned", "w").close()
    time.sleep(1000)
"""


@pytest.mark.parametrize("ending", ["time-out", "cancel", "close", "kill of the keeper"])
async def test_nothing_is_left_of_an_agent(open_agent: Open, tmp_path: Path, ending: str) -> None:
    target, client = open_agent(SPAWNING, step_timeout=1 if ending == "time-out" else 100)
    call = asyncio.create_task(client.ask(scenario("a")))
    await until(lambda: (tmp_path / "spawned").exists())
    if ending == "cancel":
        call.cancel()
        assert isinstance((await asyncio.gather(call, return_exceptions=True))[0], asyncio.CancelledError)
    elif ending == "time-out":
        assert isinstance((await call).error, TargetTimeoutError)
    elif ending == "close":
        await target.aclose()
        assert "crashed" in metadata_of((await call).output())["error"]["kind"]
    else:
        (keeper,) = [child for child in psutil.Process().children() if "keeper.py" in " ".join(child.cmdline())]
        keeper.kill()
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
    await until(lambda: processes_in(tmp_path) == [])


async def test_agents_are_started_again_after_their_keeper_was_killed(open_agent: Open) -> None:
    _, client = open_agent()
    assert said(await run(client, "a")) == ["echo: a"]
    (keeper,) = [child for child in psutil.Process().children() if "keeper.py" in " ".join(child.cmdline())]
    keeper.kill()
    keeper.wait(10)
    assert said(await run(client, "b")) == ["echo: b"]


RUN = """
import asyncio
from pathlib import Path
from fepflow.protocol.test_case import TestCase
from fepflow.suite.target import Target
from fepflow.calls.client import RetryPolicy, TargetClient
from fepflow.calls.factory import open_target

async def main():
    config = Target.model_validate({"attempts": 1, "timeout": 600, "ecp": {"command": COMMAND}})
    target = open_target(config, folder=Path("agent"), case_ids=list)
    await TargetClient(target, RetryPolicy.of(config)).ask(TestCase(id="c", input="a"))

asyncio.run(main())
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.battery)])
async def test_nothing_is_left_when_the_process_that_runs_the_target_is_killed(tmp_path: Path, number: int) -> None:
    folder = tmp_path / "agent"
    folder.mkdir()
    stubborn = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    (folder / "agent.py").write_text(AGENT % (stubborn + SPAWNING), encoding="utf-8")
    code = RUN.replace("COMMAND", repr([sys.executable, "-I", "-S", "agent.py"]))
    running = await asyncio.create_subprocess_exec(sys.executable, "-c", code, cwd=tmp_path)
    await until(lambda: (folder / "spawned").exists())
    assert len(processes_in(folder)) == 3
    running.send_signal(number)
    await running.wait()
    await until(lambda: processes_in(folder) == [])
