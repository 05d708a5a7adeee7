"""promptfoo: prompts and providers as the target of a suite, with variants where there are several."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fepflow.documents.files import read_text
from fepflow.documents.loader import parse_document, parse_json
from fepflow.errors import DocumentPath, InputError, dotted
from fepflow.imports.imported import PLACEHOLDER_URL, Notes, known, mapping
from fepflow.imports.promptfoo_assertions import LogicError, has_template, placeholders, without_logic
from fepflow.imports.source import Source
from fepflow.json.values import map_leaves
from fepflow.security.redaction import is_secret_name
from fepflow.suite.target import MODEL_PARAMETERS
from fepflow.text import brief

_SAME_NAMES = (
    *("openai", "anthropic", "ollama", "mistral", "groq", "openrouter", "deepseek", "cohere", "xai", "bedrock"),
    *("cerebras", "perplexity"),
)
_MODELS = {name: name for name in _SAME_NAMES}
_MODELS |= {"google": "gemini", "vertex": "vertex_ai", "togetherai": "together_ai"}
"""Providers of promptfoo, with their names in litellm."""

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
_ENDPOINT_MEMBERS = ("url", "method", "headers", "body", "transformResponse", "responseParser")


@dataclass
class Prompts:
    """The prompts of a config: texts with fepflow's placeholders, or the messages of one prompt."""

    texts: list[str] = field(default_factory=list)
    messages: list[dict[str, Any]] | None = None


