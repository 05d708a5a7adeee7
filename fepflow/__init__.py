"""The public face of fepflow: it defines nothing, and loads what is asked for only then.

    from fepflow import evaluate, TestCase, Output, ContainsCheck

`import fepflow` alone loads neither prefect nor litellm, grpc or sqlmodel.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fepflow.checks.answer_relevancy import AnswerRelevancyCheck as AnswerRelevancyCheck
    from fepflow.checks.attribute_exists import AttributeExistsCheck as AttributeExistsCheck
    from fepflow.checks.base import BaseAsyncCheck as BaseAsyncCheck
    from fepflow.checks.base import BaseCheck as BaseCheck
    from fepflow.checks.base import JSONPath as JSONPath
    from fepflow.checks.classification import ClassificationCheck as ClassificationCheck
    from fepflow.checks.contains import ContainsCheck as ContainsCheck
    from fepflow.checks.context_precision import ContextPrecisionCheck as ContextPrecisionCheck
    from fepflow.checks.context_recall import ContextRecallCheck as ContextRecallCheck
    from fepflow.checks.custom_function import CustomFunctionCheck as CustomFunctionCheck
    from fepflow.checks.declared import DeclaredCheck as DeclaredCheck
    from fepflow.checks.disjoint import DisjointCheck as DisjointCheck
    from fepflow.checks.engine import assert_case as assert_case
    from fepflow.checks.engine import evaluate as evaluate
    from fepflow.checks.engine import evaluate_async as evaluate_async
    from fepflow.checks.equals import EqualsCheck as EqualsCheck
    from fepflow.checks.exact_match import ExactMatchCheck as ExactMatchCheck
    from fepflow.checks.faithfulness import FaithfulnessCheck as FaithfulnessCheck
    from fepflow.checks.is_empty import IsEmptyCheck as IsEmptyCheck
    from fepflow.checks.json_diff import JSONDiffCheck as JSONDiffCheck
    from fepflow.checks.json_valid import JSONValidCheck as JSONValidCheck
    from fepflow.checks.llm_judge import LLMJudgeCheck as LLMJudgeCheck
    from fepflow.checks.models.model_check import register_embedder as register_embedder
    from fepflow.checks.number import NumberCheck as NumberCheck
    from fepflow.checks.ragas_metrics import RagasContextPrecisionCheck as RagasContextPrecisionCheck
    from fepflow.checks.ragas_metrics import RagasContextRecallCheck as RagasContextRecallCheck
    from fepflow.checks.ragas_metrics import RagasFactualCorrectnessCheck as RagasFactualCorrectnessCheck
    from fepflow.checks.ragas_metrics import RagasFaithfulnessCheck as RagasFaithfulnessCheck
    from fepflow.checks.recorded_score import RecordedScoreCheck as RecordedScoreCheck
    from fepflow.checks.regex import RegexCheck as RegexCheck
    from fepflow.checks.regex import RegexFlags as RegexFlags
    from fepflow.checks.registry import CheckType as CheckType
    from fepflow.checks.registry import PassMode as PassMode
    from fepflow.checks.registry import SimilarityMetric as SimilarityMetric
    from fepflow.checks.registry import get_check_class as get_check_class
    from fepflow.checks.registry import get_latest_version as get_latest_version
    from fepflow.checks.registry import list_checks as list_checks
    from fepflow.checks.registry import list_versions as list_versions
    from fepflow.checks.registry import register as register
    from fepflow.checks.rubric import RubricCheck as RubricCheck
    from fepflow.checks.schema_validation import SchemaValidationCheck as SchemaValidationCheck
    from fepflow.checks.schemas import check_schema as check_schema
    from fepflow.checks.semantic_similarity import SemanticSimilarityCheck as SemanticSimilarityCheck
    from fepflow.checks.semantic_similarity import SimilarityThreshold as SimilarityThreshold
    from fepflow.checks.set_equal import SetEqualCheck as SetEqualCheck
    from fepflow.checks.subset import SubsetCheck as SubsetCheck
    from fepflow.checks.superset import SupersetCheck as SupersetCheck
    from fepflow.checks.text_distance import TextDistanceCheck as TextDistanceCheck
    from fepflow.checks.text_match import TextMatchCheck as TextMatchCheck
    from fepflow.checks.threshold import ThresholdCheck as ThresholdCheck
    from fepflow.checks.tool_usage import ToolUsageCheck as ToolUsageCheck
    from fepflow.errors import FepflowError as FepflowError
    from fepflow.errors import InputError as InputError
    from fepflow.errors import JSONPathError as JSONPathError
    from fepflow.errors import UserError as UserError
    from fepflow.protocol.check import Check as Check
    from fepflow.protocol.results import CheckError as CheckError
    from fepflow.protocol.results import CheckResult as CheckResult
    from fepflow.protocol.results import ErrorType as ErrorType
    from fepflow.protocol.results import EvaluationRunResult as EvaluationRunResult
    from fepflow.protocol.results import EvaluationSummary as EvaluationSummary
    from fepflow.protocol.results import ExecutionContext as ExecutionContext
    from fepflow.protocol.results import ExperimentMetadata as ExperimentMetadata
    from fepflow.protocol.results import Status as Status
    from fepflow.protocol.results import TestCaseResult as TestCaseResult
    from fepflow.protocol.results import TestCaseSummary as TestCaseSummary
    from fepflow.protocol.test_case import Output as Output
    from fepflow.protocol.test_case import TestCase as TestCase
    from fepflow.python_api import Comparison as Comparison
    from fepflow.python_api import Run as Run
    from fepflow.python_api import VariantRuns as VariantRuns
    from fepflow.python_api import compare as compare
    from fepflow.python_api import load_run as load_run
    from fepflow.python_api import rescore as rescore
    from fepflow.python_api import run as run
    from fepflow.python_api import run_async as run_async
    from fepflow.python_api import run_variants as run_variants

_HOME = {
    "AnswerRelevancyCheck": "fepflow.checks.answer_relevancy",
    "AttributeExistsCheck": "fepflow.checks.attribute_exists",
    "BaseAsyncCheck": "fepflow.checks.base",
    "BaseCheck": "fepflow.checks.base",
    "Check": "fepflow.protocol.check",
    "CheckError": "fepflow.protocol.results",
    "CheckResult": "fepflow.protocol.results",
    "CheckType": "fepflow.checks.registry",
    "ClassificationCheck": "fepflow.checks.classification",
    "Comparison": "fepflow.python_api",
    "ContainsCheck": "fepflow.checks.contains",
    "ContextPrecisionCheck": "fepflow.checks.context_precision",
    "ContextRecallCheck": "fepflow.checks.context_recall",
    "CustomFunctionCheck": "fepflow.checks.custom_function",
    "DeclaredCheck": "fepflow.checks.declared",
    "DisjointCheck": "fepflow.checks.disjoint",
    "EqualsCheck": "fepflow.checks.equals",
    "ErrorType": "fepflow.protocol.results",
    "EvaluationRunResult": "fepflow.protocol.results",
    "EvaluationSummary": "fepflow.protocol.results",
    "ExactMatchCheck": "fepflow.checks.exact_match",
    "ExecutionContext": "fepflow.protocol.results",
    "ExperimentMetadata": "fepflow.protocol.results",
    "FaithfulnessCheck": "fepflow.checks.faithfulness",
    "FepflowError": "fepflow.errors",
    "InputError": "fepflow.errors",
    "IsEmptyCheck": "fepflow.checks.is_empty",
    "JSONPath": "fepflow.checks.base",
    "JSONPathError": "fepflow.errors",
    "JSONDiffCheck": "fepflow.checks.json_diff",
    "JSONValidCheck": "fepflow.checks.json_valid",
    "LLMJudgeCheck": "fepflow.checks.llm_judge",
    "RecordedScoreCheck": "fepflow.checks.recorded_score",
    "NumberCheck": "fepflow.checks.number",
    "Output": "fepflow.protocol.test_case",
    "PassMode": "fepflow.checks.registry",
    "RagasContextPrecisionCheck": "fepflow.checks.ragas_metrics",
    "RagasContextRecallCheck": "fepflow.checks.ragas_metrics",
    "RagasFactualCorrectnessCheck": "fepflow.checks.ragas_metrics",
    "RagasFaithfulnessCheck": "fepflow.checks.ragas_metrics",
    "RegexCheck": "fepflow.checks.regex",
    "RegexFlags": "fepflow.checks.regex",
    "RubricCheck": "fepflow.checks.rubric",
    "Run": "fepflow.python_api",
    "SchemaValidationCheck": "fepflow.checks.schema_validation",
    "SemanticSimilarityCheck": "fepflow.checks.semantic_similarity",
    "SetEqualCheck": "fepflow.checks.set_equal",
    "SimilarityMetric": "fepflow.checks.registry",
    "SimilarityThreshold": "fepflow.checks.semantic_similarity",
    "Status": "fepflow.protocol.results",
    "SubsetCheck": "fepflow.checks.subset",
    "SupersetCheck": "fepflow.checks.superset",
    "TestCase": "fepflow.protocol.test_case",
    "TestCaseResult": "fepflow.protocol.results",
    "TestCaseSummary": "fepflow.protocol.results",
    "TextDistanceCheck": "fepflow.checks.text_distance",
    "TextMatchCheck": "fepflow.checks.text_match",
    "ThresholdCheck": "fepflow.checks.threshold",
    "ToolUsageCheck": "fepflow.checks.tool_usage",
    "UserError": "fepflow.errors",
    "VariantRuns": "fepflow.python_api",
    "assert_case": "fepflow.checks.engine",
    "check_schema": "fepflow.checks.schemas",
    "compare": "fepflow.python_api",
    "evaluate": "fepflow.checks.engine",
    "evaluate_async": "fepflow.checks.engine",
    "get_check_class": "fepflow.checks.registry",
    "get_latest_version": "fepflow.checks.registry",
    "list_checks": "fepflow.checks.registry",
    "list_versions": "fepflow.checks.registry",
    "load_run": "fepflow.python_api",
    "register": "fepflow.checks.registry",
    "register_embedder": "fepflow.checks.models.model_check",
    "rescore": "fepflow.python_api",
    "run": "fepflow.python_api",
    "run_async": "fepflow.python_api",
    "run_variants": "fepflow.python_api",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    module = _HOME.get(name)
    if module is None:
        raise AttributeError(f"module 'fepflow' has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
