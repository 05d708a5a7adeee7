"""`${NAME}` and `${NAME:-default}` in suite files: the only way for a secret into a run.

A name is that of an environment variable, or of a block: `prefect:secret/NAME`, `prefect:variable/NAME`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from fepflow.documents.loader import Document
from fepflow.errors import DocumentPath, InfrastructureError, Problem
from fepflow.json.values import texts_in
from fepflow.security.redaction import holds_secret_parts, is_secret_name
from fepflow.settings import BLOCK
from fepflow.text import brief

_NAME = r"[A-Za-z_][A-Za-z0-9_]*|prefect:(?:secret|variable)/[A-Za-z0-9][A-Za-z0-9_-]*"
_REFERENCE = re.compile(rf"\$\{{({_NAME})(?::-((?:(?!\$\{{)[^}}])*))?\}}")
_MEANT = re.compile(r"\$\{\s*prefect\b[^}]*\}?", re.IGNORECASE)
"""A text that was probably meant as a reference to a block."""

CANNOT_LOOK_UP = "cannot be looked up"
"""Part of each message about a block for which Prefect could not be asked."""


@dataclass(frozen=True)
class Reference:
    """A reference and its value. A default is not secret, because it is in the file.

    `unavailable` is the reason if the value could not be looked up.
    """

    name: str
    path: DocumentPath
    value: str = field(repr=False)
    secret: bool
    missing: bool
    unavailable: str = ""

    @property
    def problem(self) -> tuple[str, str]:
        """The message about a missing reference, and advice."""
        shown, is_block = f"${{{brief(self.name, 100)}}}", self.name.startswith(BLOCK)
        if not re.fullmatch(_NAME, self.name):
            return f"{shown} is not a reference to a block", "write ${prefect:secret/NAME} or ${prefect:variable/NAME}"
        if self.unavailable:
            return (
                f"{shown} {CANNOT_LOOK_UP}: {self.unavailable}",
                "start one with `fepflow up`, or set PREFECT_API_URL",
            )
        if not is_block:
            return (
                f"{shown} is not set in the environment",
                f"export {self.name}, or give a default: ${{{self.name}:-...}}",
            )
        kind, _, name = self.name.removeprefix(BLOCK).partition("/")
        if kind == "variable":
            return f"Prefect has no variable {name}", f"set it: prefect variable set {name} VALUE"
        return (
            f"Prefect has no Secret block {name}",
            "create it in Prefect's UI (Blocks), or: prefect block create secret",
        )


def expand(value: Any, path: DocumentPath, env: Mapping[str, str], references: list[Reference]) -> Any:
    """Return `value` with each reference in its strings replaced; the references are added to `references`."""
    if isinstance(value, dict):
        return {key: expand(item, (*path, key), env, references) for key, item in value.items()}
    if isinstance(value, list):
        return [expand(item, (*path, index), env, references) for index, item in enumerate(value)]
    if not isinstance(value, str):
        return value

    def replace(match: re.Match[str]) -> str:
        name, default = match[1], match[2]
        try:
            known = env.get(name)
        except InfrastructureError as error:  # a default is for a missing value, which is not known here
            references.append(Reference(name, path, "", False, True, str(error)))
            return match[0]
        replacement = known or default
        names = [name, *(str(step) for step in path[-1:] if isinstance(step, str))]
        secret = bool(known) and ("headers" in path or any(map(is_secret_name, names)))
        references.append(Reference(name, path, replacement or "", secret, replacement is None))
        return match[0] if replacement is None else replacement

    for written in _MEANT.findall(_REFERENCE.sub("", value)):
        references.append(Reference(written[2:].rstrip("}").strip(), path, "", False, True))
    return _REFERENCE.sub(replace, value)


class UncalledTarget(Mapping[str, str]):
    """Variables for a suite whose target is not called: variables that only the target uses may be unset.

    A reference with a default has its default.
    """

    def __init__(self, document: Any, variables: Mapping[str, str]) -> None:
        self._variables = variables
        of_target: set[str] = set()
        if isinstance(document, dict):
            rest = {name: section for name, section in document.items() if name != "target"}
            of_target = _names_in(document.get("target"), without_default=True) - _names_in(rest)
        self._of_target = of_target

    def __getitem__(self, name: str) -> str:
        if name not in self._of_target:
            return self._variables[name]
        try:
            return self._variables[name] or _UNCALLED
        except (KeyError, InfrastructureError):
            return _UNCALLED

    def __iter__(self) -> Iterator[str]:
        return iter({*self._variables, *self._of_target})

    def __len__(self) -> int:
        return len({*self._variables, *self._of_target})


def names_with_values(value: Any, variables: Mapping[str, str]) -> set[str]:
    """Return the names that a part of a suite refers to; an empty set if one without a default has no value."""
    try:
        is_known = all(variables[name] for name in _names_in(value, without_default=True))
    except (KeyError, InfrastructureError):
        is_known = False
    return _names_in(value) if is_known else set()


_UNCALLED = "http://target-that-is-not-called.invalid"


def _names_in(value: Any, *, without_default: bool = False) -> set[str]:
    found = _REFERENCE.finditer(json.dumps(value, default=str))
    return {match[1] for match in found if not without_default or match[2] is None}


def holds_a_literal_secret(document: Document) -> list[Problem]:
    """Return errors for plain-text secrets in the target's requests and in the address of the test cases.

    They would end up in the store.
    """
    target = document.data.get("target")
    problems = list(_literal_secrets_of_cases(document))
    if isinstance(target, dict):
        kinds = (
            ("http", "body", "url"),
            ("openai", "parameters", "base_url"),
            ("ecp", "config", "url"),
            ("a2a", "message", "card"),
            ("mcp", "", "url"),
        )
        problems += [problem for kind in kinds for problem in _literal_secrets(document, target, *kind)]
    return problems


def _literal_secrets_of_cases(document: Document) -> Iterator[Problem]:
    source = document.data.get("test_cases")
    address = source.get("path") if isinstance(source, dict) else source
    if isinstance(address, str) and "://" in address:
        host = _REFERENCE.sub(lambda match: match[2] or "", address).partition("://")[2].partition("/")[0]
        if address_holds_literal_secret(address) or len(host.rpartition("@")[0].partition(":")[0]) >= _TOKEN:
            place: DocumentPath = ("test_cases", "path") if isinstance(source, dict) else ("test_cases",)
            yield document.problem(place, "a secret must not stand in the address", _IN_SUITE[1])


def _literal_secrets(
    document: Document, target: dict[str, Any], kind: str, sent: str, address: str
) -> Iterator[Problem]:
    """Return the errors for one kind of target: for its headers, its address, and what is `sent`."""
    section = target.get(kind)
    if not isinstance(section, dict):
        return
    place: DocumentPath = ("target", kind)
    headers = section.get("headers")
    for name, value in headers.items() if isinstance(headers, dict) else ():
        if isinstance(value, str) and is_secret_name(str(name)) and is_literal_secret(value):
            yield document.problem((*place, "headers", name), *_IN_SUITE)
    for path, value in texts_in(section.get(sent), (*place, sent)):
        name = path[-1]
        # A text of words, or a path, is something to ask; so is what a `key` is in many a body.
        is_named = isinstance(name, str) and len(path) > len(place) + 1 and name not in ("key", "keys")
        if is_named and _ONE_WORD.fullmatch(value) and is_secret_name(str(name)):
            yield document.problem(path, *_IN_SUITE)
    if isinstance(key := section.get("api_key"), str) and is_literal_secret(key):
        yield document.problem((*place, "api_key"), *_IN_SUITE)
    url = section.get(address)
    if isinstance(url, str) and address_holds_literal_secret(url):
        yield document.problem((*place, address), "a secret must not stand in the address", _IN_SUITE[1])


_TOKEN = 16
"""Characters from which on a user in an address is a token, and no name."""

_IN_SUITE = ("a secret must not stand in the suite", "write it as ${NAME}")


def is_literal_secret(text: str) -> bool:
    """Return whether a text for a secret has words other than `${NAME}` references. A default is such a word.

    Schemes, and names in front of references, are allowed: `Bearer ${NAME}`, `session=${NAME}`, `${USER}:${PASSWORD}`.
    """
    words = _SEPARATOR.split(_REFERENCE.sub(lambda match: match[2] or _CONTEXT, text).strip())
    followers = [*words[1:], ""]
    return any(
        not (_HARMLESS.fullmatch(word) or (_SCHEME.fullmatch(word) and _CONTEXT in after))
        for word, after in zip(words, followers, strict=True)
    )


def address_holds_literal_secret(address: str) -> bool:
    """Return whether an address has a password, or a parameter named like a secret, in plain text."""
    return holds_secret_parts(_REFERENCE.sub(lambda match: match[2] or "", address))


_CONTEXT = "\0"
_SEPARATOR = re.compile(r"[\s;,&]+")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,19}")
# Nothing, a reference with a name or a short prefix before it, or a setting that is too short for a secret.
_HARMLESS = re.compile(
    rf"|(?:[\w.-]{{1,40}}[=:]|[^{_CONTEXT}]{{0,7}})[\"']?(?:{_CONTEXT}[:.@/|-]?)+[\"']?|[\w.-]{{1,40}}=.{{0,7}}"
)
_ONE_WORD = re.compile(r"(?!\$)[^\s${}]{8,}")
