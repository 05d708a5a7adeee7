"""`rubric`: a language model judges by criteria in plain words, on a scale of five."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from pydantic import Field, InstanceOf
from pydantic.json_schema import SkipJsonSchema

from fepflow.checks.base import FILLED_LATER, JSONPath, PathText
from fepflow.checks.models.judge_check import (
    ANSWER,
    QUESTION,
    REFERENCE,
    SCORED,
    Asked,
    Questioner,
    ScoredJudgeCheck,
    fitting,
    has_text,
    parts_of,
    refuse_nothing,
)
from fepflow.errors import CheckArgumentsError
from fepflow.jsonpath.path import Filled, RenderedPrompt
from fepflow.text import text_of

MOST_STEPS = 10
MOST_CHARACTERS = 500
"""Longest step that a model may write."""

_POINTS = 5

_ANSWER_FORMAT = {
    "type": "object",
    "properties": {
        "reason": {"type": "string", "description": "Why, in one to three sentences."},
        "points": {"type": "integer", "minimum": 1, "maximum": _POINTS, "description": "1 to 5, by the scale."},
    },
    "required": ["reason", "points"],
    "additionalProperties": False,
}
_SCALE = """\
Give points, and the reason for them:
5: the answer meets the criteria in full.
4: it meets them; what could be better does not matter much.
3: it meets them in part, and something that matters is missing or wrong.
2: it hardly meets them.
1: it does not meet them.
Judge by the criteria only. Neither length nor tone counts, unless the criteria name it. If the criteria name \
several things, each of them has to be met for 4 points or more."""

_STEPS_FORMAT = {
    "type": "object",
    "properties": {"steps": {"type": "array", "items": {"type": "string"}}},
    "required": ["steps"],
    "additionalProperties": False,
}
_STEPS = """\
An assistant's answers will be judged by these criteria:

{criteria}

Write the steps that a careful examiner takes to judge one answer by them: three to six sentences, each one \
thing to look at or to compare. The examiner sees the input, the answer and, if there is one, an expected \
answer. Write no verdict, and add nothing that the criteria do not ask for."""


class RubricCheck(ScoredJudgeCheck):
    """Pass if a language model finds that your criteria are met. Results:
    `{response: {score, passed, reason}, metadata}`.

    The model sees the criteria, the input, the expected answer (if the test case has one) and the output, and gives 1
    to 5 points: 4 and 5 mean that the criteria are met. The score is 0, 0.25, 0.5, 0.75 or 1, and passes from 0.7 on.
    With `steps: true`, the model first writes the steps by which it will judge, once for all answers (as in G-Eval);
    `metadata.steps` shows them. `criteria` may contain `{{$.test_case.…}}` placeholders, which the model sees as data.
    """

    check_type: ClassVar[str] = "rubric"
    check_templates: ClassVar[frozenset[str]] = frozenset({"criteria"})
    check_case_templates: ClassVar[frozenset[str]] = frozenset({"criteria"})
    check_optional_paths: ClassVar[frozenset[str]] = frozenset({"reference"})

    criteria: SkipJsonSchema[InstanceOf[RenderedPrompt]] | str | JSONPath = Field(
        description="Description of a good answer, in plain words."
    )
    question: Any = QUESTION
    answer: Any = ANSWER
    reference: Any = REFERENCE
    steps: bool | list[str] | PathText = Field(
        default=False, description="`true`: the model first writes evaluation steps; or a list of steps."
    )

    def check_question(self) -> None:
        """See JudgeCheck."""
        if isinstance(self.criteria, JSONPath) and self.criteria != FILLED_LATER:
            advice = "write them, with {{$.test_case.…}} where a case says something of its own"
            raise ValueError(f"criteria: a text from a path is data, and cannot be the criteria ({advice})")
        if isinstance(self.steps, JSONPath):
            raise ValueError("steps: must be in the check, not come from a path")
        if isinstance(self.criteria, str) and not self.criteria.strip():
            raise ValueError("criteria: must say what a good answer is")

    @classmethod
    def check_asked(cls, arguments: Mapping[str, Any]) -> Asked:
        """See JudgeCheck."""
        steps = arguments.get("steps")
        listed = "".join(f"\n- {step}" for step in steps) if isinstance(steps, list) else ""
        return Asked(f"{arguments.get('criteria', '')}{listed}", SCORED)

    def check_before(self) -> None:
        """See JudgeCheck."""
        refuse_nothing([Filled("$.output.value", text_of(self.answer))])

    async def check_judge(self, questioner: Questioner) -> dict[str, Any]:
        """See JudgeCheck."""
        steps = self.steps if isinstance(self.steps, list) else []
        if self.steps is True:
            steps = await questioner.ask_once(self._prompt_for_steps(), _STEPS_FORMAT, _read_steps)
        points, reason = await questioner.ask(self._prompt(steps), _ANSWER_FORMAT, _read_points)
        if self.steps is True:
            questioner.metadata["steps"] = steps
        return {"score": (points - 1) / (_POINTS - 1), "reason": reason}

    def _prompt_for_steps(self) -> RenderedPrompt:
        before, after = _STEPS.split("{criteria}")
        return RenderedPrompt([before, *parts_of(self.criteria), after])

    def _prompt(self, steps: list[str]) -> RenderedPrompt:
        return RenderedPrompt(list(self._parts(steps)))

    def _parts(self, steps: list[str]) -> Iterator[str | Filled]:
        yield "Judge how well an assistant's answer meets these criteria:\n\n"
        yield from parts_of(self.criteria)
        if steps:
            listed = "\n".join(f"{number}. {step}" for number, step in enumerate(steps, 1))
            # What a model wrote about data may repeat it: it is no instruction either.
            is_of_data = self.steps is True and any(isinstance(part, Filled) for part in parts_of(self.criteria))
            yield "\n\nTake these steps:\n"
            yield Filled("steps", listed) if is_of_data else listed
        yield "\n\nThe input that the assistant got: "
        yield Filled("$.test_case.input", text_of(self.question))
        if has_text(self.reference):
            yield "\nWhat is expected of an answer, to compare with: "
            yield Filled("$.test_case.expected", text_of(self.reference))
        yield "\nThe assistant's answer: "
        yield Filled("$.output.value", text_of(self.answer))
        yield f"\n\n{_SCALE}"


def _read_points(answer: Any) -> tuple[int, str]:
    value = fitting(answer, _ANSWER_FORMAT)
    return int(value["points"]), value["reason"]


def _read_steps(answer: Any) -> list[str]:
    steps = [" ".join(step.split()) for step in fitting(answer, _STEPS_FORMAT)["steps"] if step.strip()]
    if not 1 <= len(steps) <= MOST_STEPS or any(len(step) > MOST_CHARACTERS for step in steps):
        raise CheckArgumentsError(f"there must be 1 to {MOST_STEPS} steps of at most {MOST_CHARACTERS} characters")
    return steps
