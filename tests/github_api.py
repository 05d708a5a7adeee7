"""A stand-in for the part of GitHub's REST API that comments need, on a real socket, with its payloads' shapes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from tests.http_server import serving

TOKEN = "ghs_" + "16C7e42F292c6912E7710c838347Ae178B4a"[:36]
REPOSITORY = "Codertocat/Hello-World"
HEAD = "ec26c3e57ca3a959ca5aad62de7213c562f8c821"
DOCS = "https://docs.github.com/rest/issues/comments#create-an-issue-comment"


def refusal(status: int, message: str, **headers: str) -> Response:
    """An error as GitHub words it."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    body = {"message": message, "documentation_url": DOCS, "status": str(status)}
    return JSONResponse(body, status, headers=named)


REFUSALS: dict[str, Response] = {
    "fork": refusal(403, "Resource not accessible by integration", x_ratelimit_remaining="4987"),
    "hidden": refusal(404, "Not Found"),
    "bad token": refusal(401, "Bad credentials"),
    "rate": refusal(403, "API rate limit exceeded", x_ratelimit_remaining="0", x_ratelimit_reset="1784714400"),
    "secondary": refusal(429, "You have exceeded a secondary rate limit", retry_after="60"),
    "locked": refusal(403, "Unable to create comment because issue is locked."),
    "down": refusal(503, "Service unavailable"),
    "html": PlainTextResponse("<html>a proxy</html>", 502),
    "page": PlainTextResponse("<html>a sign-in page</html>", 200),
}


@dataclass
class GitHubAPI:
    """The comments of one pull request, oldest first, and the requests that came. `refused` names what is answered."""

    address: str = ""
    comments: list[dict[str, Any]] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    refused: str | None = None
    only_writes: bool = False

    def add(self, body: str, login: str, kind: str = "User", association: str = "NONE") -> dict[str, Any]:
        number = 492700400 + len(self.comments)
        issue = f"{self.address}/repos/{REPOSITORY}/issues/2"
        comment = {
            "url": f"{self.address}/repos/{REPOSITORY}/issues/comments/{number}",
            "html_url": f"https://github.com/{REPOSITORY}/pull/2#issuecomment-{number}",
            "issue_url": issue,
            "id": number,
            "node_id": "MDEyOklzc3VlQ29tbWVudDQ5MjcwMDQwMA==",
            "user": {"login": login, "id": 41898282, "type": kind, "site_admin": False},
            "created_at": "2019-05-15T15:20:21Z",
            "updated_at": "2019-05-15T15:20:21Z",
            "author_association": association,
            "body": body,
            "performed_via_github_app": {"slug": "github-actions"} if kind == "Bot" else None,
        }
        self.comments.append(comment)
        return comment

    def of_bot(self) -> list[str]:
        return [str(each["body"]) for each in self.comments if each["user"]["type"] == "Bot"]

    async def answer(self, request: Request) -> Response:
        self.requests.append(f"{request.method} {request.url.path}")
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            return REFUSALS["bad token"]
        if request.headers["accept"] != "application/vnd.github+json" or "x-github-api-version" not in request.headers:
            return refusal(415, "Unsupported")
        if self.refused and (request.method != "GET" or not self.only_writes):
            return REFUSALS[self.refused]
        if request.method == "GET":
            return self._page(request)
        text = (await request.json())["body"]
        if len(text) > 65_536:
            return refusal(422, "Validation Failed")
        if request.method == "POST":
            return JSONResponse(self.add(text, "github-actions[bot]", "Bot"), 201)
        for comment in self.comments:
            if comment["id"] == request.path_params["id"]:
                return JSONResponse({**comment, **(comment.update(body=text) or {})}, 200)
        return REFUSALS["hidden"]

    def _page(self, request: Request) -> Response:
        size = int(request.query_params.get("per_page", 30))
        page = int(request.query_params.get("page", 1))
        last = max(1, -(-len(self.comments) // size))
        place = f"{self.address}{request.url.path}?per_page={size}&page="
        links = [f'<{place}{page + 1}>; rel="next"', f'<{place}{last}>; rel="last"'] if page < last else []
        headers = {"link": ", ".join(links)} if links else {}
        return JSONResponse(self.comments[(page - 1) * size : page * size], headers=headers)


@contextmanager
def github_api() -> Iterator[GitHubAPI]:
    """The stand-in, for the length of a `with` block."""
    api = GitHubAPI()

    @asynccontextmanager
    async def make() -> AsyncIterator[ASGIApp]:
        comments = f"/repos/{REPOSITORY}/issues"
        yield Starlette(
            routes=[
                Route(f"{comments}/2/comments", api.answer, methods=["GET", "POST"]),
                Route(f"{comments}/comments/{{id:int}}", api.answer, methods=["PATCH"]),
            ]
        )

    with serving(make) as address:
        api.address = address
        yield api


def runner_environment(folder: Path, api: GitHubAPI, event: str = "pull_request") -> dict[str, str]:
    """Variables that GitHub Actions sets for a step of a job, with its files in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    repository = {"id": 186853002, "name": "Hello-World", "full_name": REPOSITORY, "default_branch": "main"}
    pull_request = {
        "number": 2,
        "state": "open",
        "html_url": f"https://github.com/{REPOSITORY}/pull/2",
        "head": {"ref": "changes", "sha": HEAD, "repo": repository},
        "base": {"ref": "main", "sha": "f95f852bd8fca8fcc58a9a2d6c842781e32a215e", "repo": repository},
    }
    issue = {"number": 2, "pull_request": {"url": f"{api.address}/repos/{REPOSITORY}/pulls/2"}}
    payloads: dict[str, dict[str, Any]] = {
        "pull_request": {"action": "synchronize", "number": 2, "pull_request": pull_request},
        "issue_comment": {"action": "created", "issue": issue, "comment": {"body": "/evaluate"}},
        "push": {"ref": "refs/heads/main", "before": "0" * 40, "after": HEAD, "head_commit": {"id": HEAD}},
        "schedule": {"schedule": "0 3 * * *"},
    }
    (folder / "event.json").write_text(json.dumps({**payloads[event], "repository": repository}), encoding="utf-8")
    for name in ("summary.md", "output"):
        (folder / name).write_text("", encoding="utf-8")
    return {
        "GITHUB_ACTIONS": "true",
        "GITHUB_API_URL": api.address,
        "GITHUB_SERVER_URL": "https://github.com",
        "GITHUB_REPOSITORY": REPOSITORY,
        "GITHUB_RUN_ID": "1658821493",
        "GITHUB_SHA": HEAD,
        "GITHUB_EVENT_NAME": event,
        "GITHUB_EVENT_PATH": str(folder / "event.json"),
        "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
        "GITHUB_OUTPUT": str(folder / "output"),
        "GITHUB_TOKEN": TOKEN,
    }
