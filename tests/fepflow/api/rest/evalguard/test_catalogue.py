"""EvalGuard's API: models, tasks and thresholds; and all of it over EvalGuard's own files."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from fepflow.documents.loader import parse_document
from fepflow.services.evalguard_reports import import_reports
from fepflow.store.store import Store
from tests.fepflow.api.rest.evalguard.conftest import DEMO, SOME, Client, Serve, report


class TestModels:
    def test_each_model_of_each_source_is_there_once_by_name(self, api: Client, store: Store) -> None:
        store.reports.add([*SOME, report(5), report(6, source=None), report(7, model="Other")])
        models = [
            {"model_name": "Other", "model_source": "hf"},
            {"model_name": "org/model"},
            {"model_name": "org/model", "model_source": "hf"},
            {"model_name": "org/model", "model_source": "local"},
            {"model_name": "other", "model_source": "hf"},
        ]
        assert api.get("/models")["models"] == models
        page = api.get("/models", limit=2, offset=2)
        assert page["models"] == models[2:4]
        assert page["pagination"] == {"total": 5, "limit": 2, "offset": 2, "has_more": True}
        assert api.get("/models", model_source="local")["models"] == [models[3]]


class TestCatalogue:
    def test_tasks_and_thresholds_are_those_of_the_files(self, api: Client) -> None:
        tasks = api.get("/tasks")
        assert [task["id"] for task in tasks["tasks"]] == ["refund_desk"]
        assert tasks["pagination"]["total"] == 1
        (found,) = api.get("/thresholds", tasks="refund_desk,unknown,refund_desk")["thresholds"]
        file = DEMO / "thresholds" / "refund_desk.yaml"
        assert found == parse_document(file.read_text(encoding="utf-8"), "refund_desk.yaml").data
        (some,) = api.get("/thresholds", tasks="refund_desk", metrics="unknown,acc")["thresholds"]
        assert some == {"task": "refund_desk", "thresholds": {"acc": found["thresholds"]["acc"]}}
        assert api.get("/thresholds", tasks="refund_desk", metrics="unknown") == {"thresholds": []}
        assert api.get("/thresholds", tasks="unknown") == {"thresholds": []}

    def test_without_a_folder_there_are_no_definitions(self, serve: Serve) -> None:
        api = serve(None)
        assert api.get("/tasks")["tasks"] == []
        assert api.get("/thresholds", tasks="refund_desk") == {"thresholds": []}

    def test_a_file_that_changes_is_read_again_and_a_broken_one_changes_nothing(
        self, serve: Serve, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        shutil.copytree(DEMO, folder := tmp_path / "definitions")
        api, file = serve(folder), folder / "tasks" / "refund_desk.yaml"
        before = api.get("/tasks")
        text = file.read_text(encoding="utf-8")
        for broken in ("id: [", "id: refund_desk\n", f"{text}\nunknown: 1\n", text.replace("- acc", "- not_there")):
            file.write_text(broken, encoding="utf-8")
            assert api.get("/tasks") == before
            assert f"{file}:" in caplog.text
            assert "those read before are served" in caplog.text
            caplog.clear()
            assert api.get("/tasks") == before
            assert caplog.text == ""
        file.write_text(text.replace("- en", "- fr"), encoding="utf-8")
        (after,) = api.get("/tasks")["tasks"]
        assert after == {**before["tasks"][0], "languages": ["fr"]}
        (folder / "tasks" / "more.yaml").write_text("id: more\nname: More\nmetrics: []\n", encoding="utf-8")
        assert [task["id"] for task in api.get("/tasks")["tasks"]] == ["more", "refund_desk"]

    def test_a_catalogue_of_the_newer_layout_is_served_in_that_of_v1(self, serve: Serve, tmp_path: Path) -> None:
        files = {
            "tasks/qa": "id: qa\nname: QA\n",
            "metrics/acc": "id: acc\nname: acc\ndirection: higher_is_better\n",
            "policies/p": "id: p\nname: P\ndescription: P\nthresholds: {qa: {acc: [{impact: low, min: 0.5}]}}\n",
        }
        for name, text in files.items():
            (tmp_path / name).parent.mkdir()
            (tmp_path / f"{name}.yaml").write_text(text)
        api = serve(tmp_path)
        assert api.get("/tasks")["tasks"] == [{"id": "qa", "name": "QA", "metrics": ["acc"]}]
        assert api.get("/thresholds", tasks="qa")["thresholds"] == [
            {"task": "qa", "thresholds": {"acc": [{"impact": "low", "min": 0.5}]}}
        ]

    @pytest.mark.parametrize("content", [None, {}, {"tasks/a.yaml": "id: a\n"}, {"tasks/a.txt": ""}])
    def test_definitions_that_never_could_be_read_are_a_503_and_reports_are_there(
        self, serve: Serve, tmp_path: Path, content: dict[str, str] | None
    ) -> None:
        folder = tmp_path / "definitions"
        for name, text in (content or {}).items():
            (folder / name).parent.mkdir(parents=True)
            (folder / name).write_text(text)
        api = serve(folder)
        for path, parameters in (("/tasks", {}), ("/thresholds", {"tasks": "a"})):
            error = api.get(path, 503, **parameters)["error"]
            assert error["code"] == "unavailable"
            assert "cannot be read: the log of the server says why" in error["message"]
        assert api.get("/reports")["reports"] == []
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(DEMO, folder)
        assert len(api.get("/tasks")["tasks"]) == 1


@pytest.fixture
def real() -> Path:
    folder = os.environ.get("FEPFLOW_TEST_DATA")
    if not folder or not (Path(folder) / "evalguard").is_dir():
        pytest.skip("no FEPFLOW_TEST_DATA with EvalGuard's own files")
    return Path(folder) / "evalguard"


def test_the_definitions_and_reports_of_evalguard_itself_are_served(serve: Serve, store: Store, real: Path) -> None:
    api = serve(real / "config")
    imported = import_reports(store, [real / "reports"], lambda path, warnings: None)
    assert (imported.added, imported.bad) == (4, [])

    assert api.get("/tasks", limit=100)["pagination"]["total"] == 33
    assert api.get("/tasks", limit=10, offset=30)["pagination"]["has_more"] is False
    (truthful, crows) = api.get("/thresholds", tasks="truthfulqa_mc1,crows_pairs_english,bbq")["thresholds"]
    assert set(truthful["thresholds"]) == {"acc", "acc_norm"}
    assert crows["task"] == "crows_pairs_english"
    assert api.get("/models")["pagination"]["total"] == 4
    listed = api.get("/reports", task_ref="truthfulqa_mc1", metric="acc")["reports"]
    assert listed
    for each in listed:
        metrics = api.get(f"/reports/{each['id']}/metrics")["metrics"]
        assert [one for one in metrics if (one["task_ref"], one["metric"]) == ("truthfulqa_mc1", "acc")]
        (same,) = api.get("/reports", model_name=each["context"]["model_name"])["reports"]
        assert same == each
    assert api.get("/reports", task_ref="truthfulqa_mc1", metric="acc_norm")["reports"] == []
