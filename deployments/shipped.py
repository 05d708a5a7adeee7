"""A step of `prefect deploy`: what prefect.yaml says {{ shipped.… }} for."""

from __future__ import annotations

from importlib.resources import files


def shipped() -> dict[str, str]:
    """Where the suites are that come with fepflow: `suites`, in a checkout as in an installed package."""
    return {"suites": str(files("fepflow.deployments") / "suites")}
