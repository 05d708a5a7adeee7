"""Errors over gRPC: a status, its sentence, and FepError as its details. No traceback and no secret goes out.

All of it goes in the trailing metadata, of which readers take 8 KiB, so texts are cut.
"""

from __future__ import annotations

import logging
from typing import Any

import grpc

from fepflow.api.evaluations.fep import Pending
from fepflow.api.grpc.fep.v1 import fep_pb2
from fepflow.api.grpc.values import sendable, write_struct
from fepflow.api.rest.errors import type_of
from fepflow.errors import FepflowError, InputError
from fepflow.security.redaction import words_of

logger = logging.getLogger("fepflow.grpc")

DETAILS = "grpc-status-details-bin"
"""The metadata in which gRPC's libraries look for details."""

MAX_TEXT = 1_000
"""Bytes of a sentence as gRPC sends it, which writes most of Unicode as `%E6%97%A5`."""
MAX_DETAILS = 1_500

Status = tuple[grpc.StatusCode, str, tuple[tuple[str, str | bytes], ...]]


class PendingError(FepflowError):
    """An evaluation that was asked for has no result yet."""

    recoverable = True
    http_status = 409
    grpc_code = "FAILED_PRECONDITION"

    def __init__(self, pending: Pending) -> None:
        self.pending = pending
        done = f"{pending.completed_test_cases} of {pending.total_test_cases} test cases are done"
        super().__init__(f"Evaluation {pending.evaluation_id} is {pending.status}: {done}. Ask again later.")


class ResultTooLargeError(FepflowError):
    """A result that is stored, and too large for a message."""

    http_status = 413
    grpc_code = "RESOURCE_EXHAUSTED"

    def __init__(self, size: int, limit: int, evaluation_id: str | None = None) -> None:
        self.evaluation_id = evaluation_id
        which = f"The result of evaluation {evaluation_id}" if evaluation_id else "The response"
        where = f": GET /v1/evaluations/{evaluation_id} of the REST interface has it" if evaluation_id else ""
        super().__init__(f"{which} has {size:,} bytes, and a message has {limit:,} at most{where}.")


def known(error: Exception, where: str) -> FepflowError:
    """The error that a caller is told of; whatever is not one of ours is logged."""
    if isinstance(error, FepflowError):
        return error
    logger.error("%s: %s: %s", where, type(error).__name__, words_of(error))
    return FepflowError("This is a fault of fepflow; its log says more.")


def status_of(error: FepflowError) -> Status:
    """Code, sentence and trailing metadata of an error."""
    code = grpc.StatusCode[error.grpc_code]
    details = fep_error(error)
    status = fep_pb2.ErrorStatus(code=code.value[0], message=details.message)
    status.details.add().Pack(details)
    return code, details.message, ((DETAILS, status.SerializeToString()),)


def fep_error(error: FepflowError, **details: Any) -> fep_pb2.FepError:
    """An error as the protocol has it; `code` is that of the REST interface, such as `validation_error`."""
    message = fep_pb2.FepError(code=type_of(error.http_status, error), message=_cut(sendable(str(error)), MAX_TEXT))
    details = {**details, **_details(error)}
    if details:
        write_struct(details, message.details)
    return message


def _details(error: FepflowError) -> dict[str, Any]:
    if isinstance(error, PendingError):
        pending = error.pending
        return {name: getattr(pending, name) for name in ("status", "completed_test_cases", "total_test_cases")}
    if isinstance(error, ResultTooLargeError) and error.evaluation_id:
        return {"evaluation_id": error.evaluation_id}
    if isinstance(error, InputError):
        return {"problems": _problems(error)}
    return {}


def _problems(error: InputError) -> list[dict[str, Any]]:
    """As many as there is room for."""
    found: list[dict[str, Any]] = []
    room = MAX_DETAILS
    for problem in error.problems:
        item = {"path": sendable(problem.path or ""), "message": sendable(str(problem))}
        room -= sum(len(text.encode()) for text in item.values()) + 40  # about what a Struct has around them
        if room < 0:
            break
        found.append(item)
    return found


def _cut(text: str, room: int) -> str:
    """The beginning of a text that has so many bytes in the form in which gRPC sends it."""
    for index, char in enumerate(text):
        room -= 1 if " " <= char <= "~" and char != "%" else 3 * len(char.encode())
        if room < 0:
            return f"{text[: max(index - 3, 0)]}…"
    return text