class TargetReader:
    """Reads prompts and providers of one config. Nothing that they name is executed, or read from elsewhere."""

    def __init__(self, source: Source, config: Mapping[str, Any], notes: Notes) -> None:
        self._source, self._config, self._notes = source, config, notes
        self._section = "targets" if "targets" in config else "providers"
        self.files: dict[str, str] = {}

    def sections(self) -> dict[str, Any]:
        """Return `target`, with `variants` if there are several.

        Without a provider that has a counterpart, an endpoint that is a placeholder gets the prompts.
        """
        prompts = self._prompts()
        providers = [self._provider(item, path) for item, path in self._items(self._section)]
        models = [provider for provider in providers if provider is not None and "model" in provider]
        endpoints = [provider for provider in providers if provider is not None and "url" in provider]
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

    def _by_hand(self, what: str, path: DocumentPath, advice: str | None = None) -> None:
        self._notes.by_hand(what, self._source.line_of(path), dotted(path), advice)

    def _items(self, name: str) -> list[tuple[Any, DocumentPath]]:
        """Return the items of a section that is a list, a mapping by item, or one item, with their paths."""
        declared = self._config.get(name)
        if isinstance(declared, list):
            return [(item, (name, index)) for index, item in enumerate(declared)]
        if name == "prompts" and isinstance(declared, dict):
            return [(item, (name,)) for item in declared]
        return [] if declared is None else [(declared, (name,))]

    def _prompts(self) -> Prompts:
        items = self._items("prompts")
        if self._config.get("prompts") is None and self._section in self._config:
            items = [("{{prompt}}", ("prompts",))]  # promptfoo's default
        prompts, seen = Prompts(), set[str]()
        for item, path in items:
            for text in self._texts_of(item, path):
                if text in seen:
                    self._by_hand("a prompt that appears twice was imported once", path)
                    continue
                seen.add(text)
                self._add(prompts, text, path, alone=len(items) == 1)
        self._notes.came(prompt=len(prompts.texts) + (prompts.messages is not None))
        return prompts

    def _texts_of(self, item: Any, path: DocumentPath) -> list[str]:
        """Return the texts of a prompt: its own, or those of the file that it names, below the config's folder."""
        if isinstance(item, dict):
            item = item.get("raw") or item.get("id") or item.get("prompt")
        if not isinstance(item, str):
            self._by_hand("a prompt that is not a text is left out", path)
            return []
        name = item.removeprefix("file://")
        if _IS_CODE_FILE.fullmatch(name):
            self._by_hand(f"the prompt {brief(name, 80)} is code, which is not executed", path, "write it as a text")
            return []
        if name == item and not _IS_FILE.fullmatch(name):
            return [item]
        if "*" in name and (names := self._source.matching(name)):
            return [text for file in names for text in self._texts_of(f"file://{file}", path)]
        text = read_beside(self._source, name)
        if text is None:
            what = f"the prompt {brief(name, 80)} is not a file below the config's folder, so it is left out"
            self._by_hand(what, path)
            return []
        if name.endswith(".txt"):
            return [part.strip() for part in re.split(r"^---\s*$", text, flags=re.MULTILINE) if part.strip()]
        return [text]

    def _add(self, prompts: Prompts, text: str, path: DocumentPath, *, alone: bool) -> None:
        messages = _messages_of(text)
        try:
            if messages is not None and alone:
                prompts.messages = [{**message, "content": placeholders(message["content"])} for message in messages]
                return
            prompts.texts.append(placeholders(text))
        except LogicError as error:
            what = f"a prompt was imported without what only nunjucks does: {error}"
            self._by_hand(what, path, "see what is in [[ ]]")
            prompts.texts.append(without_logic(text))
        if messages is not None:
            self._by_hand("a prompt that is a list of messages was imported as one text", path, "write target.messages")

    def _provider(self, item: Any, path: DocumentPath) -> dict[str, Any] | None:
        """Return a provider's model or endpoint; None, with a note, if it has no counterpart."""
        if isinstance(item, dict) and "id" not in item and len(item) == 1:  # {openai:gpt-5: {config: ...}}
            ((name, rest),) = item.items()
            item = {"id": name, **mapping(rest)}
        identity = item.get("id") if isinstance(item, dict) else item
        config = mapping(mapping(item).get("config"))
        if not isinstance(identity, str):
            self._by_hand("a provider without an id is left out", path)
            return None
        for member in ("transform", "prompts", "delay", "inputs"):
            if mapping(item).get(member) is not None:
                self._by_hand(f"{member} of a provider has no counterpart", (*path, member))
        if identity in ("http", "https") or identity.startswith(("http://", "https://")):
            return self._endpoint(identity if "://" in identity else config.get("url"), config, path)
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
            self._by_hand(what, path, "write target: {openai: {model: …}} with litellm's name of the model")
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
            self._by_hand("an endpoint without an address, or with a template as its address, is left out", path)
            return None
        for member in config:
            if member not in _ENDPOINT_MEMBERS:
                self._by_hand(f"{brief(member, 60)} of an endpoint has no counterpart", (*path, "config", member))
        return {"url": url, "config": config, "path": path}

    def _of_models(self, models: Sequence[dict[str, Any]], prompts: Prompts) -> dict[str, Any]:
        names = list(dict.fromkeys(model.pop("model") for model in models))
        first, variants = models[0], dict[str, Any]()
        if any(model != first for model in models):
            self._by_hand("providers are configured differently: all have the settings of the first", ("providers",))
        target: dict[str, Any] = {"model": names[0]}
        if len(names) > 1:
            variants["model"], target["model"] = names, "${variant.model}"
        target |= known(api=None if first["api"] == "chat" else first["api"], base_url=first.get("base_url"))
        if prompts.messages is not None:
            target["messages"] = prompts.messages
        elif len(prompts.texts) == 1 and _is_safe_inline(prompts.texts[0]):
            target["prompt"] = prompts.texts[0]
        elif prompts.texts:
            self.files = {f"prompts/{number}.md": text for number, text in enumerate(prompts.texts, 1)}
            target["prompt"] = next(iter(self.files))
            if len(self.files) > 1:
                variants["prompt"], target["prompt"] = list(self.files), "${variant.prompt}"
        if first["parameters"]:
            target["parameters"] = first["parameters"]
        self._notes.came(provider=len(names))
        return {**({"variants": variants} if variants else {}), "target": {"openai": target}}

    def _of_endpoint(self, endpoint: Mapping[str, Any], prompts: Prompts) -> dict[str, Any]:
        config, path = endpoint["config"], (*endpoint["path"], "config")
        http: dict[str, Any] = {"url": endpoint["url"]}
        if isinstance(method := config.get("method"), str) and method.upper() != "POST":
            http["method"] = method.upper()
        for name, value in mapping(config.get("headers")).items():
            if has_template(value) or is_secret_name(name) or "$" in str(value):
                self._by_hand("a header that is a template or a secret is not taken over", (*path, "headers"))
            elif str(name).lower() not in ("content-type", "content-length", "host"):
                http.setdefault("headers", {})[name] = str(value)
        prompt = json.dumps(prompts.messages) if prompts.messages is not None else "".join(prompts.texts[:1])
        variants = {"variants": {"prompt": prompts.texts}} if len(prompts.texts) > 1 else {}
        http["body"] = self._body(config.get("body"), "${variant.prompt}" if variants else prompt, (*path, "body"))
        if (transform := config.get("transformResponse", config.get("responseParser"))) is not None:
            match = _OF_ANSWER.fullmatch(transform.strip()) if isinstance(transform, str) else None
            if match is None:
                what = "transformResponse is code, which is not executed: checks see the whole response"
                self._by_hand(what, (*path, "transformResponse"), "name the answer in target.http.output")
            else:
                http["output"] = f"${match[1]}"
        if endpoint["url"] != PLACEHOLDER_URL:
            self._notes.came(provider=1)
        return {**variants, "target": {"http": http}}

    def _body(self, body: Any, prompt: str, path: DocumentPath) -> Any:
        """Return the body of requests, with fepflow's placeholders and the prompt in it."""
        if isinstance(body, str):
            try:
                body = parse_json(body, self._source.name, nan=True)
            except InputError:
                self._by_hand("a body that is not JSON was imported as a text", path)
        try:
            filled = map_leaves(body, partial(_filled, prompt=prompt))
            return filled if body is not None else {"prompt": prompt}
        except LogicError as error:
            self._by_hand(f"the body was not imported: {error}", path)
            return {"prompt": prompt}


