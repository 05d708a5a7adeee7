"""Suites and results from Python: `fepflow.run`, `run_async`, `run_variants`, `load_run` and `compare`."""

from __future__ import annotations

import asyncio
import logging
import math
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, get_type_hints

from pydantic import TypeAdapter, ValidationError

from fepflow.errors import UserError
from fepflow.extras import require
from fepflow.protocol.results import EvaluationRunResult, ResultsView, TestCaseResult
from fepflow.services import run_service
from fepflow.suite.variants import value_label
from fepflow.text import four_digits
from fepflow.verdict.verdict import Verdict

if TYPE_CHECKING:
    from fepflow.analysis.variants import VariantTable
    from fepflow.services.comparisons import Source
    from fepflow.store.records import RunRecord
    from fepflow.tasks.create_run import RunOptions
    from fepflow.tasks.local_run import LocalRun

    Results = ResultsView | str | Path


logger = logging.getLogger("fepflow")


class Options(TypedDict, total=False):
    """Options of `run` beside the suite, named as those of `fepflow run`. Default: as the suite says."""

    limit: float
    seed: int
    repeats: int
    max_concurrency: int
    timeout: float
    tags: Sequence[str]
    filter_metadata: Mapping[str, Any]
    filter_failing: str
    cache: bool
    version: str
    verdict: Literal["interval", "point"]
    env_file: str | Path
    verbose: bool


class RunResults(ResultsView):
    """The results of a run in the store, one for each repeat of each test case that the run has got to.

    Each time that one goes through them they are read anew, a hundred cases at a time.
    """

    def __init__(self, record: RunRecord) -> None:
        self._record = record

    def __iter__(self) -> Iterator[TestCaseResult]:
        from fepflow.reports.fep import dumps, test_case_results

        with run_service.open_store() as store:
            for result in test_case_results(store, store.runs.get(self._record.id)):
                yield TestCaseResult.model_validate_json(dumps(result))

    @property
    def id(self) -> str:
        """The id of the run."""
        return self._record.id

    @property
    def results(self) -> RunResults:
        """The results themselves."""
        return self

    @property
    def expected_results(self) -> int:
        """Test cases times repeats."""
        return self._record.calls

    def _rows(self) -> Iterator[dict[str, Any]]:
        from fepflow.reports.tables import stored_rows

        with run_service.open_store() as store:
            yield from stored_rows(store, store.runs.get(self._record.id))

    def __repr__(self) -> str:
        return f"RunResults(run {self._record.id[:8]}, {self.expected_results} results)"


class Run(ResultsView):
    """A run in the store, with its verdict and its results, which are read on demand.

    `outcome` is `pass`, `fail` or `inconclusive`. It is None without a verdict: then the run is under way, cancelled or
    interrupted (`status`; `error` says why).
    """

    def __init__(self, record: RunRecord) -> None:
        self._record = record

    @property
    def id(self) -> str:
        """The id that `load_run` and `fepflow show` take."""
        return self._record.id

    @property
    def name(self) -> str:
        """The suite's name."""
        return self._record.name

    @property
    def variant(self) -> dict[str, Any] | None:
        """The variant of its suite that was run, by the names of `variants`."""
        return self._record.variant

    @property
    def status(self) -> str:
        """`pending`, `running`, `completed`, `cancelled`, `interrupted` or `failed`."""
        return self._record.status

    @property
    def error(self) -> str | None:
        """Why there is no verdict."""
        return self._record.error

    @property
    def rescored_from(self) -> str | None:
        """The id of the run whose outputs were judged again."""
        return self._record.rescored_from

    @property
    def outcome(self) -> str | None:
        """The verdict's outcome."""
        return self._record.outcome

    @property
    def passed(self) -> bool:
        """True if the verdict is a pass: `assert run.passed`. A run without a verdict has not passed."""
        return self.outcome == "pass"

    @cached_property
    def verdict(self) -> Verdict | None:
        """The verdict with its rules, reasons and metrics."""
        return Verdict.stored(self.outcome, self._record.metrics, self._record.verdict)

    @property
    def metrics(self) -> dict[str, float | None]:
        """The value of each metric, by its id; `verdict.metrics` has intervals and counts."""
        return {metric["id"]: metric.get("value") for metric in self._record.metrics or ()}

    @property
    def results(self) -> RunResults:
        """The results, one for each repeat of each test case, with `pass_rate`, `failed` and `to_dataframe()`."""
        return RunResults(self._record)

    def _rows(self) -> Iterator[dict[str, Any]]:
        return self.results._rows()

    @property
    def expected_results(self) -> int:
        """Test cases times repeats."""
        return self._record.calls

    def __repr__(self) -> str:
        what = self.outcome or self.status
        metrics = ", ".join(f"{name}={_number(value)}" for name, value in self.metrics.items())
        shown = f", {metrics}" if metrics else ""
        return f"Run({self.id[:8]} {self.name!r}: {what}, {self.expected_results} results{shown})"


