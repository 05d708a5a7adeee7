import os
from pathlib import Path

import pytest

from fepflow.errors import InputError, Problem
from fepflow.evalguard.documents import load_metrics, load_tasks, load_thresholds

ACC = """\
task: {task}
thresholds:
  acc:
    - impact: severe
      max: 0.5
    - impact: low
      min: 5e-1
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for task in ("arithmetic", "geometry"):
        (tmp_path / f"{task}.yaml").write_text(ACC.format(task=task))
    return tmp_path


def problems_of(path: Path, task: str | None = None) -> list[Problem]:
    with pytest.raises(InputError) as caught:
        load_thresholds(path, task)
    return caught.value.problems


class TestThresholds:
    def test_a_file_is_read(self, folder: Path) -> None:
        thresholds = load_thresholds(folder / "geometry.yaml")
        assert thresholds.task == "geometry"
        assert [(item.impact, item.min, item.max) for item in thresholds.thresholds["acc"]] == [
            ("severe", None, 0.5),
            ("low", 0.5, None),
        ]

    def test_in_a_folder_the_file_of_the_task_is_picked(self, folder: Path) -> None:
        assert load_thresholds(folder, "geometry").task == "geometry"

    def test_the_only_file_of_a_folder_needs_no_task(self, folder: Path) -> None:
        (folder / "geometry.yaml").unlink()
        assert load_thresholds(folder).task == "arithmetic"

    def test_a_configuration_folder_has_them_under_thresholds(self, folder: Path) -> None:
        config = folder / "config"
        (config / "thresholds").mkdir(parents=True)
        (config / "thresholds" / "t.json").write_text('{"task": "t", "thresholds": {}}')
        (config / "thresholds" / "README.md").write_text("not a definition")
        assert load_thresholds(config, "t").thresholds == {}

    def test_a_task_without_thresholds_is_an_error_that_suggests_its_neighbour(self, folder: Path) -> None:
        (problem,) = problems_of(folder, "geometri")
        assert "geometri" in problem.message
        assert problem.advice == "did you mean geometry?"

    def test_thresholds_of_another_task_are_not_taken(self, folder: Path) -> None:
        (problem,) = problems_of(folder / "geometry.yaml", "spelling")
        assert problem.advice == "there are thresholds for geometry"

    def test_several_tasks_and_none_named_is_an_error_that_lists_them(self, folder: Path) -> None:
        (problem,) = problems_of(folder)
        assert problem.advice == "set task; there are thresholds for arithmetic, geometry"

    def test_a_task_with_two_files_is_an_error_that_names_both(self, folder: Path) -> None:
        (folder / "z.yaml").write_text(ACC.format(task="geometry"))
        (problem,) = problems_of(folder, "arithmetic")
        assert (problem.file, problem.line, problem.path) == (str(folder / "z.yaml"), 1, "task")
        assert "geometry.yaml" in problem.message

    def test_a_folder_without_definitions_is_an_error(self, tmp_path: Path) -> None:
        (problem,) = problems_of(tmp_path, "t")
        assert problem.message == "there are no thresholds in this folder"

    def test_a_path_that_is_not_there_is_an_error(self, tmp_path: Path) -> None:
        (problem,) = problems_of(tmp_path / "nowhere.yaml")
        assert problem.file == str(tmp_path / "nowhere.yaml")


class TestMistakes:
    def test_all_of_a_file_are_reported_in_reading_order_with_line_and_advice(self, tmp_path: Path) -> None:
        path = tmp_path / "thresholds.yaml"
        path.write_text(
            "task: two words\n"
            "author: me\n"
            "thresholds:\n"
            "  acc:\n"
            "    - label: Poor\n"
            "      max: 0.6\n"
            "    - impact: awful\n"
            "      min: true\n"
            "    - impact: low\n"
            "      maximum: 3\n"
            "    - impact: low\n"
            "  f1: 0.5\n"
        )
        found = [(problem.line, problem.path, problem.advice) for problem in problems_of(path)]
        assert found == [
            (1, "task", None),
            (2, "author", "known are task, thresholds"),
            (5, "thresholds.acc[0]", None),
            (7, "thresholds.acc[1].impact", None),
            (8, "thresholds.acc[1].min", None),
            (10, "thresholds.acc[2].maximum", "did you mean max?"),
            (11, "thresholds.acc[3]", None),
            (12, "thresholds.f1", None),
        ]

    def test_errors_of_all_files_are_raised_together(self, folder: Path) -> None:
        (folder / "a.yaml").write_text("task: a\n")
        (folder / "b.yaml").write_text("task: b\ntask: c\n")
        files = [Path(problem.file or "").name for problem in problems_of(folder, "geometry")]
        assert files == ["a.yaml", "b.yaml"]

    @pytest.mark.parametrize("text", ["", "- task", "text"])
    def test_a_document_that_is_not_a_mapping(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "t.yaml").write_text(text)
        (problem,) = problems_of(tmp_path / "t.yaml")
        assert problem.message == "must be a mapping"

    def test_yaml_1_2_reads_no_as_text_and_a_bare_number_as_no_identifier(self, tmp_path: Path) -> None:
        (tmp_path / "t.yaml").write_text("task: no\nthresholds: {}\n")
        assert load_thresholds(tmp_path / "t.yaml").task == "no"
        (tmp_path / "t.yaml").write_text("task: 7\nthresholds: {}\n")
        (problem,) = problems_of(tmp_path / "t.yaml")
        assert problem.advice == "put it in quotes"


class TestTasksAndMetrics:
    def test_they_are_read_from_their_folders_by_id(self, tmp_path: Path) -> None:
        for kind, text in (
            ("tasks", "id: sums\nname: Sums\nmetrics: [acc]\ntags:\n"),
            ("metrics", "id: acc\nname: Accuracy\ntype: percentage\ndirection: higher_is_better\n"),
        ):
            (tmp_path / kind).mkdir()
            (tmp_path / kind / "one.yml").write_text(text)
        assert load_tasks(tmp_path)["sums"].metrics == ["acc"]
        assert load_metrics(tmp_path)["acc"].direction == "higher_is_better"
        assert load_metrics(tmp_path / "metrics").keys() == {"acc"}

    def test_an_id_has_one_definition(self, tmp_path: Path) -> None:
        for name in ("one.yaml", "two.yaml"):
            (tmp_path / name).write_text("# which is which?\nid: acc\nname: A\ndirection: higher_is_better\n")
        with pytest.raises(InputError, match=r"two\.yaml:2: id: acc is defined already, in .*one\.yaml"):
            load_metrics(tmp_path)


@pytest.mark.skipif("FEPFLOW_TEST_DATA" not in os.environ, reason="FEPFLOW_TEST_DATA is not set")
class TestRealDefinitions:
    def test_the_upstream_configuration_is_valid(self) -> None:
        config = Path(os.environ["FEPFLOW_TEST_DATA"]) / "evalguard" / "config"
        assert len(load_tasks(config)) == 33
        assert len(load_metrics(config)) == 30
        assert load_thresholds(config, "truthfulqa_mc1").thresholds.keys() == {"acc", "acc_norm"}
        assert load_thresholds(config, "crows_pairs_english").thresholds.keys() == {"pct_stereotype"}


POLICY = """\
id: default
name: Default
thresholds:
  arithmetic:
    acc: [{impact: low, min: 0.5}]
  geometry:
    acc: [{impact: low, min: 0.7}]
