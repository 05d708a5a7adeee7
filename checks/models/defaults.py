"""What a suite says once for all its checks that call a model, put into the arguments of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fepflow.checks.models.model_check import ModelCheck
from fepflow.checks.registry import find_check, list_checks, list_versions
from fepflow.errors import CheckArgumentsError
from fepflow.protocol.check import AnyCheck, Check, to_check
from fepflow.protocol.model_response import Kind
from fepflow.suite.models import JudgeDefaults, ModelDefaults

_ADDRESSES = ("api_base", "base_url")
_OF_PROVIDER = frozenset({*_ADDRESSES, "api_key", "api_version", "provider_name"})
"""Settings of one provider, which would be wrong for another one, or disclose a key to it."""


class CheckDefaults:
    """The suite's sections `judge` and `embedding`."""

    def __init__(self, judge: JudgeDefaults | None = None, embedding: ModelDefaults | None = None) -> None:
        given: dict[Kind, ModelDefaults | None] = {"judge": judge, "embedding": embedding}
        self.sections = {kind: section for kind, section in given.items() if section is not None}

    def concurrency(self, kind: Kind) -> int:
        """Requests at once."""
        return self.sections.get(kind, ModelDefaults()).concurrency

    def complete(self, checks: Sequence[AnyCheck]) -> Sequence[AnyCheck]:
        """The checks, those that call a model with the suite's arguments where they have none of their own."""
        if not self.sections:
            return checks
        return [self._completed(to_check(check)) for check in checks]

    def _completed(self, check: Check) -> Check:
        kind = kind_of(check)
        section = self.sections.get(kind) if kind is not None else None
        if section is None:
            return check
        return check.model_copy(update={"arguments": merged(check.arguments, section)})


def kind_of(check: Check) -> Kind | None:
    """The kind of model that checks of this type call; None for those that call none, and for unknown types."""
    try:
        check_class = find_check(check.type, check.version)
    except CheckArgumentsError:
        return None
    return check_class.check_kind if issubclass(check_class, ModelCheck) else None


def model_check_types() -> list[str]:
    """All known check types that call models."""
    return [
        name
        for name in list_checks()
        if any(issubclass(find_check(name, version), ModelCheck) for version in list_versions(name))
    ]


def merged(own: dict[str, Any], section: ModelDefaults) -> dict[str, Any]:
    """Arguments of a check with what they leave open: their own win, member by member.

    A check that names a model of another provider gets nothing that is meant for the suite's.
    """
    usual = {"model_config": dict(section.llm_config), "provider_config": dict(section.provider_config)}
    if isinstance(section, JudgeDefaults) and section.samples is not None:
        usual["samples"] = section.samples  # type: ignore[assignment]  # a number among objects
    objects = [own.get(name, {}) for name in ("model_config", "provider_config")]
    if not all(isinstance(value, dict) for value in objects):
        return own  # an error, which the check itself reports
    if _provider(objects[0]) not in (None, _provider(section.llm_config)):
        left_out = _OF_PROVIDER
    elif any(name in value for name in _ADDRESSES for value in objects):
        left_out = frozenset(_ADDRESSES)
    else:
        left_out = frozenset()
    arguments = {**usual, **own}
    for name, value in zip(("model_config", "provider_config"), objects, strict=True):
        arguments[name] = {**{key: said for key, said in usual[name].items() if key not in left_out}, **value}
    return {name: value for name, value in arguments.items() if name in own or value}


def _provider(llm_config: dict[str, Any]) -> str | None:
    """The provider of a model as it is written: what stands before the first slash."""
    name = llm_config.get("model")
    return str(name).partition("/")[0] if name is not None else None
