"""A new run: a row in the store with the suite's snapshot, and its cases."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import accumulate, chain, islice
from typing import Any
from uuid import uuid4

from fepflow.analysis.comparison import suite_hash
from fepflow.analysis.dependence import draw_clusters
from fepflow.analysis.sampling import DEFAULT_SEED, draw, first_cases, sample_size
from fepflow.checks.core.declarations import with_default_paths
from fepflow.diagnose.suite_validation import SuiteValidation
from fepflow.documents.messages import did_you_mean
from fepflow.errors import UserError
from fepflow.protocol.check import Check
from fepflow.protocol.test_case import TestCase
from fepflow.security.redaction import redact
from fepflow.store.leases import new_owner
from fepflow.store.records import FILTERS, REPLACED, REUSE_OUTPUTS, Cause, FailureKind, RunRecord
from fepflow.store.store import Store
from fepflow.suite.models import Gate, Suite
from fepflow.suite.reader import LoadedSuite
from fepflow.suite.test_cases import CasesOnDisk
from fepflow.suite.variants import Replacement, Variant, chosen, tags_of
from fepflow.tasks.local_run import LEASE_SECONDS


@dataclass(frozen=True)
class RunOptions:
    """Options of a run that override its suite file; None: as the file has it."""

    limit: float | None = None
    """Number of cases in a random sample, or a fraction below 1."""
    seed: int = DEFAULT_SEED
    """Seed of the sample."""
    repeats: int | None = None
    concurrency: int | None = None
    timeout: float | None = None
    """Seconds for one call; for an ECP agent, for its start and for each step."""
    tags: Sequence[str] = ()
    metadata: dict[str, str] = field(default_factory=dict)
    """Values that the metadata of cases must have."""
    failing_in: str | None = None
    """Id of a run; only cases that did not pass in it are taken."""
    errors_in: str | None = None
    """Id of a run; only its cases with an unanswered call or a check in error are taken."""
    case_patterns: Sequence[str] = ()
    """Ids of cases, or patterns of ids with `*`, `?` and `[…]`, as for file names."""
    cases: frozenset[str] | None = None
    """Ids of the cases."""
    first: int | None = None
    """Number of cases to take of these, in the order of the suite."""
    verdict_mode: str | None = None
    cache: bool | None = None
    """True if kept answers of models may be used."""
    version: str | None = None
    """Name of the target's version."""
    reuse_outputs: bool = False
    """True if outputs of earlier runs take the place of calls with the same request."""
    variants: Sequence[tuple[str, str]] = ()
    """Values, by name, that variants of the suite must have."""
    replacements: Sequence[Replacement] = ()
    """Values of the suite that this run replaces."""


@dataclass(frozen=True, slots=True)
class CreatedRun:
    """A new run, and its suite as the run has it."""

    run: RunRecord
    loaded: LoadedSuite


def create_run(
    store: Store,
    validation: SuiteValidation,
    options: RunOptions | None = None,
    flow_run_id: str | None = None,
    cause: Cause = "command",
    of_variants: Mapping[str, Any] | None = None,
    takeovers: int = 0,
) -> CreatedRun:
    """Create the run of a validated suite without variants, claimed by this process.

    The run's row holds the suite's document (references unexpanded, thresholds read in), so that nothing of what it
    judges changes while it lasts. Other executors may take it over `takeovers` times. Raises InputError with all the
    suite's errors.
    """
    options = options or RunOptions()
    suite, repeats, case_filter = require_options(store, validation, options)
    cases, run_options, n_cases = _wanted(validation, options, suite, case_filter)
    if validation.origin is not None:
        run_options["origin"] = validation.origin.data()
    if options.reuse_outputs:
        run_options[REUSE_OUTPUTS] = True
    if options.replacements:
        run_options[REPLACED] = [[list(replacement.path), replacement.value] for replacement in options.replacements]
    run_id, loaded = uuid4().hex, suite_of_run(validation, options)
    run = RunRecord(
        id=run_id,
        name=validation.run_name,
        suite=loaded.snapshot,
        suite_path=str(validation.path.resolve()),
        repeats=repeats,
        tags=list(dict.fromkeys([*suite.tags, *options.tags, *tags_of(suite.variant)])),
        flow_run_id=flow_run_id,
        suite_hash=suite_hash(loaded.snapshot, repeats, loaded.folder),
        version=_version(loaded, options),
        cause=cause,
        options={**run_options, **(of_variants or {})} or None,
        n_cases=n_cases,
        takeovers_left=takeovers,
    )
    # Until it takes the lease: a run whose process is killed in between would be pending for good.
    store.runs.create(run, cases, new_owner(), LEASE_SECONDS)
    return CreatedRun(store.runs.get(run_id), loaded)


def require_options(store: Store, validation: SuiteValidation, options: RunOptions) -> tuple[Suite, int, CaseFilter]:
    """Return the suite, its repeats and the selected cases. Raises FepflowError if no run can have these options."""
    suite = validation.require()
    if validation.variants:
        raise UserError(f"{validation.path} has variants: `fepflow run` makes a run of each, fepflow.run_variants too.")
    repeats = options.repeats or suite.repeats
    require_repeats(suite, repeats, f"set repeats (or --repeats), which is {repeats}")
    _require_top_up(suite.gate, options)
    _require_pooled(suite, options)
    return suite, repeats, CaseFilter(store, validation.cases, options)


