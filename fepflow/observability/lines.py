"""Makes an object of each line that comes: `python -m fepflow.observability.lines PROCESS`, see `logs`.

Marked lines are objects already. Lines of others may hold any bytes; empty ones are left out. Of a line that is too
long only the beginning is read: shown in parts, a secret could be cut in two, and neither half would be found.
"""

from __future__ import annotations

import os
import sys

from fepflow.observability.logs import MARK, MAX_LINE, line_of_text
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
    rest, too_long = b"", False
    while chunk := os.read(0, 1 << 16):
        *lines, rest = (rest + chunk).split(b"\n")
        if too_long and lines:
            del lines[0]
            too_long = False
        if too_long:
            rest = b""
        elif len(rest) > MAX_LINE + len(mark):
            lines, rest, too_long = [*lines, rest], b"", True
        _write(b"".join(filter(None, (objects(line, mark, process, secrets) for line in lines))))
    _write(objects(rest, mark, process, secrets) or b"")


def _write(data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(1, left) :]


if __name__ == "__main__":
    main(sys.argv[1])
