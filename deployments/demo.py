"""The demonstration: `python -m fepflow.deployments.demo` runs the shipped suite against the stand-in agent.

It exits with 0 if the run got a verdict, whatever it is.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.resources import files

import click

from fepflow.errors import InfrastructureError

SUITE = files("fepflow.deployments") / "suites" / "demo" / "suite.yaml"
VERDICTS = (0, 1, 4)


def main() -> int:
    """Start the agent, run the suite, stop the agent."""
    click.echo(
        "An evaluation, for show: a refund desk, played by a stand-in agent on this machine, is asked 120 questions."
    )
    click.echo("It is wrong now and then, and it fails now and then; nothing leaves this machine.")
    click.echo("The judge of its tone is a stand-in, too: no model, made-up scores. A key that you have is not used.\n")
    with subprocess.Popen(  # our own interpreter, fixed arguments
        [sys.executable, "-P", "-m", "fepflow.deployments.simulators.demo_agent", "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
    ) as agent:
        try:
            address = (agent.stdout.readline() if agent.stdout else "").strip()
            if not address:
                click.echo("error: the stand-in agent did not start", err=True)
                return InfrastructureError.exit_code
            code = _run(address)
        finally:
            agent.terminate()
    if code not in VERDICTS:
        return code
    click.echo("\nThat was `fepflow run`. Next: `. .venv/bin/activate`; `fepflow view latest` shows it in the browser,")
    click.echo("`fepflow show --failed` here; `fepflow init my-agent` begins a suite of your own. The README continues")
    click.echo("from there; `fepflow down` stops the Prefect server.")
    return 0


def _run(address: str) -> int:
    environment = {**os.environ, "FEPFLOW_DEMO_AGENT_URL": address}
    command = [sys.executable, "-P", "-m", "fepflow.cli.main", "run", str(SUITE)]
    return subprocess.run(command, env=environment, check=False).returncode  # noqa: S603  # see above


if __name__ == "__main__":
    sys.exit(main())
