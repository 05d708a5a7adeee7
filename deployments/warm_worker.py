"""Prefect's process worker with a warm start.

Importing Prefect and the flows takes 3 s of CPU time, ten times as long as a short run. Here a fork server imports them
once, and forks a process for each run.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import multiprocessing
import os
import signal
import tempfile
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from multiprocessing import forkserver
from multiprocessing.context import ForkServerProcess
from typing import Any
from uuid import UUID

import anyio
import anyio.abc
import click
from prefect.client.schemas.objects import Flow as FlowRecord
from prefect.client.schemas.objects import FlowRun, WorkPool, WorkQueue
from prefect.client.schemas.responses import DeploymentResponse
from prefect.engine import handle_engine_signals
from prefect.events.related import RESOURCE_CACHE
from prefect.flow_engine import load_flow, run_flow
from prefect.flows import Flow, load_flow_from_entrypoint
from prefect.runtime.deployment import CACHED_DEPLOYMENT
from prefect.settings import get_current_settings
from prefect.states import Pending
from prefect.types import DateTime
from prefect.utilities.processutils import command_to_string, get_sys_executable
from prefect.workers.process import ProcessJobConfiguration, ProcessWorker, ProcessWorkerResult
from pydantic import PrivateAttr

from fepflow.asyncio_helpers import cancel_and_wait
from fepflow.deployments.http_server import metrics_port
from fepflow.deployments.reaper import keep, stop_on_signals
from fepflow.errors import FepflowError
from fepflow.host import lead_session
from fepflow.observability.metrics import OF_REAPER, OF_WORKER, WORKER_ENDED, WORKER_RUNS
from fepflow.output import outlive_reader
from fepflow.settings import settings
from fepflow.store.store import Store
from fepflow.tasks.local_run import reaped_elsewhere

PRELOADED = "fepflow.deployments.warm_start"
ENGINE = command_to_string([get_sys_executable(), "-m", "prefect.engine"])
"""The command of a run for which neither its pool nor its deployment names another one."""
WATCH_SECONDS = 10.0
"""Pause between looks at a process's flow run; one that is cancelled and there at the second look, too, is ended."""
GRACE_SECONDS = 2.5
"""Time that a process has after SIGTERM."""

_context = multiprocessing.get_context("forkserver")


@dataclass(frozen=True, slots=True)
class Job:
    """A flow run, with what the worker has read about it: its process does not read it again."""

    flow_run: FlowRun
    deployment: DeploymentResponse
    flow: FlowRecord
    work_pool: WorkPool

    def remember(self) -> None:
        """Put it where Prefect keeps what it has read: for the related resources of events, and for `prefect.runtime`.

        Otherwise each run would read five records more.
        """
        CACHED_DEPLOYMENT[str(self.deployment.id)] = self.deployment
        records = [
            ("flow", self.flow.id, self.flow),
            ("deployment", self.deployment.id, self.deployment),
            ("work-pool", self.work_pool.name, self.work_pool),
        ]
        if self.flow_run.work_queue_id is not None:
            queue = WorkQueue(
                id=self.flow_run.work_queue_id, name=str(self.flow_run.work_queue_name), work_pool_id=None
            )
            records.append(("work-queue", queue.id, queue))
        for kind, key, record in records:
            RESOURCE_CACHE[f"{kind}.{key}"] = {"kind": kind, "object": record}, DateTime.now("UTC")

    def load_flow(self) -> Flow[..., Any]:
        """Load the flow. A module's flow is imported in the folder that the deployment names, without an event."""
        entrypoint = self.deployment.entrypoint or ""
        match self.deployment.pull_steps:
            case [{"prefect.deployments.steps.set_working_directory": {"directory": str(folder)}}] if (
                entrypoint and ":" not in entrypoint
            ):
                os.chdir(folder)
                return load_flow_from_entrypoint(entrypoint, use_placeholder_flow=False)
        return load_flow(self.flow_run)


