"""Containers without an engine: a process in namespaces of its own, which sees the files that an image and mounts give.

Each has its own root folder, process ids, host name, and network with one address on a bridge. The image is this
machine's system and Python, or a folder that the Dockerfile's steps have filled; it is read-only.
"""

from __future__ import annotations

import ctypes
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import psutil

BRIDGE = "10.213.0.1"
"""The address of the tests themselves in the network of the containers."""
TOOLS = ("unshare", "nsenter", "setpriv", "ip", "mount", "chroot", "hostname")
_CLONE_NEWNET = 0x40000000
SYSTEM = "/usr/sbin:/usr/bin:/sbin:/bin"
_DIES_WITH_US = ("setpriv", "--pdeathsig=KILL")
_NAMESPACES = ("unshare", "--mount", "--uts", "--net", "--pid", "--fork", "--kill-child")
_END_SECONDS = 10


def missing() -> str:
    """Return what this machine lacks for containers; nothing if it has all."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "containers without an engine need root on Linux"
    lacking = [tool for tool in TOOLS if shutil.which(tool, path=SYSTEM) is None]
    if lacking:
        return f"containers without an engine need {', '.join(lacking)}"
    made = subprocess.run([*_NAMESPACES, "true"], capture_output=True)
    return "" if made.returncode == 0 else f"no namespaces here: {made.stderr.decode()}"


@dataclass(frozen=True)
class Mount:
    """A file or folder of the host at a place in the container."""

    source: Path
    target: str
    writable: bool = False


@dataclass(frozen=True)
class Image:
    """Folders of the host that are a container's at the same place, its search path, its entrypoint, and mounts."""

    folders: tuple[Path, ...]
    path: str
    entrypoint: str
    mounts: tuple[Mount, ...] = ()


def this_environment(entrypoint: str) -> Image:
    """Return the image that has the packages which these tests run with."""
    packages = {Path(place) for place in sys.path if place.endswith("site-packages")}
    folders = {Path(sys.prefix), Path(sys.base_prefix), Path(__file__).parents[2], *packages}
    outermost = [one for one in sorted(folders) if not any(one.is_relative_to(other) for other in folders - {one})]
    return Image(tuple(outermost), f"{Path(sys.executable).parent}:{SYSTEM}", entrypoint)


