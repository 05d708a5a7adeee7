"""From new outputs and check results to the rows that are stored."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Row

from fepflow.json.codec import Encoded, encode, may_be_deep
from fepflow.protocol.results import CheckError, CheckResult
from fepflow.store.records import NewCheckResult, NewOutput


def output_key(new: NewOutput) -> tuple[int, int]:
    """The order in which outputs are inserted."""
    return new.case_index, new.repeat


def check_key(check: NewCheckResult | Row[Any]) -> tuple[int, int, str]:
    """The order of check results; of rows, too: each PostgreSQL database orders text by a language's own rules."""
    return check.case_index, check.repeat, check.check_id


def output_row(run_id: str, new: NewOutput, now: datetime) -> dict[str, Any]:
    """The row of an output; of a failed one if its value has no JSON form."""
    failed, output_id = new.output.failure is not None, new.output.id
    try:
        value = encode(new.output.value)
        metadata = None if new.output.metadata is None else encode(new.output.metadata)
    except ValueError as error:
        failed, value = True, encode(None)
        metadata = encode({"error": _no_json_form("output", error).model_dump()})
    return {
        "run_id": run_id,
        "case_index": new.case_index,
        "repeat": new.repeat,
        "content_hash": new.content_hash,
        "output_id": output_id,
        "value": value,
        "metadata": metadata,
        "failed": failed,
        "created_at": now,
    }


def check_row(run_id: str, new: NewCheckResult, now: datetime) -> dict[str, Any]:
    """The row of a check result; of one in status error if it has no JSON form."""
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
    """As `encode`, in half the time for a result without anything that pydantic writes in another way."""
    try:
        text = result.model_dump_json()
    except ValueError:
        return encode(result.model_dump())
    plain = text.isascii() and not any(word in text for word in ("NaN", "Infinity", '$float":'))
    return Encoded(text) if plain and not may_be_deep(text) else encode(result.model_dump())


def _no_json_form(what: str, error: ValueError) -> CheckError:
    return CheckError(type="validation_error", message=f"The {what} has no JSON form: {error}", recoverable=False)
