"""A run whose outputs are those of an earlier one, judged by the present checks, metrics and gate of the suite.

The target is not called. So an output counts for a case only if the request is the same: a case has no output if its
input has changed, or a part of it that the request reads, or if it is new.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import uuid4

from fepflow.analysis.accumulation import cases_of
from fepflow.analysis.comparison import suite_hash
from fepflow.analysis.metrics import judged_checks
from fepflow.calls.base import Target
from fepflow.calls.factory import open_target, target_hash
from fepflow.checks.core.declarations import CheckDefaults
from fepflow.diagnose.suite_validation import SuiteValidation
from fepflow.diagnose.validate_suite import validate_loaded
from fepflow.documents.loader import read_document
from fepflow.errors import FepflowError, NotFoundError, UserError
from fepflow.protocol.check import Check, to_check
from fepflow.protocol.content_hash import content_hash
from fepflow.protocol.test_case import ERASED, TestCase
from fepflow.settings import SUITE_VARIABLES, settings
from fepflow.store.leases import new_owner
from fepflow.store.records import FILTERS, REPLACED, RESCORING, REUSE_OUTPUTS, RunRecord
from fepflow.store.store import Store
from fepflow.suite.env_vars import UncalledTarget, names_with_values
from fepflow.suite.models import JudgeDefaults, ModelDefaults, Suite, check_ids
from fepflow.suite.reader import load_suite, read_snapshot
from fepflow.suite.target import KINDS
from fepflow.suite.test_cases import CasesOnDisk
from fepflow.suite.variants import Replacement, label_of, run_name, tags_of, with_replacements
from fepflow.tasks.create_run import CreatedRun, RunOptions, require_repeats, suite_of_run
from fepflow.tasks.local_run import LEASE_SECONDS
from fepflow.text import listed, listed_first, plural

CASES_AT_ONCE = 1_000
_named = partial(listed_first, most=10, width=120)
"""Returns a list of cases, or of checks and how often they failed, in words."""

JUDGING = ("task", "metrics", "thresholds", "slices", "cluster", "gate", "baseline")
"""Sections of a suite that turn the results of checks into a verdict."""

FOREIGN = {"pytest": "by a test", "evaluate": "by a request to evaluate outputs", "imported": "by an import"}
"""Kinds of targets that only runs without a suite file have, and by what such a run was made."""


@dataclass(frozen=True, slots=True)
class Rescorable:
    """A run with outputs, and the suite that is to judge them; `told` names that suite in words."""

    source: RunRecord
    validation: SuiteValidation
    told: str


@dataclass(slots=True)
class CaseChanges:
    """The cases of a suite beside those of the run that is rescored: ids, in order."""

    places: dict[str, int] = field(default_factory=dict)
    """Index of each case in the new run."""
    changed: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    removed_failed: int = 0
    """Removed cases that had not passed."""
    checked_again: int = 0
    """Cases with the same question, but other data that checks may read."""
    otherwise_checked: list[str] = field(default_factory=list)
    """Cases whose own checks have changed."""
    own_checks: tuple[set[str], set[str]] = field(default_factory=lambda: (set(), set()))
    """Ids of the cases' own checks, then and now."""

    @property
    def unanswered(self) -> list[int]:
        """Indices of the new run's cases that its outputs do not answer."""
        return sorted(self.places[case_id] for case_id in (*self.changed, *self.new))


def find_rescorable(store: Store, run_id: str, suite: Path | None) -> Rescorable:
    """Return a run and the suite that is to judge its outputs: `suite`, else the file that the run was made by, else
    the run's own copy of it.

    Raises NotFoundError, UserError for a run that cannot be rescored, InputError for a suite that is not valid.
    """
    if store.runs.of_variants(run_id):
        raise UserError(f"{run_id} is all variants of a suite: name one of their runs (fepflow show {run_id}).")
    source = store.runs.get(run_id)
    short = source.id[:8]
    if source.is_under_way:
        raise UserError(f"Run {short} is still under way: wait for its end, or cancel it (fepflow cancel {short}).")
    if not store.results.progress(source.id).outputs:
        raise UserError(f"Run {short} has no outputs to judge: it is {source.status}.")
    if suite is not None:
        return Rescorable(source, _validated(suite, source), f"by {suite} as it is now{_with_set(suite, source)}")
    kind = next((kind for kind in FOREIGN if kind in (source.suite.get("target") or {})), None)
    if kind is not None or source.is_requested:
        made_by = "over the network" if kind is None else FOREIGN[kind]
        raise UserError(
            f"Run {short} was made {made_by}, and has no suite file: name the suite whose checks are to judge its "
            f"outputs: fepflow rescore {short} suite.yaml"
        )
    file = Path(source.suite_path) if source.suite_path else None
    if file is not None and file.is_file():
        return Rescorable(source, _validated(file, source), f"by {file} as it is now{_with_set(file, source)}")
    gone = f"{file} is not there any more" if file else "it has no file"
    return Rescorable(source, _validated_snapshot(store, source), f"by the run's own copy of its suite, as {gone}")


