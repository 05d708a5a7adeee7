"""The identity of a judge: its model and its rubric, as a suite declares them. Needs no key."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from fepflow.calls.models.model import CHAT
from fepflow.checks.core.data_checks import CheckDefaults
from fepflow.checks.llm_judge import SAMPLED, LLMJudgeCheck
from fepflow.checks.models.voting import resolved_schema
from fepflow.json.values import parse
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

    def favours(self, agent_model: str) -> str | None:
        """Return a warning, with advice, if an agent's answers are from the judge's own model; None if not."""
        if _bare(self.model) != _bare(agent_model):
            return None
        return (
            f"{self.check_id}: its judge is the agent's own model ({agent_model}), and models tend to favour their own "
            "answers: let another model judge, or see by people's labels how far it errs (fepflow calibrate)"
        )


def judges_of_suite(suite: LoadedSuite) -> list[JudgeSpec]:
    """Return the judges that all cases of a suite share, with what the suite says once for all of them."""
    checks = [check for check in suite.section("checks") or () if check is not None]
    defaults = CheckDefaults(suite.section("judge"), suite.section("embedding"))
    return judges_of([to_check(check) for check in defaults.complete(checks)])


def judges_of(checks: Sequence[Check]) -> list[JudgeSpec]:
    """Return the judges among these checks."""
    ids = check_ids(checks)
    return [
        _judge(check_id, check)
        for check_id, check in zip(ids, checks, strict=True)
        if check.type == LLMJudgeCheck.check_type
    ]


def _judge(check_id: str, check: Check) -> JudgeSpec:
    arguments = check.arguments
    how, where = (_mapping(arguments.get(name)) for name in ("model_config", "provider_config"))
    samples = arguments.get("samples", 1)
    parameters = {**(CHAT if samples == 1 else SAMPLED), **{name: how[name] for name in how if name in CHAT}}
    parameters = {name: value for name, value in parameters.items() if value is not None}
    schema = _schema(arguments.get("response_format"))
    model = _model(arguments, how, where)
    # As they are written: what a variable holds may differ from machine to machine, though the model is the same.
    address = [how.get("api_base"), *(where.get(name) for name in ("api_base", "base_url", "api_version"))]
    return JudgeSpec(
        check_id,
        model,
        parameters,
        samples,
        judge=content_hash("judge", model, parameters, address),
        rubric=content_hash("rubric", arguments.get("prompt"), schema, samples, LLMJudgeCheck.check_version),
        fields=_fields(schema) if isinstance(schema, dict) else {},
        prompt=str(arguments.get("prompt", "")),
        criteria=_criteria(schema) if isinstance(schema, dict) else {},
    )


def _model(arguments: Mapping[str, Any], how: Mapping[str, Any], where: Mapping[str, Any]) -> str:
    if arguments.get("llm_function") is not None:
        return f"the function {arguments['llm_function']}"
    name, provider = str(how.get("model", "no model")), where.get("provider_name")
    return f"{provider}/{name}" if provider and not name.startswith(f"{provider}/") else name


def _bare(model: str) -> str:
    """Return a model's name without its provider and the date of its version."""
    return _DATE.sub("", model.rpartition("/")[2].lower())


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _schema(response_format: Any) -> Any:
    """Return the schema as an object, or what stands there if it is none (of what is from code: its name)."""
    if not isinstance(response_format, str):
        return response_format
    try:
        return parse(response_format)
    except ValueError:
        return response_format


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
