"""Making, listing and revoking API keys, for the command line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

from fepflow.access.audit_writer import write_entries
from fepflow.access.caller import Scope, name_of_user
from fepflow.errors import InfrastructureError, UserError
from fepflow.security.api_keys import ID, new_api_key
from fepflow.store.records import ApiKey, AuditEntry
from fepflow.store.store import Store

MAX_NAME = 100


def create_key(store: Store, name: str, scopes: Sequence[Scope], lifetime: float | None) -> tuple[ApiKey, str]:
    """Make a key that is good for so many seconds, or until it is revoked: what is stored, and the key itself.

    The key is nowhere else. Raises UserError.
    """
    if not name.strip() or len(name) > MAX_NAME or not name.isprintable():
        raise UserError(
            f"A key's name is printable text of at most {MAX_NAME} characters: it says what the key is for."
        )
    now = store.now()
    key_id, text, secret_hash = new_api_key()
    key = ApiKey(
        id=key_id,
        name=name,
        secret_hash=secret_hash,
        scopes=sorted(set(scopes)),
        expires_at=_expiry(now, lifetime),
        created_at=now,
    )
    store.access.add_key(key)
    return key, text


def _expiry(now: datetime, lifetime: float | None) -> datetime | None:
    if lifetime is None:
        return None
    if lifetime <= 0:
        raise UserError("A key is good for some time: --expires reads like 12h or 30d.")
    try:
        return now + timedelta(seconds=lifetime)
    except OverflowError:
        raise UserError("No calendar goes that far: leave --expires out for a key that does not expire.") from None


def revoke_key(store: Store, key_id: str) -> ApiKey:
    """End a key for good. Raises NotFoundError, which does not repeat what was given: it may be a whole key."""
    return store.access.revoke_key(key_id if re.fullmatch(ID, key_id) else "")


def record_by_operator(store: Store, folder: Path, action: str, key: ApiKey) -> None:
    """Have the audit log say that whoever uses the command line has made or revoked a key."""
    try:
        write_entries(store, folder, [AuditEntry(f"cli:{name_of_user()}", None, action, key.id, "done")])
    except OSError as error:
        raise InfrastructureError(
            f"The audit log in {folder} cannot be written ({error.strerror}): make it writable for this user. Of key "
            f"{key.id}, {action} is done."
        ) from error
