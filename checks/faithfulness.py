"""`faithfulness`: the context supports each claim of an answer; and the base of all judges that go claim by claim.

A model lists the claims of a text and gives a verdict on each; the score is the share that holds. The prompts are our
own, after the idea of RAGAS and DeepEval. Do not compare scores with theirs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from fepflow.checks.models.judge_check import (
    ANSWER,
    CONTEXT,
    QUESTION,
    Questioner,
    ScoredJudgeCheck,
    contexts_of,
    fitting,
    json_object,
    refuse_nothing,
)
from fepflow.checks.models.voting import rounded
from fepflow.errors import CheckArgumentsError
from fepflow.jsonpath.path import Filled, RenderedPrompt
from fepflow.text import cut, text_of

MOST_CLAIMS = 100
LONGEST_CLAIM = 2_000

_LIST_FORMAT = {
    "type": "object",
    "properties": {"claims": {"type": "array", "items": {"type": "string"}}},
    "required": ["claims"],
    "additionalProperties": False,
}

_MOST_NAMED = 3
_NAMED = 120
"""Characters of a claim in the reason of a score."""

Parts = Sequence[str | Filled]


@dataclass(frozen=True)
class Verdict:
    """A model's verdict on one of several numbered items."""

    holds: bool
    reason: str


class ClaimsCheck(ScoredJudgeCheck):
    """A judge that gives a verdict on each of several items."""

    check_max_tokens: ClassVar[int] = 4096

    async def check_claims(self, questioner: Questioner, parts: Parts, of_what: str) -> list[str]:
        """Return the distinct claims that a model finds. Raises CheckArgumentsError without any."""
        claims = await questioner.ask(RenderedPrompt(parts), _LIST_FORMAT, _read_claims)
        if not claims:
            raise CheckArgumentsError(f"no claims found in {of_what}, so there is nothing to judge")
        return claims

    async def check_verdicts(self, questioner: Questioner, parts: Parts, number: int, verdict: str) -> list[Verdict]:
        """Return a model's verdicts on `number` items. `verdict` describes for the model when one holds."""
        answer_format = _verdict_format(number, verdict)
        return await questioner.ask(RenderedPrompt(parts), answer_format, partial(_read_verdicts, answer_format))

    def check_share(self, items: Sequence[str], verdicts: Sequence[Verdict], words: str) -> dict[str, Any]:
        """Return the response for the share of claims that hold; `words` describe these claims."""
        claims = [
            {"claim": item, "verdict": verdict.holds, "reason": verdict.reason}
            for item, verdict in zip(items, verdicts, strict=True)
        ]
        held = sum(verdict.holds for verdict in verdicts)
        reason = f"{held} of {len(claims)} {words if len(claims) > 1 else _of_one(words)}"
        others = [(item, verdict.reason) for item, verdict in zip(items, verdicts, strict=True) if not verdict.holds]
        if others:
            reason += f"; not: {'; '.join(f'{cut(item, _NAMED)} ({why})' for item, why in others[:_MOST_NAMED])}"
        return {"score": rounded(held / len(claims)), "reason": reason, "claims": claims}


def _of_one(words: str) -> str:
    """Return words like `claims are supported` for one claim."""
    noun, rest = words.split(" ", 1)
    return f"{noun.removesuffix('s')} {rest.replace('are ', 'is ', 1)}"


def numbered(items: Sequence[str]) -> str:
    """Return items for a model, as JSON, so that no item can pretend to be two."""
    return json.dumps([{"number": number, "text": item} for number, item in enumerate(items, 1)], ensure_ascii=False)


def _read_claims(answer: Any) -> list[str]:
    claims = [" ".join(claim.split()) for claim in fitting(answer, _LIST_FORMAT)["claims"]]
    if any(len(claim) > LONGEST_CLAIM for claim in claims):
        raise CheckArgumentsError(f"a claim has more than {LONGEST_CLAIM:,} characters: it is more than one")
    # A repeated claim counts once: else repeating a right claim would make up for a wrong one.
    first: dict[str, str] = {}
    for claim in claims:
        if claim:
            first.setdefault(claim.casefold(), claim)
    distinct = list(first.values())
    if len(distinct) > MOST_CLAIMS:
        raise CheckArgumentsError(f"there are {len(distinct)} claims; at most {MOST_CLAIMS} are allowed")
    return distinct


def _verdict_format(number: int, verdict: str) -> dict[str, Any]:
    """Return a schema with a required member for each item, and no others."""
    item = {
        "type": "object",
        "properties": {
            "reason": {"type": "string", "description": "Why, in a sentence."},
            "verdict": {"type": "boolean", "description": verdict},
        },
        "required": ["reason", "verdict"],
        "additionalProperties": False,
    }
    names = [str(index) for index in range(1, number + 1)]
    properties = dict.fromkeys(names, item)
    return {"type": "object", "properties": properties, "required": names, "additionalProperties": False}


def _read_verdicts(answer_format: dict[str, Any], answer: Any) -> list[Verdict]:
    value = json_object(answer)
    names = answer_format["required"]
    if value.keys() != set(names):
        message = (
            f"there must be one verdict on each of {len(names)} items, by their numbers, and there are {len(value)}"
        )
        raise CheckArgumentsError(message)
    value = fitting(value, answer_format)
    return [Verdict(value[name]["verdict"], value[name]["reason"]) for name in names]


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
