"""The code of an agent: where it is found, that suites do not share it, and what is wrong with it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from fepflow.calls.base import output_hash
from fepflow.calls.factory import open_target
from fepflow.errors import InputError
from fepflow.suite.target import Target

from .conftest import CASE, Ask, Open, value_of

pytestmark = pytest.mark.may_stall(reason="runs open targets in a thread, which tests do not")


async def test_two_suites_in_one_process_each_have_their_own_modules(open_agent: Open, tmp_path: Path) -> None:
    code = "import helpers\ndef answer(q):\n    import late\n    return [helpers.NAME, late.NAME]\n"
    callers = {}
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        for module in ("helpers", "late"):
            (tmp_path / name / f"{module}.py").write_text(f"NAME = {name!r}\n")
        callers[name] = open_agent(code, folder=tmp_path / name)[1]
    for name in ("one", "two", "one", "two"):
        assert value_of(await callers[name].ask(CASE)) == [name, name]


async def test_a_file_that_has_changed_is_loaded_again(ask: Ask, tmp_path: Path) -> None:
    code = "from helpers import N\ndef answer(q):\n    return N\n"
    for number in (1, 22, 333):
        (tmp_path / "helpers.py").write_text(f"N = {number}\n")
        assert value_of(await ask(code)) == number


async def test_the_content_hash_follows_the_code_and_what_it_imports(open_agent: Open, tmp_path: Path) -> None:
    def hash_of(code: str, **options: Any) -> str:
        return output_hash(open_agent(code, **options)[0], CASE, 0)

    code = "import helpers\ndef answer(q):\n    return helpers.N\n"
    (tmp_path / "helpers.py").write_text("N = 1\n")
    first = hash_of(code)
    assert hash_of(code) == first == hash_of(code, isolate="process")
    assert hash_of(code + "# changed\n") != first
    assert hash_of(code, input="$.test_case.id") != first
    (tmp_path / "helpers.py").write_text("N = 22\n")
    assert hash_of(code) != first


async def test_a_function_of_a_package_is_found_beside_the_suite_and_among_what_is_installed(
    ask: Ask, tmp_path: Path
) -> None:
    (tmp_path / "shop" / "bots").mkdir(parents=True)
    (tmp_path / "shop" / "__init__.py").touch()
    (tmp_path / "shop" / "names.py").write_text("NAME = 'shop'\n")
    (tmp_path / "shop" / "bots" / "refunds.py").write_text(
        "from shop.names import NAME\ndef answer(q):\n    return NAME\n"
    )
    for isolate in ("thread", "process"):
        assert value_of(await ask("", "shop.bots.refunds:answer", isolate=isolate)) == "shop"
    assert value_of(await ask("", "textwrap:dedent")) == CASE.input


UNUSABLE = [
    ("def answer(q)\n    pass", "agent.py:answer", r"agent\.py:1: is not valid Python: expected ':'"),
    ("import no_such_thing", "agent.py:answer", r"agent\.py:1: cannot be loaded: ModuleNotFoundError.*install it"),
    ("import sys\nsys.exit(4)", "agent.py:answer", r"agent\.py:2: cannot be loaded: SystemExit: 4"),
    ("def answre(q): pass", "agent.py:answer", r"there is no answer in agent \(did you mean answre\?\)"),
    ("x = 1\nraise ValueError('late')", "agent.py:answer", r"agent\.py:2: cannot be loaded: ValueError: late"),
    ("answer = 5", "agent.py:answer", r"answer is not a function, but a int"),
    ("def answer(): pass", "agent.py:answer", r"agent\.py:1: answer\(\) cannot be called with"),
    ("\ndef answer(a, b): pass", "agent.py:answer", r"agent\.py:2: answer\(a, b\).*missing.*'b'.*arguments"),
    ("def answer(*, q): pass", "agent.py:answer", r"cannot be called"),
    ("class answer: pass", "agent.py:answer", r"agent\.py:1: answer is a class without __call__ \(name one of"),
    ("class answer:\n  def __init__(self, x): pass\n  def __call__(self, q): pass", "agent.py:answer", "defaults"),
    ("", "other.py:answer", r"target\.python\.function: there is no file other\.py"),
    ("", "../agent.py:answer", r"leads out of the suite's folder"),
    ("", "no.such.module:answer", r"there is no module no\.such\.module"),
]  # fmt: skip
"""Code, its function, and what is wrong with it. A process finds the same by the same code: the first four show it."""


@pytest.mark.parametrize(
    ("code", "function", "says", "isolate"),
    [
        *((*row, "thread") for row in UNUSABLE),
        *((*row, isolate) for row in UNUSABLE[:4] for isolate in ("process", "interpreter")),
    ],
)
def test_code_that_cannot_be_called_is_refused_before_any_call(
    tmp_path: Path, code: str, function: str, says: str, isolate: str, request: pytest.FixtureRequest
) -> None:
    (tmp_path / "agent.py").write_text(code)
    where = {"isolate": isolate}
    if isolate == "interpreter":
        where = {"interpreter": str(request.getfixturevalue("own_python"))}
    config = Target.model_validate({"python": {"function": function, **where}})
    with pytest.raises(InputError, match=says):
        open_target(config, folder=tmp_path, case_ids=list)


@pytest.mark.parametrize("isolate", ["thread", "process"])
def test_a_module_may_have_the_name_of_one_of_ours_and_a_file_beside_it_that_of_any(
    tmp_path: Path, isolate: str
) -> None:
    (tmp_path / "tasks.py").write_text("NAME = 'mine'\n")
    (tmp_path / "email.py").write_text("OWN = 'mail'\n")
    (tmp_path / "agent.py").write_text(
        "import email, tasks\n"
        "def answer(q, test_case):\n    return tasks.NAME + test_case.id + getattr(email, 'OWN', '')\n"
    )

    async def answer() -> Any:
        config = Target.model_validate({"python": {"function": "agent.py:answer", "isolate": isolate}, "timeout": 60})
        target = open_target(config, folder=tmp_path, case_ids=list)
        try:
            return (await target.call(target.render(CASE))).value
        finally:
            await target.aclose()

    # In a thread, the standard library's is loaded already.
    assert asyncio.run(answer()) == ("minec1mail" if isolate == "process" else "minec1")
