"""Metrics in the formats of Prometheus: totals of all runs from the store, and counters of this process.

Runs execute for seconds in separate processes on any machine, which cannot be scraped. So their totals are in the store
(`fepflow.store.totals`), and the API, the worker and the reaper all show them: take the maximum over the processes
before adding them up. Labels have few values, never the id of a run or a case. Beside them are the probes of a process,
for load balancers and orchestrators: `/livez` and `/readyz`.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.gc_collector import GCCollector
from prometheus_client.metrics_core import Metric
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fepflow.errors import FepflowError
from fepflow.store import totals
from fepflow.store.store import Store
from fepflow.store.totals import BUCKETS, INFINITE, SUM, Total, WaitingRuns

PATH = "/metrics"
FRESH_SECONDS = 5.0
"""Seconds for which totals are shown again, so that several scrapers cost as much as one."""

disable_created_metrics()  # type: ignore[no-untyped-call]  # otherwise each counter has another series, of its creation

OF_PROCESS, OF_API, OF_WORKER, OF_REAPER = (CollectorRegistry() for _ in range(4))
"""Counters of this process: those of every process, and those of the API, of a worker and of the reaper."""
ProcessCollector(registry=OF_PROCESS)
PlatformCollector(registry=OF_PROCESS)
GCCollector(registry=OF_PROCESS)

_QUICK = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
HTTP_REQUESTS = Counter(
    "fepflow_http_requests", "Requests over HTTP, by their route.", ["method", "route", "status"], registry=OF_API
)
HTTP_SECONDS = Histogram(
    "fepflow_http_request_duration_seconds",
    "Time from a request's head to the end of its response.",
    ["route"],
    buckets=_QUICK,
    registry=OF_API,
)
GRPC_CALLS = Counter("fepflow_grpc_calls", "Calls over gRPC.", ["method", "code"], registry=OF_API)
GRPC_SECONDS = Histogram(
    "fepflow_grpc_call_duration_seconds", "Time of a call over gRPC.", ["method"], buckets=_QUICK, registry=OF_API
)
WORKER_RUNS = Gauge("fepflow_worker_runs", "Flow runs that this worker executes now.", registry=OF_WORKER)
WORKER_ENDED = Counter(
    "fepflow_worker_processes_ended", "Processes of flow runs that ended, by how.", ["exit"], registry=OF_WORKER
)
REAPED = Counter("fepflow_reaper_interrupted_runs", "Runs whose process was found dead.", registry=OF_REAPER)
DISPATCHED = Counter("fepflow_reaper_dispatched_runs", "Requested runs that Prefect was told of.", registry=OF_REAPER)
REAPER_ERRORS = Counter(
    "fepflow_reaper_errors", "Looks of the reaper that failed, and are tried again.", ["task"], registry=OF_REAPER
)
REAPER_LOOKED = Gauge(
    "fepflow_reaper_last_look_timestamp_seconds", "When the reaper last looked for dead runs.", registry=OF_REAPER
)

for _exit in ("ok", "failed", "killed"):
    WORKER_ENDED.labels(_exit)
for _task in ("reap", "dispatch", "delete"):
    REAPER_ERRORS.labels(_task)

_COUNTERS: Mapping[str, tuple[str, str, Sequence[str]]] = {
    totals.RUNS: ("fepflow_runs", "Ends of runs, by outcome.", ("suite", "outcome")),
    totals.CALLS: ("fepflow_calls", "Outputs by where they come from.", ("suite", "outcome")),
    totals.CALL_ERRORS: ("fepflow_call_errors", "Calls that failed after all attempts.", ("suite", "kind")),
    totals.RETRIES: ("fepflow_call_retries", "Further attempts of calls.", ("suite",)),
    totals.CHECKS: ("fepflow_checks", "Results of checks, by outcome.", ("suite", "outcome")),
    totals.CHECK_ERRORS: ("fepflow_check_errors", "Checks in status error, by type.", ("type",)),
    totals.MODEL_REQUESTS: ("fepflow_model_requests", "Requests of checks to models.", ("suite",)),
    totals.TOKENS: ("fepflow_tokens", "Tokens that answers reported.", ("suite", "source")),
    totals.USD: ("fepflow_cost_usd", "Cost that is known, in US dollars.", ("suite", "source")),
    totals.LOOKUPS: ("fepflow_cache_lookups", "Answers that were, or were not, there already.", ("cache", "result")),
}
"""Name, help and labels of the counters, by the name of their totals. `suite` is the total's own, the last label its
label, with both parts of one that has two."""
_FROM_ZERO: Mapping[str, Sequence[str]] = {
    totals.RUNS: ("pass", "fail", "inconclusive", "error", "interrupted"),
    totals.CALLS: ("answered", "failed"),
    totals.CALL_ERRORS: ("circuit_open",),
}
"""Labels that each suite has before there is anything to count: Prometheus sees no increase in a series that begins
with 1, so the first error of a suite would alert nobody."""
_HISTOGRAMS = {
    totals.CALL_SECONDS: ("fepflow_call_duration_seconds", "Time of calls that were answered, retries included."),
    totals.WRITE_SECONDS: ("fepflow_store_write_duration_seconds", "Time in which runs committed groups of results."),
}


class StoreMetrics(Collector):
    """Totals of all runs in the store, as they were last read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._totals: list[Total] = []
        self._waiting: WaitingRuns | None = None
        self._read_at = -FRESH_SECONDS

    def read(self) -> bool:
        """Read the store, unless that was a moment ago; return whether it answers. It blocks."""
        if time.monotonic() - self._read_at < FRESH_SECONDS:
            return self._waiting is not None
        try:
            self._store.check()
            self._totals, self._waiting = self._store.totals.read(), self._store.totals.waiting_runs()
        except FepflowError:
            self._totals, self._waiting = [], None
        self._read_at = time.monotonic()
        return self._waiting is not None

    def forget(self) -> None:
        """Forget the totals of a store that does not answer in time: old numbers would look like a standstill."""
        self._totals, self._waiting = [], None

    def collect(self) -> Iterator[Metric]:
        """Yield the totals, or nothing if the store did not answer."""
        by_metric: dict[str, list[Total]] = defaultdict(list)
        for total in self._totals:
            by_metric[total.metric].append(total)
        if self._waiting is None:
            return
        suites = sorted({total.suite for total in self._totals if total.suite})
        for metric, (name, text, labels) in _COUNTERS.items():
            counter = CounterMetricFamily(name, text, labels=labels)
            values = dict.fromkeys(product(suites, _FROM_ZERO.get(metric, ())), 0.0)
            values |= {(total.suite, total.label): total.value for total in by_metric[metric]}
            for (suite, label), value in values.items():
                own = (suite,) if "suite" in labels else ()
                rest = label.split(" ") if len(labels) > len(own) else []
                counter.add_metric([*own, *rest], value)
            yield counter
        verdicts = GaugeMetricFamily(
            "fepflow_last_verdict_timestamp_seconds", "When a suite last got a verdict.", labels=("suite",)
        )
        for total in by_metric[totals.LAST_VERDICT]:
            verdicts.add_metric([total.suite], total.value)
        yield verdicts
        for metric, (name, text) in _HISTOGRAMS.items():
            yield _histogram(name, text, metric, {total.label: total.value for total in by_metric[metric]})
        runs = GaugeMetricFamily("fepflow_unfinished_runs", "Runs without an end, by status.", labels=("status",))
        for status, count in self._waiting.by_status.items():
            runs.add_metric([status], count)
        yield runs
        yield GaugeMetricFamily(
            "fepflow_queue_undispatched_runs",
            "Requested runs that Prefect was not told of yet.",
            value=self._waiting.undispatched,
        )
        yield GaugeMetricFamily(
            "fepflow_queue_oldest_age_seconds",
            "Age of the oldest run that has not begun; 0: none waits.",
            value=self._waiting.oldest_age,
        )


