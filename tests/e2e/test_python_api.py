"""`fepflow.run`, `run_async` and `load_run` against a real server, in processes of their own, as a script has them."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

import fepflow

from .conftest import Workplace

pytestmark = pytest.mark.e2e

AGENT = (
    "import time\ndef answer(q):\n    if q == 'slow':\n        time.sleep(100)\n    return q.replace('wrong', '?')\n"
)
SUITE = """\
name: api
target: {python: agent.py:answer, attempts: 1, retries: 0}
test_cases: cases.jsonl
checks: [{id: same, type: exact_match, arguments: {actual: $.output.value, expected: $.test_case.expected}}]
"""


def script(workplace: Workplace, code: str) -> subprocess.CompletedProcess[str]:
    with workplace.running(code=code) as process:
        out, err = process.communicate(timeout=120)
        return subprocess.CompletedProcess([], process.returncode, out, err)


def prepared(workplace: Workplace, *cases: str) -> Workplace:
    workplace.write_suite(cases)
    workplace.suite.write_text(SUITE, encoding="utf-8")
    (workplace.folder / "agent.py").write_text(AGENT, encoding="utf-8")
    return workplace


def test_a_loaded_run_equals_the_run_and_nothing_is_printed(workplace: Workplace) -> None:
    done = script(
        prepared(workplace, "one", "wrong", "three"),
        "import signal, sys, fepflow\n"
        "before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)\n"
        "for run in (fepflow.run('suite.yaml'), fepflow.load_run()):\n"
        "    assert (run.outcome, run.passed, run.status, run.name) == ('fail', False, 'completed', 'api'), run\n"
        "    assert run.verdict.outcome == 'fail' and run.verdict.reasons\n"
        "    assert (run.pass_rate, run.metrics) == (2 / 3, {'same': 2 / 3})\n"
        "    assert [result.execution_context.test_case.id for result in run.failed] == ['wrong']\n"
        "    assert [result.passed for result in run.results] == [True, False, True]\n"
        "    assert 'api' in repr(run) and 'fail' in repr(run)\n"
        "assert before == (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT))\n"
        "assert fepflow.run('suite.yaml', limit=1, repeats=2, tags=['mine']).expected_results == 2\n",
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.battery
def test_inside_a_running_loop_run_works_and_run_async_does_not_block_it(workplace: Workplace) -> None:
    done = script(
        prepared(workplace, "one"),
        "import asyncio, fepflow\n"
        "async def main():\n"
        "    assert fepflow.run('suite.yaml').passed\n"
        "    ticks = 0\n"
        "    work = asyncio.ensure_future(fepflow.run_async('suite.yaml'))\n"
        "    while not work.done():\n"
        "        ticks += 1\n"
        "        await asyncio.sleep(0.01)\n"
        "    assert work.result().passed and ticks > 5\n"
        "asyncio.run(main())\n",
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.battery
def test_cancelling_run_async_stops_the_run(workplace: Workplace) -> None:
    done = script(
        prepared(workplace, "one", "slow"),
        "import asyncio, fepflow\n"
        "async def main():\n"
        "    work = asyncio.ensure_future(fepflow.run_async('suite.yaml'))\n"
        "    while True:\n"
        "        await asyncio.sleep(0.1)\n"
        "        try:\n"
        "            if list(fepflow.load_run().results):\n                break\n"
        "        except fepflow.FepflowError:\n            pass\n"
        "    work.cancel()\n"
        "    await asyncio.gather(work, return_exceptions=True)\n"
        "    assert work.cancelled()\n"
        "asyncio.run(main())\n",
    )
    assert done.returncode == 0, done.stderr
    assert workplace.record.status == "cancelled"


def test_options_of_another_type_are_refused_and_none_is_the_default() -> None:
    wrong: dict[str, Any] = {"tags": "nightly", "verdict": "points", "repeats": "2", "max_concurrency": None}
    with pytest.raises(fepflow.UserError) as refused:
        fepflow.run("missing.yaml", **wrong)
    assert str(refused.value) == (
        "tags: 'str' instances are not allowed as a sequence value, not 'nightly'; "
        "verdict: input should be 'interval' or 'point', not 'points'; "
        "repeats: input should be a valid integer, not '2'"
    )
    unset: dict[str, Any] = dict.fromkeys(("limit", "repeats", "tags", "filter_metadata", "verbose"))
    with pytest.raises(fepflow.InputError, match="there is no such file"):
        fepflow.run("missing.yaml", **unset)


def test_a_suite_that_is_wrong_raises_with_every_mistake(workplace: Workplace) -> None:
    prepared(workplace, "one")
    workplace.suite.write_text(SUITE.replace("python:", "pyton:").replace("exact_match", "exakt"), encoding="utf-8")
    done = script(
        workplace,
        "import fepflow\n"
        "try:\n    fepflow.run('suite.yaml')\n"
        "except fepflow.InputError as error:\n    print(len(error.problems), error)\n",
    )
    assert done.stdout.startswith(("2", "3"))
    assert "pyton" in done.stdout
    assert "exakt" in done.stdout
