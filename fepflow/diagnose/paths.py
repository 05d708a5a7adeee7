"""Validation of a suite's JSONPaths by what they can find: the context's shape, the test cases, the recorded outputs.

Only the beginning of a path is judged, up to its first wildcard, filter or function: the rest depends on values.
Texts that look like paths, and placeholders that are never filled in, are reported, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from fepflow.calls.base import RESERVED_METADATA
from fepflow.calls.base import Target as OpenTarget
from fepflow.calls.recorded import RecordedTarget
from fepflow.checks.base import BaseCheck
from fepflow.checks.core.declarations import PathUse, arguments_of, class_of, paths_of
from fepflow.checks.registry import is_ours
from fepflow.datasets.records import TRACES
from fepflow.diagnose.suite_validation import SuiteValidation
from fepflow.documents.messages import did_you_mean, kind_name
from fepflow.errors import DocumentPath, ValidationMessage, dotted
from fepflow.json.values import texts_in
from fepflow.jsonpath.path import (
    Key,
    SingularPath,
    TextTemplate,
    compile_path,
    context_problem,
    descend,
    has_placeholders,
    is_path,
    is_word_of_context,
    leading_keys,
    meant_path,
)
from fepflow.protocol.check import Check, to_check
from fepflow.protocol.test_case import Output, evaluation_context
from fepflow.protocol.tool_calls import made_no_calls
from fepflow.suite.target import MODEL_METADATA, Target
from fepflow.traces.conventions import PARTS

BRACES_STAY = "placeholders in braces are for prompts of judges; here they stay as they are"
"""The remark on a text with placeholders that are never filled in."""

_OF_CONVERSATIONS = ("steps", "completed", "tool_calls", "usage", "tokens", "usd", "user")
_OF_TURN = ("input", "messages", "number")
_NO_OUTPUT = Output(value=None)
_MOST_TRIED = 1_000
"""Values of a path that are offered to the check that reads it: enough to see a column of the wrong kind."""


@dataclass
class _Use:
    """A path with its place, and the number of values in which it finds nothing.

    `file` and `line` are set for a path in a file of test cases. `reader` is the check's use of the path, if the check
    takes the found value unchanged; `misfits` counts values that the check cannot take.
    """

    location: DocumentPath
    expression: str
    keys: tuple[Key, ...]
    optional: bool = False
    file: str | None = None
    line: int | None = None
    reader: PathUse | None = None
    seen: int = 0
    lacking: int = 0
    first_lacking: str = ""
    names: list[str] = field(default_factory=list)
    tried: int = 0
    misfits: int = 0
    first_misfit: tuple[str, str, ValidationMessage] | None = None

    @classmethod
    def of_check(cls, use: PathUse, location: DocumentPath, file: str | None = None, line: int | None = None) -> _Use:
        """Return a path of a check that stands at `location`."""
        takes_whole = use.arguments is not None and isinstance(compile_path(use.expression), SingularPath)
        keys, reader = leading_keys(use.expression), use if takes_whole else None
        return cls((*location, *use.location), use.expression, keys, use.optional, file, line, reader)

    @property
    def can_be_judged(self) -> bool:
        """True if values tell more than the context's shape."""
        return self.reader is not None or len(self.keys) > 2

    def look(self, value: Any, name: str) -> None:
        """Look the path up in the value of a test case or output with this name."""
        self.seen += 1
        reached, parent = descend(value, self.keys)
        if reached == len(self.keys):
            self._try(parent, name)
            return
        if self.reader is not None and made_no_calls(compile_path(self.expression), value):
            return
        self.lacking += 1
        self.first_lacking = self.first_lacking or name
        if isinstance(parent, dict) and not self.names:
            self.names = [dotted((*self.keys[:reached], key)) for key in parent if isinstance(key, str)]

    def _try(self, value: Any, name: str) -> None:
        if self.reader is None or self.tried >= _MOST_TRIED:
            return
        self.tried += 1
        misfit = self.reader.misfit(value)
        if misfit is not None:
            self.misfits += 1
            self.first_misfit = self.first_misfit or (name, kind_name(value), misfit)

    @property
    def advice(self) -> str | None:
        """The path that was probably meant, or the paths that exist in its place."""
        if not self.names:
            return None
        advice = did_you_mean(dotted(self.keys), self.names)
        if advice.startswith("did you mean"):
            return advice.replace("did you mean ", "did you mean $.")
        return f"there is {', '.join(f'$.{name}' for name in self.names[:10])}"


