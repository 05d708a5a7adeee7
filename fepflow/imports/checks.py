"""Checks of imported suites: arguments, ids, and the models that they ask."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from fepflow.imports.imported import Notes
from fepflow.imports.values import unique_names
from fepflow.json.values import map_leaves
from fepflow.jsonpath.path import is_path

OUTPUT = "$.output.value"
JUDGE_MODEL = "openai/gpt-5-mini"
EMBEDDING_MODEL = "openai/text-embedding-3-small"


def literal(value: Any) -> Any:
    """Return a value as an argument of a check: a text that reads like a path is escaped."""
    return map_leaves(value, lambda leaf: f"\\{leaf}" if is_path(str(leaf).removeprefix("\\")) else leaf)


def fit_ids(names: Sequence[str]) -> list[str]:
    """Return unique ids of checks that are as much like the names as an id can be."""
    return unique_names([re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")[:90] or "score" for name in names])


def rubric(criteria: str, *, pass_at: float | None = None) -> dict[str, Any]:
    """Return a check that judges an output by criteria in plain words."""
    limit = {} if pass_at is None else {"pass_at": pass_at}
    return {"type": "rubric", "arguments": {"criteria": criteria, **limit}}


def add_models(suite: dict[str, Any], types: set[str], notes: Notes) -> None:
    """Name the models that checks of these types ask; both are placeholders, which is noted."""
    if types & {"rubric", "faithfulness", "answer_relevancy", "context_precision", "context_recall"}:
        suite["judge"] = {"model_config": {"model": JUDGE_MODEL}}
        notes.by_hand(f"suite.yaml asks {JUDGE_MODEL} as the judge, whose scores are not those of another judge")
    if "semantic_similarity" in types:
        suite["embedding"] = {"model_config": {"model": EMBEDDING_MODEL}}
        notes.by_hand(f"suite.yaml has {EMBEDDING_MODEL} as the model for embeddings", advice="name the one you used")
