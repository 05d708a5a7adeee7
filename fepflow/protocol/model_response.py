"""Cached responses of models."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from fepflow.protocol.model import utc_now

Kind = Literal["judge", "embedding"]
"""Kinds of requests to models, each named as the section of a suite with the defaults of such checks."""


@dataclass(frozen=True, slots=True)
class CachedResponse:
    """A valid response of a model, with the usage of its requests; None for unreported values.

    `text` is the unchanged response, or a vector in the form of `fepflow.calls.models.embeddings`. `model` is the name
    in the request, `response_model` the name in the response; `mode` is the output mode of a judge.
    """

    kind: Kind
    model: str
    response_model: str
    mode: str | None
    text: str
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cost_usd: float | None = None
    dropped_params: tuple[str, ...] = ()
    responded_at: datetime = field(default_factory=utc_now)
