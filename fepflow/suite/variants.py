"""Suites with other values than their file has: of a run (`--set`), and of each variant, such as models and prompts.

    variants: {model: [gpt-5-mini, qwen3], prompt: [prompts/v1.md, prompts/v2.md]}
    target: {openai: {model: "${variant.model}", prompt: "${variant.prompt}"}}

Each combination is a suite of its own: its target has the values, and `variant` says which they are. Their runs are
runs of different targets, so they have different names and hashes: what looks for earlier runs never takes one
variant's for another's.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, product
from typing import Any

from fepflow.documents.loader import Document, parse_document
from fepflow.documents.messages import did_you_mean
from fepflow.errors import DocumentPath, InputError, Problem, UserError, dotted
from fepflow.json.values import map_leaves
from fepflow.protocol.content_hash import content_hash
from fepflow.security.redaction import is_secret_name
from fepflow.suite.env_vars import is_literal_secret
from fepflow.text import brief, cut, known_names

Variant = Mapping[str, Any]
"""A value for each name of `variants`."""

MANY = 50
"""Combinations that run without a question: each is a whole run, which may cost money."""
MOST = 1_000
"""Combinations that a suite may have."""
MAX_LABEL = 40
"""Characters of a value in the name of a run."""

NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_REFERENCE = re.compile(rf"\$\{{variant\.({NAME})\}}")
_MEANT = re.compile(r"\$\{\s*variants?\s*\.[^}]*\}?")
"""A text that was probably meant as a reference."""


def label_of(variant: Variant) -> str:
    """Return the variant in words: `model=gpt-5-mini, prompt=prompts/v1.md`."""
    return ", ".join(f"{name}={value_label(value)}" for name, value in variant.items())


def value_label(value: Any) -> str:
    """Return a value for names and tags of runs: whole, or its beginning with a part of its hash."""
    text = " ".join(_text(value).split())
    return text if len(text) <= MAX_LABEL else f"{cut(text, MAX_LABEL - 8)}~{content_hash(value)[:6]}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


def run_name(suite: str, variant: Variant | None) -> str:
    """Return the name of a suite's runs, with the variant, if any."""
    return f"{suite} [{label_of(variant)}]" if variant else suite


def tags_of(variant: Variant | None) -> list[str]:
    """Return the tags of a variant's runs."""
    return [f"variant:{name}={value_label(value)}" for name, value in (variant or {}).items()]


