"""A stand-in for the agent that you would evaluate: the "refund desk" of an invented web shop, over HTTP.

No language model runs here. It repeats what is written in `refund_desk.jsonl`, where some answers are wrong: it takes
final-sale items back, counts calendar days as business days, shows an internal article number, and takes a watering can
for water damage. Other questions are handed over to a colleague. `GET /` and the metadata of every answer say so.

    POST /ask {"question": "..."} -> {"answer", "intent", "confidence", "usage": {"total_tokens"}, "metadata"}

Below `/judge` is the stand-in for language models, so that the demonstration has a judge without a key.

It fails as services do: now and then 503, a dropped connection or a slow answer on the first try of a question,
decided by a hash of seed, question and try. The second try answers, and an answer ends the count of tries, so a demo
responds in the same way. One question gets 503 always: it needs the order system, which this stand-in does not have.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import click
from aiohttp import web

from fepflow.deployments.simulators import language_model
from fepflow.deployments.simulators.language_model import fraction, run, tokens_of

NOTICE = "A stand-in for demonstrations: recorded answers, no language model, no real shop."
OTHER = {
    "answer": "I only know about orders, shipping, returns and refunds, so I will ask a colleague to write to you.",
    "intent": "other",
    "confidence": 0.2,
}

Fault = Literal["unavailable", "dropped", "slow"]


@dataclass(frozen=True)
class FaultSchedule:
    """Faults and delays of answers: the same for the same seed, question and try."""

    seed: int

    def fault(self, question: str, attempt: int) -> Fault | None:
        """Return the fault of the `attempt`-th try (from 1) since the question's last answer; later ones have none."""
        share = fraction(self.seed, "fault", question, attempt)
        if attempt > 1 or share >= 0.13:
            return None
        return "unavailable" if share < 0.05 else "dropped" if share < 0.09 else "slow"

    def seconds(self, question: str, attempt: int) -> float:
        """Return the seconds that the answer takes: 0.1 to 0.4 s, or 1.5 s when it is slow."""
        if self.fault(question, attempt) == "slow":
            return 1.5
        return 0.1 + 0.3 * fraction(self.seed, "latency", question, attempt)


def application(seed: int) -> web.Application:
    """Return the agent as an aiohttp application."""
    records = map(json.loads, Path(__file__).with_name("refund_desk.jsonl").read_text(encoding="utf-8").splitlines())
    answers = {record.pop("question"): record for record in records}
    schedule = FaultSchedule(seed)
    tries: Counter[str] = Counter()
    metadata = {"stand_in": True, "notice": NOTICE, "seed": seed}

    async def about(_: web.Request) -> web.Response:
        return web.json_response({"service": "refund desk", "ask": 'POST /ask {"question": "..."}', **metadata})

    async def ask(request: web.Request) -> web.Response:
        try:
            text = _read_question(await request.read())
        except ValueError as error:
            return web.json_response({"error": f"{error}", "metadata": metadata}, status=400)
        tries[text] += 1
        attempt = tries[text]
        fault = schedule.fault(text, attempt)
        if fault == "dropped" and request.transport:
            request.transport.abort()
            return web.Response()
        if fault == "unavailable":
            return _unavailable("overloaded for a moment")
        await asyncio.sleep(schedule.seconds(text, attempt))
        del tries[text]  # answered: the next request begins anew
        reply = answers.get(text, OTHER)
        if reply["answer"] is None:
            return _unavailable("the order system does not answer")
        usage = {"total_tokens": tokens_of(text, reply["answer"])}
        return web.json_response({**reply, "usage": usage, "metadata": metadata})

    app = web.Application(client_max_size=64 * 1024)
    app.add_routes([web.get("/", about), web.post("/ask", ask)])
    app.add_subapp("/judge", language_model.application(seed))
    return app


def _read_question(raw: bytes) -> str:
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        body = None
    question = body.get("question") if isinstance(body, dict) else None
    if not isinstance(question, str) or not question.strip():
        raise ValueError('the body must be JSON such as {"question": "How long does shipping take?"}')
    return question


def _unavailable(reason: str) -> web.Response:
    return web.json_response({"error": f"{reason}, try again"}, status=503, headers={"Retry-After": "1"})


@click.command()
@click.option("--port", default=8765, show_default=True, help="Port on 127.0.0.1; 0 picks a free one.")
@click.option("--seed", default=7, show_default=True, help="Which questions fail on the first try.")
def main(port: int, seed: int) -> None:
    """Serve the refund desk, a stand-in agent for demonstrations; prints its address when it listens."""
    run(application(seed), port)


if __name__ == "__main__":
    main()
