"""What a caller asks of a run beyond the suite file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fepflow.analysis.sampling import DEFAULT_SEED


@dataclass(frozen=True)
class RunOptions:
    """None leaves the file's word standing."""

    limit: float | None = None
    """Only a random sample of so many cases; below 1 a fraction of them."""
    seed: int = DEFAULT_SEED
    """Of the sample."""
    repeats: int | None = None
    concurrency: int | None = None
    timeout: float | None = None
    """Seconds that one call may take; of an ECP agent, its start and each step."""
    tags: Sequence[str] = ()
    metadata: dict[str, str] = field(default_factory=dict)
    """Only cases whose metadata has these values."""
    failing_in: str | None = None
    """Only cases that did not pass in this run."""
    cases: frozenset[str] | None = None
    """Only the cases with these ids."""
    verdict_mode: str | None = None
    cache: bool | None = None
    """Whether answers of models that are kept are used."""
