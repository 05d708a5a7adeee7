"""An ASGI application from a file of the suite's folder, called in process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import fastapi  # noqa: F401  # what the applications import, before an event loop of a test runs
import pytest
from pydantic import ValidationError

from fepflow.calls.base import output_hash
from fepflow.calls.client import CallRecord, RetryPolicy, TargetClient
from fepflow.calls.factory import open_target
from fepflow.errors import InputError
from fepflow.suite.target import Target

from .conftest import CASE

pytestmark = pytest.mark.may_stall(reason="runs open targets, and load their code, in a thread")

Open = Callable[..., tuple[Any, TargetClient]]

IMPORTS = """
import asyncio, time
from contextlib import asynccontextmanager
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, RedirectResponse, StreamingResponse
"""
ECHO = """
app = FastAPI()

@app.api_route("/{path:path}", methods=["GET", "POST"])
async def echo(request: Request):
    return {"method": request.method, "url": str(request.url), "body": (await request.body()).decode()}
"""

START = {"type": "http.response.start", "status": 200, "headers": []}
BODY = {"type": "http.response.body", "body": b"hello"}


@pytest.fixture
async def open_app(tmp_path: Path) -> AsyncIterator[Open]:
    """Writes my_agent.py and opens its application as a target."""
    opened = []

    def start(code: str, app: str = "my_agent:app", timeout: float = 30, **http: Any) -> tuple[Any, TargetClient]:
        (tmp_path / "my_agent.py").write_text(IMPORTS + code, encoding="utf-8")
        config = Target.model_validate({"http": {"app": app, **http}, "timeout": timeout, "attempts": 1})
        target = open_target(config, folder=tmp_path, case_ids=list)
        opened.append(target)
        return target, TargetClient(target, RetryPolicy.of(config))

    yield start
    for target in opened:
        await target.aclose()


def value_of(asked: CallRecord) -> Any:
    assert asked.error is None, asked.error
    assert asked.response is not None
    return asked.response.value


@pytest.mark.parametrize(
    ("url", "asked"),
    [
        ({}, "http://testserver/"),
        ({"url": "/ask?x=1"}, "http://testserver/ask?x=1"),
        ({"url": "https://bot.example:8443/ask"}, "https://bot.example:8443/ask"),
    ],
)
async def test_it_gets_the_request_and_its_response_is_the_answer(
    open_app: Open, url: dict[str, str], asked: str
) -> None:
    _, caller = open_app(ECHO, **url)
    value = value_of(await caller.ask(CASE))
    assert value == {"method": "POST", "url": asked, "body": '{"input": "What is 6 * 7?"}'}


@pytest.mark.parametrize("app", ["my_agent.py:app", "my_agent:Shop.app"])
async def test_it_is_named_as_a_function_is(open_app: Open, app: str) -> None:
    _, caller = open_app(ECHO + "\nclass Shop:\n    app = app\n", app)
    assert value_of(await caller.ask(CASE))["method"] == "POST"


async def test_an_exception_is_an_error_of_its_case_with_its_type_and_line(open_app: Open) -> None:
    _, caller = open_app(
        "app = FastAPI()\n"
        "@app.post('/')\n"
        "async def answer(request: Request):\n"
        "    if 'Paris' in (await request.json())['input']:\n"
        "        raise LookupError('no such town')\n"
        "    return 'fine'\n"
    )
    failed = await caller.ask(CASE.model_copy(update={"input": "Paris"}))
    assert str(failed.error) == "LookupError: no such town (my_agent.py:10)"
    assert getattr(failed.error, "kind", "") == "exception"
    assert value_of(await caller.ask(CASE)) == "fine"


@pytest.mark.parametrize("raised", ["SystemExit(3)", "KeyboardInterrupt()", "asyncio.CancelledError()"])
async def test_what_ends_a_process_ends_a_case_only(open_app: Open, raised: str) -> None:
    _, caller = open_app(f"async def app(scope, receive, send):\n    raise {raised}\n")
    failed = await caller.ask(CASE)
    assert str(failed.error).startswith(raised.partition("(")[0].removeprefix("asyncio."))


async def test_a_status_and_a_redirect_are_those_of_any_endpoint(open_app: Open) -> None:
    _, caller = open_app(
        "app = FastAPI()\n"
        "@app.post('/ask')\n"
        "async def ask(request: Request):\n"
        "    if 'Paris' in (await request.json())['input']:\n"
        "        return JSONResponse({'detail': 'busy'}, 503)\n"
        "    return RedirectResponse('/answer')\n"
        "@app.post('/answer')\n"
        "async def answer(request: Request):\n"
        "    return await request.json()\n",
        url="/ask",
    )
    assert value_of(await caller.ask(CASE)) == {"input": CASE.input}
    failed = await caller.ask(CASE.model_copy(update={"input": "Paris"}))
    assert "HTTP 503 Service Unavailable" in str(failed.error)
    assert failed.may_recover


async def test_a_response_without_end_is_cut_off(open_app: Open) -> None:
    _, caller = open_app(
        "async def forever():\n"
        "    while True:\n"
        "        yield b'x' * 100_000\n"
        "        await asyncio.sleep(0)\n"
        "app = FastAPI()\n"
        "@app.post('/')\n"
        "async def answer():\n"
        "    return StreamingResponse(forever())\n",
        max_bytes=1_000_000,
    )
    failed = await caller.ask(CASE)
    assert str(failed.error) == "the answer is larger than 1,000,000 bytes (target.http.max_bytes)"


async def test_no_complete_response_is_an_error_that_says_so(open_app: Open) -> None:
    _, caller = open_app(
        "async def app(scope, receive, send):\n"
        "    await send({'type': 'http.response.start', 'status': 200, 'headers': []})\n"
    )
    assert str((await caller.ask(CASE)).error) == "app ended without a complete response"


@pytest.mark.parametrize(
    ("messages", "says"),
    [
        ([BODY], "it sends a body before the start of its response"),
        ([START, START, BODY], "it starts its response twice"),
        ([START, BODY, BODY], "it sends a body after the end of its response"),
        ([{**START, "status": "200"}, BODY], "the status of its response is '200', and not a number"),
        ([START, {**BODY, "body": "hello"}], "the body of its response is str, and not bytes"),
    ],
)
async def test_a_mistake_against_the_protocol_is_named(
    open_app: Open, messages: list[dict[str, Any]], says: str
) -> None:
    _, caller = open_app(
        f"async def app(scope, receive, send):\n    for message in {messages!r}:\n        await send(message)\n"
    )
    assert str((await caller.ask(CASE)).error) == f"app breaks the protocol of ASGI: {says}"


async def test_a_blocking_application_does_not_block_the_loop_of_the_run(open_app: Open) -> None:
    _, caller = open_app("async def app(scope, receive, send):\n    time.sleep(3)\n", timeout=0.3)
    started = time.monotonic()
    failed = await caller.ask(CASE)
    assert time.monotonic() - started < 3
    assert str(failed.error) == "no complete answer within 0.3 s (target.timeout)"


LIFESPAN = """
from pathlib import Path
def log(word):
    with (Path(__file__).parent / "log").open("a") as file:
        file.write(word)

