"""Labelling in the browser: a person says of one output after the other what a judge should have said."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, get_args

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse, RedirectResponse, Response

from fepflow.analysis.calibration import calibrate
from fepflow.analysis.judge_errors import FIELD
from fepflow.analysis.judge_reliability import calibration_words, judges_of_run, warnings_of
from fepflow.analysis.label_draws import draw_for_labels
from fepflow.analysis.labelling import LabelQueue, Order, ToLabel, add_label, label_queue, output_to_label
from fepflow.analysis.people import stored_labels
from fepflow.api.rest.request import caller_of
from fepflow.checks.models.judge_spec import JudgeSpec
from fepflow.errors import NotFoundError, UserError
from fepflow.pages.frame import page_of
from fepflow.pages.links import LINKS
from fepflow.pages.session import form_of
from fepflow.services.labels import person_of
from fepflow.store.records import Calibration, RunRecord
from fepflow.store.store import Store
from fepflow.text import known_names

DEFAULT_DRAW, MAX_DRAW = 100, 2_000


@dataclass(frozen=True, slots=True)
class LabelView:
    """One output of a queue, without what the judge said of it; `to_label` is None when nothing is left."""

    run: RunRecord
    judge: JudgeSpec
    field: str
    kind: str
    words: tuple[str, ...]
    queue: LabelQueue
    to_label: ToLabel | None
    output: dict[str, Any] | None


class LabelPages:
    """The pages of labels."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def router(self) -> APIRouter:
        """All routes."""
        router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)
        router.add_api_route("/runs/{run_id}/labels", self.queue, methods=["GET"], response_model=None)
        for name, work in (("", self._add), ("/draw", self._draw), ("/calibrate", self._calibrate)):
            path = f"/runs/{{run_id}}/labels{name}"
            router.add_api_route(path, _of_form(work), methods=["POST"], response_model=None, name=work.__name__)
        return router

    def queue(self, request: Request, run_id: str, check: str = "", field: str = "", order: str = "",
              after: str = "0", case: str = "", repeat: str = "1") -> Response:  # fmt: skip
        """The next output that this person has not labelled, or the one that is named."""
        run = self._store.run(run_id)
        judge = _judge(run, check)
        named = _field(judge, field)
        order = order or ("random" if _may_be_drawn(run, named) else "disagreement")
        if order not in get_args(Order):
            raise UserError(f"order is one of {', '.join(get_args(Order))}.")
        person = person_of(caller_of(request))
        queue = label_queue(self._store, run, judge, order, who=person, field=named)  # type: ignore[arg-type]  # see above
        wanted = ToLabel(case, _whole(repeat) - 1, 1, 1, None) if case else queue.next(_whole(after))
        output = output_to_label(self._store, run, judge, wanted) if wanted else None
        kind, words = judge.fields[named]
        view = LabelView(run, judge, named, kind, words, queue, wanted, output)
        return page_of(request, "labels.html", view=view, person=person, case=case,
                       may_be_drawn=_may_be_drawn(run, named), default_draw=DEFAULT_DRAW)  # fmt: skip

    def _add(self, request: Request, run_id: str, form: dict[str, str]) -> Response:
        run = self._store.run(run_id)
        label = None if "withdraw" in form else form.get("label", "")
        add_label(
            self._store,
            run.id,
            form.get("case", ""),
            _whole(form.get("repeat", "1")) - 1,
            form.get("check", ""),
            form.get("field", ""),
            label,
            form.get("note", "").strip(),
            person_of(caller_of(request)),
            form.get("draw") or None,
        )
        if "back" in form:
            return RedirectResponse(LINKS.case(run.id, form.get("case", "")), 303)
        order, number = form.get("order", "random"), form.get("number", "0")
        return RedirectResponse(LINKS.labels(run.id, form["check"], form["field"], order, number), 303)

    def _draw(self, request: Request, run_id: str, form: dict[str, str]) -> Response:
        run = self._store.run(run_id)
        judge = _judge(run, form.get("check", ""))
        size = _whole(form.get("size", ""))
        if not 1 <= size <= MAX_DRAW:
            raise UserError(f"Draw 1 to {MAX_DRAW:,} outputs.")
        draw_for_labels(self._store, run, judge, size, secrets.randbelow(2**31))
        return RedirectResponse(LINKS.labels(run.id, judge.check_id, FIELD), 303)

    def _calibrate(self, request: Request, run_id: str, form: dict[str, str]) -> Response:
        run = self._store.run(run_id)
        labelled = stored_labels(self._store, run, judges_of_run(run), form.get("check"), form.get("field"))
        calibration: Calibration = calibrate(self._store, run, labelled)
        return page_of(
            request,
            "calibration.html",
            run=run,
            calibration=calibration,
            words=calibration_words(calibration),
            warnings=warnings_of(calibration),
        )


def _of_form(work: Callable[[Request, str, dict[str, str]], Response]) -> Callable[..., Awaitable[Response]]:
    async def endpoint(request: Request, run_id: str) -> Response:
        return await run_in_threadpool(partial(work, request, run_id, await form_of(request)))

    return endpoint


def _judge(run: RunRecord, check: str) -> JudgeSpec:
    judges = [judge for judge in judges_of_run(run) if judge.fields]
    found = [judge for judge in judges if not check or judge.check_id == check]
    if not found:
        known = known_names(judge.check_id for judge in judges)
        raise NotFoundError(f"Run {run.id[:8]} has no judge {check!r} whose responses can be labelled: it has {known}.")
    return found[0]


def _field(judge: JudgeSpec, field: str) -> str:
    known = list(judge.fields)
    if field and field not in known:
        raise NotFoundError(f"{judge.check_id} gives no {field!r}: it gives {', '.join(known)}.")
    return field or (FIELD if FIELD in known else known[0])


def _may_be_drawn(run: RunRecord, field: str) -> bool:
    """Whether labels of a draw would correct the run's metric, see `draw_for_labels`."""
    return field == FIELD and run.repeats == 1


def _whole(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 9:
        raise UserError(f"{text[:50]!a} is no whole number.")
    return int(text)
