"""The routes of the pages. They block while the store works, so the framework runs each in a thread."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from http import HTTPStatus
from io import StringIO
from time import monotonic
from typing import Any, get_args
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse, RedirectResponse, Response

from fepflow.analysis.calibration import calibrate, stored_labels
from fepflow.analysis.judge_reliability import (
    CHOSEN,
    FIELD,
    calibration_words,
    design_of,
    judges_of_run,
    warnings_of,
    youden_of,
)
from fepflow.analysis.labels import (
    LabelQueue,
    Order,
    ToLabel,
    add_label,
    agreement_so_far,
    draw_for_labels,
    label_queue,
    output_to_label,
)
from fepflow.analysis.preferences import BlindComparison, preference_row
from fepflow.analysis.variants import rows_of, variant_table
from fepflow.api.rest.http import caller_of
from fepflow.checks.models.judge_spec import JudgeSpec
from fepflow.errors import FepflowError, NotFoundError, UserError
from fepflow.pages import case_page, compare_page, label_page, run_page, suite_page
from fepflow.pages.rendering import LINKS, MAX_TEXT, render
from fepflow.pages.run_page import write_html
from fepflow.pages.session import csrf_of, form_of
from fepflow.services.judges import MOST_QUESTION, person_of
from fepflow.services.prefect_api import ScheduledRuns, flow_run_address, scheduled_runs
from fepflow.services.run_service import seconds_of
from fepflow.store.records import Calibration, Outcome, RunFilter, RunRecord, RunStatus
from fepflow.store.store import Store
from fepflow.text import known_names

RUNS_ON_A_PAGE = 50
ASK_AGAIN = 30.0
"""Seconds after which Prefect, which did not answer, is asked again."""


class Pages:
    """The pages of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._overview = suite_page.Overview(store)
        self._ask_again = 0.0

    def router(self) -> APIRouter:
        """Return all routes; none of them is an interface for programs."""
        router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)
        router.add_api_route("/suites", lambda: RedirectResponse("/", 303), methods=["GET"])
        for path, endpoint in (
            ("/", self.overview),
            ("/runs", self.runs),
            ("/runs/{run_id}", self.run),
            ("/runs/{run_id}/case", self.case),
            ("/runs/{run_id}/report.html", self.report),
            ("/runs/{run_id}/labels", self.labels),
            ("/compare", self.compare),
            ("/compare/blind", self.blind),
            ("/variants/{variants_id}", self.variants),
            ("/trends", self.trends),
            ("/suite", self.suite),
            ("/judges", self.judges),
        ):
            router.add_api_route(path, endpoint, methods=["GET"], response_model=None)
        for path, work in (
            ("/runs/{run_id}/labels", self._add_label),
            ("/runs/{run_id}/labels/draw", self._draw_for_labels),
            ("/runs/{run_id}/labels/calibrate", self._calibrate),
            ("/compare/blind", self._answer_blind),
        ):
            router.add_api_route(path, _of_form(work), methods=["POST"], response_model=None)
        return router

    def runs(self, request: Request, suite: str = "", outcome: str = "", status: str = "", tag: str = "",
             since: str = "", until: str = "", page: str = "1") -> Response:  # fmt: skip
        """Show runs, newest first, filtered."""
        wanted = RunFilter(
            suite or None,
            _one_of("outcome", outcome, get_args(Outcome)),
            _one_of("status", status, get_args(RunStatus)),
            tag or None,
            _day("since", since),
            _day("until", until, timedelta(days=1)),
        )
        number = _number(page)
        total = self._store.runs.count(wanted)
        runs = self._store.runs.find(wanted, RUNS_ON_A_PAGE, (number - 1) * RUNS_ON_A_PAGE)
        rows = [
            (run, seconds_of(run), self._store.results.progress(run.id) if run.status == "running" else None)
            for run in runs
        ]
        return self._page(
            request,
            "runs.html",
            wanted=wanted,
            since=since,
            until=until,
            suites=self._store.runs.suite_names(),
            statuses=get_args(RunStatus),
            rows=rows,
            metrics=self._store.runs.metrics_of([run.id for run in runs if run.outcome]),
            total=total,
            filtered=wanted != RunFilter(),
            any_live=any(progress is not None for _, _, progress in rows),
            here=f"{request.url.path}?{request.url.query}",
            page=number,
            pages=run_page.pages_of(total, RUNS_ON_A_PAGE),
        )

    def run(self, request: Request, run_id: str, show: str = "all", check: str = "", text: str = "",
            page: str = "1") -> Response:  # fmt: skip
        """Show a run with a page of its cases."""
        try:
            view = run_page.run_view(self._store, run_id)
        except NotFoundError:
            if self._store.runs.of_variants(run_id):
                return RedirectResponse(LINKS.variants(run_id), 303)
            raise
        wanted = run_page.GridFilter(
            _one_of("show", show, get_args(run_page.Show)) or "all", check or None, text or None, _number(page)
        )
        flow_run_url = flow_run_address(view.run.flow_run_id) if view.run.flow_run_id else None
        part = request.headers.get("hx-target", "")  # htmx names what it wants: nothing else is read
        if part == "verdict":
            verdict = self._page(request, "verdict.html", view=view, flow_run_url=flow_run_url, live=True)
            if not view.is_live:
                verdict.headers["HX-Refresh"] = "true"  # the run has ended meanwhile: all of the page is another
            return verdict
        grid = run_page.grid_view(self._store, view.run, wanted)
        return self._page(
            request,
            "cases.html" if part == "cases" else "run.html",
            view=view,
            grid=grid,
            earlier=self._store.runs.before(view.run, alike=False) if view.run.outcome else None,
            flow_run_url=flow_run_url,
            live=True,
            page=wanted.page,
            pages=grid.pages,
        )

    def case(self, request: Request, run_id: str, id: str = "") -> Response:
        """Show a test case of a run."""
        view = case_page.case_view(self._store, run_id, id)
        return self._page(request, "case.html", view=view, limit=MAX_TEXT, labels_of=view.labels_of)

    def report(self, run_id: str) -> Response:
        """Return the run as one file."""
        run = self._store.runs.get(run_id)
        file = StringIO()
        write_html(self._store, run, file)
        name = f"{run.id[:8]}.html"
        return HTMLResponse(file.getvalue(), headers={"Content-Disposition": f'attachment; filename="{name}"'})

    def compare(self, request: Request, base: str = "", show: str = "") -> Response:
        """Show runs beside a base; `new` are the others, or `run` all of them, of which the oldest is the base."""
        query = request.query_params
        view = compare_page.comparison_view(self._store, base, query.getlist("new"), query.getlist("run"), show)
        return self._page(request, "compare.html", view=view, change_titles=compare_page.TITLES,
                          changes_path=compare_page.changes_path)  # fmt: skip

    def variants(self, request: Request, variants_id: str) -> Response:
        """Show the variants of a suite that were run together, beside each other."""
        table = variant_table(self._store, variants_id)
        forests = compare_page.forest_plots(table.differences, several=True, labels=True)
        return self._page(request, "variants.html", table=table, rows=list(rows_of(table)), forests=forests)

    def trends(self, request: Request, suite: str = "") -> Response:
        """Show a suite's metrics over its runs."""
        series, others = suite_page.trends_view(self._store, suite)
        return self._page(request, "trends.html", suite=suite, all_series=series, others=others)

    def overview(self, request: Request) -> Response:
        """Show each suite with its newest run, what is wrong with it, and its next run."""
        scheduled = self._scheduled()
        return self._page(request, "overview.html", cards=self._overview.cards(scheduled), scheduled=scheduled)

    def _scheduled(self) -> ScheduledRuns:
        """Return what is scheduled; a server that let us wait in vain is not waited for again at each view."""
        if monotonic() < self._ask_again:
            return ScheduledRuns(False, [])
        begun = monotonic()
        scheduled = scheduled_runs()
        if not scheduled.known and monotonic() - begun > 1:
            self._ask_again = monotonic() + ASK_AGAIN
        return scheduled

    def suite(self, request: Request, suite: str = "") -> Response:
        """Show a suite: its cases over its runs."""
        if not suite:
            raise UserError("Which suite? The first page has all of them.")
        return self._page(request, "suite.html", view=suite_page.suite_view(self._store, suite))

    def judges(self, request: Request) -> Response:
        """Show the judges of the newest run of each suite."""
        return self._page(request, "judges.html", rows=label_page.judges_view(self._store))

    def labels(self, request: Request, run_id: str, check: str = "", field: str = "", order: str = "",
              after: str = "0", case: str = "", repeat: str = "1", last: str = "",
              again: str = "") -> Response:  # fmt: skip
        """Show the next output that this person has not labelled, or the one that the query names.

        `again` is one of the queue whose label is to be changed, `last` the one before: see `PageLinks.labels`.
        """
        run = self._store.runs.get(run_id)
        judge = _judge(run, check)
        judged_field = _field(judge, field)
        order = order or ("random" if _may_be_drawn(run, judged_field) else "disagreement")
        if order not in get_args(Order):
            raise UserError(f"order is one of {', '.join(get_args(Order))}.")
        person = person_of(caller_of(request))
        queue = label_queue(
            self._store,
            run,
            judge,
            order,  # type: ignore[arg-type]  # see above
            who=person,
            field=judged_field,
        )
        wanted = ToLabel(case, _whole(repeat) - 1, 1, 1, None) if case else queue.next(_whole(after))
        if again and not case:
            wanted = _in_queue(queue, again) or wanted
        said = queue.label_of(wanted) if wanted else None
        output = output_to_label(self._store, run, judge, wanted) if wanted else None
        # Beside an output that has a label already, agreement would tell what to change it to.
        agreement = None if case or said else agreement_so_far(self._store, run, judge, queue)
        kind, words = judge.fields[judged_field]
        before = _in_queue(queue, last) if last else None
        return self._page(
            request,
            "labels.html",
            run=run,
            judge=judge,
            field=judged_field,
            kind=kind,
            words=words,
            queue=queue,
            to_label=wanted,
            output=output,
            said=said,
            agreement=agreement,
            person=person,
            case=case,
            label_words=label_page.label_words,
            last=last if before and queue.label_of(before) and not said else "",
            may_be_drawn=_may_be_drawn(run, judged_field),
            default_draw=DEFAULT_DRAW,
        )

    def _add_label(self, request: Request, form: dict[str, str]) -> Response:
        run = self._store.runs.get(request.path_params["run_id"])
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
            disputed=form.get("order") == "disagreement" and "back" not in form,
        )
        if "back" in form:
            return RedirectResponse(LINKS.case(run.id, form.get("case", "")), 303)
        order, number = form.get("order", "random"), form.get("number", "0")
        last = f"{_whole(form.get('repeat', '1'))}:{form.get('case', '')}"
        return RedirectResponse(LINKS.labels(run.id, form["check"], form["field"], order, number, last), 303)

    def _draw_for_labels(self, request: Request, form: dict[str, str]) -> Response:
        run = self._store.runs.get(request.path_params["run_id"])
        judge = _judge(run, form.get("check", ""))
        size = _whole(form.get("size", ""))
        if not 1 <= size <= MAX_DRAW:
            raise UserError(f"Draw 1 to {MAX_DRAW:,} outputs.")
        draw_for_labels(self._store, run, judge, size, secrets.randbelow(2**31))
        return RedirectResponse(LINKS.labels(run.id, judge.check_id, FIELD), 303)

    def _calibrate(self, request: Request, form: dict[str, str]) -> Response:
        run = self._store.runs.get(request.path_params["run_id"])
        labelled = stored_labels(self._store, run, judges_of_run(run), form.get("check"), form.get("field"))
        calibration: Calibration = calibrate(self._store, run, labelled)
        return self._page(
            request,
            "calibration.html",
            run=run,
            calibration=calibration,
            trust=label_page.trust_words(calibration),
            words=calibration_words(calibration),
            youden=youden_of(calibration),
            differing=label_page.disagreements(self._store, run, labelled),
            shown_at_most=label_page.MOST_DISAGREEMENTS,
            chosen=CHOSEN[design_of(calibration)] if calibration.field == FIELD else None,
            warnings=warnings_of(calibration),
        )

    def blind(self, request: Request, base: str = "", new: str = "", question: str = "", after: str = "0",
             pair: str = "", last: str = "") -> Response:  # fmt: skip
        """Show the next pair that this person has not answered, or the one that the query names."""
        question = _question(question)
        one, other = self._store.runs.get(base), self._store.runs.get(new)
        blind = BlindComparison(self._store, one, other)
        person = person_of(caller_of(request))
        shown, answered = blind.next(person, question, _whole(after))
        if pair in blind.pairs:
            shown = blind.shown(blind.pairs[pair], person, list(blind.pairs).index(pair) + 1)
        return self._page(request, "blind.html", shown=shown, answered=answered, total=len(blind.pairs), person=person,
                       question=question, base=one.id, new=other.id, back=LINKS.compare(one.id, other.id),
                       last=last if last in blind.pairs else "")  # fmt: skip

    def _answer_blind(self, request: Request, form: dict[str, str]) -> Response:
        question = _question(form.get("question", ""))
        one, other = self._store.runs.get(form.get("base", "")), self._store.runs.get(form.get("new", ""))
        blind = BlindComparison(self._store, one, other)
        pair, choice = form.get("pair", ""), form.get("choice", "")
        if pair not in blind.pairs or choice not in ("left", "right", "tie"):
            raise UserError("An answer is left, right or tie, about a pair of these runs.")
        person = person_of(caller_of(request))
        shown = blind.shown(blind.pairs[pair], person, 1)
        preferred = {"left": shown.left_hash, "right": shown.right_hash}.get(choice)
        row = preference_row(pair, question, person, preferred, is_judge=False, left=shown.left_hash)
        self._store.preferences.put([row])
        number = form.get("number", "0")
        return RedirectResponse(LINKS.blind(one.id, other.id, question, number, last=pair), 303)

    def _page(self, request: Request, template: str, **values: Any) -> Response:
        """Return a page with what every page has around it."""
        caller = caller_of(request)
        html = render(
            template,
            **values,
            links=LINKS,
            caller=caller.name,
            csrf=csrf_of(request),
            may_label=caller.may("evaluate"),
            page_address=partial(_with_page, request),
        )
        return HTMLResponse(html)