def _validated(path: Path, source: RunRecord) -> SuiteValidation:
    replacements = _of_target(path, source)
    env = UncalledTarget(with_replacements(read_document(path), replacements).data, SUITE_VARIABLES)
    validation = validate_loaded(load_suite(path, env, replacements), replacements=replacements)
    validation.require()
    if not validation.variants:
        return validation
    for variant in validation.variants:
        if variant.loaded.section("variant") == source.variant:
            return variant
    had = f"variant {label_of(source.variant)}" if source.variant else "no variant"
    raise UserError(f"{path} has variants, and none is that of run {source.id[:8]}, which has {had}.")


def _of_target(path: Path, source: RunRecord) -> list[Replacement]:
    """Return the values that the run had replaced in the target of its own suite (`--set`): its outputs are of that."""
    if source.suite_path is None or path.resolve() != Path(source.suite_path):
        return []
    replaced = (Replacement(tuple(steps), value) for steps, value in (source.options or {}).get(REPLACED, ()))
    return [replacement for replacement in replaced if replacement.path[0] in ("target", "user")]


def _with_set(path: Path, source: RunRecord) -> str:
    options = [replacement.option for replacement in _of_target(path, source)]
    return f", with {listed(options)} as the run had it" if options else ""


def _validated_snapshot(store: Store, source: RunRecord) -> SuiteValidation:
    env = UncalledTarget(source.suite, SUITE_VARIABLES)
    loaded = read_snapshot(source.suite, source.suite_path, source.name, env)
    validation = validate_loaded(loaded, cases=CasesOnDisk(cases_of(store, source)))
    validation.require()
    return validation


def create_rescore(
    store: Store,
    rescorable: Rescorable,
    *,
    gate_only: bool = False,
    flow_run_id: str | None = None,
    takeovers: int = 0,
) -> CreatedRun:
    """Create the run that judges the outputs of an earlier one, claimed by this process.

    With `gate_only` its cases and checks are those of the earlier run, whose results are taken as they are. Raises
    UserError where the suite cannot judge these outputs.
    """
    source, validation = rescorable.source, rescorable.validation
    suite = validation.require()
    if suite.gate is not None and suite.gate.looks is not None:
        raise UserError(
            "gate.looks: pooled judges all runs of a version together, and outputs that are rescored would count "
            "twice: leave gate.looks out to rescore."
        )
    loaded, notes = suite_of_run(validation, RunOptions()), list[str]()
    wanted = loaded.snapshot
    if gate_only:
        snapshot = _with_judging(source.suite, wanted)
        loaded = read_snapshot(snapshot, source.suite_path, source.name, UncalledTarget(snapshot, SUITE_VARIABLES))
        changes = CaseChanges()
        cases: Iterable[TestCase] = cases_of(store, source)
        _require_known(store, source, suite, wanted)
        notes += _notes_of_unseen_cases(store, source, validation)
    else:
        snapshot = wanted
        changes, cases = _changes(store, source, validation, suite)
        notes += _notes_of_cases(source, changes)
        require_repeats(suite, source.repeats, f"the run that is rescored has {source.repeats}")
        if suite.repeats != source.repeats:
            had = f"Run {source.id[:8]} has {plural(source.repeats, 'repeat')} of each case, not {suite.repeats}"
            notes.append(f"{had} as the suite asks for.")
    notes += _notes_of_suite(store, source, wanted, changes)
    notes += _notes_of_source(store, source)
    asked = _asked_run(store, source)
    other_target = source.rescoring.get("target")
    if asked is not None:
        other_target = _other_target(asked, wanted) or _moved_target(asked, validation, suite)
    options = {name: value for name, value in (source.options or {}).items() if name in _KEPT}
    if validation.origin is not None and not gate_only:
        options["origin"] = validation.origin.data()
    if again := (source.options or {}).get("tried_again"):
        options["tried_again"] = again if gate_only else _tried_again(store, source, again, changes.places)
    options[RESCORING] = {
        "outputs_of": source.asked_in,
        "gate_only": gate_only,
        "unanswered": changes.unanswered,
        "target": other_target,
        "notes": notes,
    }
    run = RunRecord(
        id=uuid4().hex,
        name=run_name(str(snapshot["name"]), snapshot.get("variant")),
        suite=snapshot,
        suite_path=source.suite_path if gate_only else str(validation.path.resolve()),
        repeats=source.repeats,
        tags=list(dict.fromkeys([*(snapshot.get("tags") or ()), *tags_of(snapshot.get("variant"))])),
        flow_run_id=flow_run_id,
        suite_hash=_suite_hash(snapshot, source.repeats, loaded.folder),
        version=source.version,
        cause="rescore",
        options=options,
        rescored_from=source.id,
        target_hash=source.target_hash,
        takeovers_left=takeovers,
    )
    store.runs.create(run, cases, new_owner(), LEASE_SECONDS)
    return CreatedRun(store.runs.get(run.id), loaded)


