"""The image, made by the steps of the Dockerfile as far as they can be carried out without a container engine.

Each instruction is carried out: COPY from the project and between stages, RUN in a root folder of the stage. Two things
are this machine's: the system and its Python below it, in place of the base image, and `strip`, which `apt-get` would
install. So the size is what the steps add, beside the size that the base image is published with.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from .containers import SYSTEM, Image, Mount, missing
from .test_compose import DOCKERFILE, POSTGRESQL, ROOT, SERVICES, composed_from, evaluate

pytestmark = [pytest.mark.e2e, pytest.mark.battery, pytest.mark.timeout(3000)]

BASE_MEGABYTES = 130
"""Size of python:3.11-slim-bookworm: between 120 and 130 MB for amd64, depending on the release."""
MOST_MEGABYTES = 450
SKIPPED = ("apt-get",)

ASK_A_MODEL = """
import os, subprocess, sys
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
import litellm
stand_in = [sys.executable, "-m", "fepflow.deployments.simulators.language_model", "--port", "0"]
with subprocess.Popen(stand_in, stdout=subprocess.PIPE, text=True) as process:
    address = process.stdout.readline().split()[-1]
    question = [{"role": "user", "content": "hello"}]
    answer = litellm.completion(model="openai/m", api_base=f"{address}/v1", api_key="k", messages=question)
    process.terminate()
assert answer.choices[0].message.content
assert litellm.token_counter(model="gpt-4o", text="hello there") > 0
"""


@dataclass
class Stage:
    """A stage of the Dockerfile: its root folder, variables and working directory."""

    root: Path
    env: dict[str, str] = field(default_factory=dict)
    folder: str = "/"

    def filled(self, text: str) -> str:
        """Return a word of an instruction with the variables that are set."""
        return re.sub(r"\$(\w+)", lambda match: self.env.get(match[1], ""), text)

    def path(self, place: str) -> Path:
        """Return the path here of a path there."""
        return self.root / os.path.normpath(os.path.join(self.folder, place)).lstrip("/")

    def run(self, command: str) -> None:
        """Run a command in the stage's root folder, with this machine's system and Python in place of the base's."""
        root = shlex.quote(str(self.root))
        lines = ["set -e", "mount --make-rprivate /"]
        for place in ("/usr", "/dev", sys.base_prefix):
            lines += [f"mkdir -p {root}{place}", f"mount --rbind {place} {root}{place}"]
        lines += [f"mkdir -p {root}/proc {root}/tmp", f"mount --rbind /proc {root}/proc"]
        lines += [f"exec chroot {root} /usr/bin/env -C {self.folder} /bin/sh -c {shlex.quote(command)}"]
        # Not the tests' own file of authorities, which lies outside of this root folder.
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SSL_CERT_"))}
        words = ["unshare", "--mount", "sh", "-c", "\n".join(lines)]
        done = subprocess.run(words, env={**kept, **self.env}, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}{done.stderr[-4000:]}"


def instructions() -> Iterator[tuple[str, str]]:
    """Yield the instructions of the Dockerfile, each with its text on one line."""
    lines = [line for line in DOCKERFILE.splitlines() if not line.lstrip().startswith("#")]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        if line.strip():
            word, _, rest = line.partition(" ")
            yield word, rest.strip()


def build(folder: Path, **arguments: str) -> Stage:
    """Carry out the Dockerfile with build arguments; return its last stage."""
    stages: dict[str, Stage] = {}
    stage = Stage(folder)
    for word, rest in instructions():
        if word == "FROM":
            image, _, name = rest.partition(" AS ")
            before = stages.get(image)
            stage = Stage(folder / (name or "last"), dict(before.env) if before else {"PATH": first_path()})
            stages[name] = stage
            stage.root.mkdir()
            shutil.copytree("/etc", stage.root / "etc", symlinks=True)
            for link in ("bin", "sbin", "lib", "lib64"):
                (stage.root / link).symlink_to(f"usr/{link}")
        elif word == "ENV":
            stage.env |= {name: stage.filled(value) for name, value in re.findall(r"(\w+)=(\S+)", rest)}
        elif word == "ARG":
            name, _, value = rest.partition("=")
            stage.env[name] = arguments.get(name, value)
        elif word == "WORKDIR":
            stage.folder = rest
            stage.path(".").mkdir(parents=True, exist_ok=True)
        elif word == "COPY":
            copy(rest, stages, stage)
        elif word == "RUN" and not rest.startswith(SKIPPED):
            stage.run(rest)
        else:
            assert word in ("RUN", "USER", "ENTRYPOINT", "CMD"), word
    return stage


