"""A run's appearance in Prefect: its log, the state and name of its flow run, and a tag.

The state follows the exit code, under Prefect's own names, because the UI's default lists go by these names.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from prefect import get_client
from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.objects import FlowRun, State
from prefect.context import FlowRunContext
from prefect.exceptions import MissingContextError
from prefect.logging import get_run_logger
from prefect.settings import get_current_settings
from prefect.states import Cancelled, Completed, Crashed, Failed

from fepflow.analysis.variants import VariantTable
from fepflow.errors import FepflowError, RunHandedOverError, RunInterruptedError, TargetError
from fepflow.observability import logs
from fepflow.security.redaction import words_of
from fepflow.store.records import RunRecord
from fepflow.text import one_line
from fepflow.verdict.verdict import Outcome, Verdict


def _is_news(record: logging.LogRecord) -> bool:
    """Return whether to log a task run's message: not those of successful steps, and nothing twice.

    The last message of a failed step is "Finished in state Failed(...)".
    """
    message = record.getMessage()
    if message.startswith("Task run failed with") and " - Retry " not in message:
        # With a state it would show all that the step returned. Where a sentence of ours was raised says nothing.
        return record.exc_info is not None and not isinstance(record.exc_info[1], FepflowError | None)
    return record.levelno > logging.INFO or message != "Finished in state Completed()"


logging.getLogger("prefect.task_runs").addFilter(_is_news)

# A deployment's run says nothing of its preparation (see prefect.yaml). From here on it does.
logging.getLogger("prefect.flow_runs").setLevel(logging.NOTSET)

# In a process that Prefect has started for a flow run, and not in a user's own program.
if "PREFECT__FLOW_RUN_ID" in os.environ:
    logs.set_up("run")

Log = logging.Logger | logging.LoggerAdapter[Any]


def run_log() -> Log:
    """Return the logger of the current task or flow run, or the module's."""
    try:
        return get_run_logger()
    except MissingContextError:
        return logging.getLogger("fepflow.run")


def log_limit_change(slots: int, cause: TargetError | None) -> None:
    """Log the new number of calls at once, and the cause of the change."""
    if cause is None:
        run_log().info("the target bears %d calls at once again", slots)
    else:
        calls = "1 call" if slots == 1 else f"{slots} calls"
        run_log().warning("the target is overloaded, %s at once from now on: %s", calls, cause)


RESULTS: Any = get_current_settings().results.local_storage_path
"""The storage of a flow's results, of which none are persisted. For a flow that names none, Prefect asks its API for
the default, twice a run. It takes a path, though its types do not say so."""


def own_flow_run() -> FlowRun:
    """Return the flow run that this code is in, as Prefect's engine has read it, with what `describe` has changed."""
    context = FlowRunContext.get()
    if context is None or not isinstance(context.flow_run, FlowRun):
        raise MissingContextError("this is no flow run")
    return context.flow_run


NOT_EVALUATED = "could not be evaluated"
HANDED_OVER = "HANDED OVER"
SEPARATOR = " · "
TAG = "verdict:"

MAX_REASONS = 3
MAX_MESSAGE = 2_000

_ENDINGS = (*get_args(Outcome), NOT_EVALUATED)
_TAGS = frozenset(f"{TAG}{outcome}" for outcome in get_args(Outcome))


@dataclass(frozen=True, slots=True)
class Retried:
    """A run's verdict before it was resumed, and a sentence about what was asked again."""

    outcome: Outcome
    sentence: str


async def end_with_verdict(verdict: Verdict, retried: Retried | None = None) -> State[Any]:
    """Show the verdict in the flow run's name and tags; return the state that the flow run is to end in."""
    await _mark(verdict.outcome)
    return verdict_state(verdict, retried)


async def end_without_verdict(error: Exception) -> State[Any]:
    """Show a run that could not be evaluated; return the state that the flow run is to end in."""
    if isinstance(error, RunHandedOverError):
        return handed_over_state(str(error))
    await _mark(None)
    return failed_state(error)


def handed_over_state(why: str) -> State[Any]:
    """Return the state of a flow run between two executors: Crashed, with a message that no alert reports."""
    return Crashed(message=one_line(f"{HANDED_OVER}: {why}", MAX_MESSAGE))


