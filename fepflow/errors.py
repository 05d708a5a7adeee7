"""Every exception that fepflow raises, in one tree.

    FepflowError                        500  exit 3  unknown_error     a fault of ours
    ├── UserError                       400  exit 2  validation_error  something handed to us is wrong
    │   ├── InputError                                                 a file or document, with all its problems at once
    │   ├── CheckArgumentsError                                        one check's arguments, type or version
    │   ├── MissingExtraError                                          something that an extra of fepflow brings
    │   ├── JSONPathError                            jsonpath_error    an expression, or what it failed to find
    │   ├── InvalidRequestError                                        a request over the network; its code says why
    │   ├── NotFoundError               404                            a run, a file, a name that is not there
    │   ├── AuthenticationError         401                            a caller without a valid key or token
    │   ├── PermissionDeniedError       403                            a caller without the scope that is needed
    │   ├── ConflictError               409                            something else is there under that name
    │   ├── TooLargeError               413                            a request over one of the limits
    │   └── RateLimitError              429                            too many requests; later it may be taken
    ├── CheckTimeoutError               504  exit 3  timeout_error     a check overran its time limit
    ├── EndpointError                   502  exit 3  unknown_error     a request to something else came to nothing
    │   ├── TargetError                                                the system under test did not give an output
    │   │   ├── TargetTimeoutError      504          timeout_error
    │   │   └── CircuitOpenError        503                            it is down; no call was made
    │   └── ModelError                                                 a judge or an embedding model gave nothing of use
    │       ├── ModelTimeoutError       504          timeout_error
    │       └── ModelUnavailableError   503                            it is down; it was not asked
    ├── RunLimitExceededError           503  exit 3  unknown_error     the run's deadline or budget was reached
    └── InfrastructureError             503  exit 3  unknown_error     store, Prefect or disk are in the way
        ├── RunBusyError                409                            another executor holds the run's lease
        └── RunInterruptedError                                        its process was told to end
            └── RunHandedOverError                                     and a worker takes the run over

A failing check is a value: these classes are for what kept a check, a call or a run from giving an answer. Each has
what a door needs to translate it: its FEP error type (FEP 2.3.4), HTTP status, gRPC code and exit code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from fepflow.text import brief, printable

FepErrorType = Literal["jsonpath_error", "validation_error", "timeout_error", "unknown_error"]
"""The error types of FEP 2.3.4."""

DocumentPath = tuple[str | int, ...]
"""The keys and indices from the top of a document down to a place in it."""

MAX_MESSAGE = 2_000
"""Characters of an exception's message. What it quotes is cut shorter where it is quoted; this holds for all."""

MAX_PROBLEMS = 100
"""Errors of one input that are spelled out."""


class FepflowError(Exception):
    """Base of fepflow's errors. `str(error)` is a sentence for a user: what was wrong, where, and what to do."""

    fep_type: ClassVar[FepErrorType] = "unknown_error"
    recoverable: bool = False
    http_status: ClassVar[int] = 500
    grpc_code: ClassVar[str] = "INTERNAL"
    exit_code: ClassVar[int] = 3

    def __init__(self, message: str = "") -> None:
        super().__init__(brief(message, MAX_MESSAGE))

    def __reduce__(self) -> tuple[Any, ...]:
        # Else it would be made anew of its message, which is not all that it is made of, after pickling.
        return type(self).__new__, (type(self),), {**self.__dict__, "args": self.args}


class UserError(FepflowError):
    """A mistake in what the user passed; the same input gives the same error again."""

    fep_type: ClassVar[FepErrorType] = "validation_error"
    http_status = 400
    grpc_code = "INVALID_ARGUMENT"
    exit_code = 2