def validate_paths(validation: SuiteValidation, opened: OpenTarget | None) -> None:
    """Find paths that can find nothing, in checks and requests; `opened` is the target, if it opens."""
    target = validation.target
    uses = [
        _Use.of_check(use, ("checks", index, "arguments"))
        for index, check in validation.checks
        for use in paths_of(check)
    ]
    uses += [
        _Use(("metrics", index, "value"), metric.value, leading_keys(metric.value))
        for index, metric in enumerate(validation.loaded.section("metrics") or ())
        if metric is not None and metric.check is None and metric.value is not None
    ]
    cluster: str | None = validation.loaded.section("cluster")
    uses += [_Use(("cluster",), cluster, leading_keys(cluster))] if cluster else []
    body = [] if target is None else list(_validate_request(validation, target, opened))
    uses = [use for use in uses if _fits_context(validation, target, use)]
    _look_into_cases(validation, [use for use in (*uses, *body) if use.keys[:1] == ("test_case",)])
    _look_into_own_checks(validation, target)
    if isinstance(opened, RecordedTarget):
        _look_into_outputs(validation, opened, [use for use in uses if use.keys[:1] == ("output",)])


def _request(target: Target, opened: OpenTarget | None) -> dict[DocumentPath, Any]:
    """Return the templates that are rendered for each call, by their places in the suite."""
    templates: dict[str, Any] = {}
    if target.http is not None:
        templates = {} if target.http.method == "GET" else {"body": target.http.body}
        if has_placeholders(target.http.url or ""):
            templates["url"] = target.http.url
        templates["headers"] = {name: text for name, text in target.http.headers.items() if has_placeholders(text)}
    elif target.a2a is not None:
        templates = {"message": target.a2a.message}
    elif target.openai is not None:
        names = ("system", "prompt", "messages", "tools", "parameters")
        templates = {name: getattr(target.openai, name) for name in names}
        templates |= getattr(opened, "texts", {})  # of files
        templates = {name: value for name, value in templates.items() if value}
    elif target.python is not None:
        name = "input" if target.python.arguments is None else "arguments"
        templates = {name: getattr(target.python, name)}
    return {("target", target.kind, name): value for name, value in templates.items()}


def _validate_request(validation: SuiteValidation, target: Target, opened: OpenTarget | None) -> Iterator[_Use]:
    """Yield the paths of the request into the test case, and report all other paths, and texts meant as paths."""
    request = _request(target, opened)
    texts = [pair for place, value in request.items() for pair in texts_in(value, place)]
    is_same = bool(texts)
    for location, text in texts:
        expressions = [text] if is_path(text) else TextTemplate(text).paths if has_placeholders(text) else []
        is_same = is_same and not expressions
        for expression in expressions:
            keys = leading_keys(expression)
            if keys[:1] == ("output",):
                message = f"{expression}: a request has no output yet, only $.test_case"
                validation.error(location, message, "did you mean $.test_case.input?")
                continue
            if keys[:1] in (("turn",), ("session",)):
                if keys[0] == "turn" and keys[1:2] and keys[1] not in _OF_TURN:
                    validation.error(location, f"$.turn has no {keys[1]}", did_you_mean(str(keys[1]), _OF_TURN))
                continue
            use = _Use(location, expression, keys)
            if keys and _fits_context(validation, None, use) and keys[1:] != ("expected",):
                yield use
        if is_path(text):
            continue
        remarks = list(_remarks_on_prompt(text))
        for message, advice, is_error in remarks:
            (validation.error if is_error else validation.warn)(location, message, advice)
        if not remarks and not has_placeholders(text) and (path := meant_path(text)):
            message = f"{text} is a text, and not a path, which starts with $."
            validation.warn(location, message, f"did you mean {path}?")
    model = target.openai
    sends_input = model is not None and model.prompt is None and model.messages is None
    if is_same and opened is not None and not sends_input:
        place = next(iter(request))
        validation.warn(place, "the request is the same for all test cases", "$.test_case.input is the input")


def _report(
    validation: SuiteValidation, use: _Use, message: str, advice: str | None = None, *, is_error: bool = True
) -> None:
    problem = validation.loaded.document.problem(use.location, message, advice)
    if use.file is not None:
        problem = replace(problem, file=use.file, line=use.line)
    validation.problems.append(problem if is_error else replace(problem, severity="warning"))


