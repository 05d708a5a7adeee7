"""An agent built on ecp-sdk, for the benchmarks: it answers after so many seconds. `ecp_agent.py SECONDS`."""

import sys
import time
from typing import Any

from ecp import Result, agent, on_reset, on_step, serve


@agent(name="bench")
class Echo:
    """Says what it is told."""

    @on_step  # type: ignore[untyped-decorator]  # ecp-sdk has no types
    def step(self, text: str) -> Any:
        """Answer a step."""
        time.sleep(float(sys.argv[1]))
        return Result(public_output=f"You said: {text}")

    @on_reset  # type: ignore[untyped-decorator]
    def reset(self) -> None:
        """Forget nothing, for there is nothing to forget."""


if __name__ == "__main__":
    serve(Echo())