def _histogram(name: str, text: str, metric: str, counts: Mapping[str, float]) -> HistogramMetricFamily:
    buckets, running = list[tuple[str, float]](), 0.0
    for bound in (*(f"{bound:g}" for bound in BUCKETS[metric]), INFINITE):
        running += counts.get(bound, 0.0)
        buckets.append((bound if bound == INFINITE else str(float(bound)), running))
    return HistogramMetricFamily(name, text, buckets=buckets, sum_value=counts.get(SUM, 0.0))


class Metrics(Collector):
    """The metrics for scrapes of this process; `own` are those of its work."""

    def __init__(self, store: Store, probes: Mapping[str, Probe], *own: CollectorRegistry) -> None:
        self._own = OF_PROCESS, *own
        self._store = StoreMetrics(store)
        self._probes = {**probes, "store": Probe(self._store.read)}
        self._states: Mapping[str, str] = {}

    async def scrape(self, accept: str) -> tuple[bytes, str]:
        """Return the page and its media type. A dependency that does not answer within 3 s is not waited for."""
        states = await asyncio.gather(*(probe.state() for probe in self._probes.values()))
        self._states = dict(zip(self._probes, states, strict=True))
        if self._states["store"] != OK:
            self._store.forget()
        encode, media_type = choose_encoder(accept)
        return await asyncio.to_thread(encode, self), media_type

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        for registry in self._own:
            yield from registry.collect()
        up = GaugeMetricFamily("fepflow_dependency_up", "1 if it answers.", labels=("dependency",))
        for name, state in self._states.items():
            if state in (OK, UNAVAILABLE):
                up.add_metric([name], float(state == OK))
        yield up
        yield from self._store.collect()


