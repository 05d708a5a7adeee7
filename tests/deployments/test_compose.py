"""compose.yaml and Dockerfile hold together. No container engine runs here: this is what can be known without one."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "deployments" / "compose.yaml"
DOCKERFILE = (ROOT / "deployments" / "Dockerfile").read_text(encoding="utf-8")
DOCUMENT = YAML(typ="safe").load(COMPOSE.read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = DOCUMENT["services"]
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
OURS = [name for name, service in SERVICES.items() if "build" in service]


def test_the_stack_is_complete() -> None:
    assert list(SERVICES) == ["postgres", "server", "deploy", "worker", "reaper", "api"]


@pytest.mark.parametrize("service", SERVICES.values(), ids=SERVICES)
def test_all_secrets_come_from_the_environment(service: dict[str, Any]) -> None:
    for name, value in service["environment"].items():
        if re.search("PASSWORD|AUTH|STORE_URL|CONNECTION_URL", name):
            assert re.search(r"\$\{[A-Z_]+:\?[^}]+\}", value), name
            assert re.fullmatch(r"\$\{.*\}|\S+://fepflow:\$\{.*\}@postgres:5432/\w+", value), name


def test_images_are_pinned() -> None:
    (base,) = re.findall(r"^FROM (.+)$", DOCKERFILE, re.MULTILINE)
    for image in [base, *(service["image"] for name, service in SERVICES.items() if name not in OURS)]:
        assert re.fullmatch(r"[a-z]+:\d+\.\d+[\w.-]*@sha256:[0-9a-f]{64}", image)
    assert {SERVICES[name]["image"] for name in OURS} == {"fepflow:${FEPFLOW_VERSION:-dev}"}
    fallback = re.search(r'^fallback_version = "(.+)"$', PROJECT, re.MULTILINE)
    assert fallback
    assert f"ARG FEPFLOW_VERSION={fallback[1]}\n" in DOCKERFILE
    for name in OURS:
        assert SERVICES[name]["build"]["args"] == {"FEPFLOW_VERSION": f"${{FEPFLOW_VERSION:-{fallback[1]}}}"}


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_waits_for_what_can_be_waited_for(name: str) -> None:
    for other, wanted in SERVICES[name].get("depends_on", {}).items():
        if wanted["condition"] == "service_healthy":
            assert "healthcheck" in SERVICES[other]
        else:
            assert wanted["condition"] == "service_completed_successfully"
            assert SERVICES[other]["restart"] == "no"


@pytest.mark.parametrize("name", OURS)
def test_what_a_service_runs_is_there(name: str) -> None:
    command = SERVICES[name]["command"]
    assert command[0] in ("prefect", "python")
    if "-m" in command:
        assert find_spec(command[command.index("-m") + 1])


def test_ports_are_published_to_this_machine_only() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_named_volumes_and_configs_are_declared() -> None:
    named = {volume.split(":")[0] for service in SERVICES.values() for volume in service.get("volumes", [])}
    assert {name for name in named if re.fullmatch("[a-z]+", name)} == set(DOCUMENT["volumes"])
    used = {config["source"] for service in SERVICES.values() for config in service.get("configs", [])}
    assert used == set(DOCUMENT["configs"])


def test_the_image_has_the_locked_versions_and_no_root() -> None:
    assert "pip install --require-hashes -r requirements.lock" in DOCKERFILE
    assert "pip install --no-deps ." in DOCKERFILE
    assert re.findall(r"^USER (.+)$", DOCKERFILE, re.MULTILINE) == ["fepflow"]


def test_no_file_of_variables_gets_into_the_image() -> None:
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert {"**/.env", "**/*.env", ".git"} <= set(ignored)


def test_suites_are_run_below_the_folder_that_is_mounted() -> None:
    (mounted,) = {volume.split(":")[-2] for volume in SERVICES["worker"]["volumes"]}
    assert SERVICES["worker"]["environment"]["FEPFLOW_SUITE_ROOTS"] == mounted
    assert re.findall(r"^WORKDIR (.+)$", DOCKERFILE, re.MULTILINE)[-1] == mounted


def test_everything_that_the_image_copies_is_there_and_every_package_is_copied() -> None:
    copied = {source for line in re.findall(r"^COPY (.+) \S+$", DOCKERFILE, re.MULTILINE) for source in line.split()}
    assert all((ROOT / source).exists() for source in copied)
    assert {"checks", "deployments", "fepflow", "flows", "tasks"} <= copied
