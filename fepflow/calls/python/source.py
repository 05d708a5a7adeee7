"""The code of a `python` target or an ASGI application: its place, its sources and their hash, and loading it.

Also the interpreter of an agent with its own environment.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import os
import shutil
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from types import ModuleType

from fepflow.calls.python import worker
from fepflow.errors import InputError, Problem
from fepflow.suite.reader import resolve_inside

MAX_SOURCES = 1_000
FUNCTION = "target.python.function"


@dataclass(frozen=True)
class Source:
    """The place of a function: `name` (`answer`, `Agent.answer`) in `module`, loaded from `file`.

    Its imports begin at `folder`. `setting` is where the suite names it.
    """

    file: Path
    module: str
    name: str
    folder: Path
    setting: str = FUNCTION

    @property
    def shown(self) -> str:
        """The file's path for messages."""
        return worker.shown(self.file)


def locate(function: str, folder: Path, roots: Sequence[Path] = (), setting: str = FUNCTION) -> Source:
    """Find `file.py:name` below the suite's folder or `roots`, or `package.module:name` beside the suite or installed.

    `setting` is the key of the suite that names it. Nothing is imported. Raises InputError.
    """
    code, _, name = function.rpartition(":")
    if not is_file(function):
        return _locate_module(code, name, folder, setting)
    try:
        file = resolve_inside(folder, code, roots)
    except ValueError as error:
        raise InputError(Problem(str(error), path=setting)) from None
    if not file.is_file():
        advice = "check the path; it starts at the suite's folder"
        raise InputError(Problem(f"there is no file {code}", path=setting, advice=advice))
    return Source(file, file.stem, name, file.parent, setting)


def is_file(function: str) -> bool:
    """Return whether a function is named with its file instead of its module."""
    code = function.rpartition(":")[0]
    return code.endswith(".py") or "/" in code or os.sep in code


def locate_beside(function: str, folder: Path) -> Source | None:
    """Find `package.module:name` beside the suite; None if it is not there."""
    module, _, name = function.rpartition(":")
    file = _file_in(module, [str(folder)])
    return None if file is None else _source_of_module(file, module, name, FUNCTION)


def _locate_module(module: str, name: str, folder: Path, setting: str) -> Source:
    file = _file_of(module, [str(folder), *sys.path])
    if file is None:
        advice = f"to name a file, write its ending: {module.rpartition('.')[2]}.py:{name}"
        message = f"there is no module {module}, neither beside the suite nor installed"
        raise InputError(Problem(message, path=setting, advice=advice))
    return _source_of_module(file, module, name, setting)


def _source_of_module(file: Path, module: str, name: str, setting: str) -> Source:
    depth = module.count(".") + (file.name == "__init__.py")
    return Source(file, module, name, file.parents[depth], setting)


def _file_of(module: str, locations: Sequence[str]) -> Path | None:
    """Return the file of a module. Packages are imported only if the file is in none of the locations."""
    if (file := _file_in(module, locations)) is not None:
        return file
    with suppress(ImportError, ValueError, AttributeError):
        spec = importlib.util.find_spec(module)
        if spec is not None and spec.origin and spec.has_location:
            return Path(spec.origin).resolve()
    return None


def _file_in(module: str, locations: Sequence[str]) -> Path | None:
    *packages, last = module.split(".")
    for location in locations:
        folder = Path(location).joinpath(*packages)
        for file in (folder / last / "__init__.py", folder / f"{last}.py"):
            if file.is_file():
                return file.resolve()
    return None


def sources(source: Source) -> Iterator[Path]:
    """Yield the file of the function, and those beside it that it imports directly or indirectly."""
    waiting, seen = [source.file], {source.file}
    while waiting and len(seen) < MAX_SOURCES:
        file = waiting.pop()
        yield file
        if not worker.is_installed(file):
            for neighbour in _neighbours(file, source.folder):
                if neighbour not in seen:
                    seen.add(neighbour)
                    waiting.append(neighbour)


