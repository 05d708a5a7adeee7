"""Custom checks from a suite's own Python files."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

from fepflow.errors import FepflowError, InputError, Problem
from fepflow.protocol.content_hash import content_hash
from fepflow.security.redaction import words_of
from fepflow.security.regular_files import open_regular

_loaded: dict[Path, float] = {}


def load_plugin(path: Path, file: str) -> None:
    """Run a Python file that registers checks; once, and again when it has changed.

    `file` is how messages call it. Raises InputError, naming the line, when the file cannot be run.
    """
    try:
        with open_regular(path) as source:
            modified = os.fstat(source.fileno()).st_mtime
    except FileNotFoundError:
        raise InputError(Problem("there is no such plugin", file, advice="check plugins: in the suite")) from None
    except IsADirectoryError:
        raise InputError(Problem("is no Python file", file, advice="plugins end in .py")) from None
    except OSError as error:
        raise InputError(Problem(f"cannot be read: {error.strerror}", file)) from None
    if _loaded.get(path) == modified:
        return
    name = f"fepflow_plugin_{path.stem}_{content_hash(str(path))[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(Problem("is no Python file", file, advice="plugins end in .py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise InputError(Problem(f"is not valid Python: {error.msg}", file, error.lineno)) from None
    except FepflowError as error:
        raise InputError(Problem(str(error), file, _line(error, path))) from None
    except (Exception, SystemExit) as error:
        message = f"cannot be loaded: {type(error).__name__}: {words_of(error)}"
        raise InputError(Problem(message, file, _line(error, path))) from None
    _loaded[path] = modified


def _line(error: BaseException, path: Path) -> int | None:
    """The last line of the plugin itself in the error's trace."""
    trace, line = error.__traceback__, None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
