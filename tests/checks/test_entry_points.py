"""Checks that installed packages offer: a real package in a folder on the path, seen by a process of its own."""

import os
import subprocess
import sys

import pytest

MODULE = """
from fepflow.checks.base import BaseCheck, JSONPath

class Polite(BaseCheck):
    \"\"\"Look for a polite word. Results: `{passed: bool}`.\"\"\"
    text: str | JSONPath
    def __call__(self):
        return {"passed": "please" in self.text}

class Politer(Polite):
    check_version = "1.2.0"

class Contains(BaseCheck):
    check_type = "contains"
    check_version = "1.5.0"
    def __call__(self):
        return {"passed": True}

not_a_check = 5
"""

ENTRY_POINTS = """[fepflow.checks]
polite = manners:Polite
contains = manners:Contains
broken = manners:NotThere
missing = no_such_module:Check
a_number = manners:not_a_check
"""


@pytest.fixture
def run(tmp_path):
    """Run code in a process where the package is installed."""
    (tmp_path / "manners.py").write_text(MODULE)
    info = tmp_path / "manners-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: manners\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    more = tmp_path / "politer-2.0.dist-info"
    more.mkdir()
    (more / "METADATA").write_text("Metadata-Version: 2.1\nName: politer\nVersion: 2.0\n")
    (more / "entry_points.txt").write_text("[fepflow.checks]\npolite = manners:Politer\n")

    def run(*command):
        env = {**os.environ, "PYTHONPATH": str(tmp_path)}
        return subprocess.run([sys.executable, *command], env=env, capture_output=True, text=True, check=False)

    return run


WRONG = {
    "broken": "the check broken of manners cannot be loaded: AttributeError",
    "missing": "the check missing of manners cannot be loaded: ModuleNotFoundError",
    "a_number": "the check a_number of manners cannot be loaded: TypeError: manners:not_a_check is not",
}


def test_its_checks_are_there_beside_ones_that_cannot_be_loaded(run):
    code = (
        "from fepflow import *\n"
        "print('polite' in list_checks(), list_versions('polite'), get_latest_version('polite'))\n"
        "print(list_versions('contains'), get_latest_version('contains'))\n"
        f"checks = [Check(type=name) for name in {[*WRONG]}]\n"
        "polite = Check(type='polite', arguments={'text': '$.output.value'})\n"
        "result = evaluate([TestCase(id='a', input='?')], [Output(value='please')], [polite, *checks])\n"
        "first, *wrong = result.results[0].check_results\n"
        "print(first.check_type, first.results, first.metadata['check_version'])\n"
        "for each in wrong:\n"
        "    print(each.check_type in list_checks(), each.error.type, each.error.message)\n"
    )
    done = run("-c", code)
    assert done.returncode == 0, done.stderr
    versions, ours, polite, *wrong = done.stdout.splitlines()
    assert versions == "True ['1.0.0', '1.2.0'] 1.2.0"
    assert ours == "['1.0.0', '1.5.0'] 1.5.0", "a newer version of a check of ours"
    assert polite == "polite {'passed': True} 1.2.0"
    for line, why in zip(wrong, WRONG.values(), strict=True):
        assert line.startswith(f"False validation_error {why}")


def test_the_command_line_lists_installed_checks(run):
    done = run("-P", "-m", "fepflow.cli.main", "checks")
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert "polite 1.0.0, 1.2.0 Look for a polite word." in lines