def execute(job: Job, folder: str, environment: dict[str, str], reaped: bool) -> None:
    """Execute a flow run in this process, which was forked for it, as `python -m prefect.engine` does."""
    lead_session()
    outlive_reader()
    os.chdir(folder)
    os.environ.update(environment)
    reaped_elsewhere.set(reaped)
    log = logging.getLogger("prefect.flow_runs")
    log.setLevel(logging.WARNING)  # nothing of the preparation
    with handle_engine_signals(job.flow_run.id):
        job.remember()
        flow = copy(job.load_flow())
        if job.flow_run.parameters.keys() == {"suite", "run_id"}:
            # As the reaper dispatches a requested run: it has its name, and its parameters are two texts.
            flow.flow_run_name = None
            flow.should_validate_parameters = False
        log.setLevel(logging.NOTSET)
        # For a deployment's run, Prefect's engine starts a thread with a client and a websocket that wait for the run
        # to be suspended, which ours does not support: it is cancelled and resumed. The engine reads the run again, so
        # that everything later sees its deployment.
        flow_run = job.flow_run.model_copy(update={"deployment_id": None, "state": Pending()})
        result: Any = run_flow(flow, flow_run=flow_run)
        asyncio.run(result)


class WarmConfiguration(ProcessJobConfiguration):
    """Configuration of a run's process, with what the worker has read about the run."""

    _job: Job | None = PrivateAttr(default=None)

    @property
    def job(self) -> Job | None:
        """The flow run of a deployment; None if it has none."""
        return self._job

    def prepare_for_flow_run(
        self,
        flow_run: FlowRun,
        deployment: DeploymentResponse | None = None,
        flow: FlowRecord | None = None,
        work_pool: WorkPool | None = None,
        worker_name: str | None = None,
        worker_id: UUID | None = None,
    ) -> None:
        """Prepare the process, and keep what was read."""
        super().prepare_for_flow_run(flow_run, deployment, flow, work_pool, worker_name, worker_id)
        if deployment is not None and flow is not None and work_pool is not None:
            self._job = Job(flow_run, deployment, flow, work_pool)


class WarmWorker(ProcessWorker):
    """Prefect's process worker; a run without its own command, environment or interpreter is forked."""

    job_configuration = WarmConfiguration
    reaps = False
    """True if this process is the reaper, too."""

    @classmethod
    def __dispatch_key__(cls) -> str:
        """Return a separate key, so that Prefect's own worker stays registered for pools of processes."""
        return "fepflow"

    async def run(
        self,
        flow_run: FlowRun,
        configuration: ProcessJobConfiguration,
        task_status: anyio.abc.TaskStatus[int] | None = None,
    ) -> ProcessWorkerResult:
        """Execute a flow run in a process, wait for its end, and look for the next run at once."""
        environment = self._changes(configuration)
        job = configuration.job if isinstance(configuration, WarmConfiguration) else None
        may_fork = configuration.command == ENGINE and all(name.startswith("PREFECT__") for name in environment)
        if job is None or not may_fork:
            with WORKER_RUNS.track_inprogress():
                result = await super().run(flow_run, configuration, task_status)
            WORKER_ENDED.labels(_how_ended(result.status_code)).inc()
            return result
        with tempfile.TemporaryDirectory(prefix="fepflow-run-") as empty:
            folder = str(configuration.working_dir or empty)
            process = _context.Process(target=execute, args=(job, folder, environment, self.reaps))
            process.start()
            WORKER_RUNS.inc()
            try:
                if task_status is not None:
                    task_status.started(process.pid or 0)
                await self._wait(process, flow_run.id)
            finally:
                WORKER_RUNS.dec()
                with anyio.CancelScope(shield=True):
                    await _end(process)
        WORKER_ENDED.labels(_how_ended(process.exitcode or 0)).inc()
        with contextlib.suppress(Exception):  # it is only sooner than the next poll, which says what is wrong
            await self.get_and_submit_flow_runs()
        code = process.exitcode or 0
        if code < 0 and await asyncio.to_thread(_has_begun, str(flow_run.id)):
            # The reaper says what becomes of the run: of a crash that another executor mends, no alert is to tell.
            code = 0
        return ProcessWorkerResult(status_code=code, identifier=str(process.pid))

    @cached_property
    def _environment(self) -> dict[str, str]:
        """Environment that runs inherit: the variables of this process, and its Prefect settings."""
        return {**os.environ, **get_current_settings().to_environment_variables(exclude_unset=True)}

    def _changes(self, configuration: ProcessJobConfiguration) -> dict[str, str]:
        """Return the variables of a run that are not in the worker's environment and settings."""
        wanted = configuration.env.items()
        return {name: value for name, value in wanted if value is not None and self._environment.get(name) != value}

    async def _give_worker_labels_to_flow_run(self, flow_run_id: UUID) -> None:
        """Skip the labels that name the worker. Nothing reads them, and they cost a request per run."""

    async def _propose_submitting_state(self, flow_run: FlowRun) -> None:
        """Skip the state between Pending and Running. A process is forked within milliseconds."""

    async def _wait(self, process: ForkServerProcess, flow_run_id: UUID) -> None:
        """Wait for the end of a run's process, or until it was cancelled and does not end by itself."""
        cancelling = False
        while not await _has_ended(process, WATCH_SECONDS):
            if cancelling:
                return
            with contextlib.suppress(Exception):  # whatever is the matter with the API: the run goes on
                state = (await self.client.read_flow_run(flow_run_id)).state
                cancelling = state is not None and (state.is_cancelling() or state.is_cancelled())


