"""The check `context_precision`: the retrieved contexts are useful, the useful ones first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from fepflow.checks.faithfulness import ClaimsCheck, Parts, numbered
from fepflow.checks.models.judge_check import CONTEXT, QUESTION, REFERENCE, Questioner, contexts_of, has_text
from fepflow.checks.models.voting import rounded
from fepflow.jsonpath.path import Filled
from fepflow.text import text_of

_VERDICTS = """\


Say of each context whether it is of use to answer the question: whether it holds something that a right answer \
says, or that is needed to give one. One that is only about the same subject is of no use. Each context is \
judged by itself, whether or not another one says the same."""


class ContextPrecisionCheck(ClaimsCheck):
    """Pass if a judge finds the contexts useful, and the useful ones first. Results:
    `{response: {score, passed, reason, contexts}, metadata}`.

    A model decides for each context whether it helps to answer the question as the reference does (the expected answer,
    if there is one). The score is the average precision: for each useful context, the share of useful ones up to it,
    and the mean of these shares; 0 if none is useful. `contexts` lists each as `{context, verdict, reason}`, where
    `context` is its number. An empty list is an error. The prompt is fepflow's own: do not compare scores with those of
    RAGAS.
    """

    check_type: ClassVar[str] = "context_precision"
    check_asks: ClassVar[str] = "Is what was retrieved of use to answer the question, and does the useful come first?"
    check_optional_paths: ClassVar[frozenset[str]] = frozenset({"context", "reference"})

    question: Any = QUESTION
    reference: Any = REFERENCE
    context: Any = CONTEXT

    def check_before(self) -> None:
        """See JudgeCheck."""
        contexts_of(self.context)

    async def check_judge(self, questioner: Questioner) -> dict[str, Any]:
        """See JudgeCheck."""
        contexts = contexts_of(self.context)
        verdicts = await self.check_verdicts(
            questioner, self._parts(contexts), len(contexts), "true if the context is of use"
        )
        useful = [verdict.holds for verdict in verdicts]
        details = [
            {"context": number, "verdict": verdict.holds, "reason": verdict.reason}
            for number, verdict in enumerate(verdicts, 1)
        ]
        reason = f"{sum(useful)} of {len(useful)} {'contexts are' if len(useful) > 1 else 'context is'} of use"
        if useful_at := [str(number) for number, holds in enumerate(useful, 1) if holds]:
            reason += f": number {', '.join(useful_at)}"
        return {"score": rounded(average_precision(useful)), "reason": reason, "contexts": details}

    def _parts(self, contexts: Sequence[str]) -> Parts:
        parts: list[str | Filled] = ["A question: ", Filled("$.test_case.input", text_of(self.question))]
        if has_text(self.reference):
            parts += ["\nA right answer: ", Filled("$.test_case.expected", text_of(self.reference))]
        return [
            *parts,
            "\nThe contexts that were found for it, numbered: ",
            Filled("context", numbered(contexts)),
            _VERDICTS,
        ]


def average_precision(useful: Sequence[bool]) -> float:
    """Return the mean, over the useful contexts, of the share of useful ones up to each; 0 if none is useful."""
    shares = [sum(useful[:rank]) / rank for rank, holds in enumerate(useful, 1) if holds]
    return sum(shares) / len(shares) if shares else 0.0
