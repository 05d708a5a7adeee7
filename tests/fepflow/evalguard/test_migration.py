"""Older and newer layouts become v1: what changes, what stays, and what is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from fepflow.errors import InputError
from fepflow.evalguard.documents import load_tasks, load_thresholds
from fepflow.evalguard.migration import Migration, plan_migration, write_migration
from fepflow.evalguard.validation import validate_catalogue

ACC = """\
# of the first version
task: toxigen
thresholds:
  acc:
    - label: Very low # fine
      min: 0.70
      interpretation: Almost no toxic language
    - label: Very high
      max: 0.7
"""
ACC_V1 = """\
# of the first version
task: toxigen
thresholds:
  acc:
    - impact: very_low # fine
      min: 0.70
      interpretation: Almost no toxic language
    - impact: severe
      max: 0.7
      interpretation: Very high
"""
ACC_NORM = """\
task: toxigen
thresholds:
  acc_norm:
    - impact: low
      min: 0.5 # half
"""
POLICY = """\
id: default
name: Default
thresholds:
  bbq:
    acc:
      - impact: low
        min: 0.5 # half
  toxigen:
    f1: []
"""


def put(folder: Path, **texts: str) -> Path:
    for name, text in texts.items():
        path = folder / name.replace("__", "/").replace("_json", ".json")
        path = path if path.suffix == ".json" else path.with_suffix(".yaml")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def written(migration: Migration, folder: Path) -> dict[str, str]:
    return {str(file.path.relative_to(folder)): file.text for file in migration.files}


def mistakes(path: Path) -> list[str]:
    with pytest.raises(InputError) as caught:
        plan_migration(path)
    return [str(problem).removeprefix(f"{path}/") for problem in caught.value.problems]


def test_labels_become_impacts_where_they_stand_and_comments_stay(tmp_path):
    put(tmp_path, acc=ACC)
    assert written(plan_migration(tmp_path / "acc.yaml"), tmp_path) == {"acc.yaml": ACC_V1}


def test_an_indentless_list_stays_one(tmp_path):
    put(tmp_path, a="task: a\nthresholds:\n  acc:\n  - label: low\n    min: 1\n")
    assert written(plan_migration(tmp_path), tmp_path) == {
        "a.yaml": "task: a\nthresholds:\n  acc:\n  - impact: low\n    min: 1\n"
    }


def test_a_label_that_is_no_impact_wants_one_and_stays_in_the_interpretation(tmp_path):
    put(tmp_path, a="task: a\nthresholds:\n  acc:\n    - {label: Poor, max: 0.6, interpretation: so so}\n")
    (mistake,) = mistakes(tmp_path)
    assert mistake.startswith("a.yaml:4: thresholds.acc[0].label: the label Poor is not an impact")
    assert '--impact "Poor=severe"' in mistake
    (file,) = plan_migration(tmp_path, {"poor": "high"}).files
    assert "{impact: high, max: 0.6, interpretation: 'Poor: so so'}" in file.text


def test_a_label_beside_an_impact_goes(tmp_path):
    put(tmp_path, a="task: a\nthresholds: {acc: [{label: Fine, impact: low, min: 1}]}\n")
    (file,) = plan_migration(tmp_path).files
    assert file.text == "task: a\nthresholds: {acc: [{impact: low, min: 1, interpretation: Fine}]}\n"


def test_a_json_file_stays_json(tmp_path):
    put(tmp_path, a_json='{"task": "a", "thresholds": {"acc": [{"label": "Low", "min": 1}]}}')
    (file,) = plan_migration(tmp_path).files
    assert json.loads(file.text) == {"task": "a", "thresholds": {"acc": [{"impact": "low", "min": 1}]}}


def test_files_of_one_task_become_one_file_and_are_set_aside(tmp_path):
    put(tmp_path, thresholds__acc_toxigen=ACC, thresholds__acc_norm_toxigen=ACC_NORM)
    migration = plan_migration(tmp_path)
    text = written(migration, tmp_path)["thresholds/toxigen.yaml"]
    assert "min: 0.5 # half" in text
    write_migration(migration)
    assert sorted(path.name for path in (tmp_path / "thresholds").iterdir()) == [
        "acc_norm_toxigen.yaml.bak",
        "acc_toxigen.yaml.bak",
        "toxigen.yaml",
    ]
    assert sorted(path.name for path in migration.set_aside) == ["acc_norm_toxigen.yaml", "acc_toxigen.yaml"]
    assert (tmp_path / "thresholds" / "acc_toxigen.yaml.bak").read_text() == ACC
    assert set(load_thresholds(tmp_path).thresholds) == {"acc", "acc_norm"}


def test_two_files_with_the_same_metric_of_a_task_contradict(tmp_path):
    put(tmp_path, a=ACC_NORM, b=ACC_NORM)
    (mistake,) = mistakes(tmp_path)
    assert mistake.startswith("b.yaml:2: thresholds: acc_norm of the task toxigen has thresholds in")


def test_a_policy_becomes_a_file_for_each_task_together_with_those_that_are_there(tmp_path):
    put(tmp_path, policies__default=POLICY, thresholds__toxigen=ACC_NORM)
    migration = plan_migration(tmp_path)
    assert written(migration, tmp_path)["thresholds/bbq.yaml"] == (
        "task: bbq\nthresholds:\n  acc:\n    - impact: low\n      min: 0.5   # half\n"
    )
    write_migration(migration)
    assert set(load_thresholds(tmp_path, "toxigen").thresholds) == {"f1", "acc_norm"}
    assert not (tmp_path / "policies" / "default.yaml").exists()
    assert plan_migration(tmp_path).files == []


def test_a_task_without_metrics_gets_those_of_the_policies(tmp_path):
    task = "# ours\nid: {0}\nname: {0}\ntags:\n  - a  # first\n"
    put(tmp_path, policies__default=POLICY, **{f"tasks__{name}": task.format(name) for name in ("bbq", "toxigen", "x")})
    migration = plan_migration(tmp_path)
    texts = written(migration, tmp_path)
    assert texts["tasks/bbq.yaml"] == task.format("bbq") + "metrics:\n  - acc\n"
    assert texts["tasks/x.yaml"] == task.format("x") + "metrics: []\n"
    write_migration(migration)
    assert {name: task.metrics for name, task in load_tasks(tmp_path).items()} == {
        "bbq": ["acc"],
        "toxigen": ["f1"],
        "x": [],
    }
    assert validate_catalogue([tmp_path]).errors == []
    assert plan_migration(tmp_path).files == []


def test_a_policy_cannot_write_elsewhere(tmp_path):
    put(tmp_path, policies__p="id: p\nname: p\nthresholds:\n  ../../elsewhere:\n    acc: []\n")
    assert mistakes(tmp_path) == [
        "policies/p.yaml:4: thresholds.../../elsewhere: may hold letters, digits, _ and - only"
    ]


REPORTS = {
    "both by name": {"tasks": {"qa": {"n_shot": 0}}, "results": {"qa": {"acc": {"value": 1}}}},
    "lists of names": {"tasks": [{"qa": {"n_shot": 0}}], "results": [{"qa": {"acc": {"value": 1}}}]},
    "results by name": {"tasks": [{"task_ref": "qa", "n_shot": 0}], "results": {"qa": {"acc": {"value": 1}}}},
}


@pytest.mark.parametrize("report", REPORTS.values(), ids=list(REPORTS))
def test_reports_by_name_become_lists(tmp_path, report):
    put(tmp_path, r_json=json.dumps({"id": "r", **report}))
    (file,) = plan_migration(tmp_path).files
    assert json.loads(file.text) == {
        "id": "r", "tasks": [{"task_ref": "qa", "n_shot": 0}], "results": [{"acc": {"value": 1}}],
    }  # fmt: skip


def test_several_tasks_by_name_keep_their_own_results(tmp_path):
    results = {"a": {"acc": {"value": 1}}, "b": {"acc": {"value": 2, "stderr": 0.5}}}
    put(tmp_path, r_json=json.dumps({"tasks": {"b": {}, "c": {}}, "results": results}))
    (file,) = plan_migration(tmp_path).files
    assert json.loads(file.text) == {
        "tasks": [{"task_ref": "b"}, {"task_ref": "c"}, {"task_ref": "a"}],
        "results": [{"acc": {"value": 2, "stderr": 0.5}}, {}, {"acc": {"value": 1}}],
    }


def test_what_is_v1_already_is_left_alone_and_other_files_too(tmp_path):
    put(tmp_path, tasks__qa="id: qa\nname: qa\nmetrics: []\n", thresholds__toxigen=ACC_NORM, notes="a: 1\n",
        models__m="id: m\n", r_json='{"results": [{"acc": {"value": 1}}], "tasks": [{"task_ref": "qa"}]}')  # fmt: skip
    migration = plan_migration(tmp_path)
    assert migration.files == []
    assert sorted(path.name for path in migration.unchanged) == ["qa.yaml", "r.json", "toxigen.yaml"]


def test_what_is_not_valid_in_its_own_layout_is_refused_and_all_is_said(tmp_path):
    put(tmp_path, a="task: a\nthresholds: {acc: [{label: low, mim: 1}]}\n", b="a: 1\na: 2\n", tasks__c="id: c\n")
    assert [mistake.split(": ")[:2] for mistake in mistakes(tmp_path)] == [
        ["b.yaml:2:1", "is not valid YAML"],
        ["a.yaml:2", "thresholds.acc[0].mim"],
        ["tasks/c.yaml:1", "name"],
        ["tasks/c.yaml:1", "metrics"],
    ]  # fmt: skip


def test_a_symbolic_link_out_of_the_folder_is_refused(tmp_path):
    put(tmp_path, outside=ACC_NORM, inside__here=ACC_NORM)
    (tmp_path / "inside" / "there.yaml").symlink_to("../outside.yaml")
    (tmp_path / "inside" / "again.yaml").symlink_to("nowhere.yaml")
    says = [mistake.partition(": ")[2] for mistake in mistakes(tmp_path / "inside")]
    assert [each.partition(":")[0].partition(" (")[0] for each in says] == [
        "is a symbolic link that leads nowhere",
        "is a symbolic link that leads out of the folder",
    ]


@pytest.mark.parametrize("in_the_way", ["toxigen.yaml", "a.yaml.bak"])
def test_nothing_is_written_where_a_file_is_in_the_way(tmp_path, in_the_way):
    put(tmp_path, a=ACC, b=ACC_NORM)
    migration = plan_migration(tmp_path)
    (tmp_path / in_the_way).write_text("mine")
    with pytest.raises(InputError, match="already exists"):
        write_migration(migration)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["a.yaml", "b.yaml", in_the_way])
    assert (tmp_path / in_the_way).read_text() == "mine"


def test_a_file_that_is_replaced_keeps_its_mode(tmp_path):
    put(tmp_path, a=ACC)
    (tmp_path / "a.yaml").chmod(0o640)
    write_migration(plan_migration(tmp_path))
    assert (tmp_path / "a.yaml").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "a.yaml").read_text() == ACC_V1


def test_evalguards_own_files_are_v1():
    folder = os.environ.get("FEPFLOW_TEST_DATA")
    if not folder:
        pytest.skip("FEPFLOW_TEST_DATA names no folder with EvalGuard's files")
    migration = plan_migration(Path(folder) / "evalguard" / "config")
    assert migration.files == []
    assert len(migration.unchanged) == 65