def _how_ended(code: int) -> str:
    return "ok" if code == 0 else "failed" if code > 0 else "killed"


def _has_begun(flow_run_id: str) -> bool:
    """Return whether the store has the run of a flow run; False while the store is away."""
    try:
        with Store.open(settings().store_address) as store:
            return store.runs.of_flow_run(flow_run_id) is not None or bool(
                store.runs.of_variants(UUID(flow_run_id).hex)
            )
    except FepflowError:
        return False


async def _has_ended(process: ForkServerProcess, seconds: float) -> bool:
    """Wait for the end of a process, for a limited time."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(process.sentinel, ended.set)
    try:
        await asyncio.wait_for(ended.wait(), seconds)
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(process.sentinel)
    process.join()
    return True


async def _end(process: ForkServerProcess) -> None:
    """End a running process, with its group."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.exitcode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid or 0, number)
        await _has_ended(process, GRACE_SECONDS)


def start_fork_server() -> None:
    """Start the process that imports the libraries of runs, in a folder whose files do not configure Prefect."""
    _context.set_forkserver_preload([PRELOADED])
    with contextlib.chdir(os.sep):
        forkserver.ensure_running()


async def work(worker: WarmWorker, store: Store | None, *, reaps: bool, with_healthcheck: bool) -> None:
    """Work until SIGTERM or Ctrl-C. Then running runs are ended, and the reaper notes their state.

    The store is for the reaper and for metrics.
    """
    async with metrics_port(settings(), store, OF_WORKER, *([OF_REAPER] if reaps else [])):
        await _work(worker, store if reaps else None, with_healthcheck=with_healthcheck)


def _without_traceback(record: logging.LogRecord) -> bool:
    record.exc_info = None
    return True


# While the server restarts, its message says enough. That runs are cancelled does not depend on it: see `_wait`.
logging.getLogger("prefect.FlowRunCancellingObserver").addFilter(_without_traceback)


async def _work(worker: WarmWorker, store: Store | None, *, with_healthcheck: bool) -> None:
    stop = stop_on_signals()
    logging.getLogger("prefect.flow_runs").setLevel(logging.WARNING)  # nothing of the preparation in the log of a run
    start_fork_server()
    warm = _context.Process(target=os.getpid)
    await asyncio.to_thread(warm.start)  # it waits until the fork server has imported everything
    worker.reaps = store is not None
    working = asyncio.create_task(worker.start(with_healthcheck=with_healthcheck, printer=click.echo))
    tasks = {working, asyncio.create_task(stop.wait())}
    no_reaper = asyncio.Event()
    if store is not None:
        tasks.add(keeping := asyncio.create_task(keep(store, no_reaper, worker.get_and_submit_flow_runs)))
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    await cancel_and_wait(working)
    no_reaper.set()
    for task in done:
        task.result()
    if store is not None:
        await keeping
