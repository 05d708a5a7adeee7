"""Recorded answers behind an HTTP endpoint: what a model said once, said again. No language model runs here.

    POST /solve {"question": "..."} -> {"solution", "model", "is_correct", "recorded": true}
    GET /count                      -> {"requests": how many were answered, "questions": how many different ones}

A question that was not recorded gets 404.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import click
from aiohttp import web

from fepflow.deployments.simulators.language_model import serve

Answers = dict[str, dict[str, Any]]


def read_answers(file: Path, model: str) -> Answers:
    """Return the answers by question. Raises ValueError for a file that has no answers of the model."""
    answers: Answers = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        if model not in record:
            known = ", ".join(name for name, value in record.items() if isinstance(value, dict))
            raise ValueError(f"{file} has no answers of {model}; it has those of {known}")
        answers[record["question"]] = {**record[model], "model": model, "recorded": True}
    return answers


def application(answers: Answers, latency: float) -> web.Application:
    """The service; each answer takes `latency` seconds."""
    requests: Counter[str] = Counter()

    async def solve(request: web.Request) -> web.Response:
        question = (await request.json())["question"]
        if question not in answers:
            return web.json_response({"error": "this question was not recorded"}, status=404)
        requests[question] += 1
        await asyncio.sleep(latency)
        return web.json_response(answers[question])

    async def count(_: web.Request) -> web.Response:
        return web.json_response({"requests": requests.total(), "questions": len(requests)})

    app = web.Application()
    app.add_routes([web.post("/solve", solve), web.get("/count", count)])
    return app


@click.command()
@click.option("--folder", envvar="GSM8K_FOLDER", required=True, type=click.Path(path_type=Path, exists=True),
              help="Folder of solutions.jsonl (or GSM8K_FOLDER).")  # fmt: skip
@click.option("--model", envvar="GSM8K_MODEL", default="175b_verification", show_default=True,
              help="Whose answers (or GSM8K_MODEL).")  # fmt: skip
@click.option("--latency", default=0.05, show_default=True, help="Seconds that an answer takes.")
@click.option("--port", default=8766, show_default=True, help="Port on 127.0.0.1; 0 picks a free one.")
def main(folder: Path, model: str, latency: float, port: int) -> None:
    """Answer GSM8K's questions over HTTP with the recorded solutions of a model."""
    try:
        asyncio.run(serve(application(read_answers(folder / "solutions.jsonl", model), latency), port))
    except (OSError, ValueError) as error:
        raise click.ClickException(str(error)) from None


if __name__ == "__main__":
    main()
