"""The function, class or method that a `python` target names, and what it is called with."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from dataclasses import dataclass
from threading import Lock
from types import ModuleType
from typing import Any

from fepflow.documents.did_you_mean import closest
from fepflow.errors import InputError, Problem
from fepflow.jsonpath.template import copy_containers
from fepflow.protocol.test_case import TestCase
from fepflow.targets.python.source import MODULES, Source, load

CASE = "test_case"
"""The parameter that gets the whole test case."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """What a function is called with: `positional` says in which order, `input` and `test_case`."""

    positional: tuple[str, ...] = ()
    case_by_name: bool = False

    @property
    def wants_case(self) -> bool:
        """Whether it gets the whole test case."""
        return self.case_by_name or CASE in self.positional


class Entry:
    """What is called for each test case.

    Of a class there is one instance in each process, made without arguments at the first call. `begin` may be called
    from many threads at once.
    """

    def __init__(self, source: Source, make: Callable[[], Callable[..., Any]], arguments: Arguments) -> None:
        self.source = source
        self.arguments = arguments
        self._make = make
        self._function: Callable[..., Any] | None = None
        self._lock = Lock()

    def begin(self, request: dict[str, Any]) -> Any:
        """Call it for a request `{input, arguments, test_case}`; what it returns may still have to be awaited."""
        MODULES.activate(self.source.folder)
        given = copy_containers(request)  # whatever it does with its arguments, the test case stays as it is
        case = TestCase.model_validate(given[CASE]) if self.arguments.wants_case else None
        named = given.get("arguments") or {}
        if self.arguments.case_by_name:
            named = {**named, CASE: case}
        values = [case if name == CASE else given["input"] for name in self.arguments.positional]
        return self._made()(*values, **named)

    def _made(self) -> Callable[..., Any]:
        if self._function is None:
            with self._lock:
                if self._function is None:
                    self._function = self._make()
        return self._function


def open_entry(source: Source, names: Collection[str] | None) -> Entry:
    """Load the code, which runs it, and find what is to be called; `names` are those of target.python.arguments.

    Raises InputError, with file, line and advice: it cannot be loaded, there is no such function, or it cannot be
    called with these arguments.
    """
    owner, name, function = _find(source, load(source))
    if owner is None:
        return Entry(source, lambda: function, _arguments(source, function, _signature(function), names))
    cls = owner
    _require_plain_constructor(source, cls)
    arguments = _arguments(source, function, _without_self(_signature(function)), names)
    return Entry(source, lambda: getattr(cls(), name), arguments)


def _find(source: Source, module: ModuleType) -> tuple[type | None, str, Any]:
    """The class of whose instance something is called, or None; its name there; the function itself."""
    found: Any = module
    owner: type | None = None
    name = ""
    for name in source.name.split("."):
        if not hasattr(found, name):
            raise InputError(_missing(source, module, found, name))
        owner = found if isinstance(found, type) and not _is_static(found, name) else None
        found = getattr(found, name)
    if isinstance(found, type):
        if not any("__call__" in vars(base) for base in found.__mro__):
            advice = f"name one of its methods: {source.file.name}:{source.name}.answer"
            raise InputError(_problem(source, found, f"{source.name} is a class without __call__", advice))
        owner, name, found = found, "__call__", found.__call__  # its own, as it has one
    if not callable(found):
        advice = "name a function, a class with __call__, or a method"
        raise InputError(_problem(source, None, f"{source.name} is no function, but a {type(found).__name__}", advice))
    return owner, name, found


def _is_static(owner: type, name: str) -> bool:
    return isinstance(inspect.getattr_static(owner, name, None), staticmethod | classmethod | type)


def _signature(function: Any) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):  # written in C: it says nothing about its parameters
        return None


def _without_self(signature: inspect.Signature | None) -> inspect.Signature | None:
    return None if signature is None else signature.replace(parameters=list(signature.parameters.values())[1:])


def _require_plain_constructor(source: Source, cls: type) -> None:
    signature = _signature(cls)
    try:
        if signature is not None:
            signature.bind()
    except TypeError as error:
        message = f"{cls.__name__} is made without arguments: {error}"
        raise InputError(_problem(source, cls, message, "give its constructor's parameters defaults")) from None


def _arguments(
    source: Source, function: Any, signature: inspect.Signature | None, names: Collection[str] | None
) -> Arguments:
    """How it is called; a parameter `test_case` gets the whole case, the first other one the input."""
    if signature is None:
        return Arguments(() if names is not None else ("input",))
    parameters = signature.parameters
    wanted = [] if names is not None else ["input"]
    if CASE in parameters and CASE not in (names or ()):
        wanted.append(CASE)
        if "input" in wanted and not _takes_more(parameters):
            wanted.remove("input")
    positional = [] if names is not None else _positional(parameters, wanted)
    left = [name for name in wanted if name not in positional]
    values = [None] * len(positional)
    if "input" in left:
        values.append(None)  # there is no parameter for it: let Python say so
    try:
        signature.bind(*values, **dict.fromkeys([*(names or ()), *(name for name in left if name == CASE)]))
    except TypeError as error:
        how = "the names in target.python.arguments" if names is not None else "the test case's input as its argument"
        message = f"{source.name}{signature} cannot be called with {how}: {error}"
        advice = "take one parameter, or list all by name in target.python.arguments"
        raise InputError(_problem(source, function, message, advice)) from None
    return Arguments(tuple(positional), CASE in left)


def _takes_more(parameters: Any) -> bool:
    """Whether there is a parameter for the input beside `test_case`: one that must be given, or the first of all."""
    empty, kinds = inspect.Parameter.empty, inspect.Parameter
    others = [item for item in parameters.values() if item.name != CASE]
    takes = (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD, kinds.VAR_POSITIONAL)
    first = next(iter(parameters.values()))
    return any(item.default is empty for item in others if item.kind in takes) or (
        first.name != CASE and first.kind in takes
    )


def _positional(parameters: Any, wanted: Collection[str]) -> list[str]:
    """The arguments that are given in their order, from the first parameter on."""
    kinds = inspect.Parameter
    order: list[str] = []
    for item in parameters.values():
        if item.kind not in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD, kinds.VAR_POSITIONAL):
            break
        name = CASE if item.name == CASE else "input"
        if name not in wanted or name in order:
            break
        order.append(name)
    return order


def _missing(source: Source, module: ModuleType, found: Any, name: str) -> Problem:
    where = f"{source.module}" if found is module else found.__name__ if isinstance(found, type) else "it"
    own = [
        other
        for other, value in vars(found if hasattr(found, "__dict__") else module).items()
        if callable(value) and not other.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]
    close = closest(name, own)
    advice = f"did you mean {close}?" if close else f"it defines {', '.join(own[:10]) or 'no function'}"
    return Problem(f"there is no {name} in {where}", source.shown, None, "target.python.function", advice)


def _problem(source: Source, function: Any, message: str, advice: str | None) -> Problem:
    code = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
    line = getattr(code, "co_firstlineno", None)
    if line is None and isinstance(function, type):
        try:
            line = inspect.getsourcelines(function)[1]
        except (OSError, TypeError):
            line = None
    return Problem(message, source.shown, line, None, advice)
