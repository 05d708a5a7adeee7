"""A run's verdict on GitHub: job summary, outputs, annotations, and one comment on the pull request.

Everything comes from the environment that GitHub Actions gives a step. Missing permissions are notices, never errors:
the verdict and its exit code stay the same. In the markdown of a comment, sentences are escaped. What an agent answered
stands in code blocks: no mention, markup or HTML of it takes effect.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import httpx

from fepflow.analysis.comparison import RunComparison, base_of, compare_results, results_of_base, results_with_verdict
from fepflow.analysis.verdict_page import failed_cases, metric_table, regression_table
from fepflow.errors import FepflowError, UserError
from fepflow.page_links import link, run_page
from fepflow.reports.comparison import flip_texts
from fepflow.security.redaction import known_secrets, redact, remember, words_of
from fepflow.store.records import RunRecord
from fepflow.store.store import Store
from fepflow.text import WORD_JOINER, cut, escape_markdown, four_digits, one_line, plural, printable
from fepflow.verdict.metric_rules import settling_cases
from fepflow.verdict.verdict import Verdict

API_VERSION = "2022-11-28"
MOST_PAGES = 30
"""Pages of 100 comments that are searched for ours."""
TIMEOUT = 15.0
"""Seconds for one request."""

_TRUSTED = ("OWNER", "MEMBER", "COLLABORATOR")
"""Authors beside bots whose comment is edited if it has our marker: anybody can copy the marker into a comment."""

_LEVELS = {"pass": "notice", "fail": "error", "inconclusive": "warning"}


class _RefusedError(Exception):
    """A request that GitHub refused; the message is a sentence for a notice."""


class GitHubReport:
    """The report about one suite. `say` prints a line on the stream from which the runner reads commands.

    `suite` is the suite's path, or None: the path of the resumed run.
    """

    def __init__(self, suite: Path | None, say: Callable[[str], None], env: Mapping[str, str] = os.environ) -> None:
        self._suite, self._say, self._env = suite, say, env
        self._token = env.get("GITHUB_TOKEN", "").strip()
        remember([self._token])
        self._commands: list[str] = []

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Report an error that is raised in the body, and print annotations after it.

        The runner takes no commands during the body, because an agent's print may look like one.
        """
        token = secrets.token_hex(16)
        if self._in_actions:
            self._say(f"::stop-commands::{token}")
        try:
            yield
        except Exception as error:
            if not hasattr(error, "show"):  # click's own, about the arguments
                self._report_error(str(error) if isinstance(error, FepflowError) else words_of(error))
            raise
        finally:
            sys.stdout.flush()
            if self._in_actions:
                self._say(f"\n::{token}::")  # at the beginning of a line, whatever an agent has printed last
            for command in self._commands:
                self._say(command)

    @property
    def _in_actions(self) -> bool:
        return self._env.get("GITHUB_ACTIONS") == "true"

    def report(self, store: Store, runs: Sequence[RunRecord]) -> None:
        """Report runs that have ended: one, or those of all variants of a suite."""
        try:
            path = self._path or (runs[0].suite_path and self._relative(Path(runs[0].suite_path))) or runs[0].name
            for run in runs:
                blocks = (run.verdict or {}).get("blocks", True)
                level = _LEVELS.get(run.outcome or "", "error") if blocks or run.outcome == "pass" else "notice"
                self._annotate(level, f"{headline(run)}: {run.title}: {one_line(reason(run), 500)}", path)
            worst = min(runs, key=lambda run: ("fail", None, "inconclusive", "pass").index(run.outcome))
            ids = " ".join(run.id for run in runs)
            self._write("GITHUB_OUTPUT", f"outcome={worst.outcome or 'error'}\nrun-id={worst.id}\nrun-ids={ids}\n")
            self._publish(path, comment(store, runs, self._footer))
        except Exception as error:  # the verdict stands, whatever becomes of its report
            self._annotate("notice", f"The verdict could not be reported on GitHub: {words_of(error)}")

    def _report_error(self, message: str) -> None:
        try:
            path = self._path
            self._annotate("error", f"COULD NOT BE EVALUATED: {one_line(message, 500)}", path)
            self._write("GITHUB_OUTPUT", "outcome=error\n")
            if path is not None:
                self._publish(path, failure(path, message, self._footer))
        except Exception as error:  # the error that is reported matters more
            self._annotate("notice", f"The error could not be reported on GitHub: {words_of(error)}")

    @property
    def _path(self) -> str | None:
        return None if self._suite is None else self._relative(self._suite)

    def _relative(self, path: Path) -> str:
        """Return the path relative to the repository, which is the same in every push."""
        return os.path.relpath(path.resolve(), self._env.get("GITHUB_WORKSPACE") or Path.cwd())

    @property
    def _footer(self) -> str:
        env = self._env
        sha = str(_number_or_text(self._event, "pull_request", "head", "sha") or env.get("GITHUB_SHA", ""))
        commit = [f"commit `{sha[:8]}`"] if re.fullmatch("[0-9a-f]{40,64}", sha) else []
        server, run_id = env.get("GITHUB_SERVER_URL", ""), env.get("GITHUB_RUN_ID", "")
        job = f"{server}/{self._repository}/actions/runs/{run_id}" if server and run_id.isdecimal() else None
        return " · ".join(["fepflow", *commit, *([f"[job]({job})"] if job else [])])

    @property
    def _repository(self) -> str:
        repository = self._env.get("GITHUB_REPOSITORY", "")
        return repository if re.fullmatch(r"[\w.-]+/[\w.-]+", repository) else ""

    @property
    def _event(self) -> dict[str, Any]:
        try:
            event = json.loads(Path(self._env.get("GITHUB_EVENT_PATH", "")).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return event if isinstance(event, dict) else {}

    def _annotate(self, level: str, message: str, path: str | None = None) -> None:
        message = redact(message, known_secrets())
        place = f"file={_escaped(path, ':,')},title=fepflow" if path else "title=fepflow"
        self._commands.append(f"::{level} {place}::{_escaped(message)}" if self._in_actions else f"{level}: {message}")

    def _write(self, variable: str, text: str) -> None:
        path = self._env.get(variable)
        if path:
            with open(path, "a", encoding="utf-8", newline="") as file:
                file.write(text)

    def _publish(self, path: str, body: str) -> None:
        body = redact(body, known_secrets())
        self._write("GITHUB_STEP_SUMMARY", f"{body}\n\n")
        event = self._event
        number = _number_or_text(event, "pull_request", "number")
        if number is None and _number_or_text(event, "issue", "pull_request", "url") is not None:
            number = _number_or_text(event, "issue", "number")
        missing = None
        if not isinstance(number, int):
            missing = f"the event {self._env.get('GITHUB_EVENT_NAME', '')} is of no pull request"
        elif not self._token:
            missing = "GITHUB_TOKEN is not set (env: GITHUB_TOKEN: ${{ github.token }})"
        elif not self._repository:
            missing = "GITHUB_REPOSITORY names no repository"
        if missing is not None:
            self._annotate("notice", f"No comment: {missing}.")
            return
        # Runs of a repository's workflows have growing numbers; one that is started again keeps its own.
        run = self._env.get("GITHUB_RUN_ID", "")
        suite, run_number = hashlib.sha256(path.encode()).hexdigest()[:32], int(run) if run.isdecimal() else 0
        api = self._env.get("GITHUB_API_URL") or "https://api.github.com"
        headers = {
            "Authorization": f"Bearer {self._token}",
            "Accept": "application/vnd.github+json",
            "X-GitHub-Api-Version": API_VERSION,
            "User-Agent": "fepflow",
        }
        try:
            with httpx.Client(headers=headers, timeout=TIMEOUT) as client:
                _put_comment(client, f"{api}/repos/{self._repository}/issues", number, suite, run_number, body)
        except _RefusedError as error:
            self._annotate("notice", f"No comment: {error}")
        except httpx.HTTPError as error:
            why = words_of(error) or type(error).__name__
            self._annotate("notice", f"No comment: GitHub's API at {api} did not answer ({why}).")


def _put_comment(client: httpx.Client, issues: str, number: object, suite: str, run: int, body: str) -> None:
    """Edit the comment about this suite, or write a new one. Keep a comment about a newer push."""
    text = {"body": f"<!-- fepflow:{suite} run:{run} -->\n{body}"}
    comment = _find_comment(client, f"{issues}/{number}/comments", suite)
    if comment is not None:
        comment_id, written_by = comment
        if written_by > run:
            raise _RefusedError("the one that is there is of a newer run of the workflow.")
        response = client.patch(f"{issues}/comments/{comment_id}", json=text)
        if response.status_code != httpx.codes.NOT_FOUND:  # deleted meanwhile
            _require_done(response)
            return
    _require_done(client.post(f"{issues}/{number}/comments", json=text))


_MARKER = re.compile(r"<!-- fepflow:([0-9a-f]{32}) run:(\d{1,20}) -->")
"""Hidden beginning of fepflow's comment: the suite, and the workflow run that wrote it."""


def _find_comment(client: httpx.Client, comments: str, suite: str) -> tuple[int, int] | None:
    """Return the id of fepflow's comment about a suite, and the workflow run that wrote it."""
    address = f"{comments}?per_page=100"
    for _ in range(MOST_PAGES):
        response = client.get(address)
        _require_done(response)
        try:
            page = response.json()
        except ValueError:
            raise _RefusedError("GitHub's API did not answer with JSON.") from None
        for item in page if isinstance(page, list) else ():
            marker = _MARKER.match(str(item.get("body") or "")) if _is_ours(item) else None
            if marker is not None and marker[1] == suite:
                return int(item["id"]), int(marker[2])
        following = response.links.get("next", {}).get("url", "")
        if not following:
            return None
        if httpx.URL(following).host != response.url.host:  # the token is for this one only
            raise _RefusedError("GitHub's API names another host for the next page of comments.")
        address = following
    raise _RefusedError(f"The pull request has more than {100 * MOST_PAGES:,} comments, too many to look for ours.")


def _is_ours(comment: Any) -> bool:
    """Return whether a comment's author is one whose marker counts."""
    if not isinstance(comment, dict):
        return False
    is_bot = _number_or_text(comment, "user", "type") == "Bot"
    return isinstance(comment.get("id"), int) and (is_bot or comment.get("author_association") in _TRUSTED)


def _require_done(response: httpx.Response) -> None:
    """Raise _RefusedError with advice, unless GitHub accepted the request."""
    if response.is_success:
        return
    status = response.status_code
    try:
        answer = response.json()
    except ValueError:
        answer = None
    message = answer.get("message") if isinstance(answer, dict) else None
    reply = f"{status}: {one_line(str(message), 200)}" if message else str(status)
    headers = response.headers
    if status == 429 or (status == 403 and ("retry-after" in headers or headers.get("x-ratelimit-remaining") == "0")):
        reset = headers.get("x-ratelimit-reset", "")
        until = (
            f" until {datetime.fromtimestamp(int(reset), UTC):%H:%M} UTC" if re.fullmatch(r"\d{1,11}", reset) else ""
        )
        raise _RefusedError(f"GitHub's rate limit is reached{until} ({reply}).")
    if status in (401, 403, 404):
        raise _RefusedError(
            f"The token may not write comments here ({reply}). The job needs `permissions: pull-requests: write`. On a "
            "pull request of a fork the token can only read: the verdict is in the summary of the job."
        )
    raise _RefusedError(f"GitHub's API refused it ({reply}).")


def _number_or_text(data: Any, *names: str) -> int | str | None:
    """Return the number or text at these names of nested objects; None if it is not there."""
    for name in names:
        data = data.get(name) if isinstance(data, dict) else None
    return data if isinstance(data, int | str) and not isinstance(data, bool) else None


def _escaped(text: str, also: str = "") -> str:
    """Escape text for a command of the runner: `%` and ends of lines, and in a property `also` these."""
    return "".join(f"%{ord(char):02X}" if char in f"%\r\n{also}" else char for char in text)


# --- the markdown of comments and summaries --------------------------------------------------------------------------


MAX_BODY = 60_000
"""Characters; GitHub takes 65,536."""

SHOWN_CASES = 5
SHOWN_METRICS = 40
_MAX_TEXT = 500
_MAX_LINES = 12
_MAX_REASONS = 10


def comment(store: Store, runs: Sequence[RunRecord], footer: str) -> str:
    """Return the markdown about a run, or about the runs of all variants of a suite."""
    limit = (MAX_BODY - len(footer)) // max(len(runs), 1)
    return "\n\n".join([*(_about(store, run, limit) for run in runs), footer])


def failure(suite: str, message: str, footer: str) -> str:
    """Return the markdown about a suite that could not be evaluated."""
    return "\n\n".join([f"### COULD NOT BE EVALUATED: {_safe(suite)}", fenced(message, 2_000), footer])


def fenced(text: str, limit: int = _MAX_TEXT) -> str:
    """Return text of others as a code block, which nothing in it can end."""
    lines = cut(text, limit).split("\n")
    more = [f"… ({len(lines) - _MAX_LINES} more lines)"] if len(lines) > _MAX_LINES else []
    shown = "\n".join([*map(printable, lines[:_MAX_LINES]), *more])
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`+", shown))])
    return f"{fence}text\n{shown}\n{fence}"


def headline(run: RunRecord) -> str:
    """Return the outcome in capitals, or that there is none."""
    return run.outcome.upper() if run.outcome is not None else f"NO VERDICT ({run.status})"


def reason(run: RunRecord) -> str:
    """Return the reason that decided the verdict, or why there is none."""
    reasons = (run.verdict or {}).get("reasons") or ()
    return str(reasons[0]) if reasons else run.error or ""


def _safe(text: str, limit: int = 1_000) -> str:
    """Escape text as a part of a sentence. GitHub takes escapes away before it makes links of `#12` and `GH-12`."""
    return re.sub(r"\\#|\bGH\\-(?=\d)", rf"\g<0>{WORD_JOINER}", escape_markdown(text, limit), flags=re.IGNORECASE)


def _about(store: Store, run: RunRecord, limit: int) -> str:
    verdict = Verdict.stored(run.outcome, run.metrics, run.verdict)
    head = [f"### {headline(run)}: {_safe(run.title)}"]
    if run.outcome is None or verdict is None:
        return "\n\n".join([*head, fenced(reason(run) or "no reason is known")])
    parts = [*head, *_reasons(run, verdict), *_tables(verdict)]
    details = "\n".join(_details(store, run, verdict))
    ended = [_costs(store, run, verdict)]
    whole = "\n\n".join([*parts, *([details] if details else []), *ended])
    if len(whole) <= limit:
        return whole
    short = "\n\n".join([*parts, *ended])
    return short if len(short) <= limit else f"{short[:limit].rpartition(chr(10))[0]}\n\n… the rest is in the report."


def _reasons(run: RunRecord, verdict: Verdict) -> Iterator[str]:
    decided, *others = verdict.distinct_reasons or [verdict.gate]
    yield f"**{_safe(decided)}**"
    if verdict.outcome == "inconclusive":
        needed = settling_cases(decided)
        if needed is not None and needed > run.n_cases:
            more = needed - run.n_cases
            yield f"{more:,} more test cases like these, {needed:,} in all, would settle it in 4 of 5 runs."
        if not verdict.blocks:
            yield "The gate allows it (`inconclusive: allow`), but it is not a pass."
    if others:
        yield "\n".join(f"- {_safe(reason_)}" for reason_ in others[:_MAX_REASONS])
    notes = [f"No baseline: {verdict.not_compared}"] if verdict.not_compared else []
    notes += verdict.warnings[:_MAX_REASONS]  # also of what no rule judges
    if notes:
        yield "\n>\n".join(f"> {_safe(note)}" for note in notes)


def _tables(verdict: Verdict) -> Iterator[str]:
    yield _first_rows(metric_table(verdict), len(verdict.metrics))
    regression = verdict.regression
    if regression is not None and regression.run_id is not None:
        runs = regression.pooled or [regression.run_id]
        ids = ", ".join(f"`{run_id[:8]}`" for run_id in runs[:SHOWN_CASES])
        base = f"{_safe(regression.baseline)} ({plural(len(runs), 'run')}: {ids})"
        yield f"Against {base}: {_safe(regression.matched or '')}"
        yield _first_rows(regression_table(regression), len(regression.metrics))


def _first_rows(table: Iterator[str], rows: int) -> str:
    more = [f"\n… and {rows - SHOWN_METRICS} more metrics"] if rows > SHOWN_METRICS else []
    return "\n".join([*islice(table, SHOWN_METRICS + 2), *more])


def _details(store: Store, run: RunRecord, verdict: Verdict) -> Iterator[str]:
    """Yield the cases that became worse; without a baseline, or if there are none, the first that did not pass."""
    compared = _compared(store, run, verdict)
    if compared is not None and compared.worsened:
        shown = compared.worsened[:SHOWN_CASES]
        yield f"<details><summary>Worse now: {len(shown)} of {len(compared.worsened)}</summary>\n"
        for text in flip_texts(store, compared, shown):
            flip, change = text.flip, f"{four_digits(text.flip.base)} → {four_digits(text.flip.new)}"
            yield f"**{_safe(flip.case_id, 100)}** ({_safe(flip.metric, 100)}: {change})\n"
            texts = {"before": text.base, "now": text.new, "why": text.reason}
            yield from (f"{name}:\n{fenced(value)}\n" for name, value in texts.items() if value)
        yield "</details>"
        return
    failed = failed_cases(store, run, verdict)
    if failed.rows:
        yield f"<details><summary>Did not pass: {plural(failed.cases, 'case')}, the first:</summary>\n"
        for row in failed.rows[:SHOWN_CASES]:
            yield f"**{_safe(row['case'], 100)}** ({_safe(row['check'], 100)})\n"
            names = ("input", "expected", "output", "why")
            yield from (f"{name}:\n{fenced(row[name])}\n" for name in names if row[name])
        yield "</details>"


def _compared(store: Store, run: RunRecord, verdict: Verdict) -> RunComparison | None:
    if verdict.regression is not None and verdict.regression.run_id is not None:
        baseline = verdict.regression.baseline
    elif verdict.baseline is not None:
        baseline = verdict.baseline.run_id
    else:
        return None
    try:
        base = results_of_base(store, base_of(store, run, baseline))
        return compare_results(base, results_with_verdict(store, run), metrics_needed=False)
    except UserError:  # the verdict says why
        return None


def _costs(store: Store, run: RunRecord, verdict: Verdict) -> str:
    progress = store.results.progress(run.id)
    calls = f"{plural(run.n_cases, 'case')}, {plural(progress.outputs - progress.reused, 'call')}"
    if run.started_at is not None and run.completed_at is not None:
        calls += f", {(run.completed_at - run.started_at).total_seconds():.1f} s"
    facts = (metadata.metadata or {} for metadata in store.results.complete_outputs(run.id, 0))
    known = [usd for usd in (metadata.get("usd") for metadata in facts) if isinstance(usd, int | float)]
    agent = [f"agent: {sum(known):.4g} usd"] if known else []
    models = [f"judges and embeddings: {verdict.models}"] if verdict.models else []
    name = f"run `{run.id[:8]}`"
    return " · ".join([*map(_safe, [calls, *agent, *models]), link(name, run_page(run.id))])
