"""The shipped schemas say the same as the models, and are what EvalGuard 4 to 6 ask for."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from referencing import Registry
from referencing.jsonschema import DRAFT202012
from ruamel.yaml import YAML

from fepflow.documents.loader import parse_document
from fepflow.evalguard.documents import SCHEMAS, schema_path, schema_text, validated
from fepflow.evalguard.models import Definition, Metric, Report, Task, Thresholds
from fepflow.suite.models import IMPACTS

MODELS: dict[str, type[Definition]] = {"task": Task, "metric": Metric, "threshold": Thresholds, "report": Report}


def schema(name: str) -> Any:
    return parse_document(schema_text(name), f"{name}.yaml").data


REGISTRY: Registry[Any] = Registry().with_resources(
    (schema_path(name).name, DRAFT202012.create_resource(schema(name))) for name in SCHEMAS
)
VALIDATORS = {name: jsonschema.Draft202012Validator(schema(name), registry=REGISTRY) for name in MODELS}


def accepted(name: str, document: Any) -> bool:
    definition, errors = validated(MODELS[name], document)
    return definition is not None and not errors


def agree(name: str, document: Any) -> bool:
    """Whether both accept the document, or both refuse it; True if they accept it."""
    errors = [error.message for error in VALIDATORS[name].iter_errors(document)]
    assert accepted(name, document) is (not errors), (document, errors)
    return not errors


RANGES = [{"impact": impact, "min": 0.25, "max": 1, "interpretation": "text"} for impact in (IMPACTS[0], IMPACTS[-1])]

COMPLETE: dict[str, Any] = {
    "task": {
        "id": "qa-1_A", "name": "QA", "description": "d", "category": "c", "metrics": ["acc"], "tags": ["t"],
        "languages": ["en"],
    },
    "metric": {
        "id": "acc", "name": "Accuracy", "description": "d", "type": "percentage", "direction": "higher_is_better",
        "tags": ["t"],
    },
    "threshold": {"task": "qa", "thresholds": {"acc": RANGES, "f1": [{"impact": "low", "max": -1.5}], "none": []}},
    "report": {
        "id": "r",
        "metadata": {"evaluator": "e", "deep": [None, {"x": 1}]},
        "context": {
            "model_name": "m", "model_source": "hf", "git_hash": "abc", "date": 1705312800.5,
            "execution": {"model_args_plain": "a=b", "model_args_dict": {"a": "b"}},
            "tools": {"lm_eval": {"version": "0.4.0"}, "other": None},
        },
        "tasks": [{
            "task_ref": "qa", "dataset_path": "p", "dataset_name": "n", "output_type": "multiple_choice", "repeats": 1,
            "should_decontaminate": False, "unsafe_code": True, "n_shot": 0, "n_samples": {"original": 817},
            "version": 1, "metadata": {"filter": "none", "x": None},
        }],
        "results": [{"acc": {"value": 0.75, "stderr": 0.015}, "f1": {"value": -1}}, {}],
    },
}  # fmt: skip
"""A valid document of each kind with every field that there is."""

WRONG: list[Any] = [
    None, True, 0, -1, 0.5, "", "acc", "two words", "a.b", "é", "low", "percentage", [], ["x"], [1], [None], {},
    {"x": 1}, {"acc": 1}, {"two words": []}, {"acc": [{"impact": "low", "min": 1}]},
    [{"acc": {"value": True}}], [{"value": 1}],
]  # fmt: skip


def places(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for step, value in items:
        yield from places(value, (*path, step))


def changed(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    document = copy.deepcopy(document)
    parent = document
    for step in path[:-1]:
        parent = parent[step]
    parent[path[-1]] = value
    return document


def without(document: Any, path: tuple[Any, ...]) -> Any:
    document = copy.deepcopy(document)
    parent = document
    for step in path[:-1]:
        parent = parent[step]
    del parent[path[-1]]
    return document


@pytest.mark.parametrize("name", MODELS)
class TestBothSayTheSame:
    def test_a_document_with_every_field_is_accepted(self, name):
        assert agree(name, COMPLETE[name])

    def test_every_field_of_the_model_is_in_that_document(self, name):
        fields = {step for path in places(COMPLETE[name]) for step in path}
        assert set(MODELS[name].model_fields) <= fields

    def test_with_each_value_replaced(self, name):
        refused = [
            (path, value)
            for path in places(COMPLETE[name])
            for value in WRONG
            if not agree(name, changed(COMPLETE[name], path, value))
        ]
        assert len(refused) > 50

    def test_with_each_field_left_out(self, name):
        required = {
            path[-1] for path in places(COMPLETE[name]) if path and not agree(name, without(COMPLETE[name], path))
        }
        assert (
            required
            == {
                "task": {"id", "name", "metrics"},
                "metric": {"id", "name", "direction"},
                "threshold": {"task", "thresholds", "impact", "max"},
                "report": {"value"},
            }[name]
        )

    def test_with_an_unknown_field_anywhere(self, name):
        mappings = [path for path in places(COMPLETE[name]) if isinstance(at(COMPLETE[name], path), dict)]
        outcomes = [agree(name, changed(COMPLETE[name], (*path, "unknown"), "x")) for path in mappings]
        assert not all(outcomes)


def at(document: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        document = document[step]
    return document


TEXT = st.text(max_size=5).filter(lambda text: not text.endswith("\n"))
"""Python's `$`, which only its JSON Schema library goes by, matches before a last line feed, too."""

