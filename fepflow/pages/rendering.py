"""Templates and what they show values with. Whatever is not markup of ours is escaped, and made visible."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any, Literal
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined, Undefined
from markupsafe import Markup

from fepflow.page_links import case_path, cases_path, compare_path, run_path, trends_path
from fepflow.pages.charts import interval_chart
from fepflow.pages.text import shown, snippet, visible
from fepflow.protocol.results import CheckResult
from fepflow.protocol.status import StatusText
from fepflow.store.check_order import declared_check_ids
from fepflow.store.records import GridRow

NAMES = ("htmx.min.js", "icon.svg", "page.js", "style.css")
_FOLDER = files("fepflow.pages").joinpath("static")


@cache
def read_asset(name: str) -> bytes:
    """One of `NAMES`."""
    return _FOLDER.joinpath(name).read_bytes()


@cache
def asset_address(name: str) -> str:
    """Where a page loads it from."""
    return f"/static/{sha256(read_asset(name)).hexdigest()[:12]}/{name}"


class PageLinks:
    """Addresses of pages that are served, for templates."""

    run = staticmethod(run_path)
    case = staticmethod(case_path)
    cases = staticmethod(cases_path)
    compare = staticmethod(compare_path)
    trends = staticmethod(trends_path)

    def runs(self, **wanted: str) -> str:
        """The list of runs, with filters."""
        return f"/runs?{urlencode(wanted, errors='replace')}" if wanted else "/runs"

    def labels(self, run_id: str, check_id: str, field: str, order: str = "", after: str = "0") -> str:
        """The queue of outputs of a judge that a person is to label."""
        wanted = {"check": check_id, "field": field, "order": order, "after": after}
        return f"{run_path(run_id)}/labels?{urlencode(wanted, errors='replace')}"


LINKS = PageLinks()


State = Literal["passed", "failed", "error", "skipped", "no verdict", "absent"]


def state(status: StatusText, passed: bool | None) -> State:
    """That of one result."""
    if status == "error":
        return "error"
    if status == "skip":
        return "skipped"
    return "no verdict" if passed is None else "passed" if passed else "failed"


def state_of_check(check: CheckResult) -> State:
    """That of a check's result."""
    return state(check.status, check.passed)


def mark_of(row: GridRow, repeat: int, check_id: str) -> State:
    """That of one check of one output in a grid; `absent` where there is no result, or the case has no such check."""
    mark = row.marks.get((repeat, check_id))
    return "absent" if mark is None else state(mark.status, mark.passed)


def states_of(row: GridRow, repeats: int, check_id: str) -> list[State]:
    """Those of one check of all outputs of a case."""
    return [mark_of(row, repeat, check_id) for repeat in range(repeats)]


def state_of(row: GridRow, repeats: int, shared: Sequence[str]) -> State:
    """That of a case: the worst of its results; `absent` where an output, or one of the checks that it was to have, is.

    `shared` are the ids of the checks that all cases share.
    """
    expected = declared_check_ids(row.case, shared)
    found = {mark_of(row, repeat, check_id) for repeat in range(repeats) for check_id in expected}
    found |= {state(mark.status, mark.passed) for mark in row.marks.values()}
    if any(output.failed for output in row.outputs.values()):
        found.add("error")
    if len(row.outputs) < repeats:
        found.add("absent")
    order: tuple[State, ...] = ("failed", "error", "absent", "skipped", "no verdict", "passed")
    return next((each for each in order if each in found), "no verdict")


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
