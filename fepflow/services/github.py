"""A run's verdict on GitHub: job summary, outputs, annotations, and one comment on the pull request.

Everything comes from the environment that GitHub Actions gives a step. Missing permissions are notices, never errors:
the verdict and its exit code stay the same.
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
from pathlib import Path
from typing import Any

import httpx

from fepflow.errors import FepflowError
from fepflow.reports.pull_request import comment, failure, headline, reason
from fepflow.security.redaction import known_secrets, redact, remember, words_of
from fepflow.store.records import RunRecord
from fepflow.store.store import Store
from fepflow.text import one_line

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
