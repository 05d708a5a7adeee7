"""Manifests, chart values and job template for Kubernetes hold together. No cluster runs here: kustomize builds each
overlay, Kubernetes' schemas validate it, and Prefect's own templating renders the job of a run."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import kubernetes_validate
import prefect
import pytest
from prefect.settings.models.root import Settings as PrefectSettings
from prefect.utilities.templating import apply_values
from ruamel.yaml import YAML

from fepflow.api.rest.middleware import OPEN_PATHS
from fepflow.deployments.register import read_job_template
from fepflow.deployments.server import BATCHES
from fepflow.errors import UserError
from fepflow.services.prefect_api import POOL
from fepflow.settings import Settings

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deployments" / "kubernetes"
TEMPLATE = json.loads((FOLDER / "base" / "base-job-template.json").read_text(encoding="utf-8"))
DOCKERFILE = (ROOT / "deployments" / "Dockerfile").read_text(encoding="utf-8")
PAGE = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
OVERLAYS = sorted(path.name for path in (FOLDER / "overlays").iterdir())
VERSIONS = ("1.32", "1.34", "1.37")
"""Versions of Kubernetes that the manifests are validated against."""

NAMED_BY_CHARTS = {"prefect-server", "prefect-worker"}
"""Values of `app.kubernetes.io/name` of the pods of Prefect's charts; their component is one of the next line."""
COMPONENTS_OF_CHARTS = {"server", "background-services", "worker"}

Document = dict[str, Any]


def read(*files: Path) -> list[Document]:
    return [one for file in files for one in YAML(typ="safe").load_all(file.read_text(encoding="utf-8")) if one]


