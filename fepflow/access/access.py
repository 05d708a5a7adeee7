"""Admission of callers over the network, their rate limits, and the audit log, for REST and gRPC alike."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import secrets
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import date, timedelta
from functools import partial
from ipaddress import IPv6Address, ip_address, ip_network
from pathlib import Path
from typing import Self, TypeVar, cast

from limits import RateLimitItem, RateLimitItemPerMinute
from limits.storage import MemoryStorage
from limits.strategies import FixedWindowRateLimiter, MovingWindowRateLimiter, RateLimiter

from fepflow.access.caller import SCOPES, Caller, Scope, name_of_user
from fepflow.access.credentials import TokenVerifier, hash_of, is_secret_of, parse_api_key, without_credentials
from fepflow.access.listening import allowed_origins, refuse_pages_of_others
from fepflow.errors import (
    AuthenticationError,
    FepflowError,
    InfrastructureError,
    InputError,
    PermissionDeniedError,
    Problem,
    RateLimitError,
)
from fepflow.host import locked
from fepflow.protocol.model import utc_now
from fepflow.settings import Settings
from fepflow.store.records import ApiKey, AuditEntry
from fepflow.store.store import Store
from fepflow.tasks.local_run import STORE_WAIT
from fepflow.text import brief

FAILURES_PER_MINUTE = 30
"""Requests of a source a minute whose key or token is not valid that are looked at and told why."""

STRANGERS_PER_MINUTE, REFUSALS_PER_MINUTE = 600, 60
"""Requests a minute of all sources together, and refusals of further ones that are recorded: whoever has many addresses
fills no log."""


class RateLimits:
    """Limits on requests of known callers, and on failed requests of unknown sources."""

    def __init__(self, starts: int, requests: int) -> None:
        storage = MemoryStorage()
        self._callers = MovingWindowRateLimiter(storage)
        # The window moves for callers only: of those, memory keeps the names, and of sources there may be any number.
        self._sources = FixedWindowRateLimiter(storage)
        self._starts = RateLimitItemPerMinute(starts, namespace="starts")
        self._requests = RateLimitItemPerMinute(requests, namespace="requests")
        self._failures = RateLimitItemPerMinute(FAILURES_PER_MINUTE, namespace="failures")
        self._strangers = RateLimitItemPerMinute(STRANGERS_PER_MINUTE, namespace="strangers")
        self._refusals = RateLimitItemPerMinute(1, namespace="refusals")
        self._all_refusals = RateLimitItemPerMinute(REFUSALS_PER_MINUTE, namespace="all refusals")

    def take(self, caller: str, *, starts_run: bool) -> None:
        """Count a request of a caller. Raises RateLimitError."""
        limit = self._starts if starts_run else self._requests
        what = "requests that start runs" if starts_run else "requests"
        self._hit(self._callers, limit, caller, f"{caller} has sent more than {limit.amount:,} {what} in a minute")

    def take_failure(self, source: str | None) -> None:
        """Count a request without valid credentials. Raises RateLimitError."""
        words = "too many requests without a valid key or token came from this address"
        self._hit(self._sources, self._failures, network_of(source), words)
        self._hit(self._sources, self._strangers, "", "too many requests without a valid key or token came")

    def is_recorded(self, caller: str | None, source: str | None) -> bool:
        """Return whether to record a refusal of a request over a limit: the first in a minute of a caller or source.

        The number of sources that are recorded in a minute is limited, too.
        """
        is_first = self._sources.hit(self._refusals, caller or network_of(source))
        return is_first and (caller is not None or self._sources.hit(self._all_refusals, ""))

    def _hit(self, limiter: RateLimiter, limit: RateLimitItem, who: str, words: str) -> None:
        if not limiter.hit(limit, who):
            seconds = limiter.get_window_stats(limit, who).reset_time - time.time()
            raise RateLimitError(f"{words}: try again later.", max(1.0, seconds))


def network_of(source: str | None) -> str:
    """Return the network that counts as one source: an IPv4 address, or the /64 of an IPv6 address."""
    try:
        address = ip_address(source or "")
    except ValueError:
        return "somewhere"
    if isinstance(address, IPv6Address) and address.ipv4_mapped is None:
        return str(ip_network((int(address), 64), strict=False))
    return str(address)


T = TypeVar("T")

BEGUN = "begun"
"""Outcome in the entry that is written before a request that may change something is carried out."""

OVER_LIMIT = frozenset({"429", "RESOURCE_EXHAUSTED"})
"""Outcomes of which the audit log has the first in a minute of each caller: else a flood would fill it."""

SESSION_SECONDS = 12 * 3_600.0
"""Time that a browser stays signed in."""

POLL_SECONDS = 600.0
"""Seconds for which a page that asks again by itself has one entry in the audit log for each caller and resource."""
_MOST_POLLED = 10_000

_READERS = 4
_MAX_TEXT = 200
_MAX_OUTCOME = 32


@dataclass(frozen=True, slots=True)
class Credentials:
    """Credentials of a request (`X-API-Key`, or else `Authorization`, or a browser's session), and its origin."""

    api_key: str | None = field(default=None, repr=False)
    authorization: str | None = field(default=None, repr=False)
    session: str | None = field(default=None, repr=False)
    source: str | None = None


class Access:
    """The admission of callers and the audit log; used as an async context manager, in one event loop.

    Keys are looked up in the store at each request, so a key that is revoked or expires is refused from then on. No key
    is required if `may_be_open` (see `fepflow.access.listening`), no tokens are configured, and there never was a key.
    A key that expires or is revoked does not open access again. Raises UserError for unusable settings of tokens.
    """

    def __init__(self, store: Store, settings: Settings, *, may_be_open: bool) -> None:
        self._store = store
        self._tokens = TokenVerifier.of(settings)
        self._asks = not may_be_open or self._tokens is not None
        self._origins = allowed_origins(settings)
        self._rates = RateLimits(settings.starts_per_minute, settings.requests_per_minute)
        self._audit = AuditWriter(store, settings.audit_folder, settings.audit_retention)
        self._polled: dict[tuple[str | None, ...], float] = {}
        self._threads = ThreadPoolExecutor(_READERS, thread_name_prefix="fepflow-access")

    async def __aenter__(self) -> Self:
        try:
            await self._audit.__aenter__()
        except BaseException:
            self._threads.shutdown()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._audit.__aexit__()
        self._threads.shutdown()

    @property
    def challenge(self) -> str:
        """The value of `WWW-Authenticate`."""
        return 'ApiKey realm="fepflow", Bearer realm="fepflow"' if self._tokens else 'ApiKey realm="fepflow"'

    async def asks_for_keys(self) -> bool:
        """Return whether callers need a key or token. Once they do, they do as long as this process lasts."""
        if not self._asks and await self._read(lambda: self._store.access.has_keys(active=False)):
            self._asks = True
        return self._asks

    async def admit(self, headers: Sequence[tuple[str, str]], source: str | None, session: str | None = None) -> Caller:
        """Return the caller of a request with these headers, or gRPC metadata; names are in lower case.

        If no key is required, requests that may come from a page of another site or from a proxy are refused. Raises
        AuthenticationError, PermissionDeniedError, and RateLimitError for a source with many failures.
        """
        try:
            asks = await self.asks_for_keys()
            if not asks:
                refuse_pages_of_others(headers, self._origins)
            shown = Credentials(_only(headers, "x-api-key"), _only(headers, "authorization"), session, source)
        except (AuthenticationError, PermissionDeniedError):
            self.count_failure(source)
            raise
        return await self.identify(shown, asks)

    async def identify(self, credentials: Credentials, asks: bool | None = None) -> Caller:
        """Return the caller. A key or token must be valid, even if none is required.

        `asks` says whether callers need one; if None, it is looked up where it matters.

        Raises AuthenticationError, and RateLimitError for a source with many failures. Valid credentials are always
        accepted, because others may share the address.
        """
        try:
            if credentials.api_key is not None:
                return await self._by_key(credentials.api_key)
            if credentials.authorization is not None:
                if (key := _bearer_key(credentials.authorization)) is not None:
                    return await self._by_key(key)
                return self._by_token(credentials.authorization)
            if credentials.session is not None:
                return await self._by_session(credentials.session)
            return self._without(credentials.source, await self.asks_for_keys() if asks is None else asks)
        except AuthenticationError:
            self.count_failure(credentials.source)
            raise

    def count_failure(self, source: str | None) -> None:
        """Count a request that was refused before its caller was known. Raises RateLimitError after many."""
        self._rates.take_failure(source)

    def permit_request(
        self, caller: Caller, needs: Scope, headers: Sequence[tuple[str, str]], *, starts_run: bool
    ) -> None:
        """Count a request as `permit` does. Also raises InputError for two idempotency keys: either could count."""
        self.permit(caller, needs, starts_run=starts_run)
        if len(_values(headers, "idempotency-key")) > 1:
            raise InputError(Problem("there are several", path="Idempotency-Key", advice="send one"))

    def permit(self, caller: Caller, needs: Scope, *, starts_run: bool) -> None:
        """Count a request of a caller. Raises PermissionDeniedError or RateLimitError."""
        if caller.name is not None:
            self._rates.take(caller.name, starts_run=starts_run)
        caller.require(needs)

    async def record(
        self,
        caller_name: str | None,
        source: str | None,
        action: str,
        resource: str | None,
        outcome: str,
        *,
        may_be_late: bool = False,
        is_poll: bool = False,
    ) -> None:
        """Write an entry, and return once it is committed. Raises InfrastructureError; then the request must not be
        done.

        With `may_be_late`, for a request that changes nothing, the entry may be only in the file while another process
        holds the store. Keys and tokens in the texts are removed. If the same caller polls the same resource, only the
        first answered poll in `POLL_SECONDS` is recorded, because an open page would fill the log.
        """
        poll = (caller_name, source, action, resource) if is_poll and outcome == "200" else None
        if poll is not None and time.monotonic() - self._polled.get(poll, -POLL_SECONDS) < POLL_SECONDS:
            return
        if outcome in OVER_LIMIT and not self._rates.is_recorded(caller_name, source):
            return
        texts = _shown(source), _shown(action) or "", _shown(resource)
        entry = AuditEntry(caller_name, *texts, (_shown(outcome) or "")[:_MAX_OUTCOME])
        await self._audit.write(entry, may_be_late=may_be_late)
        if poll is not None:  # not before: the next one has to be recorded, if this one could not be
            if len(self._polled) >= _MOST_POLLED:
                self._polled.clear()
            self._polled[poll] = time.monotonic()

    async def _by_key(self, text: str) -> Caller:
        parsed = parse_api_key(text)
        if parsed is None:
            raise AuthenticationError("The API key is not valid: a key reads like fep_ID_SECRET.")
        key_id, secret = parsed
        key, now = await self._read(lambda: self._store.access.find_key(key_id))
        if not is_secret_of(secret, key.secret_hash if key else None) or key is None:
            raise AuthenticationError("The API key is not valid.")
        if (state := key.state_at(now)) != "active":
            raise AuthenticationError(f"The API key {key_id} is {state}: `fepflow keys create` makes another.")
        return _caller_of(key)

    async def _by_session(self, session: str) -> Caller:
        key = await self._read(lambda: self._store.access.key_of_session(hash_of(session)))
        if key is None:
            raise AuthenticationError("The session is over: sign in again.")
        return _caller_of(key)

    async def begin_session(self, api_key: str, source: str | None) -> tuple[Caller, str]:
        """Start a session of a browser that sends a key. Returns its caller, and a random session id.

        Raises as `identify` does, and RateLimitError for a key that starts too many sessions.
        """
        caller = await self.identify(Credentials(api_key=api_key, source=source))
        assert caller.name is not None
        self._rates.take(caller.name, starts_run=False)
        session, key_id = secrets.token_urlsafe(32), caller.name.removeprefix("key:")
        await self._read(lambda: self._store.access.add_session(hash_of(session), key_id, SESSION_SECONDS))
        return caller, session

    async def end_session(self, session: str) -> Caller | None:
        """End a session for good, and return its caller. Raises InfrastructureError."""
        key = await self._read(lambda: self._store.access.key_of_session(hash_of(session)))
        await self._read(lambda: self._store.access.end_session(hash_of(session)))
        return None if key is None else _caller_of(key)

    def _by_token(self, authorization: str) -> Caller:
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or self._tokens is None:
            wanted = "Bearer TOKEN" if self._tokens else "not taken here: show an API key (X-API-Key)"
            raise AuthenticationError(f"Authorization is {wanted}.")
        subject, scopes = self._tokens.verify(token.strip(" "))
        return Caller(f"jwt:{subject}", scopes)

    def _without(self, source: str | None, asks: bool) -> Caller:
        if asks or not _may_be_here(source):
            token = ", or a token (Authorization: Bearer)" if self._tokens else ""
            raise AuthenticationError(f"Send an API key (X-API-Key){token}: `fepflow keys create` makes one.")
        return Caller(None, frozenset(SCOPES))

    async def _read(self, work: Callable[[], T]) -> T:
        return cast(T, await asyncio.get_running_loop().run_in_executor(self._threads, work))


def _caller_of(key: ApiKey) -> Caller:
    return Caller(f"key:{key.id}", frozenset(scope for scope in SCOPES if scope in key.scopes))


def _values(headers: Sequence[tuple[str, str]], name: str) -> list[str]:
    return [value for key, value in headers if key == name]


def _only(headers: Sequence[tuple[str, str]], name: str) -> str | None:
    """Return the value of a header. Raises AuthenticationError for several values: a proxy may use another one."""
    values = _values(headers, name)
    if len(values) > 1:
        raise AuthenticationError(f"There are several values of {name}: send one.")
    return values[0] if values else None


def _bearer_key(authorization: str) -> str | None:
    """Return an API key that was sent as a bearer token: some programs cannot send other headers."""
    scheme, _, token = authorization.partition(" ")
    key = token.strip(" ")
    return key if scheme.lower() == "bearer" and parse_api_key(key) is not None else None


def _may_be_here(source: str | None) -> bool:
    """Return whether a request comes from this machine; the address of a Unix socket is None."""
    try:
        return source is None or ip_address(source).is_loopback
    except ValueError:
        return False


def _shown(text: str | None) -> str | None:
    return None if text is None else brief(without_credentials(text), _MAX_TEXT)


logger = logging.getLogger(__name__)

MAX_GROUP = 500
"""Entries of one transaction."""

_DAY = 86_400


LATE_SECONDS = 1.0
"""Time after which a request that changes nothing is answered though its entry is in the file only."""

MAX_LATE = 10_000
"""Entries that wait for the table."""


@dataclass(slots=True)
class _Item:
    """An entry to be written: to the file, then to the table."""

    entry: AuditEntry
    written: asyncio.Future[None]
    is_in_file: bool = False


_Queue = asyncio.Queue[_Item | None]
_Write = Callable[[Sequence[AuditEntry]], None]


class AuditWriter:
    """A writer that commits the entries of concurrent requests together; used as an async context manager.

    An entry is written to the file first and then to the table, both in the order of the requests. While one group is
    written, the next one gathers. Entries older than `retention` seconds are deleted at the start and once a day. All
    entries are written before the context ends. Entering raises InfrastructureError if nothing can be written.
    """

    def __init__(self, store: Store, folder: Path, retention: float) -> None:
        self._store = store.waiting(STORE_WAIT)  # as runs wait for one that another process holds
        self._folder = folder
        self._retention = timedelta(seconds=retention)
        self._for_file, self._for_table = _Queue(), _Queue()
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="fepflow-audit")
        self._writing: list[tuple[_Queue, asyncio.Task[None]]] = []
        self._daily: asyncio.Task[None] | None = None
        self._closed = True

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self._prepare)
        self._closed = False
        file = self._write_groups(self._for_file, partial(append_lines, self._folder), self._on_file)
        table = self._write_groups(self._for_table, self._store.access.add_audit_entries, _on_table)
        self._writing = [(self._for_file, asyncio.create_task(file)), (self._for_table, asyncio.create_task(table))]
        self._daily = asyncio.create_task(self._delete_old_daily())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closed = True
        if self._daily is not None:
            self._daily.cancel()
        for queue, task in self._writing:  # in this order: the file hands entries on to the table
            queue.put_nowait(None)
            await task
        self._threads.shutdown()

    async def write(self, entry: AuditEntry, *, may_be_late: bool = False) -> None:
        """Write an entry, and return once it is in the file and in the table. Raises InfrastructureError.

        With `may_be_late`, for a request that changes nothing, this waits only a second: the entry is then in the file,
        and gets into the table once another process releases the store.
        """
        if self._closed:
            raise InfrastructureError("The audit log is closed: this server is about to end.")
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        written.add_done_callback(lambda done: done.cancelled() or done.exception())  # maybe nobody waits any more
        item = _Item(entry, written)
        self._for_file.put_nowait(item)
        if may_be_late:
            await asyncio.wait({written}, timeout=LATE_SECONDS)
            if not written.done() and item.is_in_file and self._for_table.qsize() <= MAX_LATE:
                return
        await written

    def _on_file(self, item: _Item) -> None:
        item.is_in_file = True
        self._for_table.put_nowait(item)

    def _prepare(self) -> None:
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _append(_file_of(self._folder, utc_now().date()), b"")
            self._delete_old()
        except OSError as error:
            raise InfrastructureError(
                f"The audit log in {self._folder} cannot be written ({error.strerror}): make the folder writable for "
                "this user, or set FEPFLOW_HOME to another one."
            ) from error

    async def _delete_old_daily(self) -> None:
        while True:
            await asyncio.sleep(_DAY)
            try:
                await asyncio.to_thread(self._delete_old)
            except (FepflowError, OSError) as error:
                logger.warning("old entries of the audit log could not be deleted: %s", error)

    def _delete_old(self) -> None:
        before = utc_now() - self._retention
        self._store.access.delete_audit_entries(before)
        delete_files(self._folder, before.date())

    async def _write_groups(self, queue: _Queue, write: _Write, hand_on: Callable[[_Item], None]) -> None:
        """Pass the entries of a queue in groups to `write`, in a thread, and then to `hand_on`, until None comes."""
        while (first := await queue.get()) is not None:
            group = [first]
            while not queue.empty() and len(group) < MAX_GROUP:
                following = queue.get_nowait()
                if following is None:
                    queue.put_nowait(None)
                    break
                group.append(following)
            problem = await self._problem(write, [item.entry for item in group])
            for item in group:
                if problem is None:
                    hand_on(item)
                elif not item.written.done():
                    item.written.set_exception(InfrastructureError(problem))

    async def _problem(
        self, write: Callable[[Sequence[AuditEntry]], None], entries: Sequence[AuditEntry]
    ) -> str | None:
        """Write a group, and return the error as text, if there was one."""
        try:
            await asyncio.get_running_loop().run_in_executor(self._threads, write, entries)
        except OSError as error:
            reason = f"in {self._folder}: {error.strerror}"
        except FepflowError as error:
            reason = str(error)
        except Exception as error:
            reason = type(error).__name__
        else:
            return None
        text = "the audit log cannot be written (%s); %d requests are refused, or their entries are in the file only"
        logger.error(text, reason, len(entries))
        return "The audit log cannot be written, and without it nothing is done: try again later."


