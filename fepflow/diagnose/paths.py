"""The suite's JSONPaths, against what they can find: the context's shape, the test cases, the recorded outputs.

Only the beginning of a path is judged, up to its first wildcard, filter or function: the rest depends on values.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from fepflow.calls.base import RESERVED_METADATA
from fepflow.calls.base import Target as OpenTarget
from fepflow.calls.recorded import RecordedTarget
from fepflow.checks.validation.paths import PathUse, paths_of, texts_in
from fepflow.diagnose.cases import dataset_of
from fepflow.diagnose.suite_validation import SuiteValidation
from fepflow.documents.did_you_mean import did_you_mean
from fepflow.documents.validation_errors import kind_name
from fepflow.errors import DocumentPath, ValidationMessage, dotted
from fepflow.jsonpath.context_paths import context_problem, meant_path
from fepflow.jsonpath.path import Key, SingularPath, compile_path, descend, is_path, leading_keys
from fepflow.protocol.check import to_check
from fepflow.protocol.context import evaluation_context
from fepflow.protocol.test_case import Output
from fepflow.protocol.tool_calls import made_no_calls
from fepflow.suite.target import Target

_NOTHING = Output(value=None)

_MOST_TRIED = 1_000
"""Values of a path that are offered to the check that reads it: enough to see a column of the wrong kind."""


@dataclass
class _Use:
    """A path, where it stands, and how many of the values that it was looked up in have nothing there."""

    location: DocumentPath
    expression: str
    keys: tuple[Key, ...]
    optional: bool = False
    seen: int = 0
    lacking: int = 0
    first: str = ""
    file: str | None = None
    line: int | None = None
    names: list[str] = field(default_factory=list)
    taker: PathUse | None = None
    tried: int = 0
    misfits: int = 0
    first_misfit: tuple[str, str, ValidationMessage] | None = None

    def look(self, value: Any, name: str) -> None:
        """Look into the value of that name."""
        self.seen += 1
        reached, parent = descend(value, self.keys)
        if reached == len(self.keys):
            self._try(parent, name)
            return
        if self.taker is not None and made_no_calls(compile_path(self.expression), value):
            return
        self.lacking += 1
        self.first = self.first or name
        if isinstance(parent, dict) and not self.names:
            self.names = [dotted((*self.keys[:reached], key)) for key in parent if isinstance(key, str)]

    def _try(self, found: Any, name: str) -> None:
        """See whether the check takes what the path finds."""
        if self.taker is None or self.tried >= _MOST_TRIED:
            return
        self.tried += 1
        misfit = self.taker.misfit(found)
        if misfit is not None:
            self.misfits += 1
            self.first_misfit = self.first_misfit or (name, kind_name(found), misfit)

    @property
    def advice(self) -> str | None:
        """Which path was meant, if there is one that is alike."""
        advice = did_you_mean(dotted(self.keys), self.names) if self.names else ""
        return advice.replace("did you mean ", "did you mean $.") if advice.startswith("did you mean") else None


def validate_paths(found: SuiteValidation, opened: OpenTarget | None) -> None:
    """Find paths that can find nothing, in checks and requests; `opened` is the target, if it opens."""
    uses = [
        _use_of(use, ("checks", index, "arguments", *use.location))
        for index, check in enumerate(found.loaded.section("checks") or ())
        if check is not None
        for use in paths_of(check)
    ]
    uses += [
        _Use(("metrics", index, "value"), metric.value, leading_keys(metric.value))
        for index, metric in enumerate(found.loaded.section("metrics") or ())
        if metric is not None and metric.check is None and metric.value is not None
    ]
    target: Target | None = found.loaded.section("target")
    body = list(_of_request(found, target)) if target is not None else []
    uses = [use for use in uses if not _is_misshaped(found, use)]
    uses = [use for use in uses if not _is_unknown_metadata(found, target, use)]
    _look_into_cases(found, [use for use in (*uses, *body) if use.keys[:1] == ("test_case",)])
    _look_into_own_checks(found, target)
    if isinstance(opened, RecordedTarget):
        _look_into_outputs(found, opened, [use for use in uses if use.keys[:1] == ("output",)])


def _use_of(use: PathUse, location: DocumentPath) -> _Use:
    is_known = use.arguments is not None and isinstance(compile_path(use.expression), SingularPath)
    taker = use if is_known else None
    return _Use(location, use.expression, leading_keys(use.expression), use.optional, taker=taker)


def _request(target: Target) -> tuple[DocumentPath, Any] | None:
    """What is rendered for each call, and where it stands; None if nothing is."""
    if target.http is not None:
        return None if target.http.method == "GET" else (("target", "http", "body"), target.http.body)
    if target.python is None:
        return None
    if target.python.arguments is not None:
        return ("target", "python", "arguments"), target.python.arguments
    return ("target", "python", "input"), target.python.input


def _of_request(found: SuiteValidation, target: Target) -> Iterator[_Use]:
    request = _request(target)
    if request is None:
        return
    texts = list(texts_in(request[1], request[0]))
    for location, text in texts:
        keys = leading_keys(text) if is_path(text) else ()
        if keys[:1] == ("output",):
            message = f"{text}: a request has no output yet, only $.test_case"
            found.error(location, message, "did you mean $.test_case.input?")
        elif keys:
            use = _Use(location, text, keys)
            if not _is_misshaped(found, use) and keys[1:] != ("expected",):
                yield use
        elif "{{$." in text or "{{ $." in text:
            message = "placeholders in braces are for prompts of judges; here they stay as they are"
            found.error(location, message, "a text that is a path as a whole, such as $.test_case.input, is replaced")
        elif path := meant_path(text):
            found.warn(location, f"{text} is a text, and not a path, which starts with $.", f"did you mean {path}?")
    if not any(is_path(text) for _, text in texts):
        found.warn(request[0], "the request is the same for all test cases", "$.test_case.input is the input")


def _say(found: SuiteValidation, use: _Use, message: str, advice: str | None = None, *, is_error: bool = True) -> None:
    problem = found.loaded.document.problem(use.location, message, advice)
    if use.file is not None:
        problem = replace(problem, file=use.file, line=use.line)
    found.problems.append(problem if is_error else replace(problem, severity="warning"))


def _is_misshaped(found: SuiteValidation, use: _Use) -> bool:
    wrong = context_problem(use.keys)
    if wrong is not None:
        _say(found, use, *wrong, is_error=not use.optional)
    return wrong is not None


def _is_unknown_metadata(found: SuiteValidation, target: Target | None, use: _Use) -> bool:
    """What an endpoint's answers keep is what the suite maps, and what fepflow says of the call."""
    if target is None or target.http is None or use.keys[:2] != ("output", "metadata") or len(use.keys) < 3:
        return False
    known = [*target.http.metadata, *RESERVED_METADATA]
    if use.keys[2] in known or use.optional:
        return False
    message = f"{use.expression} finds nothing: an output's metadata has {', '.join(known)}"
    advice = did_you_mean(str(use.keys[2]), known)
    mapped = f"map it: target.http.metadata: {{{use.keys[2]}: $.…}}"
    _say(found, use, message, advice if advice.startswith("did you mean") else mapped)
    return True