@cache
def built(overlay: str) -> list[Document]:
    """The overlay as `kubectl apply -k` sends it."""
    if shutil.which("kubectl") is None:
        pytest.skip("no kubectl here, which has kustomize")
    command = ["kubectl", "kustomize", str(FOLDER / "overlays" / overlay)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return [one for one in YAML(typ="safe").load_all(done.stdout) if one]


def pods(documents: list[Document]) -> Iterator[Document]:
    """Yield the templates of pods."""
    for one in documents:
        if one["kind"] in ("Deployment", "StatefulSet", "Job"):
            yield one["spec"]["template"]
        elif one["kind"] == "CronJob":
            yield one["spec"]["jobTemplate"]["spec"]["template"]


def containers(pod: Document) -> list[Document]:
    return [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]


def found(value: Any, key: str) -> Iterator[Any]:
    """Yield what is at this key, however deep."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name == key:
                yield inner
            yield from found(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from found(inner, key)


def valid(document: Document, version: str) -> None:
    _valid(json.dumps(document, sort_keys=True), version)


@cache  # many are in several overlays, and its schemas are read for each
def _valid(document: str, version: str) -> None:
    kubernetes_validate.validate(json.loads(document), version, strict=True)


OF_RUN = TEMPLATE["job_configuration"]["job_manifest"]["spec"]["template"]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_kubernetes_accepts_what_kustomize_builds(overlay: str) -> None:
    documents = built(overlay)
    for version in VERSIONS:
        for document in documents:
            valid(document, version)
    names = [(one["kind"], one["metadata"]["name"]) for one in documents]
    assert len(set(names)) == len(names)
    assert {one["metadata"].get("namespace") for one in documents if one["kind"] != "Namespace"} == {"fepflow"}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_pod_is_admitted_by_the_restricted_profile(overlay: str) -> None:
    (namespace,) = (one for one in built(overlay) if one["kind"] == "Namespace")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    for pod in [*pods(built(overlay)), OF_RUN]:
        security = pod["spec"]["securityContext"]
        assert security["runAsNonRoot"]
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["spec"]["automountServiceAccountToken"] is False
        for container in containers(pod):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert {"requests", "limits"} <= set(container["resources"])


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_what_is_referred_to_by_name_exists(overlay: str) -> None:
    documents = built(overlay)
    there = {(one["kind"], one["metadata"]["name"]) for one in documents}
    secrets = {one["metadata"]["name"]: set(one["stringData"]) for one in read(FOLDER / "secrets.example.yaml")}
    claimed = {one["metadata"]["name"] for listed in found(documents, "volumeClaimTemplates") for one in listed}
    for pod in [*pods(documents), OF_RUN]:
        for reference in found(pod, "secretKeyRef"):
            assert reference["key"] in secrets[reference["name"]]
        for reference in found(pod, "secretRef"):
            assert reference["name"] in secrets
        for reference in [*found(pod, "configMapRef"), *found(pod, "configMap")]:
            assert ("ConfigMap", reference["name"]) in there
        for claim in found(pod, "claimName"):
            assert ("PersistentVolumeClaim", claim) in there
        account = pod["spec"].get("serviceAccountName")
        assert account is None or ("ServiceAccount", account) in there
        volumes = {volume["name"] for volume in pod["spec"].get("volumes", [])}
        for container in containers(pod):
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes | claimed
    for service in (one for one in documents if one["kind"] == "Service"):
        (selected,) = (pod for pod in pods(documents) if has_labels(pod, service["spec"]["selector"]))
        ports = {port["name"] for port in found(selected, "ports") for port in port}
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports


def has_labels(pod: Document, wanted: dict[str, str]) -> bool:
    return wanted.items() <= pod["metadata"]["labels"].items()


def test_the_secrets_that_the_charts_read_are_the_examples() -> None:
    secrets = {one["metadata"]["name"]: set(one["stringData"]) for one in read(FOLDER / "secrets.example.yaml")}
    server, redis, worker, cloud = read(
        *(FOLDER / "charts" / f"prefect-{name}.yaml" for name in ("server", "server-redis", "worker", "worker-cloud"))
    )
    assert "auth-string" in secrets[server["server"]["basicAuth"]["existingSecret"]]
    assert "auth-string" in secrets[worker["worker"]["selfHostedServerApiConfig"]["basicAuth"]["existingSecret"]]
    assert "connection-string" in secrets[server["secret"]["name"]]
    messaging = redis["backgroundServices"]["messaging"]
    assert "redis-password" in secrets[messaging["redis"]["existingSecret"]]
    assert "docket-url" in secrets[messaging["docket"]["existingSecret"]]
    key = cloud["worker"]["cloudApiConfig"]["apiKeySecret"]
    assert key["key"] in secrets[key["name"]]
    assert not any(value for one in read(FOLDER / "secrets.example.yaml") for value in one["stringData"].values())


def test_the_charts_and_the_manifests_mean_the_same_things() -> None:
    server, worker = read(FOLDER / "charts" / "prefect-server.yaml", FOLDER / "charts" / "prefect-worker.yaml")
    assert server["global"]["prefect"]["image"]["prefectTag"].startswith(f"{prefect.__version__}-")
    assert worker["worker"]["image"]["prefectTag"].startswith(f"{prefect.__version__}-")
    assert BATCHES.items() <= {one["name"]: one["value"] for one in server["server"]["env"]}.items()
    (config,) = read(FOLDER / "base" / "config.yaml")
    assert worker["worker"]["selfHostedServerApiConfig"]["apiUrl"] == config["data"]["PREFECT_API_URL"]
    assert (worker["worker"]["config"]["workPool"], worker["worker"]["config"]["type"]) == (POOL, "kubernetes")
    claims = {one["metadata"]["name"] for one in built("in-cluster") if one["kind"] == "PersistentVolumeClaim"}
    assert set(found(server, "claimName")) == claims
    hosts = {one["metadata"]["name"] for one in built("redis") if one["kind"] == "Service"}
    (redis,) = read(FOLDER / "charts" / "prefect-server-redis.yaml")
    assert redis["backgroundServices"]["messaging"]["redis"]["host"] in hosts


def known_variables() -> set[str]:
    ours = {f"FEPFLOW_{name}".upper() for name in Settings.model_fields}
    names = found(PrefectSettings.model_json_schema(), "supported_environment_variables")
    return ours | {name for listed in names for name in listed}


def test_every_variable_is_a_setting() -> None:
    known = known_variables()
    charts = [one for file in (FOLDER / "charts").iterdir() for one in read(file)]
    names = {one["name"] for listed in found(charts, "env") for one in listed}
    for overlay in OVERLAYS:
        for config in (one for one in built(overlay) if one["metadata"]["name"] == "fepflow"):
            names |= set(config.get("data", {}))
        for pod in [*pods(built(overlay)), OF_RUN]:
            if pod["metadata"]["labels"].get("app.kubernetes.io/name") not in ("postgres", "redis"):
                names |= {one["name"] for container in containers(pod) for one in container.get("env", [])}
    assert "FEPFLOW_STORE_URL" in names
    assert names <= known


def test_every_command_is_there() -> None:
    deployments = YAML(typ="safe").load((ROOT / "prefect.yaml").read_text(encoding="utf-8"))["deployments"]
    commands = [one["command"] for pod in pods(built("existing-server")) for one in containers(pod)]
    assert len(commands) == 4
    for program, *arguments in commands:
        if program == "prefect":
            assert arguments[:2] == ["deployment", "run"]
            assert any(arguments[2] == f"{one['entrypoint'].rpartition('.')[2]}/{one['name']}" for one in deployments)
            continue
        assert (program, arguments[0]) == ("python", "-m")
        source = Path(find_spec(arguments[1]).origin).read_text(encoding="utf-8")
        for option in arguments[2:]:
            assert not option.startswith("--") or f'"{option.partition("=")[0]}"' in source


def test_probes_ask_paths_that_need_no_key_on_the_ports_that_we_listen_on() -> None:
    for pod in pods(built("existing-server")):
        for container in containers(pod):
            ports = {port["name"]: port["containerPort"] for port in container.get("ports", [])}
            for probe in found(container, "httpGet"):
                assert probe["path"] in OPEN_PATHS
                assert probe["port"] in ports
            if container["name"] == "api":
                fields = Settings.model_fields
                assert ports == {"rest": fields["api_port"].default, "grpc": fields["grpc_port"].default}
                assert {"startupProbe", "livenessProbe", "readinessProbe"} <= set(container)
            if container["name"] == "reaper":
                variables = {one["name"]: one.get("value") for one in container["env"]}
                assert ports == {"metrics": int(variables["FEPFLOW_METRICS_PORT"])}
                assert pod["metadata"]["annotations"]["prometheus.io/port"] == variables["FEPFLOW_METRICS_PORT"]
                assert {"startupProbe", "livenessProbe"} <= set(container)


def test_user_home_and_suites_are_the_images() -> None:
    of_image = dict(re.findall(r"([A-Z_]+)=(\S+)", DOCKERFILE.partition("ENV ")[2].partition("\n\n")[0]))
    user = int(re.search(r"useradd .*--uid (\d+)", DOCKERFILE)[1])
    (config,) = read(FOLDER / "base" / "config.yaml")
    assert config["data"]["FEPFLOW_SUITE_ROOTS"] == re.findall(r"^WORKDIR (.+)$", DOCKERFILE, re.MULTILINE)[-1]
    for pod in [*pods(built("existing-server")), OF_RUN]:
        assert pod["spec"]["securityContext"]["runAsUser"] == user
        empty = {volume["name"] for volume in pod["spec"]["volumes"] if "emptyDir" in volume}
        for container in containers(pod):
            writable = {mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] in empty}
            assert writable == {of_image["FEPFLOW_HOME"], "/tmp"}
    assert of_image["PREFECT_HOME"].startswith(of_image["FEPFLOW_HOME"])


def test_runs_have_the_image_of_the_other_pods() -> None:
    image = TEMPLATE["variables"]["properties"]["image"]["default"]
    used = {one["image"] for pod in pods(built("existing-server")) for one in containers(pod)}
    assert used == {image}
    compose = (ROOT / "deployments" / "compose.yaml").read_text(encoding="utf-8")
    (postgres,) = re.findall(r"image: (postgres:\S+)", compose)
    assert postgres in {one["image"] for pod in pods(built("in-cluster")) for one in containers(pod)}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_network_policy_is_about_pods_that_there_are(overlay: str) -> None:
    ours = [pod["metadata"]["labels"] for pod in [*pods(built(overlay)), OF_RUN]]
    names = {labels.get("app.kubernetes.io/name") for labels in ours} | NAMED_BY_CHARTS
    components = {labels.get("app.kubernetes.io/component") for labels in ours} | COMPONENTS_OF_CHARTS
    policies = [one for one in built(overlay) if one["kind"] == "NetworkPolicy"]
    assert any(one["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]} for one in policies)
    for selector in found(policies, "podSelector"):
        labels = selector.get("matchLabels", {})
        assert labels.get("app.kubernetes.io/name", "prefect-server") in names
        assert labels.get("app.kubernetes.io/component", "run") in components
        for expression in selector.get("matchExpressions", []):
            assert (expression["key"], expression["operator"]) == ("app.kubernetes.io/component", "In")
            assert set(expression["values"]) <= components


def rendered(template: Document, job_variables: Document) -> Document:
    """Return the job of a flow run: Prefect fills the template in, and its worker adds command and variables.

    The worker of prefect-kubernetes 0.8.0 sent the same, when it was tried by hand, with more variables and labels.
    """
    defaults = {name: one["default"] for name, one in template["variables"]["properties"].items() if one.get("default")}
    values = {"name": "run-1", "labels": {}, "annotations": {}, **defaults, **job_variables}
    job = apply_values(template["job_configuration"], values)
    pod = job["job_manifest"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    container["args"] = ["prefect", "flow-run", "execute"]
    variables = [{"name": name, "value": value} for name, value in job_variables.get("env", {}).items()]
    container["env"] = [*variables, *container["env"]]
    # Prefect demands them here, where Kubernetes has no such fields and ignores them.
    assert (pod.pop("parallelism"), pod.pop("completions")) == (1, 1)
    manifest: Document = job["job_manifest"]
    return manifest


@pytest.mark.battery
@pytest.mark.e2e
def test_deployments_are_registered_on_a_pool_for_kubernetes_whose_jobs_are_valid(stack, tmp_path: Path) -> None:
    (tmp_path / "prefect.yaml").write_text(PREFECT_YAML, encoding="utf-8")
    options = ["--pool-type", "kubernetes", "--base-job-template"]

    def register(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "fepflow.deployments.register", *map(str, arguments)]
        env = {**stack.env, **stack.prefect}
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=200)

    stack.api.delete("/work_pools/fepflow")
    try:
        done = register(*options, FOLDER / "base" / "base-job-template.json")
        assert done.returncode == 0, done.stderr
        pool = stack.api.get("/work_pools/fepflow").raise_for_status().json()
        assert (pool["type"], pool["base_job_template"]) == ("kubernetes", TEMPLATE)

        deployment = stack.api.get("/deployments/name/evaluate/pods").raise_for_status().json()
        assert (deployment["work_pool_name"], deployment["job_variables"]["memory_limit"]) == ("fepflow", "4Gi")
        job = rendered(pool["base_job_template"], deployment["job_variables"])
        for version in VERSIONS:
            valid(job, version)
        (container,) = job["spec"]["template"]["spec"]["containers"]
        assert container["resources"]["limits"] == {"memory": "4Gi"}
        assert container["image"] == "registry.example.com/suites:7"
        assert {"name": "PREFECT_CLIENT_MAX_RETRIES", "value": "8"} in container["env"]
        assert job["spec"]["ttlSecondsAfterFinished"] == 3600

        changed = tmp_path / "template.json"
        larger = json.loads(json.dumps(TEMPLATE).replace('"2Gi"', '"8Gi"'))
        changed.write_text(json.dumps(larger), encoding="utf-8")
        assert register(*options, changed).returncode == 0
        assert stack.api.get("/work_pools/fepflow").json()["base_job_template"] == larger

        other = register("--pool-type", "docker", "--base-job-template", changed)
        assert (other.returncode, other.stdout) == (2, "")
        assert "its type is kubernetes, not docker" in other.stderr
    finally:
        stack.api.delete("/work_pools/fepflow")


PREFECT_YAML = """
name: mine
deployments:
  - name: pods
    entrypoint: fepflow.flows.evaluate.evaluate
    work_pool:
      name: fepflow
      job_variables:
        image: registry.example.com/suites:7
        memory_limit: 4Gi
        env: {PREFECT_CLIENT_MAX_RETRIES: "8"}
"""


@pytest.mark.parametrize(
    ("text", "problem"),
    [(None, "cannot be read"), ("{", "is not JSON"), ("[]", "is not a base job template")],
)
def test_a_file_that_is_no_template_is_named(tmp_path: Path, text: str | None, problem: str) -> None:
    file = tmp_path / "template.json"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=problem) as raised:
        read_job_template(file)
    assert str(file) in str(raised.value)


def test_the_page_names_files_secrets_and_overlays_that_there_are() -> None:
    secrets = {one["metadata"]["name"]: set(one["stringData"]) for one in read(FOLDER / "secrets.example.yaml")}
    created = re.findall(r"create secret generic (\S+)((?: \\\n)?(?:[^\n]|\\\n)*)", PAGE)
    assert {name for name, _ in created} == set(secrets)
    for name, arguments in created:
        assert set(re.findall(r"--from-literal=([\w-]+)=", arguments)) == secrets[name]
    for file in re.findall(r"deployments/kubernetes/[\w./-]+\w", PAGE):
        assert (ROOT / file).exists(), file
    for file in re.findall(r"`((?:base|charts|overlays)/[\w./-]+)`", PAGE):
        assert (FOLDER / file).exists(), file
    table = PAGE.partition("| overlay | for |")[2].partition("\n\n")[0]
    assert sorted(re.findall(r"^\| `([\w-]+)` ", table, re.MULTILINE)) == OVERLAYS
    for version in VERSIONS:
        assert version in PAGE


def test_suites_on_a_volume_or_from_git_make_valid_jobs() -> None:
    additions = [json.loads(text) for text in re.findall(r"```json\n(.+?)```", PAGE, re.DOTALL)]
    assert [sorted(one) for one in additions] == [
        ["volumeMounts", "volumes"],
        ["initContainers", "volumeMounts", "volumes"],
    ]
    for one in additions:
        job = rendered(TEMPLATE, {})
        pod = job["spec"]["template"]["spec"]
        pod["containers"][0]["volumeMounts"] += one["volumeMounts"]
        pod["volumes"] += one["volumes"]
        pod["initContainers"] = one.get("initContainers", [])
        for version in VERSIONS:
            valid(job, version)
        (config,) = read(FOLDER / "base" / "config.yaml")
        assert one["volumeMounts"][0]["mountPath"] == config["data"]["FEPFLOW_SUITE_ROOTS"]
