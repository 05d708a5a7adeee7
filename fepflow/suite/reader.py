"""The reader of suite files, and the folders in which suites, and the files that they read, may be.

It reads section by section, so that all errors are found at once, each with its line. `${NAME}` references are expanded
where they are allowed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from fepflow.documents.files import reason
from fepflow.documents.loader import Document, read_document
from fepflow.documents.messages import did_you_mean, kind_name, validation_messages
from fepflow.errors import DocumentPath, InputError, Problem, UserError, dotted
from fepflow.jsonpath.path import descend
from fepflow.protocol.check import Check, checks_in_full
from fepflow.protocol.test_case import TestCase, case_in_full
from fepflow.settings import SUITE_VARIABLES, settings
from fepflow.suite import foreign_names
from fepflow.suite.env_vars import Reference, expand, holds_a_literal_secret
from fepflow.suite.models import OWN_CHECKS, Dataset, Metric, Suite
from fepflow.suite.variants import Replacement, combinations, problems_of_variants, with_replacements, with_variant
from fepflow.text import brief

SPELLED_OUT = 20
"""Errors of one kind, in one section, that are listed one by one."""


@dataclass(frozen=True)
class LoadedSuite:
    """A suite as read: validated sections, and the document for the lines of later errors.

    `sections` has every top-level section that is valid by itself; `suite` is set if all are. `snapshot` is the
    document for the store, with its `${NAME}` references unexpanded; `secrets` are the values that must never be shown.
    """

    document: Document
    folder: Path
    snapshot: dict[str, Any]
    sections: dict[str, Any]
    problems: list[Problem]
    secrets: frozenset[str] = field(repr=False, default=frozenset())
    suite: Suite | None = None
    variants: Sequence[LoadedSuite] = ()
    """The suites of all combinations, if the document has variants; this one is then the first of them."""

    def section(self, name: str) -> Any:
        """Return a valid section's value, its default if it is left out, or None if it is not valid."""
        if name in self.sections:
            return self.sections[name]
        info = Suite.model_fields[name]
        return None if name in self.snapshot or info.is_required() else info.get_default(call_default_factory=True)

    def changed(self, snapshot: dict[str, Any], sections: Mapping[str, Any]) -> LoadedSuite:
        """Return the suite with other valid sections, and a matching snapshot."""
        suite = self.suite and self.suite.model_copy(update=dict(sections))
        return replace(self, snapshot=snapshot, sections={**self.sections, **sections}, suite=suite)


def load_suite(
    path: Path, env: Mapping[str, str] = SUITE_VARIABLES, replacements: Sequence[Replacement] = ()
) -> LoadedSuite:
    """Read a suite file, or an ECP manifest as a suite, with some of its values replaced.

    Raises InputError if it is not a document, or lacks the place of a replacement; other errors are in `problems`.
    """
    document, folder = with_replacements(read_document(path), replacements), path.resolve().parent
    if is_manifest(document.data):
        return _load_manifest(document, folder, env)
    return _load_variants(document, folder, env) if isinstance(document.data, dict) else read_suite(document, folder)


def _load_variants(document: Document, folder: Path, env: Mapping[str, str]) -> LoadedSuite:
    """Return the suite. If it has variants, return its first combination, with all combinations in `variants`."""
    problems = problems_of_variants(document)
    if problems:
        rest = {name: section for name, section in document.data.items() if name not in ("variants", "variant")}
        loaded = read_suite(replace(document, data=rest), folder, env)
        # References that have no value make more errors in the target.
        others = [problem for problem in loaded.problems if not (problem.path or "").startswith("target")]
        return replace(loaded, problems=[*problems, *others], suite=None)
    if "variants" not in document.data:
        return read_suite(document, folder, env)
    of_variants = (with_variant(document, variant) for variant in combinations(document.data["variants"]))
    suites = [read_suite(of_variant, folder, env) for of_variant in of_variants]
    return replace(suites[0], variants=suites)


def is_manifest(data: Any) -> bool:
    """Return whether a document is an ECP manifest."""
    if not isinstance(data, dict):
        return False
    return "manifest_version" in data or ("scenarios" in data and isinstance(data.get("target"), str))


