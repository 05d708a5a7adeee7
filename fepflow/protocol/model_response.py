"""What a model answered, as it is kept to be used again."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from fepflow.protocol.model import utc_now

Kind = Literal["judge", "embedding"]
"""What a model is asked for, and the section of a suite that holds what its checks do not say themselves."""


@dataclass(frozen=True, slots=True)
class CachedResponse:
    """One answer that was found to be of use, with what it took when it was asked for; None is what was not reported.

    `text` is the answer as it came, a vector in the form of `fepflow.llm.embeddings`. `model` is the one that was
    asked, `response_model` the one that says that it answered; `mode` is how a judge was asked.
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