def run(suite: str | Path, **options: Unpack[Options]) -> Run:
    """Run a suite, as `fepflow run` does, and wait for its end.

    Options: `limit` (a count, or a fraction below 1) with `seed`, `repeats`, `max_concurrency`, `timeout` (seconds for
    a call, or for each step of an ECP agent), `tags`, `filter_metadata` (a dict), `filter_failing` (a run's id),
    `cache` (False asks models again), `verdict` ("interval" or "point"), `env_file` (default: `.env` in the working
    directory), `verbose` (True shows notes and Prefect's log on stderr).

    Returns the run, whatever its verdict: `assert run("suite.yaml").passed`. It also works inside a running event loop,
    for example in a notebook, and blocks that loop until the run has ended; `run_async` does not. Ctrl-C stops the run;
    stored results are kept. Raises InputError with all the suite's errors, and InfrastructureError if the store or
    Prefect is not available.
    """
    with _begin(suite, options) as begun:
        finished = run_service.execute(begun, handle_sigterm=False)
    if finished.stopped:
        raise KeyboardInterrupt
    return Run(finished.run)


def rescore(
    run: str | Run, suite: str | Path | None = None, *, gate: bool = False, env_file: str | Path | None = None
) -> Run:
    """Judge the outputs of a run by its present suite, as `fepflow rescore` does, and wait for the end.

    The agent is not called. `run` is a run, its id, or "latest". `suite` is by default the file from which the run was
    made. `gate=True` keeps all check results. Returns the new run, whatever its verdict. Raises NotFoundError,
    UserError for outputs that cannot be judged, and InputError with all the suite's errors.
    """
    require("run", "fepflow.rescore")
    from fepflow.services.run_service import begin_rescore

    run_service.load_env_file(Path(env_file) if env_file is not None else None)
    run_id, path = run.id if isinstance(run, Run) else run, Path(suite) if suite is not None else None
    with begin_rescore(run_id, path, logger.info, gate_only=gate) as begun:
        finished = run_service.execute(begun, handle_sigterm=False)
    if finished.stopped:
        raise KeyboardInterrupt
    return Run(finished.run)


class VariantRuns:
    """The runs of all variants of a suite, in order, and their differences from the first one."""

    def __init__(self, table: VariantTable) -> None:
        self._table = table

    @property
    def id(self) -> str:
        """The id that `fepflow show` takes for the table."""
        return self._table.id

    @property
    def runs(self) -> list[Run]:
        """The run of each variant."""
        return [Run(record) for record in self._table.runs]

    @property
    def outcome(self) -> str | None:
        """The worst outcome; None if a variant could not be evaluated."""
        return self._table.outcome

    @property
    def passed(self) -> bool:
        """True if every variant passed."""
        return self.outcome == "pass"

    @property
    def sentences(self) -> list[str]:
        """Sentences about the variants that are shown to be better or worse than the first one, and what is missing."""
        return self._table.sentences

    def to_dict(self) -> dict[str, Any]:
        """Return what `fepflow run --json` prints: runs, metrics, and all differences with their intervals."""
        from fepflow.reports.fep import variants_summary

        return variants_summary(self._table)

    def __repr__(self) -> str:
        return f"VariantRuns({self.id[:8]} {self._table.suite!r}: {self._table.summary})"


