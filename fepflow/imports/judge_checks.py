"""Checks that ask a model, for the rubrics and metrics of other tools that one of ours is a counterpart of."""

from __future__ import annotations

from typing import Any

from fepflow.imports.imported import Notes

JUDGE_MODEL = "openai/gpt-5-mini"
EMBEDDING_MODEL = "openai/text-embedding-3-small"


def rubric(criteria: str, *, pass_at: float | None = None) -> dict[str, Any]:
    """Return a check that judges an output by criteria in plain words."""
    arguments: dict[str, Any] = {"criteria": criteria}
    if pass_at is not None:
        arguments["pass_at"] = pass_at
    return {"type": "rubric", "arguments": arguments}


def add_models(suite: dict[str, Any], types: set[str], notes: Notes) -> None:
    """Name the models that checks of these types ask; both are placeholders, which is noted."""
    if types & {"rubric", "faithfulness", "answer_relevancy", "context_precision", "context_recall"}:
        suite.setdefault("judge", {"model_config": {"model": JUDGE_MODEL}})
        model = suite["judge"]["model_config"]["model"]
        notes.by_hand(f"suite.yaml asks {model} as the judge, whose scores are not those of another judge")
    if "semantic_similarity" in types:
        suite.setdefault("embedding", {"model_config": {"model": EMBEDDING_MODEL}})
        notes.by_hand(f"suite.yaml has {EMBEDDING_MODEL} as the model for embeddings", advice="name the one you used")
