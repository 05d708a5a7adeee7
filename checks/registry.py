"""The catalogue of check types: our own, those of installed packages, and registered ones."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Callable
from enum import StrEnum
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from inspect import getsource
from pathlib import Path
from typing import TypeVar

from fepflow.checks.base import BaseCheck
from fepflow.documents.files import open_regular
from fepflow.documents.messages import bare_name, did_you_mean
from fepflow.errors import CheckArgumentsError, FepflowError, InputError, Problem
from fepflow.protocol.check import SEMVER
from fepflow.protocol.content_hash import content_hash
from fepflow.security.redaction import words_of
from fepflow.suite.foreign_names import CHECK_TYPES


class CheckType(StrEnum):
    """The check types that come with fepflow."""

    EXACT_MATCH = "exact_match"
    CONTAINS = "contains"
    REGEX = "regex"
    THRESHOLD = "threshold"
    EQUALS = "equals"
    IS_EMPTY = "is_empty"
    ATTRIBUTE_EXISTS = "attribute_exists"
    SUBSET = "subset"
    SUPERSET = "superset"
    SET_EQUAL = "set_equal"
    DISJOINT = "disjoint"
    JSON_VALID = "json_valid"
    SCHEMA_VALIDATION = "schema_validation"
    DECLARED = "declared"
    TOOL_USAGE = "tool_usage"
    TEXT_MATCH = "text_match"
    NUMBER = "number"
    TEXT_DISTANCE = "text_distance"
    JSON_DIFF = "json_diff"
    CLASSIFICATION = "classification"
    CUSTOM_FUNCTION = "custom_function"
    SEMANTIC_SIMILARITY = "semantic_similarity"
    RECORDED_SCORE = "recorded_score"
    LLM_JUDGE = "llm_judge"
    RUBRIC = "rubric"
    FAITHFULNESS = "faithfulness"
    ANSWER_RELEVANCY = "answer_relevancy"
    CONTEXT_PRECISION = "context_precision"
    CONTEXT_RECALL = "context_recall"
    RAGAS_FAITHFULNESS = "ragas.faithfulness"
    RAGAS_CONTEXT_PRECISION = "ragas.context_precision"
    RAGAS_CONTEXT_RECALL = "ragas.context_recall"
    RAGAS_FACTUAL_CORRECTNESS = "ragas.factual_correctness"


SCORED_JUDGES = (
    *(CheckType.RUBRIC, CheckType.FAITHFULNESS, CheckType.ANSWER_RELEVANCY),
    *(CheckType.CONTEXT_PRECISION, CheckType.CONTEXT_RECALL),
    *(CheckType.RAGAS_FAITHFULNESS, CheckType.RAGAS_CONTEXT_PRECISION),
    *(CheckType.RAGAS_CONTEXT_RECALL, CheckType.RAGAS_FACTUAL_CORRECTNESS),
)
"""Types that ask a language model, and whose response has `score` (0 to 1) and `passed`."""

JUDGES = (CheckType.LLM_JUDGE, *SCORED_JUDGES)
"""Types that ask a language model for a judgement, which people's labels may calibrate."""

LABELLED = (*JUDGES, CheckType.RECORDED_SCORE)
"""Types whose results people's labels may be compared with."""


class SimilarityMetric(StrEnum):
    """The ways in which `semantic_similarity` compares."""

    COSINE = "cosine"
    DOT = "dot"
    EUCLIDEAN = "euclidean"


class PassMode(StrEnum):
    """The values of the pytest decorator's `pass_mode`."""

    SAMPLE = "sample"
    PER_TEST_CASE = "per_test_case"


CheckClass = type[BaseCheck]
T = TypeVar("T", bound=CheckClass)

CHECKS = tuple(map(str, CheckType))
"""The check types that come with fepflow, each in the module of its name."""

ENTRY_POINTS = "fepflow.checks"


def installed_checks() -> dict[str, dict[str, CheckClass]]:
    """Return the classes by check type and version."""
    return _load_all()[0]


def broken_checks() -> dict[str, str]:
    """Return errors of check types whose classes cannot be loaded. Other checks work."""
    return _load_all()[1]


@cache
def _load_all() -> tuple[dict[str, dict[str, CheckClass]], dict[str, str]]:
    loaded: dict[str, dict[str, CheckClass]] = {}
    broken: dict[str, str] = {}
    for entry in entry_points(group=ENTRY_POINTS):
        try:
            check_class = _load(entry)
        except (Exception, SystemExit) as error:
            package = entry.dist.name if entry.dist else "a package"
            broken[entry.name] = (
                f"the check {entry.name} of {package} cannot be loaded: {type(error).__name__}: {error}"
            )
        else:
            loaded.setdefault(entry.name, {}).setdefault(check_class.check_version, check_class)
    return loaded, broken


def _load(entry: EntryPoint) -> CheckClass:
    check_class = entry.load()
    if not (isinstance(check_class, type) and issubclass(check_class, BaseCheck)):
        raise TypeError(f"{entry.value} is not a subclass of BaseCheck")
    check_class.check_type = check_class.check_type or entry.name
    return check_class


_registered: dict[str, dict[str, CheckClass]] = {}


def register(check_type: str, version: str = "1.0.0") -> Callable[[T], T]:
    """Return a class decorator that registers a check type by its name and semantic version (FEP 6.3).

    Registering the same class again (a plugin that is loaded twice) replaces it. Another class of the same type and
    version is a CheckArgumentsError.
    """
    parse_version(version)
    name = str(check_type)

    def add(check_class: T) -> T:
        known = _versions(name).get(version)
        if known is not None and not _is_same(known, check_class):
            raise CheckArgumentsError(f"{name} {version} is registered already, by {known.__module__}")
        check_class.check_type = name
        check_class.check_version = version
        _registered.setdefault(name, {})[version] = check_class
        return check_class

    return add


