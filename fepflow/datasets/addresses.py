"""Addresses of data files: https://, s3://, gs:// and hf://datasets/, and what is wrong with one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from fepflow.documents.messages import closest
from fepflow.security.addresses import address_problem, is_loopback
from fepflow.text import plural

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_KNOWN = ("https", "http", "s3", "gs", "hf")
_OTHER_NAMES = {"gcs": "gs", "s3a": "s3", "s3n": "s3", "huggingface": "hf"}
_HUB = re.compile(r"hf://datasets/(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<revision>[^/]+))?/?(?P<path>.*)")

_PAGE_OF_HUB = re.compile(r"/datasets/(?P<repo>[\w.-]+/[\w.-]+)(?:/?|/(?:viewer|tree|blob)(?:/.*)?)")


def is_address(path: str) -> bool:
    """Return whether a path in a suite is an address, and not a file of this machine."""
    return _SCHEME.match(path) is not None


def scheme_of(address: str) -> str:
    """Return the scheme in lower case; an empty text for a file of this machine."""
    match = _SCHEME.match(address)
    return match[1].lower() if match else ""


def public_address(address: str) -> str:
    """Return an address for messages: without user, password, query and fragment."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return "an address that cannot be read"
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def of_origin(origin: dict[str, Any]) -> str:
    """Return a phrase about where test cases came from: address, revision, size and digest."""
    revision = f"revision {origin['revision'][:12]}, " if origin.get("revision") else ""
    return f"{origin['url']} ({revision}{plural(origin['bytes'], 'byte')}, sha256 {origin['sha256'][:12]})"


@dataclass(frozen=True)
class HubAddress:
    """A dataset of the Hugging Face hub, and a file or folder in it; `path` may be empty."""

    repo: str
    path: str
    revision: str | None


def hub_address(address: str, revision: str | None) -> HubAddress:
    """Return the parts of a valid hf:// address."""
    match = _HUB.fullmatch(address)
    assert match is not None  # see `data_address_problem`
    return HubAddress(match["repo"], match["path"].strip("/"), match["revision"] or revision)


def data_address_problem(
    address: str, split: str | None, revision: str | None, *, is_remote: bool = True
) -> tuple[str, str, str] | None:
    """Return what is wrong with an address, or with keys beside it: which key of the suite, a message and advice.

    The message quotes nothing of the address, which may hold a secret.
    """
    scheme = scheme_of(address)
    if scheme == "file":
        return "path", "is a file of this machine", "write its path alone, from the suite's folder on"
    if is_remote and scheme not in _KNOWN:
        name = _OTHER_NAMES.get(scheme) or closest(scheme, _KNOWN)
        advice = f"did you mean {name}://?" if name else "known are https://, s3://, gs:// and hf://datasets/"
        return "path", f"{scheme[:20]}:// is not known", advice
    if scheme != "hf" and (split is not None or revision is not None):
        key = "split" if split is not None else "revision"
        return key, "is of hf://datasets/… only", "remove it; another address is another file"
    if not is_remote:
        return None
    if scheme in ("http", "https"):
        return _of_web(address)
    if not address.startswith(scheme):
        return "path", "the scheme is written in small letters", f"write {scheme}://"
    parts = urlsplit(address)
    if "@" in parts.netloc:
        advice = "credentials come from the environment (AWS_…, GOOGLE_APPLICATION_CREDENTIALS, HF_TOKEN)"
        return "path", f"an address at {scheme}:// holds no credentials", advice
    if scheme == "hf":
        return _of_hub(address, revision)
    if not parts.netloc or not parts.path.strip("/") or parts.path.endswith("/"):
        return "path", "the address names no file", f"it reads like {scheme}://BUCKET/FOLDER/cases.jsonl"
    return None


def _of_web(address: str) -> tuple[str, str, str] | None:
    if problem := address_problem(address):
        return "path", *problem
    parts = urlsplit(address)
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        return "path", "http:// is read by everybody on the way, and may be changed there", "write https://"
    if parts.hostname == "huggingface.co" and (page := _PAGE_OF_HUB.fullmatch(parts.path)):
        return "path", "is a page about a dataset", f"write hf://datasets/{page['repo']}"
    return None


def _of_hub(address: str, revision: str | None) -> tuple[str, str, str] | None:
    match = _HUB.fullmatch(address)
    if match is None:
        advice = "it reads like hf://datasets/ORG/NAME, and maybe /path/to/file.jsonl"
        return "path", "does not name a dataset of the hub", advice
    if match["revision"] and revision is not None:
        return "revision", "stands in the address already", "keep one of the two"
    return None