def metrics_route(metrics: Metrics) -> Route:
    """Return the route of the page."""

    async def page(request: Request) -> Response:
        content, media_type = await metrics.scrape(request.headers.get("accept", ""))
        return Response(content, media_type=media_type)

    return Route(PATH, page)


OTHER_ROUTES = "other"
"""The label of requests to unknown paths, of which there may be any number."""
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class HttpMetrics:
    """A counter of an application's requests by the patterns of its routes, around all other middleware.

    It matches the route once more, which costs some microseconds.
    """

    def __init__(self, app: ASGIApp, routes: Sequence[BaseRoute]) -> None:
        self._app = app
        self._routes = [(route, str(route.path)) for route in routes if hasattr(route, "path")]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request (ASGI 3)."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.monotonic(), "500"

        async def send_noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = str(message["status"])
            await send(message)

        try:
            await self._app(scope, receive, send_noted)
        finally:
            route, method = self._route(scope), scope["method"]
            HTTP_REQUESTS.labels(method if method in _METHODS else "other", route, status).inc()
            HTTP_SECONDS.labels(route).observe(time.monotonic() - began)

    def _route(self, scope: Scope) -> str:
        matching = (path for route, path in self._routes if route.matches(scope)[0] is not Match.NONE)
        return next(matching, OTHER_ROUTES)


SECONDS = 3.0
"""Seconds for a dependency to answer. Callers of a probe also give up after a few seconds."""

OK, UNAVAILABLE, NOT_CONFIGURED = "ok", "unavailable", "not configured"

Check = Callable[[], bool | None]
"""Asks a dependency, and blocks until then. Returns False if it does not answer, None if there is none."""


class Probe:
    """The state of one dependency, asked by one thread at a time: one that hangs is not asked again and again."""

    def __init__(self, check: Check) -> None:
        self._check = check
        self._asking: asyncio.Task[bool | None] | None = None

    async def state(self) -> str:
        """Return `ok`, `unavailable` or `not configured`, within SECONDS."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(asyncio.to_thread(self._check))
        try:
            async with asyncio.timeout(SECONDS):
                answers = await asyncio.shield(self._asking)
        except TimeoutError:
            answers = False
        return NOT_CONFIGURED if answers is None else OK if answers else UNAVAILABLE


def store_probe(store: Store) -> Probe:
    """Return the probe of a store: it answers, and has its tables."""

    def check() -> bool:
        try:
            store.check()
        except FepflowError:
            return False
        return True

    return Probe(check)


def probe_routes(probes: Mapping[str, Probe]) -> list[Route]:
    """Return `/livez`: this process answers; and `/readyz`, also as `/healthz`: the state of each dependency, by name.

    The status is 503 while the store is away. Without Prefect it stays 200: results are shown, and requests wait in the
    store, so orchestrators must not take the process out of service.
    """

    async def livez(_: Request) -> JSONResponse:
        return JSONResponse({"status": OK})

    async def readyz(_: Request) -> JSONResponse:
        states = dict(zip(probes, await asyncio.gather(*(probe.state() for probe in probes.values())), strict=True))
        if states["store"] == UNAVAILABLE:
            return JSONResponse({"status": UNAVAILABLE, **states, "message": "The store does not answer."}, 503)
        return JSONResponse({"status": "degraded" if UNAVAILABLE in states.values() else OK, **states})

    return [Route("/livez", livez), *(Route(path, readyz) for path in ("/readyz", "/healthz"))]
