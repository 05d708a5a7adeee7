"""ECP manifests, of 0.2.3 and of v1, as suites: each scenario is a test case, each grader a check of its own.

Parts are read field by field, so that all errors are found at once.
"""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, TypeAdapter, ValidationError

from fepflow.datasets.records import ErrorCollector, records
from fepflow.documents.loader import Document
from fepflow.documents.messages import did_you_mean, validation_messages
from fepflow.errors import DocumentPath, InputError, Problem
from fepflow.json.values import map_leaves
from fepflow.jsonpath.path import is_path, unescape
from fepflow.settings import settings
from fepflow.suite.env_vars import expand
from fepflow.suite.reader import resolve_inside
from fepflow.suite.values import Duration, Section
from fepflow.text import brief, shortened

STRICT = "v1"
"""The version of manifests whose unknown keys are errors."""

Text = Annotated[str, Field(min_length=1)]
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class Manifest(Section):
    """The whole document. `shell`, `env`, `timeout` and `attempts` are fepflow's own."""

    manifest_version: str | float | None = None
    name: Annotated[str, Field(min_length=1, max_length=200)]
    target: Text
    require_capabilities: bool | list[Text] = False
    scenarios: list[Any]
    shell: bool = False
    env: list[Variable] = Field([])
    timeout: Duration = 30.0
    attempts: Annotated[int, Field(ge=1, le=20)] | None = None


class Scenario(Section):
    """One conversation with the agent, which becomes a test case."""

    name: Text
    steps: list[Any] = Field([])
    dataset: Any = None


class Dataset(Section):
    """Steps from a file, one a row."""

    type: Literal["csv", "jsonl"]
    source: Text
    input_column: Text = "input"
    output_column: Text = "output"


class Step(Section):
    """One input for the agent, and what must hold of its answer."""

    input: str
    constraints: dict[str, Any] = Field({})
    graders: list[Any] = Field([])


class Grader(Section):
    """A requirement on an answer; which fields it needs depends on its type."""

    type: Literal["text_match", "llm_judge", "tool_usage"]
    field: Literal["public_output", "evaluation_context", "private_thought"] = "public_output"
    condition: Literal["contains", "equals", "does_not_contain", "regex"] | None = None
    value: str | None = None
    pattern: str | None = None
    prompt: str | None = None
    assertion: str | None = None
    tool_name: str | None = None
    arguments: dict[str, Any] = Field({})


@dataclass
class PartsReader:
    """A reader of parts of a manifest, which collects their errors.

    Unknown keys are errors, or warnings where the manifest is read leniently.
    """

    document: Document
    is_lenient: bool
    problems: list[Problem] = field(default_factory=list)

    def error(self, path: DocumentPath, message: str, advice: str | None = None, *, is_confined: bool = False) -> None:
        """Add an error. If it `is_confined`, the manifest runs without the part that it concerns."""
        self.problems.append(replace(self.document.problem(path, message, advice), is_confined=is_confined))

    def warn(self, path: DocumentPath, message: str, advice: str | None = None) -> None:
        """Add a warning."""
        self.problems.append(replace(self.document.problem(path, message, advice), severity="warning"))

    def fields(
        self, part: type[Section], value: Any, path: DocumentPath, *, is_confined: bool = False
    ) -> dict[str, Any]:
        """Return the valid fields of a part at `path`, by name, with the defaults of missing ones.

        Errors are confined to the part if it `is_confined`, except unknown keys, which may be misspelt anywhere.
        """
        if not isinstance(value, dict):
            self.error(path, "must be a mapping", is_confined=is_confined)
            return {}
        known = list(part.model_fields)
        note = self.warn if self.is_lenient else self.error
        for name in value:
            if name not in known:
                note((*path, name), f"{brief(name, 60)} is not known here", did_you_mean(name, known))
        valid: dict[str, Any] = {}
        for name, info in part.model_fields.items():
            if name in value:
                try:
                    valid[name] = _adapter(part, name).validate_python(value[name], strict=True)
                except ValidationError as error:
                    for item in validation_messages(value[name], error):
                        self.error((*path, name, *item.path), item.message, item.advice, is_confined=is_confined)
            elif info.is_required():
                self.error(path, f"{name} is missing", "add it", is_confined=is_confined)
            else:
                valid[name] = info.get_default(call_default_factory=True)
        return valid


@cache
def _adapter(part: type[Section], name: str) -> TypeAdapter[Any]:
    return TypeAdapter(part.model_fields[name].rebuild_annotation())


