"""`fepflow ecp`: agents that speak the Evaluation Context Protocol, without a suite, a store or Prefect."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click

from fepflow.cli.options import JSON, Deadline, echo_json
from fepflow.errors import InputError
from fepflow.text import printable, text_of

if TYPE_CHECKING:
    from fepflow.calls.ecp.conformance import ConformanceReport
    from fepflow.calls.ecp.protocol import Connection
    from fepflow.suite.target import Target

_COLOURS = {"pass": "green", "fail": "red", "skip": "yellow"}
_SHOWN = ("evaluation_context", "tool_calls", "usage", "logs")


@click.group()
def ecp() -> None:
    """Try agents that speak the Evaluation Context Protocol (ECP), and check their conformance."""


def of_agent(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that name the agent and say how it is called."""
    for option in (
        click.option("--timeout", type=Deadline(), default="30s", help="Deadline of a request. Default: 30s."),
        click.option(
            "--env",
            "variables",
            multiple=True,
            metavar="NAME",
            help="Environment variable to pass to the agent. Repeatable.",
        ),
        click.option("--target", required=True, metavar="COMMAND|URL", help="Command or address of the agent."),
    ):
        command = option(command)
    return command


@ecp.command()
@of_agent
@click.option("--input", "text", default="hello", help="Input of the steps. Default: hello.")
@JSON
def conformance(target: str, variables: Sequence[str], timeout: float, text: str, as_json: bool) -> int:
    """Check whether an agent conforms to the protocol. The exit code is 0 if it does, otherwise 1.

    The command starts the agent a few times, and sends it about ten steps.
    """
    import asyncio

    from fepflow.calls.ecp.conformance import check_conformance

    with _errors_of_option():
        report = asyncio.run(check_conformance(_target(target, variables, timeout), Path.cwd(), text, timeout))
    if as_json:
        echo_json(_as_json(target, report))
    else:
        _print_report(report)
    return 0 if report.is_conformant else 1


@ecp.command()
@of_agent
@click.argument("inputs", metavar="INPUT...", nargs=-1, required=True)
def step(target: str, variables: Sequence[str], timeout: float, inputs: Sequence[str]) -> None:
    """Send an agent one step after the other, and print its answers."""
    import asyncio

    with _errors_of_option():
        asyncio.run(_ask(_target(target, variables, timeout), inputs))


def _target(text: str, variables: Sequence[str], timeout: float) -> Target:
    from fepflow.calls.ecp.target import target_of

    return target_of(text, variables, timeout)


@contextmanager
def _errors_of_option() -> Iterator[None]:
    """Name the option in errors about the target, instead of a field of a suite."""
    from dataclasses import replace

    try:
        yield
    except InputError as error:
        raise InputError([replace(problem, path="--target") for problem in error.problems]) from None


def _as_json(target: str, report: ConformanceReport) -> dict[str, Any]:
    from fepflow.security.redaction import known_secrets, redact

    return {
        "target": redact(target, known_secrets()),
        "agent": report.agent,
        "protocol_version": report.protocol_version,
        "capabilities": report.capabilities,
        "conformant": report.is_conformant,
        "checks": [{"name": check.name, "status": check.status, "message": check.message} for check in report.checks],
    }


def _print_report(report: ConformanceReport) -> None:
    from fepflow.calls.ecp.conformance import CHECKS

    width = max(map(len, CHECKS))
    for check in report.checks:
        status = click.style(f"{check.status:4}", fg=_COLOURS[check.status])
        click.echo(f"{status}  {check.name:<{width}}  {_printed(check.message or CHECKS[check.name])}")
    failed = sum(check.status == "fail" for check in report.checks)
    version = report.protocol_version or "none named"
    click.echo(f"\n{_printed(report.agent) or 'The agent'} (version: {version}): ", nl=False)
    click.echo(f"{failed} of {len(report.checks)} checks failed." if failed else "conformant.")


async def _ask(target: Target, inputs: Sequence[str]) -> None:
    from fepflow.calls.ecp.target import open_session
    from fepflow.security.redaction import known_secrets, redact_json

    connection: Connection | None = None
    started = perf_counter()
    try:
        async with open_session(target, Path.cwd()) as session:
            connection, agent = session.connection, session.agent
            declared = ", ".join(sorted(agent.capabilities)) or "none"
            about = f"{agent.name}: version {agent.version or 'none named'}, capabilities {declared}"
            click.echo(f"{_printed(about)}, {perf_counter() - started:.2f} s")
            for number, text in enumerate(inputs, 1):
                started = perf_counter()
                result = redact_json(await session.step(text), known_secrets())
                _print_step(number, result, perf_counter() - started)
    finally:  # when it has ended, all that it said is there
        for place, tail in (connection.log_tail() if connection is not None else {}).items():
            click.echo(f"\nthe end of {place}:\n{_printed(redact_json(tail, known_secrets()).rstrip())}")


def _print_step(number: int, result: dict[str, Any], seconds: float) -> None:
    click.echo(f"\nstep {number}: {result['status']}, {seconds:.2f} s")
    public_output = result["public_output"]
    click.echo("no public output" if public_output is None else _printed(public_output))
    for name in _SHOWN:
        values = result[name] if isinstance(result[name], list) else [result[name]]
        for value in values:
            if value is not None:
                click.echo(f"{name}: {_printed(text_of(value))}")


def _printed(text: str) -> str:
    """Return text of others for a terminal, line by line."""
    return "\n".join(printable(line) for line in text.split("\n"))
