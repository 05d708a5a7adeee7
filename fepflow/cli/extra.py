"""Commands that need more than `pip install fepflow` brings."""

from __future__ import annotations

from functools import wraps
from typing import Any

import click


def needing(command: click.Command, extra: str) -> None:
    """Have a command say, before anything else, that an extra is not installed; of a group, each of its commands."""
    if isinstance(command, click.Group):
        for below in command.commands.values():
            needing(below, extra)
        if not command.invoke_without_command:
            return
    act = command.callback
    assert act is not None

    @wraps(act)
    def checked(*arguments: Any, **options: Any) -> Any:
        from fepflow.extras import require

        require(extra, f"`{click.get_current_context().command_path}`")
        return act(*arguments, **options)

    command.callback = checked
