"""Test cases that wait on disk: a suite may have more of them than memory should hold."""

from __future__ import annotations

import weakref
from array import array
from collections.abc import Collection, Iterable, Iterator
from tempfile import SpooledTemporaryFile

from fepflow.json.codec import decode, encode
from fepflow.protocol.test_case import TestCase

_IN_MEMORY = 4_000_000
_READ_AT_ONCE = 100_000


class CasesOnDisk(Collection[TestCase]):
    """Test cases in the order in which they were added; up to 4 MB of them stay in memory.

    The file has no name, belongs to this object, and goes with it. Not for use by several threads at once.
    """

    def __init__(self, cases: Iterable[TestCase] = ()) -> None:
        self._file = SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115  # closed with this object
        weakref.finalize(self, self._file.close)
        self._count = self._end = 0
        self._with_checks = array("Q")
        """Numbers and positions of the cases that carry checks, in turn."""

        self._lines = array("Q")
        self.has_conversations = False
        for case in cases:
            self.add(case)

    def add(self, case: TestCase, line: int = 0) -> None:
        """Add a case at the end; `line` is its line in a file, 0 without one.

        Raises NotJsonError, without a change, if the case has no JSON form.
        """
        written = encode(case.model_dump()).encode("ascii") + b"\n"
        if case.checks:
            self._with_checks.extend((self._count, self._end))
        self.has_conversations |= case.is_conversation
        self._lines.append(line)
        self._file.seek(self._end)
        self._end += self._file.write(written)
        self._count += 1

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[TestCase]:
        position = 0
        while position < self._end:
            # There may be other readers: each goes on where it was.
            self._file.seek(position)
            lines = self._file.readlines(_READ_AT_ONCE)
            position = self._file.tell()
            yield from map(_read, lines)

    def __contains__(self, case: object) -> bool:
        return any(case == mine for mine in self)

    def with_lines(self) -> Iterator[tuple[TestCase, int | None]]:
        """Yield all cases, each with its line in its file, counted from 1; None for those of a suite."""
        yield from zip(self, (line or None for line in self._lines), strict=True)

    def with_checks(self) -> Iterator[TestCase]:
        """Yield the cases that carry checks."""
        yield from (case for case, _ in self.with_checks_and_lines())

    def with_checks_and_lines(self) -> Iterator[tuple[TestCase, int | None]]:
        """Yield the cases that carry checks, each with its line in its file, counted from 1."""
        for number, position in zip(self._with_checks[::2], self._with_checks[1::2], strict=True):
            self._file.seek(position)
            yield _read(self._file.readline()), self._lines[number] or None


def _read(line: bytes) -> TestCase:
    return TestCase.trusted(decode(line.decode("ascii")))
