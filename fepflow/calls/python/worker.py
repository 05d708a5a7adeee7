"""The process of an agent: load its code, call it once a request, and answer in JSON.

It uses only the standard library of Python 3.8 or newer, because the agent's own interpreter may not have fepflow. As a
script it takes one argument, JSON: `{file, module, name, folder, names, limit, reserved, root, interpreter}`; `root` is
the folder of fepflow if it may be imported. It reads requests from stdin and writes replies to stdout, one JSON object
on each line; the agent's prints go to stderr. The first reply is `{problems}`, or `{wants_case, file}` once the code is
loaded.

Threads that call agents in the run's own process use its functions, too.
"""

from __future__ import annotations

import sys

if __name__ == "__main__" and sys.path[0] and __file__.startswith(sys.path[0]):
    del sys.path[0]  # the folder of this file, whose modules are not the agent's

import asyncio
import builtins
import dataclasses
import difflib
import enum
import importlib.util
import inspect
import json
import os
import sysconfig
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from collections.abc import Set as AnySet
from datetime import date, datetime, time
from decimal import Decimal
from math import isfinite
from pathlib import Path, PurePath
from threading import Lock
from types import ModuleType, SimpleNamespace
from typing import Any
from uuid import UUID

CASE = "test_case"
"""The parameter that gets the whole test case."""

TRACEPARENT = "traceparent"
"""The parameter that gets the W3C trace context of the call, or None without a trace."""

PROGRAMMING_ERRORS = (
    ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, NameError, NotImplementedError,
    RecursionError, SyntaxError, TypeError,
)  # fmt: skip
"""Exceptions that mean a mistake in the code: the same call would raise them again."""

MAX_DEPTH = 200
"""Deepest nesting of an answer."""

_GROUP = getattr(builtins, "BaseExceptionGroup", ())  # new in Python 3.11

_RETRYABLE_STATUS = (408, 425, 429)
_MAX_MESSAGE = 20_000


class Unusable(Exception):  # noqa: N818  # a value on its way out, which its callers translate
    """Code that cannot be loaded or called: the parts of a `Problem`."""

    def __init__(
        self,
        message: str,
        file: str | None,
        line: int | None = None,
        path: str | None = None,
        advice: str | None = None,
    ) -> None:
        self.problem: dict[str, Any] = {"message": message, "file": file, "line": line, "path": path, "advice": advice}
        super().__init__(message)


class Refused(Exception):  # noqa: N818  # likewise
    """A returned value that cannot be an output."""

    def __init__(self, message: str, kind: str = "malformed") -> None:
        self.kind = kind
        super().__init__(message)


@dataclasses.dataclass(frozen=True)
class Form:
    """An interpreter's functions to write answers and make test cases.

    `encode` writes a value as JSON text, or raises ValueError if it has no JSON form. `reserved` are names that an
    Output's metadata may not have.
    """

    encode: Callable[[Any], str]
    make_case: Callable[[dict[str, Any]], Any]
    reserved: Collection[str]


