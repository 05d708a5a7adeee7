"""JSONPath over the evaluation context (FEP 2.3.2, 6.2).

Three engines stand behind one function, `compile_path`. A path that names at most one node (`$.output.value`,
`$.a[0]['b c']`) becomes a tuple of keys and is walked in plain Python, because every check resolves such paths. Any
other path follows RFC 9535; one with jsonpath-ng's backtick functions (`` $.output.value.`len` ``) goes to jsonpath-ng.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from fepflow.documents.messages import did_you_mean, kind_name
from fepflow.errors import JSONPathError
from fepflow.text import shortened, text_of

MAX_EXPRESSION_LENGTH = 1_000
"""Characters that a path may have."""

_SHOWN_NAMES = 8
_SHOWN_CHARACTERS = 60

# Letters, digits, _ and all beyond ASCII. The negative form compiles in a fifth of the time.
_NAME = r"(?![0-9])[^\x00-/:-@\[-^`{-\x7f\ud800-\udfff]+"
_TEXT = r"\\\x00-\x1f\ud800-\udfff"
_INDEX = r"0|-?[1-9][0-9]{0,14}"  # 15 digits are inside RFC 9535's exact range of integers, whatever they are
_SEGMENT = re.compile(rf"\.({_NAME})|\[(?:({_INDEX})|'([^'{_TEXT}]*)'|\"([^\"{_TEXT}]*)\")\]")

QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)

Key = str | int


class Path(Protocol):
    """A compiled path."""

    @property
    def expression(self) -> str:
        """The path as it was written."""

    def find(self, document: Any) -> list[Any]:
        """Return the values of all nodes that the path selects, in order; `[]` without any.

        Raises JSONPathError if the document is too deep or the result too long, and CheckTimeoutError if the search
        takes too long (in the event loop NotInLoopError at once, if it may take long).
        """

    def resolve(self, document: Any) -> Any:
        """Return the path's value as an argument: the value of one node, the list of values of several.

        Raises what `find` raises, and JSONPathError when there is no node; it says where the path ended.
        """


class SingularPath:
    """A path to at most one node, as keys: a name for an object's member, an integer for an array's element.

    It never takes long, whatever the document.
    """

    __slots__ = ("_steps", "expression")

    def __init__(self, expression: str, keys: tuple[Key, ...]) -> None:
        self.expression = expression
        # Typed loosely: mypy cannot know that names meet objects only, and indices arrays only.
        self._steps: tuple[tuple[Any, Any], ...] = tuple((dict if isinstance(key, str) else list, key) for key in keys)

    def find(self, document: Any) -> list[Any]:
        """See Path.find."""
        try:
            return [self.resolve(document)]
        except JSONPathError:
            return []

    def resolve(self, document: Any) -> Any:
        """See Path.resolve."""
        value = document
        for container, key in self._steps:
            if not isinstance(value, container):
                break
            try:
                value = value[key] if type(value) is container else _member(value, key)
            except (KeyError, IndexError):
                break
        else:
            return value
        raise JSONPathError(f"{self.expression!r} found nothing: {self._end(document)}", self.expression)

    def _end(self, value: Any) -> str:
        location = "'$'"
        for container, key in self._steps:
            if not isinstance(value, container):
                return f"{location} is {kind_name(value)}, not {kind_name(container())}, so it has no {_label(key)}"
            try:
                value = _member(value, key)
            except KeyError:
                return f"{location} has no {_label(key)}; {_names(value)}"
            except IndexError:
                return f"{location} has {len(value)} element{'' if len(value) == 1 else 's'}, so no {_label(key)}"
            location = _label(key)
        return "the document changed meanwhile"


def _member(container: Any, key: Any) -> Any:
    """Return a member of a container. A defaultdict or a Counter is not asked to create one."""
    if isinstance(container, dict) and key not in container:
        raise KeyError(key)
    return container[key]


def is_path(value: object) -> bool:
    """Return whether a check's argument is a path: a string that starts with `$.`. Anything else is a literal."""
    return isinstance(value, str) and value.startswith("$.")


def unescape(text: str) -> str:
    r"""Return a literal string without its escape: `\$.` at the start becomes `$.`; any other text stays as it is."""
    return text[1:] if text.startswith("\\$.") else text


@lru_cache(maxsize=4096)
def compile_path(expression: str) -> Path:
    """Return the path that `expression` writes; it has to start with `$`.

    Raises JSONPathError, with the position where known, when it is not a valid path or over 1,000 characters long.
    """
    if len(expression) > MAX_EXPRESSION_LENGTH:
        raise JSONPathError(
            f"the JSONPath {shortened(expression, _SHOWN_CHARACTERS)!r} has {len(expression):,} characters; "
            f"{MAX_EXPRESSION_LENGTH:,} are allowed",
            expression,
        )
    if not expression.startswith("$"):
        raise JSONPathError(f"{expression!r} is not a valid JSONPath: it has to start with '$'", expression, 0)
    keys = _plain_keys(expression)
    if keys is None:
        # Here and not above, because it loads the JSONPath libraries, which plain paths do without.
        if "`" in outside_quotes(expression):
            from fepflow.jsonpath.queries import ExtendedPath

            return ExtendedPath(expression)
        from fepflow.jsonpath.queries import Rfc9535Path

        query = Rfc9535Path(expression)
        keys = query.singular_keys()
        if keys is None:
            return query
    return SingularPath(expression, keys)