def run_variants(
    suite: str | Path, variants: Mapping[str, Any] | None = None, **options: Unpack[Options]
) -> VariantRuns:
    """Run the variants of a suite one after the other, and wait for their end. The options are those of `run`.

    `variants` chooses some of them, by a value or a list of values for a name: `{"model": ["a", "b"]}`.
    """
    from fepflow.services.variants import begin_variants, execute_variants, wanted_variants

    run_options, note, verbose = _run_options(options)
    wanted = [
        (name, value_label(value))
        for name, values in (variants or {}).items()
        for value in (values if isinstance(values, list | tuple) else [values])
    ]
    run_options = replace(run_options, variants=wanted)
    validation = run_service.require_valid(Path(suite), run_options, note, show_logs=verbose)
    if not validation.variants:
        raise UserError(f"{suite} has no variants: take fepflow.run.")
    wanted_variants(validation, run_options, yes=True)
    with begin_variants(validation, run_options, note, show_logs=verbose) as begun:
        finished = execute_variants(begun, handle_sigterm=False)
    if finished.stopped:
        raise KeyboardInterrupt
    return VariantRuns(finished.table)


async def run_async(suite: str | Path, **options: Unpack[Options]) -> Run:
    """Run a suite as `run` does, without blocking the event loop. Cancelling stops the run, and waits for it."""
    cancelled = threading.Event()
    begun: list[str] = []

    def work() -> Run:
        with _begin(suite, options) as local_run:
            begun.append(local_run.run.id)
            if cancelled.is_set():
                run_service.cancel(local_run.run.id)
            return Run(run_service.execute(local_run, handle_sigterm=False).run)

    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        cancelled.set()
        if begun and not task.done():
            await asyncio.to_thread(run_service.cancel, begun[0])
        await asyncio.wait({task})
        raise


def load_run(run_id: str = "latest") -> Run:
    """Return a run of the store, by its id, the beginning of it, or `latest`. The run may still be under way.

    Raises NotFoundError.
    """
    require("run", "fepflow.load_run")
    with run_service.open_store() as store:
        return Run(run_service.with_current_metrics(store, store.runs.get(run_id)))


def _begin(suite: str | Path, options: Options) -> AbstractContextManager[LocalRun]:
    run_options, note, verbose = _run_options(options)
    return run_service.start(Path(suite), run_options, note, show_logs=verbose)


def _run_options(options: Options) -> tuple[RunOptions, run_service.Note, bool]:
    """Return the options, what hears notes, and whether Prefect's log is shown."""
    require("run", "fepflow.run")
    from fepflow.analysis.sampling import DEFAULT_SEED
    from fepflow.tasks.create_run import RunOptions

    if unknown := set(options) - set(Options.__annotations__):
        raise TypeError(f"run() got an unexpected keyword argument {sorted(unknown)[0]!r}")
    options = _valid_options(options)
    limit, verbose = options.get("limit"), options.get("verbose", False)
    if limit is not None and (limit <= 0 or (limit >= 1 and limit != int(limit))):
        raise UserError("limit is a count such as 20, or a fraction such as 0.1")
    for name in ("repeats", "max_concurrency"):
        if not 1 <= options.get(name, 1) <= 1000:  # type: ignore[operator]  # both are whole numbers
            raise UserError(f"{name} is a number from 1 to 1000")
    timeout = options.get("timeout")
    if timeout is not None and not 0 < timeout < math.inf:
        raise UserError("timeout is a number of seconds, more than 0")
    env_file = options.get("env_file")
    note = partial(print, file=sys.stderr) if verbose else logger.info
    run_service.load_env_file(Path(env_file) if env_file is not None else None)
    run_options = RunOptions(
        limit=limit,
        seed=options.get("seed", DEFAULT_SEED),
        repeats=options.get("repeats"),
        concurrency=options.get("max_concurrency"),
        timeout=timeout,
        tags=options.get("tags", ()),
        metadata={name: str(value) for name, value in options.get("filter_metadata", {}).items()},
        failing_in=options.get("filter_failing"),
        verdict_mode=options.get("verdict"),
        cache=options.get("cache"),
        version=options.get("version"),
    )
    return run_options, note, verbose


def _valid_options(options: Options) -> Options:
    """Return the options without those that are None. Raises UserError with all values of another type."""
    types, valid, problems = get_type_hints(Options), Options(), []
    for name, value in options.items():
        try:
            if value is not None:
                TypeAdapter(types[name]).validate_python(value, strict=True)
                valid[name] = value  # type: ignore[literal-required]
        except ValidationError as error:
            problems.append(f"{name}: {error.errors()[0]['msg'].lower()}, not {value!r}")
    if problems:
        raise UserError("; ".join(problems))
    return valid


def _number(value: float | None) -> str:
    return "none" if value is None else four_digits(value)


