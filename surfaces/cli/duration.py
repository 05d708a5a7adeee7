"""Durations on the command line."""

from __future__ import annotations

from typing import Any

import click


class Duration(click.ParamType[float]):
    """A text such as 12h or 7d, as seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """As everywhere in fepflow."""
        from fepflow.suite.durations import seconds

        try:
            return float(seconds(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
