"""`--env-file`: a file of variables that a command uses instead of a `.env`."""

from __future__ import annotations

from functools import partial, wraps
from pathlib import Path
from typing import Any

import click

_READ = "fepflow.env_file"


def with_env_file(command: click.Command) -> click.Command:
    """Give a command the option, and have it use the file, or `.env`; of a group, each of its commands."""
    if isinstance(command, click.Group):
        for below in command.commands.values():
            with_env_file(below)
        if not command.invoke_without_command:
            return command
    act = command.callback
    assert act is not None

    @wraps(act)
    def reading(*arguments: Any, env_file: Path | None, **options: Any) -> Any:
        context = click.get_current_context()
        _use(context, env_file)
        try:
            return act(*arguments, **options)
        finally:
            if context.invoked_subcommand is None:  # by now it is known what the suite refers to
                note_untaken_variables()

    command.callback = reading
    command.params.append(
        click.Option(
            ["--env-file"], type=click.Path(path_type=Path), help="Read variables from this file (default: .env)."
        )
    )
    return command


def note_untaken_variables() -> None:
    """Warn of the variables of the file that are not used; for commands that another program takes the place of."""
    from fepflow.services import run_service

    run_service.note_untaken_variables(partial(click.echo, err=True))


def _use(context: click.Context, path: Path | None) -> None:
    """Once for a command: the option of a group holds for the commands below it."""
    if path is None and (context.invoked_subcommand is not None or _READ in context.meta):
        return
    from fepflow.services import run_service

    context.meta[_READ] = True
    run_service.load_env_file(path)