class Comparison:
    """A comparison of runs with a base: the metrics and cases that differ, and whether chance may explain it.

    `outcome` is `fail` if a regression is shown, `pass` if one beyond the margin is excluded, `inconclusive` if neither
    is, and None if there is no margin and nothing is shown. `str()` is a table in Markdown.
    """

    def __init__(self, data: dict[str, Any], markdown: str) -> None:
        self._data = data
        self._markdown = markdown

    @property
    def outcome(self) -> str | None:
        """The worst outcome of all compared runs."""
        outcome: str | None = self._data["outcome"]
        return outcome

    @property
    def metrics(self) -> dict[str, dict[str, Any]]:
        """The metrics of the first compared run by id: `base`, `new`, `difference`, `low`, `high`, `p`, and so on."""
        return {metric["id"]: metric for metric in self._data["compared"][0]["metrics"]}

    @property
    def worsened(self) -> list[dict[str, Any]]:
        """The cases of the first compared run that are worse now, with both outputs."""
        return list(self._data["compared"][0]["worsened"])

    @property
    def improved(self) -> list[dict[str, Any]]:
        """The cases of the first compared run that are better now, with both outputs."""
        return list(self._data["compared"][0]["improved"])

    @property
    def judge(self) -> dict[str, Any] | None:
        """Preferences of the judge, if one was asked."""
        return self._data.get("judge")

    @property
    def warnings(self) -> list[str]:
        """Limits of the comparison, and what could not be known of results that are not in the store."""
        warnings = (warning for run in self._data["compared"] for warning in run["warnings"])
        return [*self._data.get("notes", ()), *warnings]

    def to_dict(self) -> dict[str, Any]:
        """Return what `fepflow compare --format json` prints."""
        return self._data

    def __str__(self) -> str:
        return self._markdown

    def __repr__(self) -> str:
        differences = ", ".join(
            f"{name} {metric['difference']:+.4g}"
            for name, metric in self.metrics.items()
            if metric.get("difference") is not None
        )
        return f"Comparison({self.outcome or 'nothing is shown'}: {differences or 'nothing compared'})"


def compare(
    base: Results,
    *new: Results,
    margin: float | None = None,
    margins: dict[str, float] | None = None,
    judge: str | None = None,
    judge_model: str | None = None,
    max_usd: float | None = None,
) -> Comparison:
    """Compare results with `base`, over the test cases that both have, as `fepflow compare` does.

    Each argument is the result of `evaluate`, `run` or `load_run`, the id of a run, or a file of results. `margin` is
    how much worse shares may be, and `margins` sets it by metric. `judge` is a question that a model answers about each
    pair of outputs. Raises UserError if nothing can be compared, and InputError for a file without results.
    """
    require("run", "fepflow.compare")
    from fepflow.reports.comparison import as_json, as_markdown
    from fepflow.services import comparisons
    from fepflow.services.comparisons import runs_to_compare
    from fepflow.services.judges import JudgeQuestion, judge_runs

    if not new:
        raise TypeError("compare() takes the results of two runs or more")
    for value in (margin, *(margins or {}).values()):
        if value is not None and not 0 <= value < math.inf:
            raise UserError(f"{value!r} is not a margin: give a number such as 0.02.")
    with runs_to_compare([_source(results) for results in (base, *new)]) as runs:
        first, *others = runs.names
        judged = comparisons.compare(runs.store, first, others, margin, margins or {}, metrics_needed=judge is None)
        preferred = None
        if judge is not None:
            records = [judged.comparisons[0].base, *(comparison.new for comparison in judged.comparisons)]
            question = JudgeQuestion(judge, judge_model, max_usd)
            preferred = judge_runs(runs.store, records, question, lambda _: None)  # no line about its cost is shown
        data = {**as_json(runs.store, judged, preferred), "notes": list(runs.notes)}
        return Comparison(data, "\n".join(as_markdown(runs.store, judged, _SHOWN, preferred)))


_SHOWN = 5


def _source(results: Results) -> Source:
    if isinstance(results, EvaluationRunResult):
        import json

        document: dict[str, Any] = json.loads(results.model_dump_json())
        return document
    if isinstance(results, str | Path):
        return str(results)
    run_id = getattr(results, "id", None)  # of a run in the store, whose classes know this module
    if not isinstance(run_id, str):
        raise TypeError(f"{type(results).__name__} cannot be compared: give results, the id of a run, or a file")
    return run_id