def create_variants(
    store: Store,
    validation: SuiteValidation,
    options: RunOptions,
    variants_id: str,
    cause: Cause = "command",
    takeovers: int = 0,
) -> list[CreatedRun]:
    """Create a run of each variant that is wanted, claimed by this process, all before the first one is executed: so
    the store knows what is left to do whenever the process ends. Raises as `create_run` does."""
    validation.require()
    return [
        create_run(
            store,
            validation.variants[index],
            options,
            cause=cause,
            takeovers=takeovers,
            of_variants={"variants": variants_id, "variant_number": number},
        )
        for number, index in enumerate(chosen(values_of(validation), options.variants))
    ]


def values_of(validation: SuiteValidation) -> list[Variant]:
    """Return the values that each variant of a suite has."""
    return [of_variant.loaded.section("variant") for of_variant in validation.variants]


def _version(loaded: LoadedSuite, options: RunOptions) -> str | None:
    """Return the name of the target's version, if there is one; it is shown, so no secret is left in it."""
    version = options.version or (loaded.suite.target.version if loaded.suite else None)
    return redact(version, loaded.secrets) if version else None


def require_repeats(suite: Suite, repeats: int, advice: str) -> None:
    """Raise UserError, with the advice, if a metric takes more repeats of each case than there are."""
    for metric in suite.metrics or ():
        if metric.aggregated.k > repeats:
            raise UserError(
                f"The metric {metric.id} is {metric.aggregate}, which takes {metric.aggregated.k} repeats of each case "
                f"or more: {advice}."
            )


def _require_top_up(gate: Gate | None, options: RunOptions) -> None:
    """Raise UserError for options that a gate which tops up cannot be judged with."""
    if gate is None or gate.top_up is None:
        return
    if options.verdict_mode == "point":
        raise UserError("A run that is topped up is judged by intervals: leave out --verdict point, or gate.top_up.")
    most = gate.top_up.max_repeats
    if most is not None and (options.repeats or 1) > most:
        raise UserError(f"The gate tops up to {most} repeats: {options.repeats} from the beginning are more than that.")


def suite_of_run(validation: SuiteValidation, options: RunOptions) -> LoadedSuite:
    """Return the suite as the run has it: with its options, its thresholds read in, and its snapshot to store."""
    loaded, suite = validation.loaded, validation.require()
    snapshot, changes = copy.deepcopy(loaded.snapshot), dict[str, Any]()
    if "checks" in snapshot:
        checks = (with_default_paths(Check.model_validate(check)) for check in snapshot["checks"])
        snapshot["checks"] = [check.model_dump() for check in checks]
    of_target: dict[str, Any] = {}
    if options.concurrency is not None:
        of_target["concurrency"] = options.concurrency
    if options.timeout is not None:
        of_target["timeout"] = options.timeout
        if suite.target.ecp is not None:  # a whole scenario has the time of its start, its steps and a reset
            most_steps = max(len(case.input) if isinstance(case.input, list) else 1 for case in validation.cases)
            of_target["timeout"] = options.timeout * (most_steps + 2)
            of_ecp = {"step_timeout": options.timeout, "start_timeout": options.timeout}
            snapshot["target"]["ecp"].update(of_ecp)
            of_target["ecp"] = suite.target.ecp.model_copy(update=of_ecp)
    if of_target:
        snapshot["target"].update({name: value for name, value in of_target.items() if name != "ecp"})
        changes["target"] = suite.target.model_copy(update=of_target)
    if validation.thresholds is not None:
        snapshot["thresholds"] = changes["thresholds"] = validation.thresholds.model_dump(exclude_none=True)
    if options.verdict_mode is not None:
        snapshot["gate"] = {**(snapshot.get("gate") or {}), "verdict": options.verdict_mode}
        changes["gate"] = (suite.gate or Gate()).model_copy(update={"verdict": options.verdict_mode})
    if options.cache is not None:
        snapshot["cache"] = changes["cache"] = options.cache
    recorded = suite.target.recorded
    if isinstance(snapshot["test_cases"], list) and (recorded is None or recorded.id is not None):
        snapshot["test_cases"] = []  # the store has them, row by row; only records matched by order need all of them
    return loaded.changed(snapshot, changes)


def _require_pooled(suite: Suite, options: RunOptions) -> None:
    """Raise UserError if the runs of a version are judged together, and this one cannot be one of them."""
    if suite.gate is None or suite.gate.looks is None:
        return
    if (options.version or suite.target.version) is None:
        raise UserError(
            "gate.looks: pooled judges the runs of one version together, and none is named: give --version NAME, or "
            "target.version, such as ${GIT_SHA}."
        )
    if options.verdict_mode == "point":
        raise UserError("Runs that are pooled are judged by intervals: leave out --verdict point, or gate.looks.")
    if options.reuse_outputs:
        raise UserError(
            "gate.looks: pooled judges earlier runs together with this one, so their outputs would count twice: leave "
            "out --reuse-outputs."
        )


