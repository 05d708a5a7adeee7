"""One conversation with an agent, for who wants to try it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

from fepflow.calls.ecp.agents import open_agents
from fepflow.calls.ecp.session import Session, Warnings
from fepflow.calls.ecp.stdio import find_command
from fepflow.security.redaction import known_secrets, remember
from fepflow.security.secret_names import secrets_in_address
from fepflow.suite.target import Target


@asynccontextmanager
async def open_session(target: Target, folder: Path) -> AsyncIterator[Session]:
    """A session of the agent of an `ecp` target, started from `folder` or at its address; it is initialized.

    Raises InputError for a command or an address that cannot be used, TargetError.
    """
    assert target.ecp is not None  # the caller has made it
    remember(secrets_in_address(target.ecp.url or ""))
    if target.ecp.command is not None:
        find_command(target.ecp, folder)
    secrets = known_secrets()
    async with aclosing(open_agents(target, folder, secrets)) as agents, aclosing(await agents.connect()) as connection:
        session = Session(connection, Warnings(), secrets, target.ecp)
        await session.initialize()
        yield session