def first_path() -> str:
    """Return the search path of the base image, with this machine's Python in place of its."""
    return f"{sys.base_prefix}/bin:{SYSTEM}"


def copy(text: str, stages: dict[str, Stage], stage: Stage) -> None:
    """Carry out COPY."""
    *sources, target = text.split()
    base = ROOT
    if sources[0].startswith("--from="):
        base = stages[sources.pop(0).removeprefix("--from=")].root
    for source in sources:
        origin, goal = base / source.lstrip("/"), stage.path(target)
        if origin.is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.env") if base == ROOT else None
            shutil.copytree(origin, goal, symlinks=True, ignore=ignored, dirs_exist_ok=True)
        else:
            goal = goal / origin.name if target.endswith("/") else goal
            goal.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(origin, goal)


def megabytes(stage: Stage) -> float:
    """Return the size of what a stage has added to its base."""
    added = [file for place in ("opt", "usr/local") for file in (stage.root / place).rglob("*")]
    return sum(file.lstat().st_size for file in added if file.is_file() and not file.is_symlink()) / 1e6


def image(stage: Stage) -> Image:
    """Return the image that a stage has become."""
    entrypoint = re.findall(r'^ENTRYPOINT \["(.+)"\]$', DOCKERFILE, re.MULTILINE)[-1]
    mounts = (
        Mount(stage.root / "opt" / "fepflow", "/opt/fepflow"),
        Mount(stage.root / "usr" / "local" / "bin" / entrypoint, f"/entrypoint/{entrypoint}"),
    )
    return Image((Path(sys.base_prefix),), f"/entrypoint:{stage.env['PATH']}", entrypoint, mounts)


@pytest.fixture(scope="module")
def stages() -> Iterator[dict[str, Stage]]:
    """The images of compose.yaml, built."""
    if lacking := missing() or ("" if POSTGRESQL and shutil.which("strip") else "no PostgreSQL, or no strip"):
        pytest.skip(lacking)
    with ExitStack() as stack:
        built = {}
        for service in ("worker", "api"):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fepflow-image-")))
            folder.chmod(0o755)
            arguments = SERVICES[service]["build"]["args"]
            built[service] = build(folder, **{**arguments, "FEPFLOW_VERSION": "1.2.3"})
        yield built


def test_each_image_is_under_450_mb_and_complete(stages: dict[str, Stage]) -> None:
    for name, stage in stages.items():
        size = megabytes(stage)
        print(f"{name}: {size:.0f} MB and the base image")  # noqa: T201  # the figure of docs/deployments.md
        assert BASE_MEGABYTES + size < MOST_MEGABYTES, name
        sources = (stage.root / "opt" / "fepflow" / "lib").rglob("*.py")
        assert all(file.stat().st_mtime.is_integer() for file in sources), "builders of layers may round the second up"
    stages["worker"].run("pip --python /opt/fepflow/bin/python check && fepflow --version | grep 1.2.3")
    stages["api"].run("fepflow --version && python -c 'import vl_convert'")
    for name, packages in (("worker", ["vl_convert", "pyarrow"]), ("api", ["litellm", "openai", "pyarrow"])):
        absent = f"from importlib.util import find_spec; assert not any(map(find_spec, {packages}))"
        stages[name].run(f"python -c {shlex.quote(absent)}")


def test_a_model_is_asked_without_the_native_half_of_litellm(stages: dict[str, Stage]) -> None:
    stages["worker"].run(f"python -c {shlex.quote(ASK_A_MODEL)}")


def test_the_stack_runs_from_the_images(stages: dict[str, Stage]) -> None:
    with composed_from({name: image(stage) for name, stage in stages.items()}) as composed:
        run = evaluate(composed)
        assert run.outcome == "pass"
        (key,) = re.findall(r"fep_\w+_\S+", composed.run("api", "fepflow", "keys", "create", "ci"))
        with composed.engine.inside(), httpx.Client(trust_env=False, timeout=30) as client:
            page = client.get(f"http://{composed.address('api')}:4280/runs/{run.id}", headers={"X-API-Key": key})
        assert page.status_code == 200, page.text
        assert "<svg" in page.text
