"""Evaluations as pytest tests: what is loaded for them, and into other sessions."""

from __future__ import annotations

import pytest

from tests.fepflow.pytest.pytest_project import Project, text_of


def test_evaluations_need_neither_prefect_nor_without_the_option_a_store(project: Project) -> None:
    project.pytester.makeconftest(
        "import sys\ndef pytest_sessionfinish():\n"
        "    print('loaded', sorted({'prefect', 'litellm', 'sqlalchemy'} & set(sys.modules)))\n"
    )
    code = """
    @evaluate(CASES, CHECKS)
    async def test_capitals(test_case):
        return test_case.expected
    """
    assert "loaded []" in text_of(project.run_alone(code, "-s"))
    kept = project.run_alone(code, "-s", f"--fepflow-store=sqlite:///{project.folder / 'results.db'}")
    kept.assert_outcomes(passed=1)
    assert "loaded ['sqlalchemy']" in text_of(kept)


@pytest.mark.battery
def test_the_installed_plugin_loads_nothing_into_other_sessions(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_one():\n    pass\n")
    pytester.makeconftest(
        "import sys\ndef pytest_sessionfinish():\n"
        "    ours = ('fepflow', 'pydantic')\n"
        "    print('loaded', sorted(name for name in sys.modules if name.partition('.')[0] in ours))\n"
    )
    others = ("asyncio", "anyio", "hypothesispytest", "schemathesis")
    result = pytester.runpytest_subprocess("-s", *(f"-pno:{name}" for name in others))
    result.assert_outcomes(passed=1)
    assert "loaded ['fepflow', 'fepflow.pytest', 'fepflow.pytest.plugin']" in text_of(result)