@asynccontextmanager
async def lifespan(app):
    log("up ")
    {failing}
    yield {{"loop": asyncio.get_running_loop()}}
    log("down")

app = FastAPI(lifespan=lifespan)

@app.post("/")
async def answer(request: Request):
    return request.state.loop is asyncio.get_running_loop()
"""


async def test_it_is_started_up_once_and_shut_down_at_the_end(open_app: Open, tmp_path: Path) -> None:
    target, caller = open_app(LIFESPAN.format(failing="await asyncio.sleep(0.05)"))
    assert [value_of(asked) for asked in await asyncio.gather(*(caller.ask(CASE) for _ in range(3)))] == [True] * 3
    assert (tmp_path / "log").read_text() == "up "
    await target.aclose()
    assert (tmp_path / "log").read_text() == "up down"


async def test_a_shut_down_that_fails_is_logged(open_app: Open, caplog: pytest.LogCaptureFixture) -> None:
    code = LIFESPAN.format(failing="await asyncio.sleep(0)").replace('log("down")', "raise OSError('disk full')")
    target, caller = open_app(code)
    assert value_of(await caller.ask(CASE)) is True
    await target.aclose()
    assert "the application's shut-down failed: OSError: disk full" in caplog.text


async def test_a_failed_start_up_is_the_error_of_every_case(open_app: Open, tmp_path: Path) -> None:
    _, caller = open_app(LIFESPAN.format(failing="raise OSError('no model')"))
    for _ in range(2):
        failed = await caller.ask(CASE)
        assert str(failed.error).startswith("the application's start-up failed: OSError: no model (my_agent.py:")
        assert not failed.may_recover
    assert (tmp_path / "log").read_text() == "up "


@pytest.mark.parametrize(
    ("code", "app", "says"),
    [
        ("", "my_agant.py:app", r"target\.http\.app: there is no file my_agant\.py"),
        ("", "no.such.module:app", r"target\.http\.app: there is no module no\.such\.module"),
        ("", "../my_agent.py:app", "leads out of the suite's folder"),
        ("application = FastAPI()", "my_agent:aplication", r"there is no aplication .*did you mean application\?"),
        ("def app(): return FastAPI()", "my_agent:app", "no ASGI application.*not a function that makes one"),
        ("app = 5", "my_agent:app", "no ASGI application"),
        ("1 / 0", "my_agent:app", r"my_agent\.py:7: cannot be loaded: ZeroDivisionError"),
    ],
)
def test_an_invalid_application_is_refused_before_any_call(tmp_path: Path, code: str, app: str, says: str) -> None:
    (tmp_path / "my_agent.py").write_text(IMPORTS + "\n" + code)
    with pytest.raises(InputError, match=says):
        open_target(Target.model_validate({"http": {"app": app}}), folder=tmp_path, case_ids=list)


@pytest.mark.parametrize(
    ("http", "says"),
    [
        ({}, r"http\.url"),
        ({"url": "/ask"}, "the address has no host"),
        ({"app": "my_agent:app", "url": "ask"}, "the address has no scheme"),
        ({"app": "my_agent"}, r"http\.app"),
    ],
)
def test_an_address_or_an_application_there_must_be(http: dict[str, str], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        Target.model_validate({"http": http})


async def test_other_code_is_another_target(open_app: Open) -> None:
    hashes = {
        output_hash(open_app(code, **http)[0], CASE, 1)
        for code, http in ((ECHO, {}), (ECHO, {"url": "/"}), (ECHO, {"url": "/ask"}), (ECHO + "# better", {}))
    }
    assert len(hashes) == 3
