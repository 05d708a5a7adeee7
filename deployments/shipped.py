"""A step of `prefect deploy`: what prefect.yaml says {{ shipped.… }} for."""

from __future__ import annotations

from importlib.resources import files


def shipped() -> dict[str, str]:
    """Return the folder of the suites that come with fepflow, in a checkout as in an installed package."""
    return {"suites": str(files("fepflow.deployments") / "suites")}
