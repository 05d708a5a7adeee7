"""promptfoo: prompts and providers as the target of a suite, with variants where there are several."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fepflow.documents.loader import parse_document, parse_json
from fepflow.errors import DocumentPath, InputError, dotted
from fepflow.imports.imported import PLACEHOLDER_URL, Notes
from fepflow.imports.promptfoo_templates import LogicError, has_template, placeholders, without_logic
from fepflow.imports.source import Source
from fepflow.json.values import map_leaves
from fepflow.security.secret_names import is_secret_name
from fepflow.suite.target import MODEL_PARAMETERS
from fepflow.text import brief

_MODELS = {
    "openai": "openai",
    "anthropic": "anthropic",
    "google": "gemini",
    "vertex": "vertex_ai",
    "ollama": "ollama",
    "mistral": "mistral",
    "groq": "groq",
    "openrouter": "openrouter",
    "deepseek": "deepseek",
    "cohere": "cohere",
    "togetherai": "together_ai",
    "xai": "xai",
    "bedrock": "bedrock",
    "cerebras": "cerebras",
    "perplexity": "perplexity",
}
"""Providers of promptfoo, as litellm names them."""

_KINDS = ("chat", "messages", "responses")
_NO_MODELS = {
    *("completion", "embedding", "embeddings", "moderation", "image", "realtime", "assistant", "audio", "video"),
    *("speech", "transcription", "live", "kb", "knowledge-base", "agents", "agent", "chatkit", "codex-sdk"),
    *("claude-agent-sdk", "claude-code"),
}
"""Parts of provider ids after a vendor's name that do not name a model for messages."""
_CODE = re.compile(r"(file|exec|python|javascript|golang|ruby|webhook|browser|package):|.*\.(js|ts|mjs|cjs|py|rb|go)\b")
_IS_FILE = re.compile(r"[^\s{}]+\.(txt|md|json|ya?ml|j2|jinja2?|csv)")
_IS_CODE_FILE = re.compile(r"[^\s{}]+\.(js|ts|mjs|cjs|py)(:\w+)?")
_OF_ANSWER = re.compile(r"(?:\(?json\)?|response\.json)((?:\.[A-Za-z_]\w*|\[\d+\]|\[['\"]\w+['\"]\])+)")


@dataclass
class Prompts:
    """The prompts of a config: a text with placeholders of ours each, or messages."""

    texts: list[str] = field(default_factory=list)
    messages: list[dict[str, Any]] | None = None


