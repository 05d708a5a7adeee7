"""promptfoo: configs (promptfooconfig.yaml) and tests in CSV, as suites."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fepflow.errors import DocumentPath, InputError, Problem, dotted
from fepflow.imports.imported import (
    Imported,
    Notes,
    add_models,
    finite_number,
    listed,
    mapping,
    number_of,
    text_or_none,
    unique_names,
)
from fepflow.imports.promptfoo_assertions import (
    LogicError,
    NoCounterpartError,
    assertion_of_cell,
    check_of,
    fill_in,
    has_template,
)
from fepflow.imports.promptfoo_target import TargetReader, value_beside
from fepflow.imports.source import Source
from fepflow.json.values import referred
from fepflow.text import brief

MOST_CASES = 100_000
_SECTIONS = {
    *("description", "prompts", "providers", "targets", "tests", "scenarios", "defaultTest", "assertionTemplates"),
    *("$schema", "outputPath", "sharing", "writeLatestResults", "evaluateOptions", "commandLineOptions", "metadata"),
    "tags",
}
"""Sections that are read, or that do not concern what is evaluated."""

_COLUMNS = ("__expected", "__description", "__metadata:", "__threshold", "__metric", "__config:", "__providerOutput")
_OF_TEST = {"description", "vars", "assert", "metadata", "options", "threshold"}
_HARMLESS_OPTIONS = {"disableVarExpansion", "disableDefaultAsserts", "runSerially", "disableConversationVar"}


def looks_like(source: Source) -> bool:
    """Return whether the file is a config, with prompts and providers or tests, or tests in CSV."""
    data = source.data
    if isinstance(data, dict):
        has_tests = any(name in data for name in ("tests", "scenarios", "defaultTest", "providers", "targets"))
        has_providers = "providers" in data or "targets" in data
        return ("prompts" in data and has_tests) or (has_providers and "tests" in data) or _is_red_team(data)
    if isinstance(data, list):
        return bool(data) and all(isinstance(test, dict) and "vars" in test for test in data[:10])
    first = source.first_record
    return isinstance(first, dict) and (
        any(str(name).startswith(_COLUMNS) for name in first) or isinstance(first.get("vars"), dict)
    )


def read(source: Source) -> Imported:
    """Read a config, a list of tests, or tests in CSV or JSONL. Raises InputError for anything else."""
    data = source.data
    if isinstance(data, list):
        data = {"tests": data}
    elif not source.is_document:
        data = {"tests": [_record_as_test(source, row) for _, row in source.records() if isinstance(row, dict)]}
    if not isinstance(data, dict):
        raise InputError(Problem("does not hold a config of promptfoo, which is a mapping", source.name))
    return _Config(source, data).read()


class _Config:
    """Reads one config."""

    def __init__(self, source: Source, config: dict[str, Any]) -> None:
        self._source = source
        self._config = config
        self._notes = Notes(source.name)
        self._types: set[str] = set()
        self._checks = 0
        self._cases: list[dict[str, Any]] = []
        self._of_each: list[tuple[Any, DocumentPath]] = []
        """Assertions of `defaultTest` that each test gets by itself, with their paths."""

        self._taken: list[str] = []

    def read(self) -> Imported:
        """Return the suite."""
        has_tests = any(name in self._config for name in ("tests", "scenarios"))
        for name in self._config:
            if name == "redteam" and not has_tests:
                advice = "import the file that `promptfoo redteam generate -o redteam.yaml` writes"
                self._by_hand("promptfoo has yet to write the tests of a red team", (name,), advice)
            elif name not in _SECTIONS:
                self._by_hand(f"{brief(str(name), 60)} has no counterpart", (name,))
        targets = TargetReader(self._source, self._config, self._notes)
        suite = targets.sections()
        default, path = self._default_test()
        shared = _with_unique_ids(self._shared(default, path), ())
        self._taken = [str(check["id"]) for check in shared if "id" in check]
        for test, place in self._tests():
            self._add(default, test, place)
        if not has_tests and not _is_red_team(self._config):
            self._add(default, {}, ())  # promptfoo asks each prompt once
        if shared:
            suite["checks"] = shared
        add_models(suite, self._types, self._notes)
        self._notes.came(test_case=len(self._cases), assertion=self._checks)
        name = text_or_none(self._config.get("description")) or self._source.stem
        name = " ".join(name.split())[:150]
        return Imported("promptfoo", None, name, self._notes, self._cases, suite, files=targets.files)

    def _by_hand(self, what: str, path: DocumentPath, advice: str | None = None) -> None:
        line = self._source.line_of(path) if self._source.is_document else None
        self._notes.by_hand(what, line, dotted(path) or None, advice)

    def _default_test(self) -> tuple[dict[str, Any], DocumentPath]:
        default = self._config.get("defaultTest")
        if isinstance(default, str):
            try:
                default = value_beside(self._source, default.removeprefix("file://"))
            except (KeyError, InputError):
                self._by_hand("defaultTest is not a file that can be read below the config's folder", ("defaultTest",))
        return (default if isinstance(default, dict) else {}), ("defaultTest",)

    def _shared(self, default: Mapping[str, Any], path: DocumentPath) -> list[dict[str, Any]]:
        """Return the checks of all cases: assertions of `defaultTest` that say the same in every test."""
        if self._is_judged_otherwise(default, path):
            return []
        checks = []
        tests = listed(self._config.get("tests"))
        is_excepted = any(mapping(mapping(test).get("options")).get("disableDefaultAsserts") for test in tests)
        for assertion, place in self._assertions(default, path):
            if has_template(assertion) or is_excepted:
                self._of_each.append((assertion, place))
            elif (check := self._check(assertion, {}, place)) is not None:
                checks.append(check)
        return checks

    def _tests(self) -> Iterator[tuple[dict[str, Any], DocumentPath]]:
        tests = self._config.get("tests")
        for index, test in enumerate(tests if isinstance(tests, list) else [] if tests is None else [tests]):
            yield from self._of_item(test, ("tests", index) if isinstance(tests, list) else ("tests",))
        for index, scenario in enumerate(listed(self._config.get("scenarios"))):
            place: DocumentPath = ("scenarios", index)
            if not isinstance(scenario, dict):
                self._by_hand("a scenario in another file is left out", place)
                continue
            configs = scenario.get("config")
            for config in configs if isinstance(configs, list) else [{}]:
                for number, test in enumerate(listed(scenario.get("tests"))):
                    if isinstance(test, dict) and isinstance(config, dict):
                        yield _merged(config, test), (*place, "tests", number)

    def _of_item(self, test: Any, path: DocumentPath) -> Iterator[tuple[dict[str, Any], DocumentPath]]:
        """Yield a test, or the tests in the files that the item names."""
        if isinstance(test, dict) and "path" in test and "vars" not in test:
            test = test["path"]
        if isinstance(test, dict):
            yield test, path
            return
        name = test.removeprefix("file://") if isinstance(test, str) else ""
        if "*" in name and (names := self._source.matching(name)):
            for file_name in names:
                yield from self._of_item(file_name, path)
            return
        if not name.lower().endswith((".csv", ".json", ".jsonl", ".yaml", ".yml")):
            what = f"tests from {brief(name, 80) or 'what is not a text'} are left out"
            self._by_hand(what, path, "code is not executed, and nothing is fetched: write them to a file")
            return
        file = self._source.beside(name)
        if file is None:
            self._by_hand(f"{brief(name, 80)} is not a file below the config's folder", path)
            return
        source = Source(file, name)
        if not source.is_document:
            yield from ((_record_as_test(source, row), path) for _, row in source.records() if isinstance(row, dict))
            return
        data = source.data
        yield from ((item, path) for item in (data if isinstance(data, list) else [data]) if isinstance(item, dict))

    def _add(self, default: Mapping[str, Any], test: Mapping[str, Any], path: DocumentPath) -> None:
        """Add the cases of a test: one, or one for each combination of the variables that are lists."""
        for member in test:
            if member not in _OF_TEST:
                self._by_hand(f"{brief(str(member), 60)} of a test has no counterpart", (*path, member))
        variables = self._variables({**mapping(default.get("vars")), **mapping(test.get("vars"))}, path)
        if isinstance(test.get("vars"), str | list):
            self._by_hand("variables from files are left out", (*path, "vars"))
        options = {**mapping(default.get("options")), **mapping(test.get("options"))}
        expands = not options.get("disableVarExpansion")
        lists = [
            value if expands and isinstance(value, list) and value and isinstance(value[0], str) else [value]
            for value in variables.values()
        ]
        if len(self._cases) + math.prod(map(len, lists)) > MOST_CASES:
            message = f"its variables make more than {MOST_CASES:,} test cases"
            raise InputError(Problem(message, self._source.name, path=dotted(path), advice="list fewer values"))
        metadata = {**mapping(default.get("metadata")), **mapping(test.get("metadata"))}
        if (description := text_or_none(test.get("description"))) is not None:
            metadata["description"] = description
        own = [*([] if options.get("disableDefaultAsserts") else self._of_each), *self._assertions(test, path)]
        own = [] if self._is_judged_otherwise(test, path) else own
        for values in itertools.product(*lists):
            chosen = self._rendered(dict(zip(variables, values, strict=True)), path)
            case: dict[str, Any] = {"input": chosen}
            if metadata:
                case["metadata"] = metadata
            checks = [self._check(assertion, chosen, place) for assertion, place in own]
            if known := [check for check in checks if check is not None]:
                case["checks"] = _with_unique_ids(known, self._taken)
            self._cases.append(case)

    def _variables(self, declared: dict[str, Any], path: DocumentPath) -> dict[str, Any]:
        """Return the variables with the contents of files that they name below the config's folder."""
        variables = {}
        for name, value in declared.items():
            if isinstance(value, str) and value.startswith("file://"):
                try:
                    if not value.endswith((".txt", ".md", ".json", ".yaml", ".yml")):
                        raise KeyError(value)
                    value = value_beside(self._source, value.removeprefix("file://"))
                except (KeyError, InputError):
                    what = f"the variable {brief(name, 60)} names a file that was not read"
                    self._by_hand(what, (*path, "vars", name), "put its text")
            variables[name] = value
        return variables

    def _rendered(self, variables: dict[str, Any], path: DocumentPath) -> dict[str, Any]:
        rendered = {}
        for name, value in variables.items():
            try:
                rendered[name] = fill_in(value, variables)
            except LogicError:
                self._by_hand(f"the variable {brief(name, 60)} is a template that was not filled in", (*path, "vars"))
                rendered[name] = value
        return rendered

    def _is_judged_otherwise(self, test: Mapping[str, Any], path: DocumentPath) -> bool:
        """Return whether a test's assertions cannot be imported, because they see another text than the output."""
        options = mapping(test.get("options"))
        for name in options:
            if name not in _HARMLESS_OPTIONS and name not in ("transform", "postprocess"):
                self._by_hand(f"the option {brief(name, 60)} of a test has no counterpart", (*path, "options", name))
        if finite_number(test.get("threshold")) is not None:
            what = "a test with a threshold passes by its score there, and by each of its checks here"
            self._by_hand(what, (*path, "threshold"), "see whether that is what you mean")
        if test.get("assertScoringFunction") is not None:
            return True  # noted as a member without a counterpart
        transforms = [name for name in ("transform", "postprocess") if options.get(name) is not None]
        for name in transforms:
            what = f"{name} changes the output by code, so the assertions of the test were not imported"
            self._by_hand(what, (*path, "options", name), "take extract in a check")
        return bool(transforms)

    def _assertions(self, test: Mapping[str, Any], path: DocumentPath) -> Iterator[tuple[Any, DocumentPath]]:
        """Yield the assertions of a test, those of sets one by one, with references replaced."""
        for index, assertion in enumerate(listed(test.get("assert"))):
            place = (*path, "assert", index)
            if isinstance(assertion, dict) and isinstance(reference := assertion.get("$ref"), str):
                own = {name: value for name, value in assertion.items() if name != "$ref"}
                template = referred(self._config, reference)
                assertion = {**template, **own} if isinstance(template, dict) else template
            if isinstance(assertion, dict) and assertion.get("type") == "assert-set":
                if assertion.get("threshold") is not None:
                    self._by_hand("an assert-set with a threshold has no counterpart", place, "write its checks")
                    continue
                for number, part in enumerate(listed(assertion.get("assert"))):
                    yield part, (*place, "assert", number)
                continue
            yield assertion, place

    def _check(self, assertion: Any, variables: Mapping[str, Any], path: DocumentPath) -> dict[str, Any] | None:
        if not isinstance(assertion, dict):
            self._by_hand("an assertion that is not a mapping is left out", path)
            return None
        try:
            value = assertion.get("value")
            if isinstance(value, str) and re.match(r"file://.*\.(json|ya?ml|txt)$", value, re.DOTALL):
                value = value_beside(self._source, value.removeprefix("file://"))
            check = check_of({**assertion, **({"value": fill_in(value, variables)} if "value" in assertion else {})})
        except NoCounterpartError as error:
            self._by_hand(str(error), path, error.advice)
            return None
        except LogicError as error:
            self._by_hand(f"the value of {brief(str(assertion.get('type')), 60)} was not imported: {error}", path)
            return None
        except (KeyError, InputError):
            self._by_hand("the value of an assertion is not a file that can be read below the config's folder", path)
            return None
        if assertion.get("provider") is not None:
            self._by_hand("the provider of an assertion has no counterpart", path, "name the judge in judge:")
        self._types.add(check["type"])
        self._checks += 1
        return check


