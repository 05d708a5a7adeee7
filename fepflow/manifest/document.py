"""The suite that a manifest becomes, as a document whose errors name the places of the manifest."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from fepflow.documents.loader import Document
from fepflow.errors import DocumentPath, Problem


@dataclass(frozen=True)
class SuiteDocument(Document):
    """`data` is the suite, `text` that of the manifest; `origins` says what of the suite comes from where in it.

    `faulty_checks` are those of graders whose errors are told already: indices of checks by that of their test case.
    """

    origins: Mapping[DocumentPath, DocumentPath] = field(default_factory=dict)
    faulty_checks: Mapping[int, Collection[int]] = field(default_factory=dict)

    def line_of(self, path: DocumentPath) -> int | None:
        """The line of the manifest that a part of the suite comes from."""
        return super().line_of(self._origin(path))

    def problem(self, path: DocumentPath, message: str, advice: str | None = None) -> Problem:
        """An error at a part of the suite, where it comes from."""
        return super().problem(self._origin(path), message, advice)

    def _origin(self, path: DocumentPath) -> DocumentPath:
        for length in range(len(path), 0, -1):
            if (origin := self.origins.get(path[:length])) is not None:
                return (*origin, *path[length:])
        return path
