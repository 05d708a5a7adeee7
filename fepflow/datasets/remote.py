"""Test cases from an address: its files, fetched, and what a run records about them.

Downloads are capped while they are read, and kept below FEPFLOW_HOME by their content:

    downloads/SHA-256.jsonl        a file; its name is the digest of its content, which is checked before each use
    downloads/index/….json         by the digest of an address: its file, and the source's name for this version

A file that its source calls unchanged (ETag, revision) is not fetched again. A source that cannot be reached is an
error, even if a file is kept: last week's test cases must not pass for today's.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from functools import partial
from hashlib import file_digest, sha256
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from fepflow.datasets.addresses import HubAddress, hub_address, public_address, scheme_of
from fepflow.datasets.records import format_of
from fepflow.errors import InfrastructureError, InputError, Problem
from fepflow.extras import require
from fepflow.security.addresses import is_loopback
from fepflow.security.redaction import remember, secrets_in_address, words_of
from fepflow.settings import settings
from fepflow.text import brief
from fepflow.time_limit import within

if TYPE_CHECKING:
    import httpx

MAX_DOWNLOAD_BYTES = 2_000_000_000
SECONDS = 600.0
"""Deadline of a download, tries and pauses included."""
CONNECT_SECONDS = 10.0
SILENCE_SECONDS = 30.0
PAUSES = (1.0, 3.0)
"""Seconds before the second and the third try to reach a source."""
MOST_REDIRECTS = 5

_CHUNK = 1_000_000
_PAGES = (b"<!doctype html", b"<html")


@dataclass(frozen=True)
class Download:
    """A file as it was fetched. `validator` is its source's name for this version."""

    name: str
    sha256: str
    size: int
    validator: str | None = None
    revision: str | None = None

    @property
    def path(self) -> Path:
        """The file on this machine."""
        return _folder() / self.name


def fetch(
    address: str,
    *,
    shown: str | None = None,
    headers: Mapping[str, str] | None = None,
    is_constant: bool = False,
    sha256: str | None = None,
) -> Download:
    """Return the file at an address (https, or http on this machine; s3; gs), fetched or from the kept files.

    `shown` is its name in messages. A file that `is_constant` is fetched once only; `sha256` is its required digest.
    Raises InputError, or InfrastructureError for what may succeed later.
    """
    remember(secrets_in_address(address))
    fetching = _Fetching(address, shown or public_address(address), headers or {}, sha256)
    kept = _kept(address)
    if kept is not None and is_constant:
        return kept
    try:
        return within(SECONDS, partial(fetching.tried_again, kept))
    except TimeoutError:
        raise fetching.unreachable(f"it took longer than {SECONDS:g} s") from None


