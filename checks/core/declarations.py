"""Checks as they are declared: their paths, the models that they name, and what those of a data file may say.

The author of a data file may not be the author of the suite. So its checks may say what is judged, but not which model
judges it, where, or with whose key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from fepflow.calls.models.model import CHAT, Model, parse_model_config
from fepflow.checks.base import EXPECTED, OUTPUT, BaseCheck, default_paths, modifier_names
from fepflow.checks.core.compiled import Arguments, CompiledCheck, compile_checks
from fepflow.checks.models.model_check import ADDRESSES, ModelCheck, completed_configs
from fepflow.checks.registry import find_check, is_ours, list_checks, list_versions
from fepflow.errors import CheckArgumentsError, DocumentPath, FepflowError, JSONPathError, ValidationMessage
from fepflow.json.values import texts_in
from fepflow.jsonpath.path import TextTemplate, is_path
from fepflow.protocol.check import AnyCheck, Check, to_check
from fepflow.protocol.content_hash import Kind
from fepflow.protocol.test_case import SimulatedUser
from fepflow.suite.models import JudgeDefaults, ModelDefaults
from fepflow.text import brief


@dataclass(frozen=True)
class PathUse:
    """A path in an argument, its place among the arguments, and whether it may find nothing.

    `arguments` are those of the check, if the path is one of them as a whole.
    """

    location: DocumentPath
    expression: str
    optional: bool = False
    arguments: Arguments | None = None

    def misfit(self, value: Any) -> ValidationMessage | None:
        """Return why the check cannot take a value that the path finds; None if it can, or if this is unknown."""
        return None if self.arguments is None else self.arguments.misfit(str(self.location[0]), value)


def paths_of(check: Check) -> list[PathUse]:
    """Return all valid paths in a check's arguments; an empty list for an unknown check type."""
    check_class = class_of(check)
    if check_class is None:
        return []
    uses = []
    defaults = default_paths(check_class)
    given = {**defaults, **check.arguments}
    for name, value in given.items():
        if name in modifier_names(check_class):
            continue
        if name in check_class.check_templates and isinstance(value, str) and not is_path(value):
            uses += [PathUse((name,), expression) for expression in _placeholders(value)]
        else:
            optional = name in check_class.check_optional_paths and value == defaults.get(name, value)
            uses += [PathUse(location, text, optional) for location, text in texts_in(value, (name,)) if is_path(text)]
    arguments = arguments_of(check_class, check)
    if arguments is None:
        return uses
    return [replace(use, arguments=arguments) if _is_whole(use, given) else use for use in uses]


def with_default_paths(check: Check) -> Check:
    """Return the check with the default paths of arguments that it leaves out, as it is stored and sent."""
    check_class = class_of(check)
    defaults = {} if check_class is None else default_paths(check_class)
    if defaults.keys() <= check.arguments.keys():
        return check
    return check.model_copy(update={"arguments": {**defaults, **check.arguments}})


def left_to_defaults(check: Check) -> str | None:
    """Return why FEP's callers may not send a check of ours (2.3.5), or None: an argument is left to its default path.

    Suites, test cases and Python may leave arguments to their default paths. A request must have them.
    """
    check_class = class_of(check)
    if check_class is None or not is_ours(check_class):
        return None
    missing = [
        name
        for name, path in default_paths(check_class).items()
        if path in (OUTPUT.expression, EXPECTED.expression)
        and name not in check.arguments
        and name not in check_class.check_optional_paths
    ]
    if not missing:
        return None
    return f"{check.type} cannot take these arguments: {'; '.join(f'{name}: is missing' for name in missing)}"


def class_of(check: Check) -> type[BaseCheck] | None:
    """Return the class of a check; None if its type or version is not known."""
    try:
        return find_check(check.type, check.version)
    except CheckArgumentsError:
        return None


def arguments_of(check_class: type[BaseCheck], check: Check) -> Arguments | None:
    """Return the arguments of a check type of ours; None if they are refused where the check is compiled."""
    try:
        return Arguments(check_class, check.type, check.arguments) if is_ours(check_class) else None
    except FepflowError:
        return None


def _is_whole(use: PathUse, arguments: Mapping[str, Any]) -> bool:
    return len(use.location) == 1 and arguments.get(str(use.location[0])) == use.expression and not use.optional


def _placeholders(prompt: str) -> list[str]:
    try:
        return TextTemplate(prompt).paths
    except JSONPathError:
        return []  # reported where the check is compiled


class CheckDefaults:
    """The suite's sections `judge` and `embedding`."""

    def __init__(self, judge: JudgeDefaults | None = None, embedding: ModelDefaults | None = None) -> None:
        given: dict[Kind, ModelDefaults | None] = {"judge": judge, "embedding": embedding}
        self.sections = {kind: section for kind, section in given.items() if section is not None}

    def concurrency(self, kind: Kind) -> int:
        """Requests at once."""
        return self.sections.get(kind, ModelDefaults()).concurrency

    def complete(self, checks: Sequence[AnyCheck]) -> Sequence[AnyCheck]:
        """Return the checks. A check that calls a model gets the suite's arguments that it does not have itself."""
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
    """Return the kind of model that checks of this type call; None if they call none or the type is unknown."""
    try:
        check_class = find_check(check.type, check.version)
    except CheckArgumentsError:
        return None
    return check_class.check_kind if issubclass(check_class, ModelCheck) else None


def model_check_types() -> list[str]:
    """Return all known check types that call models."""
    return [
        name
        for name in list_checks()
        if any(issubclass(find_check(name, version), ModelCheck) for version in list_versions(name))
    ]