def _look_into_cases(found: SuiteValidation, uses: list[_Use]) -> None:
    uses = [
        use for use in uses if not use.optional and (use.taker or len(use.keys) > 2 or use.keys[1:] == ("expected",))
    ]
    if not uses or not found.cases:
        return
    for case in found.cases:
        context = evaluation_context(case, _NOTHING)
        for use in uses:
            use.look(context, case.id)
    for use in uses:
        _tell(found, use, f"none of the {use.seen:,} test cases has {use.expression}")
        _tell_misfits(found, use, "test cases")


def _case_location(found: SuiteValidation, case_id: str) -> DocumentPath:
    """Where a case that carries checks stands in the suite; its id if it is in a file."""
    cases = found.loaded.section("test_cases")
    if not isinstance(cases, list):
        return (case_id,)
    return ("test_cases", next(index for index, case in enumerate(cases) if case.id == case_id))


def _tell(found: SuiteValidation, use: _Use, none_has: str) -> None:
    if use.lacking == use.seen:
        none_has = none_has if use.seen > 1 else f"the test case {use.first} has no {use.expression}"
        _say(found, use, none_has, use.advice or _there_is(use))
    elif use.lacking:
        message = f"{use.lacking:,} of {use.seen:,} test cases have no {use.expression}; the first is {use.first}"
        what = "check" if use.location[0] != "target" else "call"
        _say(found, use, message, f"it is an error of the {what} there", is_error=False)


