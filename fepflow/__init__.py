"""The public face of fepflow: it defines nothing, and loads what is asked for only then.

    from fepflow import evaluate, TestCase, Output, ContainsCheck

`import fepflow` alone loads neither prefect nor litellm, grpc or sqlmodel.
"""

from __future__ import annotations

from importlib import import_module, util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from checks.attribute_exists import AttributeExistsCheck as AttributeExistsCheck
    from checks.base import BaseAsyncCheck as BaseAsyncCheck
    from checks.base import BaseCheck as BaseCheck
    from checks.base import JSONPath as JSONPath
    from checks.constants import CheckType as CheckType
    from checks.constants import PassMode as PassMode
    from checks.constants import SimilarityMetric as SimilarityMetric
    from checks.contains import ContainsCheck as ContainsCheck
    from checks.custom_function import CustomFunctionCheck as CustomFunctionCheck
    from checks.disjoint import DisjointCheck as DisjointCheck
    from checks.engine import evaluate as evaluate
    from checks.engine import evaluate_async as evaluate_async
    from checks.equals import EqualsCheck as EqualsCheck
    from checks.exact_match import ExactMatchCheck as ExactMatchCheck
    from checks.is_empty import IsEmptyCheck as IsEmptyCheck
    from checks.json_valid import JSONValidCheck as JSONValidCheck
    from checks.json_valid import JsonValidCheck as JsonValidCheck
    from checks.llm_judge import LLMJudgeCheck as LLMJudgeCheck
    from checks.models.embedders import register_embedder as register_embedder
    from checks.regex import RegexCheck as RegexCheck
    from checks.regex import RegexFlags as RegexFlags
    from checks.registry import get_check_class as get_check_class
    from checks.registry import get_latest_version as get_latest_version
    from checks.registry import list_checks as list_checks
    from checks.registry import list_versions as list_versions
    from checks.registry import register as register
    from checks.schema_validation import SchemaValidationCheck as SchemaValidationCheck
    from checks.semantic_similarity import SemanticSimilarityCheck as SemanticSimilarityCheck
    from checks.semantic_similarity import SimilarityThreshold as SimilarityThreshold
    from checks.set_equal import SetEqualCheck as SetEqualCheck
    from checks.subset import SubsetCheck as SubsetCheck
    from checks.superset import SupersetCheck as SupersetCheck
    from checks.text_match import TextMatchCheck as TextMatchCheck
    from checks.threshold import ThresholdCheck as ThresholdCheck
    from checks.tool_usage import ToolUsageCheck as ToolUsageCheck
    from checks.validation.schemas import check_schema as check_schema
    from fepflow.errors import FepflowError as FepflowError
    from fepflow.errors import InputError as InputError
    from fepflow.errors import JSONPathError as JSONPathError
    from fepflow.errors import UserError as UserError
    from fepflow.protocol.check import Check as Check
    from fepflow.protocol.results import CheckError as CheckError
    from fepflow.protocol.results import CheckResult as CheckResult
    from fepflow.protocol.results import EvaluationRunResult as EvaluationRunResult
    from fepflow.protocol.results import EvaluationSummary as EvaluationSummary
    from fepflow.protocol.results import ExecutionContext as ExecutionContext
    from fepflow.protocol.results import ExperimentMetadata as ExperimentMetadata
    from fepflow.protocol.results import TestCaseResult as TestCaseResult
    from fepflow.protocol.results import TestCaseSummary as TestCaseSummary
    from fepflow.protocol.status import ErrorType as ErrorType
    from fepflow.protocol.status import Status as Status
    from fepflow.protocol.test_case import Output as Output
    from fepflow.protocol.test_case import TestCase as TestCase
    from surfaces.api import Run as Run
    from surfaces.api import load_run as load_run
    from surfaces.api import run as run
    from surfaces.api import run_async as run_async

_HOME = {
    "AttributeExistsCheck": "checks.attribute_exists",
    "BaseAsyncCheck": "checks.base",
    "BaseCheck": "checks.base",
    "Check": "fepflow.protocol.check",
    "CheckError": "fepflow.protocol.results",
    "CheckResult": "fepflow.protocol.results",
    "CheckType": "checks.constants",
    "ContainsCheck": "checks.contains",
    "CustomFunctionCheck": "checks.custom_function",
    "DisjointCheck": "checks.disjoint",
    "EqualsCheck": "checks.equals",
    "ErrorType": "fepflow.protocol.status",
    "EvaluationRunResult": "fepflow.protocol.results",
    "EvaluationSummary": "fepflow.protocol.results",
    "ExactMatchCheck": "checks.exact_match",
    "ExecutionContext": "fepflow.protocol.results",
    "ExperimentMetadata": "fepflow.protocol.results",
    "FepflowError": "fepflow.errors",
    "InputError": "fepflow.errors",
    "IsEmptyCheck": "checks.is_empty",
    "JSONPath": "checks.base",
    "JSONPathError": "fepflow.errors",
    "JSONValidCheck": "checks.json_valid",
    "JsonValidCheck": "checks.json_valid",
    "LLMJudgeCheck": "checks.llm_judge",
    "Output": "fepflow.protocol.test_case",
    "PassMode": "checks.constants",
    "RegexCheck": "checks.regex",
    "RegexFlags": "checks.regex",
    "Run": "surfaces.api",
    "SchemaValidationCheck": "checks.schema_validation",
    "SemanticSimilarityCheck": "checks.semantic_similarity",
    "SetEqualCheck": "checks.set_equal",
    "SimilarityMetric": "checks.constants",
    "SimilarityThreshold": "checks.semantic_similarity",
    "Status": "fepflow.protocol.status",
    "SubsetCheck": "checks.subset",
    "SupersetCheck": "checks.superset",
    "TestCase": "fepflow.protocol.test_case",
    "TestCaseResult": "fepflow.protocol.results",
    "TestCaseSummary": "fepflow.protocol.results",
    "TextMatchCheck": "checks.text_match",
    "ThresholdCheck": "checks.threshold",
    "ToolUsageCheck": "checks.tool_usage",
    "UserError": "fepflow.errors",
    "check_schema": "checks.validation.schemas",
    "evaluate": "checks.engine",
    "evaluate_async": "checks.engine",
    "get_check_class": "checks.registry",
    "get_latest_version": "checks.registry",
    "list_checks": "checks.registry",
    "list_versions": "checks.registry",
    "load_run": "surfaces.api",
    "register": "checks.registry",
    "register_embedder": "checks.models.embedders",
    "run": "surfaces.api",
    "run_async": "surfaces.api",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    module = _HOME.get(name)
    if module is None:
        raise AttributeError(f"module 'fepflow' has no attribute {name!r}")
    try:
        value = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise _hidden(module) or error from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__


def _hidden(module: str | None) -> ImportError | None:
    """Our packages have plain names: say so when another package has taken that of `module`, which was not found."""
    from pathlib import Path

    package = (module or "").partition(".")[0]
    found = util.find_spec(package) if package else None
    locations = [] if found is None else [found.origin or "", *(found.submodule_search_locations or ())]
    location = next(filter(None, locations), None)
    if location is None or Path(location).is_relative_to(Path(__file__).parent.parent):
        return None
    message = (
        f"{location} hides fepflow's own package `{package}`: rename it, or run fepflow in an environment of its own"
    )
    return ImportError(message, name=module)
