"""Text and tables for a terminal: what others wrote cannot move the cursor, colour anything, or be markup."""

from __future__ import annotations

import json
from typing import Any

from rich import box
from rich.markup import escape
from rich.table import Table

from fepflow.text import cut, printable

COLOURS = {"pass": "green", "fail": "red", "inconclusive": "yellow"}
SHORT_ID = 8
MAX_TEXT = 400

_LEFT = ("suite", "impact", "model", "from", "tasks")


def table(*columns: str) -> Table:
    """A table without a frame; what is in the first column, and texts, begin at the left."""
    made = Table(box=box.SIMPLE, pad_edge=False, show_edge=False, padding=(0, 2, 0, 0))
    for index, column in enumerate(columns):
        made.add_column(column, justify="left" if index == 0 or column in _LEFT else "right", no_wrap=True)
    return made


def number(value: float | None, sign: str = "") -> str:
    """Four digits."""
    return "?" if value is None else f"{value:{sign}.4g}"


def interval(low: float | None, high: float | None) -> str:
    """From where to where; a dot where neither is known."""
    return "·" if low is None and high is None else f"{number(low)} to {number(high)}"


def coloured(outcome: str | None) -> str:
    """An outcome, as markup; a dot for none."""
    return f"[{COLOURS[outcome]}]{outcome}[/]" if outcome else "·"


def one_line(value: Any) -> str:
    """A value on one line, cut to a bound, as markup."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return safe(cut(" ".join(text.split()), MAX_TEXT))


def safe(text: str) -> str:
    """The same where rich prints: no markup either."""
    return escape(printable(text))
