"""Prefect's process worker, whose runs begin at once: `python -m fepflow.deployments.worker --pool fepflow`.

It takes the options of `prefect worker start`. Where neither the work pool nor the deployment says with which command a
run begins, Prefect's own first looks for the flow's code, in a process that computes as long as a short run. Ours is
installed where the worker is.
"""

from __future__ import annotations

import sys
from typing import Any

from prefect.cli import app
from prefect.utilities.processutils import command_to_string
from prefect.workers.process import ProcessJobConfiguration, ProcessWorker


class EngineConfiguration(ProcessJobConfiguration):
    """What a run is started with: Prefect's engine in the worker's own Python, unless somebody has said otherwise."""

    def prepare_for_flow_run(self, *arguments: Any, **named: Any) -> None:
        """Fill in what the pool and the deployment leave open."""
        self.command = self.command or command_to_string([sys.executable, "-m", "prefect.engine"])
        super().prepare_for_flow_run(*arguments, **named)


def main() -> None:
    """Run Prefect's worker until SIGTERM."""
    ProcessWorker.job_configuration = EngineConfiguration
    sys.argv[1:1] = ["worker", "start", "--type", "process"]
    app()


if __name__ == "__main__":
    main()
