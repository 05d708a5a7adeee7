"""The traces of a run's calls: each call has its own, and waits for its spans after the answer."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import shutil
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fepflow.asyncio_helpers import in_background
from fepflow.calls.base import TargetResponse
from fepflow.extras import require
from fepflow.security.redaction import known_secrets, redact_json
from fepflow.suite.target import Trace
from fepflow.text import plural
from fepflow.traces.conventions import HANDLERS, MAX_BYTES, MAX_SPANS, read_trace, why_unknown

if TYPE_CHECKING:
    from fepflow.calls.otlp_receiver import Receiver
    from fepflow.traces.conventions import Span

POLL_SECONDS = 0.02
"""Pause between looks into the spool."""

_WITH_ANSWER = 100_000_000
"""Nanoseconds between the end of a span and the answer, at most, if it ended with that."""

_TRACED = "01"
"""The flag of a trace that is recorded."""

logger = logging.getLogger("fepflow.calls")


def require_traces() -> None:
    """Raise MissingExtraError unless the library that reads spans is installed."""
    require("otel", "target.trace", "opentelemetry.proto", "google.protobuf", "google.rpc")


def is_traced(metadata: Mapping[str, Any] | None) -> bool:
    """Return whether an output has the whole trace of its call; without it, the output is not reused."""
    trace = (metadata or {}).get("trace")
    return isinstance(trace, dict) and "spans" in trace and why_unknown(trace, "spans") is None


class CallTrace:
    """The trace of one call: its ids, and the spans received so far."""

    def __init__(self, trace_id: str) -> None:
        self.trace_id: Final = trace_id
        self.call_id = secrets.token_hex(8)
        """The span of the call, of which those that handle it are parts; fepflow may export it as one of its own."""
        self.spans: dict[str, Span] = {}
        self.dropped = 0
        self.arrived = asyncio.Event()
        self.last_arrival = 0.0
        self.requests: list[str] = []
        """The requests to the agent that carried it: a span is expected for each."""
        self._bytes = 0

    @property
    def traceparent(self) -> str:
        """The header that the call carries (W3C Trace Context)."""
        return f"00-{self.trace_id}-{self.call_id}-{_TRACED}"

    @property
    def roots(self) -> list[Span]:
        """The received spans that are inside no other span of the agent: they handle fepflow's requests."""
        return [span for span in self.spans.values() if span.parent_id in (self.call_id, None)]

    @property
    def orphans(self) -> int:
        """The number of spans whose parent was not received."""
        known = {*self.spans, self.call_id, None}
        return sum(span.parent_id not in known for span in self.spans.values())

    def is_whole(self, requests: int, answered: int) -> bool:
        """Return whether all spans of this many requests have probably come; `answered` is the time in ns since 1970.

        A server's span contains all that its request did. Any other span may be one of several, of which the rest waits
        in the agent's exporter, unless it is the only one and ended with the answer: exporters send spans in the order
        of their ends.
        """
        if self.orphans:
            return False
        roots = self.roots
        servers = sum(span.kind in HANDLERS for span in roots)
        ended_with_answer = max((span.end for span in roots), default=0) >= answered - _WITH_ANSWER
        return servers >= requests or (len(roots) == requests and ended_with_answer)

    def add(self, span: Span, now: float) -> None:
        """Add a span. If it comes again, because an exporter repeats unacknowledged spans, it is the same."""
        if span.span_id in self.spans or span.span_id == self.call_id:
            return
        self.last_arrival = now
        self.arrived.set()
        if len(self.spans) >= MAX_SPANS or self._bytes + span.size > MAX_BYTES:
            self.dropped += 1
            return
        self._bytes += span.size
        self.spans[span.span_id] = span


