"""A stand-in for two language models, in the shape of OpenAI's chat completions. No model runs here.

    POST /v1/chat/completions    {"model": "small" or "large", "messages": [...]}

Keywords say what a message is about; the small model knows fewer of them. Both answer in a sentence unless the prompt
asks for one word.
"""

from __future__ import annotations

from typing import Any

import click
import uvicorn
from fastapi import FastAPI, HTTPException

SMALL = {"refund": ["refund", "money"], "shipping": ["parcel", "delivery"], "account": ["password", "login"]}
LARGE = {
    "refund": [*SMALL["refund"], "return", "charged"],
    "shipping": [*SMALL["shipping"], "arrive", "courier"],
    "account": [*SMALL["account"], "e-mail address", "profile"],
}
MODELS = {"small": SMALL, "large": LARGE}


def topic_of(text: str, keywords: dict[str, list[str]]) -> str:
    """Return the topic whose keywords a text has, `other` if none."""
    return next((topic for topic, words in keywords.items() if any(word in text for word in words)), "other")


def application() -> FastAPI:
    """Return the endpoint."""
    app = FastAPI(title="Stand-in for two models")

    @app.post("/v1/chat/completions")
    def complete(body: dict[str, Any]) -> dict[str, Any]:
        if body["model"] not in MODELS:
            raise HTTPException(404, f"there is no model {body['model']}")
        prompt = body["messages"][-1]["content"]
        instructions, _, message = prompt.partition("Message:")
        topic = topic_of(message.lower(), MODELS[body["model"]])
        answer = topic if "one word" in instructions else f"This message is about {topic}."
        tokens = len(prompt.split()), len(answer.split())
        return {
            "id": "chatcmpl-stand-in",
            "object": "chat.completion",
            "created": 0,
            "model": f"{body['model']} (stand-in)",
            "choices": [
                {"index": 0, "message": {"role": "assistant", "content": answer}, "finish_reason": "stop"},
            ],
            "usage": {"prompt_tokens": tokens[0], "completion_tokens": tokens[1], "total_tokens": sum(tokens)},
        }

    return app


@click.command()
@click.option("--port", envvar="MODEL_PORT", default=8773, show_default=True, help="Port on 127.0.0.1.")
def main(port: int) -> None:
    """Serve until Ctrl-C."""
    uvicorn.run(application(), host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    main()
