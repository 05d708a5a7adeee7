"""Everything about a suite that can be known before anything is called: its cases, checks, gate, and all errors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fepflow.diagnose.baseline import validate_baseline
from fepflow.diagnose.cases import validate_cases
from fepflow.diagnose.checks import checks_by_id, validate_checks
from fepflow.diagnose.judges import validate_correction
from fepflow.diagnose.metrics import validate_metrics, validate_thresholds
from fepflow.diagnose.paths import validate_paths
from fepflow.diagnose.plugins import load_plugins
from fepflow.diagnose.scales import validate_scales
from fepflow.diagnose.suite_validation import SuiteValidation
from fepflow.diagnose.target import validate_target
from fepflow.diagnose.variables import with_env_files
from fepflow.env_file import SUITE_VARIABLES
from fepflow.suite.reader import load_suite


def validate_suite(path: Path, env: Mapping[str, str] = SUITE_VARIABLES, limit: float | None = None) -> SuiteValidation:
    """Read a suite and all files that it names, and collect every error. Makes no call. `limit` is of the cases.

    Raises InputError only if the file itself is no document.
    """
    loaded = load_suite(path, env)
    found = SuiteValidation(loaded, problems=list(loaded.problems), limit=limit)
    validate_cases(found)
    load_plugins(loaded, found.problems)
    validate_checks(found)
    validate_thresholds(found)
    checks = checks_by_id(found)
    validate_metrics(found, checks)
    validate_scales(found, checks)
    validate_paths(found, validate_target(found))
    validate_baseline(found)
    validate_correction(found)
    found.problems = with_env_files(found.problems, loaded.folder)
    found.problems.sort(
        key=lambda problem: (problem.file != loaded.document.file, problem.file or "", problem.line or 0)
    )
    return found
