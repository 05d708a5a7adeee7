import os

import pytest

from fepflow.checks.registry import find_check, list_checks, load_plugin
from fepflow.errors import InputError

GOOD = """
from fepflow.checks.base import BaseCheck
from fepflow.checks.registry import register


@register("{name}")
class {title}(BaseCheck):
    def __call__(self):
        return {{"passed": {passed}}}
"""


@pytest.fixture
def plugin(tmp_path):
    def write(text, name="my_checks.py"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


def problem_of(path):
    with pytest.raises(InputError) as caught:
        load_plugin(path, "suites/my_checks.py")
    (problem,) = caught.value.problems
    assert problem.file == "suites/my_checks.py"
    return problem


def test_a_plugin_registers_its_checks(plugin):
    load_plugin(plugin(GOOD.format(name="polite", title="Polite", passed=True)), "my_checks.py")
    assert find_check("polite")()() == {"passed": True}


def test_a_plugin_is_run_once_and_again_when_it_has_changed(plugin):
    path = plugin(GOOD.format(name="polite", title="Polite", passed=True))
    load_plugin(path, "my_checks.py")
    first = find_check("polite")
    load_plugin(path, "my_checks.py")
    assert find_check("polite") is first

    plugin(GOOD.format(name="polite", title="Polite", passed=False))
    os.utime(path, (0, 0))
    load_plugin(path, "my_checks.py")
    assert find_check("polite")()() == {"passed": False}


def test_files_of_the_same_name_are_different_plugins(tmp_path, plugin):
    (tmp_path / "other").mkdir()
    load_plugin(plugin(GOOD.format(name="polite", title="Polite", passed=True)), "a")
    load_plugin(plugin(GOOD.format(name="brief", title="Brief", passed=True), "other/my_checks.py"), "b")
    assert {"polite", "brief"} <= set(list_checks())


def test_a_syntax_error_has_its_line(plugin):
    problem = problem_of(plugin("x = 1\ndef broken(:\n"))
    assert problem.line == 2
    assert "is not valid Python" in problem.message


def test_an_import_error_has_its_line(plugin):
    problem = problem_of(plugin("import json\n\nimport a_package_that_nobody_has\n"))
    assert problem.line == 3
    assert "a_package_that_nobody_has" in problem.message


def test_an_exception_has_the_line_in_the_plugin_itself(plugin):
    problem = problem_of(plugin("import json\n\n\njson.loads('{')\n"))
    assert problem.line == 4
    assert "JSONDecodeError" in problem.message


def test_a_duplicate_check_type_is_reported_with_its_line(plugin):
    problem = problem_of(plugin(GOOD.format(name="contains", title="Contains", passed=True)))
    assert "contains 1.0.0 is registered already" in problem.message
    assert problem.line == 6


def test_a_plugin_that_ends_the_program_does_not(plugin):
    problem = problem_of(plugin("import sys\nsys.exit(3)\n"))
    assert problem.line == 2
    assert "SystemExit" in problem.message


def test_a_plugin_that_is_not_there_or_a_folder_or_not_utf_8(plugin, tmp_path):
    assert problem_of(tmp_path / "none.py").message == "cannot be read: No such file or directory"
    assert problem_of(tmp_path).message == "cannot be read: Is a directory"
    path = tmp_path / "latin.py"
    path.write_bytes("x = 'é'\n".encode("latin-1"))
    assert "is not valid Python" in problem_of(path).message


def test_a_plugin_that_failed_is_tried_again(plugin):
    path = plugin("import a_package_that_nobody_has\n")
    problem_of(path)
    problem_of(path)