def _is_red_team(config: Mapping[str, Any]) -> bool:
    return isinstance(config.get("redteam"), dict) and any(name in config for name in ("targets", "providers"))


def _record_as_test(source: Source, record: dict[str, Any]) -> dict[str, Any]:
    return record if source.ending in (".jsonl", ".ndjson") else row_as_test(record)


def row_as_test(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the test in a row of CSV: variables, and columns that begin with two underscores."""
    test: dict[str, Any] = {"vars": {}, "assert": [], "metadata": {}}
    limits: dict[int, float] = {}
    for name, cell in row.items():
        key, text = str(name), str(cell).strip()
        if not key.startswith("__"):
            test["vars"][key] = cell
        elif not text:
            continue
        elif key.startswith("__expected"):
            test["assert"].append(assertion_of_cell(text))
        elif key.startswith("__metadata:"):
            field = key.removeprefix("__metadata:")
            parts = [part.strip().replace("\\,", ",") for part in re.split(r"(?<!\\),", text)]
            test["metadata"][field.removesuffix("[]")] = parts if field.endswith("[]") else cell
        elif key == "__threshold":
            test["threshold"] = number_of(text)
        elif key.startswith("__config:") and key.endswith(":threshold"):
            digits = "".join(letter for letter in key.split(":")[1] if letter.isdecimal())
            if (number := number_of(text)) is not None:
                limits[int(digits or 1) - 1] = number
        else:  # __description, or noted as a member without a counterpart
            test.setdefault(key.removeprefix("__"), cell)
    metric = text_or_none(test.pop("metric", None))
    for index, assertion in enumerate(test["assert"]):
        assertion |= {"metric": metric} if metric else {}
        assertion |= {"threshold": limits[index]} if index in limits else {}
    return {name: value for name, value in test.items() if value not in ({}, [], None, "")}


def _with_unique_ids(checks: list[dict[str, Any]], taken: Sequence[str]) -> list[dict[str, Any]]:
    """Return the checks, the second one of an id with a number: several assertions may share a metric."""
    named = iter(unique_names([str(check["id"]) for check in checks if "id" in check], taken))
    return [{**check, "id": next(named)} if "id" in check else check for check in checks]


def _merged(config: Mapping[str, Any], test: Mapping[str, Any]) -> dict[str, Any]:
    """Return a test of a scenario with what its config adds."""
    both = {**config, **test}
    for name in ("vars", "metadata", "options"):
        if name in config or name in test:
            both[name] = {**mapping(config.get(name)), **mapping(test.get(name))}
    asserts = [*listed(config.get("assert")), *listed(test.get("assert"))]
    return {**both, "assert": asserts} if asserts else both
