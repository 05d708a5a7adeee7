"""Parses a model's configuration in a check's arguments. A key comes from the environment, by its name only."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from fepflow.documents.did_you_mean import did_you_mean
from fepflow.env_file import SUITE_VARIABLES
from fepflow.models.model import ATTEMPTS, TIMEOUT, Model
from fepflow.security.addresses import address_problem
from fepflow.security.secret_names import is_secret_name
from fepflow.suite.env_vars import Reference, address_holds_literal_secret, expand

_LONGEST_TIMEOUT = 600.0
_MOST_ATTEMPTS = 10
_OTHER_NAMES = {"base_url": "api_base"}
_PROVIDER = ("api_base", "api_key", "api_version", "base_url", "max_retries", "provider_name", "timeout")

CHAT: Mapping[str, Any] = {
    "temperature": 0.0,
    "max_tokens": 1024,
    "top_p": None,
    "seed": None,
    "frequency_penalty": None,
    "presence_penalty": None,
    "reasoning_effort": None,
}
"""Parameters of chat models, and those that go with every request."""

EMBEDDING: Mapping[str, Any] = {"dimensions": None}


def parse_model_config(
    model_config: Mapping[str, Any],
    provider_config: Mapping[str, Any],
    known: Mapping[str, Any],
    env: Mapping[str, str] = SUITE_VARIABLES,
) -> Model:
    """The model that two arguments of a check describe; `known` are its parameters. Raises ValueError."""
    _refuse_unknown("model_config", model_config, ("model", "api_base", *known))
    _refuse_unknown("provider_config", provider_config, _PROVIDER)
    _refuse_literal_secrets(model_config, provider_config)
    where = {_OTHER_NAMES.get(name, name): _expanded(name, value, env) for name, value in provider_config.items()}
    if "api_base" in model_config:
        where["api_base"] = _expanded("api_base", model_config["api_base"], env)
    defaults = {name: value for name, value in known.items() if value is not None}
    given = {name: value for name, value in model_config.items() if name in known and value is not None}
    name = _name(model_config, where)
    if isinstance(where.get("api_base"), str) and (problem := address_problem(where["api_base"])):
        raise ValueError(f"api_base: {problem[0]} ({problem[1]})")
    return Model(
        name,
        _text("api_base", where),
        _text("api_key", where),
        _text("api_version", where),
        {**defaults, **given},
        _number("timeout", where, TIMEOUT, _LONGEST_TIMEOUT),
        1 + int(_number("max_retries", where, ATTEMPTS - 1, _MOST_ATTEMPTS - 1)),
        _usual_bases(name),
    )


def _usual_bases(name: str) -> tuple[str, ...]:
    """The addresses that litellm may take from the environment; of a name without a provider, those of any provider."""
    provider, slash, _ = name.partition("/")
    family = re.escape(provider.upper().replace("-", "_").removesuffix("_CHAT")) if slash else r"\w+"
    pattern = re.compile(rf"{family}_(API_BASE|BASE_URL)")
    return tuple(value for variable, value in sorted(os.environ.items()) if pattern.fullmatch(variable) and value)


def _name(model_config: Mapping[str, Any], where: Mapping[str, Any]) -> str:
    name, provider = model_config.get("model"), where.get("provider_name")
    if not isinstance(name, str) or not name.strip():
        raise ValueError("model_config must name a model, such as model: openai/gpt-4o-mini")
    return f"{provider}/{name}" if provider and not name.startswith(f"{provider}/") else name


def _refuse_unknown(argument: str, given: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for name in given:
        if name in known:
            continue
        if argument == "model_config" and name in _PROVIDER:
            raise ValueError(f"model_config: {name} belongs into provider_config")
        raise ValueError(f"{argument} does not know {name} ({did_you_mean(str(name), known)})")


def _refuse_literal_secrets(model_config: Mapping[str, Any], provider_config: Mapping[str, Any]) -> None:
    key = provider_config.get("api_key")
    if key is not None and not _is_reference(key):
        raise ValueError("provider_config.api_key: a secret must not stand in the suite: write it as ${NAME}")
    for base in (model_config.get("api_base"), provider_config.get("api_base"), provider_config.get("base_url")):
        if isinstance(base, str) and address_holds_literal_secret(base):
            raise ValueError("a secret must not stand in the address: write api_base as ${NAME}")


def _is_reference(text: Any) -> bool:
    """Whether it is `${NAME}`, without a default, and nothing else."""
    found: list[Reference] = []
    rest = expand(text, (), {}, found)
    return len(found) == 1 and found[0].missing and rest == f"${{{found[0].name}}}"


def _expanded(name: str, value: Any, env: Mapping[str, str]) -> Any:
    references: list[Reference] = []
    expanded = expand(value, (name,), env, references)
    for reference in references:
        if name != "api_key" and is_secret_name(reference.name):
            raise ValueError(
                f"provider_config.{name}: ${{{reference.name}}} is named like a secret, and is not sent there"
            )
        if reference.missing:
            message = f"${{{reference.name}}} is not set in the environment (export {reference.name})"
            raise ValueError(f"provider_config.{name}: {message}")
    return expanded


def _text(name: str, where: Mapping[str, Any]) -> str | None:
    value = where.get(name)
    if value is not None and not (isinstance(value, str) and value):
        raise ValueError(f"provider_config.{name} must be a text")
    return value


def _number(name: str, where: Mapping[str, Any], default: float, most: float) -> float:
    value = where.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise ValueError(f"provider_config.{name} must be a number from 0 to {most:g}")
    return float(value) or default if name == "timeout" else float(value)
