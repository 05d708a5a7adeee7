"""A stand-in for the language model of the judges, in the shape of OpenAI's chat completions. No model runs here.

    POST /v1/chat/completions

It judges by words: a sentence is a claim; a claim is supported if the contexts have its words and all of its numbers; a
context is of use if it has most words of the right answer. That is enough for the handbook of this example, whose
answers are quotations, and for nothing else: name a real model in suite.yaml for texts of your own.
"""

from __future__ import annotations

import json
import re
from typing import Any

import click
import uvicorn
from fastapi import FastAPI
from service import words

TEXTS = re.compile(r"<(judged-\w+) text=\"\d+\">\n(.*?)\n</\1>", re.DOTALL)
MOST = 0.75


def judge(texts: list[str], schema: dict[str, Any]) -> dict[str, Any]:
    """Return the answer that the schema asks for: a list of claims, or a verdict on each of several items."""
    names = list(schema["properties"])
    if names == ["claims"]:
        return {"claims": re.split(r"(?<=\.) ", texts[-1])}
    items = [item["text"] for item in json.loads(texts[-1])]
    if len(texts) == 2:  # contexts, and claims about them
        verdicts = [covered(item, texts[0]) for item in items]
    else:  # a question, its right answer, and contexts
        verdicts = [covered(texts[1], item) for item in items]
    reasons = {True: "The words are there.", False: "Words or numbers are missing."}
    return {name: {"reason": reasons[held], "verdict": held} for name, held in zip(names, verdicts, strict=True)}


def covered(text: str, source: str) -> bool:
    """Return whether the source has most words of a text, and all of its numbers."""
    wanted, known = words(text), words(source)
    numbers = {word for word in wanted if word.isdigit()}
    return numbers <= known and len(wanted & known) >= MOST * len(wanted)


def application() -> FastAPI:
    """Return the endpoint."""
    app = FastAPI(title="Stand-in for a judge")

    @app.post("/v1/chat/completions")
    def complete(body: dict[str, Any]) -> dict[str, Any]:
        texts = [text for _, text in TEXTS.findall(body["messages"][-1]["content"])]
        answer = judge(texts, body["response_format"]["json_schema"]["schema"])
        message = {"role": "assistant", "content": json.dumps(answer)}
        return {
            "id": "chatcmpl-stand-in",
            "object": "chat.completion",
            "created": 0,
            "model": f"{body['model']} (stand-in)",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
        }

    return app


@click.command()
@click.option("--port", envvar="JUDGE_PORT", default=8771, show_default=True, help="Port on 127.0.0.1.")
def main(port: int) -> None:
    """Serve until Ctrl-C."""
    uvicorn.run(application(), host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    main()
