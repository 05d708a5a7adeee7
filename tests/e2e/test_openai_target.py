"""A model behind an OpenAI-compatible endpoint, from `fepflow init --openai` to a verdict, and its answers reused."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from tests.http_server import serving

from .conftest import Workplace

pytestmark = pytest.mark.e2e

KEY = "sk-canary-4711-0815"
ANSWERS = {
    "France": "Paris",
    "Japan": "Tokyo",
    "Kenya": "Nairobi",
    "Peru": "Lima",
    "Canada": "Ottawa",
    "17": "42",
    "8 + 5": "13",
    "60": "101",
    "250": "1000",
    "33": "99",
}


class Model:
    """Knows the answers; the one about Japan is cut off if `cuts_off`."""

    def __init__(self) -> None:
        self.address = ""
        self.asked: list[dict[str, Any]] = []
        self.keys: set[str] = set()
        self.cuts_off = False

    async def respond(self, request: Request) -> JSONResponse:
        body = await request.json()
        self.asked.append(body)
        self.keys.add(request.headers["Authorization"])
        question = body["messages"][-1]["content"]
        answer = next(answer for word, answer in ANSWERS.items() if word in question)
        reason = "length" if self.cuts_off and answer == "Tokyo" else "stop"
        message = {"role": "assistant", "content": f"It is {answer}."}
        usage = {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15}
        choice = {"index": 0, "message": message, "finish_reason": reason}
        whole = {"id": "x", "object": "chat.completion", "created": 1, "model": "gpt-5-mini-2025"}
        return JSONResponse({**whole, "choices": [choice], "usage": usage})


@pytest.fixture
def model() -> Iterator[Model]:
    served = Model()

    @asynccontextmanager
    async def make() -> AsyncIterator[Starlette]:
        yield Starlette(routes=[Route("/v1/chat/completions", served.respond, methods=["POST"])])

    with serving(make) as address:
        served.address = f"{address}/v1"
        yield served


def test_a_prompt_is_evaluated_and_its_answers_are_reused_until_it_changes(workplace: Workplace, model: Model) -> None:
    folder, env = workplace.folder / "model", {"OPENAI_API_KEY": KEY}
    assert workplace.fepflow("init", folder, "--openai").returncode == 0
    suite = folder / "suite.yaml"
    text = suite.read_text(encoding="utf-8").replace(
        "#   base_url: http://127.0.0.1:8000/v1", f"base_url: {model.address}"
    )
    suite.write_text(text, encoding="utf-8")

    done = workplace.fepflow("run", suite, "--json", **env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert KEY not in done.stdout + done.stderr
    assert model.keys == {f"Bearer {KEY}"}
    assert {body["model"] for body in model.asked} == {"gpt-5-mini"}
    assert [message["role"] for message in model.asked[0]["messages"]] == ["system", "user"]
    assert model.asked[0]["messages"][1]["content"].startswith("Answer in one short sentence.\n\nWhat is")
    result = json.loads(done.stdout)
    metadata = result["results"][0]["execution_context"]["output"]["metadata"]
    assert metadata["model"] == "gpt-5-mini-2025"
    assert (metadata["tokens"], metadata["finish_reason"], metadata["tool_calls"]) == (15, "stop", [])
    tokens = next(metric for metric in result["metadata"]["metrics"] if metric["id"] == "tokens")
    assert tokens["value"] == 15

    # Another check of the same answers: nothing is asked, and the verdict says where they are from.
    suite.write_text(text.replace("expected: stop", "expected: length"), encoding="utf-8")
    done = workplace.fepflow("run", suite, "--reuse-outputs", **env)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "10 outputs from earlier runs" in done.stdout
    assert "the target was not called for them (--reuse-outputs)" in " ".join(done.stdout.split())
    assert len(model.asked) == 10

    # A prompt that changes is another version: it is asked again, and one answer is cut off now.
    (folder / "prompt.md").write_text("Briefly: {{$.test_case.input}}", encoding="utf-8")
    suite.write_text(text, encoding="utf-8")
    model.cuts_off = True
    done = workplace.fepflow("run", suite, FEPFLOW_RUN_REUSE_OUTPUTS="1", **env)
    assert done.returncode == 4, done.stdout + done.stderr
    assert "from earlier runs" not in done.stdout
    assert len(model.asked) == 20
