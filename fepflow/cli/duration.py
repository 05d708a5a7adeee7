"""Durations on the command line."""

from __future__ import annotations

import math
from typing import Any

import click


class Seconds(click.ParamType[float]):
    """A deadline: a text such as 500ms or 2m, or a number of seconds, from more than 0 on."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return it as seconds."""
        from fepflow.text import seconds

        text = str(value)
        try:
            found = float(text) if text.replace(".", "", 1).isdecimal() else float(seconds(text))
        except ValueError as error:
            self.fail(f"{error}, or is a number of seconds", param, ctx)
        if not 0 < found < math.inf:
            self.fail("a deadline is more than 0 s", param, ctx)
        return found


class Duration(click.ParamType[float]):
    """A text such as 12h or 7d, as seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """As everywhere in fepflow."""
        from fepflow.text import seconds

        try:
            return float(seconds(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
