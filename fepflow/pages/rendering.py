"""Templates and what they show values with. Whatever is not markup of ours is escaped, and made visible."""

from __future__ import annotations

from datetime import datetime
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Undefined
from markupsafe import Markup

from fepflow.pages.assets import asset_address
from fepflow.pages.charts import interval_chart
from fepflow.pages.marks import state_of, states_of
from fepflow.pages.text import shown, snippet, visible

WORDS = {"pass": "Pass", "fail": "Fail", "inconclusive": "Inconclusive"}
SIGNS = {"pass": "✓", "fail": "✗", "inconclusive": "?", "error": "!", "skip": "-", None: "·"}


def render(template: str, **values: Any) -> str:
    """A page, as text that UTF-8 can hold."""
    return _environment().get_template(template).render(**values)


def prepare() -> None:
    """Load templates and what draws charts, which takes most of a second: else the first page of a process waits."""
    for name in _environment().list_templates():
        _environment().get_template(name)
    interval_chart({"value": 0.5}, [])


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("fepflow.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        {"number": number, "moment": moment, "lasting": lasting, "shown": shown, "snippet": snippet, "cost": cost}
    )
    environment.globals.update(
        {"SIGNS": SIGNS, "WORDS": WORDS, "asset": asset_address, "states_of": states_of, "state_of": state_of}
    )
    return environment


def _finalize(value: Any) -> Any:
    """What an expression of a template came to, as it goes into the page."""
    if isinstance(value, Markup):
        return value
    return "" if value is None else visible(str(value))


def number(value: float | Undefined | None, sign: str = "") -> str:
    """Four digits; a dot for none, and for one that a verdict does not have."""
    return "·" if value is None or isinstance(value, Undefined) else f"{value:{sign}.4g}"


def moment(value: datetime | None) -> Markup:
    """A time, in UTC."""
    if value is None:
        return Markup("·")
    return Markup('<time datetime="{}">{}</time>').format(value.isoformat(), f"{value:%Y-%m-%d %H:%M:%S} UTC")


def lasting(seconds: float | None) -> str:
    """`1.5 s`, `2 min 5 s`, `3 h 20 min`."""
    if seconds is None:
        return "·"
    if seconds < 60:
        return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1_000:.0f} ms"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def cost(models: Any) -> str:
    """What models cost, as a verdict has it."""
    from fepflow.verdict.verdict import ModelCosts

    return str(ModelCosts.model_validate(models))
