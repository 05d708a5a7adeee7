"""The process of an isolated agent: a guard, which runs no user's code, and under it the worker, which calls the agent.

Started as a script by `fepflow.targets.python.process`, with one argument, JSON: `{root, socket, function, folder,
roots, names, limit}`. The worker reads requests and writes replies, a line of JSON each, on the socket. What the agent
prints goes to stderr and stdout, which are no part of this. The guard's control connection is its stdin.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any, NoReturn


def main() -> None:
    """Part into guard and worker."""
    config: dict[str, Any] = json.loads(sys.argv[1])
    sys.path.append(config["root"])
    from fepflow.system.guard import watch

    _end_as_worker(watch(lambda: _work(config), 0, [config["socket"]]))


def _end_as_worker(code: int | None) -> NoReturn:
    if code is not None and code < 0:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(-code, signal.SIG_DFL) if -code not in (signal.SIGKILL, signal.SIGSTOP) else None
        os.kill(os.getpid(), -code)
    os._exit(code or 0)


def _work(config: dict[str, Any]) -> None:
    os.set_inheritable(config["socket"], False)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # it is a file
    from fepflow.targets.python.worker import serve

    serve(config)


if __name__ == "__main__":
    main()