class TargetReader:
    """Reads prompts and providers of one config. Nothing that they name is executed, or read from elsewhere."""

    def __init__(self, source: Source, config: Mapping[str, Any], notes: Notes) -> None:
        self._source = source
        self._config = config
        self._notes = notes
        self.files: dict[str, str] = {}
        self._texts: set[str] = set()

    def sections(self) -> dict[str, Any]:
        """Return `target`, with `variants` if there are several. Without a provider that has a counterpart, an endpoint
        that is a placeholder gets the prompts."""
        prompts = self._prompts()
        providers = self._providers()
        models = [provider for provider in providers if "model" in provider]
        endpoints = [provider for provider in providers if "url" in provider]
        if models:
            if endpoints:
                self._by_hand("endpoints beside models: only the models were imported", ("providers",))
            return self._of_models(models, prompts)
        if endpoints:
            if len(endpoints) > 1:
                self._by_hand(f"of {len(endpoints)} endpoints only the first was imported", ("providers",))
            return self._of_endpoint(endpoints[0], prompts)
        if not prompts.texts and prompts.messages is None:
            return {}  # a placeholder is written for every suite without a target
        what = "no provider was imported, so the target in suite.yaml is a placeholder that gets the prompt"
        self._by_hand(what, (self._section,), "write how your agent is called: http, openai, python, …")
        return self._of_endpoint({"url": PLACEHOLDER_URL, "config": {}, "path": (self._section,)}, prompts)

    @property
    def _section(self) -> str:
        return "targets" if "targets" in self._config else "providers"

    def _by_hand(self, what: str, path: DocumentPath, advice: str | None = None) -> None:
        self._notes.by_hand(what, self._source.line_of(path), dotted(path), advice)

    def _prompts(self) -> Prompts:
        declared = self._config.get("prompts")
        if declared is None and self._section in self._config:
            declared = "{{prompt}}"  # as promptfoo has it
        listed = declared if isinstance(declared, list) else [] if declared is None else [declared]
        if isinstance(declared, dict):
            listed = list(declared)
        found = Prompts()
        for index, item in enumerate(listed):
            path: DocumentPath = ("prompts", index) if isinstance(declared, list) else ("prompts",)
            for text in self._texts_of(item, path):
                self._add(found, text, path, alone=len(listed) == 1)
        self._notes.came(prompt=len(found.texts) + (found.messages is not None))
        return found

    def _texts_of(self, item: Any, path: DocumentPath) -> list[str]:
        """Return the texts of a prompt: its own, or those of the file that it names, below the config's folder."""
        if isinstance(item, dict):
            item = item.get("raw") or item.get("id") or item.get("prompt")
        if not isinstance(item, str):
            self._by_hand("a prompt that is no text is left out", path)
            return []
        is_named = item.startswith("file://")
        name = item.removeprefix("file://")
        if _IS_CODE_FILE.fullmatch(name):
            self._by_hand(f"the prompt {brief(name, 80)} is code, which is not executed", path, "write it as a text")
            return []
        if not is_named and not (_IS_FILE.fullmatch(name) and "\n" not in name):
            return [item]
        if "*" in name and (names := self._source.matching(name)):
            return [text for each in names for text in self._texts_of(f"file://{each}", path)]
        text = read_beside(self._source, name)
        if text is None:
            what = f"the prompt {brief(name, 80)} is not a file below the config's folder, so it is left out"
            self._by_hand(what, path)
            return []
        if name.endswith(".txt"):
            return [part.strip() for part in re.split(r"^---\s*$", text, flags=re.MULTILINE) if part.strip()]
        return [text]

    def _add(self, found: Prompts, text: str, path: DocumentPath, *, alone: bool) -> None:
        messages = _messages_of(text)
        if text in self._texts:
            self._by_hand("a prompt that appears twice was imported once", path)
            return
        self._texts.add(text)
        try:
            if messages is not None and alone:
                found.messages = [{**message, "content": placeholders(str(message["content"]))} for message in messages]
                return
            found.texts.append(placeholders(text))
        except LogicError as error:
            self._by_hand(
                f"a prompt was imported without what only nunjucks does: {error}", path, "see what is in [[ ]]"
            )
            found.texts.append(without_logic(text))
        if messages is not None:
            self._by_hand("a prompt that is a list of messages was imported as one text", path, "write target.messages")

    def _providers(self) -> list[dict[str, Any]]:
        name = self._section
        declared = self._config.get(name)
        listed = declared if isinstance(declared, list) else [] if declared is None else [declared]
        found = []
        for index, item in enumerate(listed):
            path: DocumentPath = (name, index) if isinstance(declared, list) else (name,)
            provider = self._provider(item, path)
            if provider is not None:
                found.append(provider)
        return found

    def _provider(self, item: Any, path: DocumentPath) -> dict[str, Any] | None:
        if isinstance(item, dict) and "id" not in item and len(item) == 1:  # {openai:gpt-5: {config: ...}}
            name, rest = next(iter(item.items()))
            item = {"id": name, **(rest if isinstance(rest, dict) else {})}
        identity = item.get("id") if isinstance(item, dict) else item
        config = item.get("config") if isinstance(item, dict) and isinstance(item.get("config"), dict) else {}
        assert isinstance(config, dict)
        if not isinstance(identity, str):
            self._by_hand("a provider without an id is left out", path)
            return None
        if isinstance(item, dict):
            for member in ("transform", "prompts", "delay", "inputs"):
                if item.get(member) is not None:
                    self._by_hand(f"{member} of a provider has no counterpart", (*path, member))
        if identity in ("http", "https") or identity.startswith(("http://", "https://")):
            url = config.get("url") if identity in ("http", "https") else identity
            return self._endpoint(url, config, path)
        if _CODE.match(identity):
            what = f"the provider {brief(identity, 80)} is code, which is not executed"
            self._by_hand(what, path, "call it with target: {python: file.py:function}")
            return None
        return self._model(identity, config, path)

    def _model(self, identity: str, config: Mapping[str, Any], path: DocumentPath) -> dict[str, Any] | None:
        vendor, _, rest = identity.partition(":")
        kind, _, name = rest.partition(":")
        if kind not in _KINDS:
            kind, name = "", rest
        if vendor not in _MODELS or not name or rest.partition(":")[0] in _NO_MODELS:
            what = f"the provider {brief(identity, 80)} has no counterpart that is known here"
            self._by_hand(what, path, "write target: {openai: {model: …}} with the model as litellm names it")
            return None
        api = "responses" if kind == "responses" else "chat"
        provider: dict[str, Any] = {"model": f"{_MODELS[vendor]}/{name}", "api": api, "parameters": {}}
        for member, value in config.items():
            if member in MODEL_PARAMETERS[api] and not has_template(value) and value is not None:
                provider["parameters"][member] = value
            elif member == "apiBaseUrl" and isinstance(value, str) and not has_template(value):
                provider["base_url"] = value
            elif is_secret_name(member) or member in ("apiKey", "apiKeyEnvar"):
                self._by_hand("keys are not taken over", (*path, "config"), "set api_key: ${NAME}")
            else:
                self._by_hand(f"{brief(member, 60)} of a provider has no counterpart", (*path, "config", member))
        return provider

    def _endpoint(self, url: Any, config: Mapping[str, Any], path: DocumentPath) -> dict[str, Any] | None:
        if not isinstance(url, str) or not url.startswith(("http://", "https://")) or has_template(url):
            self._by_hand("an endpoint whose address is a template, or none, is left out", path)
            return None
        known = ("url", "method", "headers", "body", "transformResponse", "responseParser")
        for member in config:
            if member not in known:
                self._by_hand(f"{brief(member, 60)} of an endpoint has no counterpart", (*path, "config", member))
        return {"url": url, "config": config, "path": path}

    def _of_models(self, models: Sequence[dict[str, Any]], prompts: Prompts) -> dict[str, Any]:
        first, sections, variants = models[0], dict[str, Any](), dict[str, Any]()
        names = list(dict.fromkeys(model["model"] for model in models))
        target: dict[str, Any] = {"model": names[0]}
        if len(names) > 1:
            variants["model"], target["model"] = names, "${variant.model}"
        rest = {name: value for name, value in first.items() if name != "model"}
        if any({name: value for name, value in model.items() if name != "model"} != rest for model in models):
            self._by_hand("providers are configured differently: all have what the first one has", ("providers",))
        if first["api"] != "chat":
            target["api"] = first["api"]
        if "base_url" in first:
            target["base_url"] = first["base_url"]
        if prompts.messages is not None:
            target["messages"] = prompts.messages
        elif prompts.texts:
            target["prompt"] = self._prompt(prompts, variants)
        if first["parameters"]:
            target["parameters"] = first["parameters"]
        self._notes.came(provider=len(names))
        if variants:
            sections["variants"] = variants
        return {**sections, "target": {"openai": target}}

    def _prompt(self, prompts: Prompts, variants: dict[str, Any]) -> str:
        if len(prompts.texts) == 1 and _is_safe_inline(prompts.texts[0]):
            return prompts.texts[0]
        for number, text in enumerate(prompts.texts, 1):
            self.files[f"prompts/{number}.md"] = text
        if len(prompts.texts) == 1:
            return "prompts/1.md"
        variants["prompt"] = list(self.files)
        return "${variant.prompt}"

    def _of_endpoint(self, endpoint: Mapping[str, Any], prompts: Prompts) -> dict[str, Any]:
        config, path, variants = endpoint["config"], endpoint["path"], dict[str, Any]()
        http: dict[str, Any] = {"url": endpoint["url"]}
        if isinstance(method := config.get("method"), str) and method.upper() != "POST":
            http["method"] = method.upper()
        headers = config.get("headers")
        for name, value in headers.items() if isinstance(headers, dict) else ():
            if has_template(value) or is_secret_name(name) or "$" in str(value):
                self._by_hand("a header that is a template or a secret is not taken over", (*path, "config", "headers"))
            elif str(name).lower() not in ("content-type", "content-length", "host"):
                http.setdefault("headers", {})[name] = str(value)
        prompt = json.dumps(prompts.messages) if prompts.messages is not None else ""
        if prompts.texts:
            prompt = prompts.texts[0]
        if len(prompts.texts) > 1:
            variants["prompt"] = prompts.texts
            prompt = "${variant.prompt}"
        body = config.get("body")
        if isinstance(body, str):
            try:
                body = parse_json(body, self._source.name, nan=True)
            except InputError:
                self._by_hand("a body that is no JSON was imported as a text", (*path, "config", "body"))
        try:
            filled = map_leaves(body, partial(_filled, prompt=prompt))
            http["body"] = filled if body is not None else {"prompt": prompt}
        except LogicError as error:
            self._by_hand(f"the body was not imported: {error}", (*path, "config", "body"))
            http["body"] = {"prompt": prompt}
        if (transform := config.get("transformResponse", config.get("responseParser"))) is not None:
            match = _OF_ANSWER.fullmatch(transform.strip()) if isinstance(transform, str) else None
            if match is None:
                what = "transformResponse is code, which is not executed: checks see the whole response"
                self._by_hand(what, (*path, "config", "transformResponse"), "name the answer in target.http.output")
            else:
                http["output"] = f"${match[1]}"
        if endpoint["url"] != PLACEHOLDER_URL:
            self._notes.came(provider=1)
        return {**({"variants": variants} if variants else {}), "target": {"http": http}}