def _fits_context(validation: SuiteValidation, target: Target | None, use: _Use) -> bool:
    """Report a path that cannot exist in the context, or that leads to metadata which outputs of the target lack.

    An output's metadata has the suite's mapped values, or a model's own, and fepflow's values of the call.
    """
    misshaped = context_problem(use.keys)
    if misshaped is not None:
        _report(validation, use, *misshaped, is_error=not use.optional)
        return False
    if target is not None and use.keys[:2] == ("output", "trace") and _lacks_trace(target):
        advice = "set target.trace, and have the agent export its spans (docs/traces.md)"
        if target.recorded is not None:
            advice = "recorded outputs have one with target.recorded.format: otlp or atif"
        _report(validation, use, f"{use.expression} finds nothing: the calls are not traced", advice)
        return False
    if target is None or target.given is not None or len(use.keys) < 3:
        return True
    if use.keys[:2] == ("output", "trace") and use.keys[2] not in PARTS and not use.optional:
        message = f"{use.expression} finds nothing: a trace has {', '.join(PARTS)}"
        _report(validation, use, message, did_you_mean(str(use.keys[2]), PARTS))
        return False
    if use.keys[:2] != ("output", "metadata"):
        return True
    if target.http is not None:
        known = [*target.http.metadata, *RESERVED_METADATA]
        known += ("tokens", "usd") if target.trace is not None else ()
    elif target.openai is not None:
        known = [*MODEL_METADATA, *RESERVED_METADATA]
    else:
        return True
    known += _OF_CONVERSATIONS if validation.cases.has_conversations else ()
    if use.keys[2] in known or use.optional:
        return True
    advice = did_you_mean(str(use.keys[2]), known)
    if not advice.startswith("did you mean") and target.http is not None:
        advice = f"map it: target.http.metadata: {{{use.keys[2]}: $.…}}"
    _report(validation, use, f"{use.expression} finds nothing: an output's metadata has {', '.join(known)}", advice)
    return False


def _lacks_trace(target: Target) -> bool:
    if target.recorded is not None:
        return target.recorded.format not in TRACES
    return target.trace is None and target.given is None


def _look_into_cases(validation: SuiteValidation, uses: Sequence[_Use]) -> None:
    uses = [use for use in uses if not use.optional and (use.can_be_judged or use.keys[1:] == ("expected",))]
    for case in validation.cases if uses else ():
        context = evaluation_context(case, _NO_OUTPUT)
        for use in uses:
            use.look(context, case.id)
    for use in uses:
        if use.lacking:
            _report_lacking(validation, use, "test cases")
        _report_misfits(validation, use, "test cases")


def _look_into_own_checks(validation: SuiteValidation, target: Target | None) -> None:
    """Validate the paths of test cases' own checks: the path of a check type by all cases that have this check."""
    uses: dict[tuple[str, DocumentPath, str], _Use] = {}
    dataset = validation.dataset
    file = None if dataset is None else validation.beside(dataset.path)
    for case, line in validation.cases.with_checks_and_lines():
        context = evaluation_context(case, _NO_OUTPUT)
        for index, check in enumerate(map(to_check, case.checks or ())):
            for use in paths_of(check):
                key = (check.type, use.location, use.expression)
                if key not in uses:
                    location = (*(validation.place_of(case.id) or (case.id,)), "checks", index, "arguments")
                    uses[key] = _Use.of_check(use, location, file, line)
                if uses[key].keys[:1] == ("test_case",) and not use.optional:
                    uses[key].look(context, case.id)
    for known in uses.values():
        if _fits_context(validation, target, known) and known.lacking:
            _report_lacking(validation, known, "test cases with this check")
        _report_misfits(validation, known, "test cases")


def _look_into_outputs(validation: SuiteValidation, opened: RecordedTarget, uses: Sequence[_Use]) -> None:
    reserved = [("metadata", name) for name in RESERVED_METADATA]
    uses = [use for use in uses if not use.optional and use.can_be_judged and use.keys[1:3] not in reserved]
    for case_id, output in opened.recorded() if uses else ():
        for use in uses:
            use.look({"output": output}, case_id)
    for use in uses:
        if use.seen and use.lacking == use.seen:
            message = f"{use.expression} finds nothing in any of the {use.seen:,} recorded outputs"
            _report(validation, use, message, use.advice or "look into the file")
        _report_misfits(validation, use, "recorded outputs")


def _report_lacking(validation: SuiteValidation, use: _Use, cases: str) -> None:
    """Report that a path finds nothing in some test cases: an error if it never finds anything."""
    if use.lacking < use.seen:
        message = (
            f"{use.lacking:,} of {use.seen:,} test cases have no {use.expression}; the first is {use.first_lacking}"
        )
        advice = f"it is an error of the {'check' if use.location[0] != 'target' else 'call'} there"
        if use.location == ("cluster",):
            advice = "each of them counts as a cluster of its own"
        _report(validation, use, message, advice, is_error=False)
    elif use.seen > 1:
        _report(validation, use, f"none of the {use.seen:,} {cases} has {use.expression}", use.advice)
    else:
        _report(validation, use, f"the test case {use.first_lacking} has no {use.expression}", use.advice)


def _report_misfits(validation: SuiteValidation, use: _Use, what: str) -> None:
    """Report that a check cannot take the values that its path finds: an error if it can take none."""
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
    _report(validation, use, message, advice if inside else misfit.advice, is_error=use.misfits == use.tried)