# --- the function -----------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Arguments of a function besides those that the suite lists.

    `input` is the name of the parameter that gets the input, empty if it is given by position, None if there is none.
    """

    input: str | None
    wants_case: bool = False
    wants_traceparent: bool = False


class Entry:
    """A function that is called for each test case.

    A class has one instance in each process, made without arguments at the first call. `begin` may be called from many
    threads at once.
    """

    def __init__(self, make: Callable[[], Callable[..., Any]], arguments: Arguments) -> None:
        self.arguments = arguments
        self._make = make
        self._function: Callable[..., Any] | None = None
        self._lock = Lock()

    def begin(self, request: dict[str, Any], form: Form) -> Any:
        """Call it for a request `{input, arguments, test_case}`; the result may have to be awaited."""
        request = _copied(request)  # the function may change its arguments, but not the test case
        values, keywords = [], request.get("arguments") or {}
        if self.arguments.input:
            keywords = {**keywords, self.arguments.input: request["input"]}
        elif self.arguments.input is not None:
            values = [request["input"]]
        if self.arguments.wants_case:
            keywords = {**keywords, CASE: form.make_case(request[CASE])}
        if self.arguments.wants_traceparent:
            keywords = {**keywords, TRACEPARENT: request.get(TRACEPARENT)}
        return self._made()(*values, **keywords)

    def _made(self) -> Callable[..., Any]:
        if self._function is None:
            with self._lock:
                if self._function is None:
                    self._function = self._make()
        return self._function


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list) else value


def entry_of(module: ModuleType, file: Path, name: str, names: Collection[str] | None) -> Entry:
    """Return the function `name` of a module; `names` are those of target.python.arguments.

    Raises Unusable if the function does not exist, or cannot be called with these arguments.
    """
    owner, last, function = _find(module, file, name)
    if owner is None:
        return Entry(lambda: function, _arguments(file, name, function, _signature(function), names))
    cls = owner
    _require_plain_constructor(file, cls)
    arguments = _arguments(file, name, function, _without_self(_signature(function)), names)
    return Entry(lambda: getattr(cls(), last), arguments)


def _find(module: ModuleType, file: Path, path: str) -> tuple[type | None, str, Any]:
    """Return the class if an instance is needed, or None; the name in it; and the function."""
    value: Any = module
    owner: type | None = None
    name = ""
    for name in path.split("."):
        if not hasattr(value, name):
            raise _missing(file, module, value, name)
        owner = value if isinstance(value, type) and not _is_static(value, name) else None
        value = getattr(value, name)
    if isinstance(value, type):
        if not any("__call__" in vars(base) for base in value.__mro__):
            advice = f"name one of its methods: {file.name}:{path}.answer"
            raise _unusable(file, value, f"{path} is a class without __call__", advice)
        owner, name, value = value, "__call__", value.__call__  # its own __call__, not that of `type`
    if not callable(value):
        advice = "name a function, a class with __call__, or a method"
        raise _unusable(file, None, f"{path} is not a function, but a {type(value).__name__}", advice)
    return owner, name, value


def _is_static(owner: type, name: str) -> bool:
    return isinstance(inspect.getattr_static(owner, name, None), (staticmethod, classmethod, type))


def _signature(function: Any) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):  # written in C, without a signature
        return None


def _without_self(signature: inspect.Signature | None) -> inspect.Signature | None:
    return None if signature is None else signature.replace(parameters=list(signature.parameters.values())[1:])


def _require_plain_constructor(file: Path, cls: type) -> None:
    signature = _signature(cls)
    try:
        if signature is not None:
            signature.bind()
    except TypeError as error:
        message = f"{cls.__name__} must be constructible without arguments: {error}"
        raise _unusable(file, cls, message, "give its constructor's parameters defaults") from None


def _arguments(
    file: Path, name: str, function: Any, signature: inspect.Signature | None, names: Collection[str] | None
) -> Arguments:
    """Return the arguments of a function: `test_case` gets the whole case, the first other parameter the input."""
    if signature is None:
        return Arguments("" if names is None else None)
    parameters = signature.parameters
    wants_case, wants_trace = (
        special in parameters and special not in (names or ()) for special in (CASE, TRACEPARENT)
    )
    own = [item for item in parameters.values() if item.kind in _POSITIONAL and item.name not in (CASE, TRACEPARENT)]
    is_first = bool(own) and own[0] is next(iter(parameters.values()))
    argument = None
    # Beside `test_case`, a parameter is the input's if it comes first, or has no default.
    if names is None and (is_first or not wants_case or any(item.default is item.empty for item in own)):
        by_position = is_first or not own or own[0].kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD
        argument = "" if by_position else own[0].name
    special = {CASE: wants_case, TRACEPARENT: wants_trace, argument or "": bool(argument)}
    try:
        by_name = [*(names or ()), *(name for name, is_given in special.items() if is_given)]
        signature.bind(*([None] if argument == "" else []), **dict.fromkeys(by_name))
    except TypeError as error:
        how = "the names in target.python.arguments" if names is not None else "the test case's input as its argument"
        message = f"{name}{signature} cannot be called with {how}: {error}"
        advice = "take one parameter, or list all by name in target.python.arguments"
        raise _unusable(file, function, message, advice) from None
    return Arguments(argument, wants_case, wants_trace)


_POSITIONAL = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.VAR_POSITIONAL,
)


def _missing(file: Path, module: ModuleType, owner: Any, name: str) -> Unusable:
    where = module.__name__ if owner is module else owner.__name__ if isinstance(owner, type) else "it"
    own = [
        other
        for other, value in vars(owner if hasattr(owner, "__dict__") else module).items()
        if callable(value) and not other.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]
    close = difflib.get_close_matches(name, own, 1)
    advice = f"did you mean {close[0]}?" if close else f"it defines {', '.join(own[:10]) or 'no function'}"
    return Unusable(f"there is no {name} in {where}", shown(file), None, "target.python.function", advice)


def _unusable(file: Path, function: Any, message: str, advice: str) -> Unusable:
    code = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
    line = getattr(code, "co_firstlineno", None)
    if line is None and isinstance(function, type):
        try:
            line = inspect.getsourcelines(function)[1]
        except (OSError, TypeError):
            line = None
    return Unusable(message, shown(file), line, None, advice)


# --- results and exceptions -------------------------------------------------------------------------------------------


def is_pending(returned: Any) -> bool:
    """Return whether a returned value has to be awaited."""
    return inspect.isawaitable(returned) or isinstance(returned, AsyncIterator)


def answer_text(returned: Any, limit: int, form: Form) -> str:
    """Return a returned value as JSON `{value, metadata}` of at most `limit` characters; generators are read whole.

    Raises Refused, and the exceptions of a generator.
    """
    value = joined(list(_bounded(returned, limit, form))) if isinstance(returned, Iterator) else returned
    metadata: dict[str, Any] = {}
    kind = type(value)
    if (kind.__name__, kind.__module__) == ("Output", "fepflow.protocol.test_case"):
        value, metadata = value.value, dict(value.metadata or {})
        taken = [name for name in metadata if name in form.reserved]
        if taken:
            raise Refused(f"{', '.join(taken)} in the metadata of an Output is set by fepflow: choose another name")
    try:
        text = form.encode({"value": value, "metadata": metadata})
    except ValueError as error:
        advice = "return a text, number, list, dict, dataclass, pydantic model, or an Output of these"
        raise Refused(f"the returned value has no JSON form: {error} ({advice})") from None
    if len(text) > limit:
        raise _too_large(limit)
    return text


async def awaited_text(returned: Any, limit: int, form: Form) -> str:
    """Await a returned value, and return it as `answer_text` does."""
    while isinstance(returned, Awaitable):
        returned = await returned
    if not isinstance(returned, AsyncIterator):
        return answer_text(returned, limit, form)
    chunks, room = [], limit
    async for chunk in returned:
        room -= _size(chunk, form)
        if room < 0:
            raise _too_large(limit)
        chunks.append(chunk)
    return answer_text(joined(chunks), limit, form)


def _bounded(chunks: Iterator[Any], limit: int, form: Form) -> Iterator[Any]:
    room = limit
    for chunk in chunks:
        room -= _size(chunk, form)
        if room < 0:
            raise _too_large(limit)
        yield chunk


def joined(chunks: list[Any]) -> Any:
    """Return the chunks joined if all are texts, else as a list."""
    return "".join(chunks) if all(isinstance(chunk, str) for chunk in chunks) else chunks


def _size(chunk: Any, form: Form) -> int:
    if isinstance(chunk, str):
        return len(chunk) or 1  # so that an endless stream of empty texts ends
    try:
        return len(form.encode(chunk))
    except ValueError:
        return 1  # encoding the whole will raise the error


def _too_large(limit: int) -> Refused:
    return Refused(f"the answer is larger than {limit:,} bytes (target.python.max_bytes)", "too_large")


def failure_of(error: BaseException, folder: Path) -> dict[str, Any]:
    """Return an exception as the parts of a `Failure`: type, message, the user's own file and line."""
    if isinstance(error, Refused):
        return {"message": str(error), "kind": error.kind, "retryable": False}
    group = error
    error, others = first_cause(error)
    try:
        text = f"{' '.join(str(error)[:_MAX_MESSAGE].split())}{others}".strip()
    except Exception:  # the exception's __str__ may fail
        text = ""
    location = own_location(error, folder) or own_location(group, folder)
    status = _status_of(error)
    retryable = isinstance(error, Exception) and not isinstance(error, PROGRAMMING_ERRORS)
    if status is not None and 400 <= status < 500:
        retryable = status in _RETRYABLE_STATUS
    return {
        "message": f"{type(error).__name__}: {text}" if text else type(error).__name__,
        "kind": "timeout" if isinstance(error, (TimeoutError, asyncio.TimeoutError)) else "exception",
        "retryable": retryable,
        "location": f"{Path(location[0]).name}:{location[1]}" if location else "",
        "retry_after": _retry_after(error) if retryable else None,
        "status": status,
    }