@dataclass(frozen=True)
class _Fetching:
    address: str
    shown: str
    headers: Mapping[str, str]
    sha256: str | None

    def tried_again(self, kept: Download | None) -> Download:
        fetch_once = self.from_web if scheme_of(self.address) in ("http", "https") else self.from_bucket
        for pause in PAUSES:
            with suppress(InfrastructureError):
                return fetch_once(kept)
            time.sleep(pause)
        return fetch_once(kept)

    def refuse(self, message: str, advice: str | None = None) -> InputError:
        return InputError(Problem(message, self.shown, advice=advice))

    def unreachable(self, reason: str) -> InfrastructureError:
        return InfrastructureError(f"{self.shown} cannot be fetched: {reason}; nothing was evaluated: try again later")

    def from_web(self, kept: Download | None) -> Download:
        import httpx

        conditions = {"If-None-Match": kept.validator} if kept is not None and kept.validator else {}
        # Not compressed for transport: size and digest must be those of the file.
        headers = {"Accept-Encoding": "identity", **self.headers, **conditions}
        timeout = httpx.Timeout(SILENCE_SECONDS, connect=CONNECT_SECONDS)
        try:
            with httpx.Client(timeout=timeout) as client, self._answer(client, headers) as response:
                if response.status_code == 304 and kept is not None and conditions:
                    return kept
                self._require_file(response)
                chunks = response.iter_raw(_CHUNK)
                return self._store(chunks, _suffix(self.address, response), response.headers.get("ETag"))
        except httpx.TransportError as error:
            raise self.unreachable(words_of(error) or type(error).__name__) from None
        except httpx.InvalidURL:
            raise self.refuse("the address, or one that it redirects to, is not valid") from None

    @contextmanager
    def _answer(self, client: httpx.Client, headers: Mapping[str, str]) -> Iterator[httpx.Response]:
        """Yield the first answer that does not redirect. Secrets of address and headers go to their own host only."""
        request = client.build_request("GET", self.address, headers=headers)
        for _ in range(MOST_REDIRECTS + 1):
            response = client.send(request, stream=True)
            try:
                if response.next_request is None:
                    yield response
                    return
                self._require_safe_redirect(request.url, response.next_request.url)
                request = response.next_request
            finally:
                response.close()
        raise self.refuse(f"redirects more than {MOST_REDIRECTS} times")

    def _require_safe_redirect(self, origin: httpx.URL, url: httpx.URL) -> None:
        from_here = origin.scheme == "http" and is_loopback(origin.host)
        if url.scheme != "https" and not (from_here and url.scheme == "http" and is_loopback(url.host)):
            raise self.refuse("redirects to an address that is not https", "name the address where the file really is")

    def _require_file(self, response: httpx.Response) -> None:
        status = response.status_code
        if status in (401, 403):
            advice = "give credentials as ${NAME} in the address" if not self.headers else "set HF_TOKEN"
            raise self.refuse(f"may not be read: the server answers {status}", advice)
        if status in (404, 410):
            raise self.refuse(f"is not there: the server answers {status}", "check the address")
        if status in (408, 425, 429) or status >= 500:
            raise self.unreachable(f"the server answers {status}")
        if status != 200:
            raise self.refuse(f"is not a file: the server answers {status}")
        coding = response.headers.get("Content-Encoding", "identity").lower()
        if coding not in ("identity", "gzip", ""):
            raise self.refuse(f"is sent compressed ({coding[:20]}) though that was not asked for")
        length = response.headers.get("Content-Length", "")
        if not length and "Transfer-Encoding" not in response.headers:
            raise self.refuse("is sent without its length, so a part of it looks like the whole", "serve it as a file")
        if length.isdecimal() and int(length[:20]) > MAX_DOWNLOAD_BYTES:
            raise self._too_large()

    def _too_large(self) -> InputError:
        return self.refuse(f"is larger than {MAX_DOWNLOAD_BYTES:,} bytes", "split it, or make a sample of it")

    def from_bucket(self, kept: Download | None) -> Download:
        scheme = scheme_of(self.address)
        require("remote", f"reading {scheme}://", "fsspec", "s3fs" if scheme == "s3" else "gcsfs")
        import fsspec

        limits = {"connect_timeout": CONNECT_SECONDS, "read_timeout": SILENCE_SECONDS, "retries": {"max_attempts": 2}}
        options = {"config_kwargs": limits} if scheme == "s3" else {"timeout": SILENCE_SECONDS}
        try:
            # A new instance: cached ones have old credentials and listings.
            files = fsspec.filesystem(scheme, skip_instance_cache=True, use_listings_cache=False, **options)
            about = files.info(self.address, timeout=SILENCE_SECONDS)
            if about.get("type") == "directory":
                raise self.refuse("is a folder", "name a file in it")
            revision = about.get("VersionId") or about.get("generation")
            version = (about.get("ETag") or about.get("etag") or about.get("md5Hash"), revision, about.get("size"))
            validator = json.dumps(version) if version[0] else None
            if kept is not None and validator is not None and kept.validator == validator:
                return kept
            if (about.get("size") or 0) > MAX_DOWNLOAD_BYTES:
                raise self._too_large()
            with files.open(self.address, "rb", block_size=_CHUNK, cache_type="readahead") as stream:
                chunks = self._chunks(stream)
                return self._store(chunks, _suffix(self.address), validator, revision, about.get("size"))
        except (InputError, InfrastructureError):
            raise
        except FileNotFoundError:
            raise self.refuse("is not there", "check bucket and path") from None
        except Exception as error:  # of botocore, aiohttp, google.auth, fsspec, each with a tree of its own
            if isinstance(error, PermissionError) or "Credentials" in type(error).__name__:
                names = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
                names = names if scheme == "s3" else "GOOGLE_APPLICATION_CREDENTIALS"
                advice = f"credentials come from the environment: {names}"
                raise self.refuse(f"may not be read: {words_of(error, 200)}", advice) from None
            raise self.unreachable(words_of(error) or type(error).__name__) from None

    def _chunks(self, stream: IO[bytes]) -> Iterator[bytes]:
        try:
            yield from iter(partial(stream.read, _CHUNK), b"")
        except OSError as error:  # also a time-out of fsspec's: not to be taken for one of the disk that is written to
            raise self.unreachable(words_of(error) or type(error).__name__) from None

    def _store(
        self,
        chunks: Iterable[bytes],
        suffix: str,
        validator: str | None,
        revision: str | None = None,
        size: int | None = None,
    ) -> Download:
        """Write a file while it is read, and note its version; the address's previous file is removed."""
        folder = _folder()
        try:
            (folder / "index").mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(prefix="part-", dir=folder)
        except OSError as error:
            raise InfrastructureError(f"{folder} cannot be written to: {error.strerror}") from None
        digest, written = sha256(), 0
        try:
            with os.fdopen(descriptor, "wb") as file:
                for chunk in chunks:
                    if not written and chunk.lstrip()[:20].lower().startswith(_PAGES):
                        advice = "it may be a page for people, or ask to sign in: name the address of the file itself"
                        raise self.refuse("is a page of HTML, not data", advice)
                    written += file.write(chunk)
                    digest.update(chunk)
                    if written > MAX_DOWNLOAD_BYTES:
                        raise self._too_large()
            if size is not None and written != size:
                raise self.unreachable(f"it has {written:,} bytes instead of {size:,}: it was cut off, or has changed")
            if self.sha256 is not None and digest.hexdigest() != self.sha256:
                raise self.unreachable(f"its SHA-256 is {digest.hexdigest()}, and should be {self.sha256}")
            download = Download(f"{digest.hexdigest()}{suffix}", digest.hexdigest(), written, validator, revision)
            os.replace(name, folder / download.name)
            _note(self.address, download)
        except OSError as error:
            raise InfrastructureError(f"{folder} cannot be written to: {error.strerror or error}") from None
        finally:
            with suppress(OSError):
                os.unlink(name)
        return download


