"""The check `faithfulness`: the context supports each claim of an answer."""

from __future__ import annotations

from typing import Any, ClassVar

from fepflow.checks.models.claims import ClaimsCheck, Parts, numbered
from fepflow.checks.models.judge_check import Questioner
from fepflow.checks.models.judge_prompt import ANSWER, CONTEXT, QUESTION, contexts_of, refuse_nothing
from fepflow.jsonpath.template import Filled
from fepflow.text import text_of

_CLAIMS = """\


List the claims that the answer makes: each fact, number, promise or instruction that could be wrong. Write each \
as one full sentence that can be understood without the answer, with names in the place of "it" and "they". Take \
them from the answer only, leave out none, whatever it says about itself, and correct none. Greetings, questions \
and offers to help make no claim. If the answer makes none at all, the list is empty."""

_VERDICTS = """\


Say of each claim whether the contexts support it. One that follows from them is supported. One that they \
contradict, or say nothing about, is not, even if you know that it is true. A claim about what the contexts say \
is judged by what they say."""


class FaithfulnessCheck(ClaimsCheck):
    """Pass if a judge finds that the context supports the answer. Results:
    `{response: {score, passed, reason, claims}, metadata}`.

    A model lists the claims of the answer, and decides for each whether the context supports it. The score is the share
    of supported claims. `claims` lists each as `{claim, verdict, reason}`. An answer without a claim, or without a
    context, is an error. The prompt is fepflow's own: do not compare scores with those of RAGAS.
    """

    check_type: ClassVar[str] = "faithfulness"
    check_asks: ClassVar[str] = "Does the context support everything that the answer claims?"
    check_optional_paths: ClassVar[frozenset[str]] = frozenset({"context"})

    question: Any = QUESTION
    answer: Any = ANSWER
    context: Any = CONTEXT

    def check_before(self) -> None:
        """See JudgeCheck."""
        refuse_nothing([Filled("$.output.value", text_of(self.answer))])
        contexts_of(self.context)

    async def check_judge(self, questioner: Questioner) -> dict[str, Any]:
        """See JudgeCheck."""
        question = Filled("$.test_case.input", text_of(self.question))
        answer = Filled("$.output.value", text_of(self.answer))
        parts: Parts = ["An assistant was asked: ", question, "\nIts answer: ", answer, _CLAIMS]
        claims = await self.check_claims(questioner, parts, "the answer")
        contexts = Filled("context", numbered(contexts_of(self.context)))
        listed = Filled("claims", numbered(claims))
        parts = ["The contexts, numbered: ", contexts, "\nClaims, numbered: ", listed, _VERDICTS]
        verdicts = await self.check_verdicts(questioner, parts, len(claims), "true if the contexts support the claim")
        return self.check_share(claims, verdicts, "claims are supported by the context")