"""


class TestPolicies:
    def test_thresholds_are_read_from_a_policy_and_from_a_configuration_folder_with_policies(
        self, tmp_path: Path
    ) -> None:
        (tmp_path / "policies").mkdir()
        (tmp_path / "policies" / "default.yaml").write_text(POLICY)
        for path in (tmp_path, tmp_path / "policies", tmp_path / "policies" / "default.yaml"):
            assert load_thresholds(path, "geometry").thresholds["acc"][0].min == 0.7

    def test_tasks_of_a_newer_catalogue_have_the_metrics_of_its_policies(self, tmp_path: Path) -> None:
        for name, text in {"tasks/geometry": "id: geometry\nname: G\n", "policies/default": POLICY}.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / f"{name}.yaml").write_text(text)
        for path in (tmp_path, tmp_path / "tasks", tmp_path / "tasks" / "geometry.yaml"):
            (task,) = load_tasks(path).values()
            assert task.metrics == ["acc"]

    def test_two_policies_for_a_task_contradict(self, tmp_path: Path) -> None:
        for name in ("a.yaml", "b.yaml"):
            (tmp_path / name).write_text(POLICY)
        assert {problem.message for problem in problems_of(tmp_path, "geometry")} == {
            f"{task} is defined already, in {tmp_path / 'a.yaml'}" for task in ("arithmetic", "geometry")
        }


def test_a_link_out_of_a_folder_of_thresholds_is_refused(folder: Path, tmp_path: Path) -> None:
    (folder / "inside").mkdir()
    (folder / "inside" / "geometry.yaml").symlink_to("../geometry.yaml")
    (problem,) = problems_of(folder / "inside", "geometry")
    assert problem.message == "is a symbolic link that leads out of the folder"