@dataclass(frozen=True)
class Remark:
    """A remark on a part of a check."""

    location: DocumentPath
    message: str
    advice: str | None = None
    is_error: bool = True

    @property
    def severity(self) -> Literal["error", "warning"]:
        """The severity of the problem that it becomes."""
        return "error" if self.is_error else "warning"


_DOUBLE = re.compile(r"\{\{([^{}]*)\}\}")
_SINGLE = re.compile(r"(?<!\{)\{\s*(\$\.[^{}]*?)\s*\}(?!\})")
_NAKED = re.compile(r"(?<![\w\\{$])(\$\.(?:output|test_case)\b[\w.]*)")
_PLACEHOLDER = re.compile(r"\{\{\s*\\?\$\.[^{}]*\}\}")


def remarks_on(check: Check) -> Iterator[Remark]:
    """Yield remarks on invalid placeholders, on texts meant as paths, and on a check that ignores the output."""
    check_class = class_of(check)
    if check_class is None:
        return
    uses = paths_of(check)
    sees_output = any(leading_keys(use.expression)[:1] in ((), ("output",)) for use in uses)
    remarks = [
        remark
        for name, value in check.arguments.items()
        if isinstance(value, str) and not is_path(value)
        for remark in _remarks_on_text(name, value, check_class, sees_output=sees_output)
    ]
    yield from remarks
    if any(len(use.location) > 1 for use in uses):
        yield from _wrong_containers(check_class, check)
    if sees_output or any(remark.is_error for remark in remarks) or not is_ours(check_class):
        return
    if check_class.check_templates:
        message = "the judge is shown nothing of the output, so it cannot judge it"
        if isinstance(check.arguments.get("prompt"), str):
            yield Remark(("prompt",), message, "put {{$.output.value}} where the answer is to stand")
    elif check_class.check_type != "custom_function":
        message = "no argument reads the output, so the result does not depend on the answer"
        yield Remark((), message, "a path such as $.output.value reads it", is_error=False)


def _wrong_containers(check_class: type[BaseCheck], check: Check) -> Iterator[Remark]:
    """Find lists and objects, with paths inside, where the check takes neither, whatever the paths find."""
    arguments = arguments_of(check_class, check)
    for name, value in check.arguments.items():
        if arguments is not None and isinstance(value, list | dict):
            misfit = arguments.misfit(name, value)
            if misfit is not None and misfit.path == (name,) and misfit.message.endswith(("a list", "an object")):
                yield Remark((name,), misfit.message, "write the path alone")


def _remarks_on_text(name: str, text: str, check_class: type[BaseCheck], *, sees_output: bool) -> Iterator[Remark]:
    if name in check_class.check_templates:
        yield from (Remark((name,), *parts) for parts in _remarks_on_prompt(text))
    elif _PLACEHOLDER.search(text):
        meant = text.strip().strip("{} ")
        advice = f"write {meant}, without braces" if is_path(meant) else "a path is the whole text"
        yield Remark((name,), BRACES_STAY, advice)
    elif path := meant_path(text):
        message = f"{text} is a text, and not a path, which starts with $."
        yield Remark((name,), message, f"did you mean {path}?", is_error=not sees_output)


def _remarks_on_prompt(prompt: str) -> Iterator[tuple[str, str, bool]]:
    cure = "write {{{{{}}}}}"
    for match in _SINGLE.finditer(prompt):
        yield f"{match[0]} has one brace and stays as it is", cure.format(match[1]), True
    for match in _DOUBLE.finditer(prompt):
        inner = match[1].strip()
        if not inner.startswith(("$.", "\\$.")):
            is_error = is_word_of_context(inner.lstrip("$."))
            yield f"{match[0]} is not a placeholder and stays as it is", cure.format(_path_for(inner)), is_error
    for match in _NAKED.finditer(_SINGLE.sub("", _DOUBLE.sub("", prompt))):
        yield f"{match[1]} stands without braces and stays as it is", cure.format(match[1].rstrip(".")), True


_MEANT = {
    **dict.fromkeys(("input", "inputs", "question", "vars"), "test_case.input"),
    **dict.fromkeys(("output", "answer", "response"), "output.value"),
    "expected": "test_case.expected",
    "context": "test_case.metadata.context",
}
"""Placeholders of other tools as paths of the context."""


def _path_for(name: str) -> str:
    bare = name.lstrip("$").lstrip(".")
    first, _, rest = bare.partition(".")
    if not rest and first in _MEANT:
        return f"$.{_MEANT[first]}"
    if first in ("output", "test_case"):
        return f"$.{bare}"
    return f"$.{_MEANT[first]}.{rest}" if first in _MEANT else "$.test_case.input"
