"""EvalGuard's API: reports, imported and of runs."""

from __future__ import annotations

import pytest

from fepflow.store.store import Store
from tests.fepflow.api.rest.evalguard.conftest import SOME, Client, numbers, report


class TestReports:
    def test_the_newest_come_first_and_pages_say_what_is_left(self, api: Client, store: Store) -> None:
        assert api.get("/reports") == {
            "reports": [],
            "pagination": {"total": 0, "limit": 20, "offset": 0, "has_more": False},
        }
        store.reports.add(SOME)

        assert numbers(api.get("/reports")) == [4, 3, 2, 1]
        page = api.get("/reports", limit=2, offset=1)
        assert numbers(page) == [3, 2]
        assert page["pagination"] == {"total": 4, "limit": 2, "offset": 1, "has_more": True}
        assert api.get("/reports", limit=2, offset=2)["pagination"]["has_more"] is False
        beyond = api.get("/reports", offset=2147483647)
        assert (beyond["reports"], beyond["pagination"]["total"]) == ([], 4)

    def test_every_filter_holds_by_get_and_by_post(self, api: Client, store: Store, subtests: pytest.Subtests) -> None:
        store.reports.add(SOME)
        for filters, expected in [
            ({"model_name": "other"}, [2]),
            ({"model_name": "org/model"}, [3, 1]),
            ({"model_name": "org"}, []),
            ({"model_name": "ORG/MODEL"}, []),
            ({"model_name": "org/model", "model_source": "hf"}, [1]),
            ({"model_source": "local"}, [3]),
            ({"task_ref": "qa"}, [4, 2, 1]),
            ({"task_ref": "bias"}, [3, 1]),
            ({"metric": "acc"}, [3, 1]),
            ({"task_ref": "qa", "metric": "acc"}, [1]),
            ({"task_ref": "qa", "metric": "pct"}, []),
            ({"task_ref": "bias", "metric": "acc", "model_source": "local"}, [3]),
            ({"task_ref": "%"}, []),
            ({"task_ref": ""}, []),
            ({"model_name": "' OR 1=1 --"}, []),
        ]:
            with subtests.test(filters=filters, expected=expected):
                found = api.get("/reports", **filters)
                assert numbers(found) == expected
                assert found["pagination"]["total"] == len(expected)
                assert api.post(json=filters) == found
                assert numbers(api.post(json={**filters, "limit": 1, "offset": 1})) == expected[1:2]

    def test_texts_beyond_ascii_are_found_and_sent(self, api: Client, store: Store) -> None:
        name = 'modèle "\\u00e9" 🦙'
        store.reports.add([report(1, model=name, tâche={"acc": 0.5})])
        assert numbers(api.get("/reports", model_name=name, task_ref="tâche")) == [1]
        assert api.get("/models")["models"] == [{"model_name": name, "model_source": "hf"}]

    def test_metadata_that_json_has_no_words_for_are_sent(self, api: Client, store: Store) -> None:
        odd = report(1)
        odd.report["metadata"] = {"nan": float("nan"), "half": "\ud800", "nul": ["\0", float("inf")]}
        store.reports.add([odd])
        assert api.get(f"/reports/{odd.id}")["metadata"] == {"nan": None, "half": "\ud800", "nul": ["\0", None]}

    def test_a_very_long_task_is_found_by_none_but_itself(self, api: Client, store: Store) -> None:
        long = "é" * 999
        store.reports.add([report(1, named={long: {"m" * 5000: 0.5}}), report(2, named={f"{long}x": {}})])
        assert numbers(api.get("/reports", task_ref=long)) == [1]
        (metric,) = api.get(f"/reports/{1:064x}/metrics")["metrics"]
        assert (metric["metric"], metric["value"]) == ("m" * 5000, 0.5)


class TestOneReport:
    def test_a_report_is_found_by_the_id_that_it_is_listed_under(self, api: Client, store: Store) -> None:
        store.reports.add(SOME)
        for listed in api.get("/reports")["reports"]:
            assert api.get(f"/reports/{listed['id']}") == listed

    def test_its_own_id_finds_it_while_no_other_has_the_same(self, api: Client, store: Store) -> None:
        store.reports.add([report(1, own="mine")])
        found = api.get("/reports/mine")
        assert (found["id"], found["metadata"]) == (f"{1:064x}", {"report_id": "mine"})
        store.reports.add([report(2, own="mine")])
        error = api.get("/reports/mine", 404)["error"]
        assert error["message"] == "Several reports call themselves 'mine': name the one by its id in the list."

    def test_what_is_not_there_is_not_found(self, api: Client, store: Store, subtests: pytest.Subtests) -> None:
        store.reports.add(SOME)
        for rest in ["", "/metrics"]:
            for name in ["nothing", "0" * 63, "%00", "%ED%A0%80", "%F0%9F%A6%99", "x" * 5000, "..%5C"]:
                with subtests.test(name=name, rest=rest):
                    assert api.get(f"/reports/{name}{rest}", 404)["error"]["code"] == "not_found"

    def test_metrics_come_with_their_tasks_and_standard_errors(self, api: Client, store: Store) -> None:
        one = report(1, qa={"acc": 0.5, "f1": 1}, bias={"acc": 0.25}, none={})
        one.report["results"][0]["acc"]["stderr"] = 0.125
        store.reports.add([one])
        assert api.get(f"/reports/{one.id}/metrics") == {
            "report_id": one.id,
            "metrics": [
                {"task_ref": "qa", "metric": "acc", "value": 0.5, "stderr": 0.125},
                {"task_ref": "qa", "metric": "f1", "value": 1},
                {"task_ref": "bias", "metric": "acc", "value": 0.25},
            ],
        }