def source_hash(source: Source) -> str:
    """Return the SHA-256 of the contents of `sources`, whatever their paths."""
    digest = hashlib.sha256()
    for file in sources(source):
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def imported_names(file: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of each module, or member of a module, that a file imports."""
    content = file.read_bytes()
    try:
        tree = _parsed(content)
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            glue = "" if base.endswith(".") else "."
            yield from ((node.lineno, f"{base}{glue}{alias.name}") for alias in node.names)


def _parsed(content: bytes) -> ast.Module:
    try:
        return ast.parse(content)
    except SystemError:  # a bug of Python 3.11 if a traceback is formatted at the same time
        return ast.parse(content)


def _neighbours(file: Path, folder: Path) -> Iterator[Path]:
    for _, name in imported_names(file):
        level = len(name) - len(name.lstrip("."))
        location = folder if level == 0 else file.parents[min(level - 1, len(file.parents) - 1)]
        for part in name[level:].split("."):
            location = location / part
            for candidate in (location.with_suffix(".py"), location / "__init__.py"):
                if candidate.is_file():
                    yield candidate.resolve()


class _Modules:
    """The agents' modules in `sys.modules`, of one folder at a time.

    Two suites may each have an `agent.py` with a `helpers.py` beside it. The active folder comes first on `sys.path`.
    Its modules are put aside when another folder becomes active, and put back later.
    """

    def __init__(self) -> None:
        self.lock = RLock()
        self._active: Path | None = None
        self._before: set[str] = set()
        self._inactive: dict[Path, dict[str, ModuleType]] = {}

    def activate(self, folder: Path) -> None:
        """Let imports find the modules of `folder`."""
        if folder == self._active:
            return
        with self.lock:
            if self._active is not None:
                self._inactive[self._active] = self._own()
                with suppress(ValueError):
                    sys.path.remove(str(self._active))
                for name in self._inactive[self._active]:
                    del sys.modules[name]
            self._before = set(sys.modules)
            sys.modules.update(self._inactive.pop(folder, {}))
            sys.path.insert(0, str(folder))
            importlib.invalidate_caches()
            self._active = folder

    def forget(self) -> None:
        """Drop the modules of the active folder, because they have changed."""
        for name in self._own():
            del sys.modules[name]
        importlib.invalidate_caches()

    def _own(self) -> dict[str, ModuleType]:
        return {
            name: module
            for name, module in list(sys.modules.items())
            if name not in self._before and self._is_own(name, module)
        }

    def _is_own(self, name: str, module: ModuleType) -> bool:
        file = getattr(module, "__file__", None)
        if not file or self._active is None or name.partition(".")[0] == "fepflow":
            return False
        return worker.is_own_file(file, self._active)


MODULES = _Modules()


_loaded: dict[Path, tuple[str, ModuleType]] = {}


def load(source: Source) -> ModuleType:
    """Return the module with the function, executed once, and again when one of its sources has changed.

    Raises InputError, with file and line, if it cannot be executed.
    """
    with MODULES.lock:
        MODULES.activate(source.folder)
        content = source_hash(source)
        known = _loaded.get(source.file)
        if known is not None and known[0] == content:
            return known[1]
        if known is not None:
            MODULES.forget()
        try:
            module = _execute(source)
        except (Exception, SystemExit) as error:
            raise InputError(Problem(**worker.unloadable(error, source.folder, source.file).problem)) from None
        _loaded[source.file] = content, module
        return module


def _execute(source: Source) -> ModuleType:
    if "." in source.module and source.module != source.file.stem:
        return importlib.import_module(source.module)
    taken = sys.modules.get(source.module)
    # A name that is taken (json.py, a notebook's own agent) stays with its module.
    name = source.module if taken is None else f"fepflow_agent_{hashlib.sha256(bytes(source.file)).hexdigest()[:8]}"
    return worker.execute(source.file, name)


def open_entry(source: Source, names: Collection[str] | None) -> worker.Entry:
    """Load the code, which executes it, and find the function. `names` are those of target.python.arguments.

    Raises InputError with file, line and advice if it cannot be loaded, if the function does not exist, or cannot be
    called with these arguments.
    """
    module = load(source)
    try:
        return worker.entry_of(module, source.file, source.name, names)
    except worker.Unusable as error:
        raise InputError(Problem(**error.problem)) from None


def find_interpreter(name: str, folder: Path) -> str:
    """Return the path of a Python interpreter: one from the suite's folder, or in PATH if it is a name only.

    Links are not followed: a virtual environment is known by the link to its interpreter. Raises InputError.
    """
    is_name = os.sep not in name and "/" not in name
    path = shutil.which(name if is_name else os.path.abspath(folder / Path(name).expanduser()))
    if path is None:
        advice = (
            "name the python of the agent's environment: a path starts at the suite's folder, as ./.venv/bin/python"
        )
        problem = f"{name} is not found in PATH" if is_name else f"there is no program {name}"
        raise InputError(Problem(problem, path="target.python.interpreter", advice=advice))
    return os.path.abspath(path)
