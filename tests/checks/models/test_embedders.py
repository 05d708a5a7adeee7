"""Embedders of one's own: registered from code, and offered by a real package in a folder on the path."""

import asyncio
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fepflow.calls.models.client import ModelClient, ModelRequests
from fepflow.calls.models.model import RequestContext
from fepflow.checks.core.compiled import compile_checks
from fepflow.checks.engine import evaluate
from fepflow.checks.models import model_check as embedders
from fepflow.checks.models.model_check import register_embedder
from fepflow.checks.registry import load_plugin
from fepflow.diagnose.checks import check_problems
from fepflow.documents.loader import Document
from fepflow.protocol.check import Check
from fepflow.protocol.content_hash import CachedResponse, content_hash
from fepflow.protocol.results import CheckResult
from fepflow.protocol.test_case import Output, TestCase, evaluation_context

VECTORS = {"east": [1.0, 0.0], "north": [0.0, 1.0], "north-east": (1, 1), "3d": [1, 0, 0], "bad": ["x", 0]}


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch):
    monkeypatch.setattr(embedders, "_registered", {})


@pytest.fixture
def asked():
    """What the registered embedder `mine` was asked, batch by batch."""
    seen = []

    @register_embedder("mine")
    def embed(texts):
        seen.append((threading.current_thread().name, list(texts)))
        if "boom" in texts:
            raise OSError("no more memory")
        return [VECTORS[text] for text in texts]

    return seen


def check(**more):
    arguments = {"text": "$.output.value", "reference": "east", "model_config": {"model": "local:mine"}, **more}
    return Check(type="semantic_similarity", arguments=arguments)


def compare(*texts, **more):
    cases = [TestCase(id=str(number), input="?") for number in range(len(texts))]
    results = evaluate(cases, [Output(value=text) for text in texts], [check(**more)]).results
    return [result.check_results[0] for result in results]


def test_a_local_embedder_gets_many_texts_at_once_in_a_thread(asked):
    results = compare("east", "north", "north-east")
    assert [result.results["response"]["score"] for result in results] == pytest.approx([1, 0, 0.5**0.5])
    assert asked == [("fepflow-embedders", ["east", "north", "north-east"])]
    metadata = results[1].results["metadata"]
    assert (metadata["model"], metadata["prompt_tokens"], metadata["cost_usd"]) == ("local:mine", None, None)


def test_it_may_be_async():
    @register_embedder("mine")
    async def embed(texts):
        await asyncio.sleep(0)
        return [VECTORS[text] for text in texts]

    assert compare("north")[0].results["response"]["score"] == 0


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("boom", "local:mine failed: OSError: no more memory"),
        ("bad", "must return a list of finite numbers"),
        ("3d", "the embeddings have 3 and 2 dimensions"),
    ],
)
def test_its_faults_are_the_checks_errors(asked, text, why):
    (result,) = compare(text)
    assert (result.status, result.results) == ("error", {})
    assert why in result.error.message


def test_one_that_hangs_is_given_up():
    released = threading.Event()
    register_embedder("mine")(lambda texts: released.wait(30))
    (result,) = compare("east", provider_config={"timeout": 0.1})
    released.set()
    assert (result.error.type, "within 0.1 s" in result.error.message) == ("timeout_error", True)


async def test_its_vectors_are_cached_by_its_source(asked):
    kept: dict[str, CachedResponse] = {}

    class InMemory:
        async def get(self, keys):
            return {key: kept[key] for key in keys if key in kept}

        async def put(self, key, response):
            kept[key] = response

    async def is_cached(requests):
        (compiled,) = compile_checks([check()])
        context = evaluation_context(TestCase(id="a", input="?"), Output(value="north"))
        answer = compiled.run(context, requests)
        assert not isinstance(answer, CheckResult)
        return (await answer).results["metadata"]["cached"]

    async with ModelClient(InMemory()) as client:
        requests = ModelRequests(client, RequestContext())
        assert [await is_cached(requests), await is_cached(requests), len(asked)] == [False, True, 1]

        @register_embedder("mine")
        def changed(texts):
            return [[2.0, 1.0] for _ in texts]

        assert await is_cached(requests) is False


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"model_config": {"model": "local:other"}}, "there is no embedder other here (known are mine;"),
        ({"model_config": {"model": "local:mine", "dimensions": 3}}, "it takes no dimensions"),
        ({"provider_config": {"api_base": "http://127.0.0.1"}}, "it takes no dimensions, address or key"),
    ],
)
def test_its_errors_are_reported_before_the_run(asked, arguments, why):
    problems = list(check_problems(Document({"checks": [{}]}, "suite.yaml", ""), [check(**arguments)]))
    assert why in str(problems[0])
    assert why in compare("east", **arguments)[0].error.message


def test_a_judge_it_is_not(asked):
    judge = {
        "prompt": "Is {{$.output.value}} right?",
        "response_format": {"type": "object"},
        "model_config": {"model": "local:mine"},
    }
    (problem,) = check_problems(
        Document({"checks": [{}]}, "suite.yaml", ""), [Check(type="llm_judge", arguments=judge)]
    )
    assert "local:mine is an embedder, and gives no verdicts" in str(problem)


def test_the_one_of_the_docs_works(tmp_path):
    page = (Path(__file__).parents[3] / "docs" / "judges.md").read_text(encoding="utf-8")
    plugin = tmp_path / "my_embedder.py"
    plugin.write_text(re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0], encoding="utf-8")
    load_plugin(plugin, "my_embedder.py")
    (result,) = compare("east", model_config={"model": "local:letters"})
    assert result.results["response"]["score"] == pytest.approx(1)


SOURCE = "def embed(texts):\n    return [[1.0, float(len(text))] for text in texts]\n"
MODULE = f"{SOURCE}number = 5\n"
POINTS = "[fepflow.embedders]\nlength = vectors:embed\nbroken = vectors:missing\nnumber = vectors:number\n"
USE = """
from fepflow import *
from fepflow.checks.models import model_check as embedders
from fepflow.calls.models.model import Model
arguments = {"text": "$.output.value", "reference": "abc", "model_config": {"model": "local:length"}}
check = Check(type="semantic_similarity", arguments=arguments)
print(evaluate([TestCase(id="a", input=1)], [Output(value="xyz")], [check]).results[0].check_results[0].results)
for name in ("broken", "number", "lenght"):
    print(embedders.config_error_of(Model("local:" + name)))
print(embedders.sender(Model("local:length"))[1])
"""


def test_a_package_offers_one_and_its_version_is_in_the_cache_key(tmp_path):
    (tmp_path / "vectors.py").write_text(MODULE)

    info = tmp_path / "vectors-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: vectors\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(POINTS)
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", USE], env=env, capture_output=True, text=True, check=True)
    results, broken, number, misspelt, version = done.stdout.splitlines()
    assert "'score': 1.0" in results
    assert "the embedder broken of vectors cannot be loaded: AttributeError" in broken
    assert "the embedder number of vectors is not a function" in number
    assert "there is no embedder lenght here (known are broken, length, number;" in misspelt
    assert version == content_hash("vectors", "1.0", SOURCE)
