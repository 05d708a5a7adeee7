"""Blobs: contents that are too large for rows, in a folder or a bucket, each under the SHA-256 of its bytes.

    ADDRESS/ab/abcdef…      `ADDRESS` is the operator's FEPFLOW_BLOBS, `abcdef…` the digest that a row of the store has

A blob never changes. It is written whole or not at all, and its digest is checked whenever it is read.

The row of a large output keeps a beginning, and all of it is in a blob that rows may share. A writer first notes a blob
in the table `blob`, then writes the blob, then, in one transaction, sees that the note is still there, locks it, and
inserts the rows that refer to it. Who deletes blobs that no row refers to locks and deletes their notes first, and the
blobs in the same transaction. So a row never refers to a blob that is deleted: where both meet, the writer begins
again.
"""

from __future__ import annotations

import json
import os
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar
from urllib.parse import urlsplit
from urllib.request import url2pathname

from sqlalchemy import Connection, delete, exists, func, select
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

from fepflow.errors import InfrastructureError
from fepflow.extras import require
from fepflow.json.values import decode, encode
from fepflow.protocol.model import utc_now
from fepflow.protocol.results import CheckError
from fepflow.protocol.test_case import Output
from fepflow.security.redaction import words_of
from fepflow.settings import settings
from fepflow.store.database import KEYS_AT_ONCE, Database, chunks, upserting
from fepflow.store.records import BLOB, OUTPUT, StoredOutput

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


LARGE = 256_000
"""Characters of an output's JSON, metadata included, up to which all of it stays in its row."""

KEPT = 4_000
"""Characters of JSON up to which the value, or an entry of the metadata, of a large output stays in its row."""

BEGINNING = 1_000
"""Characters of a value in a blob that its row has for lists."""

_ALWAYS_KEPT = ("error", "user")
"""Entries of the metadata that tell whether a call failed, and what a simulated user has cost."""

_TRIES = 20
_DELETED_AT_ONCE = 100
"""Blobs deleted in one transaction."""

K = TypeVar("K")


class LargeOutputs:
    """Writes, reads and deletes the blobs of a database; `blobs` is None where FEPFLOW_BLOBS is not set."""

    def __init__(self, database: Database, blobs: Blobs | None) -> None:
        self._database = database
        self._blobs = blobs

    @property
    def moved_out(self) -> dict[str, bytes] | None:
        """A place for what does not stay in new rows, by digest; None if all of it stays."""
        return None if self._blobs is None else {}

    def write(self, contents: Mapping[str, bytes] | None, insert: Callable[[Connection], None]) -> None:
        """Write the blobs, then insert rows that refer to them, in one transaction; return when it is committed.

        Raises InfrastructureError; then no row is stored.
        """
        if not contents:
            self._database.write(insert)
            return
        assert self._blobs is not None

        def insert_if_noted(connection: Connection) -> bool:
            noted = _count_locked(connection, digests) == len(digests)
            if noted:
                insert(connection)
            return noted

        digests = sorted(contents)  # deadlocks come of locks in different orders
        for _ in range(_TRIES):
            known = self._database.write(lambda connection: _note(connection, contents, digests))
            self._blobs.write(contents, known)
            if self._database.write(insert_if_noted):
                return
        raise InfrastructureError(
            f"Large outputs could not be stored in {self._blobs.address}: each time, a `fepflow store prune` deleted "
            "them before their rows were there. Resume the run when that is over."
        )

    def whole(self, outputs: Mapping[K, StoredOutput]) -> dict[K, StoredOutput]:
        """Return outputs with all that their blobs hold; one whose blob is lost has failed, and says why.

        Raises InfrastructureError if blobs cannot be reached.
        """
        digests = {stored.blob: None for stored in outputs.values() if stored.blob is not None}
        if not digests:
            return dict(outputs)
        contents = self._required(len(digests)).read(digests)
        return {
            key: stored if stored.blob is None else _joined(stored, contents[stored.blob])
            for key, stored in outputs.items()
        }

    def delete_unused(self) -> int:
        """Delete the blobs that no output refers to, and return their number. Raises InfrastructureError; then those
        that are left are deleted the next time."""
        unused = ~exists().where(OUTPUT.c.blob == BLOB.c.digest)
        some = select(BLOB.c.digest).where(unused).order_by(BLOB.c.digest).limit(_DELETED_AT_ONCE)
        with self._database.reading() as connection:
            left, first = connection.execute(select(func.count(), func.min(BLOB.c.digest)).where(unused)).one()
        if not left:
            return 0
        blobs = self._required(left)
        in_transaction = blobs.waiting(0)

        def delete_some(connection: Connection) -> int:
            # A writer that holds one is about to refer to it. What was committed since this read is seen by the next.
            unlocked = connection.scalars(some.with_for_update(skip_locked=True)).all()
            deletion = delete(BLOB).where(BLOB.c.digest.in_(unlocked), unused).returning(BLOB.c.digest)
            digests = connection.scalars(deletion).all()
            in_transaction.delete(digests)
            return len(digests)

        count = 0
        while True:
            # On SQLite nobody else writes during a transaction: a place that is away is waited for before it.
            blobs.require_answer(first)
            deleted = self._database.write(delete_some)
            if not deleted:
                return count
            count += deleted

    def _required(self, count: int) -> Blobs:
        if self._blobs is None:
            raise InfrastructureError(
                f"{count:,} large output{'s' * (count > 1)} of {self._database.location} cannot be reached, because "
                "FEPFLOW_BLOBS is not set here: set it to the address that the runs were written with."
            )
        return self._blobs


