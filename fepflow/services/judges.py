"""Service functions for judges, used by CLI, Python and pages: their calibration by people's labels, and preferences.

A judge's preferences are its answers to the question which run's outputs are better.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fepflow.access.caller import Caller, name_of_user
from fepflow.analysis import calibration
from fepflow.analysis import labels as people_labels
from fepflow.analysis.calibration import exported_labels, stored_labels
from fepflow.analysis.judge_reliability import judges_of_run
from fepflow.analysis.labels import LabelSet, judge_named, outputs_to_label, read_labels
from fepflow.analysis.preferences import JudgedPreferences, OutputPair, PairVerdict, judged_rows, pair_all, preferences
from fepflow.calls.models import _litellm
from fepflow.calls.models.client import ModelClient, ModelRequests
from fepflow.calls.models.model import CHAT, Model, RequestContext, parse_model_config
from fepflow.calls.policy import RunBudget
from fepflow.checks.core.declarations import merged
from fepflow.checks.models.judge_check import judge_pair
from fepflow.checks.models.judge_spec import JudgeSpec, judges_of_suite
from fepflow.errors import CheckArgumentsError, InfrastructureError, ModelError, RunLimitExceededError, UserError
from fepflow.reports.tables import write_label_sheet
from fepflow.security.redaction import words_of
from fepflow.services.run_service import Note, open_store, validate
from fepflow.store.records import Calibration, LabelDraw, RunRecord
from fepflow.store.store import Store
from fepflow.store.writer import StoredResponseCache
from fepflow.suite.models import Budget, JudgeDefaults
from fepflow.suite.reader import load_suite
from fepflow.text import cut, plural

# --- labels and calibration ------------------------------------------------------------------------------------------


def labels_of_suite(path: Path, labels: Path, check: str | None, field: str | None) -> LabelSet:
    """Return people's labels of a suite's test cases, and their judge. Raises UserError."""
    validation = validate(path)
    validation.require()
    judges = judges_of_suite(validation.loaded)
    return read_labels(labels, judges, {case.id for case in validation.cases}, check, field)


def labels_of_run(
    path: Path | None, run_id: str, labels: Path | None, check: str | None, field: str | None, note: Note
) -> tuple[RunRecord, LabelSet]:
    """Return a run of the suite, with people's labels of its test cases and the judge at that time. Raises UserError.

    Without a file, the labels are those in the store. `note` is called if the suite no longer has that judge. A run
    without a suite file, for example an imported one, has no judge that could have changed.
    """
    run, judges = _judges_of_run(path, run_id)
    with open_store() as store:
        if labels is None:
            labelled = stored_labels(store, run, judges, check, field)
        else:
            labelled = read_labels(labels, judges, set(store.runs.ids_of_cases(run.id)), check, field)
    _note_change(path, run, labelled.judge, note)
    return run, labelled


def _judges_of_run(path: Path | None, run_id: str) -> tuple[RunRecord, list[JudgeSpec]]:
    with open_store() as store:
        run = store.runs.get(run_id)
    if run.suite_path is not None:
        if path is None:
            raise UserError(f"Run {run.id[:8]} is one of the suite {run.name}: name its file before --run.")
        if run.name != load_suite(path).section("name"):
            raise UserError(f"Run {run.id[:8]} is one of the suite {run.name}, and not of {path}.")
    return run, judges_of_run(run)


def _note_change(path: Path | None, run: RunRecord, judge: JudgeSpec, note: Note) -> None:
    if path is None or run.suite_path is None:
        return
    now = judges_of_suite(load_suite(path))
    if (judge.judge, judge.rubric) not in {(present.judge, present.rubric) for present in now}:
        note(f"{judge.check_id} has changed since run {run.id[:8]}: as it is in {path} now, it is not calibrated")


def draw_for_labels(
    path: Path | None, run_id: str, file: Path, check: str | None, size: int, seed: int, note: Note
) -> tuple[RunRecord, LabelDraw]:
    """Draw outputs of a run at random and write them to a new file for labelling.

    `note` is called if the suite no longer has that judge. Raises UserError.
    """
    if file.exists():
        raise UserError(f"{file} already exists: name another file, or move it (--labels).")
    run, judges = _judges_of_run(path, run_id)
    judge = judge_named(judges, check)
    _note_change(path, run, judge, note)
    with open_store() as store:
        drawn = people_labels.draw_for_labels(store, run, judge, size, seed)
        write_label_sheet(outputs_to_label(store, drawn), file)
    return run, drawn


def calibrate(run: RunRecord, labelled: LabelSet) -> Calibration:
    """Compare a judge's verdicts in a run with labels, and store the result; see `fepflow.analysis.calibration`."""
    with open_store() as store:
        return calibration.calibrate(store, run, labelled)


def person_of(caller: Caller) -> str:
    """Return the name under which a caller's labels are stored; without a key, it is that of the process's user."""
    return caller.name or name_of_user()


def export_labels(run_id: str, check: str | None, path: Path) -> tuple[RunRecord, int]:
    """Write the labels of a run's outputs (of one check, or all) to a new file. Returns the run and the number of rows.

    Raises NotFoundError, and UserError if there is no label, or the file cannot be written.
    """
    if path.exists():
        raise UserError(f"{path} already exists: name another file, or move it (--output).")
    with open_store() as store:
        run = store.runs.get(run_id)
        rows = exported_labels(store, run, check)
    write_label_sheet(rows, path)
    return run, len(rows)


# --- preferences between runs' outputs -------------------------------------------------------------------------------


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
