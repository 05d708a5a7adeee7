"""No secret is left anywhere, in no usual encoding, by a run that everybody echoes to, nor by those that cannot be."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from .canaries import CANARIES, ENCODINGS, PLACES, command_lines, echoing, leaks
from .conftest import Stack, Workplace

pytestmark = pytest.mark.e2e

HOW = ("text", "keys", "html", "redirect", "charset", "encoding", "close")

PLUGIN = """
import os
import httpx
from fepflow.checks.base import BaseCheck
from fepflow.checks.registry import register
from fepflow.checks.models.model_check import register_embedder


@register("leaky_exception")
class LeakyException(BaseCheck):
    def __call__(self, text: str) -> dict:
        raise RuntimeError("I hold " + os.environ["PLUGIN_TOKEN"])


@register("leaky_address")
class LeakyAddress(BaseCheck):
    def __call__(self, text: str) -> dict:
        address = "http://127.0.0.1:9/x?anything=" + os.environ["PLUGIN_ADDRESS"].rpartition("=")[2]
        raise httpx.HTTPStatusError(f"401 for url '{address}'", request=None, response=None)


@register("leaky_result")
class LeakyResult(BaseCheck):
    def __call__(self, text: str) -> dict:
        secret = os.environ["PLUGIN_RESULT_SECRET"]
        return {"passed": True, "told": ["I hold", {secret: secret}]}


@register_embedder("leaky")
def leaky(texts):
    raise RuntimeError(os.environ["EMBEDDER_TOKEN"])
