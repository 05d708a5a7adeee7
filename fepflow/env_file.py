"""Files of variables, such as `.env`."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

ENV_FILE = ".env"
MAX_ENV_BYTES = 100_000


def read_env_file(path: Path) -> dict[str, str]:
    """The variables of a file, those that an environment can hold; none where there is no file.

    Raises InputError for a file that cannot be read.
    """
    if not path.exists():
        return {}
    from dotenv import dotenv_values  # most folders have none

    from fepflow.documents.loader import read_text

    found = dotenv_values(stream=StringIO(read_text(path, str(path), MAX_ENV_BYTES)))
    return {name: value for name, value in found.items() if value is not None and "\0" not in value}
