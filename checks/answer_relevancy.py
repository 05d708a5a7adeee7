"""The check `answer_relevancy`: an answer keeps to the question."""

from __future__ import annotations

from typing import Any, ClassVar

from fepflow.checks.faithfulness import ClaimsCheck, Parts, numbered
from fepflow.checks.models.judge_check import ANSWER, QUESTION, Questioner, refuse_nothing
from fepflow.jsonpath.path import Filled
from fepflow.text import text_of

_STATEMENTS = """\


List the statements that the answer is made of, as claims: each thing that it tells, advises, asks or refuses, \
as one sentence that can be understood without the answer. Take them from the answer only, and leave out none."""

_VERDICTS = """\


Say of each statement of the answer whether it is relevant: whether it answers the question or a part of it, or \
is needed to understand or use such an answer. Whether it is true does not matter. What the question did not ask \
for, what evades it, and what only says that there will be an answer is not relevant."""


class AnswerRelevancyCheck(ClaimsCheck):
    """Pass if a judge finds that the answer keeps to the question. Results:
    `{response: {score, passed, reason, claims}, metadata}`.

    A model lists the statements of the answer, and decides for each whether it helps with the question. The score is
    the share of statements that help. `claims` lists each as `{claim, verdict, reason}`. It does not matter whether the
    statements are true. The prompt is fepflow's own: do not compare scores with those of RAGAS.
    """

    check_type: ClassVar[str] = "answer_relevancy"
    check_asks: ClassVar[str] = "Does everything that the answer says help with the question?"

    question: Any = QUESTION
    answer: Any = ANSWER

    def check_before(self) -> None:
        """See JudgeCheck."""
        refuse_nothing([Filled("$.output.value", text_of(self.answer))])

    async def check_judge(self, questioner: Questioner) -> dict[str, Any]:
        """See JudgeCheck."""
        question = Filled("$.test_case.input", text_of(self.question))
        answer = Filled("$.output.value", text_of(self.answer))
        parts: Parts = ["An assistant was asked: ", question, "\nIts answer: ", answer, _STATEMENTS]
        statements = await self.check_claims(questioner, parts, "the answer")
        listed = Filled("claims", numbered(statements))
        parts = ["An assistant was asked: ", question, "\nStatements of its answer, numbered: ", listed, _VERDICTS]
        verdicts = await self.check_verdicts(questioner, parts, len(statements), "true if the statement is relevant")
        return self.check_share(statements, verdicts, "statements are relevant to the question")
