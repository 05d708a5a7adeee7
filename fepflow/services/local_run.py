"""A run in this process: Prefect runs in a separate thread, and the main thread handles signals and waits."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from fepflow.calls.factory import load_early
from fepflow.errors import FepflowError, InfrastructureError
from fepflow.prefect_settings import API_URL
from fepflow.security.redaction import words_of
from fepflow.services import prefect_api
from fepflow.suite.variants import tags_of
from fepflow.tasks.local_run import LEASE_SECONDS, RENEW_SECONDS, LocalRun

if TYPE_CHECKING:
    from fepflow.tasks.local_run import LocalVariants

ASK_SECONDS = 5.0
GONE_SECONDS = 30.0
"""Longest wait of a finished run for a Prefect API that does not answer: its client would try for minutes."""
ASK_SECONDS_STOPPED = 0.5
GONE_SECONDS_STOPPED = 1.0
"""The same once the user has stopped the run, and waits."""

logger = logging.getLogger("fepflow.run")


class Execution:
    """A flow run that starts at once.

    Prefect itself handles SIGTERM if it can, and kills the process at any point. It cannot outside of the main thread.
    So Ctrl-C and SIGTERM both stop the run here, and its results are stored.
    """

    def __init__(self, begun: LocalRun | LocalVariants) -> None:
        self.flow_run_url: str | None = None
        self.error: BaseException | None = None
        """Exception that the flow or Prefect raised; None after an ordinary end."""
        self.prefect_error: InfrastructureError | None = None
        """Error of Prefect's own: it did not execute the flow, or does not know its end, which the store may know."""
        self._begun = begun
        self._runs = [begun.run] if isinstance(begun, LocalRun) else [variant.run for variant in begun.runs]
        self._stop: Future[None] = Future()
        self._ended: Future[None] = Future()
        # A daemon, so that the process can leave without it when Prefect's API is gone.
        threading.Thread(target=self._work, name="fepflow-run", daemon=True).start()
        threading.Thread(target=self._keep_claim, name="fepflow-claim", daemon=True).start()
        # While the flow waits for Prefect's API.
        threading.Thread(
            target=load_early, args=[self._runs[0].suite["target"]], name="fepflow-load", daemon=True
        ).start()

    @property
    def stopped(self) -> bool:
        """True after Ctrl-C or SIGTERM."""
        return self._stop.done()

    def wait(self, is_over: Callable[[], bool], *, handle_sigterm: bool = True) -> bool:
        """Wait for the end. Returns False if the run is over in the store, but Prefect's API has not answered for a
        while.

        The first Ctrl-C or SIGTERM stops the run; the second one raises KeyboardInterrupt.
        """
        heard = time.monotonic()
        with _sigterm_as_ctrl_c() if handle_sigterm else nullcontext():
            while not self._ended.done():
                try:
                    wait_for([self._ended], timeout=ASK_SECONDS_STOPPED if self.stopped else ASK_SECONDS)
                    if self._ended.done() or not prefect_api.is_gone() or not is_over():
                        heard = time.monotonic()
                    elif time.monotonic() - heard > (GONE_SECONDS_STOPPED if self.stopped else GONE_SECONDS):
                        return False
                except KeyboardInterrupt:
                    if self.stopped:
                        raise
                    self._stop.set_result(None)
        return True

    def _work(self) -> None:
        try:
            asyncio.run(self._flow_unless_stopped())
        except BaseException as error:
            self.error = error
        self._ended.set_result(None)

    async def _flow_unless_stopped(self) -> None:
        flow = asyncio.create_task(self._flow())
        await asyncio.wait({flow, asyncio.wrap_future(self._stop)}, return_when=asyncio.FIRST_COMPLETED)
        self._begun.interruption.request()
        await flow

    def _keep_claim(self) -> None:
        """Renew the claim of each run until it has started. It is a thread, as loading Prefect blocks an event loop."""
        store = self._begun.store
        claimed = {run.id: run.lease_owner for run in self._runs if run.lease_owner is not None}
        while claimed and wait_for([self._ended], timeout=RENEW_SECONDS).not_done:
            for run_id, owner in list(claimed.items()):
                try:
                    if not store.leases.renew(run_id, owner, LEASE_SECONDS):
                        del claimed[run_id]
                except FepflowError as error:
                    logger.debug("the claim of run %s could not be renewed: %s", run_id, error)

    async def _flow(self) -> None:
        from prefect import tags
        from prefect.utilities.urls import url_for

        from fepflow.flows.evaluate import evaluate
        from fepflow.flows.rescore import rescore
        from fepflow.tasks.local_run import local_run, local_variants

        run, begun = self._runs[0], self._begun
        if isinstance(begun, LocalRun):
            local_run.set(begun)
            run_id, run_tags = run.id, run.tags
        else:
            local_variants.set(begun)
            run_id, run_tags = begun.id, [tag for tag in run.tags if tag not in tags_of(run.variant)]
        try:
            with tags(*run_tags):
                if run.rescored_from is not None:
                    suite, gate = run.suite_path or "", bool(run.rescoring.get("gate_only"))
                    given = {"run": run.rescored_from, "suite": suite, "gate": gate, "run_id": run_id}
                    state = await rescore(**given, return_state=True)
                else:
                    state = await evaluate(suite=run.suite_path or run.name, run_id=run_id, return_state=True)
        except Exception as error:  # what goes wrong in the flow is in its state; this is Prefect's own
            message = f"Prefect's API at {os.environ.get(API_URL)} cannot be used: {words_of(error)}"
            self.prefect_error = InfrastructureError(message)
            return
        result = await state.aresult(raise_on_failure=False)
        self.error = result if isinstance(result, BaseException) else None
        flow_run_id = state.state_details.flow_run_id
        if flow_run_id:
            url = await asyncio.to_thread(prefect_api.flow_run_address, str(flow_run_id))
            self.flow_run_url = url or url_for("flow-run", obj_id=flow_run_id)  # of Prefect Cloud, by Prefect itself


@contextmanager
def _sigterm_as_ctrl_c() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
