"""The conformance of an agent that is a command or an address."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path

from fepflow.calls.ecp.conformance.examination import Examination
from fepflow.calls.ecp.conformance.process_wire import ProcessWire
from fepflow.calls.ecp.conformance.report import ConformanceReport
from fepflow.calls.ecp.stdio import Programs, find_command
from fepflow.security.redaction import known_secrets, remember
from fepflow.security.secret_names import secrets_in_address
from fepflow.suite.target import Target


async def check_conformance(target: Target, folder: Path, text: str, seconds: float) -> ConformanceReport:
    """Start the agent of an `ecp` target from `folder`, or call its address, and find out what it does.

    Its steps have the input `text`; each request may take so many seconds. Raises InputError for a command or an
    address that cannot be used, TargetError where no process can be had.
    """
    assert target.ecp is not None  # the caller has made it
    ecp = target.ecp
    if ecp.url is not None:
        return await _of_address(target, text, seconds)
    find_command(ecp, folder)
    async with aclosing(Programs(ecp, folder, known_secrets())) as programs:

        async def connect() -> ProcessWire:
            return ProcessWire(await programs.start(), ecp.max_bytes)

        return await Examination(connect, text, seconds, is_process=True).run()


async def _of_address(target: Target, text: str, seconds: float) -> ConformanceReport:
    from fepflow.calls.ecp.conformance.http_wire import HttpWire  # loads httpx, which processes need not wait for
    from fepflow.calls.ecp.http import Endpoint

    assert target.ecp is not None  # see above
    remember(secrets_in_address(target.ecp.url or ""))
    async with aclosing(Endpoint(target, known_secrets())) as endpoint:

        async def connect() -> HttpWire:
            return HttpWire(endpoint, seconds)

        return await Examination(connect, text, seconds, is_process=False).run()