def _wanted(
    validation: SuiteValidation, options: RunOptions, suite: Suite, case_filter: CaseFilter
) -> tuple[Iterable[TestCase], dict[str, Any], int]:
    """Return the cases that the run is to have, in their order, read as they are wanted; which part of the suite's they
    are; and with how many of them it begins (0: all).

    Those of which it may take fewer, by its gate, are in random order, clusters as a whole.
    """
    cases = validation.cases
    is_wanted, count, case_options = case_filter.is_wanted, case_filter.count, case_filter.as_options()
    most = suite.gate.top_up.max_cases if suite.gate and suite.gate.top_up else None
    size = min(sample_size(count, options.limit), most or count)
    if size == count and most is None:
        return filter(is_wanted, cases), case_options, 0
    sample = {"limit": options.limit, "seed": options.seed, "cases": size, "of": count}
    case_options["sample"] = sample
    if most is None or suite.gate is None:
        chosen = frozenset(draw((case.id for case in filter(is_wanted, cases)), size, options.seed))
        return (case for case in cases if case.id in chosen), case_options, 0
    first = first_cases(suite.gate, size)
    if (by_case := validation.clusters) is not None:
        numbered = (pair for pair in zip(cases, by_case.numbers, strict=True) if is_wanted(pair[0]))
        clusters, sample["largest_cluster"] = draw_clusters(numbered, by_case.path, size, options.seed)
        drawn = list(chain.from_iterable(clusters))
        sample["cases"], sizes = len(drawn), list(accumulate(map(len, clusters)))
        if suite.top_up is not None and suite.top_up.looks is not None:
            planned = first_cases(suite.gate, len(drawn))
            first = next(cases for cases in sizes if cases >= planned)
        else:
            first = sizes[min(first, len(sizes)) - 1]
    else:
        drawn = draw((case.id for case in filter(is_wanted, cases)), size, options.seed)
    chosen = frozenset(drawn)
    by_id = {case.id: case for case in cases if case.id in chosen}
    return [by_id[case_id] for case_id in drawn], case_options, first


class CaseFilter:
    """The test cases that the options select, and their number.

    Raises NotFoundError for an unknown run, UserError for an unknown case id, and if no case is left.
    """

    def __init__(self, store: Store, cases: CasesOnDisk, options: RunOptions) -> None:
        self._metadata = options.metadata
        self._total = len(cases)
        self.phrases = [f"--filter-metadata {name}={value}" for name, value in options.metadata.items()]
        self._ids: frozenset[str] | None = None
        if options.failing_in is not None:
            run = store.runs.get(options.failing_in)
            self.phrases.append(f"--filter-failing {run.short_name}")
            self._and(_failed_cases(store, run))
        if options.errors_in is not None:
            run = store.runs.get(options.errors_in)
            self.phrases.append(f"--errors {run.short_name}")
            self._and(_failed_cases(store, run, "error"))
        for pattern in options.case_patterns:
            self.phrases.append(f"--case {pattern}")
        if options.case_patterns:
            self._and(frozenset(_matching([case.id for case in cases], options.case_patterns)))
        if options.cases is not None:
            self.phrases.append("those with labels")
            self._and(options.cases)
        if options.first is not None:
            self.phrases.append(f"--first {options.first}")
            self._and(frozenset(case.id for case in islice(filter(self.is_wanted, cases), options.first)))
        self.count = len(cases) if not self.phrases else sum(map(self.is_wanted, cases))
        if not self.count:
            raise UserError(f"No test case is left by {', '.join(self.phrases) or 'the suite'}: choose less narrowly.")

    def is_wanted(self, case: TestCase) -> bool:
        """Return whether the run has this case."""
        of_case = case.metadata or {}
        return (self._ids is None or case.id in self._ids) and all(
            _text(of_case.get(key, "")) == value for key, value in self._metadata.items()
        )

    def as_options(self) -> dict[str, Any]:
        """Return the options to store with the run; empty if every case is selected."""
        return {FILTERS: self.phrases, "suite_cases": self._total} if self.count < self._total else {}

    def _and(self, ids: frozenset[str]) -> None:
        self._ids = ids if self._ids is None else self._ids & ids


def _failed_cases(store: Store, run: RunRecord, kind: FailureKind | None = None) -> frozenset[str]:
    """Return the ids of the cases that did not pass in a run, or of those with an error."""
    ids = list(store.runs.ids_of_cases(run.id))
    return frozenset(ids[index] for index in store.results.failed_case_indices(run.id, kind=kind))


def _matching(ids: Sequence[str], patterns: Sequence[str]) -> Iterator[str]:
    """Yield the ids that a pattern matches. An id that equals the pattern comes first, whatever its characters."""
    known = frozenset(ids)
    for pattern in patterns:
        matches = [pattern] if pattern in known else [case_id for case_id in ids if fnmatchcase(case_id, pattern)]
        if not matches:
            raise UserError(f"--case {pattern}: no test case has such an id ({did_you_mean(pattern, ids)})")
        yield from matches


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