def delete_downloads(older_than: float) -> int:
    """Delete kept files that were fetched more than `older_than` seconds ago. Return their number."""
    count = 0
    for file in _folder().glob("*"):
        is_part = file.name.startswith("part-")  # a young one is being written, others are of killed processes
        with suppress(OSError):  # another process has deleted it, or it is the folder of the index
            if time.time() - file.stat().st_mtime >= (SECONDS if is_part else older_than):
                file.unlink()
                count += not is_part
    return count


def _folder() -> Path:
    return settings().home / "downloads"


def _index(address: str) -> Path:
    return _folder() / "index" / f"{sha256(address.encode('utf-8', 'surrogatepass')).hexdigest()}.json"


def _kept(address: str) -> Download | None:
    """Return the file that was fetched last from an address, if it is unchanged."""
    try:
        download = Download(**json.loads(_index(address).read_text(encoding="ascii")))
        with download.path.open("rb") as file:
            intact = file_digest(file, "sha256").hexdigest() == download.sha256
    except (OSError, ValueError, TypeError):
        return None
    return download if intact else None


def _note(address: str, download: Download) -> None:
    index = _index(address)
    with suppress(OSError, ValueError, TypeError):
        before = Download(**json.loads(index.read_text(encoding="ascii")))
        if before.name != download.name:
            before.path.unlink()  # another address that gave the same is asked again
    descriptor, name = tempfile.mkstemp(prefix="part-", dir=index.parent)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        json.dump(asdict(download), file)
    os.replace(name, index)


def _suffix(address: str, response: httpx.Response | None = None) -> str:
    """Return the endings of a file's name that say how it is read."""
    suffixes = [suffix.lower() for suffix in PurePosixPath(unquote(urlsplit(address).path)).suffixes[-2:]]
    suffix = "".join(suffix for suffix in suffixes if suffix[1:].isalnum() and suffix.isascii() and len(suffix) < 10)
    packed = response is not None and response.headers.get("Content-Encoding", "").lower() == "gzip"
    return f"{suffix}.gz" if packed and not suffix.endswith(".gz") else suffix


MOST_FILES = 200
_LISTED = 10
_DATA = re.compile(r".*\.(?:parquet|xlsx|(?:jsonl|ndjson|json|csv|tsv)(?:\.gz)?)", re.IGNORECASE)
_SHARD = re.compile(r"-(\d{5})-of-(\d{5})")
_NO_DATA = re.compile(r"(?:^|/)(?:\.|dataset_infos?\.json$|state\.json$|croissant\.json$)")


@dataclass(frozen=True)
class RemoteFiles:
    """The files of test cases of an address, in their order, each with its name in messages.

    `revision` is the commit, version or generation, where the source has them.
    """

    address: str
    files: tuple[tuple[Download, str], ...]
    revision: str | None

    def data(self) -> dict[str, Any]:
        """Return what the run's row keeps. The digest of several files is that of their digests, one a line."""
        digests = [download.sha256 for download, _ in self.files]
        digest = digests[0] if len(digests) == 1 else sha256("\n".join(digests).encode()).hexdigest()
        size = sum(download.size for download, _ in self.files)
        data = {"url": self.address, "sha256": digest, "bytes": size}
        return data | ({"revision": self.revision} if self.revision else {})


