"""Blobs: contents that are too large for rows, in a folder or a bucket, each under the SHA-256 of its bytes.

    ADDRESS/ab/abcdef…      `ADDRESS` is the operator's FEPFLOW_BLOBS, `abcdef…` the digest that a row of the store has

A blob never changes. It is written whole or not at all, and its digest is checked whenever it is read.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar
from urllib.parse import urlsplit
from urllib.request import url2pathname

from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

from fepflow.errors import InfrastructureError
from fepflow.extras import require
from fepflow.security.redaction import words_of
from fepflow.settings import settings

AT_ONCE = 8
"""Blobs that are written or read at once: a request to a bucket takes longer than its megabyte."""

CONNECT_SECONDS, SILENCE_SECONDS = 10.0, 15.0
"""Seconds after which a request to a bucket that does not answer is given up."""

REQUESTS = 2
"""Requests to S3 for one thing. By default botocore makes five, and s3fs lets it do so five times: a bucket that takes
connections and says nothing kept a run waiting for a quarter of an hour."""

T = TypeVar("T")


@dataclass(frozen=True)
class LostBlob:
    """A blob that cannot be used: a sentence says why, where it should be, and what to do."""

    reason: str


class _Place(Protocol):
    """A folder or a bucket. A blob that is not there is a FileNotFoundError, but for `delete`."""

    def size(self, name: str) -> int: ...

    def write(self, name: str, content: bytes) -> None: ...

    def read(self, name: str) -> bytes: ...

    def delete(self, name: str) -> None: ...

    def names(self) -> Iterator[str]: ...


class Blobs:
    """The blobs at an address. Thread-safe; each method blocks until all of its blobs are done.

    `wait_seconds` is how long a place that is away is waited for. Raises MissingExtraError for an address that needs
    the extra `remote`.
    """

    def __init__(self, address: str, wait_seconds: float = 0.0) -> None:
        self.address = address
        self._wait_seconds = wait_seconds
        self._place: _Place = _Folder(address) if address.startswith("file:") else _Bucket(address)

    @classmethod
    def of_settings(cls, wait_seconds: float = 0.0) -> Self | None:
        """Return the blobs that FEPFLOW_BLOBS names; None if large contents stay in rows."""
        address = settings().blobs
        return None if address is None else cls(address, wait_seconds)

    def waiting(self, wait_seconds: float) -> Self:
        """Return the same blobs, and another time to wait for a place that is away."""
        same = copy(self)
        same._wait_seconds = wait_seconds
        return same

    def write(self, contents: Mapping[str, bytes], known: Collection[str] = ()) -> None:
        """Write contents by their digests. One that is `known` is not written again if it is there with its size.

        Raises InfrastructureError; then some may be there.
        """

        def write(digest: str) -> None:
            if digest in known:
                with suppress(FileNotFoundError):
                    if self._tried(self._place.size, digest) == len(contents[digest]):
                        return
            try:
                self._tried(self._place.write, digest, contents[digest])
            except FileNotFoundError as error:
                raise self._unavailable(digest, error) from None

        _at_once(write, contents)

    def read(self, digests: Collection[str]) -> dict[str, bytes | LostBlob]:
        """Return the contents by their digests. Raises InfrastructureError if the place is away."""

        def read(digest: str) -> bytes | LostBlob:
            try:
                content: bytes = self._tried(self._place.read, digest)
            except FileNotFoundError:
                return self._lost(digest, "is not there")
            if sha256(content).hexdigest() != digest:
                return self._lost(digest, "is damaged (its SHA-256 is another)")
            return content

        return dict(zip(digests, _at_once(read, digests), strict=True))

    def require_answer(self, digest: str) -> None:
        """Wait until the place answers about a blob, whatever it says. Raises InfrastructureError."""

        def ask(name: str) -> None:
            with suppress(FileNotFoundError, PermissionError):
                self._place.size(name)

        self._tried(ask, digest)

    def delete(self, digests: Collection[str]) -> None:
        """Delete blobs; those that are not there are no error. Raises InfrastructureError."""
        _at_once(lambda digest: self._tried(self._place.delete, digest), digests)

    def names(self) -> list[str]:
        """Return the digests of all blobs that are there, and the names of other files. Raises InfrastructureError."""
        try:
            names: list[str] = self._tried(lambda _: list(self._place.names()), "")
        except FileNotFoundError:
            return []
        return names

    def _lost(self, digest: str, what: str) -> LostBlob:
        return LostBlob(
            f"The output is too large for the store's row, and its blob {self._location(digest)} {what}: restore that "
            "from a backup, or run the suite again. `fepflow store check` names all such blobs."
        )

    def _location(self, digest: str) -> str:
        return f"{self.address}/{_name(digest)}" if digest else self.address

    def _tried(self, work: Callable[..., Any], digest: str, *arguments: Any) -> Any:
        """Call `work` with a blob's name until it succeeds, `wait_seconds` long. Raises FileNotFoundError."""
        retrying = Retrying(
            retry=retry_if_exception(_is_passing),
            stop=stop_after_delay(self._wait_seconds),
            wait=wait_random_exponential(multiplier=0.1, max=1),
            reraise=True,
        )
        try:
            return retrying(work, _name(digest), *arguments)
        except FileNotFoundError:
            raise
        except Exception as error:  # of botocore, aiohttp, google.auth, fsspec, each with a tree of its own
            raise self._unavailable(digest, error) from None

    def _unavailable(self, digest: str, error: Exception) -> InfrastructureError:
        reason = words_of(error, 200) or type(error).__name__
        if not isinstance(self._place, _Bucket):
            reason = getattr(error, "strerror", None) or reason
            advice = "look at its disk: free space, quota, mount, permissions"
        elif _is_of_credentials(error):
            advice = f"credentials come from the environment: {self._place.credentials}"
        else:
            advice = "check that the bucket of FEPFLOW_BLOBS exists, can be reached and may be read and written"
        return InfrastructureError(f"{self._location(digest)} cannot be used ({reason}): {advice}.")


