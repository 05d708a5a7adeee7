"""`fepflow evalguard`: schemas, migration."""

from __future__ import annotations

from pathlib import Path

from fepflow.evalguard.schema_files import SCHEMAS, schema_text
from tests.surfaces.conftest import Cli, FillRun

LABELLED = "task: qa\nthresholds:\n  acc:\n    - {label: Fine, min: 0.5}\n"


class TestSchema:
    def test_each_is_printed_as_it_is_shipped(self, cli: Cli) -> None:
        for name in SCHEMAS:
            assert cli("evalguard", "schema", name).output == schema_text(name)

    def test_without_a_name_they_are_listed_with_their_files(self, cli: Cli) -> None:
        lines = [line.split() for line in cli("evalguard", "schema").output.splitlines()]
        assert [name for name, _ in lines] == list(SCHEMAS)
        assert all(Path(path).is_file() for _, path in lines)

    def test_another_name_is_a_mistake_of_usage(self, cli: Cli) -> None:
        done = cli("evalguard", "schema", "thresholds")
        assert done.exit_code == 2
        assert "there is no schema thresholds (did you mean threshold?)" in done.output


class TestMigrate:
    def test_it_prints_and_writes_only_when_asked(self, cli: Cli, home: Path) -> None:
        path = home / "qa.yaml"
        path.write_text(LABELLED)
        done = cli("evalguard", "migrate", path, "--impact", "Fine=low")
        assert done.exit_code == 0
        assert (
            done.stdout
            == f"# {path}\n{LABELLED.replace('label: Fine', 'impact: low').replace('0.5', '0.5, interpretation: Fine')}"
        )
        assert path.read_text() == LABELLED
        assert cli("evalguard", "migrate", path, "--impact=Fine=low", "--write").stdout == f"{path}: written\n"
        assert "impact: low" in path.read_text()
        again = cli("evalguard", "migrate", path)
        assert (again.stdout, again.stderr) == ("", "0 to migrate, 1 already v1.\n")

    def test_files_set_aside_are_named(self, cli: Cli, home: Path) -> None:
        policy = home / "policies" / "p.yaml"
        policy.parent.mkdir()
        policy.write_text("id: p\nname: p\nthresholds: {qa: {acc: [{impact: low, min: 0.5}]}}\n")
        done = cli("evalguard", "migrate", home / "policies", "--write")
        assert done.stdout == f"{home / 'thresholds' / 'qa.yaml'}: written\n{policy}: set aside as p.yaml.bak\n"

    def test_a_label_without_an_impact_ends_with_2(self, cli: Cli, home: Path) -> None:
        (home / "qa.yaml").write_text(LABELLED)
        done = cli("evalguard", "migrate", "qa.yaml")
        assert done.exit_code == 2
        assert "qa.yaml:4: thresholds.acc[0].label: the label Fine is no impact" in done.stderr

    def test_an_impact_that_is_none_is_a_mistake_of_usage(self, cli: Cli) -> None:
        for given in ("Fine=good", "Fine"):
            assert cli("evalguard", "migrate", "qa.yaml", "--impact", given).exit_code == 2


def test_the_digest_of_the_thresholds_is_shown(cli: Cli, fill_run: FillRun) -> None:
    digest = "0123456789abcdef" * 4
    verdict = {"gate": "g", "reasons": ["because"], "warnings": [], "thresholds_digest": digest}
    fill_run([], verdict=verdict)
    assert "thresholds: sha256 0123456789ab\n" in cli("show").output
    assert f'"thresholds_digest": "{digest}"' in cli("show", "--json").output