def _is_same(known: CheckClass, other: CheckClass) -> bool:
    """Return whether both are the same code, perhaps loaded twice."""
    return (known.__qualname__, file_of(known)) == (other.__qualname__, file_of(other))


def file_of(check_class: CheckClass) -> str:
    """Return the file that defines a class, else its module."""
    module = sys.modules.get(check_class.__module__)
    return getattr(module, "__file__", None) or check_class.__module__


def find_check(check_type: str, version: str | None = None) -> CheckClass:
    """Return the class of a check type.

    A version is met exactly, else by the newest of the same major that is not older; None is the latest. Raises
    CheckArgumentsError for an unknown type or a version that nothing meets.
    """
    versions = _versions(check_type)
    if not versions:
        if check_type in broken_checks():
            raise CheckArgumentsError(broken_checks()[check_type])
        # A name of another tool first: not-contains is like `contains`, and says the opposite.
        advice = CHECK_TYPES.get(bare_name(check_type)) or did_you_mean(check_type, list_checks())
        raise CheckArgumentsError(f"there is no check type {check_type} ({advice})")
    if version is None:
        return versions[max(versions, key=parse_version)]
    if version in versions:
        return versions[version]
    requested = parse_version(version)
    fitting = [known for known in versions if _meets(parse_version(known), requested)]
    if not fitting:
        raise CheckArgumentsError(f"{check_type} has no version {version} (there is {', '.join(versions)})")
    return versions[max(fitting, key=parse_version)]


get_check_class = find_check
"""The public name of `find_check`, which is that of flex-evals."""


def list_checks() -> list[str]:
    """Return all known check types, sorted."""
    return sorted({*CHECKS, *_registered, *installed_checks()})


def others_checks() -> set[str]:
    """Return the check types of which a class was installed or registered by others."""
    return {*_registered, *installed_checks()}


def list_versions(check_type: str) -> list[str]:
    """Return the versions of a check type, oldest first."""
    return sorted(_versions(check_type), key=parse_version)


def get_latest_version(check_type: str) -> str:
    """Return the newest version of a check type; raises CheckArgumentsError for an unknown one."""
    return find_check(check_type).check_version


def is_ours(check_class: CheckClass) -> bool:
    """Return whether a check class comes with fepflow."""
    return check_class in our_checks(check_class.check_type)


def our_checks(check_type: str) -> list[CheckClass]:
    """Return the classes of a check type that come with fepflow, oldest first; none for other people's types.

    A type is loaded when it is asked for: a suite uses a few of them, and loading all takes a tenth of a second.
    """
    if check_type not in CHECKS:
        return []
    name = "ragas_metrics" if check_type.startswith("ragas.") else check_type
    things = vars(import_module(f"fepflow.checks.{name}")).values()
    classes = [thing for thing in things if isinstance(thing, type) and issubclass(thing, BaseCheck)]
    return [check_class for check_class in classes if check_class.check_type == check_type]


@cache
def source_hash(check_class: CheckClass) -> str | None:
    """Return the content hash of the source of a user's check; None for ours, which have versions."""
    if is_ours(check_class):
        return None
    try:
        return content_hash(getsource(check_class))
    except (OSError, TypeError):
        return None


Precedence = tuple[list[tuple[int, str]], bool, list[tuple[bool, int, str]]]


def parse_version(version: str) -> Precedence:
    """Return the parts of a semantic version by which versions are compared (Semantic Versioning 2.0.0, 11).

    Python's versions have another order: 1.0.0-1 and 1.0.0+x are newer than 1.0.0 there, and 1.0.0-alpha.x is none.
    Raises CheckArgumentsError for another text.
    """
    match = re.fullmatch(SEMVER, version)
    if match is None:
        raise CheckArgumentsError(f"{version} is not a semantic version such as 1.2.0")
    *numbers, prerelease, _ = match.groups()
    parts = prerelease.split(".") if prerelease else []
    # Numbers have no leading zeros, so the longer one is larger, however many digits it has.
    compared = [(False, len(part), part) if part.isdecimal() else (True, 0, part) for part in parts]
    return [(len(number), number) for number in numbers], not parts, compared


def _meets(known: Precedence, requested: Precedence) -> bool:
    return known[0][0] == requested[0][0] and known >= requested


def _versions(check_type: str) -> dict[str, CheckClass]:
    ours = {check_class.check_version: check_class for check_class in our_checks(check_type)}
    return {**installed_checks().get(check_type, {}), **_registered.get(check_type, {}), **ours}


_loaded: dict[Path, float] = {}


def load_plugin(path: Path, file: str) -> None:
    """Run a Python file that registers checks; once, and again when it has changed.

    `file` is how messages call it. Raises InputError, naming the line, when the file cannot be run.
    """
    try:
        with open_regular(path) as source:
            modified = os.fstat(source.fileno()).st_mtime
    except OSError as error:
        problem = Problem(f"cannot be read: {error.strerror}", file, advice="plugins are Python files that end in .py")
        raise InputError(problem) from None
    if _loaded.get(path) == modified:
        return
    name = f"fepflow_plugin_{path.stem}_{content_hash(str(path))[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(Problem("is not a Python file", file, advice="plugins end in .py"))
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
    """Return the last line of the plugin itself in the error's trace."""
    trace, line = error.__traceback__, None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