def move_out(row: dict[str, Any], output: Output, contents: dict[str, bytes]) -> None:
    """Leave the beginning of a large output in its row, and add all of it to the contents of blobs."""
    if len(row["value"]) + len(row["metadata"] or "") <= LARGE:
        return
    parts: list[str] = []
    if len(row["value"]) > KEPT:
        parts.append(f'"value":{row["value"]}')
        row["value"] = encode(_beginning(output.value, row["value"]))
    metadata = output.metadata or {}
    large = {name for name, entry in metadata.items() if name not in _ALWAYS_KEPT and len(encode(entry)) > KEPT}
    if large:
        parts.append(f'"metadata":{encode({name: metadata[name] for name in metadata if name in large})}')
        # Their names keep their places.
        row["metadata"] = encode({name: None if name in large else entry for name, entry in metadata.items()})
    if parts:
        content = f"{{{','.join(parts)}}}".encode("ascii")
        row["blob"] = sha256(content).hexdigest()
        contents[row["blob"]] = content


def _beginning(value: Any, text: str) -> str:
    """Return the beginning of a value for people; `text` is the value as JSON."""
    return (value if isinstance(value, str) else json.dumps(decode(text), ensure_ascii=False))[:BEGINNING]


def _joined(stored: StoredOutput, content: bytes | LostBlob) -> StoredOutput:
    output, metadata = stored.output, stored.output.metadata
    if isinstance(content, LostBlob):
        error = CheckError(type="unknown_error", message=content.reason, recoverable=False).model_dump()
        known = {name: entry for name, entry in (metadata or {}).items() if entry is not None}
        lost = output.model_copy(update={"value": None, "metadata": {**known, "error": error}})
        return replace(stored, output=lost, failed=True)
    parts = decode(content.decode("ascii"))
    whole: dict[str, Any] = {"value": parts["value"]} if "value" in parts else {}
    if "metadata" in parts:
        whole["metadata"] = {**(metadata or {}), **parts["metadata"]}
    return replace(stored, output=output.model_copy(update=whole), blob=None)


def _note(connection: Connection, contents: Mapping[str, bytes], digests: list[str]) -> set[str]:
    """Note blobs that are about to be written, and return those that were noted before."""
    known: set[str] = set()
    for chunk in chunks(digests, KEYS_AT_ONCE):
        known.update(connection.scalars(select(BLOB.c.digest).where(BLOB.c.digest.in_(chunk))))
        rows = [{"digest": digest, "size": len(contents[digest]), "noted_at": utc_now()} for digest in chunk]
        new = upserting(connection, BLOB).values(rows)
        # An update, unlike doing nothing, waits for somebody who is deleting the blob.
        noted_at = {"noted_at": new.excluded.noted_at}
        connection.execute(new.on_conflict_do_update(index_elements=[BLOB.c.digest], set_=noted_at))
    return known


def _count_locked(connection: Connection, digests: list[str]) -> int:
    """Count the blobs that are noted, and have nobody delete them before the end of this transaction."""
    count = 0
    for chunk in chunks(digests, KEYS_AT_ONCE):
        noted = select(BLOB.c.digest).where(BLOB.c.digest.in_(chunk)).order_by(BLOB.c.digest)
        count += len(connection.scalars(noted.with_for_update(read=True, key_share=True)).all())
    return count
