"""Every snippet of the documentation does what it says: suites validate, Python runs, commands are known."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace
from typing import Any

import click
import pytest
from ruamel.yaml import YAML

from fepflow.checks import registry
from fepflow.checks.models import model_check as embedders
from fepflow.cli.main import fepflow
from fepflow.diagnose import suite_validation
from fepflow.diagnose.validate_suite import validate_suite
from fepflow.documents.loader import parse_document
from fepflow.evalguard.documents import read_definition
from fepflow.evalguard.models import Thresholds
from fepflow.settings import SUITE_VARIABLES
from fepflow.suite.models import Suite

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BASE = {
    "name": "documented",
    "target": {"http": {"url": "http://127.0.0.1:9/"}},
    "test_cases": [
        {
            "id": "a",
            "input": {"question": "?"},
            "expected": "Paris",
            "metadata": {"topic": "capitals", "document": "atlas"},
        }
    ],
    "checks": [{"type": "contains", "arguments": {"text": "$.output.value", "phrases": "Paris"}}],
}
FILES = {"cases.jsonl": '{"id": "a", "input": "?", "expected": "Paris"}\n'}
FILES["outputs.jsonl"] = '{"case": "a", "repeat": 1, "answer": "Paris", "model": "any"}\n'
FILES["agent.py"] = FILES["shop/bots.py"] = "def answer(question):\n    return 'Paris'\n"
FILES["prompts/v1.md"] = FILES["prompts/v2.md"] = "Answer: {{$.test_case.input}}\n"
FILES["agents/agent.py"] = ""
FILES["my_agent.py"] = "async def app(scope, receive, send):\n    ...\n"
ATTRIBUTES = {"openinference.span.kind": "AGENT", "input.value": "?", "output.value": "Paris"}
SPAN = {
    "traceId": "0af7651916cd43dd8448eb211c80319c",
    "spanId": "b7ad6b7169203331",
    "attributes": [{"key": name, "value": {"stringValue": value}} for name, value in ATTRIBUTES.items()],
}
FILES["traces.jsonl"] = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [SPAN]}]}]})
FILES["questions.csv"] = "number,question,answer,topic\n1,What?,Paris,geography\n"


def snippets(language: str) -> Iterator[Any]:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in re.finditer(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
            line = text.count("\n", 0, match.start()) + 2
            yield pytest.param(page, match[1], id=f"{page.relative_to(ROOT)}:{line}")


def sections_of(text: str) -> dict[str, Any] | None:
    """The sections of a suite that a snippet shows; None for YAML that is something else."""
    data = parse_document(dedent(text), "snippet.yaml").data
    if isinstance(data, list) and all("type" in item for item in data):
        return {"checks": [{"type": "llm_judge", "id": "part", **item} for item in data]}
    return data if isinstance(data, dict) and set(data) <= set(Suite.model_fields) else None


def _fetched(address: str, file: Path) -> Any:
    """Test cases as if they came from an address: the documentation names places that are not on this machine."""
    file.write_text('{"input": "?", "question": "?", "answer": "Paris", "expected": "Paris"}\n')
    return SimpleNamespace(files=[(SimpleNamespace(path=file), address)])


@pytest.mark.parametrize(("page", "text"), list(snippets("yaml")))
def test_yaml_is_valid(page: Path, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sections = sections_of(text)
    if sections is None:
        data = parse_document(text, str(page)).data
        if "thresholds" in data:
            read_definition(Thresholds, data, parse_document(text, str(page)))
        return
    for part in sections.get("checks") or ():
        if part["type"] == "llm_judge" and "samples" in part and "prompt" not in part:
            part |= {"prompt": "{{$.output.value}}?", "response_format": {"type": "object"}}
            part["model_config"] = {"model": "openai/any"}
    (tmp_path := tmp_path / "suites").mkdir()  # an agent may be beside it
    monkeypatch.chdir(tmp_path)
    for known in (registry, embedders):  # other tests load plugins of the same names
        monkeypatch.setattr(known, "_registered", {})
    # Runs of other tests in this process read blocks of their own servers.
    monkeypatch.setattr(SUITE_VARIABLES, "_blocks", {})
    monkeypatch.setattr(SUITE_VARIABLES, "_read_block", lambda kind, name: f"https://{kind}.example/{name}")
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    for plugin in sections.get("plugins") or ():
        (tmp_path / plugin).write_text(python_named(plugin, page))
    inputs = {"ecp": "?", "mcp": {"tool": "get_order"}}
    base = BASE
    for kind in inputs.keys() & sections.get("target", {}).keys():
        base = {**BASE, "test_cases": [{"input": inputs[kind], "expected": "Paris"}]}
    with (tmp_path / "suite.yaml").open("w") as file:
        YAML(typ="safe", pure=True).dump({**base, **sections}, file)
    for name in re.findall(r"\$\{([A-Z_]+)", text):
        monkeypatch.setenv(name, "http://127.0.0.1:9" if "URL" in name else "value")
    monkeypatch.setenv("OPENAI_API_KEY", "value")
    for name in re.findall(r"^ *interpreter: (\S+)", text, re.MULTILINE):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).symlink_to(sys.executable)
    monkeypatch.setattr(
        suite_validation, "fetch_cases", lambda address, *_: _fetched(address, tmp_path / "fetched.jsonl")
    )
    found = validate_suite(Path("suite.yaml"))
    left_out = not {"checks", "metrics"} <= set(sections)
    wrong = [
        str(problem)
        for problem in found.errors
        if not (left_out and (problem.path or "").startswith(("gate.min", "metrics[")))
        and "no check type" not in problem.message  # looked at below
        and "fepflow[ragas]" not in problem.message  # an extra that is not among those for development
    ]
    assert wrong == []
    offered = re.findall(r"^(\w+) = \"", page.read_text(encoding="utf-8"), re.MULTILINE)  # by an installed package
    assert {part["type"] for part in sections.get("checks") or ()} <= {*registry.list_checks(), *offered}


@pytest.mark.parametrize(
    "text", [text for _, text in (param.values for param in snippets("yaml")) if "\nscenarios:" in str(text)]
)
def test_manifests_are_valid(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("agent.py", "questions.csv"):
        (tmp_path / name).write_text(FILES[name])
    (tmp_path / "manifest.yaml").write_text(text)
    monkeypatch.setenv("OPENAI_API_KEY", "value")
    for name in re.findall(r"^ *interpreter: (\S+)", text, re.MULTILINE):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).symlink_to(sys.executable)
    found = validate_suite(tmp_path / "manifest.yaml")
    assert found.problems == []
    assert {case.id for case in found.cases} == set(re.findall(r"- name: (.*)", text))


def python_named(plugin: str, page: Path) -> str:
    """The Python snippet of that page which is the plugin: it says so, or registers something."""
    texts = [str(text) for other, text in (param.values for param in snippets("python")) if other == page]
    named = [text for text in texts if text.startswith(f"# {plugin}")]
    return (named or [text for text in texts if "register" in text])[0]


@pytest.mark.parametrize(("page", "text"), list(snippets("python")))
def test_python_compiles_and_imports_what_there_is(page: Path, text: str) -> None:
    compile(text, str(page), "exec")
    imports = [line for line in text.splitlines() if re.match(r"(from fepflow|import fepflow)\b", line)]
    exec("\n".join(imports), {})


def commands() -> Iterator[tuple[str, str]]:
    for param in snippets("console"):
        page, text = param.values
        for line in text.splitlines():
            if found := re.match(r"\$ (?:[A-Z_]+=\S+ )*(fepflow\b.*)", line):
                yield page.name, found[1]


def test_a_command_is_known_with_its_options(subtests: pytest.Subtests) -> None:
    for page, command in commands():
        with subtests.test(page, command=command):
            parse(fepflow, shlex.split(command, comments=True)[1:])


def parse(command: click.Command, arguments: list[str]) -> None:
    """Raises UsageError for a command or an option that there is not."""
    while isinstance(command, click.Group) and arguments and not arguments[0].startswith("-"):
        name, *arguments = arguments
        if name not in command.commands:
            raise click.UsageError(f"there is no command {name}")
        command = command.commands[name]
    command.make_context(command.name, arguments)


def test_a_command_that_is_not_known_is_found() -> None:
    with pytest.raises(click.UsageError):
        parse(fepflow, ["run", "--no-such-option", "suite.yaml"])
    with pytest.raises(click.UsageError):
        parse(fepflow, ["runn"])
