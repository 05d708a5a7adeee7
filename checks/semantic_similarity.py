"""`semantic_similarity`: two texts mean the same (FEP 2.3.6)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, StrictBool, model_validator
from pydantic.json_schema import SkipJsonSchema

from fepflow.calls.models.client import ModelRequests
from fepflow.calls.models.embeddings import embed
from fepflow.calls.models.model import EMBEDDING, Model, sendable
from fepflow.checks.base import EXPECTED, OUTPUT, JSONPath, Options, PathText
from fepflow.checks.explanation import ResolvedArguments, out_of_bounds
from fepflow.checks.models.model_check import (
    ModelCheck,
    call,
    config_error_of,
    is_local,
    model_of,
    response_metadata,
    sender,
)
from fepflow.checks.threshold import is_within
from fepflow.errors import CheckArgumentsError
from fepflow.protocol.content_hash import Kind

Vector = Sequence[float]
Bound = Annotated[float, Field(ge=0, le=1, strict=True)]


class SimilarityThreshold(Options):
    """Bounds of a similarity."""

    min_value: Bound | PathText | None = Field(default=None, description="Smallest acceptable score.")
    max_value: Bound | PathText | None = Field(default=None, description="Largest acceptable score.")
    min_inclusive: StrictBool | PathText = Field(default=True, description="Whether min_value itself is acceptable.")
    max_inclusive: StrictBool | PathText = Field(default=True, description="Whether max_value itself is acceptable.")
    negate: StrictBool | PathText = Field(default=False, description="Pass if the score is out of bounds.")

    @model_validator(mode="after")
    def _has_a_bound(self) -> SimilarityThreshold:
        if self.min_value is None and self.max_value is None:
            raise ValueError("give min_value, max_value, or both")
        return self

    def holds(self, score: float) -> bool:
        """Return whether the score passes."""
        return (
            is_within(score, self.min_value, self.max_value, self.min_inclusive, self.max_inclusive) is not self.negate
        )


NEEDED = "semantic_similarity needs a model: name one in model_config, or give embedding_function, from code"


class SemanticSimilarityCheck(ModelCheck):
    """Measure how similar two texts are, by their embeddings. Results: `{response: {score, passed}, metadata: object}`.

    The score is between 0 and 1. `passed` is returned only with a threshold. A similarity outside 0 to 1 (opposite
    vectors have a negative cosine) counts as 0 or 1, and `metadata.raw_score` has the original value. `euclidean`
    is `1 / (1 + distance)`. The score tells whether texts have the same topic, not whether they agree: a sentence
    and its negation are very similar. [judges.md](judges.md) describes how to configure models.
    """

    check_type: ClassVar[str] = "semantic_similarity"
    check_kind: ClassVar[Kind] = "embedding"
    check_secrets: ClassVar[frozenset[str]] = frozenset({"provider_config"})

    text: str | JSONPath = Field(default=OUTPUT, description="Text to check.")
    reference: str | JSONPath = Field(default=EXPECTED, description="Text to compare with.")
    threshold: SimilarityThreshold | PathText | None = Field(
        default=None, description="`{min_value, max_value, min_inclusive, max_inclusive, negate}`."
    )
    similarity_metric: Literal["cosine", "dot", "euclidean"] | PathText = Field(
        default="cosine", description="Measure of similarity."
    )
    embedding_function: SkipJsonSchema[Callable[..., Any] | None] = Field(
        default=None, description="Function `(text) -> list of numbers`, sync or async; from code only."
    )
    provider_config: dict[str, Any] | JSONPath = Field(
        default={}, description="Address and access of the model: `{api_base, api_key: ${NAME}, timeout, max_retries}`."
    )
    embedding_config: dict[str, Any] | JSONPath = Field(
        default={}, alias="model_config", description="Embedding model: `{model, dimensions}`."
    )

    @model_validator(mode="after")
    def _has_a_model(self) -> SemanticSimilarityCheck:
        self._model()
        return self

    def check_models(self) -> list[Model]:
        """See ModelCheck."""
        model = self._model()
        return [] if model is None else [model]

    def _model(self) -> Model | None:
        return model_of(self.embedding_function, self.embedding_config, self.provider_config, EMBEDDING, NEEDED)

    def check_config_error(self) -> str | None:
        """See ModelCheck."""
        model = self._model()
        return config_error_of(model) if model is not None and is_local(model) else super().check_config_error()

    async def check_call(self, requests: ModelRequests) -> dict[str, Any]:
        """Embed both texts, and compare."""
        model = self._model()
        details: dict[str, Any] = {}
        if model is None:
            left, right = await self._embed(self.text), await self._embed(self.reference)
        else:
            left, right, details = await self._embed_pair(requests, model)
        if len(left) != len(right):
            raise CheckArgumentsError(f"the embeddings have {len(left)} and {len(right)} dimensions")
        raw = _SIMILARITIES[str(self.similarity_metric)](left, right)
        if not math.isfinite(raw):
            raise CheckArgumentsError("the embeddings' numbers are too large to be compared")
        response: dict[str, Any] = {"score": min(max(raw, 0.0), 1.0)}
        if isinstance(self.threshold, SimilarityThreshold):
            response["passed"] = self.threshold.holds(response["score"])
        metadata = {"similarity_metric": self.similarity_metric, "raw_score": raw, "dimensions": len(left), **details}
        return {"response": response, "metadata": metadata}

    async def _embed_pair(self, requests: ModelRequests, model: Model) -> tuple[Vector, Vector, dict[str, Any]]:
        """Return the vectors of both texts, and their metadata."""
        for name, text in (("text", self.text), ("reference", self.reference)):
            if not str(text).strip():
                raise CheckArgumentsError(f"{name} is empty: there is nothing to compare, and no model was asked")
        own = sender(model) if is_local(model) else ()
        answer = await embed(requests, model, [sendable(str(self.text)), sendable(str(self.reference))], *own)
        left, right = answer.vectors
        return left, right, response_metadata(model, answer)

    async def _embed(self, text: Any) -> Vector:
        vector = await call(self.embedding_function, text)  # type: ignore[arg-type]  # there is one, see _has_a_model
        try:
            numbers = [float(number) for number in vector]
        except (TypeError, ValueError, OverflowError):
            raise CheckArgumentsError("embedding_function must return a list of numbers") from None
        if not numbers or not all(map(math.isfinite, numbers)):
            raise CheckArgumentsError("embedding_function must return finite numbers, at least one")
        return numbers

    @classmethod
    def check_explanation(cls, resolved: ResolvedArguments, results: Mapping[str, Any]) -> str | None:
        """See BaseCheck."""
        return out_of_bounds(results["response"]["score"], resolved["threshold"], "score ")


def _dot(left: Vector, right: Vector) -> float:
    return sum(one * other for one, other in zip(left, right, strict=True))


def _cosine(left: Vector, right: Vector) -> float:
    one, other = _scaled(left), _scaled(right)
    return _dot(one, other) / math.sqrt(_dot(one, one) * _dot(other, other))


def _scaled(vector: Vector) -> Vector:
    """Return the same direction, in a size that can be squared."""
    largest = max(map(abs, vector))
    if largest == 0:
        raise CheckArgumentsError("an embedding of zeros only has no direction, so no cosine")
    return [number / largest for number in vector]


def _euclidean(left: Vector, right: Vector) -> float:
    return 1 / (1 + math.dist(left, right))


_SIMILARITIES: dict[str, Callable[[Vector, Vector], float]] = {"cosine": _cosine, "dot": _dot, "euclidean": _euclidean}