_KEPT = (FILTERS, "suite_cases", "sample", "origin", REUSE_OUTPUTS, REPLACED)
"""Options of a run that also hold for a run that judges its outputs again."""


def _suite_hash(snapshot: dict[str, Any], repeats: int, folder: Path) -> str | None:
    try:
        return suite_hash(snapshot, repeats, folder)
    except OSError:  # a plugin that is gone; no check is computed
        return None


def _with_judging(then: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """Return the suite of an earlier run with the metrics and the gate of the present one."""
    kept = {name: section for name, section in then.items() if name not in JUDGING}
    return copy.deepcopy({**kept, **{name: now[name] for name in JUDGING if name in now}})


def _require_known(store: Store, source: RunRecord, suite: Suite, snapshot: Mapping[str, Any]) -> None:
    """Raise UserError if metrics or the gate need checks that the run has no results of."""
    require_repeats(suite, source.repeats, f"the run that is rescored has {source.repeats}")
    known = {counts.check_id for counts in store.results.check_totals(source.id)}
    wanted = {metric.check for metric in suite.metrics or () if metric.check is not None}
    if suite.metrics is None and suite.gate is not None:
        wanted = {*suite.gate.min, *suite.gate.max}
    if judged_checks(suite) is None:  # each check has to pass
        wanted |= declared_checks(snapshot).keys()
    if missing := sorted(wanted - known):
        raise UserError(
            f"--gate takes the results of run {source.id[:8]} as they are, and it has none of {listed(missing)}: leave "
            "--gate out, and the checks are computed."
        )


def _notes_of_unseen_cases(store: Store, source: RunRecord, validation: SuiteValidation) -> Iterator[str]:
    """Yield a sentence about new and edited cases of a suite of which only the gate is used."""
    new, edited, waiting = 0, 0, iter(validation.cases)
    while chunk := list(islice(waiting, CASES_AT_ONCE)):
        stored = store.runs.cases_by_id(source.id, (case.id for case in chunk))
        new += len(chunk) - len(stored)
        edited += sum(stored[case.id][1] != case for case in chunk if case.id in stored)
    in_part = _is_in_part(source)
    parts = [f"{count} {what}" for count, what in ((0 if in_part else new, "new"), (edited, "edited")) if count]
    if parts:
        kept = f"Those of run {source.id[:8]} are judged."
        yield f"Test cases of the suite that are not looked at: {listed(parts)}. {kept}"


def _is_in_part(source: RunRecord) -> bool:
    return source.part is not None or "sample" in (source.options or {})


def _changes(
    store: Store, source: RunRecord, validation: SuiteValidation, suite: Suite
) -> tuple[CaseChanges, Iterable[TestCase]]:
    """Compare the suite's cases with those of a run; return the cases of the new run, too, in its order.

    Of a run that had only a part of its suite's cases, that part alone is judged again.
    """
    changes, in_part = CaseChanges(), _is_in_part(source)
    asked = _Asked(validation, suite)
    shared = [list(declared_checks(snapshot)) for snapshot in (source.suite, validation.loaded.snapshot)]
    kept: set[str] = set()
    waiting = iter(validation.cases)
    while chunk := list(islice(waiting, CASES_AT_ONCE)):
        stored = store.runs.cases_by_id(source.id, (case.id for case in chunk))
        for case in chunk:
            if case.id not in stored:
                if not in_part:
                    changes.places[case.id] = len(changes.places)
                    changes.new.append(case.id)
                continue
            kept.add(case.id)
            changes.places[case.id] = len(changes.places)
            then = stored[case.id][1]
            if not asked.the_same(then, case):
                changes.changed.append(case.id)
            elif without_checks(then) != without_checks(case):
                changes.checked_again += 1
            if (then.checks or []) != (case.checks or []):
                changes.otherwise_checked.append(case.id)
            for ids, taken, version in zip(changes.own_checks, shared, (then, case), strict=True):
                ids.update(check_ids([to_check(check) for check in version.checks or ()], taken))
    if not kept:
        raise UserError(f"No test case of {validation.path} is one of run {source.id[:8]}: they are matched by id.")
    ids_then, failed = list(store.runs.ids_of_cases(source.id)), set(store.results.failed_case_indices(source.id))
    for place, case_id in enumerate(ids_then):
        if case_id not in kept:
            changes.removed.append(case_id)
            changes.removed_failed += place in failed
    if not in_part:
        return changes, validation.cases
    # A sample that may be topped up is in random order, by which its verdict goes.
    order = [case_id for case_id in ids_then if case_id in kept]
    changes.places = {case_id: place for place, case_id in enumerate(order)}
    by_id = {case.id: case for case in validation.cases if case.id in kept}
    return changes, [by_id[case_id] for case_id in order]


def without_checks(case: TestCase) -> str:
    """Return the content hash of all of a case that its checks may read."""
    return content_hash(case.model_dump(exclude={"checks", "turns"}))


class _Asked:
    """The requests of a suite's target. It is opened if a case has changed, and never called."""

    def __init__(self, validation: SuiteValidation, suite: Suite) -> None:
        self._validation, self._suite = validation, suite
        self._target: Target | None = None

    def the_same(self, then: TestCase, now: TestCase) -> bool:
        """Return whether the request is the same for both cases. For an erased case, it is not known."""
        if ERASED in (then.metadata or {}):
            return False
        if (then.input, then.is_conversation) != (now.input, now.is_conversation):
            return False
        if then.model_dump(exclude={"checks", "turns"}) == now.model_dump(exclude={"checks", "turns"}):
            return True
        return bool(self._request(then) == self._request(now))

    def _request(self, case: TestCase) -> Any:
        if self._target is None:
            self._target = _uncalled(self._validation, self._suite)
        try:
            return self._target.render(case)
        except FepflowError as error:
            return str(error)


def _uncalled(validation: SuiteValidation, suite: Suite) -> Target:
    return open_target(
        suite.target,
        folder=validation.loaded.folder,
        case_ids=lambda: [case.id for case in validation.cases],
        roots=settings().allowed_roots,
        secrets=validation.loaded.secrets,
        is_called=False,
    )


def _tried_again(
    store: Store, source: RunRecord, then: Iterable[tuple[int, int]], places: Mapping[str, int]
) -> list[tuple[int, int]]:
    """Return the outputs, by index in the new run and repeat, that were second tries in the earlier one."""
    ids = list(store.runs.ids_of_cases(source.id))
    return sorted((places[ids[index]], repeat) for index, repeat in then if ids[index] in places)


def _asked_run(store: Store, source: RunRecord) -> RunRecord | None:
    """Return the run in which the target was called; None if it was deleted."""
    if source.rescored_from is None:
        return source
    try:
        return store.runs.get(source.asked_in)
    except NotFoundError:
        return None


_LEFT_OUT = {
    "max_bytes",
    "env",
    "isolate",
    "reuse",
    "parallel",
    "step_timeout",
    "start_timeout",
    "stream",
    "poll_interval",
}
"""Fields of a target that change how a call is made, but neither its request nor its receiver."""


def _other_target(asked: RunRecord, snapshot: dict[str, Any]) -> str | None:
    """Return a sentence if the suite's target differs from the one that gave the outputs."""
    if asked.is_requested or any(kind in (asked.suite.get("target") or {}) for kind in FOREIGN):
        return None  # the outputs come from no suite's target
    then, now = _asked_of(asked.suite), _asked_of(snapshot)
    parts = sorted(name for name in {*then, *now} if then.get(name) != now.get(name))
    if not parts:
        return None
    return _no_verdict(asked, f"the suite has another one by now ({listed(parts)})")


def _moved_target(asked: RunRecord, validation: SuiteValidation, suite: Suite) -> str | None:
    """Return a sentence if the target differs only by the values of its variables.

    Variables that are not set are unknown, and so are the requests of a run with shards. Code is left out: its hash
    changes with every repair.
    """
    target = suite.target
    is_code = target.python is not None or (target.http is not None and target.http.app is not None)
    names = names_with_values(validation.loaded.snapshot.get("target"), SUITE_VARIABLES)
    if asked.target_hash is None or not names or is_code or target.recorded is not None:
        return None
    try:
        now = target_hash(_uncalled(validation, suite), target, validation.loaded.folder)
    except FepflowError:
        return None
    if now == asked.target_hash:
        return None
    return _no_verdict(asked, f"it is another one by now, by the values of {listed(sorted(names))}")


def _no_verdict(asked: RunRecord, how: str) -> str:
    return (
        f"The outputs are of the target as run {asked.id[:8]} had it, and {how}: this is no verdict of that one. "
        "Run the suite for one, or rescore by a suite with the target of the outputs."
    )


def _asked_of(suite: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a suite's requests and their receiver depend on, by names for people."""
    target = suite.get("target") or {}
    asked = {"target.version": target.get("version"), "user": suite.get("user")}
    for kind, section in target.items():
        if kind in KINDS:
            fields = section if isinstance(section, dict) else {"": section}
            asked |= {
                f"target.{kind}.{name}".rstrip("."): value for name, value in fields.items() if name not in _LEFT_OUT
            }
    return asked


def _notes_of_cases(source: RunRecord, changes: CaseChanges) -> Iterator[str]:
    if changes.changed:
        what = "with another question by now; outputs of before do not answer it, and count as missing"
        yield f"{plural(len(changes.changed), 'test case')} of run {source.id[:8]} {what}: {_named(changes.changed)}."
    if changes.new:
        yield f"{plural(len(changes.new), 'test case')} without an output, as new: {_named(changes.new)}."
    if changes.removed:
        failed = f" ({changes.removed_failed} of them had not passed)" if changes.removed_failed else ""
        what = f"of run {source.id[:8]} not in the suite any more{failed}"
        yield f"{plural(len(changes.removed), 'test case')} {what}: {_named(changes.removed)}."
    if changes.checked_again:
        what = "with the same question, and other data to check by"
        yield f"{plural(changes.checked_again, 'test case')} {what}: all of their checks are computed."
    if changes.otherwise_checked:
        cases = changes.otherwise_checked
        yield f"{plural(len(cases), 'test case')} with other checks of their own than before: {_named(cases)}."


def _notes_of_suite(store: Store, source: RunRecord, snapshot: dict[str, Any], changes: CaseChanges) -> Iterator[str]:
    """Yield sentences about checks and rules that have changed since the earlier run."""
    then, now = declared_checks(source.suite), declared_checks(snapshot)
    totals = {counts.check_id: counts for counts in store.results.check_totals(source.id)}
    own_then, own_now = changes.own_checks
    gone = [
        f"{check_id} ({failed} had failed)" if (failed := totals[check_id].failed) else check_id
        for check_id in [*then, *sorted(own_then - then.keys())]
        if check_id not in now and check_id not in own_now and check_id in totals
    ]
    if gone:
        yield f"Checks of run {source.id[:8]} that the suite has no more: {_named(gone)}."
    if changed := [check_id for check_id in now if check_id in then and then[check_id] != now[check_id]]:
        yield f"Checks that have changed since: {listed(changed)}."
    if new := [check_id for check_id in now if check_id not in then]:
        yield f"New checks: {listed(new)}."
    rules = [name for name in JUDGING if name != "baseline" and source.suite.get(name) != snapshot.get(name)]
    if rules:
        yield f"Changed since, too: {listed(rules)}."


def declared_checks(suite: Mapping[str, Any]) -> dict[str, Any]:
    """Return the checks that all cases of a suite share, by id, completed by its sections `judge` and `embedding`."""
    return declared(suite, [Check.model_validate(check) for check in suite.get("checks") or ()])


def declared(suite: Mapping[str, Any], checks: Sequence[Check], taken: Sequence[str] = ()) -> dict[str, Any]:
    """Return checks by id, completed by the suite's sections `judge` and `embedding`; `taken` are other ids."""
    judge, embedding = suite.get("judge"), suite.get("embedding")
    defaults = CheckDefaults(
        JudgeDefaults.model_validate(judge) if judge else None,
        ModelDefaults.model_validate(embedding) if embedding else None,
    )
    return {
        check_id: to_check(check).model_copy(update={"id": None}).model_dump(mode="json")
        for check_id, check in zip(check_ids(checks, taken), defaults.complete(checks), strict=True)
    }


def _notes_of_source(store: Store, source: RunRecord) -> Iterator[str]:
    seen = store.results.progress(source.id)
    if seen.outputs < source.calls:
        yield (
            f"Run {source.id[:8]} has {seen.outputs} of {source.calls} outputs, as it is {source.status}: the others "
            "are missing."
        )