def _load_manifest(document: Document, folder: Path, env: Mapping[str, str]) -> LoadedSuite:
    from fepflow.suite.manifest import suite_of_manifest  # most suites are not manifests

    suite, problems = suite_of_manifest(document, folder, env)
    loaded = read_suite(suite, folder, env)
    # If a manifest has errors, sections may be missing: its own errors tell that already.
    problems += [problem for problem in loaded.problems if problem.path is not None]
    errors = [problem for problem in problems if problem.severity == "error" and not problem.is_confined]
    return replace(loaded, problems=problems, suite=None if errors else loaded.suite)


def read_suite(document: Document, folder: Path, env: Mapping[str, str] = SUITE_VARIABLES) -> LoadedSuite:
    """Validate a suite document, each section by itself. Files that it names are not read yet."""
    if isinstance(document.data, dict):
        document = _in_full(document)
    raw = document.data
    if not isinstance(raw, dict):
        what = "is empty" if raw is None else f"holds {kind_name(raw)}"
        advice = "start one with `fepflow init`"
        raise InputError(
            Problem(f"{what}, but a suite is a mapping with name, target, ...", document.file, advice=advice)
        )
    problems = list(_unknown_sections(document, raw))
    expanded, references = _expand_references(raw, env)
    problems += holds_a_literal_secret(document)
    sections: dict[str, Any] = {}
    for name, info in Suite.model_fields.items():
        if name in raw:
            _read_section(document, name, expanded[name], info.rebuild_annotation(), sections, problems)
        elif info.is_required():
            problems.append(document.problem((), f"{name} is missing", _MISSING_ADVICE.get(name)))
    _add_own_check(document, sections, problems)
    missing = [reference for reference in references if reference.missing]
    for reference in missing:
        sections.pop(str(reference.path[0]), None)
    places = {dotted(reference.path) for reference in missing}  # an error there follows from the missing value
    others = [problem for problem in problems if problem.path not in places]
    problems = [*_problems_of_references(document, missing), *others]
    errors = [problem for problem in problems if problem.severity == "error"]
    unknown = any(reference.unavailable for reference in references)
    suite = None if errors or unknown else Suite.model_construct(**sections)
    secrets = frozenset(reference.value for reference in references if reference.secret and len(reference.value) > 3)
    return LoadedSuite(document, folder, raw, sections, problems, secrets, suite)


def _in_full(document: Document) -> Document:
    """Return the document with all checks in full. Errors keep their places in the text."""
    full = checks_in_full(document.data)
    if isinstance(full.get("test_cases"), list):
        full = {**full, "test_cases": [case_in_full(case) for case in full["test_cases"]]}
    return document if full == document.data else replace(document, data=full, as_written=partial(_beside, document))


def _beside(document: Document, path: DocumentPath) -> DocumentPath:
    """Return the path of an argument without `arguments` if it is beside the type of its check."""
    written: list[str | int] = []
    part = document.data
    for number, step in enumerate(path):
        if step == "arguments" and isinstance(part, dict) and "type" in part:
            arguments, name = part.get("arguments"), path[number + 1 : number + 2]
            in_arguments = isinstance(arguments, dict) and (not name or name[0] in arguments)
            if not in_arguments and (arguments is None or (name and name[0] in part)):
                continue
        written.append(step)
        try:
            part = part[step]
        except (KeyError, IndexError, TypeError):
            part = None
    return document.as_written(tuple(written))


def read_snapshot(
    snapshot: dict[str, Any], path: str | None, name: str, env: Mapping[str, str] = SUITE_VARIABLES
) -> LoadedSuite:
    """Return the stored suite of a run. `path` is the suite's file; without it, `name` is shown."""
    folder = Path(path).parent if path else Path.cwd()
    return read_suite(Document(snapshot, path or name, ""), folder, env)


_MISSING_ADVICE = {
    "name": "add name: what the suite is about",
    "target": "add target: with http:, openai:, python:, ecp:, a2a:, mcp: or recorded:",
    "test_cases": "add test_cases: a file or a list",
}

_LITERAL_SECTIONS = ("checks", "judge", "embedding", "user", "metrics", "gate", "variant")
"""Sections in which `${NAME}` stays as it is: a value would end up in resolved arguments, or in the names of runs."""


