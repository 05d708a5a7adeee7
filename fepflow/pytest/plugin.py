"""fepflow's part of pytest: an option, async tests, a line for each evaluation at the end.

pytest loads this file in every project of the environment, so nothing is imported here that costs time.
"""

from __future__ import annotations

import logging
import sys
from inspect import getattr_static, iscoroutinefunction, isfunction
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from fepflow.store.store import Store

STORE: pytest.StashKey[Store] = pytest.StashKey()
"""The store of the session, if results are kept."""

VERDICT = "fepflow_verdict"
RUN = "fepflow_run"
"""User properties of a test, which JUnit reports show too: the verdict in a sentence, the id of the stored run."""

EVALUATION = "__fepflow_evaluation__"
"""Attribute of the functions that `evaluate` makes."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--fepflow-store`."""
    parser.getgroup("fepflow", "evaluations (fepflow)").addoption(
        "--fepflow-store",
        nargs="?",
        const="",
        metavar="URL",
        help="keep the results of evaluations, for `fepflow list` and `fepflow show`; without a URL in the store that "
        "FEPFLOW_STORE_URL and FEPFLOW_HOME name",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Open the store, if `--fepflow-store` is given. Raises UsageError before anything is called."""
    url = config.getoption("fepflow_store")
    if url is None:
        return
    if url and "://" not in url:
        raise pytest.UsageError(
            f"--fepflow-store: {url} is not a database URL. Without a URL, write `--fepflow-store=`, or the option "
            "after the files to test."
        )
    from fepflow.errors import FepflowError
    from fepflow.extras import require
    from fepflow.services import run_service
    from fepflow.settings import settings

    try:
        require("run", "it")
        from fepflow.store.store import Store

        if not url:  # as `fepflow show` will look for it
            run_service.note_untaken_variables(logging.getLogger("fepflow").warning)
        config.stash[STORE] = Store.open(url or settings().store_address)
    except FepflowError as error:
        raise pytest.UsageError(f"--fepflow-store: {error}") from None


def pytest_unconfigure(config: pytest.Config) -> None:
    """Close the store."""
    if STORE in config.stash:
        config.stash[STORE].close()


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: pytest.Collector, obj: object) -> None:
    """Refuse evaluations in a unittest.TestCase, and hand async ones to pytest-asyncio where that is installed.

    pytest-asyncio runs them in the loop of async fixtures. unittest passes no fixtures.
    """
    unittest = sys.modules.get("unittest")
    if unittest and isinstance(obj, type) and issubclass(obj, unittest.TestCase):
        functions = ((name, getattr_static(obj, name, None)) for name in dir(obj))
        evaluations = [name for name, function in functions if isfunction(function) and hasattr(function, EVALUATION)]
        if evaluations:
            raise collector.CollectError(
                f"{obj.__name__}.{evaluations[0]}: an evaluation needs pytest's fixtures, and a unittest.TestCase gets "
                "none. Make it a function, or a method of a class without a base."
            )
    if not _is_async_evaluation(obj) or not collector.config.pluginmanager.hasplugin("asyncio"):
        return
    function: Any = getattr(obj, "__func__", obj)
    marks = {mark.name for mark in (*collector.iter_markers(), *getattr(function, "pytestmark", ()))}
    if marks.isdisjoint({"asyncio", "anyio"}):
        pytest.mark.asyncio(function)


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an async evaluation that no other plugin has taken."""
    if not _is_async_evaluation(pyfuncitem.obj):
        return None
    import asyncio

    wanted = pyfuncitem._fixtureinfo.argnames
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in wanted}))
    return True


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List the verdicts, also of passed tests, because a rate may only just pass."""
    reports = [report for group in terminalreporter.stats.values() for report in group]
    verdicts = [
        (report.nodeid, dict(report.user_properties))
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "call"
    ]
    lines = [_line(nodeid, properties) for nodeid, properties in verdicts if VERDICT in properties]
    if lines and terminalreporter.config.get_verbosity() >= 0:
        terminalreporter.section("evaluations")
        for line in sorted(lines):
            terminalreporter.line(line)


def _line(nodeid: str, properties: dict[str, object]) -> str:
    kept = f" (fepflow show {str(properties[RUN])[:8]})" if RUN in properties else ""
    return f"{nodeid}: {properties[VERDICT]}{kept}"


def _is_async_evaluation(obj: object) -> bool:
    return hasattr(obj, EVALUATION) and iscoroutinefunction(obj)
