"""`${NAME}` and `${NAME:-default}` in suite files: the only way in which a secret gets into a run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from fepflow.documents import Document, DocumentPath
from fepflow.errors import Problem

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
SECRET_NAME = re.compile(r"auth|token|secret|passw|credential|cookie|api[-_]?key|[-_]key$|^key$", re.IGNORECASE)


@dataclass(frozen=True)
class Reference:
    """One reference and what it stands for; a default is no secret, for it stands in the file."""

    name: str
    path: DocumentPath
    value: str = field(repr=False)
    secret: bool
    missing: bool


def expand(value: Any, path: DocumentPath, env: Mapping[str, str], references: list[Reference]) -> Any:
    """`value` with each reference in its strings replaced; what was replaced is added to `references`."""
    if isinstance(value, dict):
        return {key: expand(item, (*path, key), env, references) for key, item in value.items()}
    if isinstance(value, list):
        return [expand(item, (*path, index), env, references) for index, item in enumerate(value)]
    if not isinstance(value, str):
        return value

    def replace(match: re.Match[str]) -> str:
        name, default = match[1], match[2]
        found = env.get(name) or default
        secret = bool(env.get(name)) and ("headers" in path or bool(SECRET_NAME.search(name)))
        references.append(Reference(name, path, found or "", secret, found is None))
        return found if found is not None else match[0]

    return _REFERENCE.sub(replace, value)


def holds_a_literal_secret(document: Document) -> list[Problem]:
    """Headers and addresses of the target that carry a secret in plain text: it would end up in the store."""
    target = document.data.get("target")
    http = target.get("http") if isinstance(target, dict) else None
    if not isinstance(http, dict):
        return []
    problems = []
    headers = http.get("headers")
    for name, value in headers.items() if isinstance(headers, dict) else ():
        if isinstance(value, str) and SECRET_NAME.search(name) and not _REFERENCE.search(value):
            place: DocumentPath = ("target", "http", "headers", name)
            problems.append(document.problem(place, "a secret must not stand in the suite", "write it as ${NAME}"))
    url = http.get("url")
    if isinstance(url, str) and url_holds_a_secret(url):
        problems.append(
            document.problem(("target", "http", "url"), "a secret must not stand in the address", "write it as ${NAME}")
        )
    return problems


def url_holds_a_secret(url: str) -> bool:
    """Whether an address carries a password, or a parameter that is named like a secret, in plain text."""
    bare = _REFERENCE.sub("", url)
    try:
        parts = urlsplit(bare)
    except ValueError:
        return False
    return bool(parts.password) or any(SECRET_NAME.search(key) and value for key, value in parse_qsl(parts.query))
