"""The check `context_recall`: the context has what a right answer needs."""

from __future__ import annotations

from typing import Any, ClassVar

from fepflow.checks.faithfulness import ClaimsCheck, Parts, numbered
from fepflow.checks.models.judge_check import CONTEXT, QUESTION, REFERENCE, Questioner, contexts_of, says_something
from fepflow.errors import CheckArgumentsError
from fepflow.jsonpath.path import Filled
from fepflow.text import text_of

_CLAIMS = """\


List the claims of the reference: each fact, number or instruction that it holds, as one full sentence that can \
be understood without it. Take them from the reference only, and leave out none."""

_VERDICTS = """\


Say of each claim whether it could have been taken from the contexts: whether they say it, or it follows from \
them. What you know yourself does not count."""


class ContextRecallCheck(ClaimsCheck):
    """Pass if a judge finds in the context what a right answer needs. Results:
    `{response: {score, passed, reason, claims}, metadata}`.

    A model lists the claims of the reference (the expected answer), and decides for each whether the context has it.
    The score is the share of these claims. `claims` lists each as `{claim, verdict, reason}`. A case without a
    reference or a context is an error. The check judges the retrieval and ignores the answer. The prompt is fepflow's
    own: do not compare scores with those of RAGAS.
    """

    check_type: ClassVar[str] = "context_recall"
    check_asks: ClassVar[str] = "Does the context have everything that the expected answer says?"
    check_optional_paths: ClassVar[frozenset[str]] = frozenset({"context"})

    question: Any = QUESTION
    reference: Any = REFERENCE
    context: Any = CONTEXT

    def check_before(self) -> None:
        """See JudgeCheck."""
        if not says_something(text_of(self.reference)):
            raise CheckArgumentsError("the reference is empty, so there is nothing to look for in the context")
        contexts_of(self.context)

    async def check_judge(self, questioner: Questioner) -> dict[str, Any]:
        """See JudgeCheck."""
        question = Filled("$.test_case.input", text_of(self.question))
        reference = Filled("$.test_case.expected", text_of(self.reference))
        parts: Parts = ["A question: ", question, "\nIts reference answer: ", reference, _CLAIMS]
        claims = await self.check_claims(questioner, parts, "the reference")
        contexts = Filled("context", numbered(contexts_of(self.context)))
        listed = Filled("claims", numbered(claims))
        parts = ["The contexts, numbered: ", contexts, "\nClaims, numbered: ", listed, _VERDICTS]
        verdicts = await self.check_verdicts(questioner, parts, len(claims), "true if the contexts hold the claim")
        return self.check_share(claims, verdicts, "claims of the reference are in the context")