def _at_once(work: Callable[[str], T], digests: Collection[str]) -> list[T]:
    if not digests:
        return []
    with ThreadPoolExecutor(min(AT_ONCE, len(digests)), "fepflow-blobs") as pool:
        return list(pool.map(work, digests))


def _name(digest: str) -> str:
    return f"{digest[:2]}/{digest}"


def _is_of_credentials(error: BaseException) -> bool:
    return isinstance(error, PermissionError) or "Credentials" in type(error).__name__


def _is_passing(error: BaseException) -> bool:
    """Return whether an error may be over in a moment: a place that is away, a full disk."""
    return isinstance(error, Exception) and not (isinstance(error, FileNotFoundError) or _is_of_credentials(error))


class _Folder:
    """A folder, its folders of 0700, its files of 0600."""

    def __init__(self, address: str) -> None:
        self._root = Path(url2pathname(urlsplit(address).path))

    def size(self, name: str) -> int:
        return (self._root / name).stat().st_size

    def write(self, name: str, content: bytes) -> None:
        path = self._root / name
        for folder in reversed([folder for folder in path.parents if not folder.exists()]):
            folder.mkdir(mode=0o700, exist_ok=True)
        descriptor, part = tempfile.mkstemp(prefix="part-", dir=path.parent)  # 0600
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(part)
            raise
        _sync_folder(path.parent)

    def read(self, name: str) -> bytes:
        try:
            return (self._root / name).read_bytes()
        except FileNotFoundError:
            self._require_root()
            raise

    def delete(self, name: str) -> None:
        try:
            (self._root / name).unlink()
        except FileNotFoundError:
            self._require_root()

    def _require_root(self) -> None:
        """Raise OSError where a disk may only not be mounted: its blobs are neither lost nor deleted."""
        if not self._root.is_dir():
            raise OSError("the folder is not there") from None

    def names(self) -> Iterator[str]:
        return (path.name for path in self._root.glob("??/*"))


def _sync_folder(folder: Path) -> None:
    """Have the disk keep a file's new name; Windows cannot open folders, and keeps it by itself."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class _Bucket:
    """A bucket of S3 or Google Cloud Storage, by fsspec. Credentials come from the environment."""

    def __init__(self, address: str) -> None:
        self._scheme = address.partition(":")[0]
        self._root = address
        require("remote", f"FEPFLOW_BLOBS={self._scheme}://", "fsspec", "s3fs" if self._scheme == "s3" else "gcsfs")
        self._opening = threading.Lock()
        self._opened: Any = None

    @property
    def credentials(self) -> str:
        """Names of the variables that hold them."""
        of_s3 = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
        return of_s3 if self._scheme == "s3" else "GOOGLE_APPLICATION_CREDENTIALS"

    @property
    def _files(self) -> Any:
        with self._opening:
            if self._opened is None:
                import fsspec  # takes half a second with s3fs, and most commands need no blob

                limits = {
                    "connect_timeout": CONNECT_SECONDS,
                    "read_timeout": SILENCE_SECONDS,
                    "retries": {"total_max_attempts": REQUESTS},
                }
                options = {"config_kwargs": limits} if self._scheme == "s3" else {"timeout": 2 * SILENCE_SECONDS}
                self._opened = fsspec.filesystem(
                    self._scheme, skip_instance_cache=True, use_listings_cache=False, **options
                )
                if self._scheme == "s3":
                    self._opened.retries = 1
            return self._opened

    def size(self, name: str) -> int:
        return int(self._files.info(f"{self._root}/{name}")["size"])

    def write(self, name: str, content: bytes) -> None:
        self._files.pipe_file(f"{self._root}/{name}", content)

    def read(self, name: str) -> bytes:
        try:
            content: bytes = self._files.cat_file(f"{self._root}/{name}")
        except FileNotFoundError as error:
            _require_bucket(error)
            raise
        return content

    def delete(self, name: str) -> None:
        try:
            self._files.rm_file(f"{self._root}/{name}")
        except FileNotFoundError as error:
            _require_bucket(error)

    def names(self) -> Iterator[str]:
        return (path.rpartition("/")[2] for path in self._files.find(self._root))


def _require_bucket(error: FileNotFoundError) -> None:
    """Raise OSError if a whole bucket is not there: its blobs are neither lost nor deleted. Only S3 tells."""
    if type(error.__cause__).__name__ == "NoSuchBucket":
        raise OSError("the bucket is not there") from None
