"""The identity of a judge: its model and its rubric, as a suite declares them. Needs no key."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from fepflow.checks.core.declarations import CheckDefaults, with_default_paths
from fepflow.checks.models.judge_check import Asked, JudgeCheck, jury_configs
from fepflow.checks.models.voting import resolved_schema
from fepflow.checks.registry import JUDGES, CheckType, find_check
from fepflow.protocol.check import Check, to_check
from fepflow.protocol.content_hash import content_hash
from fepflow.suite.models import check_ids
from fepflow.suite.reader import LoadedSuite

Kind = Literal["boolean", "number", "word"]

_DATE = re.compile(r"[-@:]\d{4}-?\d{2}-?\d{2}$")
"""The date of a model's version, after its name."""


@dataclass(frozen=True)
class JudgeSpec:
    """A judge of a suite. `judge` is the content hash of the model and its parameters, `rubric` that of the rest.

    `fields` are those of its responses that can be compared with a person's label, by name: `boolean`, `number`, or
    the words that a `word` may be. `prompt` is what it is asked, with its placeholders, and `criteria` what the schema
    says of a field, by its name.
    """

    check_id: str
    model: str
    parameters: dict[str, Any]
    samples: int
    judge: str
    rubric: str
    fields: dict[str, tuple[Kind, tuple[str, ...]]]
    prompt: str = ""
    criteria: Mapping[str, str] = field(default_factory=dict)
    members: tuple[str, ...] = ()
    """The models of a jury; the only one of a judge that is alone."""
    is_recorded: bool = False
    """True for a scorer of another tool, whose results were imported: `model` is the name of the tool."""

    @property
    def is_jury(self) -> bool:
        """True if several models judge together."""
        return len(self.members) > 1

    def favours(self, agent_model: str) -> str | None:
        """Return a warning, with advice, if an agent's answers are from the judge's own model; None if not."""
        if _bare(agent_model) not in map(_bare, self.members or (self.model,)):
            return None
        who = "one of its judges" if self.is_jury else "its judge"
        return (
            f"{self.check_id}: {who} is the agent's own model ({agent_model}), and models tend to favour their own "
            "answers: let another model judge, or see by people's labels how far it errs (fepflow calibrate)"
        )


def judges_of_suite(suite: LoadedSuite) -> list[JudgeSpec]:
    """Return the judges that all cases of a suite share, completed by its sections."""
    checks = [check for check in suite.section("checks") or () if check is not None]
    defaults = CheckDefaults(suite.section("judge"), suite.section("embedding"))
    return judges_of([to_check(check) for check in defaults.complete(checks)])


def judges_of(checks: Sequence[Check]) -> list[JudgeSpec]:
    """Return the judges among these checks."""
    ids = check_ids(checks)
    return [_judge(check_id, check) for check_id, check in zip(ids, checks, strict=True) if check.type in JUDGES]


def recorded_judge(check_id: str, run_id: str, tool: str) -> JudgeSpec:
    """Return a scorer of an imported run as a judge, which belongs to this run only.

    The next import may have another scorer of the same name.
    """
    prompt = f"What {check_id} was asked is not recorded. Label whether it should pass this output."
    fields: dict[str, tuple[Kind, tuple[str, ...]]] = {"passed": ("boolean", ()), "score": ("number", ())}
    identity = content_hash("recorded", run_id), content_hash("recorded", check_id)
    return JudgeSpec(check_id, tool, {}, 1, *identity, fields, prompt, members=(tool,), is_recorded=True)


