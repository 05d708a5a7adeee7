"""The validation of a suite without a call: its cases, checks, gate, and all errors."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fepflow.calls.base import Target
from fepflow.calls.conversations import ConversationTarget
from fepflow.calls.factory import open_target
from fepflow.calls.models import _litellm
from fepflow.calls.traces import require_traces
from fepflow.checks.core.declarations import UserModels, paths_of
from fepflow.checks.registry import JUDGES
from fepflow.diagnose.checks import checks_by_id, validate_checks
from fepflow.diagnose.metrics import validate_metrics, validate_thresholds
from fepflow.diagnose.paths import validate_paths
from fepflow.diagnose.suite_validation import SuiteValidation, load_plugins, validate_cases
from fepflow.documents.loader import Document
from fepflow.errors import CheckArgumentsError, DocumentPath, FepflowError, InputError, MissingExtraError, Problem
from fepflow.extras import is_installed, require
from fepflow.protocol.test_case import SimulatedUser, TestCase
from fepflow.settings import ENV_FILE, SUITE_VARIABLES, current_file, read_env_file, settings
from fepflow.suite.env_vars import CANNOT_LOOK_UP
from fepflow.suite.manifest import SuiteDocument
from fepflow.suite.models import Gate
from fepflow.suite.reader import SPELLED_OUT, LoadedSuite, load_suite
from fepflow.suite.target import ProgramOrAddress, call_problem
from fepflow.suite.test_cases import CasesOnDisk
from fepflow.suite.values import PREVIOUS, is_baseline_name
from fepflow.suite.variants import Replacement, at_their_option, label_of

if TYPE_CHECKING:
    from fepflow.checks.models.judge_spec import JudgeSpec


def validate_suite(
    path: Path,
    env: Mapping[str, str] = SUITE_VARIABLES,
    limit: float | None = None,
    version: str | None = None,
    replacements: Sequence[Replacement] = (),
) -> SuiteValidation:
    """Read a suite and all files that it names, and collect every error. No call is made.

    `limit`, `version` and `replacements` are those of a run: see `SuiteValidation` for the first two. Raises InputError
    only if the file itself is no document, or has no place for a replacement.
    """
    return validate_loaded(load_suite(path, env, replacements), limit, version, replacements=replacements)


def validate_loaded(
    loaded: LoadedSuite,
    limit: float | None = None,
    version: str | None = None,
    cases: CasesOnDisk | None = None,
    replacements: Sequence[Replacement] = (),
) -> SuiteValidation:
    """Validate a suite as `validate_suite` does; `cases` are its cases, if the suite itself has none."""
    validation = SuiteValidation(loaded, problems=list(loaded.problems), limit=limit, version=version)
    if cases is None:
        validate_cases(validation)
    else:
        validation.cases = cases
    validation.problems += load_plugins(loaded)
    validate_checks(validation)
    validate_thresholds(validation)
    validate_metrics(validation, checks_by_id(validation))
    _validate_correction(validation)
    _validate_single_judge(validation)
    shared = [problem for problem in validation.problems if problem not in loaded.problems]
    _validate_with_target(validation)
    _validate_variants(validation, shared)
    for remark in validation.dependence.remarks():
        if remark.advice is not None:  # of cases without a cluster, their path is told
            validation.warn(("test_cases",), remark.message, remark.advice)
    files: dict[Path, dict[str, str]] = {}
    validation.problems = [_with_env_file(problem, loaded.folder, files) for problem in validation.problems]
    validation.problems = [
        replace(problem, severity="warning") if CANNOT_LOOK_UP in problem.message else problem
        for problem in validation.problems
    ]
    validation.unreachable += (problem for problem in validation.problems if CANNOT_LOOK_UP in problem.message)
    validation.problems.sort(
        key=lambda problem: (problem.file != loaded.document.file, problem.file or "", problem.line or 0)
    )
    validation.problems = list(at_their_option(validation.problems, replacements))
    for of_variant in validation.variants:  # each has what all have: a suite is run with all of its variants, or not
        of_variant.problems = validation.problems
        of_variant.__dict__["dependence"] = validation.dependence  # of the cases, which takes a while to compute
    return validation


def _validate_with_target(validation: SuiteValidation) -> None:
    """Validate the target, and everything that depends on it."""
    opened = _validate_target(validation)
    validate_conversations(validation, opened)
    validate_paths(validation, opened.target if isinstance(opened, ConversationTarget) else opened)
    _validate_baselines(validation)
    _validate_model_of_judge(validation)


def _validate_variants(validation: SuiteValidation, shared: Sequence[Problem]) -> None:
    """Add the problems of the other variants. The problems of cases and checks are `shared` by all.

    A problem that only some variants have names the first of them.
    """
    first, *others = validation.loaded.variants or (None,)
    if first is None:
        return
    validation.variants = [replace(validation, loaded=replace(first, variants=()))]
    for loaded in others:
        of_variant = replace(validation, loaded=loaded, problems=[*shared, *loaded.problems], variants=[])
        _validate_with_target(of_variant)
        validation.variants.append(of_variant)
    labels: dict[Problem, list[str]] = {}
    for of_variant in validation.variants:
        for problem in dict.fromkeys(of_variant.problems):
            labels.setdefault(problem, []).append(label_of(of_variant.loaded.section("variant")))
    count, paths = len(validation.variants), {problem.path for problem in shared}
    validation.problems = [
        replace(problem, message=f"{problem.message} (variant {having[0]})")
        if len(having) < count and problem.path not in paths and (problem.path or "").startswith(_OF_VARIANT)
        else problem
        for problem, having in labels.items()
    ]


_OF_VARIANT = ("target", "test_cases", "baseline", "gate.regression")
"""Places of problems that depend on the target."""


def _validate_target(validation: SuiteValidation) -> Target | None:
    """Open the target, without a call, for errors that only it knows: headers, recorded outputs.

    Returns None if it does not open.
    """
    loaded, target = validation.loaded, validation.target
    if target is None:
        return None
    if target.given is not None:
        message = "outputs are given with a request over the network"
        validation.error(("target", "given"), message, "name a file: recorded")
        return None
    if target.recorded is not None:
        location = ("target", "recorded", "path")
        if validation.file(target.recorded.path, location) is None or not validation.cases:
            return None
        if validation.origin is not None and target.recorded.id is None:
            message = "records are matched with test cases by order, which a run does not fetch again"
            validation.error(location, message, "name the test case's id in a record: target.recorded.id")
            return None
    if target.ecp is not None:
        from fepflow.calls.ecp.protocol import scenario_problem  # only for suites that have such a target

        _validate_process(validation, target.ecp)
        _validate_inputs(validation, scenario_problem, "write a step as text, or as {input: text}")
    if target.mcp is not None:
        _validate_process(validation, target.mcp)
        _validate_inputs(validation, call_problem, "write input: {tool: NAME, arguments: {...}}")
    if target.openai is not None:
        from fepflow.calls.openai import model_problem  # loads what asks models

        if (problem := model_problem(target.openai)) is not None:
            validation.error(("target", "openai", "model"), problem)
    if target.trace is not None:
        try:
            require_traces()
        except MissingExtraError as error:
            validation.error(("target", "trace"), str(error))
    try:
        return open_target(
            target,
            folder=loaded.folder,
            case_ids=lambda: [case.id for case in validation.cases],
            roots=settings().allowed_roots,
            is_called=False,
        )
    except InputError as error:
        validation.problems += [_placed(loaded.document, problem) for problem in error.problems]
    return None


def _validate_inputs(validation: SuiteValidation, problem_of: Callable[[Any], str | None], advice: str) -> None:
    """Report inputs with which the target cannot be called. Conversations have none."""
    dataset = validation.dataset
    wrong = (
        (index, case, line, problem)
        for index, (case, line) in enumerate(validation.cases.with_lines())
        if not case.is_conversation and (problem := problem_of(case.input)) is not None
    )
    for index, case, line, problem in islice(wrong, SPELLED_OUT):
        if dataset is None:
            validation.error(("test_cases", index, "input"), problem, advice)
        else:
            file = validation.beside(dataset.path)
            validation.problems.append(Problem(problem, file, line, f"{case.id}.input", advice))


def _validate_process(validation: SuiteValidation, config: ProgramOrAddress) -> None:
    """Report errors of the command and its environment."""
    from fepflow.calls.processes import find_command

    document = validation.loaded.document
    if config.command is not None:
        try:
            find_command(config, validation.loaded.folder)
        except InputError as error:
            is_manifest = isinstance(document, SuiteDocument)  # ECP has it as an error of each step
            placed = (_placed(document, problem) for problem in error.problems)
            validation.problems += (replace(problem, is_confined=is_manifest) for problem in placed)
    for index, name in enumerate(config.env):
        if name not in SUITE_VARIABLES:
            message = f"{name} is not set in the environment, so the {config.CALLED} does not get it"
            validation.warn(("target", config.KIND, "env", index), message, f"export {name}")


def _placed(document: Document, problem: Problem) -> Problem:
    if problem.file is not None or problem.path is None:
        return problem
    placed = document.problem(tuple(problem.path.split(".")), problem.message, problem.advice)
    return replace(placed, severity=problem.severity)


def _validate_baselines(validation: SuiteValidation) -> None:
    """Warn of a baseline that is not in the store; the run does not need it."""
    gate = validation.gate
    baselines: list[tuple[DocumentPath, str | None]] = [(("baseline",), validation.loaded.section("baseline"))]
    if gate is not None and gate.regression is not None:
        baselines.append((("gate", "regression"), gate.regression.baseline))
    suite = validation.run_name
    for location, name in baselines:
        if name is None or name == PREVIOUS:
            continue
        try:
            require("run", f"looking for the baseline {name}")
            from fepflow.analysis.comparison import base_of_baseline, baseline_of, with_outcome
            from fepflow.store.store import Store  # a suite without a baseline needs no database

            with Store.open(settings().store_address) as store:
                if not is_baseline_name(name):
                    with_outcome(store, name)
                elif (baseline := baseline_of(store, suite, name)) is not None:
                    base_of_baseline(store, baseline)
                else:
                    advice = f"`fepflow baseline set {name} RUN` makes a run of it the baseline, once there is one"
                    validation.warn(location, f"there is no baseline {name} of the suite {suite} yet", advice)
        except FepflowError as error:
            validation.warn(location, str(error))


def _validate_correction(validation: SuiteValidation) -> None:
    """Find `gate: {judge: corrected}` without a judge, and warn of a judge that is not calibrated."""
    gate = validation.gate
    if gate is None or gate.judge != "corrected" or validation.errors:
        return
    from fepflow.checks.models.judge_spec import judges_of_suite  # a suite without it needs no judges and no database

    location, judges = ("gate", "judge"), judges_of_suite(validation.loaded)
    if not judges:
        validation.error(location, "the suite has no judge to correct", "remove it")
        return
    try:
        require("run", "looking for calibrations of judges")
        from fepflow.analysis.judge_reliability import FIELD

        fields = _calibrated_fields(judges)
    except FepflowError as error:
        validation.warn(location, str(error))
        return
    for judge in judges:
        if FIELD not in fields[judge.check_id]:
            message = f"the errors of {judge.check_id} are not known, so its passes show nothing"
            validation.warn(location, message, "fepflow calibrate compares it with people's labels")


def _validate_single_judge(validation: SuiteValidation) -> None:
    """Warn of a gate that depends on one call of one model whose errors are unknown."""
    gate = validation.gate or Gate()
    places = [index for index, check in validation.checks if check.type in JUDGES]
    suite = validation.loaded.suite
    if suite is None or validation.errors or gate.judge == "corrected" or not places or not is_installed("run"):
        return
    if isinstance(validation.loaded.document, SuiteDocument):
        return  # a manifest has no place for the number of samples
    from fepflow.analysis.metrics import judged_checks
    from fepflow.checks.models.judge_spec import judges_of_suite

    judged = judged_checks(suite)
    single = [
        (index, judge)
        for index, judge in zip(places, judges_of_suite(validation.loaded), strict=True)
        if judge.samples == 1 and not judge.is_jury and (judged is None or judge.check_id in judged)
    ]
    fields: dict[str, set[str]] = {}
    if settings().store_url or (settings().home / "fepflow.db").exists():  # a store is not created for this
        try:
            fields = _calibrated_fields([judge for _, judge in single])
        except FepflowError:
            return  # it is not known, so there is no warning
    if unknown := [(index, judge) for index, judge in single if not fields.get(judge.check_id)]:
        names = ", ".join(f"{judge.check_id} ({judge.model})" for _, judge in unknown)
        message = f"the gate rests on one call of one model that was never compared with people: {names}"
        advice = "label some outputs and run fepflow calibrate, or ask more than once with samples or judges"
        validation.warn(("checks", unknown[0][0]), message, advice)


def _calibrated_fields(judges: Sequence[JudgeSpec]) -> dict[str, set[str]]:
    """Return the fields for which each judge was calibrated, by the id of its check."""
    from fepflow.store.store import Store

    with Store.open(settings().store_address) as store:
        return {
            judge.check_id: {
                calibration.field for calibration in store.labels.calibrations_of(judge.judge, judge.rubric)
            }
            for judge in judges
        }


def _validate_model_of_judge(validation: SuiteValidation) -> None:
    """Warn of a judge that is the model in the target's requests."""
    target, model = validation.target, None
    if target is not None and target.openai is not None:
        model = target.openai.model
    elif target is not None and target.http is not None and isinstance(target.http.body, dict):
        model = target.http.body.get("model")
    places = [index for index, check in validation.checks if check.type in JUDGES]
    if not isinstance(model, str) or not places:
        return
    from fepflow.checks.models.judge_spec import judges_of_suite  # loads what asks models

    for index, judge in zip(places, judges_of_suite(validation.loaded), strict=True):
        if warning := judge.favours(model):
            message, _, advice = warning.partition(": let ")
            validation.warn(("checks", index), message, f"let {advice}")


