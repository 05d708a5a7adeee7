"""A check of one's own as the README of flex-evals writes it; only its imports differ."""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator

from fepflow import BaseCheck, JSONPath, register


def register_my_check() -> type[BaseCheck]:
    """Define and register it."""

    @register("my_check", version="1.0.0")
    class MyCheck(BaseCheck):
        """Custom check with paths."""

        text: str | JSONPath = Field(..., description="Text to analyze")
        pattern: str | JSONPath = Field(..., description="Pattern to match")
        threshold: float | JSONPath = Field(0.5, description="Minimum score threshold")

        @field_validator("text", "pattern", "threshold", mode="before")
        @classmethod
        def convert_jsonpath(cls, v: Any) -> Any:
            if isinstance(v, str) and v.startswith("$."):
                return JSONPath(expression=v)
            return v

        def __call__(self) -> dict[str, Any]:
            score = your_analysis(self.text, self.pattern)
            return {"score": score, "passed": score >= self.threshold, "threshold_used": self.threshold}

    return MyCheck


def your_analysis(text: Any, pattern: Any) -> float:
    return float(pattern in text)
