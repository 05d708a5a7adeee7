"""A small question-answering service over a handbook: it retrieves passages, and answers with their sentences.

    POST /ask {"question": "..."} -> {"answer": "...", "contexts": ["...", ...]}    the best passage first

It retrieves by common words, weighted by how rare they are. In place of a language model it quotes the sentences that
fit the question best. It has a defect that an evaluation should find: to questions about money it adds a discount that
the handbook does not know. `--faithful` repairs it.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from pathlib import Path

import click
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

HANDBOOK = Path(__file__).parent / "handbook.md"
RETRIEVED = 2
QUOTED = 2
MONEY = {"cost", "costs", "pay", "price", "euros", "fee", "fees", "expensive", "charge"}
MADE_UP = "Seniors get a discount of 50 percent."
COMMON = set(
    re.findall(
        r"\w+",
        """a an and are at be can do does for from get have how i in is it long many much my of on the
    to we what when which with you""",
    )
)


class Question(BaseModel):
    """The body of a request."""

    question: str


class Handbook:
    """Passages of a handbook, found by the words that they share with a question."""

    def __init__(self, text: str) -> None:
        """Split the text at its headings; a heading belongs to its passage."""
        sections = [section.strip() for section in text.split("# ") if section.strip()]
        self.passages = [section.replace("\n", ". ", 1) for section in sections]
        self._words = [words(passage) for passage in self.passages]
        frequency = Counter(word for known in self._words for word in known)
        self._weights = {word: math.log(1 + len(self.passages) / count) for word, count in frequency.items()}

    def retrieve(self, question: str) -> list[str]:
        """Return the passages that fit the question best, the best first."""
        scores = [self._score(question, known) for known in self._words]
        best = sorted(range(len(scores)), key=lambda index: -scores[index])
        return [self.passages[index] for index in best[:RETRIEVED]]

    def quote(self, question: str, passage: str) -> str:
        """Return the sentences of a passage that fit the question best, in their order."""
        sentences = re.split(r"(?<=\.) ", passage)[1:]  # without the heading
        best = sorted(sentences, key=lambda sentence: -self._score(question, words(sentence)))[:QUOTED]
        return " ".join(sentence for sentence in sentences if sentence in best)

    def _score(self, question: str, known: set[str]) -> float:
        return sum(self._weights.get(word, 0) for word in words(question) & known)


def words(text: str) -> set[str]:
    """Return the words of a text that mean something, without the endings of plurals and verbs."""
    found = re.findall(r"[a-z]+|\d+", text.lower())
    return {re.sub(r"(ings?|ed|s)$", "", word) for word in found if word not in COMMON}


def application(*, faithful: bool) -> FastAPI:
    """Return the service."""
    app, handbook = FastAPI(title="Library desk"), Handbook(HANDBOOK.read_text(encoding="utf-8"))

    @app.post("/ask")
    def ask(body: Question) -> dict[str, object]:
        contexts = handbook.retrieve(body.question)
        answer = handbook.quote(body.question, contexts[0])
        if not faithful and MONEY & set(re.findall(r"[a-z]+", body.question.lower())):
            answer += f" {MADE_UP}"
        return {"answer": answer, "contexts": contexts}

    return app


@click.command()
@click.option("--port", envvar="RAG_PORT", default=8770, show_default=True, help="Port on 127.0.0.1.")
@click.option("--faithful", is_flag=True, help="Answer with the handbook's words only.")
def main(port: int, faithful: bool) -> None:
    """Serve until Ctrl-C."""
    uvicorn.run(application(faithful=faithful), host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    main()
