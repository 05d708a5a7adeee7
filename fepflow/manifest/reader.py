"""An ECP manifest as a suite: each scenario is a test case, each grader a check of its own."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fepflow.documents.loader import Document
from fepflow.errors import DocumentPath, Problem
from fepflow.manifest.dataset import rows_of_dataset
from fepflow.manifest.document import SuiteDocument
from fepflow.manifest.graders import DEFAULT_JUDGE, checks_of_step, equals_check
from fepflow.manifest.models import STRICT, Manifest, Scenario, Step
from fepflow.manifest.parts import PartsReader
from fepflow.manifest.target import target_section

JUDGE_VARIABLE = "ECP_LLM_JUDGE_MODEL"
_ORIGINS: dict[DocumentPath, DocumentPath] = {
    **{("target", "ecp", name): ("target",) for name in ("command", "url", "cwd")},
    **{("target", "ecp", name): (name,) for name in ("env", "require_capabilities")},
    ("target", "ecp"): ("target",),
}
_LENIENT = re.compile(r"v?0(\.[0-9]+){0,2}")


def suite_of_manifest(document: Document, folder: Path, env: Mapping[str, str]) -> tuple[SuiteDocument, list[Problem]]:
    """The suite that a manifest in `folder` stands for, and what is wrong with the manifest.

    Of one with errors, the suite has what is valid; a grader that is not becomes a check that ends in an error.
    """
    version = document.data.get("manifest_version")
    reader = PartsReader(document, is_lenient=version != STRICT)
    manifest = reader.fields(Manifest, document.data, ())
    _check_version(reader, manifest.get("manifest_version"))
    scenarios = _Scenarios(reader, folder)
    for index, given in enumerate(manifest.get("scenarios", ())):
        scenarios.read(given, ("scenarios", index))
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
    suite_document = SuiteDocument(suite, document.file, document.text, origins, scenarios.faulty_checks)
    return suite_document, reader.problems


def _check_version(reader: PartsReader, version: Any) -> None:
    if version is None or version == STRICT or _LENIENT.fullmatch(str(version)):
        return
    advice = f"write manifest_version: {STRICT}; 0.2.3 and other versions of 0 are read, too"
    reader.error(("manifest_version",), "is no known version of manifests", advice)


def _required(given: bool | list[str], uses: set[str]) -> list[str]:
    """The capabilities that the agent must declare: those named, or with true those that the graders look at."""
    if not isinstance(given, bool):
        return given
    looked_at = {"tool_calls": {"tool_usage"}, "evaluation_context": {"evaluation_context", "private_thought"}}
    return [name for name, used in looked_at.items() if given and used & uses]


@dataclass
class _Case:
    """A scenario on its way to being a test case; `location` is where it stands among those of the suite."""

    location: DocumentPath
    inputs: list[str] = field(default_factory=list)
    checks: list[dict[str, Any]] = field(default_factory=list)


class _Scenarios:
    """The scenarios of a manifest as test cases, what of them stands where, and what their graders look at."""

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

    def read(self, given: Any, path: DocumentPath) -> None:
        """Add the test case that a scenario stands for."""
        scenario = self._reader.fields(Scenario, given, path)
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

    def _add_step(self, case: _Case, given: Any, index: int, path: DocumentPath) -> None:
        step = self._reader.fields(Step, given, path)
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

    def _add_rows(self, case: _Case, given: Any, path: DocumentPath) -> None:
        for index, (question, answer) in enumerate(rows_of_dataset(self._reader, given, path, self._folder)):
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
