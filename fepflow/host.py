"""Functions that only some operating systems have, with a fallback for others.

Nothing else uses fcntl, resource, /proc, fork or prctl, except the keeper of child processes; a test looks.
"""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def can_fork() -> bool:
    """Return whether processes can be forked, led by groups and killed as such. Windows cannot."""
    return hasattr(os, "fork")


def fork(work: Callable[[], object]) -> int:
    """Do the work in a child, which then ends, and is killed when this process ends. Return the child's number."""
    parent = os.getpid()
    child = os.fork()
    if child != 0:
        return child
    try:
        _have_this_process_killed_with_its_parent()
        if os.getppid() == parent:
            work()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def lead_session() -> None:
    """Make this process the leader of a session and a group, which can be killed with all its children."""
    os.setsid()


def _have_this_process_killed_with_its_parent() -> None:
    """Ask Linux to kill this process with its parent. Elsewhere, the child notices the end of its connection."""
    import ctypes

    with suppress(OSError, AttributeError):
        pr_set_pdeathsig = 1
        ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, signal.SIGKILL, 0, 0, 0)


def pid_namespace() -> str:
    """Return the name of the namespace in which process ids count, empty where there is one for the whole machine.

    Containers that share the host's name do not share its process ids, and neither do two machines of one name: the
    first namespace of each has the same number, so the id of the machine's boot is before it.
    """
    try:
        namespace = str(os.stat("/proc/self/ns/pid").st_ino)
    except OSError:
        return ""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
        return f"{boot[:8]}-{namespace}"
    return namespace


@contextmanager
def locked(descriptor: int) -> Iterator[None]:
    """Hold a file's lock against other processes, which wait."""
    try:
        import fcntl
    except ImportError:
        import msvcrt  # Windows: it locks bytes, so all lock the same one, far behind the end

        where = os.lseek(descriptor, 0, os.SEEK_CUR)
        os.lseek(descriptor, 1 << 40, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_LOCK, 1)  # type: ignore[attr-defined]  # not on this system
        os.lseek(descriptor, where, os.SEEK_SET)
        yield  # closing the file unlocks it
    else:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)


def most_files() -> int | None:
    """Return how many files and connections this process may have open; None if there is no limit."""
    try:
        import resource
    except ImportError:
        return None
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if files == resource.RLIM_INFINITY else files


def memory_in_use() -> int:
    """Return the bytes of memory of this process alone; 0 if the system does not tell."""
    with suppress(OSError), open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[5]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def limit_memory(more: int) -> None:
    """Limit the memory of this process to `more` bytes above its present size, if the system can."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        limit = memory_in_use() + more
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def lower_priority(pid: int, niceness: int) -> None:
    """Lower the priority of a process of ours, if the system lists its threads."""
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):  # to Linux, niceness is a thread's
            os.setpriority(os.PRIO_PROCESS, int(thread), niceness)
