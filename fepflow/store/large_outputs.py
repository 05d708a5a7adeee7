"""Large outputs: their rows keep a beginning, and all of them is in a blob that rows may share.

A writer first notes a blob in the table `blob`, then writes the blob, then, in one transaction, sees that the note is
still there, locks it, and inserts the rows that refer to it. Who deletes blobs that no row refers to locks and deletes
their notes first, and the blobs in the same transaction. So a row never refers to a blob that is deleted: where both
meet, the writer begins again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import sha256
from typing import Any, TypeVar

from sqlalchemy import Connection, delete, exists, func, select

from fepflow.errors import InfrastructureError
from fepflow.json.codec import decode, encode
from fepflow.protocol.model import utc_now
from fepflow.protocol.results import CheckError
from fepflow.protocol.test_case import Output
from fepflow.store.blobs import Blobs, LostBlob
from fepflow.store.database import KEYS_AT_ONCE, Database, chunks, upserting
from fepflow.store.records import BLOB, OUTPUT, StoredOutput

LARGE = 256_000
"""Characters of an output's JSON, metadata included, up to which all of it stays in its row."""

KEPT = 4_000
"""Characters of JSON up to which the value, or an entry of the metadata, of a large output stays in its row."""

BEGINNING = 1_000
"""Characters of a value in a blob that its row has for lists."""

_ALWAYS_KEPT = ("error", "user")
"""Entries of the metadata that tell whether a call failed, and what a simulated user has cost."""

_TRIES = 20
_BLOBS_AT_ONCE = 100

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
        some = select(BLOB.c.digest).where(unused).order_by(BLOB.c.digest).limit(_BLOBS_AT_ONCE)
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
