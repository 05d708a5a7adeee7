"""Questions to a judge about which run's outputs are better, and people's preferences."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from fepflow.analysis.preferences import JudgedPreferences, OutputPair, PairVerdict, judged_rows, pair_all, preferences
from fepflow.calls.models import _litellm
from fepflow.calls.models.client import ModelClient, ModelRequests
from fepflow.calls.models.model import CHAT, Model, RequestContext, parse_model_config
from fepflow.calls.policy import RunBudget
from fepflow.checks.core.declarations import merged
from fepflow.checks.models.judge_check import judge_pair
from fepflow.errors import CheckArgumentsError, InfrastructureError, ModelError, RunLimitExceededError, UserError
from fepflow.security.redaction import words_of
from fepflow.services.run_service import open_store
from fepflow.store.records import RunRecord
from fepflow.store.store import Store
from fepflow.store.writer import StoredResponseCache
from fepflow.suite.models import Budget, JudgeDefaults
from fepflow.text import cut, plural

MOST_RUNS = 8
"""Runs that are compared, each with each other one."""

MOST_QUESTION = 4_000
"""Characters of a question."""

_PAIRS_AT_ONCE = 500
"""Pairs whose judgements are under way, or wait for one."""

ADVICE = "name one: --judge-model openai/gpt-4o-mini, or the suite's section judge: {model_config: {model: ...}}"


@dataclass(frozen=True, slots=True)
class JudgeQuestion:
    """A question for a judge about each pair of outputs.

    `model` is its name; None: the model of the newest run's suite. `usd` limits the cost. Without `cache`, stored
    answers are not used.
    """

    text: str
    model: str | None = None
    usd: float | None = None
    cache: bool = True


def judge_runs(
    store: Store,
    runs: Sequence[RunRecord],
    asked: JudgeQuestion,
    note: Callable[[str], None],
) -> JudgedPreferences:
    """Ask a judge about the outputs of each two runs, in both orders. `note` is called with the coming questions.

    Answers are stored in the user's store, even if some of the runs are files. Raises UserError for a question or a
    model that cannot be used.
    """
    text = asked.text.strip()
    if not text or len(text) > MOST_QUESTION:
        raise UserError(f"The judge's question is a text of 1 to {MOST_QUESTION:,} characters (--judge).")
    if len(runs) > MOST_RUNS:
        raise UserError(f"A judge compares each run with each other one, of {MOST_RUNS} runs at most.")
    model, concurrency = model_of_judge(runs[-1], asked.model)
    if asked.usd is not None and not _litellm.has_price(model):
        raise UserError(
            f"The price of {model.name} is not known, so nothing can be limited by it: leave out --max-usd."
        )
    contents, paired = pair_all(store, runs)
    pairs = [pair for compared in paired for pair in compared.pairs]
    different = sum(pair.texts is not None and not pair.is_same for pair in pairs)
    note(
        f"asking {model.name} about {plural(different, 'pair')} of outputs in both orders: up to "
        f"{plural(2 * different, 'request')}, fewer if it has been asked before"
    )
    with open_store() if any(run.file for run in runs) else nullcontext(store) as cache_in:
        judge = _Judge(cache_in, model, text, asked, concurrency)
        verdicts = iter(asyncio.run(judge.verdicts(pairs)))
    preferred = preferences(contents, paired, [[next(verdicts) for _ in compared.pairs] for compared in paired])
    if not any(run.file for run in runs):
        for compared in preferred.between:
            store.preferences.put(judged_rows(text, model.name, compared.verdicts))
    return JudgedPreferences(text, model.name, preferred, judge.usage, judge.limit)


def model_of_judge(run: RunRecord, name: str | None) -> tuple[Model, int]:
    """Return the model that judges, and how many requests it may get at once: that of the run's suite, or the named
    one with what the suite says of this provider. Raises UserError."""
    section = None if run.file else run.suite.get("judge")  # a file says neither who judges, nor where keys are sent
    defaults = JudgeDefaults.model_validate(section) if section else JudgeDefaults()
    own = {} if name is None else {"model_config": {"model": name}}
    configs = merged(own, defaults)
    if not configs.get("model_config", {}).get("model"):
        jury = " (a jury is not asked about pairs)" if defaults.judges else ""
        raise UserError(f"There is no model to judge{jury}: {ADVICE}.")
    try:
        model = parse_model_config(configs["model_config"], configs.get("provider_config", {}), CHAT)
    except ValueError as error:
        raise UserError(f"The judge cannot be asked: {error}") from None
    if (problem := _litellm.problem(model)) is not None:
        raise UserError(f"The judge cannot be asked: {problem}")
    return model, defaults.concurrency


class _Judge:
    """A judge of pairs."""

    def __init__(self, store: Store, model: Model, text: str, asked: JudgeQuestion, concurrency: int) -> None:
        self._store = store
        self._model = model
        self._text = text
        self._cache = asked.cache
        self._concurrency = concurrency
        self._budget = RunBudget(budget=Budget(usd=asked.usd) if asked.usd else None)
        self.usage: Mapping[str, Any] = {}
        self.limit: str | None = None

    async def verdicts(self, pairs: Sequence[OutputPair]) -> list[PairVerdict]:
        """Return a verdict about each pair, in their order."""
        contexts = {
            repeat: RequestContext(self._budget, self._concurrency, repeat)
            for repeat in {pair.repeat for pair in pairs}
        }
        verdicts: list[PairVerdict] = []
        async with ModelClient(StoredResponseCache(self._store), refresh=not self._cache) as client:
            requests = {repeat: ModelRequests(client, context) for repeat, context in contexts.items()}
            for start in range(0, len(pairs), _PAIRS_AT_ONCE):
                chunk = pairs[start : start + _PAIRS_AT_ONCE]
                verdicts += await asyncio.gather(*(self._verdict(requests[pair.repeat], pair) for pair in chunk))
        total = RequestContext()
        for context in contexts.values():
            for name in ("requests", "responses", "tokens", "usd", "unknown_tokens", "unknown_usd"):
                setattr(total, name, getattr(total, name) + getattr(context, name))
        self.usage = total.usage()
        return verdicts

    async def _verdict(self, requests: ModelRequests, pair: OutputPair) -> PairVerdict:
        if pair.texts is None:
            return PairVerdict(pair, None, why_none=pair.why_none)
        if pair.is_same:
            return PairVerdict(pair, "tie")
        try:
            judged = await judge_pair(requests, self._model, self._text, pair.texts)
        except RunLimitExceededError as error:
            self.limit = str(error)
            return PairVerdict(pair, None, why_none="not asked: the judge's budget is used up")
        except (ModelError, CheckArgumentsError, InfrastructureError) as error:
            return PairVerdict(pair, None, why_none=cut(words_of(error), 300))
        return PairVerdict(pair, judged.preferred, judged.positions, judged.reasons)