class Traces:
    """Traces of a run's calls, from one event loop.

    Enter `listening` before the first call. `late` counts spans that came after their case was done.
    """

    def __init__(self, config: Trace) -> None:
        require_traces()
        self._config = config
        self._prefix = secrets.token_hex(8)
        self._open: dict[str, CallTrace] = {}
        self._receiver: Receiver | None = None
        self._done: set[str] = set()
        self.late = 0

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Receive spans during the context. Raises InputError if the port is taken."""
        from fepflow.calls.otlp_receiver import Receiver, remove_what_killed_runs_left, spool_folder

        spool = spool_folder()
        await asyncio.to_thread(remove_what_killed_runs_left, spool)
        folder = spool / self._prefix
        folder.mkdir(mode=0o700)
        receiver = self._receiver = Receiver(self._config.port)
        try:
            receiver.start()
            async with in_background(self._poll(folder), "fepflow-traces"):
                yield
        finally:
            await asyncio.to_thread(receiver.close)
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    def begin(self, instead_of: CallTrace | None = None) -> CallTrace:
        """Return the trace of a new call, after a failed one."""
        if instead_of is not None:
            self._open.pop(instead_of.trace_id, None)
        trace = CallTrace(self._prefix + secrets.token_hex(8))
        self._open[trace.trace_id] = trace
        return trace

    async def finish(
        self, trace: CallTrace, response: TargetResponse, target_secrets: frozenset[str]
    ) -> TargetResponse:
        """Return the response with its trace, once that is complete, or the wait for it is over.

        The wait ends early if the trace is probably complete (`CallTrace.is_whole`), and no span has come for the
        suite's `quiet` time. Tokens and cost of the trace become the output's, if it does not report its own.
        """
        expected = max(1, len(trace.requests))
        await self._until_whole(trace, expected)
        self._done.add(trace.trace_id)
        content = await self._close(trace, self._problem(trace, expected), target_secrets)
        costs: dict[str, Any] = {
            name: content[name] for name in ("tokens", "usd") if name in content and response.metadata.get(name) is None
        }
        return TargetResponse(response.value, {**response.metadata, **costs, "trace": content})

    async def abandon(self, trace: CallTrace, target_secrets: frozenset[str]) -> dict[str, Any] | None:
        """Return the trace of a failed call so far, or None."""
        problem = "the call failed, and its trace is what had come until then"
        content = await self._close(trace, problem, target_secrets)
        return content if trace.spans else None

    async def _until_whole(self, trace: CallTrace, expected: int) -> None:
        loop = asyncio.get_running_loop()
        deadline, answered = loop.time() + self._config.wait, time.time_ns()
        while (now := loop.time()) < deadline:
            trace.arrived.clear()
            seconds = deadline - now
            if trace.is_whole(expected, answered):
                quiet = trace.last_arrival + self._config.quiet - now
                if quiet <= 0:
                    return
                seconds = min(seconds, quiet)
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await trace.arrived.wait()

    def _problem(self, trace: CallTrace, expected: int) -> str | None:
        """Return why the trace does not show what the agent did, or None."""
        wait = f"within {self._config.wait:g} s after the answer (target.trace.wait)"
        advice = (
            f"the agent has to continue the trace of `traceparent`, export it to {self._config.endpoint} "
            "(OTEL_EXPORTER_OTLP_ENDPOINT), and soon: OTEL_BSP_SCHEDULE_DELAY=200, or force_flush() before it answers"
        )
        if trace.dropped:
            limits = f"at most {MAX_SPANS:,} spans and {MAX_BYTES // 1_000_000} MB of a case are kept"
            return f"the trace is truncated: {plural(trace.dropped, 'span')} dropped, as {limits}"
        if not trace.spans:
            foreign = self.foreign
            others = f"; {plural(foreign, 'span')} of other traces came, too" if foreign else ""
            return f"no span came {wait}{others}: {advice}"
        spans, roots = plural(len(trace.spans), "span"), len(trace.roots)
        if not roots:
            whose = "the one that handles the call, whose parent is the span of `traceparent`"
            return f"{spans} came {wait}, but not {whose}: {advice}"
        if roots < expected:
            return f"spans of {roots} of {expected} requests came {wait}: {advice}"
        if trace.orphans:
            missing = f"the parents of {trace.orphans:,} of them did not, so the trace has gaps"
            return f"{spans} came {wait}, but {missing}: {advice}"
        return None

    async def _close(self, trace: CallTrace, problem: str | None, target_secrets: frozenset[str]) -> dict[str, Any]:
        self._open.pop(trace.trace_id, None)
        spans = list(trace.spans.values())

        def read() -> dict[str, Any]:
            hidden = target_secrets | known_secrets()
            for span in spans:  # before long texts are cut: a part of a secret is none
                span.attributes, span.events = redact_json(span.attributes, hidden), redact_json(span.events, hidden)
            content = read_trace(spans, trace.trace_id, trace.call_id, problem)
            return redact_json(content, hidden)  # what stood in JSON in JSON, too

        return await asyncio.to_thread(read) if len(spans) > 20 else read()

    @property
    def foreign(self) -> int:
        """The number of received spans that belong to no run."""
        return 0 if self._receiver is None else self._receiver.spool.foreign

    def warnings(self) -> list[str]:
        """Return warnings for readers of the verdict about spans that are in no trace."""
        warnings = []
        if self.late:
            seconds = f"{self._config.wait:g} s"
            cure = "raise target.trace.wait and target.trace.quiet, or have the agent export sooner"
            spans = plural(self.late, "span")
            warnings.append(f"{spans} came when their case was done (at most {seconds} after the answer): {cure}.")
        if self.foreign:
            spans = plural(self.foreign, "span")
            warnings.append(f"{spans} of other traces came, which do not continue the one of `traceparent`: dropped.")
        return warnings

    async def _poll(self, folder: Path) -> None:
        while True:
            await asyncio.sleep(POLL_SECONDS)
            try:
                names = os.listdir(folder)
                if any(not name.startswith(".") for name in names):
                    self._sort_in(await asyncio.to_thread(_take, folder))
            except OSError as error:
                logger.warning("spans cannot be read: %s", error.strerror)

    def _sort_in(self, spans: list[Span]) -> None:
        now = asyncio.get_running_loop().time()
        for span in spans:
            if (trace := self._open.get(span.trace_id)) is not None:
                trace.add(span, now)
            else:
                self.late += span.trace_id in self._done


def _take(folder: Path) -> list[Span]:
    """Return the spans of all requests in a folder, and remove them."""
    from fepflow.traces.otlp import request_of_protobuf, spans_of

    spans: list[Span] = []
    for name in os.listdir(folder):
        if not name.startswith("."):
            file = folder / name
            spans += [span for span in spans_of(request_of_protobuf(file.read_bytes())) if span is not None]
            file.unlink()
    return spans


def traced_environment(trace: Trace | None, env: Mapping[str, str], parent: str | None = None) -> dict[str, str]:
    """Return the environment of a target's process: the address for its spans, and their parent, if it has one.

    It replaces an address that is set for the whole machine, or for fepflow's own spans.
    """
    if trace is None:
        return dict(env)
    own = {name: value for name, value in env.items() if not name.startswith("OTEL_EXPORTER_OTLP_")}
    own |= {"OTEL_EXPORTER_OTLP_ENDPOINT": trace.endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}
    own.setdefault("OTEL_BSP_SCHEDULE_DELAY", "100")
    if parent is not None:
        own["TRACEPARENT"] = parent
    return own