def first_cause(error: BaseException) -> tuple[BaseException, str]:
    """Return the first exception in a group, which itself does not say what was wrong, and how many others there are.

    An exception that is no group is its own cause.
    """
    others = ""
    while isinstance(error, _GROUP):
        others = f" (the first of {len(error.exceptions)} exceptions)" if len(error.exceptions) > 1 else others
        error = error.exceptions[0]
    return error, others


def _status_of(error: BaseException) -> int | None:
    """Return the HTTP status in an exception of an HTTP client or a model's library, or None."""
    for holder in (error, getattr(error, "response", None)):
        for name in ("status_code", "status"):
            status = getattr(holder, name, None)
            if isinstance(status, int) and 100 <= status <= 599:
                return status
    return None


def _retry_after(error: BaseException) -> str | None:
    """Return the Retry-After header in an exception of an HTTP client, or None."""
    try:
        header = getattr(error, "response").headers.get("retry-after")  # noqa: B009  # a user's own object
    except Exception:
        return None
    return header[:100] if isinstance(header, str) else None


_LIBRARY = tuple({Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib")})


def is_installed(file: Path) -> bool:
    """Return whether a file belongs to an installed package or Python's library."""
    return "site-packages" in file.parts or any(folder in file.parents for folder in _LIBRARY)


def is_own_file(file: str, folder: Path) -> bool:
    """Return whether a file is the user's own: below `folder`, and not of an installed package."""
    path = Path(file)
    return folder in path.parents and not is_installed(path)


def own_location(error: BaseException, folder: Path) -> tuple[str, int] | None:
    """Return file and line of an exception's innermost frame in the user's own code, or None."""
    trace, location = error.__traceback__, None
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if is_own_file(file, folder):
            location = file, trace.tb_lineno
        trace = trace.tb_next
    return location


def shown(file: Path) -> str:
    """Return a file's path, relative to the working directory if it is below."""
    here = Path.cwd()
    return str(file.relative_to(here)) if here in file.parents else str(file)


# --- JSON in the form of fepflow.json.values, where that is missing --------------------------------------------------


def encode(value: Any) -> str:
    """Return a value as ASCII JSON text; NaN and infinities are tagged. Raises ValueError if it has no form."""
    try:
        text = json.dumps(value, allow_nan=False, separators=(",", ":"), default=_jsonable)
    except (TypeError, ValueError, RecursionError):
        return _dumped(_escaped(value, MAX_DEPTH))
    if '$float":' in text or text.count("[") + text.count("{") > MAX_DEPTH:
        return _dumped(_escaped(value, MAX_DEPTH))
    return text


def _dumped(value: Any) -> str:
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    except (TypeError, RecursionError) as error:
        raise ValueError(str(error)) from None


def _escaped(value: Any, depth: int) -> Any:
    if depth < 0:
        raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep, or contains itself")
    if isinstance(value, float):
        return value if isfinite(value) else {"$float": {"inf": "Infinity", "-inf": "-Infinity"}.get(str(value), "NaN")}
    if value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, dict):
        escaped = {key: _escaped(item, depth - 1) for key, item in value.items()}
        key = next(iter(escaped), None)
        is_tag = len(escaped) == 1 and isinstance(key, str) and key.startswith("$") and key.lstrip("$") == "float"
        return {f"${key}": escaped[key]} if is_tag else escaped
    if isinstance(value, (list, tuple)):
        return [_escaped(item, depth - 1) for item in value]
    return _escaped(_jsonable(value), depth - 1)


def _jsonable(value: Any) -> Any:
    """Return a value one step nearer to JSON. Raises ValueError for an unknown type."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if hasattr(value, "model_dump_json"):  # pydantic 2; models of pydantic 1 have `json`
        return json.loads(value.model_dump_json())
    if hasattr(value, "__fields__") and hasattr(value, "json"):
        return json.loads(value.json())
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (datetime, date, time)):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, (UUID, Decimal, PurePath)):
        return str(value)
    if isinstance(value, (bytes, bytearray)):
        return value.decode()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (AnySet, Iterator)) or type(value).__name__ == "deque":
        return list(value)
    raise ValueError(f"Unable to serialize unknown type: {type(value)}")


# --- the process -----------------------------------------------------------------------------------------------------


def load(config: dict[str, Any]) -> tuple[ModuleType, Path]:
    """Load the module of `config`, `file` or, without one, the installed `module`. Raises Unusable."""
    folder = Path(config["folder"])
    sys.path.insert(0, str(folder))
    name, file = config["module"], config["file"] and Path(config["file"])
    try:
        if file is None or ("." in name and name != file.stem):
            module = importlib.import_module(name)
        else:
            # A name that is taken, for example json, stays with its module.
            module = execute(file, name if name not in sys.modules else f"agent_{name}")
    except (Exception, SystemExit) as error:
        raise unloadable(error, folder, file, config["interpreter"]) from None
    return module, file or Path(str(module.__file__))


def execute(file: Path, name: str) -> ModuleType:
    """Execute a file, and return its module, which has this name in `sys.modules`."""
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file.name} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def unloadable(error: BaseException, folder: Path, file: Path | None, interpreter: str | None = None) -> Unusable:
    """Return the error of code that raised an exception when it was loaded."""
    if isinstance(error, SyntaxError):
        broken = Path(error.filename) if error.filename else file
        return Unusable(f"is not valid Python: {error.msg}", shown(broken) if broken else None, error.lineno)
    place, line = own_location(error, folder) or (file and str(file), None)
    advice = None
    if isinstance(error, ModuleNotFoundError):
        where = f"for {interpreter}" if interpreter else "where fepflow is installed"
        advice = f"install it {where}, or put it beside the file"
    text = " ".join(str(error).split())[:300]
    message = f"cannot be loaded: {type(error).__name__}: {text}"
    return Unusable(message, shown(Path(place)) if place else None, line, None if place else "target.python", advice)


def _form(config: dict[str, Any]) -> Form:
    """Return fepflow's own form if the agent runs in the run's interpreter."""
    if config["root"] is None:
        return Form(encode, _case, config["reserved"])
    sys.path.append(config["root"])
    from fepflow.json.values import encode as fepflow_encode

    return Form(fepflow_encode, _case, config["reserved"])


def _with_test_cases(form: Form, folder: str) -> Form:
    """Return the form with fepflow's test cases. They take 0.2 s to load, so only a function that gets them waits.

    The agent's folder is off the path meanwhile, and what it has loaded of it is set aside: its modules may have names
    of the standard library's.
    """
    path, sys.path[:] = sys.path[:], [entry for entry in sys.path if entry != folder]
    own = {
        name: module
        for name, module in sys.modules.items()
        if name.partition(".")[0] in sys.stdlib_module_names
        and str(getattr(module, "__file__", None)).startswith(folder + os.sep)
    }
    for name in own:
        del sys.modules[name]
    try:
        from fepflow.protocol.test_case import TestCase
    finally:
        sys.path[:] = path
        sys.modules.update(own)
    return dataclasses.replace(form, make_case=TestCase.model_validate)


def _case(fields: dict[str, Any]) -> SimpleNamespace:
    return SimpleNamespace(**{"expected": None, "metadata": None, "checks": None, **fields})


def main() -> None:
    """Load the code, then answer requests until stdin ends."""
    config = json.loads(sys.argv[1])
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)

    def reply(text: str) -> None:
        replies.write(text.encode("ascii") + b"\n")
        replies.flush()

    form = _form(config)
    try:
        module, file = load(config)
        entry = entry_of(module, file, config["name"], config["names"])
    except Unusable as error:
        return reply(json.dumps({"problems": [error.problem]}))
    if entry.arguments.wants_case and config["root"] is not None:
        form = _with_test_cases(form, config["folder"])
    reply(json.dumps({"wants_case": entry.arguments.wants_case, "file": str(file)}))
    loop = asyncio.new_event_loop()  # one for all calls, which may share clients
    asyncio.set_event_loop(loop)
    folder, limit = Path(config["folder"]), config["limit"]
    for line in requests:
        try:
            request = json.loads(line)
            if TRACEPARENT in request:
                os.environ["TRACEPARENT"] = request[TRACEPARENT]  # there is one call at a time
            returned = entry.begin(request, form)
            if is_pending(returned):
                text = loop.run_until_complete(awaited_text(returned, limit, form))
            else:
                text = answer_text(returned, limit, form)
        except BaseException as error:
            reply(json.dumps({"failure": failure_of(error, folder)}))
        else:
            reply('{"answer":' + text + "}")
    return None


if __name__ == "__main__":
    status = 0
    try:
        main()
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # does not wait for threads of the agent
