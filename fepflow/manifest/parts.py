"""Reading the parts of a manifest field by field, so that one error hides no other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from fepflow.documents.did_you_mean import did_you_mean
from fepflow.documents.loader import Document
from fepflow.documents.validation_errors import validation_messages
from fepflow.errors import DocumentPath, Problem
from fepflow.suite.values import Section
from fepflow.text import brief


@dataclass
class PartsReader:
    """Reads parts of a manifest and takes note of what is wrong with them.

    Unknown keys are errors, or warnings where the manifest is read leniently.
    """

    document: Document
    is_lenient: bool
    problems: list[Problem] = field(default_factory=list)

    def error(self, path: DocumentPath, message: str, advice: str | None = None, *, is_confined: bool = False) -> None:
        """Take note of an error; the manifest is run without what it `is_confined` to."""
        self.problems.append(replace(self.document.problem(path, message, advice), is_confined=is_confined))

    def warn(self, path: DocumentPath, message: str, advice: str | None = None) -> None:
        """Take note of something that the manifest can be run with."""
        self.problems.append(replace(self.document.problem(path, message, advice), severity="warning"))

    def fields(
        self, part: type[Section], given: Any, path: DocumentPath, *, is_confined: bool = False
    ) -> dict[str, Any]:
        """Return the valid fields of a part at `path`, by name, with the default of one that is left out.

        Errors are confined to the part if it `is_confined`, but for unknown keys, which may be misspelt anywhere.
        """
        if not isinstance(given, dict):
            self.error(path, "must be a mapping", is_confined=is_confined)
            return {}
        self._note_unknown(part, given, path)
        valid: dict[str, Any] = {}
        for name, info in part.model_fields.items():
            if name in given:
                self._read(part, name, given, path, valid, is_confined=is_confined)
            elif info.is_required():
                self.error(path, f"{name} is missing", "add it", is_confined=is_confined)
            else:
                valid[name] = info.get_default(call_default_factory=True)
        return valid

    def _read(
        self,
        part: type[Section],
        name: str,
        given: Mapping[str, Any],
        path: DocumentPath,
        valid: dict[str, Any],
        *,
        is_confined: bool,
    ) -> None:
        try:
            valid[name] = _adapter(part, name).validate_python(given[name], strict=True)
        except ValidationError as error:
            for item in validation_messages(given[name], error):
                self.error((*path, name, *item.path), item.message, item.advice, is_confined=is_confined)

    def _note_unknown(self, part: type[Section], given: Mapping[str, Any], path: DocumentPath) -> None:
        known = list(part.model_fields)
        note = self.warn if self.is_lenient else self.error
        for name in given:
            if name not in known:
                note((*path, name), f"{brief(name, 60)} is not known here", did_you_mean(name, known))


@cache
def _adapter(part: type[Section], name: str) -> TypeAdapter[Any]:
    return TypeAdapter(part.model_fields[name].rebuild_annotation())
