"""The documentation names what is there, and what is there is named in it."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from ruamel.yaml import YAML

from fepflow.checks.base import argument_fields
from fepflow.checks.docgen import rewritten
from fepflow.checks.registry import CHECKS, our_checks
from fepflow.cli.administration import cache, store
from fepflow.cli.main import fepflow
from fepflow.settings import Settings
from fepflow.suite.models import Dataset, Gate, JudgeDefaults, Suite
from fepflow.suite.target import A2aTarget, EcpTarget, HttpTarget, PythonTarget, RecordedTarget, Target

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
GROUPS = [command for command in fepflow.commands.values() if isinstance(command, click.Group)]
COMMANDS = [*fepflow.commands.values(), *(command for group in GROUPS for command in group.commands.values())]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def words(pattern: str) -> set[str]:
    return set(re.findall(pattern, TEXT))


def test_every_command_of_the_store_is_documented_and_exists() -> None:
    assert words(r"fepflow store ([a-z]+)") == set(store.commands)


def test_every_command_of_the_cache_is_documented_and_exists() -> None:
    assert words(r"fepflow cache ([a-z]+)") == set(cache.commands)


def test_every_command_is_documented() -> None:
    assert set(fepflow.commands) <= words(r"(?:`|\$ )fepflow ([a-z]+)")


def test_every_command_in_the_docs_exists() -> None:
    assert words(r"(?:`|\$ )fepflow ([a-z]+)") <= set(fepflow.commands)


def test_every_option_in_the_docs_exists() -> None:
    known = {option for command in COMMANDS for part in command.params for option in (*part.opts, *part.secondary_opts)}
    others = {
        "--param",
        "--type",
        "--pool",
        "--no-prompt",
        "--all",
        "--watch",
        "--require-hashes",
        "--latency",
        "--port",
    }
    others |= {"--fepflow-store", "--log-level"}  # pytest's: ours, and its own
    others |= {"--owner", "--pwprompt", "--no-owner", "--dbname"}  # PostgreSQL's
    others |= {"--watch", "--resource-id", "--build", "--detach", "--no-deps"}  # Prefect's and Docker's
    others |= {
        "--namespace",
        "--values",
        "--repo",
        "--install",
        "--from-literal",
        "--from-env-file",
        "--wait",
        "--patch",
    }  # kubectl's, Helm's
    others |= {"--fail", "--silent", "--location", "--header", "--output"}  # curl's
    others |= {"--rm", "--force-recreate", "--python"}  # Docker's and pip's
    others |= {"--build-arg", "--username", "--format", "--clean", "--if-exists", "--depth", "--branch"}
    others |= {"--pool-type", "--base-job-template", "--behind-tls"}  # of our modules for servers
    others |= {"--workflow", "--event", "--status", "--jq", "--dir"}  # gh's, on the page about CI
    others |= {"--fault", "--often"}  # the stand-in's for models
    others |= {"--faithful", "--careful"}  # those of the examples' services
    assert words(r"(?<![\w-])--[a-z][a-z-]+") - others <= known


def test_every_option_is_documented() -> None:
    options = [part for command in COMMANDS for part in command.params if part.param_type_name == "option"]
    assert [part.opts for part in options if not any(option in TEXT for option in part.opts)] == []


def test_every_make_target_in_the_docs_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):.*## ", MAKEFILE, re.MULTILINE))
    assert words(r"`make ([a-z]+)`") | words(r"^(?:\$ )?make ([a-z]+)") <= targets


def test_every_module_that_the_docs_name_exists() -> None:
    named = words(r"`((?:checks|deployments|fepflow|flows|tasks|tests)/[\w/]+\.py)\b") - {"checks/my_check.py"}
    assert named
    assert {name for name in named if not (ROOT / name).is_file()} == set()


def test_every_check_type_is_documented() -> None:
    page = (ROOT / "docs" / "checks.md").read_text(encoding="utf-8")
    for name in CHECKS:
        section = page.split(f"\n## {name}\n")[1].split("\n## ")[0]
        for argument in argument_fields(our_checks(name)[-1]):
            assert f"`{argument}`" in section, f"{name}: {argument}"


def test_the_reference_of_the_checks_is_what_their_classes_say() -> None:
    page = (ROOT / "docs" / "checks.md").read_text(encoding="utf-8")
    assert rewritten(page) == page, "stale: python -m fepflow.checks.docgen docs/checks.md"


def test_every_setting_is_documented_with_its_name() -> None:
    settings = {f"FEPFLOW_{name.upper()}" for name in Settings.model_fields}
    documented = set(re.findall(r"^\| `(FEPFLOW_[A-Z_]+)`", TEXT, re.MULTILINE))
    assert documented == settings


def test_every_field_of_a_suite_is_documented() -> None:
    page = (ROOT / "docs" / "suite.md").read_text(encoding="utf-8") + TEXT
    for model in (
        Suite,
        Target,
        HttpTarget,
        PythonTarget,
        EcpTarget,
        A2aTarget,
        RecordedTarget,
        Dataset,
        Gate,
        JudgeDefaults,
    ):
        for name in (info.alias or name for name, info in model.model_fields.items()):
            assert re.search(rf"\b{name}\b", page), f"{model.__name__}.{name}"


def test_every_deployment_is_documented() -> None:
    document = YAML(typ="safe").load((ROOT / "prefect.yaml").read_text(encoding="utf-8"))
    for deployment in document["deployments"]:
        flow = deployment["entrypoint"].rpartition(".")[2].replace("_", "-")
        assert f"{flow}/{deployment['name']}" in TEXT


def test_links_lead_somewhere(subtests: pytest.Subtests) -> None:
    for page in PAGES:
        with subtests.test(page=page):
            for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text(encoding="utf-8")):
                assert (page.parent / target).exists(), target


def test_the_python_example_of_the_readme_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})


def test_the_python_examples_of_the_python_page_run_one_after_the_other() -> None:
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        if "fepflow.run(" not in block:
            exec(compile(block, "python.md", "exec"), names)


def test_the_custom_check_of_the_docs_runs(tmp_path: Path) -> None:
    from fepflow.checks.engine import evaluate
    from fepflow.checks.registry import load_plugin
    from fepflow.protocol.check import Check
    from fepflow.protocol.test_case import Output, TestCase

    page = (ROOT / "docs" / "checks.md").read_text(encoding="utf-8")
    plugin = tmp_path / "my_checks.py"
    own = page.partition("## Your own checks")[2]
    plugin.write_text(re.findall(r"```python\n(.*?)```", own, re.DOTALL)[0], encoding="utf-8")
    load_plugin(plugin, "my_checks.py")
    check = Check(type="word_count", arguments={"text": "$.output.value", "at_most": 2})
    result = evaluate([TestCase(id="a", input="x")], [Output(value="one two three")], [check])
    assert result.results[0].check_results[0].results == {
        "passed": False,
        "words": 3,
        "reason": "3 words, wanted 2 at most",
    }
