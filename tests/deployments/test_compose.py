"""compose.yaml, the Dockerfile and the entrypoint agree with each other, as far as reading them shows.

tests/e2e/test_compose.py runs the stack, and tests/e2e/test_image.py carries out the Dockerfile's steps.
"""

from __future__ import annotations

import re
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from fepflow.deployments.server import BATCHES

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "deployments" / "compose.yaml"
DOCKERFILE = (ROOT / "deployments" / "Dockerfile").read_text(encoding="utf-8")
DOCUMENT = YAML(typ="safe").load(COMPOSE.read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = DOCUMENT["services"]
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
OURS = [name for name, service in SERVICES.items() if "build" in service]
ENTRYPOINT = ROOT / "deployments" / "entrypoint.sh"


def test_the_stack_is_complete() -> None:
    assert list(SERVICES) == ["postgres", "server", "deploy", "worker", "reaper", "api"]


def test_the_server_writes_events_as_fepflows_own_does() -> None:
    assert BATCHES.items() <= SERVICES["server"]["environment"].items()


def test_no_secret_is_in_the_file() -> None:
    assert set(DOCUMENT["secrets"]) == {"postgres_password", "prefect_auth"}
    for service in SERVICES.values():
        for name, value in service["environment"].items():
            assert not re.search("AUTH_STRING|PASSWORD$|API_KEY", name)
            assert not re.search(r"://[^/@]*:[^/@]*@", value)  # no password in an address
    for name in OURS:
        targets = {secret["target"] for secret in SERVICES[name]["secrets"]}
        of_server = {"PGPASSWORD", "PREFECT_SERVER_API_AUTH_STRING"}
        assert targets == (of_server if name == "server" else {"PGPASSWORD", "PREFECT_API_AUTH_STRING"})


def test_images_are_pinned() -> None:
    (base,) = re.findall(r"^FROM (\S+:\S+)", DOCKERFILE, re.MULTILINE)
    for image in [base, *(service["image"] for name, service in SERVICES.items() if name not in OURS)]:
        assert re.fullmatch(r"[a-z]+:\d+\.\d+[\w.-]*@sha256:[0-9a-f]{64}", image)
    fallback = re.search(r'^fallback_version = "(.+)"$', PROJECT, re.MULTILINE)
    assert fallback
    assert f"ARG FEPFLOW_VERSION={fallback[1]}\n" in DOCKERFILE
    for name in OURS:
        assert SERVICES[name]["image"] in ("fepflow:${FEPFLOW_VERSION:-dev}", "fepflow-api:${FEPFLOW_VERSION:-dev}")
        assert SERVICES[name]["build"]["args"]["FEPFLOW_VERSION"] == f"${{FEPFLOW_VERSION:-{fallback[1]}}}"


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_waits_for_what_can_be_waited_for(name: str) -> None:
    for other, wanted in SERVICES[name].get("depends_on", {}).items():
        if wanted["condition"] == "service_healthy":
            assert "healthcheck" in SERVICES[other]
        else:
            assert wanted["condition"] == "service_completed_successfully"
            assert SERVICES[other]["restart"] == "no"


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_watched_limited_and_logs_into_rotated_files(name: str) -> None:
    service = SERVICES[name]
    assert set(service["deploy"]["resources"]["limits"]) == {"memory", "pids"}
    assert service["logging"] == {"driver": "local"}
    if service["restart"] != "no":
        assert service["restart"] == "unless-stopped"
        assert service["healthcheck"]["test"][0] == "CMD"


@pytest.mark.parametrize("name", OURS)
def test_a_service_of_ours_has_no_rights_and_writes_to_its_volume(name: str) -> None:
    service = SERVICES[name]
    uid, gid = re.findall(r"--uid (\d+) --gid (\d+)", DOCKERFILE)[0]
    assert (service["user"], service["read_only"], service["cap_drop"]) == (f"{uid}:{gid}", True, ["ALL"])
    assert service["security_opt"] == ["no-new-privileges:true"]
    written = {volume.split(":")[1] for volume in service.get("volumes", []) if volume.count(":") == 1}
    # Docker gives an empty folder to root, with the mode of the image's folder: 0700.
    assert "/var/lib/fepflow" in written or f"/var/lib/fepflow:uid={uid},gid={gid},mode=0700" in service["tmpfs"]


@pytest.mark.parametrize("name", OURS)
def test_what_a_service_runs_is_there(name: str) -> None:
    command = SERVICES[name]["command"]
    assert command[0] in ("prefect", "python")
    if "-m" in command:
        assert find_spec(command[command.index("-m") + 1])


def test_the_number_of_workers_is_a_variable() -> None:
    assert SERVICES["worker"]["deploy"]["replicas"] == "${FEPFLOW_WORKERS:-2}"


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
    assert "install --no-compile --no-deps --require-hashes -r image.lock" in DOCKERFILE
    assert re.findall(r"^USER (.+)$", DOCKERFILE, re.MULTILINE) == ["fepflow"]


def test_packages_that_an_image_is_built_without_are_taken_out_of_the_lock(tmp_path: Path) -> None:
    """The steps that do it are carried out with the real lock: a name that is not in it would change nothing."""
    (command,) = re.findall(r"^RUN (sed -E .+) > image\.lock", DOCKERFILE, re.MULTILINE)
    default = re.findall(r"^ARG WITHOUT=(.+)$", DOCKERFILE, re.MULTILINE)[0]
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    for without in (default, SERVICES["api"]["build"]["args"]["WITHOUT"]):
        env = {"PATH": "/usr/bin:/bin", "WITHOUT": without}
        done = subprocess.run(["sh", "-c", command], cwd=ROOT, env=env, capture_output=True, text=True, check=True)
        removed = set(names(lock)) - set(names(done.stdout))
        assert removed == set(without.split("|"))
        kept = [line for line in done.stdout.splitlines() if not line.startswith("#")]
        assert all(line.startswith("    --hash=") or "==" in line for line in kept)
        assert sum("--hash=" in line for line in kept) < lock.count("--hash=")


def names(lock: str) -> list[str]:
    """Return the packages of a lock."""
    return re.findall(r"^([\w.-]+)(?:\[\w+\])?==", lock, re.MULTILINE)


def test_no_file_of_variables_and_no_secret_gets_into_the_image() -> None:
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert {"**/.env", "**/*.env", ".git", "deployments/secrets"} <= set(ignored)
    kept_out = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert "deployments/secrets/" in kept_out


def test_suites_are_run_below_the_folder_that_is_mounted() -> None:
    assert "${FEPFLOW_SUITES:?the folder with your suites}:/suites:ro" in SERVICES["worker"]["volumes"]
    assert SERVICES["worker"]["environment"]["FEPFLOW_SUITE_ROOTS"] == "/suites"
    assert re.findall(r"^WORKDIR (.+)$", DOCKERFILE, re.MULTILINE)[-1] == "/suites"


def test_everything_that_the_image_copies_is_there_and_every_package_is_copied() -> None:
    lines = re.findall(r"^COPY ((?!--from).+) \S+$", DOCKERFILE, re.MULTILINE)
    copied = {source for line in lines for source in line.split()}
    assert all((ROOT / source).exists() for source in copied)
    assert {"checks", "deployments", "fepflow", "flows", "tasks"} <= copied


def run_entrypoint(secrets: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run the entrypoint with another folder of secrets."""
    script = ENTRYPOINT.read_text(encoding="utf-8").replace("/run/secrets", str(secrets))
    return subprocess.run(["sh", "-c", script, "entrypoint", *command], capture_output=True, text=True)


def test_the_entrypoint_turns_files_into_variables(tmp_path: Path) -> None:
    value = "p@ss w/o?rd#% $HOME `id` 'x' \"y\" \\ü"
    (tmp_path / "PGPASSWORD").write_text(f"{value}\n", encoding="utf-8")
    (tmp_path / "OTHER").write_text("two\nlines", encoding="utf-8")
    (tmp_path / "kubernetes.io" / "serviceaccount").mkdir(parents=True)
    done = run_entrypoint(tmp_path, "sh", "-c", 'printf "%s|%s|%s" "$PGPASSWORD" "$OTHER" "$0"', "a b")
    assert (done.returncode, done.stdout) == (0, f"{value}|two\nlines|a b")
    assert run_entrypoint(tmp_path / "none", "echo", "no secrets").stdout == "no secrets\n"


def test_the_entrypoint_names_a_secret_that_is_empty(tmp_path: Path) -> None:
    (tmp_path / "PGPASSWORD").touch()
    done = run_entrypoint(tmp_path, "true")
    assert (done.returncode, done.stderr) == (2, "error: the file of the secret PGPASSWORD is empty\n")