def _tell_misfits(found: SuiteValidation, use: _Use, what: str) -> None:
    """Tell that a check does not take what its path finds: an error if it never does."""
    if use.first_misfit is None:
        return
    name, kind, misfit = use.first_misfit
    wanted = misfit.message.partition(", not ")[0]
    place = f"{dotted(misfit.path)} " if len(misfit.path) > 1 else ""
    message = f"{place}{wanted}, but {use.expression} is {kind} in {name}"
    if use.misfits > 1:
        message = f"{message}; {use.misfits:,} {what} do not fit"
    inside = {"a list": "[0]", "an object": ".answer"}.get(kind) if "text" in wanted else None
    advice = f"name a text inside of it, as in {use.expression}{inside}, or compare with equals or subset"
    _say(found, use, message, advice if inside else misfit.advice, is_error=use.misfits == use.tried)


def _there_is(use: _Use) -> str | None:
    return f"there is {', '.join(f'$.{name}' for name in use.names[:10])}" if use.names else None


def _look_into_own_checks(found: SuiteValidation, target: Target | None) -> None:
    """Paths of checks that cases carry: each check type's path is judged by the cases that carry it."""
    uses: dict[tuple[str, DocumentPath, str], _Use] = {}
    dataset = dataset_of(found.loaded)
    file = None if dataset is None else str(found.path.parent / dataset.path)
    for case, line in found.cases.with_checks_and_lines():
        context = evaluation_context(case, _NOTHING)
        for index, check in enumerate(map(to_check, case.checks or ())):
            for use in paths_of(check):
                key = (check.type, use.location, use.expression)
                if key not in uses:
                    location = (*_case_location(found, case.id), "checks", index, "arguments", *use.location)
                    uses[key] = replace(_use_of(use, location), file=file, line=line)
                if uses[key].keys[:1] == ("test_case",):
                    uses[key].look(context, case.id)
    for known in uses.values():
        if not _is_misshaped(found, known) and not _is_unknown_metadata(found, target, known) and known.lacking:
            _tell(found, known, f"none of the {known.seen:,} test cases with this check has {known.expression}")
        _tell_misfits(found, known, "test cases")


def _look_into_outputs(found: SuiteValidation, opened: RecordedTarget, uses: list[_Use]) -> None:
    reserved = [(name,) for name in RESERVED_METADATA]
    uses = [use for use in uses if not use.optional and (use.taker or len(use.keys) > 2)]
    uses = [use for use in uses if not (use.keys[1:2] == ("metadata",) and use.keys[2:3] in reserved)]
    for case_id, output in opened.recorded() if uses else ():
        for use in uses:
            use.look({"output": output}, case_id)
    for use in uses:
        if use.seen and use.lacking == use.seen:
            message = f"{use.expression} finds nothing in any of the {use.seen:,} recorded outputs"
            _say(found, use, message, use.advice or _there_is(use) or "look into the file")
        _tell_misfits(found, use, "recorded outputs")