def fetch_cases(address: str, format: str | None, split: str | None, revision: str | None) -> RemoteFiles:
    """Fetch the files of an address that has no problem (see `data_address_problem`).

    Raises InputError if the suite or the file has to change, InfrastructureError if the source cannot be reached.
    """
    shown = public_address(address)
    if scheme_of(address) == "hf":
        return _from_hub(hub_address(address, revision), shown, split)
    format_of(Path(urlsplit(address).path), format, shown)  # else it would be fetched in vain
    download = fetch(address, shown=shown)
    return RemoteFiles(shown, ((download, shown),), download.revision)


def _from_hub(address: HubAddress, shown: str, split: str | None) -> RemoteFiles:
    require("remote", "reading hf://", "huggingface_hub")
    from huggingface_hub import HfApi, get_token, hf_hub_url

    endpoint = os.environ.get("HF_ENDPOINT") or None  # the library reads it once, when it is imported
    with _errors_of_hub(shown):
        info = HfApi(endpoint=endpoint).dataset_info(
            address.repo, revision=address.revision, files_metadata=True, timeout=SILENCE_SECONDS
        )
    siblings = {sibling.rfilename: sibling for sibling in info.siblings or ()}
    configs = configurations(info.card_data.get("configs") if info.card_data else None)
    chosen = _declared(configs, list(siblings), address.path, split, shown)
    files = []
    for name in chosen or _chosen(list(siblings), address.path, split, shown):
        file = f"hf://datasets/{address.repo}@{str(info.sha)[:12]}/{name}"
        download = fetch(
            hf_hub_url(address.repo, name, repo_type="dataset", revision=info.sha, endpoint=endpoint),
            shown=file,
            headers={"Authorization": f"Bearer {token}"} if (token := get_token()) else None,
            is_constant=True,  # the address names the commit
            sha256=lfs.sha256 if (lfs := siblings[name].lfs) is not None else None,
        )
        files.append((download, file))
    return RemoteFiles(shown, tuple(files), info.sha)


@contextmanager
def _errors_of_hub(shown: str) -> Iterator[None]:
    import httpx
    from huggingface_hub import errors

    refuse = partial(_refused, shown)
    try:
        yield
    except errors.GatedRepoError:
        raise refuse("may not be read", "accept its terms on the hub, and set HF_TOKEN") from None
    except errors.RevisionNotFoundError:
        raise refuse("has no such revision", "a revision is a branch, a tag or a commit") from None
    except errors.RepositoryNotFoundError:
        raise refuse("the hub has no such dataset", "check its name; a private one takes HF_TOKEN") from None
    except errors.HFValidationError as error:
        raise refuse(brief(words_of(error), 200), "it reads like hf://datasets/ORG/NAME") from None
    except errors.HfHubHTTPError as error:
        status = error.response.status_code
        if status in (401, 403):
            raise refuse(f"may not be read: the hub answers {status}", "set HF_TOKEN") from None
        raise InfrastructureError(
            f"{shown} cannot be fetched: the hub answers {status}; nothing was evaluated: try again later"
        ) from None
    except (httpx.TransportError, errors.OfflineModeIsEnabled, ValueError, KeyError, TypeError) as error:
        # The library raises the last three for an answer that is not a listing.
        reason = words_of(error, 200) or type(error).__name__
        raise InfrastructureError(
            f"{shown} cannot be fetched: the hub does not answer as it should ({reason}); nothing was evaluated"
        ) from None


def _refused(shown: str, message: str, advice: str) -> InputError:
    return InputError(Problem(message, shown, advice=advice))


def configurations(declared: Any) -> dict[str, dict[str, list[str]]]:
    """Return the splits of each configuration that a dataset's card declares, each as the patterns of its files.

    Invalid declarations are left out; then the files' names decide. The default configuration is also kept as "".
    """
    configs: dict[str, dict[str, list[str]]] = {}
    for config in declared if isinstance(declared, list) else ():
        if not isinstance(config, dict) or not isinstance(name := config.get("config_name"), str):
            continue
        files: Any = config.get("data_files")
        are_items = isinstance(files, list) and all(isinstance(item, dict) for item in files)
        items = files if are_items else [{"path": files}]
        splits: dict[str, list[str]] = {}
        for item in items:
            split, patterns = item.get("split", "train"), item.get("path")  # as the hub calls what has no split
            patterns = [patterns] if isinstance(patterns, str) else patterns
            if isinstance(split, str) and isinstance(patterns, list) and all(isinstance(one, str) for one in patterns):
                splits.setdefault(split, []).extend(patterns)
        if splits:
            configs[name] = splits
            if config.get("default") is True or name == "default":
                configs[""] = splits
    return configs