def read_beside(source: Source, name: str) -> str | None:
    """Return the text of a file that a config names; None if it is not there, or not below the config's folder."""
    path = source.beside(name)
    if path is None:
        return None
    try:
        return Source(path, name).text(5_000_000)
    except InputError:
        return None


def value_beside(source: Source, name: str) -> Any:
    """Return the JSON or YAML value of a file that a config names, or its text. Raises InputError, KeyError."""
    text = read_beside(source, name)
    if text is None:
        raise KeyError(name)
    if name.endswith((".json", ".yaml", ".yml")):
        return parse_document(text, name).data
    return text.strip()


def _messages_of(text: str) -> list[dict[str, Any]] | None:
    """Return the messages that a prompt is as JSON or YAML; None for a text."""
    stripped = text.strip()
    if not stripped.startswith(("[", "- role")):
        return None
    try:
        value = parse_document(stripped, "prompt.json" if stripped.startswith("[") else "prompt.yaml").data
    except InputError:
        return None
    are_messages = isinstance(value, list) and all(
        isinstance(item, dict) and isinstance(item.get("role"), str) and isinstance(item.get("content"), str)
        for item in value
    )
    return value if are_messages and value else None


def _filled(value: Any, prompt: str) -> Any:
    """Return a body of ours: `{{prompt}}` is the prompt, other names are those of the test case's input."""
    if not isinstance(value, str):
        return value
    parts = re.split(r"\{\{-?\s*prompt(?:\s*\|\s*(?:dump|safe))?\s*-?\}\}", value)
    return prompt.join(placeholders(part) for part in parts)


def _is_safe_inline(text: str) -> bool:
    """Return whether a prompt may stand in the suite: one line that reads like no file and refers to nothing."""
    is_like_a_file = re.fullmatch(r"[^\n{}]+\.(md|txt)", text, re.IGNORECASE) or re.fullmatch(
        r"[^\s{}]*/[^\s{}]*", text
    )
    return "\n" not in text and "$" not in text.replace("{{$.", "") and not is_like_a_file
