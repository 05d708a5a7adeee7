"""Checks that test cases from a data file carry. Who fills a data file is not who wrote the suite: such a check says
what is judged, and neither who judges it, nor where, nor with whose key."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any

from fepflow.checks.core.compiled import CompiledCheck, compile_checks
from fepflow.checks.models.defaults import CheckDefaults, kind_of
from fepflow.protocol.check import AnyCheck, Check, to_check

_CONFIGS = ("model_config", "llm_config", "embedding_config", "provider_config")
_HARMLESS = frozenset({"timeout", "max_retries"})
"""Members of `provider_config` that say nothing about where the model is."""

FILE = "test cases from a file", "the suite (judge, embedding)"
REQUEST = "requests over the network", "the operator"
"""Who may not say where a model is, and who says it."""


class CaseChecks:
    """The checks of test cases made ready to run; where the cases are `from_data`, those that go too far are errors.

    They may ask the models that the suite names, in its sections or its own checks, and those that the operator
    `allows`: names in which `*` stands for anything. `source` is where they come from, for messages.
    """

    def __init__(
        self,
        defaults: CheckDefaults,
        shared: Iterable[AnyCheck],
        allowed: Sequence[str] = (),
        *,
        from_data: bool,
        source: tuple[str, str] = FILE,
    ) -> None:
        self.defaults = defaults
        self._from_data = from_data
        self._who, self._whose = source
        self._allowed = allowed
        sections = [section.llm_config for section in defaults.sections.values()]
        configs = [to_check(check).arguments.get("model_config") for check in shared]
        self._named = {
            config["model"] for config in [*sections, *configs] if isinstance(config, dict) and "model" in config
        }

    def compiled(self, own: Sequence[AnyCheck], taken: Sequence[str] = ()) -> list[CompiledCheck]:
        """A case's own checks; `taken` are ids that other checks of the case have. Raises as compile_checks does."""
        refusals = [self.refusal(to_check(check)) for check in own]
        return compile_checks(self.defaults.complete(own), taken, refusals)

    def refusal(self, check: Check) -> str | None:
        """Why a check from a data file is not run; None if it may be."""
        if not self._from_data or kind_of(check) is None:
            return None
        for config in _CONFIGS:
            given = check.arguments.get(config)
            for name, value in given.items() if isinstance(given, dict) else ():
                if name == "api_base" or (config == "provider_config" and name not in _HARMLESS):
                    return f"{config}.{name}: {self._who} may not say that: it comes from {self._whose}"
                if _holds_reference(value):
                    return f"{config}.{name}: ${{NAME}} stands in suites only, never in {self._who}"
                if name == "model" and not self._may_ask(value):
                    named = "the suite names, or the setting" if self._whose == FILE[1] else "are named by the setting"
                    return (
                        f"{config}.model: {self._who} may ask only models that {named} FEPFLOW_MODELS, "
                        f"and {str(value)[:100]!a} is none of them"
                    )
        return None

    def _may_ask(self, model: Any) -> bool:
        if not isinstance(model, str):
            return False
        return model in self._named or any(fnmatchcase(model, allowed) for allowed in self._allowed)


def _holds_reference(value: Any) -> bool:
    if isinstance(value, dict | list):
        return any(map(_holds_reference, value.values() if isinstance(value, dict) else value))
    return isinstance(value, str) and "${" in value