def _declared(
    configs: dict[str, dict[str, list[str]]], names: Sequence[str], path: str, split: str | None, shown: str
) -> list[str]:
    """Return the files of a split as the dataset's card declares them; an empty list if it does not declare this path.

    Raises InputError for an undeclared split, and if several could be meant.
    """

    refuse = partial(_refused, shown)
    if not path and configs and "" not in configs and len(configs) > 1:
        first = f"{shown.rstrip('/')}/{next(iter(configs))}"
        raise refuse(f"has several configurations: {_names(list(configs))}", f"name one, as in {first}")
    splits = configs.get(path, {}) if path or "" in configs else next(iter(configs.values()), {})
    if path in names or not splits:
        return []
    if split is None and len(splits) > 1:
        raise refuse(f"has several splits: {_names(list(splits))}", f"give one, as in `split: {next(iter(splits))}`")
    if split is not None and split not in splits:
        raise refuse(f"has no split {brief(split, 60)}", f"there are {_names(list(splits))}")
    patterns = splits[split] if split is not None else next(iter(splits.values()))
    chosen = [name for pattern in patterns for name in sorted(names) if fits(name.split("/"), pattern.split("/"))]
    chosen = [name for name in dict.fromkeys(chosen) if _DATA.fullmatch(name)]
    if not chosen:
        raise refuse(f"declares a split of files that are not there: {_names(patterns)}", f"there are {_names(names)}")
    return _complete(chosen, shown)


def fits(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """Return whether a path fits a pattern, in which * is a part of a name and ** any folders, or none."""
    if "**" not in pattern:
        return len(parts) == len(pattern) and all(map(fnmatchcase, parts, pattern))
    at = pattern.index("**")
    before, after = pattern[:at], pattern[at + 1 :]
    if len(parts) < len(before) + len(after) or "**" in after:  # a second one is not read
        return False
    return fits(parts[:at], before) and fits(parts[len(parts) - len(after) :], after)


def _chosen(names: Sequence[str], path: str, split: str | None, shown: str) -> list[str]:
    """Return the file of an address, or its numbered parts, in order. Raises InputError.

    The file is never guessed: a dataset with several files takes a split, a folder or a file's name.
    """

    refuse = partial(_refused, shown)
    if path in names:
        if split is not None:
            raise refuse("names one file, which has no splits", "remove split")
        if not _DATA.fullmatch(path):
            format_of(Path(path), None, shown)
        return [path]
    inside = [name for name in names if not path or name.startswith(f"{path}/")]
    data = sorted(name for name in inside if _DATA.fullmatch(name) and not _NO_DATA.search(name))
    if not data:
        raise refuse("has no data file there", f"there are {_names(inside or names)}")
    chosen = data if split is None else [name for name in data if _is_of_split(name[len(path) :], split)]
    if not chosen:
        raise refuse(f"has no file of the split {brief(split or '', 60)}", f"there are {_names(data)}")
    groups = {_SHARD.sub("", name) for name in chosen}
    if len(groups) > 1:
        what = "give split, a folder or" if split is None else "name a folder or"
        advice = f"{what} the file, as in {shown.rstrip('/')}{'' if path else '/'}{chosen[0][len(path) :]}"
        raise refuse(f"has several files: {_names(chosen)}", advice)
    return _complete(chosen, shown)


def _complete(chosen: list[str], shown: str) -> list[str]:
    """Return the files of one split. Raises InputError if numbered parts are missing, or too many."""

    refuse = partial(_refused, shown)
    groups: dict[str, list[re.Match[str] | None]] = {}
    for name in chosen:
        groups.setdefault(_SHARD.sub("", name), []).append(_SHARD.search(PurePosixPath(name).name))
    for group in groups.values():
        parts = [match for match in group if match]
        if parts and (len(parts) != len(group) or [int(part[1]) for part in parts] != list(range(int(parts[0][2])))):
            raise refuse(f"has not all parts of a file: {_names(chosen)}", "name the file")
    if len(chosen) > MOST_FILES:
        raise refuse(f"has {len(chosen)} parts, more than {MOST_FILES}", "name one of them")
    return chosen


def _is_of_split(name: str, split: str) -> bool:
    """Return whether a path contains the split as a whole word, by which the hub recognizes splits."""
    return re.search(rf"(?:^|[-._ /0-9]){re.escape(split)}(?:$|[-._ /0-9])", name, re.IGNORECASE) is not None


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(brief(name, 100) for name in names[:_LISTED]) + more if names else "no files"