DEFAULT_JUDGE = "openai/gpt-4o-mini"
"""The model that judges unless ECP_LLM_JUDGE_MODEL names one: the reference runtime's."""

_USED = {
    "text_match": ("type", "field", "condition", "value", "pattern"),
    "llm_judge": ("type", "field", "prompt"),
    "tool_usage": ("type", "tool_name", "arguments"),
}
_OLDER_NAMES = {"tool": "tool_name", "args": "arguments"}
_NAME = re.compile(r"[A-Za-z0-9_-]{1,60}")
_PLACEHOLDER = re.compile(r"\{\{\s*\$\.")

_QUESTION = """\
Does the answer of an agent satisfy these criteria?

{criteria}

The answer is: {{{{{path}}}}}

Say in `reason`, in a sentence or two, why; then in `passed` whether it satisfies all of the criteria."""

_VERDICT = {
    "type": "object",
    "properties": {"reason": {"type": "string"}, "passed": {"type": "boolean"}},
    "required": ["reason", "passed"],
    "additionalProperties": False,
}


class GraderCheck(NamedTuple):
    """The check of a grader, and the grader's number in its step, from 0.

    A check that `is_faulty` can only end in a validation_error; the grader's own errors are reported already.
    """

    check: dict[str, Any]
    number: int
    is_faulty: bool


def checks_of_step(reader: PartsReader, graders: Sequence[Any], index: int, path: DocumentPath) -> list[GraderCheck]:
    """Return the checks of the step with this index, from 0; its graders are at `path` in the manifest."""
    checks = []
    types: Counter[str] = Counter()
    for number, value in enumerate(graders):
        location = (*path, number)
        grader = reader.fields(Grader, _with_newer_names(reader, value), location, is_confined=True)
        is_faulty = len(grader) < len(Grader.model_fields)
        kind = grader.get("type") or _foreign_type(value)
        arguments: dict[str, Any] = {}
        if not is_faulty:
            is_faulty = _tell_what_is_lacking(reader, grader, location)
            try:
                arguments = _arguments(grader, f"$.output.value.steps[{index}]")
            except ValueError as error:
                reader.error(location, str(error))
                continue
        if isinstance(value, dict) and kind in _USED:
            _note_unused(reader, value, kind, location)
        types[kind] += 1
        checks.append(GraderCheck(_check(kind, index, types[kind], arguments), number, is_faulty))
    return checks


def _foreign_type(value: Any) -> str:
    """Return a check type that does not exist, so that a grader of an unknown type ends in an error."""
    name = value.get("type") if isinstance(value, dict) else None
    return f"ecp-{name}" if isinstance(name, str) and _NAME.fullmatch(name) else "ecp-grader"


def _check(kind: str, index: int, number: int, arguments: dict[str, Any]) -> dict[str, Any]:
    name = f"step-{index + 1}-{kind}"
    return {"id": name if number == 1 else f"{name}-{number}", "type": kind, "arguments": arguments}


def equals_check(index: int, value: str) -> dict[str, Any]:
    """Return the check that the step's answer equals the value. Raises ValueError as `literal` does."""
    text = f"$.output.value.steps[{index}].public_output"
    return _check("text_match", index, 1, {"text": text, "condition": "equals", "value": literal(value)})


def _with_newer_names(reader: PartsReader, value: Any) -> Any:
    if not reader.is_lenient or not isinstance(value, dict):
        return value
    return {name if (new := _OLDER_NAMES.get(name, name)) in value else new: item for name, item in value.items()}


def _note_unused(reader: PartsReader, grader: dict[str, Any], kind: str, location: DocumentPath) -> None:
    for name, value in grader.items():
        if name in Grader.model_fields and name not in _USED[kind] and value not in (None, {}):
            reader.warn((*location, name), f"{name} is not used by {kind} graders")


def _tell_what_is_lacking(reader: PartsReader, grader: dict[str, Any], location: DocumentPath) -> bool:
    """Report a field that a grader of this type and condition needs but lacks. Return False if it lacks none."""
    needed = "value"
    if grader["type"] == "llm_judge":
        needed = "prompt"
    elif grader["type"] == "tool_usage":
        return False
    elif grader["condition"] in (None, "regex"):
        needed = "condition" if grader["condition"] is None else "pattern"
    value = grader[needed]
    if value is not None and (needed in ("condition", "value") or value.strip() or (needed == "pattern" and value)):
        return False
    message = f"{needed} is missing: {grader['type']} needs it"
    reader.error(location, message, "add it", is_confined=True)
    return True