@dataclass(frozen=True, slots=True)
class Problem:
    """One error in an input: where it is, what is wrong, what to do.

    `file` is as the user wrote it, `line` and `column` count from 1, `path` is dotted (`checks[0].arguments.text`);
    `rule` is the section of EvalGuard's specification, if it is about one. An error that `is_confined` takes down one
    check, or one call, and not the run. As text it is one line, fit for a terminal.
    """

    message: str
    file: str | None = None
    line: int | None = None
    path: str | None = None
    advice: str | None = None
    severity: Literal["error", "warning"] = "error"
    column: int | None = None
    rule: str | None = None
    is_confined: bool = False

    def __post_init__(self) -> None:
        for name in ("message", "path", "advice"):
            text = getattr(self, name)
            if text is not None and len(text) > MAX_MESSAGE:
                object.__setattr__(self, name, brief(text, MAX_MESSAGE))

    def __str__(self) -> str:
        location = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        text = ": ".join(part for part in (location, self.path, self.message) if part)
        text = f"{text} ({self.advice})" if self.advice else text
        return printable(f"{text} [EvalGuard {self.rule}]" if self.rule else text)


def dotted(path: DocumentPath) -> str:
    """Return `('checks', 0, 'type')` as `checks[0].type`."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else str(step)
    return text


@dataclass(frozen=True, slots=True)
class ValidationMessage:
    """One error in a value: where, what, and what to do about it."""

    path: DocumentPath
    message: str
    advice: str | None = None


class InputError(UserError):
    """A file or document that cannot be used; `problems` lists all errors in reading order."""

    def __init__(self, problems: list[Problem] | Problem) -> None:
        listed = [problems] if isinstance(problems, Problem) else list(problems)
        self.problems = listed[:MAX_PROBLEMS]
        if len(listed) > MAX_PROBLEMS:
            self.problems.append(Problem(f"... and {len(listed) - MAX_PROBLEMS:,} more", listed[-1].file))
        Exception.__init__(self, "\n".join(str(problem) for problem in self.problems))


class CheckArgumentsError(UserError):
    """A check's type, version or arguments are not what its implementation takes; `messages` lists what is wrong."""

    def __init__(self, message: str, messages: Sequence[ValidationMessage] = ()) -> None:
        self.messages = tuple(messages)
        super().__init__(message)


class MissingExtraError(UserError):
    """A library that an extra of fepflow brings is not installed; the message has the command that installs it."""


class JSONPathError(UserError):
    """A path that is not valid, or matches nothing (FEP 6.2).

    `position` counts characters from 0 in `expression`, if the place of a syntax error is known.
    """

    fep_type = "jsonpath_error"

    def __init__(self, message: str, expression: str, position: int | None = None) -> None:
        self.expression = expression
        self.position = position
        super().__init__(message)


class InvalidRequestError(UserError):
    """A request over the network that cannot be taken; `code` is the word for it that programs go by."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


class NotFoundError(UserError):
    """A run, a file or a name does not exist."""

    http_status = 404
    grpc_code = "NOT_FOUND"


class AuthenticationError(UserError):
    """The caller has shown no key or token, or one that is not valid."""

    http_status = 401
    grpc_code = "UNAUTHENTICATED"


class PermissionDeniedError(UserError):
    """The caller is known, but does not have the scope for its request."""

    http_status = 403
    grpc_code = "PERMISSION_DENIED"


class ConflictError(UserError):
    """The name or the idempotency key of a request is in use by something else."""

    http_status = 409
    grpc_code = "ALREADY_EXISTS"


class TooLargeError(UserError):
    """A request is larger, nests deeper or has more parts than is taken."""

    http_status = 413
    grpc_code = "RESOURCE_EXHAUSTED"


class SlowRequestError(UserError):
    """A request over the network that did not come in within its time."""

    http_status = 408
    grpc_code = "DEADLINE_EXCEEDED"


class RateLimitError(UserError):
    """The caller has sent too many requests; the next one is taken after `retry_after` seconds."""

    recoverable = True
    http_status = 429
    grpc_code = "RESOURCE_EXHAUSTED"

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class CheckTimeoutError(FepflowError):
    """A check did not end within its time limit. Never a pass and never a fail."""

    fep_type = "timeout_error"
    http_status = 504
    grpc_code = "DEADLINE_EXCEEDED"


class EndpointError(FepflowError):
    """A failed request to something outside of fepflow: a target or a model.

    `kind` is a stable word for reports. `retryable` says whether the same request may succeed later. `retry_after` is
    the wait that the endpoint asked for, in seconds. `status` is the HTTP status, if there was one. Messages never show
    a URL's credentials or query, a header or a key.
    """

    http_status = 502
    grpc_code = "UNAVAILABLE"

    def __init__(
        self, message: str, *, kind: str, retryable: bool, retry_after: float | None = None, status: int | None = None
    ) -> None:
        self.kind = kind
        self.retryable = retryable
        self.retry_after = retry_after
        self.status = status
        super().__init__(message)


class TargetError(EndpointError):
    """A call of the target that gave no output.

    `kind` is `connect`, `http_status`, `malformed`, `too_large`, `redirect`, `request`, `timeout`, `circuit_open`,
    `missing_output` or `failed`; of Python functions also `exception`; of processes `crashed` and `not_started`; of ECP
    and A2A agents and MCP servers `agent_error` and `incompatible`; of models `unauthorized`, `quota` and `refused`.
    `simulated_user` is a fault of the simulated user's model, not of the target.
    """

    recoverable = True


class TargetTimeoutError(TargetError):
    """The call overran its deadline, or the case that of all its attempts (which is not retried in this run)."""

    fep_type = "timeout_error"
    http_status = 504
    grpc_code = "DEADLINE_EXCEEDED"

    def __init__(self, message: str, *, retryable: bool = True) -> None:
        super().__init__(message, kind="timeout", retryable=retryable)


class TraceUnknownError(TargetError):
    """A part of an output's trace that a check reads, and that the spans which came do not tell."""

    def __init__(self, message: str) -> None:
        super().__init__(message, kind="trace", retryable=True)


