"""A program that turns the lines of a process into JSON objects: `python -m fepflow.observability.lines PROCESS`.

Marked lines are objects already, see `logs`. Other lines may have any bytes; empty ones are left out.
"""

from __future__ import annotations

import os
import sys

from fepflow.observability.logs import MARK, MAX_LINE, Lines, line_of_text
from fepflow.security.redaction import secrets_among


def objects(line: bytes, mark: bytes, process: str, secrets: frozenset[str]) -> bytes | None:
    """Return the object for a line, with its end; None for an empty line."""
    if line.startswith(mark):
        return line.removeprefix(mark) + b"\n"
    text = line.decode("utf-8", "backslashreplace").strip()
    return line_of_text(text, process, secrets).encode("ascii") + b"\n" if text else None


def main(process: str) -> None:
    """Read stdin to its end."""
    mark, secrets = b"\x1e" + os.environ[MARK].encode("ascii"), secrets_among(os.environ)
    reader = Lines(MAX_LINE + len(mark))

    def write(lines: list[bytes]) -> None:
        left = memoryview(b"".join(filter(None, (objects(line, mark, process, secrets) for line in lines))))
        while left:
            left = left[os.write(1, left) :]

    while chunk := os.read(0, 1 << 16):
        write(reader.take(chunk))
    write(reader.end())


if __name__ == "__main__":
    main(sys.argv[1])
