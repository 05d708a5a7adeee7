"""Runs of a real store and agent, as the steps of a run have them."""

from tests.tasks.conftest import agent, plan, store

__all__ = ["agent", "plan", "store"]