def html_error(status: int, error: FepflowError) -> Response:
    """Return an error as a page."""
    title = HTTPStatus(status).phrase
    html = render("error.html", status=status, title=title, message=str(error), caller=None, csrf="")
    return HTMLResponse(html, status)


def _number(page: str) -> int:
    if not page.isascii() or not page.isdecimal() or not 1 <= int(page[:10]) <= 1_000_000:
        raise UserError(f"page is a number from 1 on, and not {page[:50]!a}.")
    return int(page[:10])


def _one_of(name: str, value: str, known: tuple[Any, ...]) -> Any:
    if value and value not in known:
        raise UserError(f"{name} is one of {', '.join(known)}, and not {value[:50]!a}.")
    return value or None


def _day(name: str, value: str, later: timedelta = timedelta()) -> datetime | None:
    """Return the beginning of a day in UTC."""
    if not value:
        return None
    try:
        return datetime.strptime(value, "%Y-%m-%d").replace(tzinfo=UTC) + later
    except (ValueError, OverflowError):
        raise UserError(f"{name} must be a day, for example 2026-01-31, and not {value[:50]!a}.") from None


def _with_page(request: Request, page: int) -> str:
    others = [(name, value) for name, value in request.query_params.multi_items() if name != "page"]
    return f"{request.url.path}?{urlencode([*others, ('page', page)], errors='surrogatepass')}"


