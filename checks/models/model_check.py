"""The base of checks that call a model: a user's function, or one that a client makes requests to."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from fepflow.checks.base import BaseAsyncCheck, JSONPath
from fepflow.checks.models.embedders import is_local
from fepflow.models import providers
from fepflow.models.configuration import EMBEDDING, parse_model_config
from fepflow.models.model import Model, Usage
from fepflow.models.model_requests import ModelRequests, nested_or_own
from fepflow.protocol.model_response import Kind

NO_VERDICTS = "{} is an embedder, and gives no verdicts"


class ModelCheck(BaseAsyncCheck):
    """A check that calls a model. Neither model nor endpoint is ever read from a test case or an output."""

    check_kind: ClassVar[Kind]

    async def __call__(self) -> dict[str, Any]:
        """The results, by the requests of the user's check in which it is called, else by a client of its own."""
        async with nested_or_own() as requests:
            return await self.check_call(requests)

    @abstractmethod
    async def check_call(self, requests: ModelRequests) -> dict[str, Any]:
        """The results, by these requests."""

    @abstractmethod
    def check_model(self) -> Model | None:
        """The model, with its key; None if a function is asked. Raises ValueError for one that is not configured."""

    def check_config_error(self) -> str | None:
        """Why the model cannot be called, by its configuration. Takes seconds the first time."""
        model = self.check_model()
        return None if model is None else providers.problem(model)

    def check_config_warnings(self) -> list[str]:
        """Warnings about the model's configuration."""
        return []

    def check_unpriced(self) -> str | None:
        """The name of the model, if its price is unknown."""
        model = self.check_model()
        return None if model is None or is_local(model) or providers.has_price(model) else model.name


def model_of(
    function: object, model_config: Any, provider_config: Any, known: Mapping[str, Any], needed: str
) -> Model | None:
    """The model that arguments describe; None when there is a function. Raises ValueError (`needed` for none)."""
    if function is not None:
        return None
    for name, value in (("model_config", model_config), ("provider_config", provider_config)):
        if isinstance(value, JSONPath):
            raise ValueError(f"{name} must stand in the check: no path may say which model is asked, or where")
    if not model_config:
        raise ValueError(needed)
    model = parse_model_config(model_config, provider_config, known)
    if is_local(model) and known is not EMBEDDING:
        raise ValueError(f"model_config: {NO_VERDICTS.format(model.name)}")
    return model


def spent(usage: Usage) -> dict[str, Any]:
    """Usage of a response, for metadata; None is unknown."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "cost_usd": usage.cost_usd,
    }
