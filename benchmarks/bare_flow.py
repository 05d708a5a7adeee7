"""The least that a run can be in Prefect: one flow and three tasks, which do nothing."""

from __future__ import annotations

from prefect import flow, task


@task
def plan(suite: str) -> str:
    """Stand in for reading the suite."""
    return suite


@task
def call(suite: str) -> str:
    """Stand in for calls and checks."""
    return suite


@task
def decide(suite: str) -> str:
    """Stand in for the verdict."""
    return suite


@flow
def bare(suite: str) -> str:
    """Run the tasks, one after the other."""
    return decide(call(plan(suite)))


if __name__ == "__main__":
    bare("suite.yaml")