DEFAULT_DRAW, MAX_DRAW = 100, 2_000


def _question(text: str) -> str:
    question = " ".join(text.split())
    if not question or len(question) > MOST_QUESTION:
        raise UserError(f"Ask a question of at most {MOST_QUESTION:,} characters: Which answer helps more?")
    return question


def _of_form(work: Callable[[Request, dict[str, str]], Response]) -> Callable[..., Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        return await run_in_threadpool(work, request, await form_of(request))

    return endpoint


def _judge(run: RunRecord, check: str) -> JudgeSpec:
    judges = [judge for judge in judges_of_run(run) if judge.fields]
    matching = [judge for judge in judges if not check or judge.check_id == check]
    if not matching:
        known = known_names(judge.check_id for judge in judges)
        raise NotFoundError(f"Run {run.id[:8]} has no judge {check!r} whose responses can be labelled: it has {known}.")
    return matching[0]


def _field(judge: JudgeSpec, field: str) -> str:
    known = list(judge.fields)
    if field and field not in known:
        raise NotFoundError(f"{judge.check_id} gives no {field!r}: it gives {', '.join(known)}.")
    return field or (FIELD if FIELD in known else known[0])


def _in_queue(queue: LabelQueue, named: str) -> ToLabel | None:
    repeat, _, case_id = named.partition(":")
    return queue.find(case_id, _whole(repeat) - 1)


def _may_be_drawn(run: RunRecord, field: str) -> bool:
    """Return whether labels of a draw would correct the run's metric, see `draw_for_labels`."""
    return field == FIELD and run.repeats == 1


def _whole(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 9:
        raise UserError(f"{text[:50]!a} is not a whole number: open the page again from its link.")
    return int(text)
