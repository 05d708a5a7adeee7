"""What is known of a model without calling it: its provider, its price, and what it lacks. Loads litellm."""

from __future__ import annotations

from fepflow.errors import MissingExtraError
from fepflow.extras import require
from fepflow.models import _litellm
from fepflow.models.model import Model

_SELF_HOSTED = frozenset({"hosted_vllm", "custom_openai", "openai_like", "lm_studio", "llamafile", "litellm_proxy"})
"""Providers that are servers of one's own. Without an address litellm would ask OpenAI instead."""


def problem(model: Model) -> str | None:
    """Return why the model cannot be called at all: no litellm, an unknown provider, a missing key or address."""
    try:
        require("run", f"asking the model {model.name}", "litellm", "tenacity")
    except MissingExtraError as error:
        return str(error)
    litellm = _litellm.load()
    try:
        _, provider, _, base = litellm.get_llm_provider(model=model.name, api_base=model.api_base)
    except Exception:
        return (
            f"no provider is known for the model {model.name} (write it as provider/model, such as openai/{model.name})"
        )
    if provider in _SELF_HOSTED and not (model.api_base or base):
        return f"{model.name} is a server of your own: say where, with api_base"
    try:
        found = litellm.validate_environment(model.name, api_key=model.api_key, api_base=model.api_base)
    except Exception:  # a provider that it cannot look up: the request itself will fail
        return None
    missing = found.get("missing_keys") or []
    if not missing:
        return None
    advice = "export it, or name another variable: provider_config: {api_key: ${NAME}}"
    return f"{model.name} needs {' and '.join(missing)}, not set in the environment ({advice})"


def provider_of(model: Model) -> str:
    """The provider as litellm names it; empty if it knows none."""
    try:
        return str(_litellm.load().get_llm_provider(model=model.name, api_base=model.api_base)[1])
    except Exception:
        return ""


def has_price(model: Model) -> bool:
    """Whether litellm's price list has the model."""
    return _litellm.cost(model, 1_000, 1_000) is not None
