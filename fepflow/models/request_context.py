"""Limits of the requests that one check makes to models, and what their responses have cost."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fepflow.calls.policy import RunBudget
from fepflow.models.model import Usage

DEFAULT_CONCURRENCY = 16
"""Requests at once, for each provider, address and key."""


@dataclass
class RequestContext:
    """Limits and usage of the requests of one check.

    `concurrency` is how many requests may be under way at one endpoint, of all checks that have the same number.
    `repeat` counts the target's outputs for a case, from 0: judgements of two repeats never share a cached response.
    Without `retry` each prompt makes one request, and only the caller tries again.
    """

    budget: RunBudget = field(default_factory=RunBudget)
    concurrency: int = DEFAULT_CONCURRENCY
    repeat: int = 0
    retry: bool = True
    requests: int = 0
    responses: int = 0
    tokens: int = 0
    usd: float = 0.0
    unknown_tokens: int = 0
    unknown_usd: int = 0
    """Responses whose cost is not known; it is not in `tokens` and `usd`."""

    def record(self, usage: Usage) -> None:
        """Count a response, of use or not. A cached one costs nothing, and is not recorded."""
        self.responses += 1
        known = usage.prompt_tokens is not None and usage.completion_tokens is not None
        tokens = (usage.prompt_tokens or 0) + (usage.completion_tokens or 0) if known else None
        self.budget.spend({"tokens": tokens, "usd": usage.cost_usd})
        self.tokens += tokens or 0
        self.usd += usage.cost_usd or 0.0
        self.unknown_tokens += tokens is None
        self.unknown_usd += usage.cost_usd is None

    def usage(self) -> dict[str, Any]:
        """`{requests, answers, tokens, usd}`, the last two null where no response's is known, and how many are not."""
        usage: dict[str, Any] = {"requests": self.requests, "answers": self.responses}
        for name, known, unknown in (
            ("tokens", self.tokens, self.unknown_tokens),
            ("usd", self.usd, self.unknown_usd),
        ):
            usage[name] = None if unknown and unknown == self.responses else known
            if unknown:
                usage[f"without_{name}"] = unknown
        return usage
