"""What is wrong with a file of many records, collected and not raised at once."""

from __future__ import annotations

from fepflow.errors import InputError, Problem

SPELLED_OUT = 20
MAX_ERRORS = 10_000
"""Mistakes after which a file is read no further."""


class ErrorCollector:
    """What is wrong with one file: the first 20 mistakes, and how many more there are."""

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
        """Take note of all mistakes that were collected elsewhere."""
        for problem in others._first:
            self.add_problem(problem)
        self._more += others._more

    @property
    def are_enough(self) -> bool:
        """Whether there is no use in reading on."""
        return self._more >= MAX_ERRORS

    def add(self, message: str, line: int | None = None, path: str | None = None, advice: str | None = None) -> None:
        """Take note of a mistake."""
        self.add_problem(Problem(message, self.file, line, path, advice))

    def add_problem(self, problem: Problem) -> None:
        """Take note of a mistake that is worded already."""
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