FIELDS = ["id", "name", "task", "value", "stderr", "impact", "min", "max", "acc"]

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False, allow_infinity=False) | TEXT
    | st.sampled_from(["acc", "low", "higher_is_better", "score"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(TEXT | st.sampled_from(FIELDS), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


def test_every_impact_is_accepted_by_both():
    for impact in IMPACTS:
        assert agree("threshold", {"task": "qa", "thresholds": {"acc": [{"impact": impact, "min": 0}]}})


@given(st.data())
def test_any_document_is_accepted_by_both_or_by_none(data):
    name = data.draw(st.sampled_from(list(MODELS)))
    document = COMPLETE[name]
    for _ in range(data.draw(st.integers(0, 3))):
        path = data.draw(st.sampled_from(list(places(document))))
        document = changed(document, path, data.draw(VALUES))
    agree(name, document)


@pytest.mark.parametrize("name", MODELS)
def test_a_schema_is_one_of_json_schema_2020_12(name):
    document = schema(name)
    assert document["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema.Draft202012Validator.check_schema(document)


def test_the_files_are_named_as_6_2_has_it_and_are_yaml():
    folder = schema_path("task").parent
    assert folder.name == "v1"
    assert {path.name for path in folder.iterdir()} == {f"{name}.schema.yaml" for name in SCHEMAS}


def references(document: Any) -> Iterator[str]:
    for path in places(document):
        if path and path[-1] == "$ref":
            yield at(document, path)


class TestApi:
    API = schema("api")

    def test_it_is_openapi_3_1_with_the_endpoints_and_parameters_of_4_5(self):
        assert self.API["openapi"] == "3.1.0"
        resolver = REGISTRY.resolver("api.schema.yaml")
        parameters = {
            (path, method): {
                parameter.get("name") or resolver.lookup(f"api.schema.yaml{parameter['$ref']}").contents["name"]
                for parameter in operation.get("parameters", ())
            }
            for path, methods in self.API["paths"].items()
            for method, operation in methods.items()
        }
        filters = {"model_name", "model_source", "task_ref", "metric", "limit", "offset"}
        assert parameters == {
            ("/reports", "get"): filters,
            ("/reports", "post"): set(),
            ("/reports/{report_id}", "get"): {"report_id"},
            ("/reports/{report_id}/metrics", "get"): {"report_id"},
            ("/thresholds", "get"): {"tasks", "metrics"},
            ("/models", "get"): {"model_source", "limit", "offset"},
            ("/tasks", "get"): {"limit", "offset"},
        }
        assert set(self.API["components"]["schemas"]["ReportQuery"]["properties"]) == filters

    def test_every_reference_leads_somewhere_and_the_other_schemas_are_used(self):
        resolver = REGISTRY.resolver("api.schema.yaml")
        targets = set(references(self.API))
        for target in targets:
            assert resolver.lookup(target if ".yaml" in target else f"api.schema.yaml{target}").contents
        assert {"task.schema.yaml", "threshold.schema.yaml", "report.schema.yaml"} <= targets

    def test_its_schemas_are_valid_and_accept_what_they_describe(self):
        pagination = {"total": 1, "limit": 20, "offset": 0, "has_more": False}
        examples: dict[str, dict[str, Any]] = {
            "ReportList": {"reports": [COMPLETE["report"]], "pagination": pagination},
            "ReportMetrics": {"report_id": "r", "metrics": [{"task_ref": "qa", "metric": "acc", "value": 0.5}]},
            "ThresholdList": {"thresholds": [COMPLETE["threshold"]]},
            "ModelList": {"models": [{"model_name": "m", "model_source": "hf"}], "pagination": pagination},
            "TaskList": {"tasks": [COMPLETE["task"]], "pagination": pagination},
            "Error": {"error": {"code": "not_found", "message": "there is no report r"}},
        }
        for name, component in self.API["components"]["schemas"].items():
            jsonschema.Draft202012Validator.check_schema(component)
            if name in examples:
                whole = {"$ref": f"api.schema.yaml#/components/schemas/{name}"}
                validator = jsonschema.Draft202012Validator(whole, registry=REGISTRY)
                validator.validate(examples[name])
                assert not validator.is_valid({**examples[name], "unknown": 1})


def test_the_examples_of_the_specification_are_valid():
    specification = Path(__file__).parent / "specification_examples.yaml"
    for name, documents in YAML(typ="safe").load(specification.read_text(encoding="utf-8")).items():
        for document in documents:
            assert agree(name, json.loads(json.dumps(document)))