_NOT_SET = re.compile(r"(?:\$\{|needs )?\b([A-Za-z_]\w*+)(\}| and \w++,|,)?(?: is)? not set in the environment")
_ADVICE = re.compile(r" \(export [^()]*\)$")


def _with_env_file(problem: Problem, folder: Path, files: dict[Path, dict[str, str]]) -> Problem:
    """Return the problem; for an unset variable, its advice names a `.env` that has it."""
    missing = _NOT_SET.search(problem.message)
    if missing is None:
        return problem
    name, used = missing[1], current_file()
    for path in (used.path.absolute(), folder / ENV_FILE, Path.cwd() / ENV_FILE):
        if path not in files:
            files[path] = {}
            with suppress(InputError):  # the file is no part of the suite
                files[path] = read_env_file(path) if path.is_file() else {}
        if name not in files[path]:
            continue
        shown = os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)
        if path == used.path.absolute():
            key = "api_key" if problem.path and problem.path.startswith("target") else "provider_config: {api_key"
            written = f"{key}: ${{{name}}}{'}' if '{' in key else ''}"
            advice = f"it is in {shown}, which only fills in ${{NAME}} of the suite: write {written}, "
            advice += f"use --env-file {shown}, or export {name}"
        else:
            only = "the file that --env-file names" if used.is_named else "the one of the working directory"
            advice = f"it is in {shown}, which is not read, only {only} is: use --env-file {shown}, or export {name}"
        return replace(problem, message=_ADVICE.sub("", problem.message), advice=advice)
    return problem