def merged(own: dict[str, Any], section: ModelDefaults) -> dict[str, Any]:
    """Return arguments of a check, completed by those of the suite; the check's own win, member by member.

    A check with a model of another provider gets no settings of the suite's provider.
    """
    objects = [own.get(name, {}) for name in ("model_config", "provider_config")]
    if not all(isinstance(value, dict) for value in objects):
        return own  # an error, which the check itself reports
    arguments: dict[str, Any] = dict(own)
    if isinstance(section, JudgeDefaults):
        # A check that names its own model is judged by that one, and by no jury.
        names = ("samples",) if "model" in objects[0] else ("samples", "judges", "jury")
        given = {name: value for name in names if (value := getattr(section, name)) is not None}
        arguments = {**given, **arguments}
    completed = completed_configs(objects[0], objects[1], section.llm_config, section.provider_config)
    for name, value in zip(("model_config", "provider_config"), completed, strict=True):
        arguments[name] = value
    return {name: value for name, value in arguments.items() if name in own or value}


class UserModels:
    """The models that play the simulated users of test cases, by the suite's section `user`.

    Cases that are `from_data` may name only the section's model, and those that the operator `allows`.
    """

    def __init__(self, section: ModelDefaults | None, allowed: Sequence[str] = (), *, from_data: bool) -> None:
        self._section = section
        self._allowed = allowed
        self._from_data = from_data

    @property
    def concurrency(self) -> int:
        """Requests at once."""
        return (self._section or ModelDefaults()).concurrency

    def model_of(self, user: SimulatedUser) -> Model:
        """Return the model that plays this user. Raises CheckArgumentsError if it cannot be used."""
        if self._section is None:
            raise CheckArgumentsError("the suite does not say who plays simulated users (user.model_config.model)")
        usual = self._section.llm_config.get("model")
        if self._from_data and user.model not in (None, usual) and not _allows(self._allowed, str(user.model)):
            message = (
                "test cases from a file may name only the model of the suite's section user, or one that the "
                f"setting FEPFLOW_MODELS names, and {brief(str(user.model), 100)!a} is not one of them"
            )
            raise CheckArgumentsError(message)
        own = {} if user.model is None else {"model_config": {"model": user.model}}
        configs = merged(own, self._section)
        try:
            return parse_model_config(configs.get("model_config", {}), configs.get("provider_config", {}), _PLAYED)
        except ValueError as error:
            raise CheckArgumentsError(f"user: {error}") from None


def _allows(allowed: Sequence[str], model: str) -> bool:
    return any(fnmatchcase(model, name) for name in allowed)


_PLAYED = {**CHAT, "temperature": 1.0}
"""Parameters of a simulated user. At a temperature of 0, the user of each repeat would say the same again."""

_CONFIGS = ("model_config", "llm_config", "embedding_config", "provider_config")
_HARMLESS = frozenset({"timeout", "max_retries"})
"""Members of `provider_config` that say nothing about where the model is."""

FILE = "test cases from a file", "the suite (judge, embedding)"
REQUEST = "requests over the network", "the operator"
"""The source that may not choose a model's address, and the one that does, for messages."""


class CaseChecks:
    """A compiler of the checks of test cases. If the cases are `from_data`, a forbidden check is an error.

    Such checks may use the models of the suite's sections and checks, and those that the operator `allowed`: names in
    which `*` matches anything. `source` is their origin, for messages.
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
        juries = [section.judges for section in defaults.sections.values() if isinstance(section, JudgeDefaults)]
        for check in shared:
            arguments = to_check(check).arguments
            sections.append(arguments.get("model_config", {}))
            juries.append(arguments.get("judges"))
        members = [member for jury in juries if isinstance(jury, list) for member in jury]
        models = [one.get("model") if isinstance(one, dict) else one for one in [*sections, *members]]
        self._named = {model for model in models if isinstance(model, str)}

    def compiled(self, own: Sequence[AnyCheck], taken: Sequence[str] = ()) -> list[CompiledCheck]:
        """Return a case's own checks. `taken` are ids of other checks of the case. Raises as `compile_checks`."""
        refusals = [self.refusal(to_check(check)) for check in own]
        return compile_checks(self.defaults.complete(own), taken, refusals)

    def refusal(self, check: Check) -> str | None:
        """Return why a check from a data file may not run; None if it may."""
        if not self._from_data or kind_of(check) is None:
            return None
        configs = [(config, check.arguments.get(config)) for config in _CONFIGS]
        refusals = (self._refusal_of(config, given) for config, given in [*configs, *_of_jury(check.arguments)])
        return next((refusal for refusal in refusals if refusal is not None), None)

    def _refusal_of(self, config: str, given: Any) -> str | None:
        for name, value in given.items() if isinstance(given, dict) else ():
            if name in ADDRESSES or (config.endswith("provider_config") and name not in _HARMLESS):
                return f"{config}.{name}: {self._who} may not say that: it comes from {self._whose}"
            if any("${" in text for _, text in texts_in(value)):
                return f"{config}.{name}: ${{NAME}} stands in suites only, never in {self._who}"
            if name == "model" and not self._may_ask(value):
                named = "the suite names, or the setting" if self._whose == FILE[1] else "are named by the setting"
                return (
                    f"{config}.model: {self._who} may ask only models that {named} FEPFLOW_MODELS, "
                    f"and {str(value)[:100]!a} is not one of them"
                )
        return None

    def _may_ask(self, model: Any) -> bool:
        return isinstance(model, str) and (model in self._named or _allows(self._allowed, model))


def _of_jury(arguments: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the configurations of the members of a jury with their paths."""
    jury = arguments.get("judges")
    for index, member in enumerate(jury if isinstance(jury, list) else [] if jury is None else [jury]):
        config = dict(member) if isinstance(member, dict) else {"model": member}
        yield f"judges[{index}].provider_config", config.pop("provider_config", None)
        yield f"judges[{index}]", config