class CircuitOpenError(TargetError):
    """The target is down, so it was not called. A later run may find it well again; this one does not wait."""

    http_status = 503

    def __init__(self, message: str) -> None:
        super().__init__(message, kind="circuit_open", retryable=False)


SIMULATED_USER = "simulated_user"
"""The kind of a SimulatedUserError."""


class SimulatedUserError(TargetError):
    """The model that plays the user gave no usable answer, so the conversation ended.

    It says nothing about the target. Calls of models have retries of their own, so the conversation is not repeated.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message, kind=SIMULATED_USER, retryable=False)


class ModelError(EndpointError):
    """A language or embedding model gave no usable response.

    `kind` is one of:

    - nothing was judged: `connect`, `http_status`, `rate_limited`, `quota`, `unauthorized`, `format_refused`,
      `parameter_refused`, `timeout`, `circuit_open`;
    - the response cannot be used: `refused`, `cut_off`, `empty`, `invalid`, `too_large`, `malformed`, `redirect`;
    - `undecided`: several samples gave no majority;
    - `failed`: an embedder in the user's code failed, or the endpoint reports a failure in its answer.

    An error that is `retryable` is recoverable.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: str,
        retryable: bool = False,
        retry_after: float | None = None,
        status: int | None = None,
    ) -> None:
        super().__init__(message, kind=kind, retryable=retryable, retry_after=retry_after, status=status)
        self.recoverable = retryable


class ModelTimeoutError(ModelError):
    """The model did not respond in time."""

    fep_type = "timeout_error"
    http_status = 504
    grpc_code = "DEADLINE_EXCEEDED"

    def __init__(self, message: str) -> None:
        super().__init__(message, kind="timeout", retryable=True)


class ModelUnavailableError(ModelError):
    """The model, or its provider, is down, so it was not called. A later run may succeed."""

    http_status = 503

    def __init__(self, message: str) -> None:
        super().__init__(message, kind="circuit_open")
        self.recoverable = True


class RunLimitExceededError(FepflowError):
    """The run has reached its deadline, or spent its budget: it makes no further call. Going on with it does."""

    recoverable = True
    http_status = 503
    grpc_code = "RESOURCE_EXHAUSTED"


class InfrastructureError(FepflowError):
    """The store, Prefect's API, a port or the disk is unavailable; the run itself may be fine."""

    recoverable = True
    http_status = 503
    grpc_code = "UNAVAILABLE"


class RunBusyError(InfrastructureError):
    """Another executor holds the run's lease and is alive."""

    http_status = 409
    grpc_code = "ABORTED"


class RunInterruptedError(InfrastructureError):
    """The process got SIGTERM, without a request to cancel the run."""


class RunHandedOverError(RunInterruptedError):
    """The same; a worker takes the run over."""
