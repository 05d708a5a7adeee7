"""Values with JSONPaths inside, at any depth: check arguments and requests (FEP 2.3.2)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fepflow.errors import JSONPathError
from fepflow.jsonpath.path import Path, compile_path, is_path, unescape
from fepflow.text import text_of

Location = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Template:
    """A JSON value in which every string that starts with `$.` is a path; `\\$.` is a literal `$.`.

    In a request, strings with `{{$.path}}` inside are texts that are filled in. `literal` is the value without escapes,
    and with None for each path. `paths` has the paths and their places.
    """

    literal: Any
    paths: tuple[tuple[Location, Path], ...]

    def render(self, document: Any) -> Any:
        """Return the value with each path replaced by its value in `document`. Raises JSONPathError.

        Parts of the result may be shared with `document` and with other renderings: treat it as read-only.
        """
        if not self.paths:
            return self.literal
        if self.paths[0][0] == ():
            return self.paths[0][1].resolve(document)
        result = copy_containers(self.literal)
        for location, path in self.paths:
            parent = result
            for step in location[:-1]:
                parent = parent[step]
            parent[location[-1]] = path.resolve(document)
        return result


def compile_template(value: Any, ready: Mapping[str, Path] | None = None, *, with_texts: bool = False) -> Template:
    """Find and compile the paths in `value`; raises JSONPathError for the first invalid one.

    `ready` are members of an object that are compiled already. If `with_texts`, strings with `{{$.path}}` inside are
    filled in, as in requests.
    """
    paths: list[tuple[Location, Path]] = [((name,), path) for name, path in (ready or {}).items()]
    open_value = {key: item for key, item in value.items() if key not in ready} if ready else value
    literal = _split(open_value, (), paths, with_texts=with_texts)
    if ready:
        literal.update(dict.fromkeys(ready))
    return Template(literal, tuple(paths))


def _split(value: Any, location: Location, paths: list[tuple[Location, Path]], *, with_texts: bool) -> Any:
    if isinstance(value, str):
        if is_path(value):
            paths.append((location, compile_path(value)))
            return None
        if with_texts and has_placeholders(value):
            paths.append((location, TextTemplate(value, plain=True)))
            return None
        return unescape(value)
    if isinstance(value, dict):
        return {key: _split(item, (*location, key), paths, with_texts=with_texts) for key, item in value.items()}
    if isinstance(value, list):
        return [_split(item, (*location, index), paths, with_texts=with_texts) for index, item in enumerate(value)]
    return value


def copy_containers(value: Any) -> Any:
    """Return a copy of a JSON value with new objects and arrays; other values are shared."""
    if isinstance(value, dict):
        return {key: copy_containers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [copy_containers(item) for item in value]
    return value


@dataclass(frozen=True, slots=True)
class Filled:
    """The text that was filled in for a placeholder, and the path that found it."""

    path: str
    text: str


class RenderedPrompt(str):
    """A text with filled placeholders; `parts` are its own words and the texts that were filled in, in order."""

    parts: tuple[str | Filled, ...]

    def __new__(cls, parts: Sequence[str | Filled]) -> RenderedPrompt:
        """Return the text of all parts together."""
        text = super().__new__(cls, "".join(part.text if isinstance(part, Filled) else part for part in parts))
        text.parts = tuple(parts)
        return text


PLACEHOLDER = re.compile(r"\{\{\s*(\$\.(?:(?!\{\{|\}\}).)*)\}\}", re.DOTALL)
"""A placeholder; its group is the path."""


def placeholders(text: str) -> list[str]:
    """Return the paths of the placeholders of a text, as they are written."""
    return [path.rstrip() for path in PLACEHOLDER.findall(text)]


_BEGINNING = re.compile(r"\{\{\s*\\?\$\.")
_OPEN = re.compile(r"\{\{\s*\$\.")


def has_placeholders(text: str) -> bool:
    """Return whether a text has a placeholder, which may be escaped or not closed."""
    return _BEGINNING.search(text) is not None


class TextTemplate:
    r"""A text with `{{$.path}}` placeholders (FEP 2.3.6, llm_judge). It fits where a path does.

    `{{\$.path}}` is a literal. Placeholders are filled in one pass: what a path found is never searched for
    placeholders. A text is filled in as it is, any other value as JSON. If `plain`, the text does not know its parts.
    """

    def __init__(self, expression: str, *, plain: bool = False) -> None:
        """Compile the placeholders; raises JSONPathError for one that is not a path, or not closed."""
        self.expression = expression
        self._plain = plain
        texts_and_paths = PLACEHOLDER.split(expression)
        self._texts = [text.replace("{{\\$.", "{{$.") for text in texts_and_paths[::2]]
        self._paths = [compile_path(path.rstrip()) for path in texts_and_paths[1::2]]
        if any(_OPEN.search(text) for text in texts_and_paths[::2]):
            raise JSONPathError("a placeholder is not closed: write {{$.path}}", expression)

    @property
    def paths(self) -> list[str]:
        """The paths of its placeholders, as they are written."""
        return [path.expression for path in self._paths]

    def find(self, document: Any) -> list[Any]:
        """See Path.find."""
        return [self.resolve(document)]

    def resolve(self, document: Any) -> str:
        """Return the text with its placeholders filled; raises JSONPathError when one finds nothing."""
        prompt = self.prompt(document)
        return str(prompt) if self._plain else prompt

    def prompt(self, document: Any) -> RenderedPrompt:
        """Return the text as `resolve` does, with its parts."""
        parts: list[str | Filled] = [self._texts[0]]
        for path, text in zip(self._paths, self._texts[1:], strict=True):
            parts += [Filled(path.expression, text_of(path.resolve(document))), text]
        return RenderedPrompt(parts)


def fill_text(text: str, document: Any, escape: Callable[[str], str]) -> str:
    """Return a text with each placeholder replaced by its value, escaped. Raises JSONPathError."""
    parts = TextTemplate(text).prompt(document).parts
    return "".join(escape(part.text) if isinstance(part, Filled) else part for part in parts)