def _arguments(grader: dict[str, Any], step: str) -> dict[str, Any]:
    """Return the arguments of a grader's check, without missing ones. Raises ValueError as `literal` does."""
    text = f"{step}.{grader['field']}"
    if grader["type"] == "tool_usage":
        expected = {"name": grader["tool_name"], "arguments": grader["arguments"]}
        return {"calls": f"{step}.tool_calls", **{name: literal(value) for name, value in expected.items() if value}}
    if grader["type"] == "llm_judge":
        criteria = _PLACEHOLDER.sub(r"{{\\$.", (grader["prompt"] or "").strip())
        prompt = {"prompt": _QUESTION.format(criteria=criteria, path=text)} if criteria else {}
        return {**prompt, "response_format": _VERDICT}
    condition, pattern = grader["condition"], grader["pattern"]
    if condition != "regex":
        compared = {"value": literal(grader["value"])}
    else:  # an empty group in front, so that the pattern is not taken for a path, or for an escaped one
        compared = {"pattern": f"(?:){pattern}" if pattern and _is_special(pattern) else pattern or None}
    arguments = {"text": text, "condition": condition, **compared}
    return {name: argument for name, argument in arguments.items() if argument is not None}


def literal(value: Any) -> Any:
    r"""Return a JSON value as an argument of a check that is taken literally.

    Raises ValueError for a text that starts with `\$.`, which cannot be an argument.
    """
    return map_leaves(value, _literal)


def _literal(value: Any) -> Any:
    if not isinstance(value, str) or not _is_special(value):
        return value
    if not is_path(value):
        raise ValueError("a text that starts with \\$. cannot be compared (use a regex)")
    return f"\\{value}"


def _is_special(text: str) -> bool:
    return is_path(text) or unescape(text) != text


@dataclass(frozen=True)
class SuiteDocument(Document):
    """A manifest as a suite. `data` is the suite's, `text` the manifest's; `origins` maps places of both.

    `faulty_checks` belong to graders whose errors are reported already: indices of checks by index of their test case.
    """

    origins: Mapping[DocumentPath, DocumentPath] = field(default_factory=dict)
    faulty_checks: Mapping[int, Collection[int]] = field(default_factory=dict)

    def line_of(self, path: DocumentPath) -> int | None:
        """Return the line of the manifest that a part of the suite comes from."""
        return super().line_of(self._origin(path))

    def problem(self, path: DocumentPath, message: str, advice: str | None = None) -> Problem:
        """Return an error at a part of the suite, where it comes from."""
        return super().problem(self._origin(path), message, advice)

    def _origin(self, path: DocumentPath) -> DocumentPath:
        for length in range(len(path), 0, -1):
            if (origin := self.origins.get(path[:length])) is not None:
                return (*origin, *path[length:])
        return path


JUDGE_VARIABLE = "ECP_LLM_JUDGE_MODEL"
_ORIGINS: dict[DocumentPath, DocumentPath] = {
    **{("target", "ecp", name): ("target",) for name in ("command", "url", "cwd")},
    **{("target", "ecp", name): (name,) for name in ("env", "require_capabilities")},
    ("target", "ecp"): ("target",),
}
_LENIENT = re.compile(r"v?0(\.[0-9]+){0,2}")


def suite_of_manifest(document: Document, folder: Path, env: Mapping[str, str]) -> tuple[SuiteDocument, list[Problem]]:
    """Return the suite of a manifest in `folder`, and the manifest's errors and warnings.

    With errors, the suite has the valid parts; an invalid grader becomes a check that ends in an error.
    """
    version = document.data.get("manifest_version")
    reader = PartsReader(document, is_lenient=version != STRICT)
    manifest = reader.fields(Manifest, document.data, ())
    _check_version(reader, manifest.get("manifest_version"))
    scenarios = _Scenarios(reader, folder)
    for index, value in enumerate(manifest.get("scenarios", ())):
        scenarios.read(value, ("scenarios", index))
    if manifest.get("scenarios") == []:
        reader.error(("scenarios",), "there are no scenarios", "add one, with name and steps")
    suite: dict[str, Any] = {}
    if "name" in manifest:
        suite["name"] = manifest["name"]
    if "target" in manifest:
        suite["target"] = target_section(reader, manifest, scenarios.most_steps, folder, env)
        if required := _required(manifest.get("require_capabilities", False), scenarios.uses):
            suite["target"]["ecp"]["require_capabilities"] = required
    if scenarios.cases:
        suite["test_cases"] = scenarios.cases
    if "llm_judge" in scenarios.uses:
        suite["judge"] = {"model_config": {"model": os.environ.get(JUDGE_VARIABLE) or DEFAULT_JUDGE}}
    origins = {("test_cases",): ("scenarios",), **_ORIGINS, **scenarios.origins}
    suite_document = SuiteDocument(
        suite,
        document.file,
        document.text,
        document.place,
        origins=origins,
        faulty_checks=scenarios.faulty_checks,
    )
    return suite_document, reader.problems


