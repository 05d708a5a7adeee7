"""Errors of a file of many records, collected and raised together."""

from __future__ import annotations

from fepflow.errors import InputError, Problem

SPELLED_OUT = 20
MAX_ERRORS = 10_000
"""Errors after which a file is read no further."""


class ErrorCollector:
    """Errors of one file: the first 20, and how many more there are."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._first: list[Problem] = []
        self._more = 0

    def __len__(self) -> int:
        return len(self._first) + self._more

    @property
    def first(self) -> Problem:
        """The first one; there is one."""
        return self._first[0]

    def take(self, others: ErrorCollector) -> None:
        """Add all errors that were collected elsewhere."""
        for problem in others._first:
            self.add_problem(problem)
        self._more += others._more

    @property
    def are_enough(self) -> bool:
        """Whether there are so many that reading stops."""
        return self._more >= MAX_ERRORS

    def add(self, message: str, line: int | None = None, path: str | None = None, advice: str | None = None) -> None:
        """Add an error."""
        self.add_problem(Problem(message, self.file, line, path, advice))

    def add_problem(self, problem: Problem) -> None:
        """Add an error that is a Problem already."""
        if len(self._first) < SPELLED_OUT:
            self._first.append(problem)
        else:
            self._more += 1

    def raise_if_any(self) -> None:
        """Raises InputError with all of them."""
        if self._first:
            more = f"... and {self._more:,} more" + (", and no more was read" if self.are_enough else "")
            rest = [Problem(more, self.file)] if self._more else []
            raise InputError([*self._first, *rest])
