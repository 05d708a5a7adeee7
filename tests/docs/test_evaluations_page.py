"""The page about evaluations over HTTP: its calls do what it says, against the process that is served."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, get_args
from uuid import UUID

import pytest

from fepflow.api.evaluations.bodies import Code
from fepflow.errors import ConflictError
from fepflow.protocol.model import utc_now
from fepflow.protocol.results import CheckResult
from fepflow.protocol.test_case import Output, TestCase
from fepflow.store.records import NewCheckResult, NewOutput
from fepflow.store.store import Store
from tests.api_process import ApiProcess, api_process

PAGE = (Path(__file__).parents[2] / "docs" / "evaluations-api.md").read_text(encoding="utf-8")
ADDRESS = "http://127.0.0.1:4280"
SOME_ID = "550e8400-e29b-41d4-a716-446655440010"


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiProcess]:
    """One that asks for no key until a test makes one."""
    with api_process(tmp_path_factory.mktemp("home")) as process:
        yield process


@contextmanager
def executed(api: ApiProcess) -> Iterator[None]:
    """Requested runs get their end, as a worker gives it to them."""
    ended = threading.Event()

    def work() -> None:
        with Store.open(f"sqlite:///{api.env['FEPFLOW_HOME']}/fepflow.db") as store:
            while not ended.wait(0.05):
                for run, _ in store.requests.newest("evaluation", 10, 0, ("pending",))[0]:
                    store.leases.acquire(run.id, "worker", 60)
                    passed = CheckResult(
                        check_type="exact_match",
                        status="completed",
                        results={"passed": True},
                        evaluated_at=utc_now(),
                        metadata={"check_id": "string-match--1"},
                    )
                    output = NewOutput(0, 0, "0" * 64, Output(value="Paris", metadata={"latency_ms": 1}))
                    row = NewCheckResult(0, 0, "string-match--1", "0" * 64, passed, passed=True)
                    store.results.write(run.id, [output], [row])
                    store.leases.finish(run.id, "worker", "completed", outcome="pass")

    thread = threading.Thread(target=work)
    thread.start()
    yield
    ended.set()
    thread.join()


def shell(command: str, api: ApiProcess) -> Any:
    done = subprocess.run(
        ["sh", "-ec", command.replace(ADDRESS, api.rest)], capture_output=True, text=True, timeout=60, check=True
    )
    return json.loads(done.stdout)


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_the_calls_with_curl_work(api: ApiProcess) -> None:
    (block,) = re.findall(r"^```console\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    add, create, results = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    assert shell(add, api)["data"]["count"] == 1
    evaluation = shell(create, api)["data"]
    assert (evaluation["status"], str(UUID(evaluation["id"]))) == ("pending", evaluation["id"])
    assert shell(results, api)["error"]["code"] == "NOT_FOUND"
    assert shell(results.replace(SOME_ID, evaluation["id"]), api)["data"]["results"] == []


def test_the_python_example_works_with_a_key(
    api: ApiProcess, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{api.env['FEPFLOW_HOME']}/fepflow.db"
    with Store.open(url) as store, suppress(ConflictError):  # curl's calls add it, too
        store.requests.add_test_cases([TestCase(id="tc-001", input="?", expected="Paris")])
    key = api.new_key()
    (example,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    monkeypatch.setattr(time, "sleep", lambda _, sleep=time.sleep: sleep(0.05))
    with executed(api):
        exec(example.replace(ADDRESS, api.rest), {"API_KEY": key})
    assert capsys.readouterr().out == "completed {'string-match': 1}\n"
    with pytest.raises(Exception, match="401"):
        exec(example.replace(ADDRESS, api.rest), {"API_KEY": "fep_no_key"})


def test_every_code_of_the_contract_stands_on_the_page() -> None:
    assert {code for code in get_args(Code) if f"`{code}`" not in PAGE} == set()