def outside_quotes(expression: str) -> str:
    """Return the expression without its quoted names and texts."""
    return QUOTED.sub("", expression)


def _plain_keys(expression: str) -> tuple[Key, ...] | None:
    """Return the keys of a singular path without whitespace and escapes; None for anything else, valid or not."""
    keys: list[Key] = []
    position = 1
    while position < len(expression):
        segment = _SEGMENT.match(expression, position)
        if segment is None:
            return None
        shorthand, index, single, double = segment.groups()
        keys.append(int(index) if index is not None else next(n for n in (shorthand, single, double) if n is not None))
        position = segment.end()
    return tuple(keys)


def leading_keys(expression: str) -> tuple[Key, ...]:
    """Return the keys of a valid path up to its first wildcard, filter or function.

    A document without a node at these keys has none at the path either.
    """
    extended = "`" in outside_quotes(expression)
    if extended and ("|" in expression or "&" in expression):
        return ()
    keys: list[Key] = []
    position = 1
    while (segment := _SEGMENT.match(expression, position)) is not None:
        shorthand, index, single, double = segment.groups()
        position = segment.end()
        if expression[position : position + 1] not in ("", ".", "[", " ") or (extended and index is not None):
            break
        keys.append(int(index) if index is not None else next(n for n in (shorthand, single, double) if n is not None))
    return tuple(keys)


def descend(value: Any, keys: tuple[Key, ...]) -> tuple[int, Any]:
    """Return how many of the keys lead to a value, and the last value."""
    for number, key in enumerate(keys):
        if not isinstance(value, dict if isinstance(key, str) else list):
            return number, value
        try:
            value = _member(value, key)
        except (KeyError, IndexError):
            return number, value
    return len(keys), value


def _label(key: object) -> str:
    return f"[{key}]" if isinstance(key, int) else repr(shortened(str(key), _SHOWN_CHARACTERS))


def _names(members: dict[Any, Any]) -> str:
    if not members:
        return "it is empty"
    shown = ", ".join(repr(shortened(str(name), _SHOWN_CHARACTERS)) for name in list(members)[:_SHOWN_NAMES])
    hidden = len(members) - _SHOWN_NAMES
    return f"it has {shown}" + (f" and {hidden} more" if hidden > 0 else "")


CONTEXT: Mapping[str, Sequence[str]] = {
    "test_case": ("id", "input", "expected", "metadata"),
    "output": ("value", "metadata", "trace"),
}

_INPUT = ("input", "inputs", "question", "query", "prompt", "vars")
_EXPECTED = ("expected", "reference", "groundtruth", "ideal", "expectedoutput", "target")
_VALUE = ("value", "answer", "response", "result", "actual", "text", "content", "output")
_ELSEWHERE = {
    **dict.fromkeys(_INPUT, "did you mean $.test_case.input?"),
    **dict.fromkeys(_EXPECTED, "did you mean $.test_case.expected?"),
    **dict.fromkeys(_VALUE, "did you mean $.output.value?"),
    **dict.fromkeys(("id", "case"), "did you mean $.test_case.id?"),
    "metadata": "did you mean $.test_case.metadata, or $.output.metadata?",
}
_OF_CASE = {**_ELSEWHERE, **dict.fromkeys(_VALUE, "did you mean $.test_case.expected?")}
_OF_OUTPUT = dict.fromkeys(_VALUE, "did you mean $.output.value?")
_LOOKS_LIKE_A_PATH = re.compile(r"\$?\.?\{{0,2}\s*\$?\.?(outputs?|test_?cases?)\.(\w+)[\w.\[\]]*\s*\}{0,2}")
_BARE_WORD = re.compile(
    r"(?:outputs?|test_?cases?|inputs?|expected|question|answer|response|context|vars)\b", re.IGNORECASE
)


def context_problem(keys: Sequence[Key]) -> tuple[str, str] | None:
    """Return a message about a path that begins with these keys, and advice; None if it may find something."""
    if not keys:
        return None
    first = keys[0]
    if first not in CONTEXT:
        return f"$.{first} is not there: a check sees $.test_case and $.output", _meant(
            first, list(CONTEXT), _ELSEWHERE
        )
    if len(keys) > 1 and keys[1] not in CONTEXT[str(first)]:
        known = CONTEXT[str(first)]
        names = _OF_CASE if first == "test_case" else _OF_OUTPUT
        message = f"$.{first} has no {keys[1]}, only {', '.join(known)}"
        return message, _meant(keys[1], known, names, f"$.{first}.")
    return None


def _meant(name: Key, known: Sequence[str], elsewhere: Mapping[str, str], before: str = "$.") -> str:
    advice = did_you_mean(str(name), known, elsewhere)
    return re.sub(r"^did you mean (?=\w)", f"did you mean {before}", advice)


def meant_path(text: str) -> str | None:
    """Return the path that was probably meant by a text like `output.value`; None for any other text."""
    match = _LOOKS_LIKE_A_PATH.fullmatch(text)
    if match is None or text.startswith("$."):
        return None
    return "$." + text.strip("{} ").lstrip("$").lstrip(".")


def is_word_of_context(name: str) -> bool:
    """Return whether a placeholder's name without `$.` is likely to mean a part of the context."""
    return _BARE_WORD.match(name) is not None


# --- values with paths inside, at any depth: check arguments and requests (FEP 2.3.2) --------------------------------


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