def judgement_of(results: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields of a judge's completed result: of its response, or of what was recorded."""
    response = results.get("response", results)
    return response if isinstance(response, dict) else {}


_Member = tuple[str, dict[str, Any], list[Any]]
"""The identity of one model: its name, its parameters, and its address."""


def _judge(check_id: str, check: Check) -> JudgeSpec:
    judge_class: type[JudgeCheck] = find_check(check.type)  # type: ignore[assignment]  # all of JUDGES are
    arguments = with_default_paths(check).arguments  # a run's snapshot has them filled in, and is of the same judge
    samples = arguments.get("samples", 1)
    members, jury = _members(judge_class, arguments, samples), arguments.get("jury", "majority")
    names = tuple(name for name, _, _ in members)
    asked = judge_class.check_asked(arguments)
    is_jury = len(members) > 1
    return JudgeSpec(
        check_id,
        ", ".join(names),
        {**members[0][1], **({"jury": jury} if is_jury else {})},
        samples,
        judge=content_hash("jury", jury, members) if is_jury else content_hash("judge", *members[0]),
        rubric=_rubric(judge_class, arguments, asked, samples),
        fields=_fields(asked.schema) if isinstance(asked.schema, dict) else {},
        prompt=asked.question,
        criteria=_criteria(asked.schema) if isinstance(asked.schema, dict) else {},
        members=names,
    )


def _members(judge_class: type[JudgeCheck], arguments: Mapping[str, Any], samples: int) -> list[_Member]:
    """Return the models that judge; one, unless they are a jury."""
    how, where = (_mapping(arguments.get(name)) for name in ("model_config", "provider_config"))
    known = judge_class.check_parameters(samples)
    jury = arguments.get("judges")
    if isinstance(jury, list) and jury:
        with suppress(ValueError):  # an error, which the check itself reports
            return [_member(*configs, known) for configs in jury_configs(jury, how, where)]
    name, parameters, address = _member(how, where, known)
    if (function := arguments.get("llm_function")) is not None:
        name = f"the function {function}"
    return [(name, parameters, address)]


def _member(how: Mapping[str, Any], where: Mapping[str, Any], known: Mapping[str, Any]) -> _Member:
    parameters = {**known, **{name: how[name] for name in how if name in known}}
    parameters = {name: value for name, value in parameters.items() if value is not None}
    # As they are written: what a variable holds may differ from machine to machine, though the model is the same.
    address = [how.get("api_base"), *(where.get(name) for name in ("api_base", "base_url", "api_version"))]
    name, provider = str(how.get("model", "no model")), where.get("provider_name")
    return f"{provider}/{name}" if provider and not name.startswith(f"{provider}/") else name, parameters, address


_OF_JUDGE = {"model_config", "provider_config", "judges", "jury", "llm_function", "samples"}
_ASKED = {"prompt", "response_format"}


def _rubric(judge_class: type[JudgeCheck], arguments: Mapping[str, Any], asked: Asked, samples: int) -> str:
    """Return the content hash of everything but the models that decides a verdict."""
    others = {name: value for name, value in arguments.items() if name not in _OF_JUDGE}
    if judge_class.check_type == CheckType.LLM_JUDGE:
        others = {name: value for name, value in others.items() if name not in _ASKED}
        parts: list[Any] = [arguments.get("prompt"), asked.schema, samples, judge_class.check_version]
        return content_hash("rubric", *parts, *([others] if others else []))
    return content_hash("rubric", judge_class.check_type, samples, judge_class.check_version, others)


def _bare(model: str) -> str:
    """Return a model's name without its provider and the date of its version."""
    return _DATE.sub("", model.rpartition("/")[2].lower())


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _criteria(schema: dict[str, Any]) -> dict[str, str]:
    properties = _mapping(schema.get("properties")).items()
    descriptions = {name: resolved_schema(known, schema).get("description") for name, known in properties}
    return {name: text for name, text in descriptions.items() if isinstance(text, str)}


def _fields(schema: dict[str, Any]) -> dict[str, tuple[Kind, tuple[str, ...]]]:
    fields: dict[str, tuple[Kind, tuple[str, ...]]] = {}
    for name, schema_of_field in _mapping(schema.get("properties")).items():
        known = resolved_schema(schema_of_field, schema)
        types = known.get("type")
        types = types if isinstance(types, list) else [types]
        words = tuple(word for word in known.get("enum") or () if isinstance(word, str))
        if "boolean" in types:
            fields[name] = "boolean", ()
        elif "integer" in types or "number" in types:
            fields[name] = "number", ()
        elif words:
            fields[name] = "word", words
    return fields