async def end_with_variants(table: VariantTable) -> State[Any]:
    """Show the worst outcome of a suite's variants; return the state that their parent is to end in."""
    await _mark(table.outcome)
    return variants_state(table)


async def end_stopped(variants_id: str, *, was_cancelled: bool) -> State[Any]:
    """Return the state of a parent that was stopped before all its variants were evaluated: cancelled, or told to
    end."""
    go_on = f"`fepflow run --resume {variants_id}` continues the variants that have no verdict."
    if was_cancelled:
        return Cancelled(message=f"What was stored is kept, and {go_on}")
    return await end_without_verdict(RunInterruptedError(f"The process was told to end (SIGTERM): {go_on}"))


def variants_state(table: VariantTable, data: Any = None) -> State[Any]:
    """Return Failed if the outcome of a variant stops a release, else Completed, with all outcomes as message."""
    word = NOT_EVALUATED if table.outcome is None else table.outcome.upper()
    message = one_line(f"{word}: {table.summary}", MAX_MESSAGE)
    return Failed(message=message, data=data) if table.blocks else Completed(message=message, data=data)


def failed_state(error: Exception) -> State[Any]:
    """Return Failed, with the error as its data, and its sentence in the log.

    To be returned: what a flow raises Prefect pickles into its storage folder, whatever its settings, and logs with all
    that is in its traceback.
    """
    message = not_evaluated(error)
    run_log().error("%s", message)
    return Failed(message=message, data=error)


def verdict_state(verdict: Verdict, retried: Retried | None = None, data: Any = None) -> State[Any]:
    """Return Failed for a verdict that stops a release, else Completed; the message begins with what decided."""
    return _state(verdict.outcome, verdict.blocks, verdict.distinct_reasons, retried, data)


def stored_state(run: RunRecord) -> State[Any]:
    """Return the state for the verdict that the store has of a run."""
    assert run.outcome is not None
    stored = run.verdict or {}
    decided = [rule["reason"] for rule in stored.get("rules", [])[:1]]
    blocks = stored.get("blocks", run.outcome != "pass")  # a run of before verdicts said so
    return _state(run.outcome, blocks, list(dict.fromkeys([*decided, *stored.get("reasons", [])])))


def not_evaluated(cause: object) -> str:
    """Return the message of a run without a verdict."""
    known = isinstance(cause, str | FepflowError)
    text = f"{type(cause).__name__}: {words_of(cause)}" if isinstance(cause, Exception) and not known else str(cause)
    return f"{NOT_EVALUATED}: {text}"[:MAX_MESSAGE]


def _state(
    outcome: Outcome, blocks: bool, reasons: Sequence[str], retried: Retried | None = None, data: Any = None
) -> State[Any]:
    again = f" {retried.sentence}" if retried else ""
    message = one_line(f"{outcome.upper()}: {' '.join(reasons[:MAX_REASONS])}{again}", MAX_MESSAGE)
    return Failed(message=message, data=data) if blocks else Completed(message=message, data=data)


def without_verdict(tags: Collection[str]) -> set[str]:
    """Return a flow run's tags without the tag of its earlier verdict."""
    return set(tags) - _TAGS


async def _mark(outcome: Outcome | None) -> None:
    """Mark the flow run. Errors are logged, and fail nothing."""
    if FlowRunContext.get() is None:
        return
    try:
        flow_run = own_flow_run()
        async with get_client() as client:
            await mark_flow_run(client, flow_run, outcome)
    except Exception as error:
        run_log().warning("the outcome could not be written into the flow run's name: %s", error)


async def mark_flow_run(client: PrefectClient, flow_run: FlowRun, outcome: Outcome | None) -> None:
    """Put the outcome at the end of a flow run's name and into its tags, in place of an earlier outcome."""
    name = flow_run.name
    for ending in _ENDINGS:
        name = name.removesuffix(f"{SEPARATOR}{ending}")
    tags = without_verdict(flow_run.tags) | ({f"{TAG}{outcome}"} if outcome else set())
    policy = flow_run.empirical_policy
    if policy.retries:  # given by the flow's caller: a verdict is not retried
        policy = policy.model_copy(update={"retries": 0})
    await client.update_flow_run(
        flow_run.id, name=f"{name}{SEPARATOR}{outcome or NOT_EVALUATED}", tags=tags, empirical_policy=policy
    )