def _check_version(reader: PartsReader, version: Any) -> None:
    if version is None or version == STRICT or _LENIENT.fullmatch(str(version)):
        return
    advice = f"write manifest_version: {STRICT}; 0.2.3 and other versions of 0 are read, too"
    reader.error(("manifest_version",), "is not a known version of manifests", advice)


def _required(value: bool | list[str], uses: set[str]) -> list[str]:
    """Return the capabilities that the agent must declare: a list as it is; for true, those that the graders use."""
    if not isinstance(value, bool):
        return value
    looked_at = {"tool_calls": {"tool_usage"}, "evaluation_context": {"evaluation_context", "private_thought"}}
    return [name for name, used in looked_at.items() if value and used & uses]


@dataclass
class _Case:
    """The test case of a scenario, as it is built; `location` is its place in the suite."""

    location: DocumentPath
    inputs: list[str] = field(default_factory=list)
    checks: list[dict[str, Any]] = field(default_factory=list)


class _Scenarios:
    """The scenarios of a manifest as test cases, with their places, and what their graders use."""

    def __init__(self, reader: PartsReader, folder: Path) -> None:
        self._reader = reader
        self._folder = folder
        self.cases: list[dict[str, Any]] = []
        self.origins: dict[DocumentPath, DocumentPath] = {}
        self.faulty_checks: dict[int, set[int]] = {}
        self.uses: set[str] = set()
        self.most_steps = 0
        self._names: set[str] = set()
        self._has_constraints = False

    def read(self, value: Any, path: DocumentPath) -> None:
        """Add the test case of a scenario."""
        scenario = self._reader.fields(Scenario, value, path)
        case = _Case(("test_cases", len(self.cases)))
        steps, dataset = scenario.get("steps"), scenario.get("dataset")
        for index, step in enumerate(steps or ()):
            self._add_step(case, step, index, (*path, "steps", index))
        if dataset is not None and not steps:
            self._add_rows(case, dataset, (*path, "dataset"))
        elif dataset is not None:
            self._reader.warn((*path, "dataset"), "is not read, as the scenario has steps")
        elif steps == []:
            self._reader.error(path, "has neither steps nor a dataset", "add steps, each with an input")
        if case.inputs:
            name = self._unique(scenario.get("name", "scenario"))
            self.origins[case.location] = path
            self.cases.append({"id": name, "input": case.inputs, "checks": case.checks})
            self.most_steps = max(self.most_steps, len(case.inputs))

    def _add_step(self, case: _Case, value: Any, index: int, path: DocumentPath) -> None:
        step = self._reader.fields(Step, value, path)
        case.inputs.append(step.get("input", ""))
        if step.get("constraints") and not self._has_constraints:
            self._has_constraints = True
            self._reader.warn((*path, "constraints"), "constraints are not looked at, as in ECP's own runtime")
        for check, number, is_faulty in checks_of_step(
            self._reader, step.get("graders", []), index, (*path, "graders")
        ):
            if is_faulty:
                self.faulty_checks.setdefault(len(self.cases), set()).add(len(case.checks))
            else:
                looked_at = step["graders"][number].get("field")
                self.uses |= {check["type"]} if check["type"] == "tool_usage" else {check["type"], looked_at}
            self._add_check(case, check, (*path, "graders", number))

    def _add_rows(self, case: _Case, value: Any, path: DocumentPath) -> None:
        for index, (question, answer) in enumerate(rows_of_dataset(self._reader, value, path, self._folder)):
            case.inputs.append(question)
            if answer is None:
                continue
            try:
                self._add_check(case, equals_check(index, answer), path)
            except ValueError as error:
                self._reader.error(path, f"row {index + 1}: {error}")

    def _add_check(self, case: _Case, check: dict[str, Any], path: DocumentPath) -> None:
        location = (*case.location, "checks", len(case.checks))
        self.origins[location] = self.origins[*location, "arguments"] = path
        case.checks.append(check)

    def _unique(self, name: str) -> str:
        number, unique = 1, name
        while unique in self._names:
            number += 1
            unique = f"{name}-{number}"
        self._names.add(unique)
        return unique