def read_beside(source: Source, name: str) -> str | None:
    """Return the text of a file that a config names; None if it is not there, or not below the config's folder."""
    path = source.beside(name)
    try:
        return None if path is None else read_text(path, name)
    except InputError:
        return None


def value_beside(source: Source, name: str) -> Any:
    """Return the JSON or YAML value of a file that a config names, or its text. Raises InputError, KeyError."""
    text = read_beside(source, name)
    if text is None:
        raise KeyError(name)
    return parse_document(text, name).data if name.endswith((".json", ".yaml", ".yml")) else text.strip()


def _messages_of(text: str) -> list[dict[str, Any]] | None:
    """Return the messages that a prompt holds as JSON or YAML; None for a text."""
    stripped = text.strip()
    if not stripped.startswith(("[", "- role")):
        return None
    try:
        value = parse_document(stripped, "prompt.json" if stripped.startswith("[") else "prompt.yaml").data
    except InputError:
        return None
    are_messages = isinstance(value, list) and all(
        isinstance(mapping(item).get("role"), str) and isinstance(item.get("content"), str) for item in value
    )
    return value if are_messages and value else None


def _is_safe_inline(text: str) -> bool:
    """Return whether a prompt may stand in the suite: one line that does not read like a file or a reference."""
    is_like_a_file = re.fullmatch(r"[^{}]+\.(md|txt)|[^\s{}]*/[^\s{}]*", text, re.IGNORECASE)
    return "\n" not in text and "$" not in text.replace("{{$.", "") and not is_like_a_file


def _filled(value: Any, prompt: str) -> Any:
    """Return a text of a body: `{{prompt}}` is the prompt, other names are those of the test case's input."""
    if not isinstance(value, str):
        return value
    parts = re.split(r"\{\{-?\s*prompt(?:\s*\|\s*(?:dump|safe))?\s*-?\}\}", value)
    return prompt.join(placeholders(part) for part in parts)
