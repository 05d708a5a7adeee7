"""New outputs and check results as rows, many rows in few statements; and their order.

A case's checks are in the order of FEP 2.3.3: its own as declared, then those that all cases of its run share. Ids
alone do not tell it: `contains-11` comes after `contains-2`, and a check `a` may be declared after `z`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic import ValidationError
from sqlalchemy import Connection, Row, Table, select

from fepflow.json.values import Encoded, encode, may_be_deep
from fepflow.protocol.check import Check, to_check
from fepflow.protocol.model import utc_now
from fepflow.protocol.results import CheckError, CheckResult
from fepflow.protocol.test_case import REUSED_FROM, TestCase
from fepflow.store.blobs import move_out
from fepflow.store.database import upserting
from fepflow.store.records import CHECK_RESULT, OUTPUT, NewCheckResult, NewOutput
from fepflow.store.totals import count_results


def shared_check_ids(suite: Mapping[str, Any]) -> list[str]:
    """Return the ids of the checks that all cases of a run share, by its suite's snapshot; none if it is unreadable."""
    from fepflow.suite.models import OWN_CHECKS, check_ids  # `list` reads no suite

    try:
        checks = [Check.model_validate(check) for check in suite.get("checks") or ()]
    except (ValidationError, TypeError):
        return []
    target = suite.get("target")
    kinds = target if isinstance(target, Mapping) else {}
    return check_ids([*checks, *(own for kind, own in OWN_CHECKS.items() if kinds.get(kind) is not None)])


def declared_check_ids(case: TestCase, shared: Sequence[str]) -> list[str]:
    """Return the ids of all checks of a case, in order; `shared` are those that it has in common with the others."""
    from fepflow.suite.models import check_ids

    return [*check_ids([to_check(check) for check in case.checks], shared), *shared] if case.checks else list(shared)


def ranks(check_ids: Iterable[str]) -> dict[str, int]:
    """Return the place of each check id, from 0."""
    return {check_id: place for place, check_id in enumerate(dict.fromkeys(check_ids))}


def rank_of(places: Mapping[str, int], check_id: str) -> tuple[int, str]:
    """Return what check ids are sorted by; an id that nothing declares comes last, by its code points."""
    return places.get(check_id, len(places)), check_id


def insert_results(
    run_id: str,
    outputs: Sequence[NewOutput],
    checks: Sequence[NewCheckResult] = (),
    contents: dict[str, bytes] | None = None,
    *,
    are_calls: bool = False,
    write_seconds: Sequence[float] = (),
) -> Callable[[Connection], None]:
    """Make the rows, once, and return the function that inserts and counts them, see `Results.write`.

    Large outputs go to the `contents` of blobs, see `LargeOutputs`; without these they stay in their rows.

    They are in the order of their keys: PostgreSQL's transactions deadlock if each locks rows in an order of its own.
    """
    now = utc_now()
    outputs = sorted(outputs, key=lambda new: (new.case_index, new.repeat))
    checks = sorted(checks, key=check_key)
    output_rows = [_output_row(run_id, new, now, contents) for new in outputs]
    check_rows = [_check_row(run_id, new, now) for new in checks]

    def insert_both(connection: Connection) -> None:
        new_outputs = [outputs[place] for place in _insert_new(connection, OUTPUT, output_rows)]
        new_checks = [checks[place] for place in _insert_new(connection, CHECK_RESULT, check_rows)]
        count_results(connection, run_id, new_outputs, new_checks, are_calls=are_calls, write_seconds=write_seconds)

    return insert_both


def insert_check_rows(rows: Sequence[dict[str, Any]]) -> Callable[[Connection], object]:
    """Return the function that inserts rows which are whole already, in the order of their keys."""
    ordered = sorted(rows, key=lambda row: (row["case_index"], row["repeat"], row["check_id"]))
    return lambda connection: _insert_new(connection, CHECK_RESULT, ordered)


def check_key(check: NewCheckResult | Row[Any]) -> tuple[int, int, str]:
    """Return the sort key of a check's result, by code points; each PostgreSQL database sorts text by a language."""
    return check.case_index, check.repeat, check.check_id


def _output_row(run_id: str, new: NewOutput, now: datetime, contents: dict[str, bytes] | None) -> dict[str, Any]:
    """Return the row of an output; of a failed one if its value has no JSON form."""
    failed, output_id, moves_out = new.output.failure is not None, new.output.id, contents is not None
    try:
        value = encode(new.output.value)
        metadata = None if new.output.metadata is None else encode(new.output.metadata)
    except ValueError as error:
        failed, value, moves_out = True, encode(None), False
        metadata = encode({"error": _no_json_form("output", error).model_dump()})
    row = {
        "run_id": run_id,
        "case_index": new.case_index,
        "repeat": new.repeat,
        "content_hash": new.content_hash,
        "output_id": output_id,
        "value": value,
        "metadata": metadata,
        "failed": failed,
        "reused_from": (new.output.metadata or {}).get(REUSED_FROM),
        "blob": None,
        "created_at": now,
    }
    if moves_out and contents is not None:
        move_out(row, new.output, contents)
    return row


def _check_row(run_id: str, new: NewCheckResult, now: datetime) -> dict[str, Any]:
    """Return the row of a check's result; of one in status error if it has no JSON form."""
    result, passed = new.result, new.passed
    try:
        text = _encode_result(result)
    except ValueError as error:
        passed = None
        result = CheckResult(
            check_type=result.check_type,
            status="error",
            results={},
            evaluated_at=result.evaluated_at,
            metadata={"check_id": new.check_id},
            error=_no_json_form("check's result", error),
        )
        text = encode(result.model_dump())
    return {
        "run_id": run_id,
        "case_index": new.case_index,
        "repeat": new.repeat,
        "check_id": new.check_id,
        "content_hash": new.content_hash,
        "check_type": result.check_type,
        "status": result.status,
        "passed": passed,
        "result": text,
        "created_at": now,
    }


def _encode_result(result: CheckResult) -> Encoded:
    """Encode a result as `encode` does, in half the time if it holds nothing that pydantic writes in another way."""
    try:
        text = result.model_dump_json()
    except ValueError:
        return encode(result.model_dump())
    plain = text.isascii() and not ("NaN" in text or "Infinity" in text or '$float":' in text)
    return Encoded(text) if plain and not may_be_deep(text) else encode(result.model_dump())


def _no_json_form(what: str, error: ValueError) -> CheckError:
    return CheckError(type="validation_error", message=f"The {what} has no JSON form: {error}", recoverable=False)


def _insert_new(connection: Connection, table: Table, rows: Sequence[dict[str, Any]]) -> list[int]:
    """Insert rows of the same time, sorted by key, and return the places of those that were new.

    A row whose key already exists is left out.
    """
    if not rows:
        return []
    adding = upserting(connection, table).on_conflict_do_nothing().execution_options(preserve_rowcount=True)
    count = connection.execute(adding, rows).rowcount
    if count in (0, len(rows)):  # none of a commit that is tried again, whose first try has come through
        return list(range(count))
    key = [column.name for column in table.primary_key if column.name != "run_id"]
    inserted = select(*(table.c[name] for name in key)).where(
        table.c.run_id == rows[0]["run_id"],
        table.c.case_index.between(rows[0]["case_index"], rows[-1]["case_index"]),
        table.c.created_at == rows[0]["created_at"],
    )
    left = {tuple(row) for row in connection.execute(inserted)}
    new = []
    for place, row in enumerate(rows):
        if (inserted_key := tuple(row[name] for name in key)) in left:
            left.discard(inserted_key)  # of two with the same key, the first one is stored
            new.append(place)
    return new