Row = tuple[str, str | None]
"""A step's input, and the expected answer; None if no answer is expected."""


def rows_of_dataset(reader: PartsReader, value: Any, path: DocumentPath, folder: Path) -> list[Row]:
    """Return the rows of the file that a dataset names, below `folder`; an empty list, with an error, without one."""
    dataset = reader.fields(Dataset, value, path)
    if len(dataset) < len(Dataset.model_fields):
        return []
    source = dataset["source"]
    try:
        file = resolve_inside(folder, source, settings().allowed_roots)
        exists = file.is_file()
    except (OSError, ValueError) as error:
        reader.error((*path, "source"), str(error))
        return []
    if not exists:
        advice = "check the path; it starts at the manifest's folder"
        reader.error((*path, "source"), f"there is no file {shortened(source)}", advice)
        return []
    errors = ErrorCollector(str(Path(reader.document.file).parent / source))
    rows = list(_rows(file, dataset, errors, is_named="output_column" in value))
    if not rows and not errors:
        errors.add("holds no rows", advice="add one, with an input")
    try:
        errors.raise_if_any()
    except InputError as error:
        reader.problems += error.problems
        return []
    return rows


def _rows(file: Path, dataset: dict[str, Any], errors: ErrorCollector, *, is_named: bool) -> Iterator[Row]:
    question, answer = dataset["input_column"], dataset["output_column"]
    columns: dict[str, None] = {}
    for line, record in records(file, dataset["type"], errors):
        if not isinstance(record, dict):
            errors.add("a row is an object with an input", line)
            continue
        columns.update(dict.fromkeys(list(record)[:100]))
        if question not in record:
            advice = did_you_mean(question, list(record)[:100])
            errors.add(f"there is no {question} (input_column of the dataset)", line, advice=advice)
            continue
        wrong = [name for name in (question, answer) if not isinstance(record.get(name) or "", str)]
        for name in wrong:
            errors.add("must be a text", line, name, "put it in quotes")
        if not wrong:
            yield record[question] or "", record.get(answer) or None
    if is_named and columns and answer not in columns:
        advice = did_you_mean(answer, list(columns))
        errors.add(f"no row has {answer} (output_column of the dataset)", advice=advice)


_OPERATORS = {"&&", "||", "|", ";", "&", ">", ">>", "<", "2>", "2>&1"}


def target_section(
    reader: PartsReader, manifest: Mapping[str, Any], steps: int, folder: Path, env: Mapping[str, str]
) -> dict[str, Any]:
    """Return the target of a suite in `folder`. `steps` is the length of the longest scenario."""
    text, seconds = manifest["target"], manifest.get("timeout", 30.0)
    ecp: dict[str, Any] = {"step_timeout": seconds, "start_timeout": seconds}
    if re.match("https?://", expand(text, ("target",), env, []), re.IGNORECASE):
        ecp["url"] = text
    else:
        ecp["command"] = ["/bin/sh", "-c", text] if manifest.get("shell") else text
        if not manifest.get("shell") and _is_for_a_shell(text):
            reader.warn(("target",), "is written for a shell, but runs without one", "add shell: true to the manifest")
        if (cwd := _folder_of_files(text, folder)) is not None:
            ecp["cwd"] = cwd
            where = f"the agent is started in {cwd}, where the files are that its command names"
            reader.warn(("target",), where)
    if manifest.get("env"):
        ecp["env"] = manifest["env"]
    section = {"ecp": ecp, "timeout": seconds * (steps + 2)}
    return {**section, "attempts": attempts} if (attempts := manifest.get("attempts")) else section


def _is_for_a_shell(command: str) -> bool:
    """Return whether a command has an operator of a shell among its words, or begins with an assignment."""
    try:
        words = shlex.split(command)
    except ValueError:  # an error of its own
        return False
    return bool(_OPERATORS & set(words)) or bool(words and re.match(r"[A-Za-z_]\w*=", words[0]))


def _folder_of_files(command: str, folder: Path) -> str | None:
    """Return the nearest folder above the manifest's with the file that the command names, if its own lacks the file.

    Manifests are often run from the root of a repository, and name their agent from there.
    """
    try:
        names = [name for name in shlex.split(command)[1:] if "/" in name and not name.startswith(("-", "/"))]
    except ValueError:  # an error of its own
        return None
    if not names or any((folder / name).exists() for name in names):
        return None
    above = folder.resolve().parents
    places = ("/".join([".."] * (level + 1)) for level, place in enumerate(above) if (place / names[0]).is_file())
    return next(places, None)