_CONVERSATION = {"steps": list[Any](), "messages": list[Any]()}


def validate_conversations(validation: SuiteValidation, opened: Target | None) -> None:
    """Find what is wrong with conversations; `opened` is the target, if it opens."""
    if not validation.cases.has_conversations:
        return
    first = next(_conversations(validation))
    if isinstance(opened, ConversationTarget) and (problem := opened.problem):
        validation.error(("test_cases",), f"{first.id} is a conversation: {problem}")
    if validation.target is not None and validation.target.ecp is not None:
        turns = ((case, turn) for case in _conversations(validation) for turn in case.turns or ())
        wrong = (case for case, turn in turns if not isinstance(turn.input, str))
        for case in islice(wrong, SPELLED_OUT):
            location = validation.place_of(case.id) or ("test_cases",)
            validation.error(location, f"{case.id}: the input of a turn must be a text for an ECP agent")
    _validate_users(validation)
    for index, check in validation.checks:
        for use in paths_of(check) if check.turn is None else ():
            if use.arguments is not None and use.expression == "$.output.value" and use.misfit(_CONVERSATION):
                message = f"of a conversation such as {first.id}, {use.expression} is an object with steps and messages"
                advice = "name an answer: $.output.value.messages[-1].content is the last; or give the check a turn"
                validation.warn(("checks", index, "arguments", *use.location), message, advice)


