"""Each option of each command stands in a test that also names the command."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest

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


@cache
def sources() -> list[str]:
    return [file.read_text(encoding="utf-8") for file in TESTS.rglob("*.py") if file != Path(__file__)]


@pytest.mark.parametrize(("command", "option"), list(options(fepflow)))
def test_it_is_tested(command: str, option: str) -> None:
    given = re.compile(rf"""["' ]{re.escape(option)}["'= ,]""")
    last = command.rpartition(" ")[2]
    called = re.compile(rf"""["' ]{re.escape(last)}["' ]|\.{re.escape(last)}\(""")
    assert any(given.search(source) and called.search(source) for source in sources())