def _expand_references(raw: dict[str, Any], env: Mapping[str, str]) -> tuple[dict[str, Any], list[Reference]]:
    references: list[Reference] = []
    expanded = {}
    for name, value in raw.items():
        inline_cases = name == "test_cases" and isinstance(value, list)
        if name in _LITERAL_SECTIONS or inline_cases:
            expanded[name] = value
        else:
            expanded[name] = expand(value, (name,), env, references)
    return expanded, references


def _problems_of_references(document: Document, missing: Sequence[Reference]) -> Iterator[Problem]:
    """Yield an error for each reference without a value, and a warning for each whose value is not known here."""
    distinct = {(reference.path, reference.name): reference for reference in missing}
    for reference in islice(distinct.values(), SPELLED_OUT):
        problem = document.problem(reference.path, *reference.problem)
        yield replace(problem, severity="warning") if reference.unavailable else problem


def _unknown_sections(document: Document, raw: dict[str, Any]) -> Sequence[Problem]:
    known = list(Suite.model_fields)
    unknown = [name for name in raw if name not in known]
    problems = [
        document.problem(
            (name,), f"{brief(name, 60)} is not a section of a suite", did_you_mean(name, known, foreign_names.SUITE)
        )
        for name in unknown[:SPELLED_OUT]
    ]
    if len(unknown) > SPELLED_OUT:
        problems.append(document.problem((), f"{len(unknown) - SPELLED_OUT:,} more sections are not known"))
    return problems


def _read_section(
    document: Document,
    name: str,
    value: Any,
    annotation: Any,
    sections: dict[str, Any],
    problems: list[Problem],
) -> None:
    if name in ("checks", "metrics") and isinstance(value, list):
        _read_items(document, name, value, Check if name == "checks" else Metric, sections, problems)
        return
    if name == "test_cases" and not isinstance(value, str | dict | list):
        problems.append(document.problem((name,), "must be a file, a mapping with path, or a list"))
        return
    if name == "test_cases":
        value = list(map(foreign_names.with_our_names, value)) if isinstance(value, list) else value
        annotation = str if isinstance(value, str) else Dataset if isinstance(value, dict) else list[TestCase]
    elif name == "thresholds" and isinstance(value, dict):
        annotation = dict[str, Any]
    try:
        sections[name] = TypeAdapter(annotation).validate_python(value, strict=True)
    except ValidationError as error:
        problems += _problems_of(document, (name,), value, error, annotation)


def _read_items(
    document: Document,
    name: str,
    items: list[Any],
    model: type[Check] | type[Metric],
    sections: dict[str, Any],
    problems: list[Problem],
) -> None:
    """Read item by item, so that an error in one item does not hide those of the next."""
    valid: list[Any] = []
    for index, item in enumerate(items):
        try:
            valid.append(model.model_validate(item))
        except ValidationError as error:
            problems += _problems_of(document, (name, index), item, error, model)
            valid.append(None)
    sections[name] = valid


def _add_own_check(document: Document, sections: dict[str, Any], problems: list[Problem]) -> None:
    """Add fepflow's own check of a target's kind after those of the suite."""
    target, checks = sections.get("target"), sections.get("checks", [])
    own = next((check for kind, check in OWN_CHECKS.items() if getattr(target, kind, None) is not None), None)
    if own is None:
        return
    for index, check in enumerate(checks):
        if check is not None and check.id == own.id:
            what = "that all steps were answered" if own.id == "completed" else "that no tool answered with an error"
            message = f"fepflow has its own check {own.id}: {what}"
            problems.append(document.problem(("checks", index, "id"), message, "choose another id"))
            return
    sections["checks"] = [*checks, own]


def _problems_of(
    document: Document, prefix: DocumentPath, value: Any, error: ValidationError, annotation: Any
) -> list[Problem]:
    elsewhere = foreign_names.DATASET if annotation is Dataset else _ELSEWHERE.get(str(prefix[0]))
    messages = validation_messages(value, error, annotation, elsewhere)
    without_input = {item.path[:-1] for item in messages if item.path[-1:] == ("input",)}
    messages = foreign_names.with_types_named(value, messages, is_check=prefix[:1] == ("checks",))
    if prefix == ("test_cases",):  # a case without an input has no id made of its content, either
        made_of_it = [(*location, "id") for location in without_input]
        messages = [item for item in messages if not (item.message == "is missing" and item.path in made_of_it)]
    problems = []
    for item in messages[:SPELLED_OUT]:
        advice = item.advice or _advice_for(*prefix, *item.path, value=descend(value, item.path)[1])
        problems.append(document.problem((*prefix, *item.path), item.message, advice))
    return problems


