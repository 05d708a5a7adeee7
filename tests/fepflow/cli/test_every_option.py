"""Each option of each command stands in a test that also names the command."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click

from fepflow.cli.main import fepflow

TESTS = Path(__file__).parents[2]


def options(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """Path of the command and long name of the option."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            if below.name != name:
                continue  # another name of a command that already exists
            yield from options(below, (*path, name))
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            for name in (*parameter.opts, *parameter.secondary_opts):
                if name.startswith("--"):
                    yield " ".join(path), name


OPTIONS = list(options(fepflow))
COMMANDS = {command.rpartition(" ")[2] for command, _ in OPTIONS}


def test_it_is_tested() -> None:
    given = set()
    for file in TESTS.rglob("*.py"):
        if file != Path(__file__):
            text = file.read_text(encoding="utf-8")
            words = {*re.findall(r"""(?<=["' ])[a-z][\w-]*(?=["' ])|(?<=\.)[a-z][\w-]*(?=\()""", text)}
            named = {*re.findall(r"""(?<=["' ])--[\w-]+(?=["'= ,])""", text)}
            given |= {(word, option) for word in (words & COMMANDS) | {""} for option in named}
    assert [(command, option) for command, option in OPTIONS if (command.rpartition(" ")[2], option) not in given] == []
