"""Names of check types and of their options as constants; each equals its string."""

from __future__ import annotations

from enum import StrEnum


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