def _validate_users(validation: SuiteValidation) -> None:
    """Find what is wrong with the models that play users, and warn of a suite that runs each conversation once."""
    loaded = validation.loaded
    if next(_users(validation), None) is None:
        return
    section, gate = loaded.section("user"), validation.gate
    if section is None and "user" not in loaded.snapshot:
        message = "there are simulated users, and the suite does not say which model plays them"
        validation.error(("test_cases",), message, "add user: {model_config: {model: openai/gpt-5-mini}}")
    elif section is not None:
        models = UserModels(section, settings().allowed_models, from_data=validation.dataset is not None)
        seen: set[str | None] = set()
        problems: set[str] = set()
        for case in _users(validation):
            if case.user is not None and case.user.model not in seen:
                seen.add(case.user.model)
                problem = _model_problem(models, case.user)
                if problem is not None and problem not in problems:
                    problems.add(problem)
                    location = ("user",) if case.user.model is None else validation.place_of(case.id) or ("test_cases",)
                    validation.error(location, problem)
    max_repeats = gate.top_up.max_repeats if gate is not None and gate.top_up is not None else None
    if loaded.section("repeats") == 1 and max_repeats is None:
        message = "a simulated user says something else each time, so one conversation of a case shows little"
        validation.warn(("repeats",), message, "set repeats: 5, or gate: {top_up: {max_repeats: 10}}")


def _model_problem(models: UserModels, user: SimulatedUser) -> str | None:
    try:
        return _litellm.problem(models.model_of(user))
    except CheckArgumentsError as error:
        return str(error)


def _users(validation: SuiteValidation) -> Iterator[TestCase]:
    return (case for case in validation.cases if case.user is not None)


def _conversations(validation: SuiteValidation) -> Iterator[TestCase]:
    return (case for case in validation.cases if case.is_conversation)