def _advice_for(section: str | int, *inside: str | int, value: Any) -> str | None:
    """Return advice about another tool's short form. No value of a target is quoted."""
    if section == "target" and inside == ("openai",) and isinstance(value, str):
        return "write target: {openai: {model: ...}}"
    if section == "target" and inside in ((), ("a2a",)) and isinstance(value, str):
        if inside or "agent-card" in value or "/.well-known/agent" in value:
            return "write target: {a2a: {card: ...}}"
        if "://" in value:
            return "write target: {http: {url: ...}}"
        return "write target: {openai: {model: ...}}" if "/" in value else "write target: {python: ...}, or http:, ecp:"
    if section == "target" and inside in (("mcp", "env"), ("ecp", "env")) and isinstance(value, dict):
        return "env lists names: the process gets those variables of fepflow's own environment"
    if section == "gate" and not inside and isinstance(value, int | float):
        return f"write gate: {{min: {{METRIC: {value:g}}}}}"
    if section == "checks" and len(inside) == 1 and isinstance(value, str):
        return f"write {{type: {brief(value, 60)}, ...}}, with the arguments beside the type"
    if section == "checks" and not inside and isinstance(value, dict):
        return "write a dash before each check"
    return None


_ELSEWHERE = {"checks": foreign_names.CHECK, "test_cases": foreign_names.TEST_CASE, "target": foreign_names.TARGET}


def name_of(path: str) -> str:
    """Return the name of the suite in a file; the file's name if it cannot be read."""
    try:
        data = read_document(Path(path)).data
    except InputError:
        data = None
    name = data.get("name") if isinstance(data, dict) else None
    return name if isinstance(name, str) and name else Path(path).stem


_SHIPPED = (Path(__file__).parents[1] / "deployments" / "suites").resolve()
"""The suites that come with fepflow: the operator who installed it has named them."""


def allow_below(folders: Iterable[Path]) -> None:
    """Note folders in which deployments of this machine may evaluate suites, for good."""
    from filelock import FileLock  # loaded only where a folder is added

    config = settings()
    config.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    with FileLock(config.home / "suite-roots.lock", timeout=10, mode=0o600):
        noted = _noted()
        new = [folder for folder in dict.fromkeys(folder.resolve() for folder in folders) if folder not in noted]
        descriptor = os.open(config.suite_roots_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.writelines(f"{folder}\n" for folder in new)


def require_allowed(suite: Path) -> None:
    """Raise UserError for a suite outside of the folders that the operator has named; links are followed first.

    Everyone who may create runs in Prefect can name a suite, and a suite runs code. The operator names folders in
    FEPFLOW_SUITE_ROOTS, by `fepflow serve` (the working directory, and what its prefect.yaml deploys), and by
    `fepflow schedule`.
    """
    location = suite.resolve()
    if not any(location.is_relative_to(root) for root in [_SHIPPED, *settings().allowed_suite_roots, *_noted()]):
        raise UserError(
            f"{suite}: a deployment evaluates suites below folders that the operator has named, and this one is not: "
            "list its folder in FEPFLOW_SUITE_ROOTS where the worker runs, or schedule it there with `fepflow schedule`"
        )


def _noted() -> list[Path]:
    try:
        return [Path(line) for line in settings().suite_roots_file.read_text(encoding="utf-8").splitlines()]
    except OSError:
        return []


def resolve_inside(loaded_folder: Path, path: str, roots: Sequence[Path]) -> Path:
    """Return `path` in a suite in `loaded_folder`, with links resolved. Raises ValueError if it leads elsewhere.

    A suite may read in its own folder and in `roots` (the operator's FEPFLOW_DATA_ROOTS).
    """
    folder = loaded_folder.resolve()
    try:
        resolved = (folder / path).resolve()
    except (OSError, RuntimeError) as error:  # RuntimeError: a link that leads to itself
        raise ValueError(f"is a path that cannot be followed: {reason(error)}") from None
    if not any(resolved.is_relative_to(root) for root in (folder, *roots)):
        raise ValueError("leads out of the suite's folder; move the file, or list its folder in FEPFLOW_DATA_ROOTS")
    return resolved
