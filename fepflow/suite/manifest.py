"""An ECP manifest as a suite: each scenario is a test case, each grader a check of its own."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fepflow.datasets.records import ErrorCollector, records
from fepflow.documents.loader import Document
from fepflow.documents.messages import did_you_mean
from fepflow.errors import DocumentPath, InputError, Problem
from fepflow.settings import settings
from fepflow.suite.env_vars import expand
from fepflow.suite.folders import resolve_inside
from fepflow.suite.manifest_graders import DEFAULT_JUDGE, checks_of_step, equals_check
from fepflow.suite.manifest_parts import STRICT, Dataset, Manifest, PartsReader, Scenario, Step
from fepflow.text import shortened


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
