"""The function, class or method that a `python` target names, loaded into this process."""

from __future__ import annotations

from collections.abc import Collection

from fepflow.calls.python import worker
from fepflow.calls.python.source import Source, load
from fepflow.errors import InputError, Problem


def open_entry(source: Source, names: Collection[str] | None) -> worker.Entry:
    """Load the code, which runs it, and find what is to be called; `names` are those of target.python.arguments.

    Raises InputError, with file, line and advice: it cannot be loaded, there is no such function, or it cannot be
    called with these arguments.
    """
    module = load(source)
    try:
        return worker.entry_of(module, source.file, source.name, names)
    except worker.Unusable as error:
        raise InputError(Problem(**error.problem)) from None