"""


@dataclass
class Told:
    """What was printed by all commands, and seen of command lines meanwhile."""

    workplace: Workplace
    printed: list[str]
    command_lines: set[bytes]

    def command(self, *arguments: str | Path, code: int | None = None, **env: str) -> str:
        done = self.workplace.stack.fepflow(*arguments, env={**self.workplace.env, **env}, timeout=600)
        assert "Traceback" not in done.stderr, done.stderr
        self.printed.append(done.stdout + done.stderr)
        assert code is None or done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr


def environment(address: str, folder: Path) -> dict[str, str]:
    """All secrets that stand in variables; those of the `.env` and the env file are in files of the folder."""
    secret = {name: quote(text, safe="") for name, text in CANARIES.items()}
    url = f"http://me:{secret['url-password']}@{address}/agent?api_key={secret['url-query']}&sig={secret['url-signature']}"
    return {
        "AGENT_URL": url,
        "AGENT_TOKEN": CANARIES["header-authorization"],
        "AGENT_API_KEY": CANARIES["header-key"],
        "AGENT_SESSION": CANARIES["header-cookie"],
        "AGENT_PASS": CANARIES["body"],
        "AGENT_PLAIN": CANARIES["body-deep"],
        "JUDGE_KEY": CANARIES["judge-key"],
        "JUDGE_BASE": f"http://{address}/v1",
        "EMBEDDING_BASE": f"http://me:{secret['judge-address']}@{address}/v1",
        "EMBEDDING_KEY": CANARIES["embedding-key"],
        "OPENAI_API_KEY": CANARIES["provider-environment"],
        "PREFECT_API_KEY": CANARIES["prefect-key"],
        "PREFECT_API_AUTH_STRING": CANARIES["prefect-auth"],
        "PLUGIN_TOKEN": CANARIES["plugin-exception"],
        "PLUGIN_ADDRESS": f"http://127.0.0.1:9/x?anything={CANARIES['plugin-address']}",
        "PLUGIN_RESULT_SECRET": CANARIES["plugin-result"],
        "EMBEDDER_TOKEN": CANARIES["embedder-exception"],
        "HTTP_PROXY": f"http://me:{secret['proxy']}@127.0.0.1:9",
        "NO_PROXY": "127.0.0.1,localhost",
        "DATABASE_URL": f"mysql://me:{secret['database']}@127.0.0.1/x",
        "OTHER_PASSWORD": CANARIES["store-password"],
        "OTHER_TOKEN": CANARIES["prefect-address"],
        "FEPFLOW_MODELS": "openai/refuses,openai/redirects,openai/page,local:*",
        "FEPFLOW_STORE_URL": f"sqlite:///{folder / 'store.db'}",
    }


@pytest.fixture(scope="module")
def told(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    folder = tmp_path_factory.mktemp("canaries")
    seen: set[bytes] = set()
    ended = threading.Event()

    def watch() -> None:
        while not ended.is_set():
            seen.update(command_lines())
            time.sleep(0.2)

    with echoing() as address:
        workplace = Workplace(stack, folder, environment(address, folder))
        _write_suite(workplace)
        watching = threading.Thread(target=watch)
        watching.start()
        try:
            yield Told(workplace, [], seen)
        finally:
            ended.set()
            watching.join()


def _write_suite(workplace: Workplace) -> None:
    folder = workplace.folder
    (folder / "plugin.py").write_text(PLUGIN)
    (folder / "secrets.env").write_text(f"FILE_TOKEN='{CANARIES['env-file']}'\nDOT_TOKEN='{CANARIES['dotenv']}'\n")
    judge = {"prompt": "Right? {{$.output.value}}", "response_format": {"type": "object"}}
    where = {"api_base": "${JUDGE_BASE}", "api_key": "${JUDGE_KEY}", "max_retries": 0}
    embedded = {"text": "$.output.value", "reference": "x"}
    text = {"text": "$.output.value"}
    own = [
        *(
            {"type": "llm_judge", "id": name, "arguments": {**judge, "model_config": {"model": f"openai/{name}"}}}
            for name in ("refuses", "redirects", "page")
        ),
        {"type": "semantic_similarity", "arguments": embedded},
        {
            "type": "semantic_similarity",
            "id": "own",
            "arguments": {**embedded, "model_config": {"model": "local:leaky"}},
        },
    ]
    everything = {"id": "everything", "input": "answer", "expected": "", "checks": own}
    workplace.write_suite(
        [everything, *HOW, *(f"error {encoding}" for encoding in ENCODINGS)],
        http={
            "headers": {
                "Authorization": "Bearer ${AGENT_TOKEN}",
                "X-Api-Key": "${AGENT_API_KEY}",
                "Cookie": "session=${AGENT_SESSION}",
                "X-File": "${FILE_TOKEN}",
                "X-Dot": "${DOT_TOKEN}",
                "X-Others": "${OTHER_PASSWORD} ${OTHER_TOKEN} ${PREFECT_API_KEY}",
                "X-Models": "${OPENAI_API_KEY} ${JUDGE_KEY} ${EMBEDDING_KEY}",
                "X-Plugins": "${PLUGIN_TOKEN} ${PLUGIN_RESULT_SECRET} ${EMBEDDER_TOKEN}",
            },
            "body": {
                "question": "$.test_case.input",
                "password": "${AGENT_PASS}",
                "deep": [{"secret": "${AGENT_PLAIN}"}],
            },
            "metadata": {"tokens": "$.tokens"},
        },
        plugins=["plugin.py"],
        judge={"model_config": {"model": "openai/gpt-4o-mini"}, "provider_config": where},
        embedding={
            "model_config": {"model": "openai/text-embedding-3-small"},
            "provider_config": {**where, "api_base": "${EMBEDDING_BASE}", "api_key": "${EMBEDDING_KEY}"},
        },
        checks=[
            {"type": "leaky_exception", "arguments": text},
            {"type": "leaky_address", "arguments": text},
            {"type": "leaky_result", "arguments": text},
            {"type": "contains", "arguments": {**text, "phrases": "nothing of it"}},
            {"type": "llm_judge", "arguments": judge},
        ],
    )


@pytest.fixture(scope="module")
def ran(told: Told) -> Told:
    """After the run that everybody echoes to."""
    folder = told.workplace.folder
    reports = [
        part for extension in (".json", ".jsonl", ".csv", ".xml") for part in ("-o", folder / f"report{extension}")
    ]
    told.command("run", folder / "suite.yaml", "--verbose", "--env-file", folder / "secrets.env", *reports, code=1)
    return told


def test_no_secret_is_left_by_a_run_whose_agent_models_and_plugins_echo_them(ran: Told) -> None:
    assert len(PLACES) >= 22
    record = ran.workplace.record
    assert record.status == "completed", record.error
    assert any(b"fepflow.cli.main" in line for line in ran.command_lines)
    statuses = {check.check_id: check.status for check in ran.workplace.results["everything"].checks}
    wrong = {"leaky_exception", "leaky_address", "refuses", "redirects", "page", "semantic_similarity", "own"}
    assert statuses == {**dict.fromkeys(wrong, "error"), **dict.fromkeys(statuses.keys() - wrong, "completed")}
    output = ran.workplace.results["everything"].output
    assert output is not None
    assert set(str(output.value).removeprefix("I was sent ")) <= {"*", " "}, "all that it echoed is masked"
    ran.command("show", "--json", FILE_TOKEN=CANARIES["env-file"], DOT_TOKEN=CANARIES["dotenv"])
    _require_silence(ran)


@pytest.mark.battery
@pytest.mark.parametrize("words", ["show", "show --failed", "list", "run --resume latest -v"])
def test_no_secret_is_in_what_else_tells_of_the_run(ran: Told, words: str) -> None:
    ran.command(*words.split(), FILE_TOKEN=CANARIES["env-file"], DOT_TOKEN=CANARIES["dotenv"])
    _require_silence(ran)


IN_VAIN: list[tuple[dict[str, str], list[str]]] = [
    ({"FEPFLOW_STORE_URL": "postgresql://me:{}@127.0.0.1:9/x"}, ["list"]),
    ({"AGENT_URL": "ftp://me:{}@127.0.0.1:9/x"}, ["run", "suite.yaml"]),
    ({"PLUGIN_TOKEN": "{}"}, ["validate", "broken.yaml"]),
    ({"FEPFLOW_STORE_URL": "postgresql://me:p@{}@127.0.0.1:9/x"}, ["list"]),
    ({"FEPFLOW_STORE_URL": "mysql://me:{}@127.0.0.1:9/x"}, ["run", "suite.yaml"]),
    ({"PREFECT_API_URL": "http://me:{}@127.0.0.1:9/api"}, ["run", "suite.yaml"]),
    ({"PREFECT_API_URL": "http://me:{}@127.0.0.1:9/api"}, ["status"]),
    ({"AGENT_URL": "http://127.0.0.1:9/x?api_key={}"}, ["run", "suite.yaml", "-v", "--limit", "1"]),
    ({"JUDGE_BASE": "http://me:{}@127.0.0.1:9/v1?key={}"}, ["run", "suite.yaml", "--limit", "1"]),
]


@pytest.mark.battery
@pytest.mark.parametrize(("env", "arguments"), IN_VAIN)
def test_no_secret_is_left_by_a_run_that_cannot_be(told: Told, env: dict[str, str], arguments: list[str]) -> None:
    folder = told.workplace.folder
    (folder / "bad.py").write_text("import os\nraise RuntimeError('token ' + os.environ['PLUGIN_TOKEN'])\n")
    (folder / "broken.yaml").write_text((folder / "suite.yaml").read_text().replace("plugin.py", "bad.py"))
    places = iter(("store-password", "prefect-address"))
    filled = {name: value.replace("{}", quote(CANARIES[next(places)], safe="")) for name, value in env.items()}
    whole = [str(folder / argument) if argument.endswith(".yaml") else argument for argument in arguments]
    extra: dict[str, Any] = {"FILE_TOKEN": CANARIES["env-file"], "DOT_TOKEN": CANARIES["dotenv"]}
    told.command(*whole, **{**extra, **filled})
    _require_silence(told)


def _require_silence(told: Told) -> None:
    assert leaks("\n".join(told.printed).encode()) == []
    assert leaks(b"\n".join(told.command_lines)) == []
    own = {"secrets.env", "suite.yaml", "plugin.py"}
    found = {}
    for top in (told.workplace.folder, told.workplace.stack.home):
        for path in top.rglob("*"):
            if path.is_file() and path.name not in own and (names := leaks(path.read_bytes())):
                found[str(path.relative_to(top))] = names
    assert found == {}
    storage = Path(told.workplace.env["PREFECT_HOME"]) / "storage"
    assert not storage.exists() or list(storage.iterdir()) == [], "nothing is pickled"