@dataclass(frozen=True)
class Spec:
    """The parts that a container is made of."""

    name: str
    command: Sequence[str]
    env: Mapping[str, str]
    user: int
    image: Image
    folder: str = "/"
    mounts: tuple[Mount, ...] = ()
    empty: tuple[str, ...] = ("/tmp",)
    hosts: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Container:
    """A running container."""

    spec: Spec
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def text(self) -> str:
        """The container's log."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    @property
    def first(self) -> psutil.Process:
        """The first process in the container's namespaces, which are gone with it."""
        (child,) = psutil.Process(self.process.pid).children()
        return child

    def kill(self) -> None:
        """End all of its processes at once, as `docker kill` does."""
        with suppress(psutil.NoSuchProcess, ValueError):
            self.first.kill()
        self.process.wait(60)

    def execute(self, command: Sequence[str], *, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """Run a command in it, with its environment, as `docker exec` does: without the image's entrypoint."""
        enter = ["nsenter", "--target", str(self.first.pid), "--all", "--root", "--"]
        words = [*enter, *_as_user(self.spec.user), *command]
        return subprocess.run(words, env=dict(self.spec.env), capture_output=True, text=True, timeout=timeout)

    def memory(self) -> int:
        """Return the bytes of memory that its processes have, each shared page once."""
        first = self.first
        used = 0
        for process in (first, *first.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                used += process.memory_full_info().pss
        return used


def _as_user(user: int) -> list[str]:
    """Return the command that gives up root and every capability, for good."""
    identity = [f"--reuid={user}", f"--regid={user}", "--clear-groups"]
    return ["/usr/bin/setpriv", *identity, "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]


class Engine:
    """Starts containers, all on one network, in a folder that anybody may read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._addresses = count(2)
        self._numbers = count(1)
        self._network = subprocess.Popen([*_DIES_WITH_US, "unshare", "--net", "sleep", "infinity"])
        _await_namespace(self._network.pid)
        self._in_network("ip link set lo up")
        self._in_network("ip link add bridge0 type bridge")
        self._in_network(f"ip address add {BRIDGE}/24 dev bridge0")
        self._in_network("ip link set bridge0 up")

    def close(self) -> None:
        """Remove the network; whoever has started containers has ended them."""
        self._network.kill()
        self._network.wait()

    def address(self) -> str:
        """Return an address for a new container."""
        return f"10.213.0.{next(self._addresses)}"

    def start(self, spec: Spec, address: str) -> Container:
        """Start a container; its log goes on where the one of the same name ended."""
        number = next(self._numbers)
        root = self.folder / "roots" / str(number)
        root.mkdir(parents=True)
        log = self.folder / f"{spec.name}.log"
        with log.open("ab") as output:
            process = subprocess.Popen(
                [*_DIES_WITH_US, *_NAMESPACES, "sh", "-c", self._script(spec, root)],
                env={"PATH": SYSTEM},
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
            )
        container = Container(spec, process, log)
        try:
            self._connect(process.pid, number, address)
        except BaseException:
            container.kill()
            raise
        assert process.stdin is not None
        process.stdin.write(b"\n")  # it begins when its network is there
        process.stdin.close()
        return container

    def _connect(self, pid: int, number: int, address: str) -> None:
        _await_namespace(pid)
        self._in_network(f"ip link add eth{number} type veth peer name eth0 netns {pid}")
        self._in_network(f"ip link set eth{number} master bridge0 up")
        for command in ("link set lo up", f"address add {address}/24 dev eth0", "link set eth0 up"):
            subprocess.run(["nsenter", f"--net=/proc/{pid}/ns/net", "ip", *command.split()], check=True)

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Be in the containers' network: sockets that this thread makes meanwhile are there, and stay there."""
        libc = ctypes.CDLL(None, use_errno=True)
        with open("/proc/thread-self/ns/net", "rb") as here, open(f"/proc/{self._network.pid}/ns/net", "rb") as there:
            assert libc.setns(there.fileno(), _CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
            try:
                yield
            finally:
                assert libc.setns(here.fileno(), _CLONE_NEWNET) == 0

    def _in_network(self, command: str) -> None:
        subprocess.run(["nsenter", f"--net=/proc/{self._network.pid}/ns/net", *command.split()], check=True)

    def _script(self, spec: Spec, root: Path) -> str:
        """Return what the first process does before it becomes the container's command."""
        lines = ["set -e", "read go", "exec </dev/null", "mount --make-rprivate /"]
        lines += [f"mount -t tmpfs -o mode=755 root {root}"]
        for link in ("bin", "sbin", "lib", "lib64"):
            if os.path.islink(f"/{link}"):
                lines.append(f"ln -s {os.readlink(f'/{link}')} {root}/{link}")
        for entry in spec.empty:  # the first, as the project may lie below one of them
            place, _, options = entry.partition(":")
            # As Docker does: root's, with the mode of the image's folder, which is 0700 for the home.
            options = options or ("mode=1777" if place == "/tmp" else "mode=0700")
            lines += [f"mkdir -p {root}{place}", f"mount -t tmpfs -o {options} tmpfs {root}{place}"]
        for folder in (Path("/usr"), Path("/etc"), Path("/dev"), *spec.image.folders):
            lines += _mount(root, Mount(folder, str(folder), writable=folder == Path("/dev")))
        lines += [f"mkdir -p {root}/proc", f"mount -t proc proc {root}/proc"]
        hosts = self.folder / f"{root.name}.hosts"
        hosts.write_text("".join(f"{address} {name}\n" for name, address in spec.hosts.items()), encoding="utf-8")
        files = [Mount(hosts, "/etc/hosts"), *spec.image.mounts]
        for mount in (*files, *spec.mounts):
            lines += _mount(root, mount)
        lines += [f"mkdir -p {root}{spec.folder}", f"mount -o remount,ro {root}", f"hostname {spec.name}"]
        env = [f"{name}={value}" for name, value in spec.env.items()]
        become = ["chroot", str(root), *_as_user(spec.user), "/usr/bin/env", "-i", "-C", spec.folder, *env]
        return "\n".join([*lines, f"exec {shlex.join([*become, *spec.command])}"])


def _mount(root: Path, mount: Mount) -> list[str]:
    source, target = shlex.quote(str(mount.source)), shlex.quote(f"{root}{mount.target}")
    place = f"mkdir -p {target}"
    if mount.source.is_file():
        place = f"mkdir -p $(dirname {target}); [ -e {target} ] || touch {target}"
    bind = f"mount --rbind {source} {target}"
    return [place, bind, *([] if mount.writable else [f"mount -o remount,bind,ro {target}"])]


def _await_namespace(pid: int) -> None:
    """Wait until a process has left our network."""
    ours = os.readlink("/proc/self/ns/net")
    deadline = time.monotonic() + 60
    while os.readlink(f"/proc/{pid}/ns/net") == ours:
        assert time.monotonic() < deadline
        time.sleep(0.005)


def end(container: Container) -> Any:
    """Ask a container to stop, wait ten seconds, and kill it, as `docker stop` does."""
    with suppress(psutil.NoSuchProcess, ValueError):
        container.first.send_signal(signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        container.process.wait(_END_SECONDS)
    container.kill()
