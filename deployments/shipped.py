"""A step of `prefect deploy` that supplies the values of {{ shipped.… }} in prefect.yaml."""

from __future__ import annotations

from importlib.resources import files


def shipped() -> dict[str, str]:
    """Return the folder of the suites that come with fepflow, in a checkout or an installed package."""
    return {"suites": str(files("fepflow.deployments") / "suites")}
