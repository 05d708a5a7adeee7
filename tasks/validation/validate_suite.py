"""Everything about a suite that can be known before anything is called: its cases, checks, gate, and all errors."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from fepflow.suite.reader import load_suite
from tasks.validation.baseline import inspect_baseline
from tasks.validation.cases import inspect_cases
from tasks.validation.checks import inspect_checks
from tasks.validation.metrics import inspect_metrics, inspect_thresholds
from tasks.validation.paths import inspect_paths
from tasks.validation.plugins import load_plugins
from tasks.validation.scales import inspect_scales
from tasks.validation.suite_validation import SuiteValidation
from tasks.validation.target import inspect_target


def validate_suite(path: Path, env: Mapping[str, str] = os.environ, limit: float | None = None) -> SuiteValidation:
    """Read a suite and all files that it names, and collect every error. Makes no call. `limit` is of the cases.

    Raises InputError only if the file itself is no document.
    """
    loaded = load_suite(path, env)
    found = SuiteValidation(loaded, problems=list(loaded.problems), limit=limit)
    inspect_cases(found)
    load_plugins(loaded, found.problems)
    inspect_checks(found)
    inspect_thresholds(found)
    inspect_metrics(found)
    inspect_scales(found)
    inspect_paths(found, inspect_target(found))
    inspect_baseline(found)
    found.problems.sort(
        key=lambda problem: (problem.file != loaded.document.file, problem.file or "", problem.line or 0)
    )
    return found
