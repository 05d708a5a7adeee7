"""Code of users is free of type errors, also without pydantic's plugin for mypy, as editors read it."""

from __future__ import annotations

from pathlib import Path

import pytest
from mypy import api

import fepflow

USER_CODE = Path(__file__).with_name("user_code.py")
PROJECT = Path(fepflow.__file__).parents[1]

# Errors in ours are not a user's; `make check` tells those. Nothing of these libraries is in the types that users see.
CONFIGURATION = """
[mypy]
strict = True
follow_imports = silent
explicit_package_bases = True
[mypy-prefect.*,litellm.*,sqlalchemy.*,sqlmodel.*,numpy.*,aiohttp.*]
follow_imports = skip
"""


@pytest.mark.battery
def test_user_code_has_no_type_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mistakes = [
        'ContainsCheck(text="Paris", phrases=3)',
        "evaluate(cases, outputs, [cases[0]])",
    ]
    (tmp_path / "user_code.py").write_text("\n".join([USER_CODE.read_text(), *mistakes, ""]))
    (tmp_path / "mypy.ini").write_text(CONFIGURATION)
    monkeypatch.setenv("MYPYPATH", str(PROJECT))
    monkeypatch.chdir(tmp_path)
    told, trouble, _ = api.run(["user_code.py", "--config-file", "mypy.ini", "--cache-dir", "cache"])
    assert trouble == ""
    *errors, wrong_argument, no_check = [line for line in told.splitlines() if ": error: " in line]
    assert errors == []
    assert 'Argument "phrases" to "ContainsCheck" has incompatible type "int"' in wrong_argument
    assert 'List item 0 has incompatible type "TestCase"' in no_check


def test_the_package_says_that_it_has_types() -> None:
    assert (PROJECT / "fepflow" / "py.typed").is_file()
