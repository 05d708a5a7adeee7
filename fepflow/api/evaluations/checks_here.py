"""The checks of a request that run in the process of the interfaces: they ask models, or are not ours.

They wait for others most of the time, by the clients that this process has. What may take long of them before and
after that, making them ready and looking up their paths, is done in threads under time limits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import cache, partial
from time import perf_counter

from fepflow.api.evaluations.request_checks import Place, RequestChecks
from fepflow.api.evaluations.requests import EvaluationRequest
from fepflow.calls.thread_pool import LOOKUPS
from fepflow.checks.core.compiled import LARGE_LIMIT, CompiledCheck
from fepflow.checks.core.data_checks import REQUEST, CaseChecks, CheckDefaults
from fepflow.checks.engine import MAX_WAITING, YIELD_INTERVAL, CheckedOutput
from fepflow.checks.models.model_check import ModelCheck
from fepflow.checks.registry import CHECKS, others_checks, our_checks
from fepflow.errors import FepflowError
from fepflow.json.values import is_small
from fepflow.models.client import ModelRequests
from fepflow.protocol.check import Check, to_check
from fepflow.protocol.results import CheckResult
from fepflow.settings import settings
from fepflow.store.large_arguments import LargeArguments

_QUICK_NODES, _QUICK_CHARACTERS = 200, 5_000
"""Up to here the arguments of a check are made ready in milliseconds, whatever they are."""

MAX_FORMAT_NODES, MAX_FORMAT_CHARACTERS = 500, 20_000
"""Values in the schema of a judge's response, which is read in this process; a judgement has a dozen."""


def types_here() -> frozenset[str]:
    """Return the types of the checks that run in this process."""
    return frozenset({*_model_types(), *others_checks()})


@cache
def _model_types() -> frozenset[str]:
    return frozenset(name for name in CHECKS if any(issubclass(check, ModelCheck) for check in our_checks(name)))


class ChecksHere:
    """Runs checks of a request. One that may not ask its model is an error."""

    def __init__(self, request: EvaluationRequest, requests: ModelRequests, put: Callable[[Place, CheckResult], None]):
        policy = CaseChecks(CheckDefaults(), (), settings().allowed_models, from_data=True, source=REQUEST)
        self._ready = partial(RequestChecks, request, lambda check: _refusal(policy, to_check(check)))
        self._checks = self._ready()
        self._requests = requests
        self._put = put
        self._places = asyncio.Semaphore(MAX_WAITING)

    async def run(self, places: Sequence[Place]) -> None:
        """Run the checks; each result is put as it comes. What is wrong with a check is in its result."""
        last_yield = perf_counter()
        async with asyncio.TaskGroup() as group:
            for place in places:
                await self._places.acquire()
                answer = await self._begin(place)
                if answer is None:
                    self._places.release()
                else:
                    group.create_task(self._finish(place, *answer))
                if perf_counter() - last_yield > YIELD_INTERVAL:
                    await asyncio.sleep(0)
                    last_yield = perf_counter()

    async def _begin(self, place: Place) -> tuple[CompiledCheck, CheckedOutput, LargeArguments] | None:
        try:
            if is_small(to_check(self._checks.declared(place)[0]).arguments, _QUICK_NODES, _QUICK_CHARACTERS):
                seen, large, check = self._checks.at(place)
            else:
                making = partial(self._checks.at, place)
                seen, large, check = await LOOKUPS.run(making, LARGE_LIMIT, "making the check ready")
        except FepflowError as error:
            self._checks = self._ready()  # the thread that was given up still has the other one
            self._put(place, self._checks.failed(place, error))
            return None
        return check, seen, large

    async def _finish(self, place: Place, check: CompiledCheck, seen: CheckedOutput, large: LargeArguments) -> None:
        try:
            answer = seen.answer(check, self._requests)
            result = answer if isinstance(answer, CheckResult) else await answer
            self._put(place, large.left_out(result, check.check))
        finally:
            self._places.release()


def _refusal(policy: CaseChecks, check: Check) -> str | None:
    """Return why a check is not run here: it asks a model that it may not ask, or in a form that is no judgement's."""
    if refusal := policy.refusal(check):
        return refusal
    if is_small(check.arguments.get("response_format"), MAX_FORMAT_NODES, MAX_FORMAT_CHARACTERS):
        return None
    most = f"{MAX_FORMAT_NODES} values, {MAX_FORMAT_CHARACTERS:,} characters"
    return f"response_format: in a request over the network it holds up to {most}"
