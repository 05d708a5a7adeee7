"""A worker whose runs start warm: `python -m fepflow.deployments.worker --pool fepflow`, until SIGTERM or Ctrl-C.

It is Prefect's process worker otherwise, see `fepflow.deployments.warm_worker`. multiprocessing runs this file again
in each process that is forked for a run: it imports nothing that takes time.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
from collections.abc import Sequence

ENVIRONMENT = {"PREFECT_CLIENT_MAX_RETRIES": "8", "PREFECT_LOGGING_LOGGERS_PREFECT_FLOW_RUNS_LEVEL": "WARNING"}
"""Variables of the deployments in prefect.yaml: a run that has another environment than the worker is not forked."""

CHEAP_LOG = {"PREFECT_LOGGING_COLORS": "false"}
"""Otherwise each line of the log is searched for what could be coloured: 2 ms, seven times a run."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Work until stopped."""
    from fepflow.prefect_settings import configured_api
    from fepflow.services.prefect_api import cheap_client

    api = configured_api()
    for name, value in {**ENVIRONMENT, **CHEAP_LOG, **cheap_client(api.url if api else "")}.items():
        os.environ.setdefault(name, value)
    from fepflow.errors import FepflowError
    from fepflow.observability import logs

    try:
        logs.set_up("worker")  # before Prefect is imported
    except FepflowError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(error.exit_code)
    from fepflow.deployments.warm_worker import WarmWorker, work
    from fepflow.settings import settings
    from fepflow.store.store import Store

    parser = argparse.ArgumentParser(prog="python -m fepflow.deployments.worker", description=__doc__)
    parser.add_argument("-p", "--pool", required=True, help="work pool whose runs are executed")
    parser.add_argument("-q", "--work-queue", action="append", help="only runs of this queue; repeat it for more")
    parser.add_argument("-n", "--name", help="name of the worker in Prefect")
    parser.add_argument("-l", "--limit", type=int, help="most runs at once")
    parser.add_argument("--with-healthcheck", action="store_true", help="answer /health on port 8080, as Prefect's do")
    parser.add_argument("--with-reaper", action="store_true", help="do what the reaper does, too")
    options = parser.parse_args(arguments)
    worker = WarmWorker(
        work_pool_name=options.pool,
        work_queues=options.work_queue,
        name=options.name,
        limit=options.limit,
        prefetch_seconds=0,  # a run that is forked begins at once; it may be removed until it is due
    )
    try:
        config = settings()
        wants_store = options.with_reaper or config.metrics_port is not None
        with Store.open(config.store_address) if wants_store else contextlib.nullcontext() as store:
            asyncio.run(work(worker, store, reaps=options.with_reaper, with_healthcheck=options.with_healthcheck))
            logs.finish()
            os._exit(0)  # a thread may still wait for an API that is away
    except FepflowError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