def combinations(variants: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return every combination of valid variants; the last name changes fastest."""
    return [dict(zip(variants, values, strict=True)) for values in product(*variants.values())]


def chosen(variants: Sequence[Variant], wanted: Sequence[tuple[str, str]]) -> list[int]:
    """Return the indices of the variants that have one of the wanted values for each wanted name.

    Raises UserError for an unknown name or value.
    """
    values: dict[str, list[str]] = {}
    for name, text in wanted:
        known = dict.fromkeys(value_label(variant[name]) for variant in variants if name in variant)
        if not known:
            names = known_names(dict.fromkeys(chain.from_iterable(variants)))
            raise UserError(f"--variant {name}={text}: the suite has no variants {name}; it has {names}.")
        if not any(_is(variant[name], text) for variant in variants):
            raise UserError(f"--variant {name}={text}: {name} has no such value; it has {known_names(known)}.")
        values.setdefault(name, []).append(text)
    return [
        index
        for index, variant in enumerate(variants)
        if all(any(_is(variant[name], text) for text in texts) for name, texts in values.items())
    ]


def _is(value: Any, text: str) -> bool:
    return text in (_text(value), value_label(value))


def with_variant(document: Document, variant: Variant) -> Document:
    """Return the suite of one combination. Its references must be valid, see `problems_of_variants`."""
    sections = {name: section for name, section in document.data.items() if name != "variants"}
    target = map_leaves(sections.get("target"), partial(_filled_in, variant=variant))
    return replace(document, data={**sections, "target": target, "variant": dict(variant)})


def _filled_in(value: Any, variant: Variant) -> Any:
    """Return a value with the references in it replaced; one that is a whole text becomes the value itself."""
    if not isinstance(value, str):
        return value
    if whole := _REFERENCE.fullmatch(value):
        return variant[whole[1]]
    return _REFERENCE.sub(lambda match: _text(variant[match[1]]), value)


def problems_of_variants(document: Document) -> list[Problem]:
    """Return the errors of a suite's variants and of the references to them."""
    raw = document.data
    if "variant" in raw:
        advice = "write variants: {NAME: [VALUE, ...]}, and --variant NAME=VALUE for one"
        return [document.problem(("variant",), "is what each run of a suite with variants has by itself", advice)]
    if "variants" not in raw:
        return list(_problems_of_references(document, {}))
    declared = raw["variants"]
    if not isinstance(declared, dict) or not declared:
        message, advice = "must be a mapping of names to lists of values", "write variants: {model: [MODEL, MODEL]}"
        return [document.problem(("variants",), message, advice)]
    problems = [problem for name, values in declared.items() for problem in _problems_of(document, name, values)]
    problems += _problems_of_references(document, declared)
    if not problems and (count := math.prod(map(len, declared.values()))) > MOST:
        problems.append(
            document.problem(("variants",), f"come to {count:,} combinations; at most {MOST:,} are allowed")
        )
    return problems


def _problems_of(document: Document, name: Any, values: Any) -> Iterator[Problem]:
    location: DocumentPath = ("variants", name)
    if not isinstance(name, str) or not re.fullmatch(NAME, name, re.ASCII):
        message = f"{brief(str(name), 60)} is not a name for variants"
        yield document.problem(location, message, "names have letters, digits and underscores")
    elif not isinstance(values, list):
        yield document.problem(location, "must be a list of values", f"write {name}: [{brief(_text(values), 60)}]")
    elif not values:
        yield document.problem(location, "has no value", "give at least one, or remove it with its references")
    else:
        first: dict[str, int] = {}
        for index, value in enumerate(values):
            label = value_label(value)
            if label in first:
                message = f"{brief(label, 60)} appears twice"
                yield document.problem((*location, index), message, f"{name}[{first[label]}] has it")
            first.setdefault(label, index)
            if is_secret_name(name) and isinstance(value, str) and is_literal_secret(value):
                yield document.problem(
                    (*location, index), "a secret must not stand in the suite", "write it as ${NAME}"
                )


def _problems_of_references(document: Document, declared: Mapping[str, Any]) -> Iterator[Problem]:
    used = set[str]()
    for location, text in _texts(document.data.get("target"), ("target",)):
        for written in _MEANT.findall(text):
            reference = _REFERENCE.fullmatch(written)
            if reference is None:
                advice = "write ${variant.NAME}, without a default"
                yield document.problem(location, f"{brief(written, 60)} is not a reference to variants", advice)
            elif not declared:
                message = f"{brief(written, 60)} refers to variants, but the suite has none"
                yield document.problem(location, message, "write variants: {NAME: [VALUE, ...]} beside target")
            elif reference[1] not in declared:
                advice = did_you_mean(reference[1], list(map(str, declared)))
                yield document.problem(location, f"there are no variants {brief(reference[1], 60)}", advice)
            else:
                used.add(reference[1])
                if text != written and not _all_fit_into_text(declared[reference[1]]):
                    message = f"{written} has values that are neither texts nor numbers, but stands inside of a text"
                    yield document.problem(location, message, "let the reference be the whole value")
    for name in declared:
        if isinstance(name, str) and name not in used:
            message = "the target does not refer to it, so its runs would be the same"
            yield document.problem(("variants", name), message, f"write ${{variant.{name}}} in target, or remove it")
    others = {name: section for name, section in document.data.items() if name not in ("target", "test_cases")}
    for location, text in _texts(others if declared else {}, ()):
        if written := _MEANT.search(text):
            message = f"{brief(written[0], 60)} has a value in target only"
            yield document.problem(location, message, "a variant is another target; what is asked of it stays the same")


def _all_fit_into_text(values: Any) -> bool:
    return not isinstance(values, list) or not any(isinstance(value, dict | list | None) for value in values)


def _texts(value: Any, location: DocumentPath) -> Iterator[tuple[DocumentPath, str]]:
    """Yield all texts in a value, including keys with references, with their places."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    if isinstance(value, str):
        yield location, value
    for key, item in items:
        if isinstance(key, str) and _MEANT.search(key):
            yield (*location, key), f"{key} "  # a reference cannot be a key: with a space it is not one
        yield from _texts(item, (*location, key))


@dataclass(frozen=True)
class Replacement:
    """A value, and its place in the suite: names, and positions in lists."""

    path: DocumentPath
    value: Any

    @property
    def option(self) -> str:
        """The option without its value, which may be a secret."""
        return f"--set {'.'.join(map(str, self.path))}"


def parse_replacement(text: str) -> Replacement:
    """Read `target.http.url=VALUE`; the value is YAML, as in the suite. Raises UserError for another form."""
    path, equals, value = text.partition("=")
    names = re.sub(r"\[(\d+)\]", r".\1", path.strip()).split(".")
    steps = [int(step) if step.isdecimal() else step for step in names]
    if not equals or not all(step != "" for step in steps):
        raise UserError("--set reads like target.http.url=http://localhost:8000: names with dots, = and a value.")
    try:
        return Replacement(tuple(steps), parse_document(value, "--set").data)
    except InputError:
        return Replacement(tuple(steps), value)  # such as a text with a colon, which is no YAML


def with_replacements(document: Document, replacements: Sequence[Replacement]) -> Document:
    """Return the document with these values. Raises InputError if it has no such place."""
    data = document.data
    for replacement in replacements:
        data = _replaced(data, replacement.path, replacement)
    return replace(document, data=data) if replacements else document


def _replaced(value: Any, path: DocumentPath, replacement: Replacement) -> Any:
    if not path:
        return replacement.value
    step, rest = path[0], path[1:]
    if value is None or isinstance(value, dict):
        value = value or {}
        name = str(step)
        return {**value, name: _replaced(value.get(name), rest, replacement)}
    if isinstance(value, list) and isinstance(step, int) and step < len(value):
        return [_replaced(item, rest, replacement) if index == step else item for index, item in enumerate(value)]
    place = dotted(replacement.path[: len(replacement.path) - len(path)]) or "the suite"
    if isinstance(value, list):
        advice = f"give a position from 0 to {len(value) - 1}" if value else "replace the list as a whole"
        raise InputError(
            Problem(f"{place} is a list of {len(value)} and has no {step}", replacement.option, None, advice=advice)
        )
    advice = f"replace {place} as a whole: --set '{place}={{...}}'"
    raise InputError(Problem(f"{place} is one value and has no {step} inside", replacement.option, None, advice=advice))


def at_their_option(problems: Iterable[Problem], replacements: Sequence[Replacement]) -> Iterator[Problem]:
    """Yield the problems. Problems of a replaced value name its option instead of a line of the file."""
    for problem in problems:
        path = problem.path or ""
        places = ((replacement.option, dotted(replacement.path)) for replacement in replacements)
        options = (option for option, place in places if path == place or path.startswith((f"{place}.", f"{place}[")))
        option = next(options, None)
        yield problem if option is None else replace(problem, file=option, line=None)