def _on_table(item: _Item) -> None:
    if not item.written.done():  # else its request was given up
        item.written.set_result(None)


def write_entries(store: Store, folder: Path, entries: Sequence[AuditEntry]) -> None:
    """Add entries to the table and to the files of a folder. Raises InfrastructureError, and OSError for a file."""
    store.access.add_audit_entries(entries)
    append_lines(folder, entries)


def append_lines(folder: Path, entries: Sequence[AuditEntry]) -> None:
    """Append entries to the files of their days (UTC), `FOLDER/2026-11-23.jsonl`. Raises OSError."""
    days: dict[date, list[AuditEntry]] = {}
    for entry in entries:
        days.setdefault(entry.at.date(), []).append(entry)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for day, some in days.items():
        _append(_file_of(folder, day), "".join(map(_line, some)).encode("ascii"))


def delete_files(folder: Path, before: date) -> None:
    """Delete the files of days before this one. Raises OSError."""
    for path in folder.glob("*.jsonl"):
        with suppress(ValueError):  # a file of another name is not ours
            if date.fromisoformat(path.stem) < before:
                path.unlink(missing_ok=True)


def _file_of(folder: Path, day: date) -> Path:
    return folder / f"{day}.jsonl"


def _line(entry: AuditEntry) -> str:
    # With JSON's escapes, no entry can break its line.
    return json.dumps({**asdict(entry), "at": entry.at.isoformat()}) + "\n"


def _append(path: Path, data: bytes) -> None:
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(path, flags, 0o600)
    try:
        with locked(descriptor):  # other processes append to the same file
            size = os.fstat(descriptor).st_size
            if data and size and os.pread(descriptor, 1, size - 1) != b"\n":
                data = b"\n" + data  # a process has died within a line
            if os.write(descriptor, data) < len(data):
                os.ftruncate(descriptor, size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(descriptor)


def record_by_operator(store: Store, folder: Path, action: str, key: ApiKey) -> None:
    """Record in the audit log that the user of the command line has created or revoked a key."""
    try:
        write_entries(store, folder, [AuditEntry(f"cli:{name_of_user()}", None, action, key.id, "done")])
    except OSError as error:
        raise InfrastructureError(
            f"The audit log in {folder} cannot be written ({error.strerror}): make it writable for this user. Of key "
            f"{key.id}, {action} is done."
        ) from error
