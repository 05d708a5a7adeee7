"""The factory of targets, from a suite's target section."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import file_digest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fepflow.calls.agent_addresses import AgentAddresses
from fepflow.calls.base import Target
from fepflow.errors import InputError, MissingExtraError, Problem
from fepflow.extras import require
from fepflow.protocol.content_hash import content_hash
from fepflow.suite import target
from fepflow.suite.reader import resolve_inside

if TYPE_CHECKING:
    from fepflow.calls.conversations import SimulatedUsers
    from fepflow.calls.models.client import ModelClient

# Each kind of target is imported where a suite has it: the libraries of all take half a second to load.


def open_target(
    config: target.Target,
    *,
    folder: Path,
    case_ids: Callable[[], Sequence[str]],
    roots: Sequence[Path] = (),
    secrets: frozenset[str] = frozenset(),
    is_called: bool = True,
    addresses: AgentAddresses | None = None,
    models: ModelClient | None = None,
    users: SimulatedUsers | None = None,
) -> Target:
    """Open the system under test that `config` describes. Nothing is called yet; recorded outputs are read, and
    Python code is loaded.

    `folder` is the suite's, `roots` where else it may read, `secrets` what must never be shown. `case_ids` gives the
    ids of the whole dataset in its order, also of cases that a limit or a shard leaves out; only recorded outputs that
    are matched by order ask for them. What only calls need is not loaded for a target that is not called. A target
    that was given over the network is called at one of `addresses` only. `models` is the run's client of models, and
    is needed if a model is called; `users` play the users of conversations. Raises InputError, or JSONPathError for an
    invalid path.
    """
    opened: Target
    if config.given is not None:
        from fepflow.calls.recorded import GivenOutputs

        return GivenOutputs()
    if addresses is not None and (config.http is None or config.http.app is not None):
        message = "a target that is given over the network is an HTTP address"
        raise InputError(Problem(message, path="target"))
    if config.recorded is not None:
        from fepflow.calls.recorded import open_recorded

        try:
            file = resolve_inside(folder, config.recorded.path, roots)
        except ValueError as error:
            raise InputError(Problem(str(error), config.recorded.path, path="target.recorded.path")) from None
        return open_recorded(config.recorded, file, case_ids)
    if config.http is not None:
        from fepflow.calls.http import HttpTarget

        app = None
        if config.http.app is not None:
            from fepflow.calls.asgi import open_app

            app = open_app(config.http.app, folder, roots, config.http.max_bytes)
        elif is_called:
            _load_connections()  # else the first call would wait for it
        opened = HttpTarget(config, secrets, app, addresses)
    elif config.openai is not None:
        from fepflow.calls.openai import OpenAITarget

        opened = OpenAITarget(config, folder, roots, secrets, models if is_called else None)
    elif config.ecp is not None:
        from fepflow.calls.ecp.target import EcpTarget

        opened = EcpTarget(config, folder, secrets)
    elif config.a2a is not None:
        _require("a2a", "a target that speaks A2A", "a2a", "grpc")
        from fepflow.calls.a2a.target import A2aTarget

        opened = A2aTarget(config, secrets)
        if is_called:
            _load_a2a()
    elif config.mcp is not None:
        _require("mcp", "a target that speaks MCP", "mcp")
        from fepflow.calls.mcp.target import McpTarget

        if is_called:
            _load_mcp()
        opened = McpTarget(config, folder, secrets)
    else:
        from fepflow.calls.python.target import PythonTarget

        opened = PythonTarget(config, folder, roots, secrets)
    from fepflow.calls.conversations import ConversationTarget

    return ConversationTarget(opened, config.kind, config.timeout, users)


def _require(extra: str, purpose: str, *modules: str) -> None:
    """Raise InputError unless the SDK of a kind of targets is installed; its extra has the kind's name."""
    try:
        require(extra, purpose, *modules)
    except MissingExtraError as error:
        raise InputError(Problem(str(error), path=f"target.{extra}")) from None


def target_hash(opened: Target, config: target.Target, folder: Path) -> str:
    """Return the content hash of a target's requests, with its address; for recorded outputs, that of the file."""
    if config.recorded is None:
        return opened.fingerprint
    with (folder / config.recorded.path).open("rb") as file:
        return content_hash(opened.fingerprint, file_digest(file, "sha256").hexdigest())


def load_early(section: Mapping[str, Any]) -> None:
    """Load the libraries of a target's section, so that its first call does not wait for them."""
    match section:
        case {"http": {"url": _}} | {"ecp": {"url": _}}:
            _load_connections()
        case {"a2a": _}:
            with suppress(ImportError):  # the target will say what is missing
                _load_a2a()
        case {"openai": _}:
            from fepflow.calls.models import _litellm

            _litellm.load_for_calls()
        case {"mcp": _}:
            with suppress(ImportError):
                _load_mcp()


def _load_mcp() -> None:
    """Load the SDK of MCP, which takes half a second, once."""
    import fepflow.calls.mcp.session  # noqa: F401

    _load_connections()


def _load_connections() -> None:
    """Load the libraries that only calls over HTTP need, which takes 0.1 s, once."""
    import aiohttp  # noqa: F401

    import fepflow.calls.http_client  # noqa: F401


def _load_a2a() -> None:
    """Load the SDK of A2A, which takes most of a second, once."""
    import fepflow.calls.a2a.agent  # noqa: F401
